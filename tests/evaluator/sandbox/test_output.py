"""What a process in the sandbox says is read until a deadline, which may begin when it says that it is ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox.process import SandboxedProcess

_READY = "import time\nprint(flush=True)\n"
_SOON = 60.0  # a loaded machine may take long to start Python


def running(tmp_path: Path, code: str) -> SandboxedProcess:
    (tmp_path / "told.py").write_text(code)
    return SandboxedProcess("runpy", ["told"], environment={"PYTHONPATH": str(tmp_path)})


def test_seconds_count_from_the_first_byte(tmp_path: Path) -> None:
    with running(tmp_path, "import time\ntime.sleep(1.5)\nprint(flush=True)\nprint('done')") as process:
        assert process.read_output(1.2, 1 << 10, first_within=_SOON) == b"\ndone\n"
    with running(tmp_path, "import time\ntime.sleep(30)\nprint('done')") as process:
        assert process.read_output(0.5, 1 << 10) is None


def test_after_the_first_byte_the_deadline_holds(tmp_path: Path) -> None:
    with running(tmp_path, _READY + "time.sleep(10)\nprint('done')") as process:
        assert process.read_output(0.5, 1 << 10, first_within=_SOON) is None


def test_an_unready_process_is_no_fault_of_the_candidate(tmp_path: Path) -> None:
    """A process that never gets ready is no fault of the candidate."""
    with running(tmp_path, "import time\ntime.sleep(600)") as process, pytest.raises(InfrastructureError, match="not ready after 1 s"):
        process.read_output(600.0, 1 << 10, first_within=1.0)


def test_one_that_ends_before_it_is_ready_has_said_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "raise SystemExit(3)") as process:
        assert process.read_output(0.5, 1 << 10, first_within=_SOON) == b""
