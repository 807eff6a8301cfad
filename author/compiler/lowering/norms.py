"""Layer, RMS, group, instance and batch norm."""

from __future__ import annotations

from tritonsmith.author.compiler.ir.operators import A, B, C, D
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import Tensor, rename, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.reductions import along, find_moments, keep_axes, reduce, vector_norm
from tritonsmith.author.compiler.lowering.views import reshape
from tritonsmith.author.types import TYPES

Moments = tuple[Tensor, Tensor, Tensor]
"""Mean, sum of squared distances from it, and the distances."""


def normalize(source: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """Zero mean and unit variance along some axes."""
    return _standardize(source, axes, eps, find_moments(source, axes))


def _standardize(source: Tensor, axes: tuple[int, ...], eps: float, moments: Moments) -> Tensor:
    """The same by moments that are known."""
    _, squares, distance = moments
    spread = rename(formula(Op.RSQRT(A / B + C), squares, along(source.shape, axes), eps, like=squares.dtype), "spread")
    return formula(A * B, distance, spread, like=squares.dtype)


def scale(value: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: str) -> Tensor:
    """The value times a weight plus a bias, each where there is one."""
    wide = widen(dtype)
    if weight is not None:
        tree = A * B if bias is None else A * B + C
        return formula(tree, value, weight, *([] if bias is None else [bias]), like=wide, result=dtype)
    return formula(A if bias is None else A + B, value, *([] if bias is None else [bias]), like=wide, result=dtype)


def _channels(value: Tensor | None, rank: int) -> Tensor | None:
    """One number for each channel, to be broadcast over the axes behind."""
    return None if value is None else reshape(value, (value.size, *(1,) * (rank - 2)))


def _layer(call: NodeCall) -> Lowered:
    source, sizes = call.tensor(0, "input"), call.option(1, "normalized_shape", None)
    axes = tuple(range(len(source.shape) - len(sizes), len(source.shape)))
    value = normalize(source, axes, call.option(4, "eps", 1e-5))
    return scale(value, call.weight(2, "weight"), call.weight(3, "bias"), call.dtype)


def _rms(call: NodeCall) -> Lowered:
    source, sizes = call.tensor(0, "input"), call.option(1, "normalized_shape", None)
    eps = call.option(3, "eps", None)
    if eps is None:
        eps = TYPES[widen(source.dtype)].epsilon  # of the type that PyTorch computes in, not of the tensor's own
    axes = tuple(range(len(source.shape) - len(sizes), len(source.shape)))
    wide = widen(source.dtype)
    total = reduce(formula(A * A, source, like=wide), axes, "sum", wide, keep=True)
    value = formula(A * Op.RSQRT(B / C + D), source, total, along(source.shape, axes), eps, like=wide)
    return scale(value, call.weight(2, "weight"), None, call.dtype)


def _group(call: NodeCall) -> Lowered:
    source, groups = call.tensor(0, "input"), call.option(1, "num_groups", None)
    batch, channels, *rest = source.shape
    parts = reshape(source, (batch, groups, channels // groups, along(source.shape, tuple(range(2, len(source.shape))))))
    value = reshape(normalize(parts, (2, 3), call.option(4, "eps", 1e-5)), source.shape)
    rank = len(source.shape)
    return scale(value, _channels(call.weight(2, "weight"), rank), _channels(call.weight(3, "bias"), rank), call.dtype)


def _instance(call: NodeCall) -> Lowered:
    source, rank = call.tensor(0, "input"), len(call.shape)
    kind = call.node.module_type
    unbatched = bool(kind) and rank == int(kind[-2]) + 1
    mean, variance = call.weight(1, "running_mean"), call.weight(2, "running_var")
    weight, bias = call.weight(3, "weight"), call.weight(4, "bias")
    axes, behind = tuple(range(1 if unbatched else 2, rank)), rank + unbatched
    by_batch = call.training if kind else bool(call.get(5, "use_input_stats", default=True))
    if mean is None or variance is None or by_batch:
        moments = find_moments(source, axes)
        value = _standardize(source, axes, call.option(7, "eps", 1e-5), moments)
        if mean is not None and variance is not None:
            _track_instances(call, axes, moments, mean, variance)
    else:
        value = _rescale(source, _channels(mean, behind), _channels(variance, behind), call.option(7, "eps", 1e-5))
    return scale(value, _channels(weight, behind), _channels(bias, behind), call.dtype)


def _rescale(source: Tensor, mean: Tensor | None, variance: Tensor | None, eps: float) -> Tensor:
    """Zero mean and unit variance by statistics that are known."""
    return formula((A - B) * Op.RSQRT(C + D), source, mean, variance, eps, like=widen(source.dtype))


def _batch(call: NodeCall) -> Lowered:
    """With running statistics, as in evaluation; else over the batch."""
    source, rank = call.tensor(0, "input"), max(2, len(call.shape))
    mean, variance = call.weight(1, "running_mean"), call.weight(2, "running_var")
    weight, bias = call.weight(3, "weight"), call.weight(4, "bias")
    eps = call.option(7, "eps", 1e-5)
    training = call.training if call.node.op == "call_module" else bool(call.get(5, "training", default=False))
    if training or mean is None or variance is None:
        axes = tuple(axis for axis in range(len(source.shape)) if axis != 1)
        moments = find_moments(source, axes)
        value = _standardize(source, axes, eps, moments)
        if mean is not None and variance is not None:
            _track(call, axes, moments, mean, variance)
    else:
        value = _rescale(source, _channels(mean, rank), _channels(variance, rank), eps)
    return scale(value, _channels(weight, rank), _channels(bias, rank), call.dtype)


def _track(call: NodeCall, axes: tuple[int, ...], moments: Moments, mean: Tensor, variance: Tensor) -> None:
    """Running statistics, which move towards those of the batch; a momentum of None makes them averages of all batches."""
    found, squares, distance = moments
    shape, wide = distance.shape, distance.dtype
    number = along(shape, axes)
    module = call.node.op == "call_module"
    factor: Tensor | float | None = call.node.attributes.get("momentum") if module else call.get(6, "momentum", default=0.1)
    counted = call.weight(-1, "num_batches_tracked") if module else None
    if counted is not None:
        batches = formula(A + 1, call.current(counted), like=counted.dtype)
        call.update(counted, batches)
        factor = formula(1.0 / A, batches, like="float32") if factor is None else factor
    if factor is None:
        raise NotCovered("without a momentum")
    unbiased = formula(A / B, squares, max(1, number - 1), like=wide)
    for held, value in ((mean, found), (variance, unbiased)):
        before = reshape(call.current(held), keep_axes(shape, axes))
        moved = formula(A + C * (B - A), before, value, factor, like=widen(held.dtype), result=held.dtype)
        call.update(held, reshape(moved, held.shape))


def _track_instances(call: NodeCall, axes: tuple[int, ...], moments: Moments, mean: Tensor, variance: Tensor) -> None:
    """Running statistics that move towards the means of those of all instances."""
    found, squares, distance = moments
    number, wide = along(distance.shape, axes), distance.dtype
    factor = call.node.attributes.get("momentum") if call.node.op == "call_module" else call.get(6, "momentum", default=0.1)
    for held, value in ((mean, found), (variance, formula(A / B, squares, max(1, number - 1), like=wide))):
        instances = value.size // held.size
        total = reduce(reshape(value, (instances, held.size)), (0,), "sum", wide)
        moved = formula(A + C * (B / D - A), call.current(held), total, factor or 0.0, instances, like=wide, result=held.dtype)
        call.update(held, moved)


def _normalize_weight(call: NodeCall) -> Lowered:
    """A parameter that is a direction times a length, as `weight_norm` makes it: by default a length for each place of the first axis."""
    source, length, axis = call.tensor(0, "v"), call.tensor(1, "g"), call.get(2, "dim", default=0)
    axes = tuple(one for one in range(len(source.shape)) if axis == -1 or one != axis % len(source.shape))
    size = vector_norm(source, 2, axes, True, widen(source.dtype))
    return formula(A * (B / C), source, length, size, like=widen(source.dtype), shape=source.shape, result=source.dtype)


TABLE: dict[str, Lower] = {
    "_weight_norm": _normalize_weight,
    "layer_norm": _layer, "nn.LayerNorm": _layer, "rms_norm": _rms, "nn.RMSNorm": _rms, "group_norm": _group, "nn.GroupNorm": _group,
    **dict.fromkeys(("instance_norm", "nn.InstanceNorm1d", "nn.InstanceNorm2d", "nn.InstanceNorm3d"), _instance),
    **dict.fromkeys(("batch_norm", "nn.BatchNorm1d", "nn.BatchNorm2d", "nn.BatchNorm3d"), _batch),
}  # fmt: skip
