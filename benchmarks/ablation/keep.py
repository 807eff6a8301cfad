"""Keep what an experiment showed, without its bulk: `python -m tritonsmith.benchmarks.ablation.keep DIR RESULTS`.

Copies the plan, the tables, the rows, the report, every run's summary, and each winner once; leaves samples, prompts and checkpoints.
Paths become relative to the experiment's folder, or the bare name of what they point to.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.ablation.plan import read_plan
from tritonsmith.benchmarks.ablation.runner import retabulate
from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.graph.storage.summary import read_summary

_WHOLE = ("plan.json", "ablation.json", "runs.csv", "report.html", "report.md")
_PATH = re.compile(r"(?<![\w.+@~-])/[\w.+@~-]+(?:/[\w.+@~-]+)+")


def keep(root: Path, results: Path) -> list[Path]:
    """Copy the experiment in `root` to `results`; returns the files. Raises UsageError."""
    read_plan(root)
    retabulate(root)
    if results.exists() and any(results.iterdir()):
        raise UsageError(f"{results}: the folder is not empty; name a new one")
    runs = sorted(root.glob("cells/*/*/*/summary.json"))
    files = {path: path.relative_to(root) for path in (*(root / name for name in _WHOLE), *runs)}
    for winner in filter(None, (_find_winner(run) for run in runs)):
        files[winner] = Path("winners") / f"{winner.stem}.txt"  # named by the text's sha: one that won often is there once
    copies = []
    for path, place in files.items():
        if not path.is_file():
            continue
        target = results / place
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            text = json.dumps(make_portable(json.loads(text), root.resolve()), indent=1, ensure_ascii=False) + "\n"
        else:  # tables and pages quote reasons, and a reason may name a file of a run
            text = text.replace(f"{root.resolve()}/", "")
        target.write_text(text, encoding="utf-8")
        copies.append(target)
    return copies


def _find_winner(run: Path) -> Path | None:
    summary = read_summary(run.parent)
    return None if summary is None or summary.best is None else run.parent / "kernels" / f"{summary.best.sha}.py"


def make_portable(value: Any, root: Path) -> Any:
    """The same JSON with paths as the module's docstring says."""
    if isinstance(value, dict):
        return {key: make_portable(part, root) for key, part in value.items()}
    if isinstance(value, list):
        return [make_portable(part, root) for part in value]
    return _PATH.sub(lambda found: _strip_path(found.group(), root), value) if isinstance(value, str) else value


def _strip_path(path: str, root: Path) -> str:
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else Path(path).name


def main() -> int:
    """Keep one experiment."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.ablation.keep", description=__doc__)
    parser.add_argument("experiment", type=Path, metavar="DIR")
    parser.add_argument("results", type=Path, metavar="RESULTS")
    options = parser.parse_args()
    try:
        copies = keep(options.experiment, options.results)
    except (TritonsmithError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{len(copies)} files, {sum(path.stat().st_size for path in copies) / 1e6:.1f} MB in {options.results}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
