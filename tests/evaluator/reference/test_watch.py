"""What one forward shows: the class of its types, random operators, updated buffers; and forwards that stay in float64."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.float64 import InFloat64
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.reference.updates import UpdatedBuffers, run_forward
from tritonsmith.evaluator.reference.watch import WatchedForward, run_watched
from tritonsmith.evaluator.schema import PrecisionClass, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import load_task, settle_task

HALF, IEEE = PrecisionClass.HALF, PrecisionClass.IEEE


def task_of(folder: Path, init: str, forward: str, inputs: str, mode: str = "eval") -> Task:
    lines = ["import torch", "from torch import nn", "from torch.nn import functional as F", "class Model(nn.Module):"]
    lines += ["    def __init__(self):", "        super().__init__()", f"        {init or 'pass'}"]
    lines += ["    def forward(self, x):", f"        {forward}", f"def get_inputs(): return [{inputs}]", "def get_init_inputs(): return []"]
    path = folder / "task.py"
    path.write_text("\n".join(lines) + "\n")
    return load_task(path, mode=mode)


def facts_of(task: Task) -> TaskFacts:
    return probe(task)[0]


@pytest.mark.parametrize(
    ("init", "forward", "inputs", "found"),
    [
        ("self.a = nn.Linear(8, 4)", "return self.a(x)", "torch.randn(2, 8)", IEEE),
        ("self.a = nn.Linear(8, 4).half()", "return self.a(x)", "torch.randn(2, 8).half()", HALF),
        ("self.a = nn.Embedding(8, 4).bfloat16()", "return self.a(x).float()", "torch.arange(8)", HALF),
        ("self.a = nn.Linear(8, 4)", "return self.a(x.bfloat16().float())", "torch.randn(2, 8)", HALF),
        ("self.a = nn.Linear(8, 4)", "return self.a(x.float())", "torch.randn(2, 8).bfloat16()", IEEE),
        ("self.a = nn.Linear(8, 4)", "return self.a(x).bfloat16()", "torch.randn(2, 8)", HALF),
    ],
)
def test_the_class_follows_from_the_types(tmp_path: Path, init: str, forward: str, inputs: str, found: PrecisionClass) -> None:
    task = task_of(tmp_path, init, forward, inputs)
    facts = facts_of(task)
    assert facts.precision is found and settle_task(task, facts).precision is found
    asked = load_task(task.path, precision="tf32")
    assert settle_task(asked, facts).precision is PrecisionClass.TF32  # the option only overrides


def test_autocast_counts_as_16_bits(tmp_path: Path) -> None:
    forward = "with torch.autocast(x.device.type, dtype=torch.bfloat16):\n            return self.a(x).float()"
    assert facts_of(task_of(tmp_path, "self.a = nn.Linear(8, 4)", forward, "torch.randn(2, 8)")).precision is HALF


@pytest.mark.parametrize(
    ("init", "forward", "named"),
    [
        ("self.a = nn.Dropout(0.1)", "return self.a(x)", "bernoulli_"),
        ("", "return x + torch.rand(8)", "rand"),
        ("self.a = nn.LSTM(8, 8, 2, dropout=0.3)", "return self.a(x)[0]", "dropout between the layers of nn.LSTM"),
    ],
)
def test_chance_in_training_mode_is_named(tmp_path: Path, init: str, forward: str, named: str) -> None:
    with pytest.raises(TaskError, match=r"line \d+: forward draws random numbers in training mode") as refused:
        facts_of(task_of(tmp_path, init, forward, "torch.randn(2, 8)", "train"))
    assert named in str(refused.value) and "--mode eval" in str(refused.value)
    facts_of(task_of(tmp_path, init, forward.replace(" + torch.rand(8)", ""), "torch.randn(2, 8)"))  # evaluation as before


def watched(task: Task) -> WatchedForward:
    reference = load_reference(task)
    return run_watched(reference, reference.build(1), reference.draw_inputs(2, "cpu"))


def test_random_numbers_in_evaluation_mode_must_leave_no_trace(tmp_path: Path) -> None:
    forward = "s = torch.randn(1, 2, 8); return self.a(x, (s, torch.zeros_like(s)))[0][{}]"
    init = "self.a = nn.LSTM(8, 8)"
    forgotten = task_of(tmp_path, init, forward.format("-1"), "torch.randn(400, 2, 8)")
    assert len(watched(forgotten).outputs) == 1
    for text in (forward.format("0"), "return torch.randint(9, (4,)) + 0 * x[0, 0, 0].long()"):
        with pytest.raises(TaskError, match=r"line \d+: forward draws random numbers \(rand.*\) and gives other results .* get_inputs\(\)"):
            watched(task_of(tmp_path, init, text, "torch.randn(400, 2, 8)"))


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize(
    ("init", "forward", "kept"),
    [
        ("self.last = None", "y = x if self.last is None else x + self.last; self.last = x.mean(); return y", "self.last"),
        ("self.calls = 0", "self.calls += 1; return x * self.calls", "self.calls"),
        ("self.a = nn.Module(); self.a.seen = []", "self.a.seen.append(x.mean()); return x + 1e-3 * len(self.a.seen)", "self.a.seen"),
        ("self.register_buffer('mean', torch.zeros(8), False)", "self.mean.mul_(0.9).add_(x.mean(0)); return x - self.mean", "self.mean"),
    ],
)  # fmt: skip
def test_what_forward_keeps_must_leave_no_trace(tmp_path: Path, mode: str, init: str, forward: str, kept: str) -> None:
    with pytest.raises(TaskError, match=rf"line \d+: forward keeps {kept} from call to call and gives other results .* its arguments"):
        watched(task_of(tmp_path, init, forward, "torch.randn(64, 8)", mode))
    with pytest.raises(TaskError, match=f"forward keeps {kept} "):  # before an author is asked
        facts_of(task_of(tmp_path, init, forward, "torch.randn(64, 8)", mode))


def test_a_forward_may_count_its_calls_and_keep_what_follows_from_sizes(tmp_path: Path) -> None:
    forward = "self.calls += 1; self.cache.setdefault(x.shape, torch.arange(8.0)); return x + self.cache[x.shape]"
    assert len(watched(task_of(tmp_path, "self.calls, self.cache = 0, {}", forward, "torch.randn(4, 8)")).outputs) == 1


def test_dropout_of_nothing_is_no_chance(tmp_path: Path) -> None:
    forward = "return F.scaled_dot_product_attention(x, x, x) + self.a(x)"
    assert facts_of(task_of(tmp_path, "self.a = nn.Dropout(0.0)", forward, "torch.randn(1, 2, 8, 8)", "train")).updates == ()


def test_updates_are_found_in_training_mode_only(tmp_path: Path) -> None:
    init = 'self.a = nn.BatchNorm1d(8); self.register_buffer("seen", torch.zeros(3)); self.register_buffer("fixed", torch.ones(3))'
    task = task_of(tmp_path, init, "self.seen.add_(1); return self.a(x) * self.fixed.sum()", "torch.randn(4, 8)", "train")
    names = ("seen", "a.running_mean", "a.running_var", "a.num_batches_tracked")
    assert set(facts_of(task).updates) == set(names)
    assert facts_of(load_task(task.path)).updates == ()
    assert task.sha != load_task(task.path).sha and load_task(task.path).sha == load_task(task.path, precision="ieee").sha


def test_a_call_leaves_the_buffers_as_they_were() -> None:
    model = nn.BatchNorm1d(4).train()
    names = ("running_mean", "num_batches_tracked")
    first, second = (run_forward(model, [torch.ones(3, 4) * 2], names) for _ in range(2))
    assert torch.equal(first[1], torch.full((4,), 0.2)) and int(first[2]) == 1
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert int(model.num_batches_tracked) == 0


def test_a_buffer_that_is_replaced_comes_back() -> None:
    model = nn.Module()
    model.register_buffer("state", torch.zeros(2))
    buffers, before = UpdatedBuffers(model, ["state"]), model.state
    model.state = torch.ones(2)
    assert buffers.list_changed() == [True] and torch.equal(buffers.read()[0], torch.ones(2))
    buffers.set_back()
    assert model.state is before and torch.equal(before, torch.zeros(2))


class _Casts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x.to(torch.bfloat16)) @ torch.eye(32, dtype=torch.float32)
        scores = F.scaled_dot_product_attention(y[None].half(), y[None].half(), y[None].half())
        zeros = torch.tensordot(torch.zeros(32, 32), torch.tensor([0.0] * 32), dims=1)  # both of one type, or PyTorch refuses
        return (torch.softmax(scores.float(), -1, dtype=torch.float32) + torch.zeros(32) + zeros).half()


def test_a_forward_that_casts_stays_in_float64() -> None:
    torch.manual_seed(5)
    model, x = _Casts().double(), torch.randn(8, 32, dtype=torch.float64)
    inside = InFloat64()
    with torch.no_grad():
        with inside():
            found = model(x)
        y = model.linear(x)[None]
        right = torch.softmax(torch.softmax(y @ y.mT / 32**0.5, -1) @ y, -1)
    assert found.dtype == torch.float64 and torch.allclose(found, right, rtol=1e-12)


def test_numbers_without_a_type_are_float64() -> None:
    """So a mask of the least number of the input's type can be made, as models of language do; also where no cast needs a detour."""
    x, inside = torch.zeros(2, dtype=torch.float64), InFloat64()
    for _ in range(2):
        with inside():
            masks = torch.full((2,), torch.finfo(x.dtype).min), torch.tensor(torch.finfo(x.dtype).min)
        assert all(one.isfinite().all() and one.dtype is torch.float64 for one in masks)
    assert torch.get_default_dtype() is torch.float32


def test_layers_of_transformers_compute_what_their_python_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's operator for a whole layer takes another GELU on a card, and leaves zeros at padded places."""
    layer = "self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation='gelu', batch_first=True)"
    reference = load_reference(task_of(tmp_path, layer, "return self.layer(x)", "torch.randn(2, 3, 8)"))
    model, inputs = reference.build(0), reference.draw_inputs(0)

    def refuse(*_: object) -> None:
        raise AssertionError("the operator for a whole layer")

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", refuse)
    with torch.no_grad(), pytest.raises(AssertionError, match="whole layer"):
        model(*inputs)
    assert torch.equal(reference.forward(model, inputs), run_forward(model, inputs, ())[0])
    assert torch.backends.mha.get_fastpath_enabled(), "as it was ahead of it"
