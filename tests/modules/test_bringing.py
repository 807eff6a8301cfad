"""A live module written down as a task: its state, structures, inputs and sizes, and what is refused."""

from __future__ import annotations

import importlib
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from brought import Apply, bring_and_compare
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reads.worlds import visit_worlds
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.modules.bringing.bring import bring
from tritonsmith.modules.bringing.check import describe_difference, run_task_model
from tritonsmith.modules.bringing.structure import Signature
from tritonsmith.modules.records import list_records

x2, x3, x4 = torch.randn(6, 8), torch.randn(3, 5, 8), torch.randn(2, 4, 9, 10)
ids = torch.randint(0, 12, (3, 5))


class Inner(nn.Module):
    """Holds what a state_dict may hold: shared weights, a mask that is not kept, a plain tensor, places."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 8)
        self.out = nn.Linear(8, 12, bias=False)
        self.out.weight = self.table.weight
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.unused = nn.Parameter(torch.randn(3))
        self.register_buffer("places", torch.arange(64)[None], persistent=False)
        self.register_buffer("hidden", torch.rand(64, 64) < 0.5)
        self.plain = torch.randn(8)

    def forward(
        self,
        ids: torch.Tensor,
        *,
        options: dict[str, Any],
        factor: float = 1.0,
        unread: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        length = ids.shape[1]
        states = self.table(ids) * self.scale + self.plain + self.places[:, :length, None] * factor
        states = states.masked_fill(self.hidden[:length, :length].any(1)[None, :, None], 0.0)
        if options["bias"] is not None:
            states = states + options["bias"]
        return {"logits": self.out(states), "rest": (states, None, 7)}


def test_state_and_structure_are_those_of_the_original(tmp_path: Path) -> None:
    module, bias = Inner(), torch.randn(8)
    call = ((ids,), {"options": {"bias": bias}, "factor": 0.5, "unread": torch.ones(2)})
    brought = bring_and_compare(module, call, tmp_path / "task")
    signature = Signature.read(tmp_path / "task")
    assert signature.inputs == (0, 1) and brought.sizes == {"batch": 3, "width": 5}
    state = torch.load(tmp_path / "task" / "weights.pt")
    assert state.keys() == {*module.state_dict(), "places", "plain"} == signature.state.keys()
    assert torch.equal(state["hidden"], module.hidden) and signature.state["plain"] == "plain"
    assert "self.out.weight = self.table.weight" in brought.task.read_text()
    model = load_reference(load_task(brought.task)).build(5)
    assert torch.equal(model.hidden, module.hidden), "buffers are the original's under every draw"
    assert not torch.equal(model.scale, module.scale)
    with torch.no_grad():
        wanted = module(*call[0], **call[1])
        found = signature.build_result([wanted["logits"], wanted["rest"][0]])
    assert found["rest"][1:] == (None, 7) and torch.equal(found["logits"], wanted["logits"])
    with pytest.raises(UsageError, match="the task is made for 0.5"):
        signature.flatten_call(call[0], call[1] | {"factor": 2.0})
    with pytest.raises(UsageError, match="another structure"):
        signature.flatten_call(call[0], {"options": {"bias": bias}})


def test_a_module_stays_as_it_is(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    attributes = [set(vars(part)) for part in module.modules()]
    bring(module, x2, tmp_path)
    assert module.training and not module[1].training and module[2].training
    assert attributes == [set(vars(part)) for part in module.modules()]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_training_updates_statistics(tmp_path: Path) -> None:
    brought = bring_and_compare(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), x2, tmp_path, mode="train")
    assert 'MODE = "train"' in brought.task.read_text() and "nn.BatchNorm1d(8)" in brought.task.read_text()


def test_inputs_are_drawn_like_the_real_ones(tmp_path: Path) -> None:
    mask = torch.full((5, 5), float("-inf")).triu(1)
    turned = torch.randn(5, 3).t() * 4 + 2
    module = Apply(lambda i, m, t, p, f: i.float() @ torch.ones(5, 5) + m[0] + t + p + f)
    brought = bring_and_compare(module, (ids, mask, turned, torch.arange(5), torch.ones(3, 5) > 0), tmp_path)
    drawn = load_reference(load_task(brought.task)).draw_inputs(1)
    assert torch.equal(drawn[1], mask) and torch.equal(drawn[3], torch.arange(5)) and bool(drawn[4].all())
    assert drawn[2].stride() == turned.stride() and 1 < float(drawn[2].std()) < 10
    assert 0 <= int(drawn[0].min()) and int(drawn[0].max()) <= int(ids.max())


def test_inputs_that_cannot_be_drawn_are_the_real_ones(tmp_path: Path) -> None:
    root = torch.randn(6, 6)
    positive = root @ root.t() + torch.eye(6)
    brought = bring_and_compare(Apply(torch.linalg.cholesky), positive, tmp_path / "task")
    (drawn,) = load_reference(load_task(brought.task)).draw_inputs(3)
    assert torch.equal(drawn, positive)
    with pytest.raises(UsageError, match="cannot be drawn for other sizes"):
        bring(Apply(torch.linalg.cholesky), positive, tmp_path / "none", shapes={"batch": (2, 8)})


def test_other_sizes_are_declared_and_compared(tmp_path: Path) -> None:
    norm = nn.RMSNorm(8, 1e-6)
    text = bring(norm, x3, tmp_path / "span", shapes={"batch": (1, 64), "length": 7}).task.read_text()
    assert "SHAPES = [{'batch': (1, 64), 'length': 7}]" in text
    text = bring(norm, x3, tmp_path / "axis", shapes={"x": {0: (2, 4)}}).task.read_text()
    assert "SHAPES = [{'batch': (2, 4)}]" in text
    one = bring(norm, x3[:1], tmp_path / "list", shapes=[x3, torch.randn(6, 5, 8)])
    assert one.sizes == {"batch": 1, "length": 5}
    assert "SHAPES = [{'batch': 3, 'length': 5}, {'batch': 6, 'length': 5}]" in one.task.read_text()
    for wrong, said in (
        ({"rows": 3}, "no size of this module"),
        ({"x": {2: 4}}, "takes 8 alone"),
        ({"batch": (4, 2)}, "pair"),
        ([(x3, x3)], "fails on the inputs"),
    ):
        with pytest.raises(UsageError, match=said):
            bring(norm, x3, tmp_path / "wrong", shapes=wrong)
    by_size = Apply(lambda x: x + 1 if x.shape[0] > 2 else x - 1)
    with pytest.raises(UsageError, match="at batch = 1 what torch.export gives is not"):
        bring(by_size, x3, tmp_path / "wrong", shapes={"batch": (1, 4)})
    assert not (tmp_path / "wrong").exists(), "nothing is left of what was refused"


class Branches(nn.Module):
    """Its way depends on values, so that it cannot be exported."""

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.linear, self.gain = nn.Linear(width, width), gain

    def forward(self, x: torch.Tensor, *, flags: dict[str, bool]) -> dict[str, torch.Tensor]:
        result = self.linear(x) * self.gain
        return {"y": result + 1 if flags["up"] and float(x.sum()) > -1e9 else result}


def test_what_cannot_be_exported_is_taken_by_its_source(tmp_path: Path) -> None:
    module, call = Branches(8, 0.5), ((x2,), {"flags": {"up": True}})
    with pytest.raises(
        UsageError,
        match=r"depends on values of tensors \(.*test_bringing.py, line \d+\).*init= .*\(width is not known\)",
    ):
        bring(module, call, tmp_path / "none")
    brought = bring(module, call, tmp_path / "task", init={"width": 8, "gain": 0.5})
    assert brought.way == "source" and "depends on values" in brought.reason
    reference = load_reference(load_task(brought.task))
    model = reference.build(1)
    reference.load_weights(model)
    with torch.no_grad():
        assert torch.equal(model(x2), module(x2, flags={"up": True})["y"])
    with pytest.raises(UsageError, match="its class made anew gives"):
        bring(module, call, tmp_path / "none", init=(8, 0.25))


class Counting(nn.Module):
    """Keeps count of its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


