"""The probe: facts and operator trace of a reference, from a process of its own and from within."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unsorted_tasks as tasks
from project import ROOT
from recipe_cases.regions import RegionCase
from tritonsmith.evaluator.caller.questions.describe import run_probe
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.records.operator_cost import OperatorCost, TraceWay
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.reference.trace import recurrent_cost, trace_operators
from tritonsmith.evaluator.schema import Task, TaskFacts, TensorSpec
from tritonsmith.evaluator.tasks.files import load_task

TASKS = ROOT / "benchmarks" / "tasks"


def facts_of(name: str, size: str = "full") -> tuple[TaskFacts, list[OperatorCost]]:
    return probe(load_task(TASKS / name, size))


def test_the_gru_task() -> None:
    facts, trace = facts_of("39_gru.py")
    assert facts.inputs == (TensorSpec(shape=(512, 10, 128)), TensorSpec(shape=(6, 10, 256)))
    assert facts.outputs == (TensorSpec(shape=(512, 10, 256)),)
    assert facts.returns == "a tensor float32[512, 10, 256], the top layer's states of every step of gru"
    assert len(facts.parameters) == 24 and facts.parameters["gru.weight_hh_l5"].shape == (768, 256)
    assert facts.reference_launches == sum(one.launches for one in trace) == 6 * (1 + 2 * 512)
    assert facts.serial_steps == 3072
    products = 512 * 10 * 2 * 768 * (128 + 256 + 5 * 512)
    assert facts.flops == pytest.approx(products, rel=0.01)
    weights = sum(_elements(one) for one in facts.parameters.values())
    assert facts.min_bytes == 4 * (512 * 10 * 128 + 6 * 10 * 256 + 512 * 10 * 256 + weights)
    gru = next(op for op in facts.ops if op.module_type == "GRU")
    wanted = {"input_size": 128, "hidden_size": 256, "num_layers": 6, "bias": True, "batch_first": False, "bidirectional": False}
    assert wanted.items() <= gru.attributes.items() and gru.args == ({"ref": "x"}, {"ref": "h0"})


def _elements(spec: TensorSpec) -> int:
    count = 1
    for size in spec.shape:
        count *= size
    return count


def test_a_buffer_that_forward_writes_with_an_operator_is_a_tensor_again() -> None:
    """torch.fx assigns its stand-in to `self.seen`; who asks for the model's state behind that would get it."""
    init = "self.register_buffer('seen', torch.ones(4))"
    case = RegionCase("seen", "self.seen += x.sum(0); return x * 2", "torch.randn(3, 4)", init=init)
    facts, _ = probe(Task(name="a", path="a.py", source=case.source()))
    assert facts.parameters["seen"] == TensorSpec(shape=(4,)) and facts.ops


@pytest.mark.parametrize(
    ("name", "returns", "serial"),
    [
        pytest.param("36_lstm_hn.py", "a tensor float32[6, 10, 256], the last hidden states of lstm", 3072, marks=pytest.mark.slow),
        ("37_lstm_cn.py", "a tensor float32[6, 10, 256], the last cell states of lstm", 3072),
        pytest.param("38_lstm_bidirectional.py", "a tensor float32[10, 10]", 3072, marks=pytest.mark.slow),
        pytest.param(
            "42_gru_bidirectional_hidden.py", "a tensor float32[12, 10, 256], the last hidden states of gru", 3072, marks=pytest.mark.slow
        ),
        pytest.param("11_vgg16.py", "a tensor float32[10, 1000]", 1, marks=pytest.mark.slow),  # its counts are in the next test
    ],
)
def test_full_size_costs_no_computing(name: str, returns: str, serial: int) -> None:
    facts, _ = facts_of(name)
    assert (facts.returns, facts.serial_steps, facts.trace_error) == (returns, serial, "")


def test_vgg16_counts() -> None:
    facts, trace = facts_of("11_vgg16.py")
    assert facts.modules == {"Conv2d": 13, "ReLU": 15, "MaxPool2d": 5, "Linear": 3, "Dropout": 2}
    assert facts.flops == pytest.approx(10 * 2 * 15.47e9, rel=0.01)  # 15.47 billion multiplications and additions per image
    assert facts.reference_launches == 2 * 13 + 15 + 5 + 3
    assert [one.launches for one in trace if one.name == "aten.convolution"] == [2] * 13


def test_functions_have_public_names() -> None:
    facts, trace = facts_of("26_gelu_scale_bias.py", "small")
    calls = [op.target for op in facts.ops if op.op == "call_function"]
    assert calls == ["_operator.add", "torch.nn.functional.gelu", "_operator.mul", "torch.clamp"]
    assert [one.launches for one in trace] == [1, 1, 1, 1]
    size = 32 * 192 * 4
    assert trace[0].bytes == 2 * size + 192 * 4 and trace[1].bytes == 2 * size
    assert facts.ops[1].op == "get_attr" and facts.ops[1].target == "bias"


