"""A task file in KernelBench's format, written from an exported program. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.draws import write_draw
from tritonsmith.modules.bringing.graph import Body, BodyWriter, list_submodules
from tritonsmith.modules.bringing.sizes import Sizes, plain_size
from tritonsmith.modules.bringing.state import State, collect_state, write_state
from tritonsmith.modules.bringing.structure import Signature, mark_constants

WEIGHTS, INPUTS, TASK = "weights.pt", "inputs.pt", "task.py"
"""Names of the files of a task's folder."""


@dataclass
class WrittenTask:
    """A task file, and what belongs beside it."""

    text: str
    signature: Signature
    state: dict[str, torch.Tensor]
    """What `weights.pt` holds."""
    inputs: list[torch.Tensor]
    """What `inputs.pt` holds."""
    sizes: dict[str, int]
    """Module-level names of sizes, with the values of the real inputs."""
    shapes: dict[str, tuple[Any, ...]]
    """By argument, its sizes as the export has them."""
    size_names: Sizes
    leaves: list[Any]
    """Of the real call, those that the task does not take too."""


class TaskWriter:
    """Writes the task of one exported program.

    Args:
        program: the export.
        module: the original, in its mode.
        leaves: those of the call that it was exported with.
        spec: the structure of that call.
        real: leaves of the same structure whose values and sizes are the real ones, where others were exported.
    """

    def __init__(
        self,
        program: ExportedProgram,
        module: nn.Module,
        leaves: Sequence[Any],
        spec: Any,
        real: Sequence[Any] | None = None,
    ) -> None:
        self.program, self.module, self.spec = program, module, spec
        self.leaves = leaves if real is None else real
        self.graph: fx.Graph = program.graph
        self.places = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}
        self.kinds = {
            one.arg.name: one for one in program.graph_signature.input_specs if hasattr(one.arg, "name")
        }

    def write(self, title: str, *, with_layers: bool = True) -> WrittenTask:
        """The task; `with_layers` writes layers of torch.nn as such, else everything is a function. Raises NotImplementedError."""
        state, constants, inputs, numbers = self._sort_placeholders()
        names = self._name_inputs(inputs)
        device = self._say_device(names, inputs, state)
        modules = dict(self.module.named_modules()) if with_layers else {}
        outputs = self._list_outputs()
        tensors = [one for one in outputs if isinstance(one, fx.Node)]
        body = BodyWriter(state, names, modules, device).write(self.graph, tensors)
        held = collect_state(self.module, constants, [path for node, path in state.items() if node.users])
        sizes, shapes = Sizes(), {}
        for node, number in zip(inputs, numbers, strict=True):
            shapes[names[node]] = tuple(map(plain_size, node.meta["val"].shape))
            sizes.add(names[node], shapes[names[node]], self.leaves[number])
        draws = [write_draw(self.leaves[number], [sizes.say(size) for size in shapes[names[node]]], _find_rows(node, held, state))
                 for node, number in zip(inputs, numbers, strict=True)]  # fmt: skip
        text = _join(
            title, sizes, held, body, list(names.values()), draws, "train" if self.module.training else "eval"
        )
        signature = Signature(
            self.spec, tuple(numbers), mark_constants(self.leaves, numbers), self.program.call_spec.out_spec,
            tuple(_number(outputs)), {number: one for number, one in enumerate(outputs) if not isinstance(one, fx.Node)},
            dict(held.origins), "train" if self.module.training else "eval",
        )  # fmt: skip
        real = [self.leaves[number] for number in numbers]
        return WrittenTask(
            text, signature, held.values, real, dict(sizes.values), shapes, sizes, list(self.leaves)
        )

    def _sort_placeholders(
        self,
    ) -> tuple[dict[fx.Node, str], dict[str, torch.Tensor], list[fx.Node], list[int]]:
        """Placeholders of the state with their paths, constants by path, those of inputs that are read, and the leaves that these are."""
        state: dict[fx.Node, str] = {}
        constants = {
            name: value for name, value in self.program.constants.items() if isinstance(value, torch.Tensor)
        }
        inputs, numbers, seen = [], [], -1
        for name, node in self.places.items():
            spec = self.kinds.get(name)
            if spec is None or spec.kind is InputKind.USER_INPUT:
                seen += 1
                if isinstance(node.meta.get("val"), torch.Tensor) and node.users:
                    inputs.append(node)
                    numbers.append(seen)
            elif spec.target is not None:
                state[node] = str(spec.target)
        return state, constants, inputs, numbers

    def _name_inputs(self, inputs: Sequence[fx.Node]) -> dict[fx.Node, str]:
        names: dict[fx.Node, str] = {}
        for node in inputs:
            base = (
                node.name if not node.name.startswith(("args_", "kwargs_")) else node.name.partition("_")[2]
            )
            base = base if base.isidentifier() else f"x{base}"
            name = base
            while name in names.values() or name in ("self", "torch", "nn", "F", "math", "Model"):
                name += "_"
            names[node] = name
        return names

    def _say_device(
        self, names: Mapping[fx.Node, str], inputs: Sequence[fx.Node], state: Mapping[fx.Node, str]
    ) -> str:
        """The expression of the one device. Raises UsageError where there are several."""
        tensors = [
            *self.module.state_dict().values(),
            *(leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)),
        ]
        devices = sorted({str(tensor.device) for tensor in tensors if isinstance(tensor, torch.Tensor)})
        if len(devices) > 1:
            raise UsageError(
                f"the module and its inputs lie on several devices ({', '.join(devices)}); move all of them to one"
            )
        if inputs:
            return f"{names[inputs[0]]}.device"
        return next(("next(self.parameters()).device" for _ in state), "None")

    def _list_outputs(self) -> list[Any]:
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        found = list(output.args[0])
        specs = self.program.graph_signature.output_specs
        return [
            one
            for one, spec in zip(found, specs, strict=True)
            if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        ]


