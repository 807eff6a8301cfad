"""A drop-in compared with the original on the user's own data, by the judge's rule. Imports torch."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.oracle.checks.correctness import Trial, list_arithmetic
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.reference.float64 import InFloat64, widen_module
from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.modules.dropin.runtime.engine import FallbackWarning
from tritonsmith.modules.dropin.runtime.module import engine_of, restore_module


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

    def __str__(self) -> str:
        ran = f"the original ran, since {self.fallback}" if self.fallback else "the kernel ran"
        return (
            f"{'right' if self.right else 'WRONG'}: error {self.error:.3g} of the float64 result, "
            f"the original's own {self.original_error:.3g}; largest difference {self.largest:.3g}; {ran}"
        )

    def __bool__(self) -> bool:
        return self.right


def check_module(faster: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Check:
    """Compare a drop-in with its original for one call. Neither inputs nor buffers change.

    Args:
        faster: the drop-in.
        args: arguments of the call.
        kwargs: keyword arguments of the call.

    Raises:
        UsageError: where the original fails on these inputs, or cannot be computed in float64.
    """
    engine, asked = engine_of(faster), PrecisionClass(engine_of(faster).kernel.proof.precision)
    original = copy.deepcopy(restore_module(faster)).eval().train(faster.training)
    kept = {name: value.clone() for name, value in faster.named_buffers()}
    told = set(engine.told)
    engine.told.clear()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught, _use_arithmetic(asked):
        warnings.simplefilter("always", FallbackWarning)
        mine = flatten(_call(faster, args, kwargs, "the drop-in"))
        for name, value in faster.named_buffers():
            value.copy_(kept[name])
    engine.told |= told
    fallback = next(
        (
            str(item.message).partition("kernel: ")[2].removesuffix(" (told once)")
            for item in caught
            if item.category is FallbackWarning
        ),
        "",
    )
    with torch.no_grad():
        oracle = _compute_oracle(original, args, kwargs)
        theirs = {}
        for arithmetic in list_arithmetic(asked):
            with _use_arithmetic(arithmetic):
                theirs[arithmetic] = error_stats(
                    flatten(_call(copy.deepcopy(original), args, kwargs, "the original")), oracle
                )
    if [value.shape for value in mine] != [value.shape for value in oracle]:
        raise UsageError("the drop-in and the original give results of other shapes for these inputs")
    stats = error_stats(mine, oracle)
    trial = Trial(stats, theirs)
    own = theirs[asked.arithmetic] if asked.arithmetic in theirs else next(iter(theirs.values()))
    return Check(trial.meets(asked), fallback, stats.relative_rms, own.relative_rms, stats.max_abs)


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


def _compute_oracle(
    original: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """What the original gives in float64."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return (
            leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)
            if leaf.is_floating_point() or leaf.is_complex()
            else leaf
        )

    given, named = pytree.tree_map(widen, (tuple(args), dict(kwargs)))
    wide = widen_module(original)
    with InFloat64(on_card=any(value.is_cuda for value in original.parameters()))(wide):
        return flatten(_call(wide, given, named, "the original in float64"))


@contextlib.contextmanager
def _use_arithmetic(precision: PrecisionClass) -> Iterator[None]:
    """With or without TF32 in PyTorch's own products; afterwards as before."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision is PrecisionClass.TF32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
