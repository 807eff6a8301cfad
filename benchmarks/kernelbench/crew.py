"""Jobs shared among the cards of one host, one worker process per card; what breaks costs one row."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from tritonsmith.benchmarks.kernelbench.judging import make_row
from tritonsmith.benchmarks.kernelbench.rows.records import AskRow, JudgeJob, JudgeRow, Ruling
from tritonsmith.evaluator.errors import InfrastructureError, TritonsmithError, UsageError
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.schema import Hardware

Item = TypeVar("Item")
_WORKER = "tritonsmith.benchmarks.kernelbench.worker"


class JobAsker(Protocol):
    """What answers jobs one after the other; `CardWorker` is one."""

    def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
        """The row of a job, also where something broke; `after` is likely to come next. Raises UsageError where none can be answered."""
        ...

    def close(self) -> None:
        """End what answers."""
        ...


class CardWorker:
    """One card's process with its evaluator.

    Args:
        target: as for `open_evaluator`.
        device: number of the card on this host; empty for the first that CUDA shows.
        limit: seconds after which a question is given up and the process is killed.
    """

    def __init__(self, target: str, device: str, limit: float) -> None:
        self._server = ServerProcess(target, module=_WORKER, environment={"CUDA_VISIBLE_DEVICES": device} if device else None)
        self._device, self._limit = device, limit
        self._closed = False

    def hello(self) -> Hardware:
        """The card. Raises UsageError where there is none."""
        return self._server.hello()

    def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
        """The row of a job, while the task of the one after it is traced.

        After a question that is not judged the process is started anew, so that nothing of it lives on.
        """
        started = time.monotonic()
        try:
            row = self._server.ask(AskRow(job=job, next=after), self._limit).row
        except InfrastructureError as error:
            if self._closed:  # an interrupted question has no row, so that the same command asks it again
                raise
            row = make_row(
                job, ruling=Ruling.OPEN, message=f"the worker gave no verdict: {error}", seconds=round(time.monotonic() - started, 2),
                device=self._device,
            )  # fmt: skip
        if row.ruling is Ruling.OPEN:
            self._server.close()
        return row

    def close(self) -> None:
        """End the process and remove its folder."""
        self._closed = True
        self._server.remove()


def open_crew(target: str, devices: Sequence[str], limit: float) -> list[CardWorker]:
    """A worker per named card; one for the first card where none is named. Raises UsageError where a card is not there."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if shown and any(devices):
        raise UsageError(f"CUDA_VISIBLE_DEVICES={shown} hides cards; leave it unset where --devices names them")
    crew = [CardWorker(target, device, limit) for device in devices or [""]]
    try:
        with ThreadPoolExecutor(len(crew)) as pool:
            list(pool.map(lambda worker: worker.hello(), crew))
    except TritonsmithError:
        close_crew(crew)
        raise
    return crew


def close_crew(crew: Iterable[JobAsker]) -> None:
    """End every worker."""
    for worker in crew:
        worker.close()


def share_work(workers: Sequence[Callable[[Item], None]], items: Iterable[Item], seconds: float) -> int:
    """Have every item done by the worker that is free first. Returns how many were not taken because `seconds` were over.

    An unexpected error of a worker ends the work of all, and is raised.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    deadline = time.monotonic() + seconds
    failures: list[BaseException] = []

    def work(worker: Callable[[Item], None]) -> None:
        try:
            while time.monotonic() < deadline and not failures:
                worker(waiting.get_nowait())
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - a thread's error is raised by the caller's thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True, name="card worker") for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return waiting.qsize()
