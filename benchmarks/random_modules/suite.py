"""Judge the author on random modules: `python -m tritonsmith.benchmarks.random_modules.suite --count N --seed S [--out FILE]`.

Each module has two to twelve operators and is made from its seed alone. Its kernel runs in Triton's interpreter, on plain and on special
values, and is compared with PyTorch. A wrong one is made smaller and written down. It ends with counts, and with 1 where any is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import begin_record, print_line, shorten_paths

_FAULTS = ("wrong", "crashed", "slow")
_PATIENCE = 240
"""Seconds without a line after which a worker is taken for hung."""
_TOGETHER = 200
"""Modules of one worker process, so that its memory stays small."""


@dataclass
class ModuleRow:
    """What became of one module."""

    seed: int
    fate: str
    reason: str = ""
    kind: str = ""
    steps: int = 0
    seconds: float = 0.0
    signature: str = ""
    """Of a fault: the operators of the smallest module that still has it."""
    smallest: str = ""
    """That module as a task file, with the values that show it."""


def judge_seeds(seeds: Sequence[int]) -> Iterator[ModuleRow]:
    """A row for each seed, in this process."""
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
    from tritonsmith.benchmarks.random_modules.draw import draw_module  # noqa: PLC0415
    from tritonsmith.benchmarks.random_modules.judge import ModuleJudge  # noqa: PLC0415
    from tritonsmith.benchmarks.random_modules.minimise import minimise  # noqa: PLC0415

    judge = ModuleJudge()
    try:
        for seed in seeds:
            started = time.monotonic()
            module = draw_module(seed)
            judged = judge.judge(module, seed)
            row = ModuleRow(
                seed,
                judged.fate,
                judged.reason,
                judged.kind,
                len(module.steps),
                round(time.monotonic() - started, 2),
            )
            if judged.fate in _FAULTS[:2]:
                failure = minimise(judge, module, judged, seed)
                row.signature, row.smallest, row.reason = (
                    failure.signature,
                    failure.module.write(failure.values),
                    failure.phrase,
                )
            yield row
    finally:
        judge.close()


def run_apart(seeds: Sequence[int], deadline: float) -> Iterator[ModuleRow]:
    """A row for each seed from worker processes; a seed at which one dies or hangs is `crashed`.

    Args:
        seeds: of the modules.
        deadline: on the monotonic clock; no module is begun behind it.
    """
    left = list(seeds)
    while left and time.monotonic() < deadline:
        batch = left[:_TOGETHER]
        words = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            __spec__.name if __spec__ else __name__,
            "--worker",
            ",".join(map(str, batch)),
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
        done = 0
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                if not line.startswith('{"seed"'):
                    continue
                done += 1
                yield ModuleRow(**json.loads(line))
                if time.monotonic() > deadline:
                    worker.kill()
                    return
        if done < len(batch):
            yield ModuleRow(batch[done], "crashed", f"the process ended with {worker.returncode}")
            done += 1
        left = left[done:]


def describe_end(rows: Sequence[ModuleRow]) -> list[str]:
    """Lines at the end: faults by kind, refusals by sentence, counts per thousand."""
    lines = []
    faults = [row for row in rows if row.fate in _FAULTS]
    for signature, count in Counter(row.signature for row in faults).most_common():
        first = next(row for row in faults if row.signature == signature)
        lines.append(
            f"{first.fate.upper()} x{count} [{signature}] seed {first.seed}, {first.kind}: {first.reason}"
        )
    for sentence, count in Counter(row.reason for row in rows if row.fate == "refused").most_common(12):
        lines.append(f"refused x{count}: {sentence}")
    counts = Counter(row.fate for row in rows)
    lines.append(
        ", ".join(
            f"{count} {fate} ({1000 * count / max(len(rows), 1):.0f} per thousand)"
            for fate, count in counts.most_common()
        )
    )
    return lines


def _read_seeds(text: str) -> Sequence[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of seeds; write whole numbers such as 7,12")
    return [int(word) for word in words]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonsmith.benchmarks.random_modules.suite", description=__doc__)
    parser.add_argument("--count", type=int, default=200, metavar="N", help="modules")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of the first module; others follow it"
    )
    parser.add_argument("--seeds", type=_read_seeds, default=(), metavar="S,S", help="just these modules")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="T", help="begin no module later than this"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="a file for the result of each module, one in a line"
    )
    parser.add_argument(
        "--write",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="write the modules as task files, and judge none",
    )
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser


def _list_seeds(options: argparse.Namespace) -> Sequence[int]:
    return options.seeds or range(options.seed, options.seed + options.count)


def _write_tasks(folder: Path, seeds: Sequence[int]) -> None:
    from tritonsmith.benchmarks.random_modules.draw import draw_module  # noqa: PLC0415 - imports torch

    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (folder / f"module_{seed}.py").write_text(draw_module(seed).write(), encoding="utf-8")


def run(options: argparse.Namespace, words: Sequence[str] | None) -> list[ModuleRow]:
    """A row for each module; each is written at once."""
    deadline = time.monotonic() + options.seconds
    out = options.out.open("w", encoding="utf-8") if options.out else None
    rows = []
    try:
        if out:
            _write(out, begin_record("random_modules.suite", words))
        for row in run_apart(_list_seeds(options), deadline):
            row.reason = shorten_paths(row.reason)
            rows.append(row)
            if out:
                _write(out, asdict(row))
            if row.fate in _FAULTS:
                print_line(f"{row.fate.upper()} seed {row.seed} [{row.signature}] {row.kind}: {row.reason}")
    finally:
        if out:
            out.close()
    return rows


def _write(out: Any, row: dict[str, object]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when no module is wrong, crashed or slow, else 1; 2 for a wrong option."""
    options = _parser().parse_args(arguments)
    if options.worker:
        for row in judge_seeds([int(word) for word in options.worker.split(",")]):
            print_line(json.dumps(asdict(row)))
        return 0
    if options.write:
        _write_tasks(options.write, _list_seeds(options))
        return 0
    rows = run(options, arguments)
    for line in describe_end(rows):
        print_line(line)
    return 1 if any(row.fate in _FAULTS for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
