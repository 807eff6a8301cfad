"""Optimize modules as people have them: `python -m tritonsmith.benchmarks.real_modules.suite --out DIR [--record FILE]`.

It writes a task file for each case of the list whose library is installed, optimizes them with the built-in author, and prints a table.
Scores are strict verdicts against the strongest of six baselines. A module that is kept counts as 1.0.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tritonsmith.benchmarks.host import begin_record, write_record
from tritonsmith.benchmarks.real_modules.cases import CASES, Case
from tritonsmith.evaluator.errors import RunStopped, UsageError
from tritonsmith.graph.suites.folder import collect_results
from tritonsmith.graph.suites.records import RowState, SuiteResults, SuiteRow
from tritonsmith.graph.suites.run import optimize_suite, plan_suite

_LOSS = 0.97
"""A score below this is a loss that a measurement can see."""
SETTINGS: dict[str, Any] = {"model": "offline", "seeds": 1, "policy": "no-tune", "baselines": "six"}


def choose_cases(words: Sequence[str], types: Sequence[str]) -> list[Case]:
    """Cases whose library is installed, whose names hold one of the words and whose type is named, by word; none named: all."""
    found = [
        case
        for case in CASES
        if (not words or any(word in case.name for word in words))
        and (not types or case.type in types)
        and (not case.library or importlib.util.find_spec(case.library) is not None)
    ]
    return sorted(found, key=lambda case: next((place for place, word in enumerate(words) if word in case.name), 0))


def write_tasks(cases: Sequence[Case], folder: Path) -> list[str]:
    """Task files of these cases, as paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        path = folder / f"{case.name}.py"
        if not path.exists() or path.read_text() != case.write():
            path.write_text(case.write())
    return [str(folder / f"{case.name}.py") for case in cases]


def count_gain(row: SuiteRow) -> float:
    """What a user has afterwards: the score where it is proven faster, else 1."""
    return row.score if row.outcome == "faster" and row.score else 1.0


def summarize(rows: Sequence[SuiteRow], cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Per group of types: modules that are over, faster, kept or without an answer, and the geometric mean."""
    types = {case.name: case.type for case in cases}
    groups = {"16 bits": ("bf16", "fp16"), "fp32": ("fp32",), "all": ("bf16", "fp16", "fp32")}
    made = {}
    for name, among in groups.items():
        done = [row for row in rows if row.state is RowState.DONE and types[Path(row.task).stem] in among]
        gains = [count_gain(row) for row in done]
        made[name] = {
            "modules": len(done),
            "faster": sum(row.outcome == "faster" for row in done),
            "without a kernel": sum(row.outcome == "no_kernel" for row in done),
            "losses claimed": sum(gain < _LOSS for gain in gains),
            "geometric mean": round(math.exp(sum(map(math.log, gains)) / len(gains)), 3) if gains else None,
        }
    return made


def print_table(results: SuiteResults, cases: Sequence[Case]) -> None:
    """A row for each module, then the groups."""
    types = {case.name: case.type for case in cases}
    table = Table("module", "type", "outcome", "score", "against", "ms", "baseline ms", "seconds", "why it ended", title=results.headline)
    for row in results.rows:
        numbers = ["" if value is None else f"{value:.3g}" for value in (row.score, row.median_ms, row.baseline_ms)]
        table.add_row(
            Path(row.task).stem, types[Path(row.task).stem], row.outcome or row.state.value, numbers[0], row.baseline, *numbers[1:],
            f"{row.seconds:.0f}", row.reason[:120],
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 230)
    console.print(table)
    for name, group in summarize(results.rows, cases).items():
        console.print(name, group)


def main() -> None:
    """Write the tasks, run what is missing, print the table. Exit code 2 for words that name no case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only cases whose names hold one of these")
    parser.add_argument("--types", default="", help="only these, such as bf16,fp16")
    parser.add_argument("--out", type=Path, required=True, help="the suite's folder; a second call goes on where the first one ended")
    parser.add_argument("--record", type=Path, help="a JSON file for every row")
    parser.add_argument("--write", action="store_true", help="only write the task files")
    parser.add_argument("--parallel", type=int, help="tasks at a time")
    parser.add_argument("--baselines", default="six", help="the set of baselines: four, six or four-only")
    parser.add_argument("--target", help="a card that is not there: its times are estimates")
    options = parser.parse_args()
    cases = choose_cases(options.words, [word for word in options.types.split(",") if word])
    if not cases:
        print("no case has such a name and type; the list is in benchmarks/real_modules/cases.py", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    paths = write_tasks(cases, options.out / "tasks")
    if options.write:
        return
    settings = SETTINGS | {"baselines": options.baselines} | ({"target": options.target} if options.target else {})
    suite = options.out / "suite"
    try:
        plan = plan_suite(paths, settings=settings, parallel=options.parallel)
        results = optimize_suite(plan, suite)
    except (RunStopped, KeyboardInterrupt) as stop:  # by a signal: what is over is shown, and the same command goes on
        print(stop or "stopped", file=sys.stderr)  # noqa: T201
        results = collect_results(plan, suite)
    except UsageError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(2)
    print_table(results, cases)
    if options.record is not None:
        record = begin_record("real_modules.suite", None) | {
            "card": results.plan.card, "kind": results.plan.kind, "groups": summarize(results.rows, cases),
            "rows": [row.model_dump(mode="json") for row in results.rows],
        }  # fmt: skip
        write_record(record, options.record)


if __name__ == "__main__":
    main()
