"""Operators at NaN, infinities, zeros, halves and the ends of types: what the author's kernels give, bit for bit, beside PyTorch.

Where docs/values.md says that a zero may have any sign, 0.0 is added to the result.
Run as a script under TRITON_INTERPRET=1 with names of groups, it prints {group: what differs}. Every group is one module of many results.
"""

import importlib.util
import json
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tritonsmith.author.book import explain_refusal, match
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.confined.interpreter.patches import install
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

nan, inf = math.nan, math.inf
_TASK = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

nan, inf = math.nan, math.inf


class Model(nn.Module):
    def forward(self, ARGUMENTS):
        return RESULTS,


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return []
"""
_FLOATS = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1e-8, -1e-8, 0.1, -0.1, 0.3, -0.3, 0.7, 6.0, 20.0, -20.0,
           21.0, -40.0, 88.0, -100.0, 7.5, -7.5, 1e10, -1e10]  # fmt: skip
_TOLERANCES = {torch.float32: (3e-6, 1e-30), torch.float64: (1e-12, 1e-300), torch.float16: (1.1e-3, 6e-8), torch.bfloat16: (8e-3, 1e-38)}
"""By type: the relative and the absolute distance of what is rounded otherwise."""
ARGUMENTS = "xyzw"


@dataclass(frozen=True)
class Group:
    """Results of one kind, and the inputs that they are asked of."""

    results: str
    inputs: Callable[[], list[torch.Tensor]]
    slow: bool = False
    alone: bool = False
    """Whether each result is a module of its own, as the families of one kernel ask for."""

    def list(self) -> list[str]:
        """The results, one by one."""
        return [" ".join(result.split()) for result in self.results.split(";") if result.strip()]


def _row(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.tensor(_FLOATS, dtype=torch.float64).to(dtype).view(1, -1)]


def _pairs(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    (row,) = _row(dtype)
    left, right = torch.meshgrid(row[0], row[0], indexing="ij")
    return [left.contiguous(), right.contiguous()]


def _ends(dtype: torch.dtype) -> list[torch.Tensor]:
    info = torch.iinfo(dtype)
    near = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.max // 2, info.max // 2 + 1]
    return [torch.tensor([*near, *(-1 - one for one in near if info.min)], dtype=dtype).view(1, -1)]


def _pairs_of_ends(dtype: torch.dtype) -> list[torch.Tensor]:
    (row,) = _ends(dtype)
    left, right = torch.meshgrid(row[0], row[0], indexing="ij")
    right = torch.where((right == 0) | (right == -1), 5, right)  # divisions by zero, and a quotient that no type has
    return [left.contiguous(), right.contiguous()]


def _rows() -> list[torch.Tensor]:
    """Rows with special values at their ends and within."""
    rows = torch.randn(9, 11, generator=torch.Generator().manual_seed(0))
    rows[1, 5] = nan
    rows[2, 3] = inf
    rows[3, 2] = -inf
    rows[4, 0], rows[4, 10], rows[4, 5] = nan, nan, -inf
    rows[5], rows[6], rows[7] = -inf, nan, -0.0
    rows[8] = (rows[8] * 2).round()
    return [rows]


def _mixed_rows() -> torch.Tensor:
    """Rows with infinities and NaN beside each other."""
    rows = torch.randn(11, 7, generator=torch.Generator().manual_seed(3))
    rows[0, 0], rows[0, 3], rows[1, 0], rows[1, 3], rows[2, 2], rows[3, 2] = inf, nan, nan, inf, inf, -inf
    rows[4], rows[5], rows[6], rows[7, 1], rows[7, 2], rows[8, 0], rows[8, 1] = -inf, inf, nan, inf, -inf, -inf, nan
    return rows


def _with_others(dtype: torch.dtype) -> list[torch.Tensor]:
    """Values where 16 bits round, two tensors of one number each, and whole numbers."""
    values = torch.tensor([[2046.0, 2047.0, 2049.0, -0.1, 0.1, 4098.0, 257.0, 1.0]]).to(dtype)
    return [values, torch.tensor(0.1), torch.tensor(2049), torch.tensor([[2049, 2047, 1, 2, 2051, 4097, 2, 257]])]


def _heads(place: int, value: float) -> list[torch.Tensor]:
    """Queries, keys and values, of which one element is infinite."""
    made = [torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2, 3)]
    made[place][0, 0, 5, 3] = value
    return made


def _windows(axes: int) -> list[torch.Tensor]:
    """Images of nothing but -inf, of -inf and others, and of NaN."""
    made = torch.randn(3, 2, *(6,) * axes, generator=torch.Generator().manual_seed(axes))
    made[0] = -inf
    made[1][made[1] < 0.3] = -inf
    made[2][made[2] < -0.5] = nan
    return [made]


_COMPARED = """
    x == 0.1; x != 0.1; x >= 0.7; x > 0.3; x < 0.3; x <= 0.7; x == y; x > z; x.masked_fill(x > 0.3, 0.1);
    torch.where(x >= 0.7, 1.0, x)