def test_fake_and_real_tensors_cost_the_same() -> None:
    facts, trace = facts_of("41_gru_bidirectional.py", "small")
    model = nn.GRU(32, 64, 6, bidirectional=True).eval()
    real = trace_operators(model, [torch.rand(16, 10, 32), torch.rand(12, 10, 64)])
    assert real.costs == trace and real.serial_steps == facts.serial_steps == 6 * 16
    assert trace[0].chain is None, "a library's directions run one after the other"
    assert "forward" not in vars(model)


class Attend(nn.Module):
    """Attention of 8 queries; causal where it is asked for."""

    def __init__(self, causal: bool, grouped: bool = False) -> None:
        super().__init__()
        self.causal, self.grouped = causal, grouped

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=self.causal, enable_gqa=self.grouped)


@pytest.mark.parametrize(("keys", "seen"), [(8, 36), (4, 26), (16, 36)])
def test_causal_attention_costs_what_its_queries_see(keys: int, seen: int) -> None:
    inputs = [torch.randn(2, 3, 8, 16), torch.randn(2, 3, keys, 16)]
    whole, causal = (sum(one.flops for one in trace_operators(Attend(causal), inputs).costs) for causal in (False, True))
    assert causal == pytest.approx(whole * seen / (8 * keys))


def test_attention_with_fewer_heads_of_keys_costs_what_its_queries_do() -> None:
    queries, keys = torch.randn(2, 6, 8, 16), torch.randn(2, 6, 12, 16)
    whole = sum(one.flops for one in trace_operators(Attend(False), [queries, keys]).costs)
    grouped = sum(one.flops for one in trace_operators(Attend(False, grouped=True), [queries, keys[:, :2].contiguous()]).costs)
    assert grouped == pytest.approx(whole, rel=0.02) and whole >= 4 * 2 * 6 * 8 * 12 * 16


def test_recurrent_cost_grows_with_steps_and_layers() -> None:
    one = recurrent_cost(nn.LSTM(8, 16, 1), torch.empty(5, 2, 8))
    batch_first = recurrent_cost(nn.LSTM(8, 16, 1, batch_first=True), torch.empty(2, 5, 8))
    assert one == batch_first and one.launches == 1 + 2 * 5
    assert one.flops == 5 * 2 * (2 * 64 * (8 + 16) + 5 * 64)
    longer = recurrent_cost(nn.LSTM(8, 16, 1), torch.empty(10, 2, 8))
    assert longer.flops == 2 * one.flops and longer.launches == 1 + 2 * 10
    # Weights of the recurrent side are read in every step.
    assert longer.bytes - one.bytes > 5 * 64 * 16 * 4


NEEDS_VALUES = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.cell = nn.GRUCell(n, n)

    def forward(self, x, factor, h=None):
        print("text that must not reach the answer")
        if float(x.max()) > 100.0:
            return x
        h = torch.zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return {"last": h, "scaled": [x * factor]}

N = 4

def get_inputs():
    return [torch.rand(3, 7, N), 2]

def get_init_inputs():
    return [N]
"""


@pytest.mark.slow
def test_a_model_that_needs_values_is_run_for_real_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "values.py"
    path.write_text(NEEDS_VALUES)
    facts, trace = run_probe(load_task(path))
    assert facts.traced_by is TraceWay.RUN and "cannot trace" in facts.trace_error
    assert [path.read_text().splitlines()[line - 1].strip() for line in facts.value_lines] == ["if float(x.max()) > 100.0:"]
    assert facts.returns == "a dict of 2 tensors: float32[3, 4]; float32[3, 7, 4]"
    assert facts.inputs == (TensorSpec(shape=(3, 7, 4)), None)
    assert facts.serial_steps == 7 and [one.launches for one in trace if one.name == "nn.GRUCell"] == [3] * 7


def test_default_arguments_are_decided_at_trace_time(tmp_path: Path) -> None:
    path = tmp_path / "default.py"
    text = NEEDS_VALUES.replace("float(x.max()) > 100.0", "h is not None").replace("range(x.shape[1])", "range(7)")
    text = text.replace("torch.zeros(x.shape[0], x.shape[2])", "torch.zeros_like(x[:, 0])")
    path.write_text(text)
    facts, _ = probe(load_task(path))
    cells = [op for op in facts.ops if op.module_type == "GRUCell"]
    assert facts.trace_error == "" and len(cells) == 7
    assert {text.splitlines()[op.line - 1].strip() for op in cells} == {"h = self.cell(x[:, t], h)"}
    assert [op.name for op in facts.ops if op.op == "placeholder"] == ["x", "factor"]
    assert not [op for op in facts.ops if "assert" in op.target]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("return [N]", "return [N, 1]"), r"values\.py: Model\(4, 1\) raised TypeError .*; fix"),
        (("h = self.cell(x[:, t], h)", "h = self.cell(x, h)"), r"values\.py, line 16: forward raised .*; make Model\.forward accept"),
        (('return {"last": h, "scaled": [x * factor]}', "return 3"), r"values\.py, line 10: forward returns int, which holds no tensor"),
    ],
)
def test_faults_reach_the_caller_as_sentences(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    path = tmp_path / "values.py"
    path.write_text(NEEDS_VALUES.replace(*change))
    with pytest.raises(TaskError, match=sentence) as caught:
        probe(load_task(path))
    assert "\n" not in str(caught.value)


def test_a_size_that_leaves_nothing_to_judge_is_refused() -> None:
    with pytest.raises(TaskError, match=r"26_gelu_scale_bias\.py, line \d+: forward returns no element \(\[0, 8192\]\)"):
        probe(load_task(TASKS / "26_gelu_scale_bias.py", overrides={"batch_size": 0}))


@pytest.mark.parametrize("record", ["namedtuple('Pair', ['low', 'high'])", "make_dataclass('Pair', ['low', 'high'])"])
def test_records_that_forward_returns_keep_their_name_and_fields(record: str) -> None:
    source = f"""
