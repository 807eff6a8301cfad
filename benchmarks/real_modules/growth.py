"""How the time of a run grows with a module's regions: `python -m tritonsmith.benchmarks.real_modules.growth --out DIR [--record FILE]`.

A module of N blocks has about three regions per block: a norm, a product with its activation, and a product with the sum around it.
Widths differ from block to block, so that equal kernels are not compiled once for all.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tritonsmith.benchmarks.host import begin_record, write_record
from tritonsmith.evaluator.errors import TritonsmithError
from tritonsmith.graph.run import optimize

REGIONS_PER_BLOCK = 3
_TASK = '''"""A residual MLP of {blocks} blocks whose inner widths differ."""

import torch
from torch import nn
from torch.nn import functional as F

BLOCKS = {blocks}
ROWS = 4096
WIDTH = 512
SMALL = {{"ROWS": 8, "WIDTH": 32}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [2 * WIDTH + WIDTH // 4 * (number % 8) for number in range(BLOCKS)]
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in widths)
        self.ups = nn.ModuleList(nn.Linear(WIDTH, width) for width in widths)
        self.downs = nn.ModuleList(nn.Linear(width, WIDTH) for width in widths)
        self.bfloat16()

    def forward(self, x):
        for norm, up, down in zip(self.norms, self.ups, self.downs):
            x = x + down(F.gelu(up(norm(x))))
        return x


def get_inputs():
    return [torch.randn(ROWS, WIDTH).bfloat16()]


def get_init_inputs():
    return []
'''


def write_task(regions: int, folder: Path) -> Path:
    """A task file of a module with about so many regions."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"regions_{regions}.py"
    path.write_text(_TASK.format(blocks=max(1, round(regions / REGIONS_PER_BLOCK))))
    return path


def time_run(regions: int, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What a run takes, in seconds from its start: to the facts, the first kernel, the first verdict and the answer; and its races."""
    seen: dict[str, float] = {}
    races = {"races": 0, "race_seconds": 0.0}
    started = time.time()

    def note(event: dict[str, Any]) -> None:
        at = datetime.fromisoformat(event["time"]).timestamp() - started
        name = {"candidate": "first kernel", "verdict": "first verdict"}.get(event["event"])
        if event["event"] == "stage" and event["node"] == "seed":
            name = "facts"
        if name:
            seen.setdefault(name, round(at, 1))
        if event["event"] == "raced":
            races["races"] += 1
            races["race_seconds"] += float(event["seconds"])

    summary = optimize(write_task(regions, folder / "tasks"), out=str(folder / f"regions_{regions}"), on_event=note, **settings)
    return {
        "regions": regions, **seen, "answer": round(time.time() - started, 1), **races, "outcome": summary.outcome.value,
        "result": summary.answer,
    }  # fmt: skip


def _read_counts(words: str) -> list[int]:
    if not all(word.strip().isdigit() and int(word) for word in words.split(",")):
        raise argparse.ArgumentTypeError(f"{words!r}: give numbers of regions from 1 on, such as 10,40,150")
    return [int(word) for word in words.split(",")]


def main() -> None:
    """Run a module of each size, one after the other, and print what each step took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regions", type=_read_counts, default=[10, 40, 150], help="numbers of regions, such as 10,40,150")
    parser.add_argument("--out", type=Path, required=True, help="a new or empty folder")
    parser.add_argument("--record", type=Path, help="a JSON file for the rows")
    parser.add_argument("--baselines", default="six", help="the set of baselines: four, six or four-only")
    parser.add_argument("--target", default="auto", help="a card that is not there: its times are estimates")
    options = parser.parse_args()
    record = begin_record("real_modules.growth", None)
    settings: dict[str, Any] = {"model": "offline", "seeds": 1, "policy": "no-tune", "fresh": True, "target": options.target}
    settings["baselines"] = options.baselines
    rows: list[dict[str, Any]] = []
    try:
        for count in options.regions:
            rows.append(time_run(count, options.out, settings))
            if options.record is not None:  # a later size may take too long
                write_record(record | {"rows": rows}, options.record)
    except TritonsmithError as error:  # such as a folder that is not empty
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(2)
    table = Table(*rows[0], title="seconds from the start of a run")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
