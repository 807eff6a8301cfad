"""Reads what follows the products of a convolution network: elementwise functions, sums of two images, pools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.walk import names_in
from tritonsmith.author.compiler.operations import write_operation
from tritonsmith.author.families.convnet.plan import Pair, StepKind
from tritonsmith.author.families.convnet.steps import ACTIVATE, ADD, POOL, Image, StepBuilder, list_references
from tritonsmith.author.families.convnet.windows import POOLS, read_adaptive_pool, read_pool
from tritonsmith.evaluator.schema import OpNode
from tritonsmith.prompts.node_names import name_node, operation_name

_WRITING = ("iadd", "isub", "imul", "itruediv")
"""Operators that change their first operand."""


class ElementReader(StepBuilder):
    """Steps, and what nodes without weights add to them."""

    def apply(self, node: OpNode) -> None:
        """An elementwise operation: a sum of two images, or a function of one."""
        name = operation_name(node)
        operands = [self.source(node, argument) for argument in (*node.args, *node.kwargs.values()) if isinstance(argument, dict)]
        if name == "identity":
            self.rename(node, operands[0])
            return
        self._refuse_writing(node, operands[0])
        if len(operands) == 2:
            self.add(node, name, *operands)
            return
        (image,) = operands
        reference = next(list_references(node))
        written = write_operation(node, str(name), {reference: "v"})
        self.libdevice |= "libdevice" in names_in(written)
        line = f"v = {print_expression(written)}"
        before = self.activations.get(self.steps[image.step].activation, ()) if self.is_open(node, image, ACTIVATE) else None
        chain = self._name_chain(str(name), (*(before or ()), line))
        if before is None:
            self.finish(node, image, ACTIVATE, activation=chain)
        else:
            self.extend(node, image, ACTIVATE, activation=chain)

    def _name_chain(self, name: str, lines: tuple[str, ...]) -> str:
        """The name of a function of `v`: its operation, and a number where that is not enough."""
        known = next((key for key, value in self.activations.items() if value == lines), None)
        if known is None:
            known = name if name not in self.activations else f"{name}_{len(self.activations)}"
            self.activations[known] = lines
        return known

    def _refuse_writing(self, node: OpNode, image: Image) -> None:
        """An operation in place changes a value that others still read."""
        name = node.target.rpartition(".")[2]
        written = node.attributes.get("inplace") or node.kwargs.get("inplace") or name.endswith("_") or name in _WRITING
        if written and (image.step < 0 or self.readers[next(list_references(node))] > 1):
            raise ValueError(f"{name_node(node)} in place, on a tensor that is read again")

    def add(self, node: OpNode, name: str | None, left: Image, right: Image) -> None:
        """The sum of two images, in the step of the later one where that is open."""
        if name != "add" or node.kwargs.get("alpha", 1) != 1 or (left.channels, left.size) != (right.channels, right.size):
            raise ValueError(f"{name_node(node)} of two images" + (" of different sizes" if name == "add" else ""))
        left, right = self.channels_last(left), self.channels_last(right)
        later, earlier = (left, right) if left.step >= right.step else (right, left)
        if earlier.step < later.step and self.is_open(node, later, ADD):
            self.extend(node, later, ADD, residual=earlier.variable)
        else:
            self.finish(node, left, ADD, residual=right.variable)

    def pool(self, node: OpNode) -> None:
        """A pool: in the step of its image where windows lie side by side, else a step of its own."""
        image = self.source(node)
        fields = read_pool(node, POOLS[node.module_type or node.target.rpartition(".")[2]])
        outputs = node.outputs[0].shape[2], node.outputs[0].shape[3]
        plain = fields["stride"] == fields["window"] and fields["padding"] == (0, 0) and fields["dilation"] == (1, 1)
        reached = [size * side for size, side in zip(outputs, fields["window"], strict=True)]
        uneven = image.step >= 0 and self.steps[image.step].residual and tuple(reached) != image.size
        inside = not uneven and all(size <= whole for size, whole in zip(reached, image.size, strict=True))
        if fields["maximum"] and plain and inside and fields["window"] in ((2, 2), (4, 4)) and self.is_open(node, image, POOL):
            self.extend(node, image, POOL, pool=fields["window"][0], outputs=outputs)
        else:
            self._add_pool(node, image, outputs, fields)

    def average(self, node: OpNode) -> None:
        """The mean of equal parts of an image."""
        image, shape = self.source(node), node.outputs[0].shape
        if node.target.rpartition(".")[2] == "mean":
            axes = next((one for one in (*node.args[1:], node.kwargs.get("dim")) if one is not None), None)
            if not isinstance(axes, list | tuple) or sorted(axis % 4 for axis in axes) != [2, 3] or image.flat:
                raise ValueError(f"{name_node(node)} over other axes than lines and columns")
        outputs = (shape[2], shape[3]) if len(shape) == 4 else (1, 1)
        if outputs == image.size:
            self.rename(node, replace(image, flat=len(shape) == 2))
            return
        self._add_pool(node, image, outputs, read_adaptive_pool(node, image.size, outputs), flat=len(shape) == 2)

    def _add_pool(self, node: OpNode, image: Image, outputs: Pair, fields: dict[str, Any], flat: bool = False) -> None:
        self.images[node.name] = self.add_step(
            node.name, POOL, flat, kind=StepKind.POOL, source=image.variable, gathers=image.step < 0, inputs=image.size, outputs=outputs,
            channels=image.channels, **fields,
        )  # fmt: skip
