"""One call with infinities, zeros of both signs, very large values and NaN among the inputs: they must go where PyTorch has them go.

Only places count: where a result is finite, infinite (of which sign) or no number, and which truths hold. A place is decided where the
reference in float64, in its own type and with all other values moved agrees about it. How exact values are is judged on other inputs.

Modules are asked for corners where each of their operators has a meaning that no order of arithmetic changes: elementwise ones, views,
sums, means, extremes, softmax, norms. A product of matrices has none: how an infinity goes through it depends on how operands are split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tritonsmith.evaluator.channel.strides import distinct, with_values
from tritonsmith.evaluator.oracle.checks.inputs import move_values
from tritonsmith.evaluator.oracle.checks.loaded_task import UNDEFINED, LoadedTask, fresh_seed
from tritonsmith.evaluator.oracle.checks.memory import OraclePlace
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, fresh_call
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.schema import Status

_MEANT = frozenset(
    """
    _log_softmax _softmax _to_copy alias all amax amin any as_strided cat clone constant_pad_nd copy copy_ cummax cummin detach diagonal
    empty empty_like empty_strided expand eye fill fill_ flip full full_like glu hardswish index_select linalg_vector_norm lift_fresh
    log_sigmoid_forward log_softmax logsumexp max mean min nansum native_batch_norm native_group_norm native_layer_norm
    _native_batch_norm_legit_no_training new_empty new_full new_ones new_zeros ones ones_like permute repeat roll scalar_tensor select
    slice softmax split split_with_sizes squeeze stack std sum t transpose tril triu unbind unfold unsqueeze var view _unsafe_view
    _reshape_alias zero_ zeros zeros_like arange cudnn_batch_norm
    """.split()
)
"""Operators besides the elementwise ones whose corners no order of arithmetic changes. `var_mean` is none: its mean goes by the order."""
_LARGE = 2.0**-4
"""Large values are this share of the root of the type's largest one. Squares of a few add up to a finite one: PyTorch itself sums squares
in float64 on a processor and in float32 on a card, so beyond that it has two answers."""
_STEP = 2.0**-12
"""By which the other values are moved, as a share of them."""
_IN_TURN = 0
"""The order in which the interpreter runs programs."""
_FEW = 16
"""A tensor of fewer elements has no room for corners beside other values."""
_LOST = (
    ". Nothing else differs here: only NaN is lost. tl.maximum and tl.minimum drop it, unless propagate_nan=tl.PropagateNan.ALL; "
    "tl.where(x > 0, x, 0) does too, and tl.where(x < 0, 0, x) keeps it"
)
"""Said where the kernel gives something else for NaN, and is right about all the rest."""


class _MeaningWatch(TorchDispatchMode):
    """Context manager around one forward: whether each of its operators has corners that no order of arithmetic changes."""

    def __init__(self) -> None:
        super().__init__()
        self.meant = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = func(*args, **dict(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        self.meant = self.meant and (name in _MEANT or torch.Tag.pointwise in func.tags) and not _makes_places(args, result)
        return result


def _makes_places(args: tuple[Any, ...], result: Any) -> bool:
    """Whether whole numbers come of fractions: as places they may lie anywhere where a value is no number."""
    made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
    given = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
    whole = any(not one.is_floating_point() and one.dtype != torch.bool for one in made)
    return whole and any(one.is_floating_point() for one in given)


def asks_for_corners(loaded: LoadedTask) -> bool:
    """Whether a task's forward has corners of its own; it is run once to see."""
    tensors = loaded.draw("own")
    limited = loaded.in_unit_range or loaded.domains.bound_fractions  # another value has no meaning there
    plain = not (loaded.updates or loaded.written or limited) and loaded.plan.oracle is OraclePlace.WHOLE
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    if not plain or not any(tensor.numel() >= _FEW for tensor in floating) or any(tensor.itemsize == 1 for tensor in floating):
        return False
    watch = _MeaningWatch()
    with torch.no_grad(), watch:
        loaded.call.run_plain(loaded.model, loaded.fill_arguments(tensors))
    return watch.meant


