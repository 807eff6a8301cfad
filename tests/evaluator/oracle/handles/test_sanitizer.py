"""A candidate under compute-sanitizer: a stand-in for the tool reads what it is asked, as the real one does inside the sandbox."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritonsmith.evaluator.channel.report import FINISHED
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.sandbox.self_test import establish

TOOL = """#!/bin/sh
for inbox; do :; done
while [ ! -e "$inbox/question.json" ]; do sleep 0.01; done
set -e
asked=$(sed 's/.*"request": "\\([^"]*\\)".*/\\1/' "$inbox/question.json")
written=$(sed 's/.*"candidate": "\\([^"]*\\)".*/\\1/' "$inbox/question.json")
echo "========= COMPUTE-SANITIZER"
if grep -q reads_past_its_end "$written"; then echo "========= Invalid $(cat "$asked") of size 4 bytes"; fi
echo "{finished}"
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a request that only this user's processes know, with a stand-in for the tool on PATH."""
    establish("auto" if os.geteuid() == 0 else "off", cuda=False)
    monkeypatch.setattr("tritonsmith.evaluator.oracle.handles.pool.say_why_not", str)  # users of this machine: the tool's need, not ours
    with tempfile.TemporaryDirectory() as name:
        tools = Path(name) / "bin"
        tools.mkdir(mode=0o755)
        program = tools / "compute-sanitizer"
        program.write_text(TOOL.replace("{finished}", FINISHED))
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH | stat.S_IRGRP | stat.S_IROTH)
        Path(name).chmod(0o711)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        yield Path(name)
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


@pytest.mark.parametrize("ahead", [False, True], ids=["started-now", "waiting"])
def test_a_process_reads_a_request_that_lies_anywhere(folder: Path, *, ahead: bool) -> None:
    """Also one that waited before anybody knew where the request would lie."""
    pool = RunnerPool(folder)
    try:
        if ahead:
            pool.await_sanitizer()
        (folder / "elsewhere").mkdir(mode=0o700)
        request = folder / "elsewhere" / "request.pkl"
        request.write_text("__global__ read")
        code = folder / "elsewhere" / "code.json"  # is missing, as for a kernel that is not compiled yet
        assert pool.sanitize(KernelText.of("a right kernel"), request, code, 60.0) == (False, "no memory error found")
        found = pool.sanitize(KernelText.of("reads_past_its_end"), request, code, 60.0)
        assert found == (True, "Invalid __global__ read of size 4 bytes")
    finally:
        pool.close()
