"""Forwards that torch.fx cannot follow: the calls of one run are the facts."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.reference import probe as probing
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts, TensorSpec

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Case:
    """A task, and the calls that its trace names in order."""

    name: str
    forward: str
    calls: tuple[str, ...]
    inputs: str = "torch.rand(6, 8)"
    init: str = "pass"
    arguments: str = "x"
    values: tuple[int, ...] = ()
    """Lines of the task, counted from the first of forward, that go by values."""
    sizes: tuple[int, ...] = field(default=())

    def task(self) -> Task:
        """The task; lines of a part are parted by bars."""
        parts = {"init": self.init, "forward": self.forward}
        lines = {name: "\n        ".join(text.split("| ")) for name, text in parts.items()}
        source = HEAD.format(arguments=self.arguments, inputs=self.inputs, **lines)
        return Task(name="mine", path=f"{self.name}.py", source=source)

    @property
    def first_line(self) -> int:
        """The line of the task that forward's text begins in."""
        return 12 + self.init.count("| ")


def find_calls(facts: TaskFacts) -> tuple[str, ...]:
    return tuple(node.module_type or node.target.rpartition(".")[2] for node in facts.ops if node.op.startswith("call"))


CASES = [
    Case("slice by size", "n = x.shape[1] // 2| return F.gelu(x[:, :n]) * self.table[:n]", ("getitem", "gelu", "getitem", "mul"),
         init="self.table = torch.rand(8)", sizes=(0,)),
    Case("branch on size", "if x.shape[0] > 4:| ----return torch.relu(x)| return x + 1", ("relu",), sizes=(0,)),
    Case("loop over size", "for i in range(x.size(0)):| ----x = x * 2| return x", ("mul",) * 6, sizes=(0,)),
    Case("modules by number", "for i, layer in enumerate(self.layers):| ----x = layer(x) if i < len(x) else x| return x", ("Linear",) * 3,
         init="self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))", sizes=(1, )),
    Case("any number of arguments", "return sum(rest, start=torch.zeros_like(rest[0]))", ("zeros_like", "add", "add"),
         inputs="torch.rand(4), torch.rand(4)", arguments="*rest"),
    Case("loop by value", "while float(x.sum()) < 100.0:| ----x = x + 1| return x", ("sum", "add") * 2 + ("sum",), values=(0,)),
    Case("assignment by index", "for i in range(len(x)):| ----x[i] = x[i].softmax(-1)| return x.mul_(2)",
         ("getitem", "softmax", "setitem") * 2 + ("mul_",), inputs="torch.rand(2, 8)", sizes=(0,)),
    Case("attention and einsum", "b, s, d = x.shape| assert d % 8 == 0| q, k, v = self.qkv(x).chunk(3, dim=-1)| "
         "y = F.scaled_dot_product_attention(q, k, v)| return torch.einsum('bsd,ed->bse', y, self.w[:d])",
         ("Linear", "chunk", "getitem", "getitem", "getitem", "scaled_dot_product_attention", "getitem", "einsum"),
         inputs="torch.rand(2, 5, 8)", init="self.qkv = nn.Linear(8, 24)| self.w = nn.Parameter(torch.rand(9, 8))", sizes=(0,)),
    Case("keywords of any name", "y = 2.0 * x| return {0: kwargs.get('scale', y), ('a', 1): x.exp(), 'ref': len(kwargs)}", ("mul", "exp"),
         arguments="x, **kwargs"),
    Case("arguments that are checked", "d = torch.distributions.Normal(x, x.exp())| return d.log_prob(x) if len(x) else x",
         ("exp", "broadcast_tensors", "getitem", "getitem", "pow", "log", "sub", "neg", "mul", "truediv", "sub", "sub", "pow"), sizes=(1,)),
    Case("weights of a call", "p = {'weight': self.l.weight * 2, 'bias': self.l.bias}| return torch.func.functional_call(self.l, p, (x,))",
         ("mul", "linear"), init="self.l = nn.Linear(8, 4)"),
    Case("a number as a tensor", "return x[:, : int(n)].relu()", ("getitem", "relu"), inputs="torch.rand(6, 8), torch.tensor(3)",
         arguments="x, n", values=(0,)),
    Case("checks of values", "assert (x >= 0).all(), 'low'| if x.isnan().any():| ----raise ValueError('nan')| return x.sqrt()",
         ("ge", "all", "isnan", "any", "sqrt")),
    Case("a module that reads its state", "self.b.train()| y = self.b(x) if len(x) else x| self.b.eval()| return y", ("BatchNorm1d",),
         init="self.b = nn.BatchNorm1d(8, momentum=None)", sizes=(1,)),
    Case("warnings by value", "return torch.cov(x[: len(x)])", ("getitem", "cov"), sizes=(0,)),
    Case("several types", "assert len(ids) == 3| y = self.table(ids).to(torch.bfloat16)| return torch.where(keep, y, 0.0), ids.argmax()",
         ("Embedding", "to", "where", "argmax"), inputs="torch.randint(9, (3, 4)), torch.rand(3, 4, 8) > 0.5",
         init="self.table = nn.Embedding(9, 8)", arguments="ids, keep", sizes=(0,)),
    Case("recurrent layers",
         "y, (h, c) = self.lstm(x)| z, last = self.gru(y[1:] if len(x) > 1 else y)| return z, c, last.to(torch.float16)",
         ("LSTM", "getitem", "getitem", "GRU", "getitem", "getitem", "getitem", "getitem", "to"), inputs="torch.rand(5, 2, 8)",
         init="self.lstm = nn.LSTM(8, 4, 2)| self.gru = nn.GRU(4, 4)", sizes=(1,)),
]  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    one: Case = request.param
    return Case(**{**vars(one), "forward": one.forward.replace("----", "    ")})


