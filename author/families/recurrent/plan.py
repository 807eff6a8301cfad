"""Reads the traced forward of a task: is it a recurrent stack, and what is made of its results?"""

from __future__ import annotations

from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.families.recurrent.holder import call_holder
from tritonsmith.author.members import Line, Member, attribute, complete_members, list_parameter, list_parents, settle_members
from tritonsmith.author.plan import KernelPlan, NoPlan, forward_arguments
from tritonsmith.author.types import BYTES, IN_PARTS, MATRICES, PART, PLAIN
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.records.plain import Plain
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts, TensorSpec
from tritonsmith.prompts.node_names import GETITEM, name_node

CASTS = ("to", "float", "contiguous", "cuda", "detach")
"""Methods that change neither values nor shape."""
GATES = {"GRU": ("reset", "update", "new"), "LSTM": ("enter", "forget", "new", "out"), "RNN": ("new",)}
"""Gates of each kind of cell, in the order in which PyTorch stacks their weights."""
_ZEROS = ("zeros", "zeros_like", "new_zeros")
_DRAWN = ("torch.randn", "torch.rand")
"""Functions that draw initial states."""
_ASKED = ("device", "shape")
"""What initial states are made by, of forward's arguments."""
_RESULTS = {"GRU": ("sequence", "last"), "LSTM": ("sequence", ("last", "cell")), "RNN": ("sequence", "last")}
"""What each kind of module returns."""


class RecurrentPlan(KernelPlan):
    """A recurrent stack and what is made of its results: `sequence`, `last` and, for an LSTM, `cell`."""

    kind: str
    """GRU, LSTM or RNN."""
    activation: str = "tanh"
    """What an RNN applies: tanh or relu."""
    directions: int = 1
    holder: str
    """The member of the module that holds the weights."""
    dtype: str = "float32"
    """Of weights, inputs and results; 16-bit ones are computed with in fp32 states and fp16 products."""
    x: str
    h0: str
    h0_dtype: str = "float32"
    c0: str = "None"
    c0_dtype: str = "float32"
    tail: tuple[str, ...]
    needs_sequence: bool
    needs_last: bool
    needs_cell: bool = False
    linear: bool
    input_size: int
    hidden_size: int
    num_layers: int
    steps: int
    batch: int
    returns: str

    def shortest_chain(self, facts: TaskFacts) -> int:
        """Time steps plus layers minus one, as a wavefront takes; in two directions a layer waits for the whole sequence below it."""
        return self.steps + self.num_layers - 1 if self.directions == 1 else self.steps * self.num_layers

    @property
    def name(self) -> str:
        """Of variables and kernels."""
        return self.kind.lower()

    @property
    def article(self) -> str:
        """In front of the kind in a sentence."""
        return "a" if self.kind == "GRU" else "an"

    @property
    def gate_names(self) -> tuple[str, ...]:
        """In the order in which PyTorch stacks the gates' weights."""
        return GATES[self.kind]

    @property
    def gates(self) -> int:
        """How many gates a cell has."""
        return len(self.gate_names)

    @property
    def tile_gates(self) -> int:
        """Gates of a weight tile, whose number of rows is a power of two."""
        return 1 << (self.gates - 1).bit_length()

    @property
    def keeps_cell(self) -> bool:
        """Whether a cell has a state beside h."""
        return self.kind == "LSTM"

    @property
    def wide(self) -> bool:
        """Whether states may be of any size, so that fp16 parts cannot hold them."""
        return self.kind == "RNN" and self.activation == "relu"

    @property
    def half(self) -> bool:
        """Whether weights and results have 16 bits."""
        return self.dtype not in IN_PARTS

    @property
    def returned(self) -> tuple[str, ...]:
        """Names of what `run` returns and forward reads."""
        asked = {"sequence": self.needs_sequence, "last": self.needs_last, "cell": self.needs_cell}
        return tuple(name for name, needed in asked.items() if needed)

    @property
    def part_type(self) -> str:
        """Type of the parts of an operand."""
        return PLAIN if self.wide else PART

    @property
    def part_bytes(self) -> int:
        """Bytes of one value of a part."""
        return BYTES[self.part_type]

    @property
    def precision(self) -> str:
        """Last argument of a product of parts."""
        return ', input_precision="tf32"' if self.wide else ""

    @property
    def states(self) -> str:
        """Names of the initial states."""
        return "h0, c0" if self.keeps_cell else "h0"

    @property
    def results(self) -> str:
        """Names of what `run` returns."""
        return "sequence, last, cell" if self.keeps_cell else "sequence, last"

    def sums(self, side: str) -> tuple[str, ...]:
        """Names of the sums that one side's product adds to; a GRU needs the two parts of its new gate apart."""
        return (*self.gate_names[:2], f"new_{side}") if self.kind == "GRU" else self.gate_names

    def of_gates(self, size: str, factor: str = "") -> str:
        """A product of sizes with the number of gates, as an expression."""
        return " * ".join(part for part in (factor, str(self.gates) if self.gates > 1 else "", size) if part)

    def widest(self, size: str) -> str:
        """The widest row of all layers' gates and states, as an expression."""
        most = max(self.gates, self.directions)
        return f"{most} * {size}" if most > 1 else size

    def tile_rows(self, size: str) -> str:
        """Rows of a weight tile, as an expression."""
        return f"{self.tile_gates} * {size}" if self.tile_gates > 1 else size

    def times(self, index: int, size: str) -> str:
        """What is added to a pointer to reach a gate's part: ``, ` + H`, ` + 2 * H`."""
        return "" if index == 0 else f" + {size}" if index == 1 else f" + {index} * {size}"

    def gate_at(self, step: str, index: int) -> str:
        """Number of a gate's plane among those of all steps, as a factor."""
        if self.gates == 1:
            return step
        return f"({step} * {self.gates} + {index})" if index else f"{step} * {self.gates}"


