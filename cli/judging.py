"""One evaluation for the commands that need one, with the settings that they share."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tritonsmith.cli.options import BaselinesChoice, ModeChoice, PrecisionChoice, SandboxChoice, SizeChoice, err
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.schema import Hardware, Task, TaskFacts, Verdict
from tritonsmith.evaluator.source.refuse import refuse_text
from tritonsmith.evaluator.tasks import choose_load_size, load_task, parse_overrides, settle_task
from tritonsmith.graph.suites.shipped import find_task_file


@dataclass(frozen=True)
class Judgement:
    """A verdict with what it was made against."""

    verdict: Verdict
    task_facts: TaskFacts
    hardware: Hardware


@dataclass(frozen=True)
class JudgingSettings:
    """Where and at which size a task is judged, as the options say."""

    task: str
    target: str = "auto"
    size: SizeChoice = SizeChoice.AUTO
    overrides: tuple[str, ...] = ()
    precision: PrecisionChoice = PrecisionChoice.AUTO
    sandbox: SandboxChoice = SandboxChoice.AUTO
    mode: ModeChoice | None = None
    baselines: BaselinesChoice = BaselinesChoice.FOUR

    def load(self, present: bool) -> Task:
        """The task; `auto` is the full size on a card and a small one without. Raises TaskError."""
        size = choose_load_size(self.size.value, present)
        return load_task(find_task_file(self.task), size, parse_overrides(self.overrides), self.precision.value, self.mode)


def refuse(source: str, settings: JudgingSettings, profile: str) -> Verdict | None:
    """The verdict about a text that no process need see; None for every other. Raises TaskError for a file that is no task."""
    settings.load(present=True)
    return refuse_text(KernelText.of(source), profile)


def judge(source: str, settings: JudgingSettings, profile: str, raw: Path | None = None) -> Judgement:
    """Judge a kernel's text; raw samples go to `raw`, and are kept nowhere without it. Raises UsageError and InfrastructureError."""
    settings.load(present=True)  # what is wrong with the file is said before anything is started

    async def work() -> Judgement:
        asked = open_evaluator(settings.target, raw, sandbox=settings.sandbox.value, baselines=settings.baselines.value)
        async with asked as evaluator:
            task = settings.load(evaluator.hardware.present)
            facts = await evaluator.describe(task)
            task = settle_task(task, facts)
            verdict = await evaluator.evaluate(task, KernelText.of(source), profile)
            if raw is None and verdict.timing is not None:  # the evaluator's own folder goes with it
                verdict = verdict.model_copy(update={"timing": verdict.timing.model_copy(update={"raw": None})})
            return Judgement(verdict, facts, evaluator.hardware)

    with err.status("Evaluating ..."):
        return asyncio.run(work())
