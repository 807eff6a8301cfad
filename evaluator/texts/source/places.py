"""Places of tiles in memory: ranges of elements, block pointers and descriptors."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from tritonsmith.evaluator.texts.source.forms import ZERO, Polynomial, Symbol, make_opaque, make_symbol
from tritonsmith.evaluator.texts.source.values import Env, KernelWalk, Value, union


class Places:
    """Makes polynomials of places.

    Args:
        facts: where extents of ranges are noted.
        evaluate: what the walk makes of an expression.
    """

    def __init__(self, facts: KernelWalk, evaluate: Callable[[ast.AST | None, Env], Value]) -> None:
        self._facts = facts
        self._evaluate = evaluate

    def make_range(self, extent: Polynomial, axis: int | None = None) -> Polynomial:
        """A range of elements, along an axis of a tile where that is known."""
        key = f"{hash(extent) & 0xFFFFFFFFFFFF:x}" + (f"@{axis}" if axis is not None else "")
        self._facts.ranges[f"range:{key}"] = extent
        return make_symbol("range", key)

    def mark_axis(self, form: Polynomial, axis: int | None) -> Polynomial:
        """The same with its ranges of elements laid along an axis, so that rows and columns of equal extents differ."""
        if axis is None:
            return form
        for name in sorted(dep for dep in form.deps if dep.startswith("range:") and "@" not in dep):
            key = f"{name.removeprefix('range:')}@{axis}"
            self._facts.ranges[f"range:{key}"] = self._facts.ranges.get(name, ZERO)
            form = form.replace(name, Symbol("range", key))
        return form

    def evaluate_block(self, node: ast.Call, env: Env, signature: int) -> Value:
        """A block pointer or a descriptor: base plus offsets times strides, and a range of elements along each axis."""
        evaluate = self._evaluate
        order = ("base", "shape", "strides", "offsets", "block_shape") if "block_ptr" in ast.unparse(node.func) else (
            "base", "shape", "strides", "block_shape",
        )  # fmt: skip
        given = dict(zip(order, node.args, strict=False)) | {keyword.arg or "": keyword.value for keyword in node.keywords}
        base = evaluate(given.get("base"), env)
        parts = {name: self.evaluate_elements(given.get(name), env) for name in ("strides", "offsets", "block_shape")}
        strides, block = (tuple(value.form for value in parts[name]) for name in ("strides", "block_shape"))
        offsets = parts["offsets"]
        axes = find_wide_axes(block)
        result = replace(union(base, *offsets, signature=signature), strides=strides, block=block, rank=len(block), axes=axes)
        return replace(result, form=self.place(base.form, offsets, strides, block if offsets else ()), roots=base.roots)

    def evaluate_elements(self, node: ast.expr | None, env: Env) -> list[Value]:
        """Values of the elements of a tuple."""
        elements = node.elts if isinstance(node, ast.Tuple | ast.List) else []
        return [self._evaluate(element, env) for element in elements]

    def evaluate_advance(self, pointer: Value, steps: ast.expr, env: Env, signature: int) -> Value:
        """A block pointer that is moved on."""
        values = self.evaluate_elements(steps, env)
        result = union(pointer, *values, signature=hash((signature, pointer.signature)))
        form = self.place(pointer.form, values, pointer.strides, ())
        return replace(
            result, form=form, roots=pointer.roots, rank=pointer.rank, strides=pointer.strides, block=pointer.block, axes=pointer.axes
        )  # fmt: skip

    def place(self, base: Polynomial, offsets: list[Value], strides: tuple[Polynomial, ...], block: tuple[Polynomial, ...]) -> Polynomial:
        """Where a block begins, with a range of elements along each axis whose extent is given."""
        form = base
        for axis, offset in enumerate(offsets):
            stride = strides[axis] if axis < len(strides) else make_opaque(f"stride{axis}", base.split("parameter")[0])
            form = form + offset.form * stride
            extent = block[axis] if axis < len(block) else None
            if extent is not None and extent.constant != 1:
                form = form + self.make_range(extent, axis) * stride
        return form

    def evaluate_subscript(self, node: ast.Subscript, env: Env) -> Value:
        """What `[:, None]` or another index makes of a value."""
        base = self._evaluate(node.value, env)
        if base.elements and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return base.elements[node.slice.value % len(base.elements)]
        added, kept = read_none_indices(node)
        signature = hash((base.signature, ast.dump(node.slice)))
        if not added:
            return replace(base, signature=signature, form=make_opaque(ast.unparse(node.slice), base.form) if base.form.terms else ZERO)
        form = self.mark_axis(base.form, kept)
        axes = frozenset({kept}) if kept is not None and base.rank == 1 else base.axes
        return replace(base, rank=base.rank + added, signature=signature, form=form, axes=axes)


def find_wide_axes(block: tuple[Polynomial, ...]) -> frozenset[int]:
    """Axes of a block along which it has more than one element."""
    return frozenset(axis for axis, extent in enumerate(block) if extent.constant != 1) if len(block) > 1 else frozenset()


def read_none_indices(node: ast.Subscript) -> tuple[int, int | None]:
    """How many axes `[:, None]` adds, and at which place the axis lies that it keeps."""
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    added = [isinstance(index, ast.Constant) and index.value is None for index in indices]
    kept = [place for place, new in enumerate(added) if not new]
    return sum(added), kept[0] if len(kept) == 1 else None


def read_column_or_row(node: ast.Call) -> int | None:
    """The axis along which `reshape(v, (n, 1))` or `v.reshape(1, n)` lays a vector; None for other shapes."""
    last = node.args[-1] if node.args else None
    shape = last.elts if isinstance(last, ast.Tuple | ast.List) else node.args[-2:]
    ones = [isinstance(extent, ast.Constant) and extent.value == 1 for extent in shape]
    return ones.index(False) if sorted(ones) == [False, True] else None
