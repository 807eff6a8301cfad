"""One evaluator for many runs, and verdicts that the runs of one task and repeat share: equal questions have equal answers.

Within one repeat of one task a kernel text is judged once per profile, and the same texts race once, whichever policies come upon them.
Their runs then differ by what the policies decide and not by the noise of measuring the same kernel twice (common random numbers), and
the card does the work once.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from tritonsmith.evaluator.caller.sharing.views import EvaluatorView, SharedEvaluator
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator, RaceReport
from tritonsmith.evaluator.schema import LaunchFacts, Record, Task, Verdict
from tritonsmith.nodes.evaluators.tape import name_race
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Author, Brief, Draft


class SharedAnswer(Record):
    """An answer with who paid for it."""

    cell: str
    """`task/policy/repeat` of the run that asked first."""
    task: str
    """The task's sha, sizes and precision included."""
    seconds: float


class SharedVerdict(SharedAnswer):
    """A verdict about one text."""

    verdict: Verdict


class SharedRace(SharedAnswer):
    """A race of several texts; None where the evaluator has none."""

    report: RaceReport | None


_Kept = TypeVar("_Kept", bound=SharedAnswer)


class Memo:
    """The verdicts and races of one task and repeat, a file each; any number of processes may read and write them."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when something is kept."""
        self.folder = folder

    def get(self, kernel: str, profile: str) -> SharedVerdict | None:
        """What is known of a kernel; None where nothing is."""
        return self.read(SharedVerdict, f"{kernel}-{profile}")

    def read(self, kind: type[_Kept], name: str) -> _Kept | None:
        """The answer of this name; None where there is none."""
        try:
            return kind.model_validate_json((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, name: str, answer: _Kept) -> _Kept:
        """Keep an answer; returns the one that counts, which is the first. Raises InfrastructureError where it cannot be written."""
        path = self.folder / f"{name}.json"
        partial = path.with_name(f"{path.name}.{uuid4().hex}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(answer.model_dump_json(indent=1) + "\n", encoding="utf-8")
            try:
                os.link(partial, path)  # unlike a rename, it never replaces what another process kept meanwhile
            except FileExistsError:
                answer = self.read(type(answer), name) or answer
            finally:
                partial.unlink()
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot be written ({error.strerror})") from error
        return answer

    def all(self) -> dict[tuple[str, str], SharedVerdict]:
        """Every verdict by kernel and profile."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            kernel, _, profile = path.stem.partition("-")
            if (judged := self.get(kernel, profile)) is not None:
                found[kernel, profile] = judged
        return found


class MemoEvaluator(SharedEvaluator):
    """One evaluator for all runs of an experiment, with the verdicts that they share."""

    def __init__(self, inner: Evaluator) -> None:
        """The evaluator stays open when a run that used it ends."""
        super().__init__(inner)
        self._locks: dict[tuple[Path, str], asyncio.Lock] = {}

    async def judge(self, cell: str, memo: Memo, task: Task, kernel: KernelText, profile: str) -> Verdict:
        """The verdict from the memo, else judged and kept there. Raises InfrastructureError."""

        async def ask() -> dict[str, object]:
            return {"verdict": await self.inner.evaluate(task, kernel, profile)}

        return (await self._share(SharedVerdict, f"{kernel.sha}-{profile}", cell, memo, task, ask)).verdict

    async def race(
        self, cell: str, memo: Memo, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int,
        seconds: float,
    ) -> RaceReport | None:  # fmt: skip
        """The race from the memo, else run and kept there; None where the evaluator has none. Raises InfrastructureError."""

        async def ask() -> dict[str, object]:
            return {"report": await self.inner.race(task, incumbent, entrants, facts, keep, seconds)}

        return (await self._share(SharedRace, f"{name_race(incumbent, entrants)}-race", cell, memo, task, ask)).report

    async def _share(
        self, kind: type[_Kept], name: str, cell: str, memo: Memo, task: Task, ask: Callable[[], Awaitable[dict[str, object]]]
    ) -> _Kept:
        async with self._locks.setdefault((memo.folder, name), asyncio.Lock()):
            known = await asyncio.to_thread(memo.read, kind, name)
            if known is None or known.task != task.sha or (task.reads is not None and task.reads.unknown):
                async with self.turns.turn(cell, task.sha):  # the queue is here, so that no thread waits for the card
                    started = time.monotonic()
                    found = await ask()
                    answer = kind.model_validate(
                        {"cell": cell, "task": task.sha, "seconds": round(time.monotonic() - started, 3), **found}
                    )
                    known = await asyncio.to_thread(memo.put, name, answer)  # before the next question: a kill loses no answer
            return known


class CellEvaluator(EvaluatorView):
    """The evaluator of one run of the experiment."""

    def __init__(self, shared: MemoEvaluator, memo: Memo, cell: str) -> None:
        """`cell` names the run in the memo."""
        super().__init__(shared, cell)
        self._memory, self._memo = shared, memo

    async def _judge(self, task: Task, kernel: KernelText, profile: str) -> Verdict:
        """The verdict that this repeat of the task has about the text."""
        return await self._memory.judge(self._owner, self._memo, task, kernel, profile)

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """The race that this repeat of the task has of the texts. Raises InfrastructureError."""
        return await self._memory.race(self._owner, self._memo, task, incumbent, entrants, facts, keep, seconds)


class SeedsFrom:
    """Another author whose seeds begin at a later place of its list: a deterministic author gives each repeat seeds of its own so."""

    def __init__(self, author: Author, first: int) -> None:
        """`first` is added to the number of every seed."""
        self.name = author.name
        self._author, self._first = author, first

    async def seed(self, brief: Brief) -> Draft:
        """The seed with the later number."""
        return await self._author.seed(brief.model_copy(update={"branch": brief.branch + self._first}))

    async def repair(self, brief: Brief) -> Draft | None:
        """The other author's."""
        return await self._author.repair(brief)

    async def analyze(self, brief: Brief) -> Analysis:
        """The other author's."""
        return await self._author.analyze(brief)

    async def optimize(self, brief: Brief) -> Draft | None:
        """The other author's."""
        return await self._author.optimize(brief)

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """The other author's."""
        return await self._author.tune(brief)
