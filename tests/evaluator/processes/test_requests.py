"""What travels to a server process: each kind of request is the same after the pipe, and what is none is refused in a sentence."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.requests import (
    COMPILER_KINDS,
    ORACLE_KINDS,
    Compile,
    Count,
    Evaluate,
    Hello,
    HelloAnswer,
    JudgingTerms,
    Prepare,
    Race,
    RaceRegions,
    Sanitize,
    ServerRequest,
    WriteCall,
    read_request,
)
from tritonsmith.evaluator.processes.serve import serve_requests
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Record, Task

TASK = Task(name="task", path="task.py", source="N = 3\n", overrides={"N": 2, "shape": (1, 2), "exact": True})
KERNEL = KernelText.of('x = "\u00e9"\n')
FILE = Path("/tmp/file")
CONDITIONS = JudgingTerms(measuring=FILE, code=FILE, baselines=("eager",), call_seconds=1.5)
EXAMPLES: list[ServerRequest[Any]] = [
    Hello(target="auto", use_card=True, sandbox="auto"),
    Evaluate(
        task=TASK, kernel=KERNEL, profile="quick", raw=FILE, trace=(OperatorCost("aten::mm", chain=2),), **dict(CONDITIONS)
    ),
    Prepare(task=TASK, baselines=("eager",)),
    WriteCall(task=TASK),
    Race(task=TASK, incumbent=KERNEL, entrants=(KERNEL,), keep=2, seconds=3.0, **dict(CONDITIONS)),
    RaceRegions(contests=(), seconds=3.0, measuring=FILE),
    Sanitize(kernel=KERNEL, request=FILE, code=FILE, seconds=4.0),
    Count(kernel=KERNEL, request=FILE, seconds=5.0),
    Compile(kernel=KERNEL, request=FILE, seconds=6.0, mark=FILE),
]  # fmt: skip


@pytest.mark.parametrize("asked", EXAMPLES, ids=lambda asked: asked.op)
def test_a_request_is_the_same_after_the_pipe(asked: ServerRequest[Any]) -> None:
    read = read_request(json.loads(json.dumps(asked.write())), (*ORACLE_KINDS, Compile))
    assert read == asked and type(read) is type(asked)


def test_every_kind_has_an_example_and_says_what_answers_it() -> None:
    assert {type(asked) for asked in EXAMPLES} == {*ORACLE_KINDS, *COMPILER_KINDS}
    for kind in {*ORACLE_KINDS, *COMPILER_KINDS}:
        named = [base.__pydantic_generic_metadata__["args"] for base in kind.__mro__ if issubclass(base, ServerRequest)]
        assert (kind.answered_by,) in named


def answers_of(*lines: str) -> list[dict[str, Any]]:
    """What a server of two kinds answers to these lines."""

    def answer(request: ServerRequest[Any]) -> Record:
        assert isinstance(request, Hello)
        return HelloAnswer(hardware=named_card(request.target))

    reads, writes = os.pipe()
    with os.fdopen(reads) as answers:
        serve_requests(lines, writes, COMPILER_KINDS, answer)
        os.close(writes)
        return [json.loads(line) for line in answers]


def test_what_is_no_request_is_refused_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """The process goes on after it."""
    hello = json.dumps(Hello(target="h200", use_card=False, sandbox="auto").write())
    unknown, incomplete, no_object, known = answers_of('{"op": "sing"}\n', '{"op": "compile", "seconds": "long"}\n', "[]\n", hello + "\n")
    assert unknown == {"error": "InfrastructureError: there is no request 'sing' here; ask hello, compile", "kind": "infrastructure"}
    assert incomplete["error"].endswith("the request 'compile' cannot be read: see kernel, request, seconds, mark")
    assert no_object["error"].endswith("there is no request None here; ask hello, compile")
    assert known["hardware"]["key"] == "h200"
    assert "Traceback" in capfd.readouterr().err  # the log has the whole story


def test_an_oracle_answers_no_compilation() -> None:
    with pytest.raises(InfrastructureError, match="no request 'compile' here; ask hello, evaluate, prepare, own_call, race, .*"):
        read_request(EXAMPLES[-1].write(), ORACLE_KINDS)
