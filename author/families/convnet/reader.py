"""Reads the traced forward of a convolution network into steps, each with all that one kernel can do behind its product."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.constructor import made_for
from tritonsmith.author.families.convnet.classes import find_class_count, make_tables, write_members
from tritonsmith.author.families.convnet.elements import ElementReader
from tritonsmith.author.families.convnet.plan import NetworkLayer, NetworkPlan, StepKind
from tritonsmith.author.families.convnet.steps import MEASURE, NORM, POOL, Image, list_references
from tritonsmith.author.families.convnet.windows import POOLS, read_convolution
from tritonsmith.author.plan import KernelPlan, NoPlan, forward_arguments
from tritonsmith.author.types import MATRICES
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts
from tritonsmith.prompts.node_names import GETITEM, name_node, operation_name

_MOST_GATHERED = 1024
"""Products in one value of a first layer that reads the input in its own layout; a deeper one reads a channels-last copy."""
_VIEWS = ("flatten", "view", "reshape", "Flatten")
_SIZES = ("size", "getattr", "numel", "dim")
_COMPUTED = ("call_module", "call_function", "call_method")


class NetworkReader(ElementReader):
    """Walks the trace once. A step stays open for what follows it as long as nobody else reads its result."""

    def plan(self) -> NetworkPlan:
        """The plan. Raises NoPlan where the task is no convolution network, or has an operator that no step does."""
        facts = self.facts
        if not any(node.module_type == "Conv2d" for node in facts.ops):
            raise NoPlan
        if len(facts.outputs) != 1:
            raise NoPlan((f"a forward that returns {len(facts.outputs)} tensors", None))
        self._refuse_unknown()
        returned = ""
        for node in facts.ops:
            try:
                returned = self._visit(node) or returned
            except ValueError as error:
                raise NoPlan((str(error), node)) from None
        classes = find_class_count(self.task.source, facts, [step.layer for step in self.steps if step.layer is not None])
        signature, fixed = made_for(self.task.source, facts.init_inputs)
        spec = next(spec for spec in facts.inputs if spec is not None)
        channels, *size = spec.shape[1:]
        largest = max(step.channels * math.prod(step.outputs) for step in self.steps)
        if spec.shape[0] * max(largest, math.prod(spec.shape[1:])) >= 2**31:
            raise NoPlan(("a convolution network with an image of 2^31 values or more", None))
        return NetworkPlan(
            card=self.card,
            signature=signature,
            fixed={name: value for name, value in fixed.items() if not classes or name != classes.parameter},
            members=write_members(facts, classes),
            tables=make_tables(facts, classes),
            arguments=forward_arguments(facts),
            x=self.x,
            input_shape=(channels, size[0], size[1]),
            dtype=spec.dtype,
            result_dtype=facts.outputs[0].dtype,
            steps=tuple(self.steps),
            activations=self.activations,
            libdevice=self.libdevice,
            returned=returned,
            training=self.task.mode == "train",
            has_norm=self.has_norm,
            largest=largest,
            flops=self.flops,
            batch=spec.shape[0],
        )

    def _refuse_unknown(self) -> None:
        unknown = [node for node in self.facts.ops if node.op in _COMPUTED and self._find_visitor(node) is None]
        if unknown:
            raise NoPlan(*((name_node(node), node) for node in unknown))

    def _find_visitor(self, node: OpNode) -> Any:
        """The method that reads a node that computes; None for an operator that no step does."""
        name = node.module_type or node.target.rpartition(".")[2]
        modules = {"Conv2d": self._convolve, "BatchNorm2d": self._normalize, "Linear": self._multiply}
        if node.op == "call_module" and name in modules:
            return modules[name]
        if name in _VIEWS:
            return self._flatten
        if name in POOLS:
            return self.pool
        if name in ("AdaptiveAvgPool2d", "adaptive_avg_pool2d", "mean"):
            return self.average
        if not node.outputs and (name in _SIZES or node.target in GETITEM):
            return self._skip
        return self.apply if operation_name(node) is not None else None

    def _visit(self, node: OpNode) -> str:
        """Adds a node; the expression of what forward returns, for its last one."""
        if node.op == "placeholder":
            self._take_input(node)
        elif node.op == "output":
            return self._return(node)
        elif node.op == "get_attr":
            raise ValueError(f"self.{node.target}, which forward reads itself")
        else:
            self._find_visitor(node)(node)
            self.flops += node.flops
        return ""

    def _take_input(self, node: OpNode) -> None:
        specs = [spec for spec in self.facts.inputs if spec is not None]
        if self.x or len(specs) != 1:
            raise ValueError(f"the argument {node.target} of forward, next to its images" if self.x else f"{len(specs)} inputs")
        if len(specs[0].shape) != 4 or specs[0].dtype not in MATRICES:
            raise ValueError(f"the {specs[0].dtype} input {node.target} with {len(specs[0].shape)} dimensions")
        self.x = node.target
        _, channels, height, width = specs[0].shape
        self.images[node.name] = Image(node.target, channels, (height, width), -1)

    def _return(self, node: OpNode) -> str:
        source = node.args[0] if node.args else None
        image = self.images.get(source.get("ref", "")) if isinstance(source, dict) else None
        if image is None or image.step < 0:
            raise ValueError("a forward that returns something else than the tensor it computes")
        if image.step != len(self.steps) - 1:
            raise ValueError("a forward with operations behind its result")
        self.steps[-1] = self.steps[-1].model_copy(update={"last": True})
        return f"{image.variable}[0].flatten(1)" if image.flat else f"{image.variable}[0]"

    def _skip(self, node: OpNode) -> None:
        """Sizes, which a view that follows asks for."""

    def _flatten(self, node: OpNode) -> None:
        image, shape = self.source(node), node.outputs[0].shape
        if len(shape) != 2 or shape[1] != image.channels * math.prod(image.size):
            raise ValueError(f"{name_node(node)} to {list(shape)}")
        self.rename(node, replace(image, flat=True))

    def _convolve(self, node: OpNode) -> None:
        image = self.source(node)
        weight = self.facts.parameters[f"{node.target}.weight"]
        fields = read_convolution(node)
        alone = self.readers[next(list_references(node))] == 1  # others read a copy, which the convolution may read too
        gathers = image.step < 0 and alone and fields["inner"] * math.prod(fields["window"]) <= _MOST_GATHERED
        self._add_product(node, weight.dtype, image if gathers else self.channels_last(image), False, gathers, **fields)

    def _multiply(self, node: OpNode) -> None:
        """A linear layer is a convolution whose window is the whole image."""
        image = self.source(node)
        if not image.flat:
            raise ValueError("nn.Linear on an image")
        weight = self.facts.parameters[f"{node.target}.weight"]
        fields = {"inner": image.channels, "columns": weight.shape[0], "window": image.size, "linear": True}
        self._add_product(node, weight.dtype, self.channels_last(image), True, False, **fields)

    def _add_product(self, node: OpNode, dtype: str, image: Image, flat: bool, gathers: bool, **fields: Any) -> None:
        first = next(spec for spec in self.facts.inputs if spec is not None)
        if dtype != first.dtype:
            raise ValueError(f"{name_node(node)} of {dtype} on {first.dtype}")
        layer = NetworkLayer(name=node.target, **fields)
        outputs = (1, 1) if flat else (node.outputs[0].shape[2], node.outputs[0].shape[3])
        self.images[node.name] = self.add_step(
            node.name, 0, flat, kind=StepKind.CONVOLUTION, source=image.variable, layer=layer, gathers=gathers, inputs=image.size,
            outputs=outputs, channels=layer.columns,
        )  # fmt: skip

    def _normalize(self, node: OpNode) -> None:
        given, image = node.attributes, self.source(node)
        self.has_norm = True
        eps = float(given["eps"])
        if self.task.mode != "train" and given["track_running_stats"]:
            if self.is_open(node, image, NORM) and self.steps[image.step].layer is not None:
                layer = self.steps[image.step].layer
                assert layer is not None
                self.extend(node, image, NORM, layer=layer.model_copy(update={"norm": node.target, "eps": eps}))
                return
            alone = NetworkLayer(name=node.target, weighs=False, norm=node.target, eps=eps, columns=image.channels)
            self.finish(node, image, NORM, layer=alone)
            return
        momentum = given.get("momentum")  # None is no plain value, and is left out
        if given["track_running_stats"] and momentum is None:
            raise ValueError("nn.BatchNorm2d with momentum=None in training mode")
        if not self.is_open(node, image, MEASURE):
            raise ValueError("nn.BatchNorm2d that does not follow a convolution, in training mode")
        measured = self.steps[image.step]
        self.steps[image.step], self.stages[image.step] = measured.model_copy(update={"measures": True}), POOL
        self.finish(
            node, image, NORM, moments=f"{measured.result}_moments", norm=node.target, eps=eps, momentum=float(momentum or 0.0),
            tracks=bool(given["track_running_stats"]),
        )  # fmt: skip


def read_network(task: Task, facts: TaskFacts, card: CardModel) -> KernelPlan:
    """The plan of a convolution network. Raises NoPlan."""
    return NetworkReader(task, facts, card).plan()
