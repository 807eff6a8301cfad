"""What the operators of one forward show: whether it rounds to 16 bits, and whether it draws random numbers. Imports torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.module import Reference, flatten, list_held, list_tensors
from tritonsmith.evaluator.reference.structure import Structure, describe, find_shared
from tritonsmith.evaluator.reference.updates import find_updates, run_forward
from tritonsmith.evaluator.schema import PrecisionClass

HALVES = (torch.float16, torch.bfloat16)
EIGHTHS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
"""Floating types of eight bits."""
DECIDING = frozenset(
    """
    _local_scalar_dense _unique2 argmax argmin argsort bucketize ceil count_nonzero cummax cummin eq equal
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask floor floor_divide fmod frac ge gt
    hardshrink heaviside histc histogram is_nonzero isclose kthvalue le logical_and logical_not logical_or logical_xor lt
    masked_select max median min mode nanmedian ne nonzero quantize_per_channel quantize_per_tensor remainder round searchsorted
    sgn sign signbit sort threshold topk trunc unique unique_consecutive unique_dim
    """.split()
)
"""These give another result, by a jump, where a value moves by its last place."""
_CHANCES = ("dropout_p", "p")
"""Arguments of random operators that draw nothing where they are zero."""
_OTHER_SEED = 20261123
_ALIKE = 0.01
"""Results of equal calls that differ by less, as a share of their norm, differ by rounding."""
_EQUAL = 64.0
"""As `_ALIKE`, in units of the type's rounding, where only random numbers could make the difference."""
_UNEQUAL = (
    "gives other results when it is called again on equal arguments in training mode, so no kernel could be compared with it; "
    'make it a function of its arguments, or judge it with MODE = "eval" (--mode eval)'
)
_BY_CHANCE = (
    "draws random numbers ({}) and gives other results with others, so no kernel could be compared with it; "
    "draw them in get_inputs() and give them to forward"
)
_BY_STATE = (
    "keeps {} from call to call and gives other results with it, so no kernel could be compared with it; "
    "make it a function of its arguments, with what it keeps among them"
)
_MOVES_ARGUMENT = (
    "gives argument {} another shape or other memory in place (as unsqueeze_, t_ and .data do), so a next call on it would be another one; "
    "use unsqueeze, t or copy_"
)
_EVERY_MODULE_HAS = frozenset(vars(nn.Module()))
_PLAIN = (int, float, str, bytes)
_SWITCHES = ("train", "training")
"""Arguments of random operators that draw nothing where they are false."""
_SIZED_BY_VALUES = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
"""Marks of operators whose result, or what Python makes of it, may have another size for other values."""
_OTHER_DRAWS = (20261127, 20261128)
"""Seeds of inputs on which a forward that may go by values must give the same shapes."""
_OTHER_SHAPE = (
    "gives output {} another shape for other values of its inputs ({} and {}), while a kernel's result has one; pad it to a fixed size, "
    "or make what decides the size an argument that is no tensor"
)


class ForwardWatch(TorchDispatchMode):
    """Context manager around one forward, on real or fake tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds_to_half = False
        """Whether an operator makes 16-bit values of wider ones, as casts and autocast do."""
        self.decides = False
        """Whether an operator turns a move of a value's last place into a jump, as a comparison does."""
        self.random: list[str] = []
        """Operators that draw random numbers, each once."""
        self.goes_by_values = False
        """Whether a size, or what Python does next, may depend on values of tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in func.tags and name not in self.random and _draws(func, args, kwargs):
            self.random.append(name)
        self.decides = self.decides or _decides(func, name, args, kwargs, result)
        self.goes_by_values = self.goes_by_values or _goes_by_values(func, args)
        if not self.rounds_to_half and _has_half(result):
            floating = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
            self.rounds_to_half = any(tensor.dtype not in HALVES for tensor in floating)
        return result


def _decides(func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Whether an operator on floating values compares them, orders them or rounds them to whole numbers."""
    if not any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in tree_leaves((args, kwargs))):
        return False
    if name == "_to_copy":  # a cast to eight bits is a rounding that is seen in the result
        return result.dtype in EIGHTHS or not (result.is_floating_point() or result.is_complex())
    name = name.removesuffix("_") if func._schema.is_mutable else name
    return name in DECIDING or kwargs.get("rounding_mode") is not None


