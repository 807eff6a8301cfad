"""Evaluations for the commands that need them, with the settings that they share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tritonsmith.cli.options import BaselinesChoice, ModeChoice, PrecisionChoice, SandboxChoice, SizeChoice, err
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.following import EVERY_SECONDS, follow_steps
from tritonsmith.evaluator.schema import Hardware, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks.declared import note_small
from tritonsmith.evaluator.tasks.files import choose_load_size, load_task, parse_overrides, settle_task
from tritonsmith.evaluator.texts.source.refuse import refuse_text
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
    backward: bool = False

    def load(self, present: bool) -> Task:
        """The task; `auto` is the full size on a card and a small one without. Raises TaskError."""
        size = choose_load_size(self.size.value, present)
        overrides, backward = parse_overrides(self.overrides), self.backward or None
        return load_task(find_task_file(self.task), size, overrides, self.precision.value, self.mode, backward)


def refuse(source: str, settings: JudgingSettings, profile: str) -> Verdict | None:
    """The verdict about a text that no process need see; None for every other. Raises TaskError for a file that is no task."""
    settings.load(present=True)
    return refuse_text(KernelText.of(source), profile)


def judge(source: str, settings: JudgingSettings, profile: str, raw: Path | None = None) -> Judgement:
    """Judge a kernel's text; raw samples go to `raw`, and are kept nowhere without it. Raises UsageError and InfrastructureError."""
    settings.load(present=True)  # what is wrong with the file is said before anything is started

    async def work() -> Judgement:
        asked = open_evaluator(settings.target, raw, sandbox=settings.sandbox.value, baselines=settings.baselines.value)
        async with _show_steps(""), asked as evaluator:
            task = settings.load(evaluator.hardware.present)
            facts = await evaluator.describe(task)
            task = note_small(settle_task(task, facts))
            return Judgement(await _evaluate(evaluator, task, source, profile, raw), facts, evaluator.hardware)

    return asyncio.run(work())


def judge_each(
    sources: Sequence[str], settings: JudgingSettings, profile: str, raw: Path | None, tell: Callable[[int, Verdict | str], None]
) -> None:
    """Judge several texts against one task, one after the other, in one evaluator.

    Args:
        sources: the kernels' texts.
        settings: of the task and the evaluator.
        profile: how thorough each verdict is.
        raw: where samples go; they are kept nowhere without it.
        tell: gets each text's number with its verdict, as soon as that is known; or with the reason why there is none, where the evaluator
            failed and other texts are left.
    Raises:
        UsageError: the task or an option is at fault.
        InfrastructureError: the evaluator does not start, or failed on the only text.
    """
    refused = [refuse(source, settings, profile) for source in sources]
    for number, verdict in enumerate(refused):
        if verdict is not None:
            tell(number, verdict)
    left = [number for number, verdict in enumerate(refused) if verdict is None]
    if not left:
        return

    async def work() -> None:
        with err.status("Starting the evaluator ..."):
            asked = open_evaluator(settings.target, raw, sandbox=settings.sandbox.value, baselines=settings.baselines.value)
        async with asked as evaluator:
            task = settings.load(evaluator.hardware.present)
            async with _show_steps(""):
                task = note_small(settle_task(task, await evaluator.describe(task)))
            for number in left:
                try:
                    async with _show_steps(f" {number + 1} of {len(sources)}" if len(sources) > 1 else ""):
                        verdict = await _evaluate(evaluator, task, sources[number], profile, raw)
                    tell(number, verdict)
                except InfrastructureError as error:
                    if len(sources) == 1:
                        raise
                    tell(number, f"the evaluator failed, not the kernel: {error}")

    asyncio.run(work())


@asynccontextmanager
async def _show_steps(which: str) -> AsyncIterator[None]:
    """Context in which stderr shows what a verdict is at: a line that changes on a terminal, lines elsewhere."""
    with err.status(f"Evaluating{which} ...") as status:

        def show(step: str, seconds: float) -> None:
            words = f"Evaluating{which}, {seconds:.0f} s so far{f': {step}' if step else ''}"
            if err.is_terminal:
                status.update(words)
            else:
                err.print(words)

        async with follow_steps(show, 1.0 if err.is_terminal else EVERY_SECONDS):
            yield


async def _evaluate(evaluator: LocalEvaluator, task: Task, source: str, profile: str, raw: Path | None) -> Verdict:
    verdict = await evaluator.evaluate(task, KernelText.of(source), profile)
    if raw is None and verdict.timing is not None:  # the evaluator's own folder goes with it
        verdict = verdict.model_copy(update={"timing": verdict.timing.model_copy(update={"raw": None})})
    return verdict
