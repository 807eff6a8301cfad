"""Judge the built-in author's operators by PyTorch's own samples: `python -m tritonsmith.benchmarks.operators.suite`.

Every operator of PyTorch's table is called with its samples, with tensors that are not contiguous, and with special values. The author's
kernel for each call runs in Triton's interpreter. It ends with a table, and with 1 where any result is not PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from tritonsmith.benchmarks.host import append_row, begin_record, print_end, print_line
from tritonsmith.benchmarks.operators.digest import DIGEST
from tritonsmith.benchmarks.rounding.study import read_part

_SAMPLES = 12
"""Of one operator and type."""
_KEPT = 40
"""Wrong trials of an operator that a record names."""


@dataclass
class OperatorRow:
    """What became of the trials of one operator."""

    name: str
    passed: int = 0
    left: int = 0
    refused: int = 0
    wrong: int = 0
    skipped: int = 0
    """Values that PyTorch refuses, and sums whose order decides whether they overflow."""
    types: list[str] = field(default_factory=list)
    """Of first tensors for which there is a kernel."""
    refusals: list[str] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def samples(self) -> int:
        """Trials that were judged."""
        return self.passed + self.left + self.refused + self.wrong


def judge_operator(judge: Any, info: Any, most: int, types: Sequence[str] = ()) -> OperatorRow:
    """All trials of one operator.

    Args:
        judge: an `OperatorJudge`.
        info: the operator's entry in PyTorch's table.
        most: samples of each kind and type.
        types: only these, by name; all where empty.
    """
    from tritonsmith.benchmarks.operators import samples  # noqa: PLC0415 - imports torch, behind the interpreter's switch

    row, started = OperatorRow(samples.name_operator(info)), time.monotonic()
    refusals: Counter[str] = Counter()
    for dtype in samples.TYPES:
        name = str(dtype).removeprefix("torch.")
        if dtype not in info.supported_dtypes("cpu") or (types and name not in types):
            continue
        settled: set[tuple[object, ...]] = set()
        for trial in samples.list_trials(info, dtype, most):
            if trial.call.key in settled:
                continue  # without a kernel, other values change nothing
            found = judge.judge(trial.call, trial.tensors, samples.is_elementwise(info))
            if found is None:
                row.skipped += 1
                continue
            setattr(row, found.outcome, getattr(row, found.outcome) + 1)
            if found.outcome in ("left", "refused"):
                settled.add(trial.call.key)
            if found.outcome == "refused":
                refusals[found.reason] += 1
            if found.outcome in ("passed", "wrong") and name not in row.types:
                row.types.append(name)
            if found.outcome == "wrong" and len(row.failures) < _KEPT:
                row.failures.append({"type": name, "kind": trial.kind, "call": trial.call.words, "reason": found.reason})
    judge.forget()
    row.refusals = [reason for reason, _ in refusals.most_common(3)]
    row.seconds = round(time.monotonic() - started, 1)
    return row


def table_of(rows: Sequence[OperatorRow]) -> Table:
    """A line for each operator that the author writes, or gets wrong."""
    table = Table(title="operators of the built-in author")
    for column in ("operator", "samples", "passed", "left to PyTorch", "refused", "wrong", "s"):
        table.add_column(column, overflow="fold")
    for row in rows:
        if row.passed or row.wrong:
            figures = (row.samples, row.passed, row.left, row.refused, row.wrong, row.seconds)
            table.add_row(row.name, *map(str, figures), style="bold red" if row.wrong else None)
    return table


def describe_end(rows: Sequence[OperatorRow]) -> list[str]:
    """Lines after the table: sums, and wrong trials, of each kind the first."""
    lines = []
    for row in rows:
        for failure in row.failures[:3]:
            lines.append(f"WRONG {row.name} ({failure['kind']}): {failure['call']}: {failure['reason']}")
    written = [row for row in rows if row.passed or row.wrong]
    sums = {name: sum(getattr(row, name) for row in rows) for name in ("samples", "passed", "left", "refused", "wrong")}
    lines.append(f"{len(rows)} operators, {len(written)} with kernels; " + ", ".join(f"{value} {name}" for name, value in sums.items()))
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonsmith.benchmarks.operators.suite", description=__doc__)
    parser.add_argument("--only", default="", help="comma-separated names of operators")
    parser.add_argument("--types", default="", help="comma-separated names of types, such as float32,int64")
    parser.add_argument("--part", type=read_part, default=(1, 1), metavar="K/N", help="every N-th operator, from the K-th on")
    parser.add_argument("--samples", type=int, default=_SAMPLES, metavar="N", help="samples of each operator, type and kind")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="so many operators, drawn from those that have kernels")
    parser.add_argument("--seed", type=int, default=0, help="of that draw")
    parser.add_argument("--out", type=Path, default=None, help="a file for the result of each operator, one in a line")
    return parser


def run(options: argparse.Namespace, words: Sequence[str] | None) -> list[OperatorRow]:
    """A row for each operator that is asked for; each is written and printed at once."""
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
    from tritonsmith.benchmarks.operators.judge import OperatorJudge  # noqa: PLC0415

    out = options.out.open("w", encoding="utf-8") if options.out else None
    judge = OperatorJudge()
    rows = []
    try:
        if out:
            append_row(out, begin_record("operators.suite", words))
        for info in _choose(options):
            row = judge_operator(judge, info, options.samples, tuple(filter(None, options.types.split(","))))
            rows.append(row)
            if out:
                append_row(out, asdict(row))
            if row.wrong:
                print_line(f"WRONG {row.name}: {row.wrong} of {row.samples}, {row.failures[0]['call']}: {row.failures[0]['reason']}")
    finally:
        judge.close()
        if out:
            out.close()
    return rows


def _choose(options: argparse.Namespace) -> Iterator[Any]:
    from tritonsmith.benchmarks.operators.samples import load_operators, name_operator  # noqa: PLC0415

    part, parts = options.part
    infos = sorted((info for info in load_operators() if "empty" not in info.name), key=name_operator)  # whose values nobody defines
    names = tuple(filter(None, options.only.split(",")))
    infos = [info for info in infos if not names or info.name in names][part - 1 :: parts]
    if options.draw:
        known = json.loads(DIGEST.read_text(encoding="utf-8"))["written"]
        written = [info for info in infos if name_operator(info) in known]
        infos = random.Random(options.seed).sample(written, min(options.draw, len(written)))
    yield from infos


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every result is PyTorch's, else 1; 2 for a wrong option."""
    started = time.monotonic()
    rows = run(_parser().parse_args(arguments), arguments)
    print_end(table_of(rows), describe_end(rows), started)
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
