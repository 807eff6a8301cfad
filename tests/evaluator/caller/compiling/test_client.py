"""Whose fault it is that a compilation without the card tells nothing: the candidate's time and deeds begin when the process is ready."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from project import ROOT
from tritonsmith.evaluator.caller.compiling.client import Compilation, CompileFault
from tritonsmith.evaluator.caller.compiling.pool import CompilePool
from tritonsmith.evaluator.caller.compiling.reports import CompileReports
from tritonsmith.evaluator.channel.compiled_code import keep_packed, unpack_cache
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task

NOTHING_ESTABLISHED = {"mode": "off", "layers": {}, "actions": {}}
REQUEST = pickle.dumps({"init": [], "inputs": [], "overrides": {}})


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> Iterator[None]:
    establish("auto", cuda=False)
    yield
    use_policy(None, NOTHING_ESTABLISHED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "status"),
    [
        pytest.param("import os\nos._exit(3)", Status.CRASHED, id="dies"),
        pytest.param("while True:\n    pass", Status.TIMEOUT, id="hangs"),
    ],
)
def test_what_a_candidate_does_is_the_candidates(source: str, status: Status) -> None:
    with Compilation() as compilation:
        compilation.begin(KernelText.of(source), REQUEST, "h200")
        with pytest.raises(CompileFault) as raised:  # within a second that begins after the seconds of the imports
            compilation.report(1.0 if status is Status.TIMEOUT else 60.0)
    assert raised.value.status is status


def test_a_process_that_ends_before_it_is_ready_is_not() -> None:
    with Compilation() as compilation:
        compilation._sandbox.process.kill()
        compilation._sandbox.process.wait(30)
        compilation.begin(KernelText.of("import os\nos._exit(3)"), REQUEST, "h200")
        with pytest.raises(InfrastructureError):
            compilation.report(60.0)


@pytest.mark.slow
def test_imports_take_no_time_of_the_candidates() -> None:
    with Compilation() as compilation:
        compilation.begin(KernelText.of("x = 1"), REQUEST, "h200")
        assert "ModelNew" in compilation.report(1.5)["message"]


AGAIN = """
import json, sys
from pathlib import Path
from tritonsmith.evaluator.confined.compiler.compile import examine
print(json.dumps(examine(Path(sys.argv[1]), "h200", {"init": [96, 1.5, 2.0], "inputs": [((64, 96), "float32")], "overrides": {}})))
"""


@pytest.mark.slow
def test_what_was_compiled_is_found_by_the_next_process(tmp_path: Path) -> None:
    text, cache = (ROOT / "tests/helpers/kernels/gelu_chain.py").read_text(), tmp_path / "cache"
    request = pickle.dumps({"init": [96, 1.5, 2.0], "inputs": [((64, 96), "float32")], "overrides": {}})
    with Compilation() as compilation:
        compilation.begin(KernelText.of(text), request, "h200", keep=True)
        report = compilation.report(120.0)
    assert report["status"] == "ok", report["message"]
    packed = report.pop("compiled")
    keep_packed(packed, tmp_path / "task" / "code.json")
    unpack_cache(tmp_path / "task" / "code.json", cache)
    (tmp_path / "candidate.py").write_text(text)
    before = sorted(cache.glob("*/*"))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, "-P", "-c", AGAIN, str(tmp_path / "candidate.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == report
    assert sorted(cache.glob("*/*")) == before and any(file.suffix == ".cubin" for file in before), "nothing was compiled again"


def test_only_files_of_a_cache_are_kept(tmp_path: Path) -> None:
    packed = {"KEY/kernel.cubin": "eJwDAAAAAAE="}
    for wrong in ({"../kernel.cubin": "eJwDAAAAAAE="}, {"KEY/a/b.cubin": ""}, {"KEY/kernel.cubin": 3}, [packed], {}, None):
        keep_packed(wrong, tmp_path / "code.json")
        assert not (tmp_path / "code.json").exists()
    keep_packed(packed | {"KEY/broken.cubin": "no base64"}, tmp_path / "code.json")
    unpack_cache(tmp_path / "code.json", tmp_path / "cache")
    assert [file.name for file in (tmp_path / "cache").glob("*/*")] == ["kernel.cubin"]


class Pool:
    """Compilers beside a card, which say in turn what they are told to."""

    def __init__(self, *reports: dict[str, str]) -> None:
        self.reports, self.given = list(reports), list[Future[dict[str, str]]]()

    def submit(self, *about: object) -> Future[dict[str, str]]:
        future: Future[dict[str, str]] = Future()
        if self.reports:
            future.set_result(self.reports.pop(0))
        self.given.append(future)
        return future


def beside_a_card(pool: Pool, tmp_path: Path) -> Callable[[bool], dict[str, Any]]:
    """What an evaluator asks for a second opinion."""
    task = load_task(ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py", size="small")
    reports = CompileReports(pool, lambda about: tmp_path / "request.pkl", 1.0, tmp_path / "code")
    return lambda again: reports.wait_for(task, KernelText.of("x = 1"), again=again)


def test_a_report_is_kept_and_made_anew_where_that_is_asked_for(tmp_path: Path) -> None:
    ask = beside_a_card(Pool({"status": "crashed"}, {"status": "ok"}), tmp_path)
    assert [ask(False)["status"], ask(False)["status"], ask(True)["status"], ask(False)["status"]] == ["crashed", "crashed", "ok", "ok"]


def test_a_compilation_that_is_called_off_is_the_machines_fault(tmp_path: Path) -> None:
    pool = Pool()
    ask = beside_a_card(pool, tmp_path)
    threading.Timer(0.2, lambda: pool.given[0].cancel()).start()
    with pytest.raises(InfrastructureError, match="called off"):
        ask(False)


def test_compilers_that_are_closed_take_nothing(tmp_path: Path) -> None:
    pool = CompilePool("h200", "auto", tmp_path / "mark")
    pool.close()
    with pytest.raises(InfrastructureError, match="closed"):
        pool.submit(KernelText.of("x = 1"), tmp_path / "request.pkl", 1.0)
