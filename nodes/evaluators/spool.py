"""Evaluations through a folder: a run without a card writes jobs, a worker on a machine with one writes results.

The two share nothing but the folder; it may be carried over by hand. A job is named by its question, so it is asked once and
answered once, however often the run is resumed.

    card.json               the card that the run is for: the worker's, or the one that --target named
    worker.json             the worker's card and versions; its time is the worker's heartbeat
    jobs/<name>.json        a task, and a kernel with the profile to judge it by
    results/<name>.json     facts of the task, a verdict, or why there is none
"""

import asyncio
import contextlib
import fcntl
import time
from pathlib import Path

from pydantic import Field

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.reads.record import ABSENT, find_state
from tritonsmith.evaluator.schema import Hardware, Record, Task, TaskFacts, Verdict
from tritonsmith.evaluator.texts.source.refuse import refuse_text
from tritonsmith.graph.storage.records import read_record, write_record
from tritonsmith.nodes.chat.records import Waiting

HEARTBEAT_SECONDS = 2.0
"""How often a worker touches its file."""
_DEAD_AFTER = 5 * HEARTBEAT_SECONDS
"""Seconds without a touch after which a worker is dead."""
_LOOK_SECONDS = 0.2
"""Seconds between two looks for a result."""


class Job(Record):
    """One question to the worker."""

    task: Task
    source: str | None = None
    """None asks for the facts of the task."""
    profile: str = "quick"


def name_job(task: Task, kernel: KernelText | None = None, profile: str = "") -> str:
    """The name of a question, the same for the same one; without a kernel it asks for the facts of the task."""
    return f"{task.sha}-facts" if kernel is None else f"{task.sha}-{kernel.sha}-{profile}"


class JobResult(Record):
    """The worker's answer: one of the three."""

    facts: TaskFacts | None = None
    verdict: Verdict | None = None
    error: str = ""
    about_task: bool = False
    """Whether the error is the task's (else it is the machinery's)."""


class WorkerCard(Record):
    """Who works on a folder."""

    hardware: Hardware
    versions: dict[str, str] = Field(default_factory=dict)


class Spool:
    """The folder, as both sides see it."""

    def __init__(self, root: Path, option: str = "--evaluator") -> None:
        """Make the folders. Raises UsageError when that is not allowed."""
        self.root = root
        self.jobs, self.results, self.claims, self.tasks = (root / name for name in ("jobs", "results", "claims", "tasks"))
        try:
            for folder in (self.jobs, self.results, self.claims, self.tasks):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{option} {root}: cannot make the folder ({error.strerror}); name another one") from error

    def open_jobs(self) -> list[str]:
        """Names of jobs without a result, oldest first."""
        jobs = sorted(self.jobs.glob("*.json"), key=lambda path: (path.stat().st_mtime, path.name))
        return [path.stem for path in jobs if not (self.results / path.name).is_file()]

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Results that are still to come."""
        return tuple(str(self.results / f"{name}.json") for name in self.open_jobs())

    def card(self) -> WorkerCard | None:
        """The worker's card; None before a worker was ever here."""
        path = self.root / "worker.json"
        return read_record(WorkerCard, path) if path.is_file() else None

    def is_alive(self) -> bool:
        """Whether a worker that sees this very folder is at work."""
        return is_touched(self.root / "worker.json")


def is_touched(path: Path) -> bool:
    """Whether somebody has touched a file within the last seconds."""
    try:
        return time.time() - path.stat().st_mtime < _DEAD_AFTER
    except OSError:
        return False