class ScriptedPart(nn.Module):
    """A part of it is TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x)


def leave(x: torch.Tensor) -> torch.Tensor:
    raise SystemExit(3)


class Scaling(nn.Module):
    """Changes its own parameter in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = self.weight.data / self.weight.data.norm()
        return x * self.weight


def change_inputs(module: nn.Module) -> nn.Module:
    """The module with a hook that doubles what forward gets."""
    module.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    return module


def make_local_record(x: torch.Tensor) -> object:
    """A record of a class that no module has by a name."""
    return make_dataclass("Nameless", ["x"])(x)


BAD: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no module": (3, x2, {}, "give a torch.nn.Module"),
    "compiled": (torch.jit.script(nn.Linear(8, 8)), x2, {}, "TorchScript"),
    "compiled part": (ScriptedPart(), x2, {}, "part is compiled by TorchScript"),
    "quantized part": (torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8))), x2, {}, "0 has quantized weights"),
    "class": (nn.Linear, x2, {}, r"the class Linear; give an object of it, such as Linear\(...\)"),
    "leaves": (Apply(leave), x2, {}, "fails on the inputs .SystemExit: 3"),
    "meta weights": (nn.Linear(8, 8, device="meta"), x2, {}, "weight is on the meta device"),
    "meta inputs": (nn.Linear(8, 8), x2.to("meta"), {}, "argument 1 is on the meta device"),
    "lazy": (nn.LazyLinear(8), x2, {}, "call the module once"),
    "wrong inputs": (nn.Linear(5, 8), x2, {}, "Linear fails on the inputs"),
    "objects": (nn.Linear(8, 8), (x2, object()), {}, "argument 2 is a object"),
    "sparse": (nn.Linear(8, 8), x2.to_sparse(), {}, "plain dense tensor"),
    "random": (nn.Dropout(0.5), x2, {"mode": "train"}, "draws random numbers"),
    "counting": (Counting(), x2, {}, "changes its own count in evaluation mode"),
    "own weights": (Scaling(), x2, {}, "changes its own parameter weight when it is called"),
    "sparse weights": (Apply(torch.abs, table=torch.eye(3).to_sparse()), x2, {}, "table is torch.sparse_coo"),
    "pre-hook": (change_inputs(nn.Linear(8, 8)), x2, {}, "pre-hook of Linear changes its inputs"),
    "local record": (Apply(lambda record: record.x + 1), (make_local_record(x2),), {}, "define its class at the top of a module"),
    "no tensor": (Apply(lambda x: 3), x2, {}, "holds no tensor"),
    "shared": (Apply(lambda x, y: x.add_(1) + y), (x2, x2), {}, "share memory"),
    "no mode": (nn.Linear(8, 8), x2, {"mode": "fast"}, "choose eval or train"),
}