def check_corners(log: TrialLog, runner: RunnerHandle, profile: str, timeout: float) -> None:
    """One call on inputs with corners, in `strict` and where the task has any; behind all others, whose words say more.

    Raises RunnerFault(inaccurate) for a result that is finite, infinite or no number in another place than PyTorch's.
    """
    loaded = log.loaded
    if profile != "strict" or not asks_for_corners(loaded):
        return
    STEPS.note("infinities, zeros and NaN")
    drawn = loaded.draw("signed")
    count = loaded.call.own_inputs
    tensors = [*put_corners(drawn[:count], fresh_seed()), *drawn[count:]]
    got = fresh_call(loaded, runner, tensors, _IN_TURN, timeout)
    loaded.place(loaded.draw("own"))  # what calls forward next, to look at it or to record it, has usual inputs
    try:
        wanted = _find_decided(loaded, tensors)
    except UNDEFINED:
        return  # no answer is right or wrong where the reference has none
    last = loaded.call.count_outputs(len(got))  # a gradient of a corner goes by how backward is written
    for number, (result, (classes, decided)) in enumerate(zip(got[:last], wanted[:last], strict=True)):
        wrong = decided & (classify(result).to(classes.device) != classes)
        if bool(wrong.any()):
            lost = not bool((wrong & (classes != _NOT_A_NUMBER)).any())
            at = tuple(int(place) for place in (wrong if lost else wrong & (classes != _NOT_A_NUMBER)).nonzero()[0])
            expected, seen = _NAMES[int(classes[at])], result[at].item()
            raise RunnerFault(
                Status.INACCURATE,
                f"with infinities, zeros, very large values and NaN among the inputs, output {number} at index {list(at)} is {seen} where "
                f"PyTorch gives {expected}, in float64 as in its own type{_LOST if lost else ''}",
            )


def put_corners(tensors: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """The tensors with each corner at one place of each floating one, under the seed; small ones stay as they are."""
    return [_put(tensor, seed + number) if tensor.is_floating_point() else tensor for number, tensor in enumerate(tensors)]


def _put(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    once = distinct(tensor)
    if once.numel() < _FEW:
        return tensor
    values = once.contiguous().clone()
    info = torch.finfo(tensor.dtype)
    large = _LARGE * info.max**0.5
    corners = (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, large, -large)
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(values.numel(), (len(corners),), generator=generator)  # one place may get two: the last one counts
    values.view(-1)[places.to(values.device)] = torch.tensor(corners, dtype=tensor.dtype, device=values.device)
    return with_values(tensor, values)


_NAMES = ("a finite value", "inf", "-inf", "NaN", "false", "true")
_NOT_A_NUMBER = _NAMES.index("NaN")


def classify(values: torch.Tensor) -> torch.Tensor:
    """What each value is, as a number: finite, inf, -inf, NaN, false or true; whole numbers count as finite."""
    if values.dtype == torch.bool:
        return values.to(torch.int8) + 4
    found = torch.zeros(values.shape, dtype=torch.int8, device=values.device)
    if values.is_floating_point():
        found[values == float("inf")] = 1
        found[values == float("-inf")] = 2
        found[torch.isnan(values)] = 3
    return found


def _find_decided(loaded: LoadedTask, tensors: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each output: what its values are, and where the reference says so in every way."""
    moved = [_move_others(tensor) for tensor in tensors]
    own, shifted = (loaded.reference_outputs(given, loaded.task.precision.arithmetic) for given in (tensors, moved))
    found = []
    for exact, first, second in zip(loaded.oracle(tensors), own, shifted, strict=True):
        rounded = exact.to(first.device, first.dtype) if first.is_floating_point() else exact.to(first.device)
        classes = classify(rounded)
        found.append((classes, (classes == classify(first)) & (classes == classify(second))))
    return found


def _move_others(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with each finite value moved a little."""
    if not tensor.is_floating_point():
        return tensor
    once = distinct(tensor)
    finite = torch.isfinite(once)
    (moved,) = move_values([torch.where(finite, once, 0.0)], _STEP)
    return with_values(tensor, torch.where(finite, moved, once).contiguous())
