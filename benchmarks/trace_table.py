"""How the probe finds the operators of many task files, and what that costs. Prints a table.

`python -m tritonsmith.benchmarks.trace_table FOLDER [FOLDER ...] [--out FILE.csv]`. Every Python file in a folder is a task. Each is
traced at its full size by a probe of its own, so seconds hold the imports (about 2 s) and memory holds what one probe takes at most.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import print_line
from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.evaluator.schema import TaskFacts
from tritonsmith.evaluator.tasks.files import load_task

_SECONDS = 240.0
"""Longest time for one task."""
_FORM = "{:44.44}  {:>4}  {:>9}  {:>10}  {:>10}  {:>8}  {:>7}  {:>6}  {}"


@dataclass(frozen=True)
class Row:
    """What one probe found and took."""

    task: str
    way: str
    """`fx`, `run`, or `none`."""
    operators: int
    flops: float
    bytes: float
    """What the operators move, one after the other."""
    launches: int
    seconds: float
    megabytes: float
    """Largest resident memory of the probe."""
    note: str = ""


def list_tasks(folders: Sequence[Path]) -> list[Path]:
    """The task files of some folders, by the number that their names begin with. Raises UsageError for a folder without one."""
    found = [sorted(folder.glob("*.py"), key=lambda path: (_number(path), path.name)) for folder in folders]
    for folder, paths in zip(folders, found, strict=True):
        if not paths:
            raise UsageError(f"{folder}: holds no task file (*.py); name a folder that does, such as benchmarks/tasks")
    return [path for paths in found for path in paths]


def _number(path: Path) -> int:
    digits = re.match(r"\d+", path.name)
    return int(digits[0]) if digits else 0


def trace_task(path: Path) -> Row:
    """Trace one task in a process of its own."""
    name = f"{path.parent.name}/{path.stem}"
    try:
        question = load_task(path).model_dump_json() + "\n"
    except TaskError as error:
        return Row(name, "none", 0, 0.0, 0.0, 0, 0.0, 0.0, str(error))
    begun = time.monotonic()
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered:
        asked.write(question.encode())
        asked.seek(0)
        command = [sys.executable, "-P", "-m", "tritonsmith.evaluator.reference"]
        process = subprocess.Popen(command, stdin=asked, stdout=answered, stderr=subprocess.DEVNULL)
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() - begun > _SECONDS:
                process.kill()
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        seconds, megabytes = time.monotonic() - begun, ended[2].ru_maxrss / 1024
        answered.seek(0)
        text = answered.read().decode()
    answer: dict[str, Any] = json.loads(text) if text else {"error": f"the probe ended with exit code {process.returncode}"}
    if "error" in answer:
        return Row(name, "none", 0, 0.0, 0.0, 0, seconds, megabytes, str(answer["error"]))
    facts = TaskFacts.model_validate(answer["facts"])
    way, nodes = facts.traced_by.value if facts.traced_by else "none", len(facts.ops) + facts.ops_left_out
    moved = sum(float(cost["bytes"]) for cost in answer["trace"])
    return Row(name, way, nodes, facts.flops, moved, facts.reference_launches, seconds, megabytes, facts.trace_error)


def _write_row(row: Row) -> str:
    figures = (f"{row.flops:.3e}", f"{row.bytes:.3e}", row.launches, f"{row.seconds:.1f}", f"{row.megabytes:.0f}")
    return _FORM.format(row.task, row.way, row.operators, *figures, row.note).rstrip()


def _sum_up(rows: Sequence[Row]) -> str:
    ways = ", ".join(f"{count} {way}" for way, count in Counter(row.way for row in rows).most_common())
    most = (max(row.seconds for row in rows), max(row.megabytes for row in rows))
    return f"{len(rows)} tasks: {ways}; at most {most[0]:.1f} s and {most[1]:.0f} MB"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, help="also write the rows as CSV")
    options = parser.parse_args(arguments)
    try:
        tasks = list_tasks(options.folders)
    except UsageError as error:
        parser.error(str(error))
    rows: list[Row] = []
    print_line(_FORM.format("task", "way", "operators", "flops", "bytes", "launches", "seconds", "MB", "note"))
    for path in tasks:
        rows.append(trace_task(path))
        print_line(_write_row(rows[-1]))
    print_line(_sum_up(rows))
    if options.out:
        with options.out.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [field.name for field in fields(Row)])
            writer.writeheader()
            writer.writerows(map(asdict, rows))
    return 0 if all(row.way != "none" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
