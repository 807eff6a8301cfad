"""nn.GRU, nn.LSTM and nn.RNN: for each layer and direction a product for the input of all steps, and the steps one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.operators import Operand
from tritonsmith.author.compiler.ir.recurrence import LastCell, Recurrence
from tritonsmith.author.compiler.ir.stacks import STACKS, StackCall, StackSizes, StackText
from tritonsmith.author.compiler.ir.torch_calls import TorchCall, Way
from tritonsmith.author.compiler.ir.values import BYTES, Item, Joined, Tensor
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.products import add_bias, apply_linear, multiply
from tritonsmith.author.compiler.lowering.views import pick, reshape, swap
from tritonsmith.author.cost import Way as ProductWay
from tritonsmith.author.cost import time_inner_launches, time_launches, time_product, time_steps
from tritonsmith.author.types import AS_THEY_ARE, MATRICES

_LAUNCHES_OF_STEP = 2
"""Kernels that a library starts for a step of a layer."""
_BATCHED = 3
"""Axes of a batch of sequences."""


@dataclass(frozen=True)
class Layers:
    """What a module of recurrent layers is."""

    kind: str
    number: int
    directions: int
    batch_first: bool
    activation: str
    unbatched: bool


def _run(call: NodeCall) -> Lowered:
    source, given = call.tensor(0, "input"), call.get(1, "hx", default=None)
    layers = _describe(call, source)
    states, cells = _list_states(given, layers)
    stack = _find_stack(call, layers, source)
    if stack is not None and _are_both(states, cells, layers):
        return _call_stack(call, layers, source, stack, states, cells)
    value = reshape(source, (source.shape[0], 1, source.shape[1])) if layers.unbatched else source
    lasts: list[Tensor] = []
    ends: list[Tensor] = []
    for layer in range(layers.number):
        ways = [_run_layer(call, layers, value, layer, way, (states, cells)) for way in range(layers.directions)]
        for one in ways:
            last = 0 if one.reverse else one.steps - 1
            lasts.append(pick(one, 1 if layers.batch_first else 0, last))
            ends += [LastCell(shape=lasts[-1].shape, dtype=one.dtype, name="cell", recurrence=one)] if layers.kind == "LSTM" else []
        value = ways[0] if len(ways) == 1 else _join(ways, 2)
    sequence = reshape(value, call.shape)
    kept = tuple(_stack(one, layers) for one in ((lasts, ends) if layers.kind == "LSTM" else (lasts,)))
    return (sequence, kept if layers.kind == "LSTM" else kept[0])  # type: ignore[return-value]


def _are_both(states: Tensor | None, cells: Tensor | None, layers: Layers) -> bool:
    """Whether both initial states of an LSTM are given, or none."""
    return layers.kind != "LSTM" or (states is None) == (cells is None)


def _find_stack(call: NodeCall, layers: Layers, source: Tensor) -> StackText | None:
    """Kernels of another family for the whole module, where they are predicted to be faster than a kernel for each layer."""
    weight = call.weight(-1, "weight_hh_l0")
    if layers.unbatched or weight is None or call.node.constructor is None or not source.size:
        return None
    types = {spec.dtype for name, spec in call.facts.parameters.items() if name.startswith(f"{call.node.target}.")}
    if types != {source.dtype} or source.dtype not in MATRICES:
        return None
    steps, batch = source.shape[1::-1] if layers.batch_first else source.shape[:2]
    hidden = weight.shape[1]
    sizes = StackSizes(
        layers.kind, layers.activation, layers.directions, layers.number, source.shape[2], hidden, steps, batch, source.dtype, call.parts
    )  # fmt: skip
    text = STACKS.write(sizes, call.card)
    if text is None:
        return None
    each = time_steps(call.card, steps, batch, weight.shape[0] * hidden * BYTES[source.dtype]) + time_launches(2)
    number = layers.number * layers.directions
    return text if text.seconds < min(each * number, _predict_library(sizes, weight.shape[0], call.card)) else None


def _predict_library(sizes: StackSizes, gates: int, card: CardModel) -> float:
    """Seconds of PyTorch's call: its products, and its launches for each step of each layer and direction. `gates`: rows of a weight."""
    number = sizes.layers * sizes.directions
    width = sizes.directions * sizes.inputs + (sizes.layers - 1) * sizes.directions**2 * sizes.hidden + number * sizes.hidden
    way = ProductWay.HALF if sizes.dtype in AS_THEY_ARE else ProductWay.THREADS if sizes.exact else ProductWay.TF32
    multiplying = time_product(card, 2.0 * sizes.batch * sizes.steps * gates * width, way, card.fits.calls.matrix)
    return multiplying + time_inner_launches(_LAUNCHES_OF_STEP) * sizes.steps * number


