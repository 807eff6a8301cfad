"""`tritonsmith worker`: judge the kernels that a run elsewhere has put into a folder."""

import asyncio
import os
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.options import SandboxChoice, SandboxOption, TargetOption, out
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.schema import Evaluator
from tritonsmith.graph.storage.records import write_record
from tritonsmith.nodes.evaluators.spool import HEARTBEAT_SECONDS, Spool, WorkerCard, claim, do_job

FolderArgument = Annotated[str, typer.Argument(metavar="DIR", help="The folder that --evaluator spool:DIR names.")]
OnceOption = Annotated[bool, typer.Option("--once", help="Do what is there and end, instead of waiting for more.")]

_LOOK_SECONDS = 0.5


def worker(
    folder: FolderArgument,
    once: OnceOption = False,
    target: TargetOption = "auto",
    sandbox: SandboxOption = SandboxChoice.AUTO,
) -> None:
    """Judge the jobs in DIR with this machine's card (or without one), until Ctrl-C or, with --once, until none is left."""
    spool = Spool(Path(folder), option="worker")
    evaluator = open_evaluator(target, spool.root / "raw", sandbox=sandbox.value)
    heartbeat = _Heartbeat(spool.root / "worker.json")
    write_record(heartbeat.path, WorkerCard(hardware=evaluator.hardware, versions=_find_versions()))
    heartbeat.start()
    out.print(f"Works on {folder} for {evaluator.hardware.name}.", markup=False)
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
        out.print(f"{name}: {error}", markup=False)
        return
    what = result.verdict.status.value if result.verdict else "facts of the task" if result.facts else result.error
    out.print(f"{name}: {what} ({time.monotonic() - started:.1f} s)", markup=False)


def _find_versions() -> dict[str, str]:
    found = {}
    for name in ("tritonsmith", "torch", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
