"""Whether modules of many launches are timed right: `python -m tritonsmith.benchmarks.timing.launches --out FILE`. Needs a CUDA card.

Blocks of timm and transformers (`blocks.py`), 24 in all, each with an honest candidate of several Triton launches beside library calls.
Each is judged quick and then strict, without audits. Rows go to `--out`, one JSON line each, as they come. With `--load N` as many other
workers keep the host's processors busy meanwhile, and a card each of `--load-cards`. Four processes on four cards share the work with
`--part 1/4` to `--part 4/4`, and may write to one file; `--report` prints the table of a file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tritonsmith.benchmarks.host import print_line, spell_command
from tritonsmith.benchmarks.timing.blocks import BLOCKS, TYPES, Block
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.channel.doorbell import QUICK_BASELINES
from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status, Verdict
from tritonsmith.evaluator.tasks.files import load_task

COUNT = 24
"""Modules of a whole study."""
_LAUNCHES = (4, 60)
"""Launches of the modules that the study is about."""
_PROFILES = {"both": ("quick", "strict"), "quick": ("quick",), "strict": ("strict",)}
_NEAR, _ALIKE, _PAIRS, _MOST_MISSED = 0.05, 0.03, 30, 2
"""Quick within so much of strict, sessions within so much of each other, so many pairs; quick may miss so many modules of 24."""
_BUSY = """
import os, random, sys, time
if sys.argv[1]:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
    import torch
    a = torch.randn(2048, 2048, device="cuda")
    while os.getppid() == int(sys.argv[2]):
        for _ in range(20):
            b = a @ a
        torch.cuda.synchronize()
else:
    while os.getppid() == int(sys.argv[2]):
        end = time.monotonic() + random.uniform(0.02, 0.3)
        while time.monotonic() < end:
            sum(range(1000))
        time.sleep(random.uniform(0.0, 0.05))
"""
"""What a process of a busy worker runs: products on a card, or work on a processor in pieces as a compiler's; ends with its parent."""


