"""Compares tuning searches with triton.autotune over the same space. Needs a CUDA card; without one it says what it would measure.

For each task: the untuned kernel, the best after each stage, the tuned kernel once more, and the plain constants that triton.autotune
chooses. Every figure is a full verdict of the evaluator. The seconds of a stage are those of compiling, racing and judging its finalists;
those of the autotuner are of its first forward, in a process of its own with an empty cache. Each arm is one line of `rows.jsonl`.

A persistent kernel has no autotuner's arm: it would be run again and again on counters that its programs have used up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tritonsmith.author.book import match_recipe
from tritonsmith.author.space import TuningSpace, space_of
from tritonsmith.benchmarks.host import begin_record, print_line
from tritonsmith.benchmarks.tuning.cases import CASES, TuningCase, load_case, read_stated, write_autotuned
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import InfrastructureError, TritonsmithError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import RaceReport
from tritonsmith.evaluator.schema import Candidate, Stage, Task, TaskFacts, Verdict
from tritonsmith.evaluator.texts.spaces.space import count_configurations
from tritonsmith.nodes.search.driver import FINALISTS, Limits, TuningSearch, count_registers
from tritonsmith.nodes.search.stage import STAGES
from tritonsmith.prompts.author import Attempt, Brief, Draft

_PERSISTENT = "recurrent_wavefront"
"""The recipe that writes the persistent kernel."""
_AUTOTUNE_SECONDS = 3600.0
"""The longest that one autotuner may take, if nothing else is asked for."""
_REASON_CHARACTERS = 300
"""Length of a reason in a row's note."""


@dataclass
class ArmRow:
    """One arm of one task."""

    case: str
    arm: str
    """`untuned`, `grid`, `block`, `memory`, `tuned` or `autotune`."""
    status: str
    score: float | None = None
    interval: tuple[float, float] | None = None
    median_ms: float | None = None
    kind: str = ""
    seconds: float = 0.0
    """Wall time of this arm."""
    configurations: int = 0
    size: int = 0
    """Configurations of the space."""
    constants: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    """What the search did, or why there is no score."""
    sha: str = ""


@dataclass
class Line:
    """The best kernel of a task so far."""

    draft: Draft
    verdict: Verdict

    @property
    def kernel(self) -> KernelText:
        """Its text."""
        return KernelText.of(self.draft.source)


