"""Losses: the terms elementwise or per row, then their mean or sum."""

from __future__ import annotations

import math

from tritonsmith.author.compiler.ir.operators import A, B, C, D
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, Lookup, Tensor, rename, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered, refuse_options
from tritonsmith.author.compiler.lowering.constants import count_up
from tritonsmith.author.compiler.lowering.picks import look_along
from tritonsmith.author.compiler.lowering.pointwise import broadcast, cast, formula, select_where
from tritonsmith.author.compiler.lowering.reductions import log_softmax, reduce, vector_norm
from tritonsmith.author.compiler.lowering.views import expand, reshape

_LEAST_SQUARE = 1e-12
"""What `cosine_embedding_loss` adds to sums of squares."""


def find_reduction(call: NodeCall) -> str:
    """What becomes of the terms, as the call or its module says."""
    given = [one for one in call.args if isinstance(one, str)]
    return given[0] if given else str(call.option(-1, "reduction", "mean"))


def finish(terms: Tensor, call: NodeCall, count: Tensor | int | None = None, reduction: str | None = None) -> Tensor:
    """The terms as they are, their sum, or their mean; `count`: what a mean divides by, where that is not their number."""
    kind = reduction or find_reduction(call)
    refuse_options(call, size_average=None, reduce=None)
    if kind == "none":
        return terms
    total = reduce(terms, tuple(range(len(terms.shape))), "sum", widen(terms.dtype))
    if kind == "sum":
        return formula(A, total, like=total.dtype, result=call.dtype)
    return formula(A / B, total, terms.size if count is None else count, like=total.dtype, result=call.dtype)


def _pair(call: NodeCall) -> tuple[Tensor, Tensor, str]:
    left, right = call.tensor(0, "input"), call.tensor(1, "target")
    if left.dtype not in FLOATS:
        raise NotCovered(f"on {left.dtype}")
    shape = broadcast(left.shape, right.shape)
    return expand(left, shape), expand(right, shape), widen(left.dtype)


_HINGE = Op.WHERE(Op.EQ(B, 1.0), 0.0, Op.MAXIMUM(C - A, 0.0)) + Op.WHERE(Op.EQ(B, -1.0), 0.0, A)
"""Both for a target that is neither 1 nor -1, as PyTorch has it."""


def _elementwise(call: NodeCall) -> Lowered:
    left, right, wide = _pair(call)
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().replace("_", "").removesuffix("loss")
    if call.kwargs.get("weight") is not None and not name.startswith(("binary", "bce")):
        raise NotCovered("with a weight")
    if name in ("mse", "l1"):
        apart = formula(A - B, left, right, like=wide)
        return finish(formula(A * A if name == "mse" else Op.ABS(A), apart, like=wide), call)
    if name in ("smoothl1", "huber"):
        size = formula(Op.ABS(A - B), left, right, like=wide)
        delta = call.option(5, "beta", 1.0) if name == "smoothl1" else call.option(3, "delta", 1.0)
        if delta <= 0:
            return finish(size, call)
        quadratic, linear = (
            (0.5 * A * A / B, A - 0.5 * B) if name == "smoothl1" else (0.5 * A * A, B * (A - 0.5 * B))
        )
        return finish(formula(Op.WHERE(A < B, quadratic, linear), size, delta, like=wide), call)
    if name == "kldiv":
        return _diverge(left, right, wide, call)
    if name in ("binarycrossentropy", "bce"):
        logs = Op.MAXIMUM(Op.LOG(A), -100.0), Op.MAXIMUM(Op.LOG1P(-A), -100.0)
        return finish(_weigh(formula(-(B * logs[0] + (1.0 - B) * logs[1]), left, right, like=wide), call, 2), call)
    if name in ("binarycrossentropywithlogits", "bcewithlogits"):
        return finish(_weigh(_compare_logits(left, right, wide, call), call, 2), call)
    if name == "softmargin":
        return finish(formula(Op.LOG1P(Op.FAST_EXP(-B * A)), left, right, like=wide), call)
    if name == "hingeembedding":
        margin = call.option(2, "margin", 1.0)
        terms = Op.WHERE(Op.NE(B, 1.0), Op.MAXIMUM(C - A, 0.0), 0.0) + Op.WHERE(Op.NE(B, -1.0), A, 0.0)
        return finish(formula(terms, left, right, margin, like=wide), call)
    return finish(_poisson(left, right, wide, call), call)


