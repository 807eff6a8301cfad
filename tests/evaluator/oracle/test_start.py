"""How an oracle begins: what the first verdict on a card waits for is started before torch is imported. Cards are stand-ins."""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.confined.runner import warm
from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.oracle import server, start
from tritonsmith.evaluator.oracle.handles import pool as pool_module
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.processes.requests import Hello, HelloAnswer

HELLO = {"op": "hello", "target": "auto", "use_card": True, "sandbox": "auto"}


def test_torch_is_imported_after_the_first_request() -> None:
    """No torch is imported before the first request was looked at."""
    program = "import sys, tritonsmith.evaluator.oracle.__main__ as m; print([one for one in ('torch', 'triton') if one in sys.modules])"
    assert subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


class Started:
    """What was done ahead; `card` is the name that the driver tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, card: str, fails: Exception | None = None) -> None:
        self.done: list[Any] = []
        monkeypatch.setattr(start, "card_in_nvml", lambda: {"name": card} if card else {})
        monkeypatch.setattr(start, "establish", self._establish)
        monkeypatch.setattr(start, "begin_warm_start", lambda *branches: self.done.append("zygotes"))
        monkeypatch.setattr(pool_module, "RunnerProcess", self._process)
        self._fails = fails

    def _establish(self, mode: str, *, cuda: bool) -> None:
        self.done.append((mode, cuda))
        if self._fails is not None:
            raise self._fails

    def _process(self, role: str, **how: Any) -> object:
        self.done.append(role)
        return object()


@pytest.mark.parametrize("target", ["auto", "h200", "H200"])
def test_processes_for_the_card_that_is_here_are_started_ahead(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = Started(monkeypatch, "NVIDIA H200")
    pool = start.start_ahead(json.dumps(HELLO | {"target": target, "sandbox": "strict"}))
    assert isinstance(pool, RunnerPool) and pool.sessions.is_dir()
    assert started.done == [("strict", True), "reference", "candidate", "witness"]


@pytest.mark.parametrize(
    ("card", "request_line"),
    [
        ("", json.dumps(HELLO)),
        ("NVIDIA H200", json.dumps(HELLO | {"use_card": False})),
        ("NVIDIA H200", json.dumps(HELLO | {"target": "a100"})),
        ("A new card", json.dumps(HELLO | {"target": "h200"})),
    ],
)
def test_zygotes_are_started_ahead_where_no_card_is_used(card: str, request_line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch, card)
    assert start.start_ahead(request_line) is None and started.done == [("auto", False), "zygotes"]


@pytest.mark.parametrize("request_line", [json.dumps({"op": "evaluate"}), json.dumps({"op": "hello"}), "no JSON", "[]", ""])
def test_nothing_is_started_ahead_otherwise(request_line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch, "NVIDIA H200")
    assert start.start_ahead(request_line) is None and started.done == []


@pytest.mark.parametrize(
    "fails", [UsageError("strict: lacks"), InfrastructureError("no process starts"), OSError("cuInit failed"), AttributeError("cuInit")]
)
def test_what_speaks_against_it_is_told_with_the_answer(fails: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch, "NVIDIA H200", fails)
    assert start.start_ahead(json.dumps(HELLO)) is None and started.done == [("auto", True)]


def test_a_pool_that_cannot_be_filled_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = Started(monkeypatch, "NVIDIA H200")
    closed: list[str] = []

    class Process:
        def __init__(self, role: str, **how: Any) -> None:
            if role == "witness":
                raise OSError("no more processes")
            self.role = role
            self.sandbox = SimpleNamespace(process=SimpleNamespace(terminate=lambda: None))

        def close(self) -> None:
            closed.append(self.role)

    monkeypatch.setattr(pool_module, "RunnerProcess", Process)
    assert start.start_ahead(json.dumps(HELLO)) is None
    assert closed == ["reference", "candidate"] and started.done == [("auto", True)]


class Pool:
    """Was started ahead."""

    closed = False

    def close(self) -> None:
        self.closed = True


def greet(asked: server.Oracle) -> bool:
    """Whether the oracle judges on a card that is here."""
    answer = asked.answer(Hello.model_validate(HELLO))
    assert isinstance(answer, HelloAnswer)
    return answer.hardware.present


def established(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(server, "establish", lambda mode, *, cuda: found.append(cuda))
    return found


def test_a_card_that_torch_cannot_use_ends_what_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    found, pool = established(monkeypatch), Pool()
    monkeypatch.setattr(server, "present_card", lambda: None)
    asked = server.Oracle(cast(RunnerPool, pool))
    assert not greet(asked)
    assert pool.closed and found == [False] and asked._pool is None


@pytest.mark.parametrize("ahead", [True, False])
def test_the_sandbox_is_established_once(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found, card = established(monkeypatch), server.named_card("h200").model_copy(update={"present": True})
    pool, later = Pool(), Pool()
    monkeypatch.setattr(server, "present_card", lambda: card)
    monkeypatch.setattr(RunnerPool, "start", classmethod(lambda cls: later))
    asked = server.Oracle(cast(RunnerPool, pool) if ahead else None)
    assert greet(asked)
    assert asked._pool is cast(object, pool if ahead else later) and found == ([] if ahead else [True])


@pytest.mark.parametrize("waits", [True, False])
def test_a_process_compiles_only_its_own_task(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose task has come compiles that and nothing else."""
    done: list[str] = []
    note: Callable[[str], Callable[[], None]] = lambda word: lambda: done.append(word)  # noqa: E731 - a table of stand-ins
    for name in ("touch_card", "start_compiler"):
        monkeypatch.setattr(warm, name, note(name))
    reads, writes = os.pipe()
    try:
        if not waits:
            os.write(writes, b"{}\n")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reads, "rb")))
        warm.warm_up(("card", "compile"))
    finally:
        os.close(writes)
    assert done == ["touch_card", "start_compiler"] if waits else done == ["touch_card"]