def read_recurrent(task: Task, facts: TaskFacts, card: CardModel) -> RecurrentPlan:
    """The plan of a stack of GRU, LSTM or RNN layers. Raises NoPlan.

    Results may be returned as they are, as a slice, or through nn.Linear.
    """
    nodes = [node for node in facts.ops if node.module_type in GATES and node.op == "call_module"]
    if not nodes:
        raise NoPlan
    if len(nodes) > 1:
        raise NoPlan  # which other families write
    if facts.size_lines:  # the kernels take any number of steps and rows, and this trace holds for one
        asks = nodes[0].model_copy(update={"line": facts.size_lines[0]})
        raise NoPlan((f"a forward that goes by the sizes of tensors next to {name_node(nodes[0])}", asks))
    return _Reader(task, facts, card, nodes[0]).plan()


class _Reader:
    """Walks the trace once and writes forward's tail."""

    def __init__(self, task: Task, facts: TaskFacts, card: CardModel, node: OpNode) -> None:
        self.task, self.facts, self.card, self.node = task, facts, card, node
        self.layers, self.directions = int(node.attributes.get("num_layers", 1)), 2 if node.attributes.get("bidirectional") else 1
        self.values: dict[str, Any] = {}
        """What each node gives: its expression in forward, or a tuple of them."""
        self.linears: list[str] = []
        self.members: list[Line] = []
        self.dtypes: dict[str, str] = {}
        """Types of inputs and parameters, by their expression in forward."""
        self.picks_step = False
        """Whether forward picks the last step out of the sequence, which depends on its layout."""
        self.indexes = False
        """Whether forward indexes with a number of its own, which may come from an argument."""

    def plan(self) -> RecurrentPlan:
        node, attributes = self.node, self.node.attributes
        if attributes.get("proj_size"):
            raise NoPlan(("an nn.LSTM with proj_size", node))
        if not node.args:
            raise NoPlan((f"{name_node(node)} with its input by name", node))
        spec = _input_spec(self.facts, node)
        for item in self.facts.ops:
            self._visit(item)
        (result,) = [item for item in self.facts.ops if item.op == "output"]
        value = self._text(result.args[0], result)
        for written, what in (("None", "zeros"), *((name, "random numbers") for name in _DRAWN)):
            if written in value:
                raise NoPlan((f"{what} in what forward returns", result))
        first = bool(attributes.get("batch_first", False))
        steps, batch = (spec.shape[1], spec.shape[0]) if first else (spec.shape[0], spec.shape[1])
        places = {"layout": self.picks_step, "kept": self.indexes}
        make, signature, fixed = call_holder(self.task.source, self.facts, node, dtype=spec.dtype, **places)
        h0, c0 = self._initial_states()
        return RecurrentPlan(
            card=self.card,
            signature=signature,
            fixed=fixed,
            members=settle_members((*list_parents(node.target, of_module=True), Member(node.target, make), *self._members())),
            arguments=forward_arguments(self.facts),
            kind=node.module_type,
            activation=str(attributes.get("nonlinearity", "tanh")),
            directions=self.directions,
            holder=attribute(node.target),
            dtype=spec.dtype,
            x=self._text(node.args[0], node),
            h0=h0,
            h0_dtype=self.dtypes.get(h0, "float32"),
            c0=c0,
            c0_dtype=self.dtypes.get(c0, "float32"),
            tail=(f"return {value}",),
            needs_sequence="sequence" in value,
            needs_last="last" in value,
            needs_cell="cell" in value,
            linear=bool(self.linears),
            input_size=int(attributes["input_size"]),
            hidden_size=int(attributes["hidden_size"]),
            num_layers=self.layers,
            steps=steps,
            batch=batch,
            returns=self.facts.returns or value,
        )

    def _members(self) -> list[Line]:
        """Lines for all parameters but those of the GRU, also for those that forward does not touch."""
        owners = (self.node.target, *self.linears)
        names = [name for name in self.facts.parameters if not name.startswith(tuple(f"{owner}." for owner in owners))]
        return complete_members(self.members, names, self.facts)

    def _initial_states(self) -> tuple[str, str]:
        """The expressions of h0 and c0; None where they are zero."""
        given = self.node.args[1] if len(self.node.args) > 1 else self.node.kwargs.get("hx")
        if given is None:
            return "None", "None"
        if self.node.module_type != "LSTM":
            return self._text(given, self.node), "None"
        if not isinstance(given, (list, tuple)) or len(given) != 2:
            raise NoPlan(("initial states of nn.LSTM that are no pair", self.node))
        return self._text(given[0], self.node), self._text(given[1], self.node)

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            spec = self.facts.inputs[len(self.dtypes)] if len(self.dtypes) < len(self.facts.inputs) else None
            if spec is None and self.facts.traced_by is TraceWay.RUN:
                raise NoPlan((f"the argument {node.target} of forward, which is no tensor and which forward may go by", node))
            self.dtypes[node.target] = spec.dtype if spec else "float32"
            self.values[node.name] = node.target
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise NoPlan((f"self.{node.target}, which is neither a parameter nor a persistent buffer", node))
            self.members.extend(list_parameter(node.target, self.facts))
            self.values[node.name] = attribute(node.target)
            self.dtypes[self.values[node.name]] = self.facts.parameters[node.target].dtype
        elif node is self.node:
            self.values[node.name] = _RESULTS[node.module_type]
        elif node.op == "call_module" and node.module_type == "Linear":
            self._linear(node)
        elif node.target in GETITEM:
            self._getitem(node)
        elif node.op == "call_method" and node.target in CASTS and node.args:
            text = self._text(node.args[0], node)
            if text.startswith(_DRAWN) and node.target in ("to", "cuda"):  # which generator draws is the reference's choice
                text = f"{text}.{node.target}({', '.join(self._text(place, node) for place in node.args[1:])})"
            self.values[node.name] = text
        elif node.target.rpartition(".")[2] in _ZEROS and node.op in ("call_function", "call_method"):
            self.values[node.name] = "None"
        elif node.target in _DRAWN and node.op == "call_function":
            self._draw(node)
        elif node.target == "builtins.getattr" and node.args[1] in _ASKED and node.args[0] in self._inputs():
            self.values[node.name] = f"{self._text(node.args[0], node)}.{node.args[1]}"
        elif node.op == "call_method" and node.target == "size":
            if len(node.args) > 1 and node.args[0] in self._inputs():
                self.values[node.name] = f"{self._text(node.args[0], node)}.size({node.args[1]})"
        elif node.op != "output":
            raise NoPlan((f"{name_node(node)} next to {name_node(self.node)}", node))

    def _inputs(self) -> list[Plain]:
        """Forward's own arguments, as nodes name them."""
        return [{"ref": node.name} for node in self.facts.ops if node.op == "placeholder"]

    def _draw(self, node: OpNode) -> None:
        """Random numbers stay PyTorch's call: under one seed they are the reference's, where it draws h0 before c0."""
        shape = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], list | tuple) else node.args
        sizes = [str(size) if isinstance(size, int) else self._text(size, node) for size in shape]
        readers = sum(other.references.count(node.name) for other in self.facts.ops)
        if readers != 1 or set(node.kwargs) - {"device"}:
            raise NoPlan((f"{name_node(node)} next to {name_node(self.node)}", node))
        device = node.kwargs.get("device")
        place = "" if device is None else f", device={self._text(device, node)}"
        self.values[node.name] = f"{node.target}({', '.join(sizes)}{place})"

    def _linear(self, node: OpNode) -> None:
        if not node.args:
            raise NoPlan(("nn.Linear with its input by name", node))
        value = self._text(node.args[0], node)
        inputs, outputs = int(node.attributes["in_features"]), int(node.attributes["out_features"])
        bias = bool(node.attributes.get("bias", f"{node.target}.bias" in self.facts.parameters))
        self.linears.append(node.target)
        self.members.extend(list_parents(node.target, of_module=True))
        dtype = _input_spec(self.facts, self.node).dtype  # PyTorch takes no other for the weights
        self.members.append(Member(node.target, f"Dense({inputs}, {outputs}, {bias}{'' if dtype == 'float32' else f', torch.{dtype}'})"))
        self.values[node.name] = f"{attribute(node.target)}.apply_to({value})"

    def _getitem(self, node: OpNode) -> None:
        source, index = node.args[0], node.args[1]
        value = self.values.get(source["ref"]) if isinstance(source, dict) and "ref" in source else None
        if isinstance(value, tuple):
            if not isinstance(index, int) or not -len(value) <= index < len(value):
                raise NoPlan((f"this part of what {name_node(self.node)} returns", node))
            self.values[node.name] = value[index]
            return
        text = self._text(source, node)
        if text.endswith(".shape") and isinstance(index, int):
            self.values[node.name] = f"{text}[{index}]"
        elif text == "sequence" and self.directions == 1 and _is_last_step(index, bool(self.node.attributes.get("batch_first"))):
            self.values[node.name] = "last[-1]"
            self.picks_step = True
        elif text in ("sequence", "last", "cell") and (written := _write_index(index)):
            self.values[node.name] = f"{text}[{written}]"
            self.picks_step = self.picks_step or text == "sequence"
            self.indexes = self.indexes or any(character.isdigit() for character in written.replace("-1", ""))
        elif isinstance(index, int) and "." not in text and text not in ("sequence", "last", "cell", "None"):
            self.values[node.name] = f"{text}[{index}]"
            self.indexes = True
        else:
            raise NoPlan((f"this part of what {name_node(self.node)} returns", node))

    def _text(self, value: Any, node: OpNode) -> str:
        if isinstance(value, dict) and value.get("ref") in self.values:
            return self._write(self.values[value["ref"]])
        if isinstance(value, (list, tuple)) and value:
            return "(" + ", ".join(self._text(item, node) for item in value) + ",)"
        returned = node.op == "output"
        raise NoPlan(("a forward that returns something else than tensors" if returned else f"this input of {name_node(node)}", node))

    def _write(self, value: Any) -> str:
        return f"({', '.join(map(self._write, value))})" if isinstance(value, tuple) else str(value)