def _weigh(terms: Tensor, call: NodeCall, place: int) -> Tensor:
    """The terms times a weight, where the loss has one."""
    weight = call.weight(place, "weight")
    return terms if weight is None else formula(A * B, terms, weight, like=terms.dtype, shape=terms.shape)


def _compare_logits(left: Tensor, right: Tensor, wide: str, call: NodeCall) -> Tensor:
    """Binary cross entropy of logits, with a weight of what is true."""
    weight = call.weight(6, "pos_weight")
    if weight is None:
        text = (1.0 - B) * A - Op.GROUP(Op.FMIN(A, 0.0) - Op.LOG1P(Op.FAST_EXP(-Op.ABS(A))))
        return formula(text, left, right, like=wide)
    text = (1.0 - B) * A + (1.0 + (C - 1.0) * B) * (Op.LOG1P(Op.FAST_EXP(-Op.ABS(A))) + Op.FMAX(-A, 0.0))
    return formula(text, left, right, weight, like=wide, shape=left.shape)


def _diverge(left: Tensor, right: Tensor, wide: str, call: NodeCall) -> Tensor:
    """Kullback-Leibler divergence of logarithms of probabilities from probabilities."""
    if call.option(6, "log_target", False):
        terms = formula(Op.FAST_EXP(B) * (B - A), left, right, like=wide)
    else:
        terms = formula(Op.WHERE(Op.EQ(B, 0.0), 0.0, B * Op.LOG(B)) - B * A, left, right, like=wide)
    return finish(terms, call, left.shape[0], "mean") if find_reduction(call) == "batchmean" else finish(terms, call)


def _poisson(left: Tensor, right: Tensor, wide: str, call: NodeCall) -> Tensor:
    """Poisson's negative log-likelihood; `full` adds Stirling's term for targets above 1."""
    if call.option(2, "log_input", True):
        terms = formula(Op.FAST_EXP(A) - B * A, left, right, like=wide)
    else:
        terms = formula(A - B * Op.LOG(A + C), left, right, call.option(5, "eps", 1e-8), like=wide)
    if not call.option(3, "full", False):
        return terms
    stirling = B * Op.LOG(B) - B + 0.5 * Op.LOG(2 * math.pi * B)
    return formula(A + Op.WHERE(B > 1.0, stirling, 0.0), terms, right, like=wide)


def _cross_entropy(call: NodeCall) -> Lowered:
    """`cross_entropy` and `nll_loss`, for targets that are classes or probabilities."""
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().replace("_", "")
    source, target = call.tensor(0, "input"), call.tensor(1, "target")
    smoothing, ignored = call.option(7, "label_smoothing", 0.0), call.option(4, "ignore_index", -100)
    weight = call.weight(2, "weight")
    axis = 1 if len(source.shape) > 1 else 0
    wide = widen(source.dtype)
    logs = log_softmax(source, axis, wide) if "cross" in name else source
    if weight is not None:
        weight = reshape(weight, (weight.size, *(1,) * (len(source.shape) - 1 - axis)))
    if target.dtype in FLOATS:
        classes = source.shape[axis]
        target = formula(A * B + C, target, 1 - smoothing, smoothing / classes, like=wide) if smoothing else target
        factors = [target] if weight is None else [target, weight]
        terms = formula(-A * B if weight is None else -A * B * C, logs, *factors, like=wide)
        summed = reduce(terms, (axis,), "sum", wide)
        return finish(summed, call, max(1, summed.size))
    return finish_classes(logs, target, axis, ignored, call, weight, smoothing)