@contextlib.contextmanager
def keep_busy(workers: int, cards: Sequence[str]) -> Iterator[None]:
    """Meanwhile other workers keep processors, and a card each of these, busy."""
    each = max(1, (os.cpu_count() or 1) // (workers + 1)) if workers else 0
    kinds = [*cards, *[""] * (workers * each)]
    started = [subprocess.Popen([sys.executable, "-c", _BUSY, kind, str(os.getpid())]) for kind in kinds]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def list_jobs(part: str) -> list[tuple[Block, str]]:
    """The modules of a part `K/N`, those that are measured first; raises UsageError."""
    number, _, parts = part.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise UsageError(f"--part {part}: give K/N, such as 2/4")
    jobs = [(block, dtype) for block in BLOCKS for dtype in TYPES]
    return jobs[int(number) - 1 :: int(parts)]


def judge_block(evaluator: LocalEvaluator, block: Block, dtype: str, profiles: Sequence[str], folder: Path) -> dict[str, Any]:
    """The row of one module. Raises TritonsmithError where its task cannot be judged here."""
    path = folder / f"{block.name.replace(' ', '_')}_{dtype}.py"
    path.write_text(block.task(dtype), encoding="utf-8")
    task, kernel = load_task(path), KernelText.of(block.candidate(dtype))
    row: dict[str, Any] = {"module": block.name, "dtype": dtype}
    for profile in profiles:
        started = time.monotonic()
        verdict = evaluator._judge(task, kernel, profile)  # without audits, which examine the kernel and not its time
        row[profile] = _describe(verdict) | {"seconds": round(time.monotonic() - started, 1)}
        row["launches"] = verdict.facts.launches_per_forward or row.get("launches", 0)
    return row


def _describe(verdict: Verdict) -> dict[str, Any]:
    timing = verdict.timing
    if verdict.status is not Status.OK or timing is None:
        return {"status": verdict.status.value, "message": verdict.message[:400]}
    raw = json.loads(Path(timing.raw).read_text(encoding="utf-8")) if timing.raw and Path(timing.raw).is_file() else {}
    sessions = raw.get("sessions", [])
    return {
        "status": "ok", "form": timing.form, "score": timing.score, "interval": timing.interval, "median_ms": timing.median_ms,
        "said": timing.said.value, "baseline": timing.baseline, "baselines_ms": timing.baselines_ms, "forms_ms": timing.forms_ms,
        "host_ms": timing.host_ms, "sessions": [session.ratio for session in timing.sessions],
        "pairs": [session.pairs for session in timing.sessions], "control": timing.control.ratio if timing.control else None,
        "agree": [session["clocks_agree"] for session in sessions], "notes": timing.notes, "label": verdict.label,
        "quarantine": verdict.quarantine, "steps": verdict.environment.get("seconds_by_step"),
    }  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Judge the part's modules until enough are; raises UsageError without a card."""
    jobs = list_jobs(options.part)
    with tempfile.TemporaryDirectory(prefix="tritonsmith-launches-") as folder:
        evaluator = open_evaluator(raw_dir=Path(folder) / "raw")
        try:
            if not evaluator.hardware.present:
                raise UsageError("there is no CUDA card here, and this study measures on one")
            evaluator.baselines = QUICK_BASELINES  # in both profiles: else their scores would be against other bars
            cards = [card for card in options.load_cards.split(",") if card]
            left, started = math.ceil(options.count / int(options.part.rpartition("/")[2])), time.monotonic()
            with keep_busy(options.load, cards):
                for block, dtype in jobs:
                    if left == 0 or time.monotonic() - started > options.seconds:
                        break
                    left -= _add_row(options, evaluator, block, dtype, Path(folder))
        finally:
            evaluator.close()


def _add_row(options: argparse.Namespace, evaluator: LocalEvaluator, block: Block, dtype: str, folder: Path) -> bool:
    """Whether a module could be judged, or was refused; its row is written and shown in any case."""
    try:
        row = judge_block(evaluator, block, dtype, _PROFILES[options.profile], folder)
    except TritonsmithError as error:
        row = {"module": block.name, "dtype": dtype, "left_out": str(error)[:400]}
    row |= {"load": options.load, "card": evaluator.hardware.name, "command": spell_command("timing.launches", sys.argv[1:])}
    with options.out.open("a", encoding="utf-8") as file:  # one write: other processes may write to it too
        file.write(json.dumps(row) + "\n")
    print_line(json.dumps({key: row.get(key) for key in ("module", "dtype", "launches", "left_out")} | _brief(row)))
    return "left_out" not in row


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    names = ("status", "message", "form", "score", "sessions", "pairs", "agree", "host_ms", "notes", "seconds")
    said = [profile for profile in ("quick", "strict") if profile in row]
    return {profile: {name: row[profile][name] for name in names if name in row[profile]} for profile in said}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, of each module the last one."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list({(row["module"], row["dtype"], row["load"]): row for row in rows}.values())


def count_figures(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """Each figure that is required of one load: what it is, what was reached, and whether that is enough."""
    judged = [row for row in rows if "left_out" not in row]
    right = [row for row in judged if all(row[name]["status"] == "ok" for name in ("quick", "strict") if name in row)]
    fit = [row for row in right if _LAUNCHES[0] <= row["launches"] <= _LAUNCHES[1]]
    both = [row for row in fit if "quick" in row and "strict" in row]
    near = [row for row in both if abs(row["quick"]["score"] / row["strict"]["score"] - 1.0) <= _NEAR]
    strict = [row for row in fit if "strict" in row]
    alike = [row for row in strict if max(row["strict"]["sessions"]) <= (1.0 + _ALIKE) * min(row["strict"]["sessions"])]
    sessions = [pairs for row in fit for name in ("quick", "strict") if name in row for pairs in row[name]["pairs"]]
    refused = [row for row in judged if row not in right]
    blamed = [row for row in judged if any(row[name]["status"] == "cheating" for name in ("quick", "strict") if name in row)]
    return [
        ("quick within 5 % of strict", f"{len(near)} of {len(both)}", len(near) >= len(both) - _MOST_MISSED),
        ("sessions within 3 % of each other", f"{len(alike)} of {len(strict)}", len(alike) == len(strict)),
        ("pairs in each session, at the least", str(min(sessions, default=0)), min(sessions, default=0) >= _PAIRS),
        ("honest candidates refused", str(len(refused)), not refused),
        ("honest candidates called cheating", str(len(blamed)), not blamed),
        ("measured in a CUDA graph", str(sum(row["strict"]["form"] == "cuda_graph" for row in strict)), True),
    ]


def show(rows: Sequence[dict[str, Any]]) -> bool:
    """Print both tables of every load; whether every figure is reached."""
    console, reached = Console(width=None if sys.stdout.isatty() else 180), True
    for load in sorted({row["load"] for row in rows}):
        some = [row for row in rows if row["load"] == load]
        table = Table("module", "launches", "form", "quick", "strict", "sessions", "pairs", "clocks agree", "host ms", title=f"load {load}")
        for row in some:
            table.add_row(*_cells(row))
        console.print(table)
        figures = Table("figure", "reached", "")
        for name, found, enough in count_figures(some):
            figures.add_row(name, found, "yes" if enough else "NO")
            reached = reached and enough
        console.print(figures)
    return reached


def _cells(row: dict[str, Any]) -> list[str]:
    name = f"{row['module']} {row['dtype']}"
    if "left_out" in row:
        return [name, "-", "left out", row["left_out"][:60]]
    last = row.get("strict") or row["quick"]
    found = [row.get(profile, {"status": "-"}) for profile in ("quick", "strict")]
    scores = [f"{one['score']:.3f}" if "score" in one else one["status"] for one in found]
    if "sessions" not in last:
        return [name, str(row["launches"]), "-", *scores]
    agree = "; ".join(" ".join(f"{share:.0%}" for share in takes) for takes in last["agree"])
    host = f"{last['host_ms']:.3g}" if last["host_ms"] is not None else "-"
    return [
        name, str(row["launches"]), last["form"], *scores, " ".join(f"{ratio:.3f}" for ratio in last["sessions"]),
        " ".join(map(str, last["pairs"])), agree, host,
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every figure is reached, 1 when one is missed, 2 for bad input or without a card."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.timing.launches", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file of the rows; new ones are added")
    parser.add_argument("--count", type=int, default=COUNT, help="modules to judge, over all parts")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th module from the K-th on")
    parser.add_argument("--profile", choices=tuple(_PROFILES), default="both")
    parser.add_argument("--load", type=int, default=0, help="other workers that keep processors busy; 3 stands for a host of four cards")
    parser.add_argument("--load-cards", default="", help="cards that they keep busy too, never the one that measures: `1,2,3`")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further module after so many seconds")
    parser.add_argument("--report", action="store_true", help="only print the tables of --out")
    options = parser.parse_args(arguments)
    try:
        if not options.report:
            run(options)
        rows = read_rows(options.out)
    except (TritonsmithError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0 if show(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