class SpoolEvaluator(Evaluator):
    """Answers from the results in a folder. For a missing one it writes a job, and waits while a worker is alive."""

    parallel = 64
    """Jobs are only written here; how many are judged at once is the worker's affair."""
    at_once = False

    def __init__(self, root: Path, target: str = "auto") -> None:
        """The card is the worker's, or `target` until one was here. Raises UsageError when neither is known."""
        self._spool = Spool(root)
        self.hardware = self._card(target)

    def _card(self, target: str) -> Hardware:
        chosen = self._spool.root / "card.json"
        if chosen.is_file():  # what a run has begun with stays, for prompts tell of it
            return read_record(Hardware, chosen)
        worker = self._spool.card()
        if worker is None and target == "auto":
            raise UsageError(
                f"--evaluator spool:{self._spool.root}: no worker was here yet; run `tritonsmith worker {self._spool.root}` on the machine "
                "with the card first, or name its card with --target"
            )
        hardware = worker.hardware if worker else named_card(target).model_copy(update={"present": True})
        write_record(chosen, hardware)
        return hardware

    async def describe(self, task: Task) -> TaskFacts:
        """The worker's facts of the task. Raises Waiting while there are none, TaskError where the task is at fault."""
        name = name_job(task)
        result = await self._result(Job(task=task), name)
        if result.facts is not None and await asyncio.to_thread(_has_changed, task, result.facts):
            for folder in (self._spool.results, self._spool.jobs):
                await asyncio.to_thread((folder / f"{name}.json").unlink, missing_ok=True)
            result = await self._result(Job(task=task), name)
        if result.facts is None:
            raise TaskError(result.error)
        return result.facts

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The worker's verdict. Raises Waiting while there is none, InfrastructureError where its machinery failed.

        A text that no process need see is refused here.
        """
        if refused := refuse_text(kernel, profile):
            return refused
        result = await self._result(Job(task=task, source=kernel.text, profile=profile), name_job(task, kernel, profile))
        if result.verdict is None:
            raise InfrastructureError(f"the worker's answer to {task.name} holds no verdict")
        return result.verdict

    async def _result(self, job: Job, name: str) -> JobResult:
        answer, asked = self._spool.results / f"{name}.json", self._spool.jobs / f"{name}.json"
        if not await asyncio.to_thread(lambda: answer.is_file() or asked.is_file()):
            await asyncio.to_thread(write_record, asked, job)
        while not await asyncio.to_thread(answer.is_file):
            if not await asyncio.to_thread(self._spool.is_alive):
                raise Waiting(f"waiting for {answer}: let `tritonsmith worker` on the machine with the card do {asked.name}", answer)
            await asyncio.sleep(_LOOK_SECONDS)
        result = await asyncio.to_thread(read_record, JobResult, answer)
        if result.error and not result.about_task:
            await asyncio.to_thread(answer.unlink)  # so that it is tried again
            raise InfrastructureError(result.error)
        return result


def _has_changed(task: Task, facts: TaskFacts) -> bool:
    """Whether a file that the task reads lies here with other contents than the worker read. One that is not here cannot be compared."""
    changed = facts.reads.find_changed_files(Path(task.folder)) if facts.reads is not None and task.folder else ()
    return any(find_state(path) != ABSENT for path in changed)


async def do_job(spool: Spool, name: str, evaluator: Evaluator) -> JobResult:
    """Do one job and write its result; a failure of the machinery is tried twice, as in a run."""
    job = read_record(Job, spool.jobs / f"{name}.json")
    file = spool.tasks / f"{text_sha(job.task.source)}.py"
    if not file.is_file():
        file.write_text(job.task.source, encoding="utf-8")  # the task's own code may look for it
    task = job.task.model_copy(update={"path": str(file)})
    result = JobResult()
    for _ in range(2):
        try:
            if job.source is None:
                result = JobResult(facts=await evaluator.describe(task))
            else:
                verdict = await evaluator.evaluate(task, KernelText.of(job.source), job.profile)
                result = JobResult(verdict=verdict)
            break
        except InfrastructureError as error:
            result = JobResult(error=str(error))
        except TaskError as error:
            result = JobResult(error=str(error).replace(str(file), job.task.path), about_task=True)
            break
    write_record(spool.results / f"{name}.json", result)
    return result


def claim(spool: Spool, name: str) -> Path | None:
    """Take a job, so that no other worker does it too. The file must be touched while the job is done."""
    path = spool.claims / name
    with (spool.root / "claims.lock").open("a") as lock:
        with contextlib.suppress(OSError):  # a file system that cannot lock; two workers rarely come at one moment
            fcntl.flock(lock, fcntl.LOCK_EX)  # else two could remove a dead worker's claim, the second one the first one's new claim
        if path.exists() and not is_touched(path):
            path.unlink(missing_ok=True)  # its worker has died
        if (spool.results / f"{name}.json").is_file():
            return None  # answered since the caller looked
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            return None
    return path