def _has_half(values: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in HALVES for leaf in tree_leaves(values))


def _goes_by_values(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether the size of a result depends on values; places (no masks) in an index do not decide it."""
    if func._schema.name == "aten::index":
        return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in args[1])
    return func._schema.name == "aten::_pack_padded_sequence" or any(tag in func.tags for tag in _SIZED_BY_VALUES)


def require_fixed_shapes(
    reference: Reference, model: nn.Module, watch: ForwardWatch, outputs: list[torch.Tensor], updates: tuple[str, ...] = ()
) -> None:
    """Outputs must have the same shapes for every draw of inputs. Raises TaskError, which names the way out.

    Args:
        reference: the task's file.
        model: its model.
        watch: what was around the forward that gave `outputs`; only where values may decide a size, others are drawn.
        outputs: what forward returned, then the buffers that it updates.
        updates: names of these.
    """
    for seed in _OTHER_DRAWS if watch.goes_by_values else ():
        try:
            others = reference.check_output(partial(run_forward, model, reference.draw_inputs(seed, outputs[0].device), updates))
        except TaskError as error:
            if isinstance(error.__cause__, torch.OutOfMemoryError):  # a card has no room for further inputs beside these
                return
            raise
        for number, (first, other) in enumerate(zip(outputs, others, strict=False)):
            if first.shape != other.shape:
                raise reference.refuse_forward(_OTHER_SHAPE.format(number, list(first.shape), list(other.shape)))


def _draws(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a random operator draws with these arguments: dropout of no share, as in attention, draws nothing."""
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    given = {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}
    return not any(given.get(name) == 0 for name in _CHANCES) and not any(given.get(name) is False for name in _SWITCHES)


class KeptState:
    """What a model's attributes and buffers hold beside its parameters, to find those that a forward changes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = self._read()

    def list_changed(self) -> list[str]:
        """Dotted names of attributes and buffers that hold something else now."""
        now = self._read()
        return [name for name in dict.fromkeys((*self._before, *now)) if not _are_same(self._before.get(name), now.get(name))]

    def _read(self) -> dict[str, list[tuple[Any, int]]]:
        found: dict[str, list[tuple[Any, int]]] = {}
        for path, module in self._model.named_modules():
            own = {name: value for name, value in vars(module).items() if name not in _EVERY_MODULE_HAS} | module._buffers
            for name, value in own.items():
                leaves = tree_leaves(value)
                found[f"{path}.{name}" if path else name] = [(one, one._version if isinstance(one, torch.Tensor) else 0) for one in leaves]
        return found


def _are_same(first: list[tuple[Any, int]] | None, second: list[tuple[Any, int]] | None) -> bool:
    """Whether values are the same objects, unchanged; plain ones may be equal instead."""
    if first is None or second is None or len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(
        (one is other or (isinstance(one, _PLAIN) and type(one) is type(other) and one == other)) and version == later
        for (one, version), (other, later) in pairs
    )


def find_class(
    inputs: Iterable[Any], weights: Iterable[Any], outputs: Iterable[torch.Tensor], watch: ForwardWatch
) -> PrecisionClass:
    """The class that follows from a task's own types.

    16 bit where a floating output is, where all floating inputs and weights are, or where forward itself rounds to 16 bits. Also where
    one of them has eight bits.
    """
    given = {value.dtype for value in (*inputs, *weights) if isinstance(value, torch.Tensor) and value.is_floating_point()}
    half = _has_half(list(outputs)) or (bool(given) and given <= set(HALVES)) or watch.rounds_to_half or bool(given & set(EIGHTHS))
    return PrecisionClass.HALF if half else PrecisionClass.IEEE


@dataclass(frozen=True)
class WatchedForward:
    """What one real forward of a reference showed."""

    outputs: list[torch.Tensor]
    """What forward returns, then the buffers that it updates."""
    updates: tuple[str, ...]
    precision: PrecisionClass
    structure: Structure
    """How what forward returns is nested."""
    lent: tuple[int, ...]
    """Numbers of the outputs that lie in the memory of an argument or of what the model holds."""
    decides: bool
    """Whether rounding may decide some results: an operator compares, orders or rounds floating values."""
    goes_by_values: bool
    """Whether a size, or what Python does next, may depend on values of tensors."""


def run_watched(reference: Reference, model: nn.Module, arguments: list[Any]) -> WatchedForward:
    """Run the reference once; twice in training mode, and where it draws random numbers or keeps something: its results must be the same.

    Raises TaskError.
    """
    watch, before, places, lent = ForwardWatch(), KeptState(model), _list_places(arguments), set[int]()

    def forward() -> Any:
        with watch:
            result = reference.forward(model, arguments)
        for number, (first, now) in enumerate(zip(places, _list_places(arguments), strict=True)):
            if first != now:
                raise reference.refuse_forward(_MOVES_ARGUMENT.format(number + 1))
        lent.update(_list_lent(model, arguments, result))
        return result

    if reference.task.mode == "train":
        given = [argument.clone() if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        result, found = find_updates(model, forward)
        require_no_chance(reference, model, watch)
        updates, outputs = tuple(found), [*flatten(result), *found.values()]
        kept = [name for name in before.list_changed() if name not in updates]  # what is compared starts from the same values in each call
        _require_repetition(
            outputs, lambda: run_forward(model, given, updates), lambda: reference.refuse_forward(_say_kept(kept) or _UNEQUAL),
            _EQUAL if kept else 0.0,
        )  # fmt: skip
    else:
        result = forward()
        updates, outputs = tuple[str, ...](), flatten(result)
        # initial states that are drawn leave no trace after some hundred steps, and a counter none at all; other draws and states do
        why = _BY_CHANCE.format(", ".join(watch.random)) if watch.random else _say_kept(before.list_changed())
        if why:
            _require_repetition(
                outputs, lambda: flatten(reference.forward(model, arguments)), lambda: reference.refuse_forward(why), _EQUAL
            )
    require_fixed_shapes(reference, model, watch, outputs, updates)
    precision = find_class(arguments, model.state_dict().values(), outputs, watch)
    decides = watch.decides or any(not output.is_floating_point() for output in outputs)
    lent_outputs = tuple(sorted(lent))
    return WatchedForward(outputs, updates, precision, describe(result), lent_outputs, decides, watch.goes_by_values)


def _list_lent(model: nn.Module, arguments: list[Any], result: Any) -> tuple[int, ...]:
    held = [tensor for module in model.modules() for tensor in (*module.parameters(False), *(one for _, one in list_held(module)))]
    held += [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return find_shared(list_tensors(result), held)


def _list_places(arguments: list[Any]) -> list[tuple[Any, ...]]:
    """Shape, strides and memory of each tensor."""
    return [
        (value.shape, value.stride(), value.storage_offset(), value.untyped_storage().data_ptr()) if isinstance(value, torch.Tensor) else ()
        for value in arguments
    ]


def _say_kept(names: list[str]) -> str:
    return _BY_STATE.format(", ".join(f"self.{name}" for name in names)) if names else ""


def _require_repetition(
    outputs: list[torch.Tensor], again: Callable[[], list[torch.Tensor]], refuse: Callable[[], TaskError], most_eps: float = 0.0
) -> None:
    """Raises TaskError where a second call under another seed gives other results, beyond what the order of a sum makes for.

    `most_eps`: the largest difference in units of the type's rounding; 0 for a share of the norm, and for floating results alone.
    """
    state = random.getstate()
    random.seed(_OTHER_SEED)
    with torch.random.fork_rng(devices=list({tensor.device for tensor in outputs if tensor.is_cuda})):
        torch.manual_seed(_OTHER_SEED)
        repeated = again()
    random.setstate(state)
    for first, second in zip(outputs, repeated, strict=True):
        if not first.is_floating_point():
            differs = bool(most_eps) and not torch.equal(first, second)
        else:
            alike = most_eps * torch.finfo(first.dtype).eps if most_eps else _ALIKE
            differs = float((first.double() - second.double()).norm()) > alike * float(first.double().norm())
        if differs:
            raise refuse()


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
