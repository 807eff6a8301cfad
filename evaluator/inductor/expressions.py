"""Expressions of Inductor's `call` as plain PyTorch writes them. Imports no torch."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

from tritonsmith.evaluator.inductor.records import ATTENTION, Layout, NoSeedError, count_strides

_INSIDE = frozenset(
    (
        "async_compile inductor_ops alloc_from_pool _quantized extern_kernels run_intermediate_hooks triton_helpers "
        "triton_heuristics start_graph end_graph inductor _inductor maybe_profile get_raw_stream empty_strided_p2p "
        "empty_strided_cpu_pinned assert_alignment"
    ).split()
)
"""Names that only exist inside of Inductor."""
_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "bias_addmm", "_int_mm", "dot"))
"""Products that `extern_kernels` has, with the meaning of torch's functions."""
_CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


class Rewriter(ast.NodeTransformer):
    """Rewrites one expression after the other.

    Args:
        names: what stands for each of Inductor's names, as text.
        layouts: of those that are known.
    """

    def __init__(self, names: Mapping[str, str], layouts: Mapping[str, Layout]) -> None:
        self._names, self._layouts = names, layouts
        self.used: set[str] = set()
        """Functions of the candidate's file, and `F`, that the expressions need."""

    def rewrite(self, node: ast.expr) -> ast.expr:
        """The expression. Raises NoSeedError for what only Inductor has."""
        new: ast.expr = self.visit(node)
        for inner in ast.walk(new):
            name = inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else ""
            if name in _INSIDE:
                raise NoSeedError(f"Inductor's code calls {ast.unparse(new)[:80]}, which only exists inside of Inductor")
        return new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name of the candidate's own."""
        if node.id == "aten":
            return _parse("torch.ops.aten")
        return _parse(self._names[node.id]) if node.id in self._names else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A call, with its arguments rewritten first."""
        called = ast.unparse(node.func)
        if called == "reinterpret_tensor":
            return self._view(node)
        if called == "device":
            return _parse("device")
        if called.startswith("empty_strided_"):
            raise NoSeedError(f"Inductor's code makes a buffer within an expression ({ast.unparse(node)[:80]})")
        arguments = [self.visit(argument) for argument in node.args]
        named = {keyword.arg or "": self.visit(keyword.value) for keyword in node.keywords}
        if called == ATTENTION:
            return self._attention(arguments, named)
        owner, _, name = called.rpartition(".")
        if owner == "extern_kernels":
            return self._extern(name, arguments, named, node)
        function = self.visit(node.func)
        return ast.Call(function, arguments, [ast.keyword(name or None, value) for name, value in named.items()])

    def _view(self, node: ast.Call) -> ast.expr:
        base = node.args[0]
        size, stride, offset = (ast.literal_eval(argument) for argument in node.args[1:4])
        known = self._layouts.get(base.id) if isinstance(base, ast.Name) else None
        inner = ast.unparse(self.visit(base))
        if offset == 0 and known is not None and (way := _find_view(known, (tuple(size), tuple(stride)))) is not None:
            return _parse(f"{inner}{way}")
        self.used.add("strided_view")
        return _parse(f"strided_view({inner}, {tuple(size)}, {tuple(stride)}{f', {offset}' if offset else ''})")

    def _extern(self, name: str, arguments: list[ast.expr], named: dict[str, ast.expr], node: ast.Call) -> ast.expr:
        if name == "convolution":
            return self._convolution(arguments, named)
        if name not in _PRODUCTS:
            raise NoSeedError(f"Inductor's code calls extern_kernels.{name}, which has no counterpart that is known here")
        kept = {key: value for key, value in named.items() if not (key in ("alpha", "beta") and ast.unparse(value) in ("1", "1.0"))}
        function = _parse(f"torch.{'addmm' if name == 'bias_addmm' else name}")
        return ast.Call(function, arguments, [ast.keyword(key, value) for key, value in kept.items()])

    def _convolution(self, arguments: list[ast.expr], named: dict[str, ast.expr]) -> ast.expr:
        """A convolution of PyTorch by its functional name."""
        plain = {name: ast.literal_eval(named[name]) for name in _CONVOLUTION}
        bias = named.get("bias", arguments[2] if len(arguments) > 2 else ast.Constant(None))
        axes = len(plain["stride"])
        if axes not in (1, 2, 3):
            raise NoSeedError(f"Inductor's code has a convolution over {axes} axes")
        chosen = [("stride", 1), ("padding", 0), *([("output_padding", 0)] if plain["transposed"] else []), ("groups", 1), ("dilation", 1)]
        keywords = []
        for name, usual in chosen:
            value = plain[name]
            if value != usual and tuple(value if isinstance(value, tuple | list) else (value,)) != (usual,) * axes:
                keywords.append(ast.keyword(name, ast.Constant(value) if isinstance(value, int) else _parse(repr(tuple(value)))))
        self.used.add("F")
        function = _parse(f"F.conv{'_transpose' if plain['transposed'] else ''}{axes}d")
        return ast.Call(function, [*arguments[:2], *([] if ast.unparse(bias) == "None" else [bias])], keywords)

    def _attention(self, arguments: list[ast.expr], named: dict[str, ast.expr]) -> ast.expr:
        self.used.add("F")
        names = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        given = dict(zip(names, arguments[3:], strict=False)) | {name: value for name, value in named.items() if name in names}
        usual = {"attn_mask": "None", "dropout_p": "0.0", "is_causal": "False", "scale": "None", "enable_gqa": "False"}
        keywords = [ast.keyword(name, value) for name, value in given.items() if ast.unparse(value) != usual[name]]
        return ast.Call(_parse("F.scaled_dot_product_attention"), arguments[:3], keywords)


def _find_view(known: Layout, asked: Layout) -> str | None:
    """Methods that show a contiguous tensor in another layout of all of its elements; None where there are none."""
    shape, (size, stride) = known[0], asked
    if known[1] != count_strides(shape) or math.prod(shape) != math.prod(size) or 0 in shape:
        return None
    order = sorted(range(len(size)), key=lambda axis: (-stride[axis], size[axis] == 1, axis))
    inner = tuple(size[axis] for axis in order)
    steps = tuple(stride[axis] for axis in order)
    if any(one != other and length > 1 for length, one, other in zip(inner, steps, count_strides(inner), strict=True)):
        return None
    way = "" if inner == shape else f".view{inner}"
    back = tuple(order.index(axis) for axis in range(len(size)))
    moved = [axis for axis, place in enumerate(back) if axis != place]
    if not moved:
        return way
    return f"{way}.t()" if back == (1, 0) else f"{way}.transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"{way}.permute{back}"


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
