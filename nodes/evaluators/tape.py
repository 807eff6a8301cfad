"""An evaluator that answers from a recording, and asks another one for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from tritonsmith.evaluator.caller.questions.compiler_seed import write_seed_with
from tritonsmith.evaluator.caller.sharing.forwarding import ForwardingEvaluator
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.protocol import CompilerSeed, Evaluator, RaceReport
from tritonsmith.evaluator.reads.record import ABSENT, find_state
from tritonsmith.evaluator.records.contest import Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Task, TaskFacts, Verdict
from tritonsmith.nodes.tape.recorder import TapeRecorder, refuse_when
from tritonsmith.nodes.tape.tape import Line, Tape


class TapeEvaluator(ForwardingEvaluator):
    """Answers what is on a tape from it; asks another evaluator for the rest, and writes that down."""

    def __init__(
        self,
        tape: Tape,
        inner: Evaluator | None = None,
        recorder: TapeRecorder | None = None,
        *,
        portable: bool = False,
        stopping: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Without another evaluator, what is not on the tape ends the run; `portable` leaves out paths of this machine.

        Raises UsageError for a tape without evaluations, and for one of another card.
        """
        super().__init__(inner or _Unrecorded(tape))
        self._stopping = stopping if inner is not None else lambda: None  # a replay asks nobody, and what is missing is said at once
        self._at_work: set[asyncio.Task[Verdict]] = set()
        self._tape, self._recorder, self._portable = tape, recorder, portable
        if inner is not None:
            self._refuse_another_card(inner.hardware)
            if recorder is not None and "hardware" not in tape.head:
                tape.head["hardware"] = inner.hardware.model_dump(mode="json")
                recorder.write({"kind": "hardware", "hardware": tape.head["hardware"]})
        if "hardware" in tape.head:  # prompts were made with it: two cards of one name may differ in what their drivers say
            self.hardware = _read_hardware(tape)

    def _refuse_another_card(self, found: Hardware) -> None:
        """Times of two cards must not be compared within a run."""
        before = self._tape.head.get("hardware")
        if before is None or (before["key"], before["present"]) == (found.key, found.present):
            return
        then = before["name"] if before["present"] else f"estimates for {before['name']}"
        now = found.name if found.present else f"estimates for {found.name}"
        raise UsageError(
            f"{self._tape.path.parent}: the run began with {then} and cannot go on with {now}; resume it where the first is, "
            "or start a new run"
        )

    async def describe(self, task: Task) -> TaskFacts:
        """The recorded facts of the task."""
        if task.sha in self._tape.facts:
            facts = TaskFacts.model_validate(self._tape.facts[task.sha])
            self._refuse_changed_files(task, facts)
            return facts
        facts = await self.inner.describe(task)
        await self._keep({"kind": "facts", "task": task.sha, "facts": facts.model_dump(mode="json")})
        return facts

    def _refuse_changed_files(self, task: Task, facts: TaskFacts) -> None:
        """A recording is of the files that the task read then; packages may be others, as a replay imports none."""
        changed = facts.reads.find_changed_files(Path(task.folder)) if facts.reads is not None and task.folder else ()
        for path in changed:
            if find_state(path) != ABSENT:  # what is not here at all is on the machine that recorded
                why = f"{path}, which {task.path} reads, is not what it was when this was recorded"
                raise UsageError(f"{self._tape.path}: {why}; put it back, or record anew")

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The recorded verdict about a text."""
        key = (task.sha, kernel.sha, profile)
        line = self._tape.verdicts.get(key)
        if line is not None:
            return Verdict.model_validate(line["verdict"])
        refuse_when(self._stopping)
        work = asyncio.ensure_future(self._judge(task, kernel, profile))
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)
        return await work

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """The recorded answer to the same race; None where nobody could race."""
        question = name_race(incumbent, entrants)
        line = self._tape.races.get((task.sha, question))
        if line is not None:
            return None if line["report"] is None else RaceReport.model_validate(line["report"])
        refuse_when(self._stopping)
        report = await self.inner.race(task, incumbent, entrants, facts, keep, seconds)
        line = {"kind": "race", "task": task.sha, "race": question, "report": report and report.model_dump(mode="json")}
        self._tape.races[task.sha, question] = line
        await self._keep(line)
        return report

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """The recorded answer to the same contests."""
        question = text_sha(" ".join(contest.key for contest in contests))
        line = self._tape.regions.get((task.sha, question))
        if line is not None:
            return ContestReport.model_validate(line["report"])
        refuse_when(self._stopping)
        report = await self.inner.race_regions(task, contests, seconds)
        line = {"kind": "regions", "task": task.sha, "race": question, "report": report.model_dump(mode="json")}
        self._tape.regions[task.sha, question] = line
        await self._keep(line)
        return report

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """The recorded counters of a text; a recording that was made without any has none."""
        line = self._tape.counters.get((task.sha, kernel.sha))
        if line is None:
            refuse_when(self._stopping)
            found = await self.inner.count(task, kernel)
            line = {"kind": "counters", "task": task.sha, "kernel": kernel.sha, "counters": found and found.model_dump(mode="json")}
            self._tape.counters[task.sha, kernel.sha] = line
            if found is not None:
                await self._keep(line)
        return None if line["counters"] is None else Counters.model_validate(line["counters"])

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """The recorded digest of what a text compiles to."""
        line = self._tape.codes.get((task.sha, kernel.sha))
        if line is not None:
            return str(line["code"])
        refuse_when(self._stopping)
        code = await self.inner.read_code(task, kernel)
        line = {"kind": "code", "task": task.sha, "kernel": kernel.sha, "code": code}
        self._tape.codes[task.sha, kernel.sha] = line
        await self._keep(line)
        return code

    async def write_seed(self, task: Task) -> CompilerSeed:
        """The recorded text of a compiler, or why it had none."""
        line = self._tape.seeds.get(task.sha)
        if line is not None:
            return CompilerSeed.model_validate(line["seed"])
        refuse_when(self._stopping)
        seed = await write_seed_with(self.inner, task)
        line = {"kind": "seed", "task": task.sha, "seed": seed.model_dump(mode="json")}
        self._tape.seeds[task.sha] = line
        await self._keep(line)
        return seed

    def knows(self, task: Task, kernel: KernelText, profile: str = "quick") -> bool:
        """Whether the verdict is on the tape, so that nothing is judged for it."""
        return (task.sha, kernel.sha, profile) in self._tape.verdicts

    async def settle(self) -> None:
        """Wait for the verdicts that are under way, and keep them; their callers may have gone."""
        await asyncio.gather(*self._at_work, return_exceptions=True)

    async def _judge(self, task: Task, kernel: KernelText, profile: str) -> Verdict:
        key = (task.sha, kernel.sha, profile)
        verdict = await self.inner.evaluate(task, kernel, profile)
        record = verdict.model_dump(mode="json")
        if self._portable and record["timing"]:
            record["timing"]["raw"] = None  # the samples stay where they were measured
        line = {"kind": "verdict", "task": key[0], "kernel": key[1], "profile": profile, "verdict": record}
        self._tape.verdicts[key] = line
        await self._keep(line)
        return verdict

    async def _keep(self, line: Line) -> None:
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.write, line)


class _Unrecorded(Evaluator):
    """Stands where a replay has no evaluator: what it is asked is not on the tape. Raises UsageError for a tape without evaluations."""

    def __init__(self, tape: Tape) -> None:
        self._path, self.hardware = tape.path, _read_hardware(tape)

    async def describe(self, task: Task) -> TaskFacts:
        raise UsageError(f"--replay {self._path}: the recording is of another task, size or precision than {task.name} ({task.size})")

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        raise self._differs(f"{profile} verdict about kernel {kernel.sha}")

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        raise self._differs("race of these configurations")

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        raise self._differs("race of these regions")

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        raise self._differs(f"compiled code of {kernel.sha}")

    async def write_seed(self, task: Task) -> CompilerSeed | None:
        raise UsageError(f"--replay {self._path}: the recording has no kernel of a compiler; drop --seed-from")

    def _differs(self, what: str) -> UsageError:
        return UsageError(f"--replay {self._path}: the recording has no {what}; an earlier decision differs")


def _read_hardware(tape: Tape) -> Hardware:
    """The card of a recording. Raises UsageError where it has none."""
    try:
        return Hardware.model_validate(tape.head.get("hardware"))
    except ValidationError as error:
        raise UsageError(f"--replay {tape.path}: the recording has no evaluations; record a whole run") from error


def name_race(incumbent: KernelText, entrants: Sequence[KernelText]) -> str:
    """A name of the question, the same for the same texts."""
    return text_sha(" ".join([incumbent.sha, *sorted(entrant.sha for entrant in entrants)]))