def test_a_run_is_traced_where_fx_fails(case: Case) -> None:
    facts, costs = probe(case.task())
    assert facts.traced_by is TraceWay.RUN and facts.trace_error.startswith("torch.fx")
    assert sorted(find_calls(facts)) == sorted(case.calls)
    assert facts.ops[-1].op == "output" and facts.ops[-1].outputs == facts.outputs
    lines = {name: tuple(case.first_line + at for at in getattr(case, name)) for name in ("sizes", "values")}
    assert (facts.value_lines, set(lines["sizes"]) <= set(facts.size_lines)) == (lines["values"], True)
    assert_refers_backwards(facts.ops)
    assert_adds_up(facts)
    assert sum(cost.flops for cost in costs) == facts.flops


def assert_refers_backwards(ops: tuple[OpNode, ...]) -> None:
    """Every reference names an earlier node, and every node but placeholders and attributes reads something or makes a constant."""
    known: set[str] = set()
    for node in ops:
        assert find_references((node.args, node.kwargs)) <= known, node
        assert node.name not in known
        known.add(node.name)


def find_references(value: Any) -> set[str]:
    if isinstance(value, dict) and "ref" in value:
        return {value["ref"]}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return set().union(*map(find_references, parts))


def assert_adds_up(facts: TaskFacts) -> None:
    assert math.isclose(sum(node.flops for node in facts.ops), facts.flops)
    assert sum(node.launches for node in facts.ops) == facts.reference_launches > 0


BOTH = [
    Case("chain", "y = torch.relu(x) + self.b| return F.softmax(y / 2, -1), y.T, 1 - y", (), init="self.b = nn.Parameter(torch.rand(8))"),
    Case("blocks", "return self.net(x).clamp(min=0.0) @ x.T", (), init="self.net = nn.Sequential(nn.Linear(8, 8), nn.GELU())"),
    Case("lstm", "return self.lstm(x)[1][0][-1] * 2.0", (), inputs="torch.rand(5, 2, 8)", init="self.lstm = nn.LSTM(8, 4)"),
    Case("norms", "return self.n(self.c(x)).mean((2, 3)).to(torch.float16)", (), inputs="torch.rand(2, 3, 8, 8)",
         init="self.c = nn.Conv2d(3, 4, 3)| self.n = nn.BatchNorm2d(4)"),
]  # fmt: skip


@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.name)
def test_both_ways_say_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    by_fx, _ = probe(case.task())
    monkeypatch.setattr(probing, "trace_forward", lambda *_: ((), "not asked"))
    by_run, _ = probe(case.task())
    assert (by_fx.traced_by, by_run.traced_by) == (TraceWay.FX, TraceWay.RUN)
    assert sorted(find_calls(by_run)) == sorted(find_calls(by_fx))  # torch.fx looks at an attribute where it is used
    said = [[(node.op, node.module, node.outputs, node.flops, node.bytes, node.launches, node.line) for node in facts.ops if node.launches]
            for facts in (by_fx, by_run)]  # fmt: skip
    assert said[0] == said[1] and said[0]
    changed = {"ops", "traced_by", "trace_error", "size_lines"}
    assert by_fx.model_dump(exclude=changed) == by_run.model_dump(exclude=changed)
    assert_refers_backwards(by_run.ops)
    assert_adds_up(by_fx)


