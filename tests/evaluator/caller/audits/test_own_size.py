"""A kernel that was judged at a small size, and whole numbers that leave 32 bits at the task's own."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.audits.own_size import audit_own_size
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Status, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn

rows, columns = 100000, 4
SMALL = {"rows": 64}


class Model(nn.Module):
    def forward(self, x):
        place = torch.arange(x.shape[0], device=x.device)
        return x * ((place * 100003) % 1009 % 2 * 2 - 1)[:, None]


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch, triton
import triton.language as tl
from torch import nn


@triton.jit
def signs(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    place = (at // 4)WIDE
    hashed = (place * 100003) % 1009
    hashed = tl.where(hashed < 0, hashed + 1009, hashed)
    tl.store(out_ptr + at, x * (hashed % 2 * 2 - 1).to(tl.float32), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        signs[(triton.cdiv(x.numel(), 8192),)](x, out, x.numel(), BLOCK=8192)
        return out
"""
REFUSAL = "line 7: ValueError: this kernel is made for x float32[64, 4], and was given x float32[100000, 4]"


@pytest.fixture
def describe(tmp_path: Path) -> Callable[[str], tuple[Task, TaskFacts]]:
    def read(source: str = TASK) -> tuple[Task, TaskFacts]:
        path = tmp_path / "task.py"
        path.write_text(source)
        task = load_task(path, size="small")
        return task, probe(task)[0]

    return read


def cannot_describe(task: Task) -> TaskFacts:
    pytest.fail("no other size is looked at")


def answer(status: Status, message: str = "") -> Verdict:
    return Verdict.model_construct(status=status, message=message)


@pytest.mark.parametrize(
    ("verdict", "outcome", "status"),
    [
        (answer(Status.OK), "right at the task's own size", None),
        (answer(Status.INACCURATE, "maximum error 10"), "wrong", Status.INACCURATE),
        (answer(Status.RACY), "racy", Status.RACY),
        (answer(Status.RUNTIME_ERROR, REFUSAL), "not run at the task's own size, the kernel refuses it: this kernel is made for", None),
        (answer(Status.TIMEOUT, "a call took too long"), "not known at the task's own size (timeout: a call took too long)", None),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
def test_only_a_result_that_is_wrong_there_refuses_a_kernel(
    describe: Callable[..., tuple[Task, TaskFacts]], verdict: Verdict, outcome: str, status: Status | None
) -> None:
    asked: list[Task] = []
    task, facts = describe()
    (finding,) = audit_own_size(task, facts, lambda other: asked.append(other) or verdict, cannot_describe)
    assert finding.outcome.startswith(outcome) and finding.status is status
    assert [one.overrides for one in asked] == [{}] and task.overrides == {"rows": 64}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("place = torch.arange(x.shape[0], device=x.device)", "return x * 2.0"), None),
        (("rows, columns = 100000, 4", "rows, columns = 100000, 40000"), "not run as a whole (a verdict takes about"),
    ],
    ids=["no whole numbers", "too large for the interpreter"],
)
def test_the_kernel_is_not_called_there(describe: Callable[..., tuple[Task, TaskFacts]], change: tuple[str, str], says: str | None) -> None:
    task, facts = describe(TASK.replace(*change))
    findings = audit_own_size(task, facts, lambda other: pytest.fail("it is called"), cannot_describe)
    assert [finding.outcome.startswith(says or "-") and finding.status is None for finding in findings] == ([True] if says else [])


LARGE = TASK.replace("100000, 4", "100000, 4000").replace('{"rows": 64}', '{"rows": 64, "columns": 4}')


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(Status.OK, "right with columns of the task's own size; not run as a whole"), (Status.INACCURATE, "wrong")],
)
def test_each_size_is_the_tasks_own_in_turn_where_the_whole_takes_too_long(
    describe: Callable[..., tuple[Task, TaskFacts]], status: Status, outcome: str
) -> None:
    task, facts = describe(LARGE)
    asked: list[Task] = []

    def describe_sized(sized: Task) -> TaskFacts:
        if "rows" not in sized.overrides:
            raise TaskError("does not run")
        return facts

    (finding,) = audit_own_size(task, facts, lambda sized: asked.append(sized) or answer(status), describe_sized)
    assert [sized.overrides for sized in asked] == [{"rows": 64}] and asked[0].meant is None
    assert finding.outcome.startswith(outcome) and (finding.status is None) is (status is Status.OK)


@pytest.mark.slow
def test_a_hash_that_wraps_at_the_own_size_is_refused(evaluator: LocalEvaluator, describe: Callable[..., tuple[Task, TaskFacts]]) -> None:
    task, _ = describe()
    wrong, right = (asyncio.run(evaluator.evaluate(task, KERNEL.replace("WIDE", wide), "strict")) for wide in ("", ".to(tl.int64)"))
    assert (wrong.status, right.status) == (Status.INACCURATE, Status.OK)
    assert "in 64 bits" in wrong.message and right.environment["audit"]["own size"] == "right at the task's own size"
