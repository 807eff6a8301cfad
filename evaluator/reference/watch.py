"""What the operators of one forward show: whether it rounds to 16 bits, and whether it draws random numbers. Imports torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tritonsmith.evaluator.reference.module import Reference, flatten
from tritonsmith.evaluator.reference.updates import find_updates, run_forward
from tritonsmith.evaluator.schema import PrecisionClass

HALVES = (torch.float16, torch.bfloat16)
_CHANCES = ("dropout_p", "p")
"""Arguments of random operators that draw nothing where they are zero."""
_OTHER_SEED = 20261123
_ALIKE = 0.01
"""Results of equal calls that differ by less, as a share of their norm, differ by rounding."""
_SWITCHES = ("train", "training")
"""Arguments of random operators that draw nothing where they are false."""


class ForwardWatch(TorchDispatchMode):
    """Context manager around one forward, on real or fake tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds_to_half = False
        """Whether an operator makes 16-bit values of wider ones, as casts and autocast do."""
        self.random: list[str] = []
        """Operators that draw random numbers, each once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in func.tags and name not in self.random and _draws(func, args, kwargs):
            self.random.append(name)
        if not self.rounds_to_half and _has_half(result):
            floating = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
            self.rounds_to_half = any(tensor.dtype not in HALVES for tensor in floating)
        return result


def _has_half(values: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in HALVES for leaf in tree_leaves(values))


def _draws(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a random operator draws with these arguments: dropout of no share, as in attention, draws nothing."""
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    given = {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}
    return not any(given.get(name) == 0 for name in _CHANCES) and not any(given.get(name) is False for name in _SWITCHES)


def find_class(
    inputs: Iterable[Any], weights: Iterable[Any], outputs: Iterable[torch.Tensor], watch: ForwardWatch
) -> PrecisionClass:
    """The class that follows from a task's own types.

    16 bit where a floating output is, where all floating inputs and weights are, or where forward itself rounds to 16 bits.
    """
    given = {value.dtype for value in (*inputs, *weights) if isinstance(value, torch.Tensor) and value.is_floating_point()}
    half = _has_half(list(outputs)) or (bool(given) and given <= set(HALVES)) or watch.rounds_to_half
    return PrecisionClass.HALF if half else PrecisionClass.IEEE


@dataclass(frozen=True)
class WatchedForward:
    """What one real forward of a reference showed."""

    outputs: list[torch.Tensor]
    """What forward returns, then the buffers that it updates."""
    updates: tuple[str, ...]
    precision: PrecisionClass


def run_watched(reference: Reference, model: nn.Module, arguments: list[Any]) -> WatchedForward:
    """Run the reference once; in training mode twice, since there its results must be the same each time. Raises TaskError."""
    watch = ForwardWatch()

    def forward() -> Any:
        with watch:
            return reference.forward(model, arguments)

    if reference.task.mode == "train":
        given = [argument.clone() if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        result, found = find_updates(model, forward)
        require_no_chance(reference, model, watch)
        updates, outputs = tuple(found), [*flatten(result), *found.values()]
        _require_repetition(reference, outputs, lambda: run_forward(model, given, updates))
    else:
        updates, outputs = tuple[str, ...](), flatten(forward())
    return WatchedForward(outputs, updates, find_class(arguments, model.state_dict().values(), outputs, watch))


def _require_repetition(reference: Reference, outputs: list[torch.Tensor], again: Callable[[], list[torch.Tensor]]) -> None:
    """Raises TaskError where a second call under another seed gives other results, beyond what the order of a sum makes for."""
    state = random.getstate()
    random.seed(_OTHER_SEED)
    with torch.random.fork_rng(devices=list({tensor.device for tensor in outputs if tensor.is_cuda})):
        torch.manual_seed(_OTHER_SEED)
        repeated = again()
    random.setstate(state)
    for first, second in zip(outputs, repeated, strict=True):
        if first.is_floating_point() and float((first.double() - second.double()).norm()) > _ALIKE * float(first.double().norm()):
            raise reference.refuse_forward(
                "gives other results when it is called again on equal arguments in training mode, so no kernel could be compared with it; "
                'make it a function of its arguments, or judge it with MODE = "eval" (--mode eval)'
            )


def require_no_chance(reference: Reference, model: nn.Module, watch: ForwardWatch) -> None:
    """In training mode forward must be a function of its arguments. Raises TaskError with the operators that are none."""
    if reference.task.mode != "train":
        return
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers > 1]
    found = [*watch.random, *(f"dropout between the layers of nn.{type(module).__name__}" for module in layers[:1])]
    if found:
        raise reference.refuse_forward(
            f"draws random numbers in training mode ({', '.join(found)}), so no kernel could be compared with it; "
            'set dropout to 0, draw outside forward, or judge it with MODE = "eval" (--mode eval)'
        )