def probe_text(forward: str, **parts: str) -> TaskFacts:
    return probe(Case("mine", forward, (), **parts).task())[0]


def test_a_trace_says_which_tensor_an_operator_reads() -> None:
    facts = probe_text("x[0] = 1.0| y = x + self.table[: x.shape[0]]| return y", init="self.table = torch.rand(9, 8)")
    add = next(node for node in facts.ops if node.name == "add")
    assert [node.name for node in facts.ops] == ["x", "setitem", "table", "getitem", "add", "output"]
    assert add.args == ({"ref": "setitem"}, {"ref": "getitem"})
    assert (facts.ops[2].op, facts.ops[2].target, facts.ops[3].args[1]) == ("get_attr", "table", {"slice": [None, 6, None]})


def test_calls_know_their_module() -> None:
    block = "self.block = type('Block', (nn.Module,), {'forward': lambda self, x: torch.relu(x) if len(x) else x})()"
    facts = probe_text("return self.block(x)", init=block)
    assert [(node.module, node.target) for node in facts.ops if node.op.startswith("call")] == [("block", "torch.relu")]


def test_operators_past_python_are_seen() -> None:
    """TorchScript calls the dispatcher alone."""
    facts = probe_text(
        "return self.scripted(x, x)", init="self.scripted = torch.jit.trace(lambda a, b: a * b + 1, (torch.rand(2), torch.rand(2)))"
    )
    assert find_calls(facts) == ("mul", "add") and facts.reference_launches == 2


def test_a_constructor_that_needs_values_leaves_forward_on_fake_tensors() -> None:
    """The inputs would be 64 GB."""
    rates = "self.rates = [float(rate) for rate in torch.linspace(0, 1, 3)]| self.layer = nn.Linear(16, 16)"
    facts = probe_text("return self.layer(x) * self.rates[len(x) % 2]", init=rates, inputs="torch.rand(1 << 30, 16)")
    assert facts.outputs == (TensorSpec(shape=(1 << 30, 16)),) and find_calls(facts) == ("Linear", "mul")


@pytest.mark.parametrize(
    ("bound", "value", "sentence"),
    [
        ("_REAL_SECONDS", 0.0, "with values it takes more than 0 s on this host"),
        ("_MEMORY_SHARE", 0.0, "with values it takes more than 0% of the free memory on this host"),
    ],
)
def test_a_forward_that_is_too_much_for_the_host_is_said(bound: str, value: float, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, bound, value)
    facts = probe_text("return x[x > 0.5]")
    assert (facts.ops, facts.traced_by, facts.inputs) == ((), None, (TensorSpec(shape=(6, 8)),))
    assert facts.trace_error.startswith("forward does not run on tensors without values (") and facts.trace_error.endswith(sentence)


def test_memory_that_is_too_much_is_an_error_and_no_death() -> None:
    big = Case("big", "y = x[x > 0.5]| return torch.ones(1 << 50)[: len(y)]", ())
    facts, costs = probe(big.task())
    assert facts.ops == () and costs == [] and facts.trace_error.endswith("of the free memory on this host")
    torch.ones(1 << 20)  # the bound ends with the run


def test_a_very_long_forward_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_MOST_NODES", 5)
    facts = probe_text("for i in range(20):| ----x = x + 1| return x".replace("----", "    "))
    assert (len(facts.ops), facts.ops_left_out, facts.ops[-1].op) == (5, 17, "output")
    assert facts.reference_launches == 20


@pytest.mark.parametrize("forward", ["return torch.vmap(self.f)(x)", "y = x.sum()| return torch.func.vmap(lambda row: row[:2] * y)(x)"])
def test_a_transform_of_functions_is_said_with_its_line(forward: str) -> None:
    facts = probe_text(forward, init="self.f = nn.Linear(8, 4)")
    line = 12 + forward.count("| ")
    assert facts.ops == () and len(facts.outputs) == 1 and facts.reference_launches > 0
    assert facts.trace_error.startswith(f"line {line} runs under torch.vmap or ") and "write the axis" in facts.trace_error