def finish_classes(
    logs: Tensor, target: Tensor, axis: int, ignored: int, call: NodeCall, weight: Tensor | None, smoothing: float
) -> Tensor:
    """The negative logarithm at each target's class, without targets of an ignored class.

    weight: one number for each class, shaped to be broadcast. smoothing: the share that all classes have alike.
    """
    kept = formula(Op.NE(A, B), target, ignored, like=target.dtype, result="bool")
    place = formula(Op.WHERE(Op.EQ(A, B), 0, A), target, ignored, like=target.dtype)
    one = reshape(place, (*target.shape[:axis], 1, *target.shape[axis:]))
    found = look_along(logs, one, axis, one.shape)
    terms = reshape(found, target.shape)
    wide, flag = logs.dtype, cast(kept, "int32")
    every = tuple(range(len(target.shape)))
    share: Tensor | None = None
    if weight is not None:
        share = Lookup(
            shape=one.shape, dtype=weight.dtype, table=reshape(weight, (weight.size,)), places=(one,), limits=(weight.size,),
            where=lambda at: (at,), move=lambda at, places: (places[0],),
        )  # fmt: skip
        share = reshape(share, target.shape)
        terms = formula(A * B, terms, share, like=wide)
    if smoothing:
        parts = logs if weight is None else formula(A * B, logs, weight, like=wide)
        total = reduce(parts, (axis,), "sum", wide)
        terms = formula(A * C + B * D, terms, total, 1 - smoothing, smoothing / logs.shape[axis], like=wide)
    chosen = rename(formula(Op.WHERE(Op.NE(B, 0), A * -1.0, 0.0), terms, flag, like=wide), "loss_of_class")
    if find_reduction(call) != "mean":
        return finish(chosen, call)
    if share is not None:
        counted = formula(Op.WHERE(Op.NE(B, 0), A, 0.0), share, flag, like=wide)
        return finish(chosen, call, reduce(counted, every, "sum", wide))
    return finish(chosen, call, cast(reduce(cast(kept, "int64"), every, "sum", "int64"), wide))


def _gaussian(call: NodeCall) -> Lowered:
    """Gaussian negative log-likelihood, with variances that are at least `eps`."""
    source, target, variance = call.tensor(0, "input"), call.tensor(1, "target"), call.tensor(2, "var")
    wide, eps = widen(source.dtype), call.option(4, "eps", 1e-6)
    if len(variance.shape) < len(source.shape) or variance.shape[-1:] != source.shape[-1:]:
        raise NotCovered("with a variance for several elements")
    spread = formula(Op.MAXIMUM(A, B), variance, eps, like=wide)
    tree = 0.5 * (Op.LOG(C) + (A - B) * (A - B) / C)
    tree = tree + 0.5 * math.log(2 * math.pi) if call.option(3, "full", False) else tree
    return finish(formula(tree, source, target, spread, like=wide), call)


def _exceed_margin(call: NodeCall) -> Lowered:
    """`multi_margin_loss`: how far other classes come near the right one."""
    source, target = call.tensor(0, "input"), call.tensor(1, "target")
    order, margin, weight = call.option(2, "p", 1), call.option(3, "margin", 1.0), call.weight(4, "weight")
    if len(source.shape) != 2 or len(target.shape) != 1:
        raise NotCovered("without a batch")
    wide, classes = widen(source.dtype), source.shape[1]
    places = reshape(target, (target.size, 1))
    right = look_along(source, places, 1, (source.shape[0], 1))
    text = Op.FMAX(C - B + A, 0.0)  # NaN is no gap
    gap: Tensor = formula(text, source, right, margin, like=wide)
    if order == 2:
        gap = formula(A * A, gap, like=wide)
    if weight is not None:
        share = Lookup(
            shape=places.shape, dtype=weight.dtype, table=weight, places=(places,), limits=(weight.size,),
            where=lambda at: (at,), move=lambda at, found: (found[0],),
        )  # fmt: skip
        gap = formula(A * B, gap, share, like=wide)
    own = formula(Op.EQ(A, B), places, count_up(classes), like="int64", shape=source.shape, result="bool")
    kept = select_where(own, 0.0, gap, wide, source.shape)
    return finish(formula(A / B, reduce(kept, (1,), "sum", wide), classes, like=wide), call)


def _soft_margins(call: NodeCall) -> Lowered:
    """`multilabel_soft_margin_loss`: the mean over classes of binary cross entropies."""
    left, right, wide = _pair(call)
    logs = Op.FMIN(A, 0.0) - Op.LOG1P(Op.FAST_EXP(-Op.ABS(A))), -Op.FMAX(A, 0.0) - Op.LOG1P(Op.FAST_EXP(-Op.ABS(A)))
    terms = _weigh(formula(-(B * logs[0] + (1.0 - B) * logs[1]), left, right, like=wide), call, 2)
    axis = len(left.shape) - 1
    return finish(formula(A / B, reduce(terms, (axis,), "sum", wide), left.shape[axis], like=wide), call)