def test_a_forward_hook_of_the_module_itself_counts_once(tmp_path: Path) -> None:
    """A drop-in has that hook too; the task is the forward without it, and the module keeps it."""
    module = nn.Linear(8, 8)
    module.register_forward_hook(lambda module, inputs, result: result * 3)
    brought = bring(module, x2, tmp_path / "task")
    model = load_reference(load_task(brought.task)).build(1)
    model.load_state_dict(module.state_dict())
    assert torch.allclose(model(x2) * 3, module(x2), atol=1e-5)


RECORDS = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Batch:
    x: torch.Tensor
    pair: Pair
    kind: str = "train"
    mask: torch.Tensor | None = None

    def __post_init__(self):
        assert self.x.shape == self.pair.first.shape


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, batch, *, factor):
        total = batch.x * self.scale + batch.pair.first
        return Pair(total * factor if total.sum() > 1e9 else total - batch.pair.second, total)
"""


def test_records_whose_constructor_looks_at_tensors_come_in_by_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their classes, plain fields and fields that are None; and torch writes their structure down and reads it."""
    (tmp_path / "picky.py").write_text(RECORDS)
    monkeypatch.syspath_prepend(tmp_path)
    picky = importlib.import_module("picky")
    call = ((picky.Batch(x2, picky.Pair(x2 + 1, x2 * 2)),), {"factor": 0.5})
    module = picky.Picky()
    brought = bring(module, call, tmp_path / "task")
    assert brought.way == "source" and "its control flow depends on values" in brought.reason
    with visit_worlds():
        reference = load_reference(load_task(brought.task))
        model = reference.build(1)
        reference.load_weights(model)
        found = run_task_model(model, [x2 - 1, x2 * 3, x2 * 0.5])
    wanted = module(picky.Batch(x2 - 1, picky.Pair(x2 * 3, x2 * 0.5)), factor=0.5)
    assert describe_difference(found, [tensor.detach() for tensor in wanted]) == ""
    spec = brought.signature.in_spec
    assert sorted(list_records([spec])) == [("picky", "Batch"), ("picky", "Pair")]
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_brought_in_is_said_in_one_sentence(name: str, tmp_path: Path) -> None:
    module, inputs, options, said = BAD[name]
    with pytest.raises(UsageError, match=said) as told:
        bring(module, inputs, tmp_path / "task", **options)
    assert "\n" not in str(told.value) and not (tmp_path / "task").exists()


class Half(nn.Module):
    """Its first layer is outside autograd, which an export does not keep."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            states = self.first(x)
        return self.second(states)


def test_a_task_with_gradients_has_those_of_the_module(tmp_path: Path) -> None:
    brought = bring(nn.Linear(8, 4), x2, tmp_path / "whole", backward=True)
    assert brought.way == "export" and load_task(brought.task).backward
    brought = bring(Half(), x2, tmp_path / "half", backward=True)
    assert brought.way == "source" and "a gradient of input 0" in brought.reason and load_task(brought.task).backward


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (lambda x: x.argmax(-1), "whole numbers alone"),
        (lambda x: x.detach() * 2.0, "detaches what it returns"),
        (lambda x: x.mul_(2.0), "in-place operation"),
    ],
)
def test_a_module_without_gradients_is_refused(forward: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        bring(Apply(forward), x2, tmp_path / "task", backward=True)
    assert "leave backward=True out" in str(refused.value) and not (tmp_path / "task").exists()