class TuningStudy:
    """Measures the cases and keeps their rows.

    Args:
        evaluator: judges and races.
        out: folder of the rows.
        size: of the tasks.
        configurations: that each stage may try.
        autotuned: whether triton.autotune is measured too.
        seconds: the longest that one autotuner may take.
    """

    def __init__(
        self, evaluator: LocalEvaluator, out: Path, size: str, configurations: int, *, autotuned: bool, seconds: float = _AUTOTUNE_SECONDS
    ) -> None:
        self._evaluator, self._out, self._size, self._configurations = evaluator, out, size, configurations
        self._autotuned, self._seconds = autotuned, seconds

    def run(self, case: TuningCase) -> list[ArmRow]:
        """All arms of one case. Raises TritonsmithError."""
        task = load_case(case, self._size)
        facts = asyncio.run(self._evaluator.describe(task))
        draft = self._first(case, task, facts)
        started = time.monotonic()
        verdict = self._evaluator.evaluate_now(task, draft.source)
        best, rows = Line(draft, verdict), [self._keep(case, "untuned", draft, verdict, time.monotonic() - started)]
        if verdict.score is None:
            return rows
        if self._autotuned and case.kernel is not None:
            rows.append(self._autotune(case, task))
        spent, tried = 0.0, 0
        for stage in STAGES:
            best, row = self._tune(case, task, facts, stage, best)
            rows.append(row)
            spent, tried = spent + row.seconds, tried + row.configurations
        again = self._evaluator.evaluate_now(task, best.draft.source)
        rows.append(self._keep(case, "tuned", best.draft, again, spent, configurations=tried))
        return rows

    def _first(self, case: TuningCase, task: Task, facts: TaskFacts) -> Draft:
        """The untuned kernel."""
        if case.kernel is not None:
            return Draft(source=case.read_kernel(), rationale="untuned")
        found = match_recipe(_PERSISTENT, task, facts, self._evaluator.hardware)
        recipe = found.recipe(_PERSISTENT) if found else None
        settings = recipe.defaults(found.plan, self._evaluator.hardware, task.precision) if recipe and found else None
        if recipe is None or found is None or settings is None:
            card = self._evaluator.hardware.name
            raise UsageError(f"{case.task}: the recipe {_PERSISTENT} does not fit this task on {card}; leave {case.name} out of --cases")
        return Draft(source=recipe.render(found.plan, settings), rationale="untuned", recipe=recipe.name, settings=settings)

    def _space(self, case: TuningCase, task: Task, facts: TaskFacts, best: Line) -> TuningSpace:
        if case.kernel is not None:
            return read_stated(best.draft.source)
        candidate = Candidate(id="best", sha=best.kernel.sha, stage=Stage.SEED, recipe=best.draft.recipe, settings=best.draft.settings)
        attempt = Attempt(candidate=candidate, source=best.draft.source, verdict=best.verdict)
        return space_of(Brief(task=task, facts=facts, hardware=self._evaluator.hardware, current=attempt))

    def _tune(self, case: TuningCase, task: Task, facts: TaskFacts, stage: Stage, best: Line) -> tuple[Line, ArmRow]:
        """One stage; the line goes on with the best finalist, or as it was."""
        started = time.monotonic()

        async def race(entrants: Sequence[KernelText], seconds: float) -> RaceReport | str | None:
            try:
                return await self._evaluator.race(task, best.kernel, entrants, best.verdict.facts, FINALISTS, seconds)
            except InfrastructureError as error:
                return str(error)

        space, measured = self._space(case, task, facts, best), self._evaluator.hardware.present
        registers = count_registers(best.verdict)
        search = TuningSearch(stage, (stage,), "best", best.kernel, space, measured, race, lambda text: "", registers=registers)
        drafts, record = asyncio.run(search.run(Limits(self._configurations)))
        lines = [best, *(Line(draft, self._evaluator.evaluate_now(task, draft.source)) for draft in drafts)]
        chosen = max((line for line in lines if line.verdict.score is not None), key=lambda line: line.verdict.score or 0.0)
        arm = stage.value.removeprefix("tune_")
        seconds = time.monotonic() - started
        self._write(f"{case.name}-{arm}.json", record.model_dump(mode="json"))
        note = "; ".join([record.sentence(), *(f"refused: {_reason(line.verdict)}" for line in lines if line.verdict.score is None)])
        row = self._keep(case, arm, chosen.draft, chosen.verdict, seconds, configurations=len(record.trials), size=record.size, note=note)
        return chosen, row

    def _autotune(self, case: TuningCase, task: Task) -> ArmRow:
        """What triton.autotune chooses from the same space, judged as plain constants."""
        text = case.read_kernel()
        space = read_stated(text)
        size = count_configurations(space.parameters)
        with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
            asked, candidate = Path(folder) / "task.json", Path(folder) / "candidate.py"
            asked.write_text(task.model_dump_json(), encoding="utf-8")
            candidate.write_text(write_autotuned(text, space.parameters), encoding="utf-8")
            command = [sys.executable, "-m", "tritonsmith.benchmarks.tuning.autotune", str(asked), str(candidate)]
            environment = {**os.environ, "TRITON_CACHE_DIR": str(Path(folder) / "cache")}
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=self._seconds, env=environment, check=False)
            except subprocess.TimeoutExpired:
                note = f"triton.autotune has not ended after {self._seconds:g} s; --autotune-seconds gives it more"
                return self._write_row(ArmRow(case.name, "autotune", "not finished", size=size, seconds=self._seconds, note=note))
        if done.returncode:
            return self._write_row(ArmRow(case.name, "autotune", "failed", size=size, note=done.stderr.strip().splitlines()[-1][:300]))
        found = json.loads(done.stdout.splitlines()[-1])
        draft = Draft(source=str(space.write(found["chosen"])), rationale="autotune")
        verdict = self._evaluator.evaluate_now(task, draft.source)
        return self._keep(
            case, "autotune", draft, verdict, found["seconds"], configurations=found["configurations"], size=size, constants=found["chosen"]
        )

    def _keep(self, case: TuningCase, arm: str, draft: Draft, verdict: Verdict, seconds: float, **more: Any) -> ArmRow:
        timing = verdict.timing
        constants = {parameter.name: parameter.current for parameter in read_stated(draft.source).parameters} or dict(draft.settings)
        row = ArmRow(
            case.name, arm, verdict.status.value, verdict.score, timing.interval if timing else None, timing.median_ms if timing else None,
            timing.kind.value if timing else "", round(seconds, 3), sha=KernelText.of(draft.source).sha, **{"constants": constants, **more},
        )  # fmt: skip
        if verdict.score is None:
            row.note = row.note or _reason(verdict)
        self._write(f"{case.name}-{arm}-verdict.json", verdict.model_dump(mode="json"))
        self._write(f"{case.name}-{arm}.py.txt", draft.source)
        return self._write_row(row)

    def _write_row(self, row: ArmRow) -> ArmRow:
        with (self._out / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print_line(describe(row))
        return row

    def _write(self, name: str, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (self._out / name).write_text(text, encoding="utf-8")


def _reason(verdict: Verdict) -> str:
    """Why a verdict gives no score, in one line."""
    return verdict.message.strip().partition("\n")[0][:_REASON_CHARACTERS] or verdict.status.value


def describe(row: ArmRow) -> str:
    """One arm in one line; an estimate says so."""
    if row.score is None:
        return f"{row.case:16} {row.arm:9} {row.status}: {row.note}"
    word = "" if row.kind == "measured" else " ESTIMATE"
    tried = f"{row.configurations} of {row.size}" if row.size else str(row.configurations)
    return f"{row.case:16} {row.arm:9} {row.score:7.3f}x{word} {row.median_ms:9.4f} ms  {tried:>10} configurations  {row.seconds:7.1f} s"


def compare_arms(rows: Sequence[ArmRow]) -> list[str]:
    """One sentence per case: tuned against untuned and against the autotuner, in time and in wall time."""
    found = []
    for name in dict.fromkeys(row.case for row in rows):
        arms = {row.arm: row for row in rows if row.case == name and row.median_ms is not None}
        if {"untuned", "tuned"} <= arms.keys():
            line = f"{name}: tuned is {_ratio(arms['untuned'], arms['tuned'])} of untuned"
            if "autotune" in arms:
                part = arms["tuned"].seconds / max(arms["autotune"].seconds, 1e-9)
                line += f", {_ratio(arms['autotune'], arms['tuned'])} of the autotuner's choice in {part:.2f} of its wall time"
            found.append(line)
    return found


def _ratio(before: ArmRow, after: ArmRow) -> str:
    return f"{(before.median_ms or 0.0) / (after.median_ms or 1.0):.3f}x the speed"


def main(words: Sequence[str] | None = None) -> int:
    """The study from the command line; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.tuning", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", required=True, type=Path, help="a new or empty folder for rows, verdicts and searches")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES), help="names, with commas")
    parser.add_argument("--configurations", type=int, default=32, help="configurations that each stage may try")
    parser.add_argument("--autotune-seconds", type=float, default=_AUTOTUNE_SECONDS, help="the longest that one triton.autotune may take")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--target", default="auto", help="auto: the card of this machine; a named one that is not here gives estimates")
    asked = parser.parse_args(words)
    try:
        return _measure(asked, words)
    except TritonsmithError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _measure(asked: argparse.Namespace, words: Sequence[str] | None) -> int:
    known = {case.name: case for case in CASES}
    names = asked.cases.split(",")
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--cases {unknown[0]}: no such case; choose from {', '.join(known)}")
    if asked.configurations < 1:
        raise UsageError(f"--configurations {asked.configurations}: a stage must try at least one; give 1 or more")
    if not asked.autotune_seconds > 0:
        raise UsageError(f"--autotune-seconds {asked.autotune_seconds:g}: an autotuner needs some; give more than 0")
    if asked.out.exists() and (not asked.out.is_dir() or any(asked.out.iterdir())):
        raise UsageError(f"--out {asked.out}: something lies there; name a new folder")
    with open_evaluator(asked.target) as evaluator:
        if not evaluator.hardware.present and asked.target == "auto":
            raise UsageError("--target auto: this machine has no card to measure on; name a card for estimates, such as --target h200")
        asked.out.mkdir(parents=True, exist_ok=True)
        head = begin_record("tuning", words) | {"card": evaluator.hardware.name, "measured": evaluator.hardware.present}
        (asked.out / "about.json").write_text(json.dumps(head, indent=1) + "\n", encoding="utf-8")
        present, seconds = evaluator.hardware.present, asked.autotune_seconds
        study = TuningStudy(evaluator, asked.out, asked.size, asked.configurations, autotuned=present, seconds=seconds)
        rows = [row for name in names for row in study.run(known[name])]
    for line in compare_arms(rows):
        print_line(line if evaluator.hardware.present else f"{line} (ESTIMATE)")
    return 0
