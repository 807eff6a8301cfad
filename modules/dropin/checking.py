"""A drop-in compared with the original on the user's own data, by the judge's rule. Imports torch."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.oracle.checks.correctness import ErrorStats, Trial, list_arithmetic
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.reference.float64 import InFloat64, widen_module
from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.modules.dropin.runtime.engine import FallbackWarning
from tritonsmith.modules.dropin.runtime.module import engine_of, restore_module

_SEED = 0
"""Of the cotangents."""


@dataclass(frozen=True)
class Check:
    """What comparing a drop-in with its original on some inputs has shown."""

    right: bool
    """Whether the judge's rule holds."""
    fallback: str
    """Why the original ran in place of the kernel; empty where the kernel ran."""
    error: float
    """Root mean square error against float64, as a share of the result."""
    original_error: float
    """The same of the original."""
    largest: float
    """The largest difference from float64."""
    gradients: float | None = None
    """Error of the gradients like `error`, the largest of them; None where they were not asked for."""

    def __str__(self) -> str:
        ran = f"the original ran, since {self.fallback}" if self.fallback else "the kernel ran"
        return (
            f"{'right' if self.right else 'WRONG'}: error {self.error:.3g} of the float64 result, "
            f"the original's own {self.original_error:.3g}; largest difference {self.largest:.3g}; "
            f"{'' if self.gradients is None else f'gradients: error {self.gradients:.3g}; '}{ran}"
        )

    def __bool__(self) -> bool:
        return self.right


def check_module(
    faster: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, gradients: bool = False
) -> Check:
    """Compare a drop-in with its original for one call. Neither inputs nor buffers change.

    Args:
        faster: the drop-in.
        args: arguments of the call.
        kwargs: keyword arguments of the call.
        gradients: whether gradients of all inputs and parameters are compared too, by the same rule.

    Raises:
        UsageError: where the original fails on these inputs, or cannot be computed in float64, or has no gradients.
    """
    original = copy.deepcopy(restore_module(faster)).eval().train(faster.training)
    engine, told = engine_of(faster), set(engine_of(faster).told)
    engine.told.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        with torch.no_grad():
            found = _measure(faster, original, _take_results, args, kwargs)
        with torch.enable_grad():
            slopes = _measure(faster, original, _take_gradients, args, kwargs) if gradients else None
    engine.told |= told
    told_reasons = [str(item.message) for item in caught if item.category is FallbackWarning]
    fallback = next((words.partition("kernel: ")[2].removesuffix(" (told once)") for words in told_reasons), "")
    right, mine, own = found
    if slopes is None:
        return Check(right, fallback, mine.relative_rms, own.relative_rms, mine.max_abs)
    return Check(right and slopes[0], fallback, mine.relative_rms, own.relative_rms, mine.max_abs, slopes[1].relative_rms)


def _measure(
    faster: nn.Module, original: nn.Module, compute: Callable[[nn.Module, Any, Any, str], list[torch.Tensor]], args: Any, kwargs: Any
) -> tuple[bool, ErrorStats, ErrorStats]:  # fmt: skip
    """Whether the drop-in's tensors meet the judge's rule, their error against float64, and the original's own."""
    asked = PrecisionClass(engine_of(faster).kernel.proof.precision)
    kept = {name: value.clone() for name, value in faster.named_buffers()}
    with _use_arithmetic(asked):
        mine = compute(faster, args, kwargs, "the drop-in")
    with torch.no_grad():
        for name, value in faster.named_buffers():
            value.copy_(kept[name])
    wide, call = widen_module(original), _widen_call(args, kwargs)
    with InFloat64(on_card=any(value.is_cuda for value in original.parameters()))(wide):
        oracle = compute(wide, *call, "the original in float64")
    theirs = {}
    for arithmetic in list_arithmetic(asked):
        with _use_arithmetic(arithmetic):
            theirs[arithmetic] = error_stats(compute(copy.deepcopy(original), args, kwargs, "the original"), oracle)
    if [value.shape for value in mine] != [value.shape for value in oracle]:
        raise UsageError("the drop-in and the original give results of other shapes for these inputs")
    stats = error_stats(mine, oracle)
    own = theirs[asked.arithmetic] if asked.arithmetic in theirs else next(iter(theirs.values()))
    return Trial(stats, theirs).meets(asked), stats, own


def _call(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> Any:
    given, named = pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf,
        (tuple(args), dict(kwargs)),
    )
    try:
        return module(*given, **named)
    except Exception as error:
        raise UsageError(
            f"{what} fails on these inputs ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from error


def _take_results(module: nn.Module, args: Any, kwargs: Any, what: str) -> list[torch.Tensor]:
    return flatten(_call(module, args, kwargs, what))


def _take_gradients(module: nn.Module, args: Any, kwargs: Any, what: str) -> list[torch.Tensor]:
    """Gradients of every floating input and every parameter that asks for them, for cotangents drawn at random."""
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    leaves = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())]
    for leaf in inputs:
        leaf.requires_grad_()
    handed = [leaf.view_as(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]  # which forward may write to
    given, named = pytree.tree_unflatten(handed, spec)
    try:
        results = [value for value in flatten(module(*given, **named)) if value.requires_grad]
    except Exception as error:
        raise UsageError(f"{what} fails on these inputs ({type(error).__name__}: {' '.join(str(error).split())[:200]})") from error
    if not results:
        raise UsageError(f"{what} has no gradients: no result depends on an input or a weight that asks for one")
    order = torch.Generator().manual_seed(_SEED)
    drawn = [torch.randint(-64, 65, value.shape, generator=order) for value in results]
    drawn = [value.to(like.device, like.dtype) / 64 for value, like in zip(drawn, results, strict=True)]  # whole in every type
    wanted = [*inputs, *(value for value in module.parameters() if value.requires_grad)]
    found = torch.autograd.grad(results, wanted, drawn, allow_unused=True)
    return [torch.zeros_like(value) if slope is None else slope for slope, value in zip(found, wanted, strict=True)]


def _widen_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments in float64."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        return leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)

    widened: tuple[Any, Any] = pytree.tree_map(widen, (tuple(args), dict(kwargs)))
    return widened


@contextlib.contextmanager
def _use_arithmetic(precision: PrecisionClass) -> Iterator[None]:
    """With or without TF32 in PyTorch's own products; afterwards as before."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision is PrecisionClass.TF32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