def _input_spec(facts: TaskFacts, node: OpNode) -> TensorSpec:
    spec = facts.inputs[0] if facts.inputs else None
    if spec is None or len(spec.shape) != 3:
        raise NoPlan((f"{name_node(node)} without a batch", node))
    others = {one.dtype for name, one in facts.parameters.items() if name.startswith(f"{node.target}.")} - {spec.dtype}
    if others or spec.dtype not in MATRICES:
        raise NoPlan((f"{name_node(node)}{''.join(f' of {one}' for one in others)} on {spec.dtype}", node))
    return spec


def _write_index(index: Any) -> str:
    """A constant index as Python writes it; empty where it is not constant."""
    parts = index if isinstance(index, (list, tuple)) else [index]
    written = [_write_part(part) for part in parts]
    return ", ".join(written) if all(written) else ""


def _write_part(part: Any) -> str:
    if isinstance(part, int) and not isinstance(part, bool):
        return str(part)
    if isinstance(part, dict) and part.get("ellipsis"):
        return "..."
    ends = part.get("slice") if isinstance(part, dict) else None
    if not isinstance(ends, (list, tuple)) or not all(end is None or isinstance(end, int) for end in ends):
        return ""
    start, stop, step = ("" if end is None else str(end) for end in ends)
    return f"{start}:{stop}" + (f":{step}" if step else "")


def _is_last_step(index: Any, batch_first: bool) -> bool:
    if not isinstance(index, (list, tuple)):
        return index == -1 and not batch_first
    position = 1 if batch_first else 0
    others = [item for n, item in enumerate(index) if n != position]
    return len(index) > position and index[position] == -1 and all(_is_full_slice(item) for item in others)


def _is_full_slice(item: Any) -> bool:
    if isinstance(item, dict):
        parts = item.get("slice", [item.get("start"), item.get("stop"), item.get("step")])
        return parts is None or all(part is None for part in parts)
    return isinstance(item, slice) and item == slice(None) or str(item) in ("slice(None, None, None)", "...", "Ellipsis", ":")