def _number(outputs: Sequence[Any]) -> list[int | None]:
    places, count = list[int | None](), 0
    for one in outputs:
        places.append(count if isinstance(one, fx.Node) else None)
        count += isinstance(one, fx.Node)
    return places


def _find_rows(node: fx.Node, held: State, state: Mapping[fx.Node, str]) -> int | None:
    """The rows of the table that whole numbers of an input choose from."""
    for user in node.users:
        if str(user.target).startswith("aten.embedding") and user.args[1] is node:
            return held.values[state[user.args[0]]].shape[0]  # type: ignore[index]
    return None


def _join(
    title: str, sizes: Sizes, held: State, body: Body, names: list[str], draws: list[str], mode: str
) -> str:
    """The text of the file."""
    made = write_state(held, body.layers)
    results = ", ".join(body.results)
    forward = [*body.lines, f"return {results if len(body.results) == 1 else f'({results})'}"]
    inside = "\n".join(f"        {line}" for line in ("super().__init__()", *made))
    heads = [f'MODE = "{mode}"'] * (mode == "train") + [f'WEIGHTS = "{WEIGHTS}"', f'INPUTS = "{INPUTS}"']
    named = [f"{name} = {value}" for name, value in sizes.values.items()]
    uses_functions = any("F." in line for line in forward)
    imports = ["import math", ""] * any("math." in line for line in forward)
    imports += [
        "import torch",
        *(["import torch.nn.functional as F"] if uses_functions else []),
        "from torch import nn",
    ]
    return "\n".join([
        f'"""{title}"""', "", *imports, "", *named, *[""] * bool(named), *heads, "", "",
        "class Model(nn.Module):", "    def __init__(self):", inside, "",
        f"    def forward(self, {', '.join(names)}):", *(f"        {line}" for line in forward), "", "",
        "def get_inputs():", "    return [", *(f"        {draw}," for draw in draws), "    ]", "", "",
        "def get_init_inputs():", "    return []", "",
    ])  # fmt: skip


def use_real_inputs(written: WrittenTask) -> WrittenTask:
    """The task whose get_inputs gives the real inputs each time, for a module that others mean nothing to."""
    head, _, rest = written.text.partition("def get_inputs():\n")
    tail = rest[rest.index("def get_init_inputs") :]
    head = head.replace("import torch\n", "from pathlib import Path\n\nimport torch\n", 1)
    body = "    return torch.load(Path(__file__).parent / INPUTS)\n\n\n"
    return replace(written, text=f"{head}def get_inputs():\n{body}{tail}")


def refuse_regions(graph: fx.Graph) -> None:
    """Raise NotImplementedError for control flow that an export keeps."""
    for inner in list_submodules(graph):
        for node in inner.nodes:
            name = getattr(node.target, "_name", "")
            if isinstance(node.target, torch._ops.HigherOrderOperator) and name not in (
                "wrap_with_set_grad_enabled",
                "wrap_with_autocast",
            ):
                raise NotImplementedError(f"a region of the kind {name}")