def _call_stack(
    call: NodeCall, layers: Layers, source: Tensor, stack: StackText, states: Tensor | None, cells: Tensor | None
) -> Lowered:
    """The results of a module whose kernels another family has."""
    inputs = [one for one in (source, states, cells) if one is not None]
    given = [Operand(place) for place in range(len(inputs))]
    hidden = () if states is None else ((given[1], given[2]),) if layers.kind == "LSTM" else (given[1],)
    made = StackCall(
        shape=call.shape, dtype=call.dtype, name=call.node.name, record=TorchCall(Way.MEMBER, call.node.target, (given[0], *hidden)),
        inputs=tuple(inputs), says=f"nn.{layers.kind}", several=True, stack=stack,
    )  # fmt: skip
    places: tuple[tuple[int, ...], ...] = ((0,), (1, 0), (1, 1)) if layers.kind == "LSTM" else ((0,), (1,))
    items = [
        Item(shape=spec.shape, dtype=spec.dtype, name=call.node.name, call=made, places=at)
        for spec, at in zip(call.node.outputs, places, strict=True)
    ]  # fmt: skip
    return (items[0], tuple(items[1:]) if layers.kind == "LSTM" else items[1])  # type: ignore[return-value]


def _describe(call: NodeCall, source: Tensor) -> Layers:
    """The layers of a call. Raises NotCovered for those that no kernel does."""
    found = Layers(
        kind=call.node.module_type, number=int(call.get(-1, "num_layers", default=1)),
        directions=2 if call.get(-1, "bidirectional", default=False) else 1,
        batch_first=bool(call.get(-1, "batch_first", default=False)) and len(source.shape) == _BATCHED,
        activation=str(call.get(-1, "nonlinearity", default="tanh")), unbatched=len(source.shape) < _BATCHED,
    )  # fmt: skip
    chance = call.training and call.get(-1, "dropout", default=0.0) and found.number > 1
    if call.get(-1, "proj_size", default=0) or chance or source.dtype not in MATRICES:
        raise NotCovered("with a projection, dropout or other types")
    return found


def _list_states(given: Any, layers: Layers) -> tuple[Tensor | None, Tensor | None]:
    """The initial states, and for an LSTM the initial cells; None for zeros."""
    if layers.kind == "LSTM" and given is not None:
        states, cells = given
    else:
        states, cells = given, None
    if not all(one is None or isinstance(one, Tensor) for one in (states, cells)):
        raise NotCovered("with states that are no tensors")
    return states, cells


def _run_layer(
    call: NodeCall, layers: Layers, value: Tensor, layer: int, way: int, given: tuple[Tensor | None, Tensor | None]
) -> Recurrence:
    """All steps of a layer in one direction."""
    ending = f"l{layer}{'_reverse' if way else ''}"
    fresh, weight = call.weight(-1, f"weight_ih_{ending}"), call.weight(-1, f"weight_hh_{ending}")
    if fresh is None or weight is None:
        raise NotCovered("without weights")
    bias, node = call.weight(-1, f"bias_ih_{ending}"), f"{call.node.name}_{ending}"
    if node in call.called:
        gates: Tensor = apply_linear(value, fresh, bias)
    else:
        gates = add_bias(multiply(value, swap(fresh, 0, 1), f"gates_{ending}", node), bias, value.dtype)
    place = layer * layers.directions + way
    batch = value.shape[0] if layers.batch_first else value.shape[1]
    shape = (batch, weight.shape[1])
    state, cell = (None if one is None else reshape(pick(one, 0, place), shape) for one in given)
    return Recurrence(
        shape=(*value.shape[:2], weight.shape[1]), dtype=value.dtype, name=f"{layers.kind.lower()}_{ending}", kind=layers.kind,
        activation=layers.activation, fresh=gates, weight=weight, bias=call.weight(-1, f"bias_hh_{ending}"), state=state, cell=cell,
        batch_first=layers.batch_first, reverse=bool(way), node=call.node.name,
    )  # fmt: skip


def _join(parts: list[Any], axis: int) -> Tensor:
    """Tensors one behind the other."""
    shape = list(parts[0].shape)
    shape[axis] = sum(one.shape[axis] for one in parts)
    return Joined(shape=tuple(shape), dtype=parts[0].dtype, parts=tuple(parts), axis=axis)


def _stack(lasts: list[Tensor], layers: Layers) -> Tensor:
    """What is left of all layers and directions, below each other."""
    rows = [one if layers.unbatched else reshape(one, (1, *one.shape)) for one in lasts]
    return rows[0] if len(rows) == 1 else _join(rows, 0)


TABLE: dict[str, Lower] = dict.fromkeys(("nn.GRU", "nn.LSTM", "nn.RNN"), _run)