"""
_BOUNDED = """
    x.clamp(0.1, 0.3); x % 0.1; torch.remainder(x, 0.7); torch.fmod(x, 0.3); F.hardtanh(x, 0.1, 0.3);
    F.hardshrink(x, 0.3)
"""
_WHOLE = """
    x % 3; x // 3; x % -3; x // -3; x // 7; x // 1000; torch.div(x, 3, rounding_mode='trunc'); torch.fmod(x, 3); x %
    {most}; x // {most}; x % {half}; x // {half}; x * 3; -x; abs(x); x + x; x > 2; x.float(); x.sum(1); x.prod(1);
    x.cumsum(1)
"""
_NEGATIVE = """
    ; x % -{most}; x // -{most}; x // ({least}); x % ({least}); x ** 3; torch.sign(x)
"""
_DIVIDED = """
    x // y; x % y; torch.fmod(x, y); torch.div(x, y, rounding_mode='trunc'); torch.maximum(x, y); x * y; x - y; x &
    y
"""
_FAMILY = """
    torch.relu(x) + 0.0; F.softplus(x); torch.log(F.softplus(x)); 1 / F.softplus(x); F.elu(x); 1 / F.elu(x);
    torch.log(-F.elu(x)); F.celu(x, 0.7); F.selu(x); F.mish(x); F.silu(x); F.hardshrink(x); F.softshrink(x) + 0.0;
    F.threshold(x, 0.5, 5.0); F.leaky_relu(x); F.hardswish(x); F.hardsigmoid(x); F.logsigmoid(x); F.softsign(x);
    torch.sigmoid(x); torch.tanh(x); F.hardtanh(x); F.relu6(x) + 0.0
"""
_ROUNDED = """
    torch.floor(x); torch.ceil(x); torch.trunc(x); torch.round(x); torch.frac(x); torch.sign(x); torch.sgn(x);
    torch.isnan(x); torch.isinf(x); torch.isfinite(x); torch.isposinf(x); torch.isneginf(x); torch.isreal(x);
    torch.nan_to_num(x); torch.nan_to_num(x, 0.1, 0.3, 0.7); x.nan_to_num().clamp(-300, 300).to(torch.int8);
    x.nan_to_num().clamp(-300, 300).to(torch.uint8); x.bool()
"""
_SIGNS = """
    -x; torch.signbit(x); torch.signbit(-x.nan_to_num()); torch.where(x > 0, -0.0, x); torch.copysign(x, -0.0);
    torch.copysign(x, -0.1); x + (-0.0); x * -0.0; F.pad(x, (1, 1), value=-0.0); torch.full_like(x, -0.0); 1 /
    torch.tanh(x); 0.0 - x; abs(x); torch.sqrt(x); x.neg()
"""
_POWERS = """
    x ** 2; x ** 3; x ** 0.5; x ** -0.5; x ** -1; x ** -2; x ** 1.5; x ** 0; x ** 5; 2 ** x; 0.5 ** x;
    torch.rsqrt(x); 1 / x; x / 0.0
"""
_SPECIAL = """
    torch.exp(x); torch.expm1(x); torch.log(x); torch.log1p(x); torch.log2(x); torch.exp2(x); torch.sinc(x);
    torch.special.entr(x); torch.asin(x); torch.atanh(x); torch.acosh(x); torch.logit(x); torch.relu(torch.log(x));
    torch.sqrt(x).clamp(min=0.5); torch.erf(x)