def _ranked(call: NodeCall) -> Lowered:
    """`margin_ranking_loss` and `cosine_embedding_loss`."""
    left, right, target = call.tensor(0, "input1"), call.tensor(1, "input2"), call.tensor(2, "target")
    if call.dtype not in FLOATS or left.dtype not in FLOATS:
        raise NotCovered(f"on {left.dtype}")
    margin, wide = call.option(3, "margin", 0.0), widen(left.dtype)
    if "cosine" in call.node.target.lower() or "Cosine" in call.node.module_type:
        angle = _find_cosine(left, right, wide)
        text = Op.WHERE(Op.EQ(B, 1.0), 1.0 - A, 0.0) + Op.WHERE(Op.EQ(B, -1.0), Op.MAXIMUM(A - C, 0.0), 0.0)
        return finish(formula(text, angle, target, margin, like=wide), call)
    return finish(formula(Op.MAXIMUM(-C * (A - B) + D, 0.0), left, right, target, margin, like=wide), call)


def _find_cosine(left: Tensor, right: Tensor, wide: str) -> Tensor:
    """The cosine of the angle between two tensors along the last axis; here PyTorch adds a small number to both squares."""
    products = [formula(A * B, first, second, like=wide) for first, second in ((left, right), (left, left), (right, right))]
    sums = [reduce(expand(one, products[0].shape), (len(products[0].shape) - 1,), "sum", wide) for one in products]
    return formula(A / Op.SQRT(Op.GROUP(B + D) * Op.GROUP(C + D)), *sums, _LEAST_SQUARE, like=wide)


def _triplet(call: NodeCall) -> Lowered:
    anchor, near, far = (call.tensor(place, name) for place, name in enumerate(("anchor", "positive", "negative")))
    if anchor.dtype not in FLOATS:
        raise NotCovered(f"on {anchor.dtype}")
    margin, order = call.option(3, "margin", 1.0), call.option(4, "p", 2.0)
    eps, wide = call.option(5, "eps", 1e-6), widen(anchor.dtype)
    if wide not in FLOATS:
        raise NotCovered(f"on {wide}")

    def distance(other: Tensor, one: Tensor = anchor) -> Tensor:
        apart = formula(A - B + C, one, other, eps, like=wide)
        return vector_norm(apart, order, (len(apart.shape) - 1,), False, wide)

    away = distance(far)
    if call.option(6, "swap", False):
        away = formula(Op.MINIMUM(A, B), away, distance(far, near), like=wide)
    return finish(formula(Op.MAXIMUM(A - B + C, 0.0), distance(near), away, margin, like=wide), call)


_PAIRS = ("mse", "l1", "smooth_l1", "huber", "soft_margin", "hinge_embedding", "poisson_nll")
_MODULES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss", "BCELoss", "BCEWithLogitsLoss", "SoftMarginLoss",
            "HingeEmbeddingLoss", "PoissonNLLLoss")  # fmt: skip
TABLE: dict[str, Lower] = {
    **dict.fromkeys(
        [*(f"{name}_loss" for name in _PAIRS), "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits"], _elementwise
    ),
    **dict.fromkeys([f"nn.{name}" for name in _MODULES], _elementwise),
    **dict.fromkeys(("cross_entropy", "nll_loss", "nn.CrossEntropyLoss", "nn.NLLLoss"), _cross_entropy),
    **dict.fromkeys(("margin_ranking_loss", "cosine_embedding_loss", "nn.MarginRankingLoss", "nn.CosineEmbeddingLoss"), _ranked),
    **dict.fromkeys(("gaussian_nll_loss", "nn.GaussianNLLLoss"), _gaussian),
    **dict.fromkeys(("multi_margin_loss", "nn.MultiMarginLoss"), _exceed_margin),
    **dict.fromkeys(("multilabel_soft_margin_loss", "nn.MultiLabelSoftMarginLoss"), _soft_margins),
    **dict.fromkeys(("triplet_margin_loss", "nn.TripletMarginLoss"), _triplet),
}
