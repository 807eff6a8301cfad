"""An evaluator that answers from a recording, and asks another one for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from tritonsmith.evaluator.caller.questions.compiler_seed import CompilerSeed, write_seed_with
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.protocol import CodeReading, Counting, Evaluator, RaceReport, race_with
from tritonsmith.evaluator.reads.record import ABSENT, find_state
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Task, TaskFacts, Verdict
from tritonsmith.nodes.tape.recorder import TapeRecorder, refuse_when
from tritonsmith.nodes.tape.tape import Line, Tape


class TapeEvaluator:
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
        self._stopping = stopping
        self._at_work: set[asyncio.Task[Verdict]] = set()
        self._tape, self._inner, self._recorder, self._portable = tape, inner, recorder, portable
        self.parallel = getattr(inner, "parallel", 1)
        self.admits = getattr(inner, "admits", self.parallel)
        if inner is not None:
            self._refuse_another_card(inner.hardware)
            if recorder is not None and "hardware" not in tape.head:
                tape.head["hardware"] = inner.hardware.model_dump(mode="json")
                recorder.write({"kind": "hardware", "hardware": tape.head["hardware"]})
        try:  # the tape's, which prompts were made with: two cards of one name may differ in what their drivers say
            known = tape.head.get("hardware")
            self.hardware = inner.hardware if inner is not None and known is None else Hardware.model_validate(known)
        except ValidationError as error:
            raise UsageError(f"--replay {tape.path}: the recording has no evaluations; record a whole run") from error

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
        if self._inner is None:
            raise UsageError(
                f"--replay {self._tape.path}: the recording is of another task, size or precision than {task.name} ({task.size})"
            )
        facts = await self._inner.describe(task)
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
        if self._inner is None:
            raise UsageError(
                f"--replay {self._tape.path}: the recording has no {profile} verdict about kernel {key[1]}; an earlier decision differs"
            )
        refuse_when(self._stopping)
        work = asyncio.ensure_future(self._judge(self._inner, task, kernel, profile))
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
        if self._inner is None:
            raise UsageError(f"--replay {self._tape.path}: the recording has no race of these configurations; an earlier decision differs")
        refuse_when(self._stopping)
        report = await race_with(self._inner, task, incumbent, entrants, facts, keep, seconds)
        line = {"kind": "race", "task": task.sha, "race": question, "report": report and report.model_dump(mode="json")}
        self._tape.races[task.sha, question] = line
        await self._keep(line)
        return report

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """The recorded counters of a text; a recording that was made without any has none."""
        line = self._tape.counters.get((task.sha, kernel.sha))
        if line is None and self._inner is not None:
            refuse_when(self._stopping)
            found = await self._inner.count(task, kernel) if isinstance(self._inner, Counting) else None
            line = {"kind": "counters", "task": task.sha, "kernel": kernel.sha, "counters": found and found.model_dump(mode="json")}
            self._tape.counters[task.sha, kernel.sha] = line
            if found is not None:
                await self._keep(line)
        return Counters.model_validate(line["counters"]) if line is not None and line["counters"] is not None else None

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """The recorded digest of what a text compiles to."""
        line = self._tape.codes.get((task.sha, kernel.sha))
        if line is not None:
            return str(line["code"])
        if self._inner is None:
            raise UsageError(f"--replay {self._tape.path}: the recording has no compiled code of {kernel.sha}; an earlier decision differs")
        refuse_when(self._stopping)
        code = await self._inner.read_code(task, kernel) if isinstance(self._inner, CodeReading) else ""
        line = {"kind": "code", "task": task.sha, "kernel": kernel.sha, "code": code}
        self._tape.codes[task.sha, kernel.sha] = line
        await self._keep(line)
        return code

    async def write_seed(self, task: Task) -> CompilerSeed:
        """The recorded text of a compiler, or why it had none."""
        line = self._tape.seeds.get(task.sha)
        if line is not None:
            return CompilerSeed.model_validate(line["seed"])
        if self._inner is None:
            raise UsageError(f"--replay {self._tape.path}: the recording has no kernel of a compiler; drop --seed-from")
        refuse_when(self._stopping)
        seed = await write_seed_with(self._inner, task)
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

    async def _judge(self, inner: Evaluator, task: Task, kernel: KernelText, profile: str) -> Verdict:
        key = (task.sha, kernel.sha, profile)
        verdict = await inner.evaluate(task, kernel, profile)
        record = verdict.model_dump(mode="json")
        if self._portable and record["timing"]:
            record["timing"]["raw"] = None  # the samples stay where they were measured
        line = {"kind": "verdict", "task": key[0], "kernel": key[1], "profile": profile, "verdict": record}
        self._tape.verdicts[key] = line
        await self._keep(line)
        return verdict

    async def aclose(self) -> None:
        """End the other evaluator."""
        if self._inner is not None:
            await self._inner.aclose()

    async def _keep(self, line: Line) -> None:
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.write, line)


def name_race(incumbent: KernelText, entrants: Sequence[KernelText]) -> str:
    """A name of the question, the same for the same texts."""
    return text_sha(" ".join([incumbent.sha, *sorted(entrant.sha for entrant in entrants)]))
