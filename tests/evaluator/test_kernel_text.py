"""A candidate's text travels as a value: hashed once where it enters, a file only in the inbox of a confined process."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.caller.questions.describe import TaskDescriptions
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.oracle.server import Oracle
from tritonsmith.evaluator.processes.requests import ORACLE_KINDS, Hello, ServerRequest, read_request
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.schema import Hardware, Status, Task
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + x


def get_inputs():
    return [torch.randn(4, 33)]


def get_init_inputs():
    return []
"""
MARK = "this comment is in the candidate's text alone"
TEXT = f"""# {MARK}
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) + x
"""
HELLO = Hello(target="h200", use_card=False, sandbox="auto")
INBOXES = ("tritonsmith-compile-", "tritonsmith-inbox-")
"""Folders that a confined process reads: the compiler's and the runner's."""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "task.py").write_text(TASK)
    return load_task(tmp_path / "task.py")


@pytest.fixture
def oracles_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Oracles answer in this process, without a card, and still by JSON lines; so what they do can be watched."""
    oracles: dict[ServerProcess, Oracle] = {}

    def ask(server: ServerProcess, request: ServerRequest[Any], timeout: float) -> Any:
        if server not in oracles:
            oracles[server] = Oracle()
            oracles[server].answer(HELLO)
        asked = read_request(json.loads(json.dumps(request.write())), ORACLE_KINDS)
        return request.read_answer(json.loads(json.dumps(oracles[server].answer(asked).model_dump(mode="json"))))

    def hello(server: ServerProcess) -> Hardware:
        found: Hardware = ask(server, HELLO, 1.0).hardware
        return found

    monkeypatch.setattr(ServerProcess, "ask", ask)
    monkeypatch.setattr(ServerProcess, "hello", hello)
    yield
    for oracle in oracles.values():
        oracle.close()
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the content addresses were computed of, call by call."""
    seen: list[bytes] = []
    sha256 = hashlib.sha256

    def counted(data: bytes = b"", **options: Any) -> Any:
        seen.append(data)
        return sha256(data, **options)

    monkeypatch.setattr(hashlib, "sha256", counted)
    return seen


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that the candidate's text was written to."""
    seen: list[Path] = []
    write_text, write_bytes = Path.write_text, Path.write_bytes

    def text(path: Path, data: str, *rest: Any, **options: Any) -> int:
        seen.extend([path] if MARK in data else [])
        return write_text(path, data, *rest, **options)

    def content(path: Path, data: bytes) -> int:
        seen.extend([path] if MARK.encode() in bytes(data) else [])
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_text", text)
    monkeypatch.setattr(Path, "write_bytes", content)
    return seen


@pytest.mark.slow
@pytest.mark.usefixtures("oracles_here")
def test_a_verdict_hashes_and_writes_the_text_once(task: Task, hashed: list[bytes], written: list[Path]) -> None:
    """A verdict hashes the text once and writes it into inboxes only."""
    with LocalEvaluator("h200", call_seconds=60, descriptions=TaskDescriptions(probe)) as evaluator:
        assert evaluator.hardware == named_card("h200")
        hashed.clear()
        verdict = evaluator.evaluate_now(task, TEXT)
    assert verdict.status is Status.OK, verdict.message
    assert hashed.count(TEXT.encode()) == 1
    assert verdict.sha == text_sha(TEXT)
    assert sorted(path.parent.name[: path.parent.name.rindex("-") + 1] for path in written) == list(INBOXES)


def test_a_text_is_the_same_after_a_pipe() -> None:
    kernel = KernelText.of('x = "\u00e9\\n"\r\n')
    wire = TypeAdapter(KernelText)  # as a request to a process carries it
    assert wire.validate_json(wire.dump_json(kernel)) == kernel
    assert kernel.sha == text_sha(kernel.text)