from collections import namedtuple
from dataclasses import make_dataclass
import torch
Pair = {record}
class Model(torch.nn.Module):
    def forward(self, x):
        return Pair(x.relu(), high=(x.exp(), None))
def get_inputs():
    return [torch.randn(3)]
def get_init_inputs():
    return []
"""
    facts, _ = probe(Task(name="records", path="records.py", source=source))
    fields = {"low": {"ref": "relu"}, "high": [{"ref": "exp"}, None]}
    assert facts.ops[-1].op == "output" and facts.ops[-1].args == ({"record": "Pair", "fields": fields},)


def test_lazy_modules_are_refused() -> None:
    lazy = "super().__init__(); self.l = torch.nn.LazyLinear(3)"
    source = (TASKS / "26_gelu_scale_bias.py").read_text().replace("super().__init__()", lazy)
    with pytest.raises(TaskError, match=r"26\.py: l\.weight has no size before the first call; give lazy modules their sizes"):
        probe(Task(name="26", path="26.py", source=source))


def test_faults_cross_the_process_and_endless_tasks_end(tmp_path: Path) -> None:
    path = tmp_path / "values.py"
    path.write_text(NEEDS_VALUES.replace("return [N]", "raise ValueError('no width')"))
    with pytest.raises(TaskError, match=r"values\.py, line 25: get_init_inputs\(\) raised ValueError \(no width\)"):
        run_probe(load_task(path))
    path.write_text(NEEDS_VALUES.replace('print("text', 'while True: print("text'))
    with pytest.raises(TaskError, match=r"values\.py: .* took longer than 1 s; use --size small or --set NAME=VALUE"):
        run_probe(load_task(path), timeout=1.0)


@pytest.mark.parametrize("describe", [probe, pytest.param(run_probe, marks=pytest.mark.slow)])
def test_facts_that_other_tests_write_down_are_those_of_the_probe(tmp_path: Path, describe: Callable[[Task], Any]) -> None:
    """In the order of the module's own names, also after the way through a process."""
    (tmp_path / "7_scorer.py").write_text(tasks.SCORER)
    task = load_task(tmp_path / "7_scorer.py", "small")
    written = tasks.SCORER_FACTS
    facts = describe(task)[0]
    assert list(facts.parameters.items()) == list(written.parameters.items())
    assert (facts.inputs, facts.outputs, facts.returns, facts.init_inputs) == (
        written.inputs, written.outputs, written.returns, written.init_inputs
    )  # fmt: skip
    assert facts.modules == written.modules and {node.target for node in written.ops} <= {node.target for node in facts.ops}
    assert facts == TaskFacts.model_validate_json(facts.model_dump_json())


@pytest.mark.parametrize(
    ("init", "forward", "inputs", "read"),
    [
        ("self.e = nn.Embedding(1000, 8)", "return self.e(i)", "torch.randint(0, 1000, (5,))", 5 * 8 + 5 * 8 * 4),
        ("self.e = nn.EmbeddingBag(1000, 8)", "return self.e(i)", "torch.randint(0, 1000, (2, 3))", 6 * 8 + 6 * 8 * 4),
        ("", "return i[1:3] + 1.0", "torch.randn(100, 4)", 2 * 4 * 4),
        ("", "return i[:, torch.tensor([0, 7])].sum()", "torch.randn(10, 50)", 2 * 10 * 4),
        ("self.e = nn.Embedding(3, 8)", "return self.e(i)", "torch.randint(0, 3, (50,))", 50 * 8 + 3 * 8 * 4),
        ("self.e = nn.Embedding(9, 8)", "return self.e(i) @ self.e.weight.T", "torch.randint(0, 9, (2,))", 2 * 8 + 9 * 8 * 4),
        ("self.unused = nn.Linear(90, 90)", "return i * 2", "torch.randn(4)", 16),
    ],
)
def test_a_lookup_reads_its_rows_and_a_slice_what_it_holds(init: str, forward: str, inputs: str, read: int) -> None:
    case = RegionCase("read", forward, inputs, init=init)
    facts, _ = probe(Task(name="a", path="a.py", source=case.source().replace("(self, x)", "(self, i)")))
    written = sum(_elements(spec) * 4 for spec in facts.outputs)
    assert facts.min_bytes - written == read
