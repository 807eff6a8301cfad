"""What a worker does: claims jobs in a folder, judges them, and shows that it lives."""

import asyncio
import os
import threading
import time
from pathlib import Path

from tritonsmith.cli.options import out
from tritonsmith.cli.versions import find_versions
from tritonsmith.evaluator.caller.local import BaselineSet, open_evaluator
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.graph.storage.records import write_record
from tritonsmith.nodes.evaluators.spool import HEARTBEAT_SECONDS, Spool, WorkerCard, claim, do_job

_LOOK_SECONDS = 0.5


def work_on(folder: Path, target: str, sandbox: str, baselines: BaselineSet, *, once: bool) -> None:
    """Judge what the folder asks for, until Ctrl-C or, with `once`, until nothing is left."""
    spool = Spool(folder, option="worker")
    evaluator = open_evaluator(target, spool.root / "raw", sandbox=sandbox, baselines=baselines)
    heartbeat = _Heartbeat(spool.root / "worker.json")
    write_record(heartbeat.path, WorkerCard(hardware=evaluator.hardware, versions=find_versions()))
    heartbeat.start()
    out.print(f"Works on {folder} for {evaluator.hardware.name}.")
    try:
        asyncio.run(_work_until_done(spool, evaluator, heartbeat, once))
    except KeyboardInterrupt:
        out.print("Ended; what was begun is judged again by the next worker.")
    finally:
        heartbeat.end()


class _Heartbeat(threading.Thread):
    """Touches files while this process lives: a run that sees the folder then waits, and another worker leaves our job alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.job: Path | None = None
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.wait(HEARTBEAT_SECONDS):
            for path in (self.path, self.job):
                if path is not None and path.exists():
                    os.utime(path)

    def end(self) -> None:
        """Be seen as gone at once."""
        self._stop_now.set()
        os.utime(self.path, (0, 0))


async def _work_until_done(spool: Spool, evaluator: Evaluator, heartbeat: _Heartbeat, once: bool) -> None:
    try:
        while True:
            for name in spool.open_jobs():
                heartbeat.job = claim(spool, name)
                if heartbeat.job is not None:
                    await _work_off_job(spool, name, evaluator)
                    heartbeat.job.unlink(missing_ok=True)
                    heartbeat.job = None
                    break
            else:
                if once:
                    return
                await asyncio.sleep(_LOOK_SECONDS)
    finally:
        if heartbeat.job is not None:
            heartbeat.job.unlink(missing_ok=True)
        await evaluator.aclose()


async def _work_off_job(spool: Spool, name: str, evaluator: Evaluator) -> None:
    started = time.monotonic()
    try:
        result = await do_job(spool, name, evaluator)
    except UsageError as error:  # a job that cannot be read: laid aside, so that the run writes it again
        job = spool.jobs / f"{name}.json"
        job.replace(job.with_suffix(".unreadable"))
        out.print(f"{name}: {error}")
        return
    what = result.verdict.status.value if result.verdict else "facts of the task" if result.facts else result.error
    out.print(f"{name}: {what} ({time.monotonic() - started:.1f} s)")