"""
_TWO = """
    torch.maximum(x, y); torch.minimum(x, y); torch.max(x, y); x // y; torch.div(x, y, rounding_mode='floor');
    torch.div(x, y, rounding_mode='trunc'); x % y; torch.pow(x, y); torch.atan2(x, y); torch.hypot(x, y);
    torch.copysign(x, y); torch.heaviside(x, y); torch.xlogy(x, y); torch.special.xlog1py(x, y); torch.logaddexp(x,
    y); torch.isclose(x, y); torch.isclose(x, y, 1e-2, 1e-1); torch.isclose(x, y, equal_nan=True); torch.lerp(x, y,
    0.3); torch.lerp(x, y, 0.5); torch.lerp(x, y, 0.7); torch.clamp(x, y, y); torch.clamp(x, min=y);
    torch.nextafter(x, y); torch.logical_and(x, y); torch.where(x > y, x, y); torch.fmax(x, y) + 1; torch.fmin(x, y)
    + 1; x < y; x == y
"""
_EXTREMES = """
    x.amax(1); x.amin(1); x.max(1); x.min(1); x.argmax(1); x.argmin(1); torch.aminmax(x, dim=1); torch.cummax(x, 1);
    torch.cummin(x, 1); torch.norm(x, p=inf, dim=1); x.amax(0); x.max(0); x.argmin(0)
"""
_ROWS = """
    x.sum(1); x.mean(1); torch.softmax(x, 1); torch.log_softmax(x, 1); torch.logcumsumexp(x, 1) + 0.0;
    F.normalize(x, dim=1); torch.nansum(x, 1); torch.nanmean(x, 1); x.median(1)[0]; torch.kthvalue(x, 2, 1)[0];
    torch.quantile(x, 0.3, 1); torch.sort(x, 1)[0] + 1; torch.any(x, 1); torch.count_nonzero(x, 1); x.cumsum(1) +
    0.0; x.cumprod(1)
"""
_SPREADS = "; ".join(f"x.{name}(1, correction={number})" for name in ("var", "std") for number in (0, 1, 10, 11, 12, 11.5))
_POOLS = """
    F.max_pool{n}d(x, 2); F.max_pool{n}d(x, 2, 2, 1, return_indices=True); F.max_pool{n}d(x, 3, 1, 1,
    return_indices=True); F.max_pool{n}d(x, 2, 1, 1, 2, return_indices=True); F.max_pool{n}d(x, 3, 2, 1, 2,
    return_indices=True); F.adaptive_max_pool{n}d(x, 4)
"""
_LOSSES = """
    F.kl_div(x, y, reduction='none'); F.huber_loss(x, y, reduction='none'); F.smooth_l1_loss(x, y,
    reduction='none'); F.margin_ranking_loss(x, y, torch.ones_like(x), reduction='none'); F.hinge_embedding_loss(x,
    torch.ones_like(x), reduction='none') + 0.0; F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction='none');
    F.poisson_nll_loss(x, y, reduction='none')
"""


def _whole(dtype: torch.dtype) -> str:
    info = torch.iinfo(dtype)
    text = _WHOLE + (_NEGATIVE if info.min else "")
    text = text.replace("x // 1000;", "") if info.bits < 16 else text
    return text.replace("{most}", str(info.max)).replace("{half}", str(info.max // 2 + 3)).replace("{least}", str(info.min))


def _with_numbers(dtype: torch.dtype) -> list[torch.Tensor]:
    """Tenths, and two tensors of one number each."""
    return [(torch.arange(-15, 15) / 10).to(dtype).view(1, -1), torch.tensor(0.1), torch.tensor(0.3, dtype=torch.float64)]


_HALVES = """
    torch.floor(x * 0.1); torch.isinf(x * 1000); (x * 0.1).int(); torch.sign(x * 1e-6); (x + 0.1) > 0.3;
    (x / 3) == (x.float() / 3).to(x.dtype); (x.nan_to_num() * 0.001).max(1)
"""
_LOGS = """
    torch.logsumexp(x, 1); torch.logsumexp(x, 0); torch.logsumexp(x, (0, 1)); torch.logsumexp(x, 1, True) - x; torch.softmax(x, 1);
    torch.log_softmax(x, 1); torch.softmax(x.masked_fill(x < 100, -inf), 1)
"""
_MIXED = """
    x - y; x + y; y - x; x - z; z - x; x + z; x.sub(z, alpha=2); torch.rsub(x, z); x - w; x == w; x % z; torch.maximum(x, z);
    torch.where(x > y, x, z)
