"""The trusted side of a compilation without the card: start the process inside the sandbox and read its report."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.errors import InfrastructureError, StatusFault
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.warm_start import ONE_THREAD, Branch
from tritonsmith.evaluator.schema import Status

COMPILER = Branch(ONE_THREAD, ("torch._dynamo", "triton.compiler", "tritonsmith.evaluator.confined.compiler.compile"))
"""How compilations are started ahead."""
_REPORT_BYTES = 16 << 20
"""Most bytes of a report that are read."""
START_SECONDS = 90.0
"""Until the imports are done: ten seconds on a busy host, which are none of the candidate's."""


class CompileFault(StatusFault):
    """No usable report came: the process hung or died."""


class Compilation:
    """A process that compiles what one forward of a candidate would launch; it starts at once and waits for `begin`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-compile-", ignore_cleanup_errors=True)
        inbox = Path(self._folder.name)
        inbox.chmod(0o755)
        self._source, self._request = inbox / "candidate.py", inbox / "request.pkl"
        self._sandbox = SandboxedProcess(
            "tritonsmith.evaluator.confined.compiler", environment=dict(COMPILER.environment), confined=True, read=[inbox]
        )
        self._still = False

    def begin(self, kernel: KernelText, request: bytes, target: str, *, keep: bool = False) -> None:
        """Compile for the named card; `request` is the session's pickle of arguments. With `keep` the report holds what was compiled."""
        self._source.write_text(kernel.text)
        self._request.write_bytes(request)
        for file in (self._source, self._request):
            file.chmod(0o644)
        assert self._sandbox.process.stdin is not None
        message = {"candidate": str(self._source), "target": target, "init_pickle": str(self._request), "keep": keep}
        with contextlib.suppress(OSError):  # it died at once; `report` says so
            send_line(self._sandbox.process.stdin.fileno(), message)

    def report(self, seconds: float, mark: Path | None = None) -> dict[str, Any]:
        """The report of `confined/compiler`, of any status.

        Args:
            seconds: the longest that importing and compiling may take.
            mark: a file; while it exists the process stands still, and time does too.
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

    def stderr_tail(self) -> str:
        """The end of what the candidate and the compiler printed."""
        return self._sandbox.stderr_tail()

    def _stand_still(self, mark: Path | None) -> bool:
        still = mark is not None and mark.exists()
        if still is not self._still:
            self._still = still
            (self._sandbox.family.pause if still else self._sandbox.family.resume)()
        return still

    def close(self) -> None:
        """Kill the process and remove its files."""
        self._sandbox.kill()
        self._folder.cleanup()

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
