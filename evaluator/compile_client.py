"""The trusted side of a compilation without the card: start the process inside the sandbox and read its report. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox import SandboxedProcess
from tritonsmith.evaluator.schema import Label, LaunchFacts, Status, TaskFacts, Verdict
from tritonsmith.evaluator.wire_text import send_line

_REPORT_BYTES = 16 << 20
_FAR_FROM_NOTHING = 0.5
"""Part of the task's work that torch operators must do before a kernel is no longer called one."""
_LONGEST_NOTE = 300
START_SECONDS = 90.0
"""Until the imports are done: ten seconds on a busy host, which are none of the candidate's."""


class CompileFault(Exception):
    """No usable report came: the process hung or died; carries the status of the verdict."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class Compilation:
    """A process that compiles what one forward of a candidate would launch; it starts at once and waits for `begin`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-compile-", ignore_cleanup_errors=True)
        inbox = Path(self._folder.name)
        inbox.chmod(0o755)
        self._source, self._request = inbox / "candidate.py", inbox / "request.pkl"
        self._sandbox = SandboxedProcess(
            "tritonsmith.evaluator.compile_only", environment={"OMP_NUM_THREADS": "1"}, confined=True, read=[inbox]
        )
        self._still = False

    def begin(self, source: str, request: bytes, target: str) -> None:
        """Compile for the named card; `request` is the session's pickle of arguments."""
        self._source.write_text(source)
        self._request.write_bytes(request)
        for file in (self._source, self._request):
            file.chmod(0o644)
        assert self._sandbox.process.stdin is not None
        message = {"candidate": str(self._source), "target": target, "init_pickle": str(self._request)}
        with contextlib.suppress(OSError):  # it died at once; whoever reads its report says so
            send_line(self._sandbox.process.stdin.fileno(), message)

    def report(self, seconds: float, mark: Path | None = None) -> dict[str, Any]:
        """The report of `compile_only`, whatever its status; while the file `mark` exists the process stands still and time does too.

        Raises:
            CompileFault: it hung or died.
            InfrastructureError: it did not get as far as the candidate.
        """
        output = self._sandbox.read_output(seconds, _REPORT_BYTES, lambda: self._stand_still(mark), first_within=START_SECONDS)
        if output is None:
            raise CompileFault(Status.TIMEOUT, f"importing and compiling took longer than {seconds:.0f} s")
        if not output:
            self._sandbox.require_launched()
            raise InfrastructureError("the process that compiles ended before it was ready")
        try:
            report: dict[str, Any] = json.loads(output)
            Status(report["status"])
        except (ValueError, KeyError, TypeError):
            raise CompileFault(Status.CRASHED, "the process that compiles the candidate died without a report") from None
        return report

    def _stand_still(self, mark: Path | None) -> bool:
        still = mark is not None and mark.exists()
        if still is not self._still:
            self._still = still
            (self._sandbox.pause if still else self._sandbox.resume)()
        return still

    def close(self) -> None:
        """Kill the process and remove its files."""
        self._sandbox.kill()
        self._folder.cleanup()

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def refusal(report: dict[str, Any]) -> tuple[Status, str] | None:
    """Why the card need not be asked: the candidate does not import, does not compile, or cannot be launched."""
    status = Status(report["status"])
    if status in (Status.COMPILE_ERROR, Status.LAUNCH_ERROR):
        return status, str(report.get("message", ""))[:4000]
    return None


def second_opinion(verdict: Verdict, ask: Callable[[bool], dict[str, Any]], task: Callable[[], TaskFacts]) -> Verdict:
    """The verdict with the less flattering of two labels: the profiler's in the candidate's process, and the compiler's view.

    A candidate would have to fool both processes to have torch's operators pass for its own kernels. `ask` gives a report of
    `compile_only` or raises InfrastructureError; where the process died it is asked once more, with True. Without a view a kernel is a
    hybrid: nothing but the candidate's own process says that it is one, and which share of the time it has.
    """
    if verdict.status is not Status.OK or verdict.label is Label.LIBRARY:
        return verdict
    for again in (False, True):
        try:
            report = ask(again)
            if Status(report["status"]) is Status.OK:
                return _less_flattering(verdict, report, task())
        except InfrastructureError as error:
            why = str(error)
        except (TypeError, ValueError):  # the process runs the candidate
            why = "the compiler's report is unreadable"
            break
        else:
            why = f"{report['status']}: {report.get('message', '')}"
            if Status(report["status"]) is not Status.CRASHED:
                break
    note = f"not had, so that the label is not above hybrid: {why}"[:_LONGEST_NOTE]
    facts = verdict.facts.model_copy(update={"own_time_share": None})
    return verdict.model_copy(
        update={"label": Label.HYBRID, "facts": facts, "environment": verdict.environment | {"second_opinion": note}}
    )


def _less_flattering(verdict: Verdict, report: dict[str, Any], task: TaskFacts) -> Verdict:
    operators = {str(name): int(count) for name, count in dict(report.get("torch_ops", {})).items()}
    if not operators:
        return verdict
    flops, moved = float(report.get("torch_flops", 0.0)), float(report.get("torch_bytes", 0.0))
    most = flops >= _FAR_FROM_NOTHING * task.flops > 0 or moved >= _FAR_FROM_NOTHING * task.min_bytes > 0
    label = Label.LIBRARY if not report.get("kernels") else Label.HYBRID if most else verdict.label
    if label is verdict.label:
        return verdict
    facts: LaunchFacts = verdict.facts.model_copy(update={"library_calls": {**operators, **verdict.facts.library_calls}})
    note = "compiled without the card, forward calls torch operators that do most of the task's work"
    return verdict.model_copy(update={"label": label, "facts": facts, "environment": verdict.environment | {"second_opinion": note}})
