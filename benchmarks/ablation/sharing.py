"""One evaluator for many runs, and verdicts that the runs of one task and repeat share: equal questions have equal answers.

Within one repeat of one task a kernel text is judged once per profile, whichever policies come upon it. Their runs then differ by what
the policies decide and not by the noise of measuring the same kernel twice (common random numbers), and the card does the work once.
"""

import asyncio
import os
import time
from pathlib import Path
from uuid import uuid4

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Record, Task, Verdict
from tritonsmith.evaluator.sharing.views import EvaluatorView, SharedEvaluator
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Author, Brief, Draft


class SharedVerdict(Record):
    """A verdict with who paid for it."""

    cell: str
    """`task/policy/repeat` of the run that asked first."""
    task: str
    """The task's sha, sizes and precision included."""
    seconds: float
    verdict: Verdict


class Memo:
    """The verdicts of one task and repeat, a file each; any number of processes may read and write them."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when something is kept."""
        self.folder = folder

    def get(self, kernel: str, profile: str) -> SharedVerdict | None:
        """What is known of a kernel; None where nothing is."""
        try:
            return SharedVerdict.model_validate_json(self._path(kernel, profile).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, kernel: str, profile: str, judged: SharedVerdict) -> SharedVerdict:
        """Keep a verdict; returns the one that counts, which is the first. Raises InfrastructureError where it cannot be written."""
        path = self._path(kernel, profile)
        partial = path.with_name(f"{path.name}.{uuid4().hex}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(judged.model_dump_json(indent=1) + "\n", encoding="utf-8")
            try:
                os.link(partial, path)  # unlike a rename, it never replaces what another process kept meanwhile
            except FileExistsError:
                judged = self.get(kernel, profile) or judged
            finally:
                partial.unlink()
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot be written ({error.strerror})") from error
        return judged

    def all(self) -> dict[tuple[str, str], SharedVerdict]:
        """Every verdict by kernel and profile."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            kernel, _, profile = path.stem.partition("-")
            if (judged := self.get(kernel, profile)) is not None:
                found[kernel, profile] = judged
        return found

    def _path(self, kernel: str, profile: str) -> Path:
        return self.folder / f"{kernel}-{profile}.json"


class MemoEvaluator(SharedEvaluator):
    """One evaluator for all runs of an experiment, with the verdicts that they share."""

    def __init__(self, inner: Evaluator) -> None:
        """The evaluator stays open when a run that used it ends."""
        super().__init__(inner)
        self._locks: dict[tuple[Path, str, str], asyncio.Lock] = {}

    async def judge(self, cell: str, memo: Memo, task: Task, kernel: KernelText, profile: str) -> Verdict:
        """The verdict from the memo, else judged and kept there. Raises InfrastructureError."""
        sha = kernel.sha
        async with self._locks.setdefault((memo.folder, sha, profile), asyncio.Lock()):
            known = await asyncio.to_thread(memo.get, sha, profile)
            if known is None or known.task != task.sha:
                async with self.turns.turn(cell):  # the queue is here, so that no thread waits for the card
                    started = time.monotonic()
                    verdict = await self.inner.evaluate(task, kernel, profile)
                    judged = SharedVerdict(cell=cell, task=task.sha, seconds=round(time.monotonic() - started, 3), verdict=verdict)
                    known = await asyncio.to_thread(memo.put, sha, profile, judged)  # before the next question: a kill loses no answer
            return known.verdict


class CellEvaluator(EvaluatorView):
    """The evaluator of one run of the experiment."""

    def __init__(self, shared: MemoEvaluator, memo: Memo, cell: str) -> None:
        """`cell` names the run in the memo."""
        super().__init__(shared, cell)
        self._memory, self._memo = shared, memo

    async def _judge(self, task: Task, kernel: KernelText, profile: str) -> Verdict:
        """The verdict that this repeat of the task has about the text."""
        return await self._memory.judge(self._owner, self._memo, task, kernel, profile)


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
