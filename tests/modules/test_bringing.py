"""A live module written down as a task computes what it computes: layers, functions, structures, state, and sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.modules.bringing.bring import Brought, bring
from tritonsmith.modules.bringing.check import copy_call, describe_difference, run_task_model
from tritonsmith.modules.bringing.structure import Signature, as_call, split_call


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def bring_and_compare(module: nn.Module, inputs: Any, folder: Path, mode: str = "eval") -> Brought:
    """The task of a module, whose Model with its weights gives the flat results of the original on other inputs of the same sizes too."""
    brought = bring(module, inputs, folder, mode=mode)
    reference = load_reference(load_task(brought.task))
    model = reference.build(1)
    reference.load_weights(model)
    args, kwargs = as_call(inputs)
    module.train(mode == "train")
    leaves, spec = split_call(args, kwargs)
    drawn = reference.draw_inputs(2)
    for number, value in zip(brought.signature.inputs, drawn, strict=True):
        leaves[number] = value
    again_args, again_kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
    with torch.no_grad():
        wanted = module(*copy_call(again_args, again_kwargs)[0], **again_kwargs)
    given = Signature.read(folder).flatten_call(again_args, again_kwargs)
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(wanted) if isinstance(leaf, torch.Tensor)]
    assert describe_difference(run_task_model(model, given), tensors) == ""
    return brought


x2, x3, x4 = torch.randn(6, 8), torch.randn(3, 5, 8), torch.randn(2, 4, 9, 10)
ids = torch.randint(0, 12, (3, 5))

LAYERS: dict[str, tuple[nn.Module, Any]] = {
    "linear": (nn.Linear(8, 5), x3),
    "linear without bias": (nn.Linear(8, 5, bias=False), x2),
    "bf16 linear": (nn.Linear(8, 5).bfloat16(), x2.bfloat16()),
    "bilinear": (nn.Bilinear(8, 8, 3), (x2, x2 + 1)),
    "conv1d": (nn.Conv1d(5, 4, 3, padding="same"), x3),
    "conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), x4),
    "conv2d reflect": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), x4),
    "conv3d": (nn.Conv3d(2, 3, 2), torch.randn(1, 2, 4, 5, 6)),
    "transposed 1d": (nn.ConvTranspose1d(5, 4, 3), x3),
    "transposed 2d": (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), x4),
    "layer norm": (nn.LayerNorm(8), x3),
    "layer norm over two axes": (nn.LayerNorm((5, 8)), x3),
    "plain layer norm": (nn.LayerNorm(8, 1e-3, False), x3),
    "layer norm without bias": (nn.LayerNorm(8, bias=False), x3),
    "rms norm": (nn.RMSNorm(8, 1e-6), x3),
    "group norm": (nn.GroupNorm(2, 4), x4),
    "batch norm 1d": (nn.BatchNorm1d(8), x2),
    "batch norm 2d": (nn.BatchNorm2d(4), x4),
    "instance norm": (nn.InstanceNorm2d(4, affine=True), x4),
    "embedding": (nn.Embedding(12, 4, padding_idx=0), ids),
    "embedding bag": (nn.EmbeddingBag(12, 4, mode="sum"), ids),
    "gru": (nn.GRU(8, 6, 2, batch_first=True), x3),
    "gru with a state": (nn.GRU(8, 6), (x3, torch.randn(1, 5, 6))),
    "both ways": (nn.LSTM(8, 6, bidirectional=True), x3),
    "lstm with states": (nn.LSTM(8, 6), (x3, (torch.randn(1, 5, 6), torch.randn(1, 5, 6)))),
    "rnn": (nn.RNN(8, 6, nonlinearity="relu"), x3),
    "gru cell": (nn.GRUCell(8, 6), (x2, torch.randn(6, 6))),
    "lstm cell": (nn.LSTMCell(8, 6), x2),
    "attention": (nn.MultiheadAttention(8, 2, batch_first=True), (x3, x3 + 1, x3 - 1)),
    "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), x3),
    "decoder layer": (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), (x3, x3 + 1)),
    "prelu": (nn.PReLU(), x2),
    "pixel shuffle": (nn.PixelShuffle(2), x4),
    "upsample": (nn.Upsample(scale_factor=2), x4),
    "bilinear upsample": (nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True), x4),
    "unfold": (nn.Unfold(3), x4),
    "fold": (nn.Fold((4, 5), (2, 2)), torch.randn(1, 8, 12)),
    "max pool": (nn.MaxPool2d(2, ceil_mode=True), x4),
    "max pool with places": (nn.MaxPool2d(2, return_indices=True), x4),
    "average pool": (nn.AvgPool2d(2, padding=1, count_include_pad=False), x4),
    "adaptive average": (nn.AdaptiveAvgPool2d(1), x4),
    "adaptive maximum": (nn.AdaptiveMaxPool2d((3, 2)), x4),
    "pad": (nn.ReflectionPad2d(1), x4),
    "sequence": (nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(16, 8)), x3),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), x2),
    "cross entropy": (nn.CrossEntropyLoss(label_smoothing=0.1), (x2, torch.randint(0, 8, (6,)))),
    "mse": (nn.MSELoss(reduction="sum"), (x2, x2 + 1)),
    "smooth l1": (nn.SmoothL1Loss(beta=0.5), (x2, x2 + 1)),
    "kl": (nn.KLDivLoss(reduction="batchmean"), (x2.log_softmax(1), x2.softmax(1))),
    "bce": (nn.BCEWithLogitsLoss(), (x2, torch.rand(6, 8))),
    "triplet": (nn.TripletMarginLoss(), (x2, x2 + 1, x2 - 1)),
    "cosine": (nn.CosineSimilarity(dim=1), (x2, x2 + 1)),
}
for plain in (
    nn.ReLU(inplace=True),
    nn.SiLU(),
    nn.ELU(0.5),
    nn.SELU(),
    nn.CELU(0.7),
    nn.LeakyReLU(0.2),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardtanh(-2, 2),
    nn.ReLU6(),
    nn.Mish(),
    nn.Softplus(2, 10),
    nn.Softsign(),
    nn.Tanhshrink(),
    nn.Hardshrink(),
    nn.Softshrink(),
    nn.LogSigmoid(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.Softmax(-1),
    nn.LogSoftmax(1),
    nn.GLU(),
    nn.Threshold(0.1, 2.0),
    nn.RReLU(),
    nn.Identity(),
):
    LAYERS[type(plain).__name__] = (plain, x3)

FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "signs": (lambda a, b: (a + b) * (a - 2) / (b * b + 1) - (-a) ** 2 // 3, (x2, x2 + 1)),
    "comparisons": (lambda a: torch.where((a > 0) & (a <= 1), a, -a), x2),
    "alpha": (lambda a, b: torch.add(a, b, alpha=3), (x2, x2 + 1)),
    "from a number": (lambda a: 1 - a, x2),
    "parts": (lambda a: a[:, 1:, ::2] + a[..., :-1, 3:7], x3),
    "places": (lambda a, i: a[i], (x2, torch.tensor([3, 1]))),
    "places along an axis": (lambda a: a[:, [0, 2]], x2),
    "split": (lambda a: torch.cat(a.chunk(2, -1)[::-1], -1), x2),
    "stack": (lambda a: torch.stack([a, a * 2], 1).flatten(1), x2),
    "reductions": (lambda a: (a.mean(-1), a.sum((0, 2)), a.amax(1), a.std(0)), x3),
    "maximum with place": (lambda a: a.max(1), x2),
    "top": (lambda a: torch.topk(a, 3, -1), x2),
    "sort": (lambda a: a.sort(dim=-1, descending=True), x2),
    "cumulative": (lambda a: a.cumsum(1), x2),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (x3, x3 + 1)),
    "products": (lambda a, b: torch.bmm(a, b.transpose(1, 2)) @ b, (x3, x3 + 1)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (x4, x4 + 1, x4 - 1),
    ),
    "masks": (
        lambda a: a.masked_fill(torch.ones_like(a, dtype=torch.bool).tril(), float("-inf")).softmax(-1),
        torch.randn(5, 5),
    ),
    "makers": (
        lambda a: (
            a
            + torch.arange(a.shape[1])
            + torch.zeros(a.shape[1])
            + a.new_ones(1)
            + torch.full((1,), 2.0)
            + torch.eye(8)[0]
        ),
        x2,
    ),
    "types": (lambda a: (a.half().float() + a.to(torch.float64)).float() + a.long() + (a > 0).type_as(a), x2),
    "changed in place": (lambda a: (a * 2).relu_().add_(1).mul_(a), x2),
    "filled in place": (lambda a: _write(a.clone()), x2),
    "rolls": (lambda a: torch.roll(a, 1, 0).flip(1) + torch.rot90(a, 2, (0, 1)), x2),
    "windows": (lambda a: a.unfold(-1, 3, 2).sum(-1), x2),
    "gather": (lambda a, i: a.gather(1, i), (x2, torch.randint(0, 8, (6, 2)))),
    "scatter": (lambda a, i: torch.zeros(6, 8).scatter(1, i, a), (x2, torch.arange(8).expand(6, 8).clone())),
    "indexed add": (lambda a, i: torch.zeros(12, 8).index_add(0, i, a), (x2, torch.randint(0, 12, (6,)))),
    "norms": (lambda a: F.normalize(a, dim=-1) + a.norm(dim=1, keepdim=True), x2),
    "one hot": (lambda i: F.one_hot(i, 12).float(), ids),
    "fourier": (lambda a: torch.fft.irfft(torch.fft.rfft(a)), x2),
    "complex": (lambda a: torch.view_as_complex(a.view(6, 4, 2).contiguous()).abs(), x2),
    "sampled": (lambda a, g: F.grid_sample(a, g, align_corners=False), (x4, torch.rand(2, 3, 3, 2) * 2 - 1)),
    "interpolated": (lambda a: F.interpolate(a, size=(4, 4), mode="nearest"), x4),
    "padded": (lambda a: F.pad(a, (1, 2), value=3.0), x2),
    "clamped": (lambda a: a.clamp(-1).clamp_max(1) + a.clamp(min=0.1, max=0.2), x2),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), (x2, x2 + 1)),
    "listed numbers": (lambda a: a * torch.tensor([1.0, 2.0] * 4), x2),
    "detached": (lambda a: a.detach() + a, x2),
    "expanded": (lambda a: a[:, None].expand(-1, 3, -1) * 2, x2),
    "repeated": (lambda a: a.repeat(2, 1).repeat_interleave(2, 0), x2),
    "outer": (lambda a: torch.outer(a[0], a[1]) + torch.dot(a[0], a[1]), x2),
    "special": (
        lambda a: (
            torch.erf(a)
            + torch.special.expm1(a)
            + torch.logaddexp(a, a * 2)
            + torch.logsumexp(a, -1, keepdim=True)
        ),
        x2,
    ),
    "no gradients": (torch.no_grad()(lambda a: a.sin() + 1), x2),
    "meshgrid": (lambda a: torch.meshgrid(a[0], a[1], indexing="ij"), x2),
    "unbound": (lambda a: a.unbind(1)[0] + a.unbind(1)[-1], x3),
    "linalg": (lambda a: torch.linalg.vector_norm(a, dim=-1) + torch.linalg.norm(a, dim=-1), x2),
    "variance": (lambda a: torch.var_mean(a, dim=-1, unbiased=False), x2),
    "addmm": (lambda a: torch.addmm(a[0], a, a.new_ones(8, 8)), x2),
    "cdist": (lambda a, b: torch.cdist(a, b), (x2, x2 + 1)),
}


def _write(value: torch.Tensor) -> torch.Tensor:
    value[:, 0] = 3.0
    value[1:] += 1
    return value


SLOW = ("attention", "encoder layer", "decoder layer")
"""Layers whose export takes seconds."""


class Several(nn.Module):
    """Modules side by side, each on its own inputs."""

    def __init__(self, parts: list[nn.Module], counts: list[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.counts = counts

    def forward(self, *inputs: Any) -> list[Any]:
        left = iter(inputs)
        return [
            part(*(next(left) for _ in range(count)))
            for part, count in zip(self.parts, self.counts, strict=True)
        ]


def put_side_by_side(cases: list[tuple[nn.Module, Any]]) -> tuple[Several, tuple[Any, ...]]:
    """One module of several, and its inputs."""
    calls = [inputs if isinstance(inputs, tuple) else (inputs,) for _, inputs in cases]
    return Several([module for module, _ in cases], [*map(len, calls)]), copy_call(
        [value for call in calls for value in call], {}
    )[0]


@pytest.mark.parametrize("part", range(2))
def test_layers_of_torch_compute_the_same(part: int, tmp_path: Path) -> None:
    module, inputs = put_side_by_side([case for name, case in LAYERS.items() if name not in SLOW][part::2])
    text = bring_and_compare(module, inputs, tmp_path).task.read_text()
    assert "nn.GRU(" in text and "nn.Embedding" in text or part == 0, "layers stay layers"
    assert "torch.ops.aten" not in text.replace("torch.ops.aten.rrelu", "")


@pytest.mark.parametrize("part", range(2))
def test_functions_compute_the_same(part: int, tmp_path: Path) -> None:
    module, inputs = put_side_by_side(
        [(Apply(function), inputs) for function, inputs in list(FUNCTIONS.values())[part::2]]
    )
    bring_and_compare(module, inputs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_torch_computes_the_same(name: str, tmp_path: Path) -> None:
    module, inputs = LAYERS[name]
    bring_and_compare(module, inputs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_computes_the_same(name: str, tmp_path: Path) -> None:
    function, inputs = FUNCTIONS[name]
    bring_and_compare(Apply(function), inputs, tmp_path)


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


BAD: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no module": (3, x2, {}, "give a torch.nn.Module"),
    "compiled": (torch.jit.script(nn.Linear(8, 8)), x2, {}, "TorchScript"),
    "meta weights": (nn.Linear(8, 8, device="meta"), x2, {}, "weight is on the meta device"),
    "meta inputs": (nn.Linear(8, 8), x2.to("meta"), {}, "argument 1 is on the meta device"),
    "lazy": (nn.LazyLinear(8), x2, {}, "call the module once"),
    "wrong inputs": (nn.Linear(5, 8), x2, {}, "Linear fails on the inputs"),
    "objects": (nn.Linear(8, 8), (x2, object()), {}, "argument 2 is a object"),
    "sparse": (nn.Linear(8, 8), x2.to_sparse(), {}, "plain dense tensor"),
    "random": (nn.Dropout(0.5), x2, {"mode": "train"}, "draws random numbers"),
    "counting": (Counting(), x2, {}, "changes its own count in evaluation mode"),
    "no tensor": (Apply(lambda x: 3), x2, {}, "holds no tensor"),
    "shared": (Apply(lambda x, y: x.add_(1) + y), (x2, x2), {}, "share memory"),
    "no mode": (nn.Linear(8, 8), x2, {"mode": "fast"}, "choose eval or train"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_brought_in_is_said_in_one_sentence(name: str, tmp_path: Path) -> None:
    module, inputs, options, said = BAD[name]
    with pytest.raises(UsageError, match=said) as told:
        bring(module, inputs, tmp_path / "task", **options)
    assert "\n" not in str(told.value) and not (tmp_path / "task").exists()
