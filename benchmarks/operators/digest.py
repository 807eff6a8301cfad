"""Puts results of the suite together, small enough to be kept: `python -m tritonsmith.benchmarks.operators.digest FILE... [--out FILE]`.

Each FILE is one that the suite wrote with `--out`, such as one part of a run. A row of a later file replaces that of an earlier one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import print_line, shorten_paths

DIGEST = Path(__file__).parents[1] / "results" / "operators.json"
_FIGURES = ("samples", "passed", "left", "refused", "wrong")
_REASON = 160
"""Characters of a refusal."""


def read_rows(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """The rows of some files by operator, the last one of each."""
    rows: dict[str, dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "name" in row:
                rows[row["name"]] = row
    return dict(sorted(rows.items()))


def make_digest(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept: sums, figures of operators with kernels, and names of the others.

    Args:
        rows: by operator, as the suite writes them.
    """
    written, left, refused, silent = {}, [], {}, []
    sums = dict.fromkeys(_FIGURES, 0)
    for name, row in rows.items():
        figures = {key: row[key] for key in _FIGURES[1:]}
        figures["samples"] = sum(figures.values())
        for key in _FIGURES:
            sums[key] += figures[key]
        if row["passed"] or row["wrong"]:
            written[name] = {key: figures[key] for key in _FIGURES} | {"types": row["types"]}
        elif row["left"]:
            left.append(name)
        elif row["refused"]:
            refused[name] = shorten_paths(row["refusals"][0])[:_REASON]
        else:
            silent.append(name)
    return {"operators": len(rows), "sums": sums, "written": written, "left": left, "refused": refused, "without_samples": silent}


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 2 for a wrong option."""
    parser = argparse.ArgumentParser(prog="tritonsmith.benchmarks.operators.digest", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, default=DIGEST)
    options = parser.parse_args(arguments)
    made = make_digest(read_rows(options.files))
    # a line for each operator, so that a change of one is a change of one line
    parts = [f'"{key}": {_write(value)}' for key, value in made.items()]
    options.out.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    words = ", ".join(f"{made['sums'][key]} {key}" for key in _FIGURES)
    print_line(f"{made['operators']} operators, {len(made['written'])} with kernels: {words}")
    return 0


def _write(value: Any) -> str:
    if isinstance(value, dict) and value and not all(isinstance(part, int) for part in value.values()):
        return "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(part)}" for name, part in value.items()) + "\n}"
    return json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
