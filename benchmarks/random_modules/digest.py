"""Counts of runs, small enough to be kept: `python -m tritonsmith.benchmarks.random_modules.digest --before FILE... --after FILE...`.

Each FILE is one that the suite wrote with `--out`. A row of a later file replaces that of an earlier one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import print_line, shorten_paths

DIGEST = Path(__file__).parents[1] / "results" / "random_modules.json"
_FAULTS = ("wrong", "crashed", "slow")


def read_rows(paths: Iterable[Path]) -> dict[int, dict[str, Any]]:
    """The rows of some files by seed, the last one of each."""
    rows: dict[int, dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "seed" in row:
                rows[row["seed"]] = row
    return dict(sorted(rows.items()))


def count_fates(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Modules by what became of them, per thousand, sentences of refusals, and faults by their operators.

    Args:
        rows: by seed, as the suite writes them.
    """
    fates = Counter(row["fate"] for row in rows.values())
    refusals = Counter(shorten_paths(row["reason"]) for row in rows.values() if row["fate"] == "refused")
    faults = [
        {"seed": seed, "fate": row["fate"], "operators": row["signature"], "values": row["kind"], "reason": row["reason"]}
        for seed, row in rows.items()
        if row["fate"] in _FAULTS
    ]
    per_thousand = {fate: round(1000 * count / max(len(rows), 1), 1) for fate, count in fates.most_common()}
    return {
        "modules": len(rows),
        "counts": dict(fates.most_common()),
        "per_thousand": per_thousand,
        "refusals": dict(refusals.most_common()),
        "faults": faults,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 2 for a wrong option."""
    parser = argparse.ArgumentParser(prog="tritonsmith.benchmarks.random_modules.digest", description=__doc__)
    parser.add_argument("--before", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--after", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--out", type=Path, default=DIGEST)
    options = parser.parse_args(arguments)
    made: dict[str, Any] = {}
    try:
        if options.out.is_file():  # what is not counted anew stays
            made = json.loads(options.out.read_text(encoding="utf-8"))
        made |= {name: count_fates(read_rows(files)) for name in ("before", "after") if (files := getattr(options, name))}
    except (OSError, ValueError) as error:
        parser.error(f"a file cannot be read as rows of the suite: {error}")
    if not made:
        parser.error("there is nothing to count; name files with --before or --after")
    options.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    for name, counts in made.items():
        print_line(f"{name}: {counts['modules']} modules, per thousand: {counts['per_thousand']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
