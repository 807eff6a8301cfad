"""Measured kernels of the repository whose exact texts are known: what estimates are compared with.

A run's summary has times and settings of every candidate, and the text of its winner alone. The other texts are the winner's with other
constants, or what the recipe writes today. One counts only if its sha is the one that was measured.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tritonsmith.author.book import match_recipe
from tritonsmith.benchmarks.kernelbench.rate import RATE_TASKS
from tritonsmith.evaluator.caller.questions.describe import TaskDescriptions
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.files import load_task

BENCHMARKS = Path(__file__).parents[1]
RESULTS = BENCHMARKS / "results"
_SHORT = {"seq_len": 128}
"""The size of the ablation's recurrent tasks."""
_NAMES = {"tiles": "TILES", "block": "BLOCK", "slice": "SLICE", "parts": "PARTS"}


@dataclass(frozen=True)
class MeasuredText:
    """One measured text at one size."""

    task: Task
    text: str
    ms: float
    """Median of all verdicts about it."""
    settings: str
    source: str
    """The file with the measurement, below `results/`."""
    baselines: Mapping[str, float]
    """Milliseconds of the reference by name, where they stand beside the text."""

    @property
    def group(self) -> str:
        """Samples of one group do the same work and may be ranked."""
        sizes = ", ".join(f"{name}={value}" for name, value in self.task.overrides.items())
        return " ".join(part for part in (self.task.name, sizes, "train" if self.task.mode == "train" else "") if part)


def list_samples(descriptions: TaskDescriptions) -> list[MeasuredText]:
    """Every measured text that is known exactly, run by run."""
    return [*_list_run_samples(descriptions), *_list_kept_samples(), *_list_kernelbench_samples()]


def set_constant(text: str, name: str, value: object) -> str:
    """A text with another value of a module-level constant, alone or in a line of several; as it is without that constant."""

    def write(line: re.Match[str]) -> str:
        names, values = line[1].split(", "), line[2].split(", ")
        if name in names and len(names) == len(values):
            values[names.index(name)] = repr(value)
            return f"{line[1]} = {', '.join(values)}{line[3]}"
        return line[0]

    return re.sub(r"(?m)^([A-Z_]+(?:, [A-Z_]+)*) = ([^#\n]*?)((?:  #.*)?)$", write, text)


def _list_run_samples(descriptions: TaskDescriptions) -> Iterator[MeasuredText]:
    texts = _read_winners()
    times: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    first: dict[tuple[str, str, bool], tuple[dict[str, Any], dict[str, Any], Path]] = {}
    sized = {row.get("run") for row in json.loads((RESULTS / "summary.json").read_text()) if row.get("set")}
    for path in (*sorted(RESULTS.glob("runs/*.summary.json")), *sorted(RESULTS.glob("ablation_h200/cells/*/*/*/summary.json"))):
        summary = json.loads(path.read_text())
        if path.relative_to(RESULTS).as_posix() in sized:  # at sizes that only its row knows
            continue
        for row in summary["candidates"]:
            if row["status"] == "ok" and row["kind"] == "measured" and row["label"] == "kernel":
                key = (" ".join([summary["task"], summary["precision"], summary.get("mode") or "eval"]), row["sha"], "T128" in str(path))
                times[key].append(row["median_ms"])
                first.setdefault(key, (summary, row, path))
    for key, (summary, row, path) in first.items():
        place = _find_task(summary["task"])
        task = load_task(place, overrides=_SHORT if key[2] else None, precision=summary["precision"], mode=summary.get("mode"))
        text = _find_text(texts, row, task, descriptions)
        if text:
            words = ", ".join(f"{name} {value}" for name, value in row["settings"].items())
            yield MeasuredText(task, text, median(times[key]), f"{row['recipe']}: {words}", str(path.relative_to(RESULTS)), {})


def _find_task(name: str) -> Path:
    """The file of a task that comes along, in whichever folder it lies."""
    tasks = BENCHMARKS / "tasks"
    found = [path for folder in (tasks, BENCHMARKS / "tuning" / "tasks") for path in sorted(folder.rglob(f"{name}.py"))]
    return found[0] if found else tasks / f"{name}.py"


def _read_winners() -> dict[str, str]:
    paths = (*RESULTS.glob("runs/*.best.txt"), *RESULTS.glob("ablation_h200/winners/*.txt"))
    found = [_strip_header(path.read_text(encoding="utf-8")) for path in sorted(paths)]
    return {text_sha(text): text for text in found}


def _strip_header(text: str) -> str:
    """The text that was measured, without what a run writes above its winner."""
    return text.partition("\n\n")[2] if text.startswith("#") else text


def _find_text(texts: Mapping[str, str], row: Mapping[str, Any], task: Task, descriptions: TaskDescriptions) -> str:
    """The measured text itself; empty where it cannot be had."""
    if row["sha"] in texts:
        return texts[row["sha"]]
    for text in texts.values():
        changed = text
        for name, value in row["settings"].items():
            changed = set_constant(changed, _NAMES.get(name, name.upper()), value)
        if text_sha(changed) == row["sha"]:
            return changed
    facts, _ = descriptions.describe(task)
    found = match_recipe(row["recipe"], task, facts, CARDS["h200"])
    recipe = found.recipe(row["recipe"]) if found else None
    if found is None or recipe is None:
        return ""
    text = recipe.render(found.plan, dict(row["settings"]))
    return text if text_sha(text) == row["sha"] else ""


def _list_kept_samples() -> Iterator[MeasuredText]:
    """Winners of `summary.json`, with their baselines; those of a run's summary come again."""
    texts = _read_winners()
    for row in json.loads((RESULTS / "summary.json").read_text()):
        place = BENCHMARKS.parent / row["file"] if "file" in row else _find_task(row["task"])
        text = texts.get(row["winner"]["sha"])
        if text and place.is_file():
            task = load_task(place, overrides=row.get("set"), precision=row["precision_class"], mode=row.get("mode"))
            yield MeasuredText(task, text, row["median_ms"], "winner", "summary.json", row["baselines_ms"])


def _list_kernelbench_samples() -> Iterator[MeasuredText]:
    folder = BENCHMARKS / "kernelbench"
    rows = list(itertools.chain.from_iterable(_read_rows(name) for name in ("rate", "halves", "large")))
    for task in RATE_TASKS:
        for variant, text in task.kernels().items():
            times = [row["median_ms"] for row in rows if row["name"] == task.name and row["kind"].endswith(f": {variant}")]
            if times:
                loaded = load_task(folder / "tasks" / f"{task.name}.py", overrides=task.sizes)
                yield MeasuredText(loaded, text, median(times), variant, "kernelbench_rate.jsonl", {})
    for kernels, tasks, source in (("half_kernels", BENCHMARKS / "tasks" / "half", "halves"), ("kernels", folder / "tasks", "large")):
        for row in _read_rows(source):
            kernel, path = folder / kernels / f"{row['name']}.py", tasks / f"{row['name']}.py"
            if row["kind"] == "right" and row["status"] == "ok" and kernel.exists() and path.exists():
                own = f"kernelbench_{source}.jsonl"
                yield MeasuredText(load_task(path), kernel.read_text(), row["median_ms"], row["kind"], own, row.get("baselines_ms") or {})


def _read_rows(name: str) -> list[dict[str, Any]]:
    """Rows that were measured here: KernelBench's own times are no part."""
    lines = (RESULTS / f"kernelbench_{name}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row.get("status") == "ok" and row.get("label") == "kernel" and row.get("timing") == "measured"]