"""
_OF_NUMBERS = """
    x[:1].argmin(0) * 3000000000; torch.cumsum(torch.ones(9, dtype=torch.int64) * 10 ** 9, 0);
    torch.full((3,), 2 ** 31 - 1, dtype=torch.int32) + 5;
    torch.full((3,), 0.1, dtype=torch.float64).sqrt(); torch.full((3,), 200, dtype=torch.uint8) + 100; 1 / (torch.zeros_like(x) * -1);
    torch.signal.windows.kaiser(9, dtype=torch.float64); F.nll_loss(x, torch.ones(len(x), dtype=torch.long), reduction='none')
"""
_RESAMPLED = """
    F.interpolate(x, scale_factor=1.7, mode='bilinear'); F.interpolate(x, scale_factor=1.3);
    F.interpolate(x[0], size=9, mode='linear'); F.interpolate(x, scale_factor=(1.2, 1.7), mode='bicubic') + 1
"""
_ATTENTION = """
    F.scaled_dot_product_attention(x, y, z); F.scaled_dot_product_attention(x, y, z, is_causal=True);
    F.scaled_dot_product_attention(x, y, z, attn_mask=torch.full((8, 8), -inf).triu(0)); torch.softmax(x @ y.mT, -1) @ z
"""
_CHAINS = "1 / torch.tanh(x); torch.tanh(x) * -1; F.gelu(torch.tanh(x)) * -1; 1 / -F.silu(x); torch.relu(x) + 1; 1 / F.softsign(x)"
_DOUBLES = "F.threshold(x, 0.1, 0.3); F.pad(x, (1, 1), value=0.1); x // 0.1"
_CONSTANTS = """
x + torch.full((5,), 0.1)[0]; torch.full_like(x, 0.1, dtype=torch.float32) * x; x.new_full((5,), 0.1, dtype=torch.float32).double();
x + torch.tensor(0.1).double(); x * torch.scalar_tensor(0.1); torch.full((5,), 16777217).float().double();
torch.zeros(5).fill_(0.1).type_as(x); torch.where(x > 0.5, x, torch.full((1,), 0.1));
torch.cat((x, torch.full_like(x, 0.1, dtype=torch.float32)));
x + torch.full_like(x, 0.1, dtype=torch.bfloat16).double(); torch.full((5,), 16777217.0).long(); torch.full((5,), 0.1).half().double();
torch.where(x > 0.5, 0.3, 0.1).double(); x.float().masked_fill(x > 0.5, 0.1).double(); x.float().clamp(0.1, 0.3).double()
"""
"""Numbers that a narrower type rounded, in float64 and in whole numbers."""
GROUPS = {
    "activations": Group(_FAMILY, _row),
    "signs of zero": Group(_SIGNS, _row),
    "steps": Group(_ROUNDED, _row),
    "powers": Group(_POWERS, _row),
    "functions": Group(_SPECIAL, _row),
    "two operands": Group(_TWO, _pairs),
    "extremes": Group(_EXTREMES, _rows),
    "rows": Group(_ROWS, _rows),
    "spreads": Group(_SPREADS, lambda: [_rows()[0][[0, 8]]]),
    "losses": Group(_LOSSES, _pairs, slow=True),
    "numbers beside float16": Group(f"{_COMPARED}; {_BOUNDED}", partial(_with_numbers, torch.float16)),
    "numbers beside bfloat16": Group(f"{_COMPARED}; {_BOUNDED}", partial(_with_numbers, torch.bfloat16)),
    "numbers beside float64": Group(f"{_COMPARED}; {_BOUNDED}; {_DOUBLES}", partial(_with_numbers, torch.float64)),
    "constants in float64": Group(_CONSTANTS, partial(_with_numbers, torch.float64)),
    "activations of float64": Group(_FAMILY, partial(_row, torch.float64), slow=True),
    "functions of float64": Group(f"{_SPECIAL}; {_POWERS}; {_ROUNDED}; {_SIGNS}", partial(_row, torch.float64), slow=True),
    "steps of float16": Group(f"{_ROUNDED}; {_HALVES}", partial(_row, torch.float16)),
    "two operands of float64": Group(_TWO, partial(_pairs, torch.float64), slow=True),
}
GROUPS |= {
    "logs of sums": Group(_LOGS, lambda: [_mixed_rows()]),
    "logs of sums in float64": Group(_LOGS, lambda: [_mixed_rows().double()], slow=True),
    "tensors of another type": Group(_MIXED, lambda: _with_others(torch.float16)),
    "tensors of another type beside bfloat16": Group(_MIXED, lambda: _with_others(torch.bfloat16), slow=True),
    "numbers alone": Group(_OF_NUMBERS, lambda: [_mixed_rows()[-2:, :5]]),
    "resampling in float64": Group(_RESAMPLED, lambda: [torch.randn(1, 2, 6, 7, generator=torch.Generator().manual_seed(5)).double()]),
    "chains": Group(_CHAINS, _row, alone=True),
    **{
        f"attention, {name}": Group(
            "; ".join(f"torch.isnan({one}); torch.isinf({one})" for one in _ATTENTION.split(";")), inputs, slow=name == "queries"
        )
        for name, inputs in {
            "keys": partial(_heads, 1, -inf), "values": partial(_heads, 2, inf), "queries": partial(_heads, 0, inf),
        }.items()
    },
}  # fmt: skip
for _axes in (1, 2, 3):
    GROUPS[f"pools of {_axes} axes"] = Group(_POOLS.replace("{n}", str(_axes)), partial(_windows, _axes), slow=_axes != 2)
for _name in ("int32", "int64", "int16", "int8", "uint8"):
    _dtype = getattr(torch, _name)
    GROUPS[f"ends of {_name}"] = Group(_whole(_dtype), partial(_ends, _dtype), slow=_name in ("int16", "uint8"))
    GROUPS[f"quotients of {_name}"] = Group(_DIVIDED, partial(_pairs_of_ends, _dtype), slow=_name != "int32")


def _describe(tensor: torch.Tensor) -> str:
    """What makes an ordinary input of the same shape and type."""
    return f"torch.ones({tuple(tensor.shape)}, dtype={tensor.dtype})"


def _load(text: str) -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location(Path(file.name).stem, file.name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    Path(file.name).unlink()  # its lines are known by now
    return module


def _flatten(results: Any) -> list[torch.Tensor]:
    return [one for result in results for one in ([result] if isinstance(result, torch.Tensor) else _flatten(result))]


def find_difference(wanted: torch.Tensor, given: torch.Tensor) -> str:
    """Where two results differ by more than rounding: in NaN, infinities and signs of zero not at all. Empty where they do not."""
    if wanted.dtype != given.dtype or wanted.shape != given.shape:
        return f"{given.dtype}{tuple(given.shape)} in place of {wanted.dtype}{tuple(wanted.shape)}"
    equal = wanted == given
    if wanted.dtype.is_floating_point:
        relative, absolute = _TOLERANCES[wanted.dtype]
        first, second = wanted.double(), given.double()
        equal |= first.isfinite() & second.isfinite() & ((first - second).abs() <= absolute + relative * first.abs())
        equal &= torch.signbit(wanted) == torch.signbit(given)
        equal |= wanted.isnan() & given.isnan()
    places = (~equal).nonzero()
    if not len(places):
        return ""
    at = tuple(places[0].tolist())
    return f"{given[at].item()} in place of {wanted[at].item()} at {at}, and {len(places) - 1} more"


def judge_group(group: Group) -> list[str]:
    """What differs, each with its result."""
    results = group.list()
    if group.alone:
        return [difference for result in results for difference in _judge([result], group.inputs(), f"({result})")]
    return _judge(results, group.inputs(), ", ".join(results) + ",")


def _judge(results: list[str], inputs: list[torch.Tensor], returned: str) -> list[str]:
    text = _TASK.replace("ARGUMENTS", ", ".join(ARGUMENTS[: len(inputs)])).replace("RESULTS,", returned)
    task = Task(name="task", path="task.py", source=text.replace("INPUTS", ", ".join(map(_describe, inputs))))
    facts, _ = probe(task)
    task = task.model_copy(update={"precision": facts.precision})
    card = named_card("h200")
    found = match(task, facts, card)
    if found is None:
        return [explain_refusal(task, facts, card)]
    recipe = found.recipes[-1]
    made = _load(recipe.render(found.plan, recipe.defaults(found.plan, card, task.precision))).ModelNew()(*inputs)
    differences = []
    own_results = _load(task.source).Model()(*inputs)
    pairs_of_results = [(own_results, made)] if isinstance(made, torch.Tensor) else list(zip(own_results, made, strict=True))
    for result, (own, other) in zip(results, pairs_of_results, strict=True):
        pairs = zip(_flatten([own]), _flatten([other]), strict=True)
        differences += [f"{result}: {difference}" for one, second in pairs if (difference := find_difference(one, second))]
    return differences


if __name__ == "__main__":
    install()
    torch.set_num_threads(1)
    json.dump({name: judge_group(GROUPS[name]) for name in sys.argv[1:]}, sys.stdout)
