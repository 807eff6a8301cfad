"""Library calls that do the work of a candidate, by whatever name they are called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import product

from tritonsmith.evaluator.detect.records import Trait, TraitHit
from tritonsmith.evaluator.schema import LaunchFacts
from tritonsmith.evaluator.source.kernel_file import (
    Call,
    KernelSource,
    calls_of,
    find_attribute_values,
    find_host_calls,
    find_iterated_attribute,
)
from tritonsmith.evaluator.source.values import KernelWalk

_PRODUCTS = {
    "matmul", "mm", "bmm", "addmm", "addmv", "mv", "baddbmm", "addbmm", "einsum", "linear", "tensordot", "dot", "inner", "bilinear",
    "chain_matmul", "multi_dot", "vdot", "outer", "ger", "_scaled_mm", "_int_mm", "addr", "kron", "matrix_power",
}  # fmt: skip
"""Functions of torch that are a matrix product."""
_HEAVY = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "cudnn_convolution",
    "scaled_dot_product_attention", "multi_head_attention_forward", "gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "flex_attention", "_convolution", "miopen_convolution", "mkldnn_convolution",
}  # fmt: skip
"""Functions of torch that are more than a matrix product."""
_REDUCTIONS = {
    "softmax", "log_softmax", "layer_norm", "native_layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm", "cumsum",
    "cumprod", "logsumexp", "sort", "topk", "argsort", "cross_entropy", "nll_loss", "max_pool1d", "max_pool2d", "avg_pool1d",
    "avg_pool2d", "cdist",
    "var_mean", "std_mean",
}  # fmt: skip
"""Functions of torch that are a reduction or scan; they are the work where no kernel has any."""
_FOURIER = ("torch.fft.",)
"""Where every function is a transform of its own."""
_REDUCTION_MODULES = re.compile(r"(Log)?Softmax$|(Layer|Group|RMS|Instance|Batch)Norm\d?d?$|(Max|Avg)Pool\dd$")
"""Layers of torch.nn that are a reduction."""
_PRODUCT_MODULES = {"Linear", "LazyLinear", "Bilinear"}
"""Layers of torch.nn that are a matrix product."""
_HEAVY_MODULES = re.compile(r"(Lazy)?(GRU|LSTM|RNN)(Cell|Base)?$|(Lazy)?Conv(Transpose)?\dd$|MultiheadAttention$|Transformer\w*$")
"""Layers of torch.nn that are more than a matrix product."""
_NAMESPACES = ("torch.", "torch.nn.functional.", "torch.ops.aten.", "torch._VF.", "torch._C._VF.", "torch.linalg.", "torch._C._nn.",
               "torch.nn.attention.flex_attention.", "torch.special.", "torch.Tensor.")  # fmt: skip
"""Where functions of torch that compute lie."""
_TENSOR_METHODS = {"matmul", "mm", "bmm", "addmm", "mv", "addmv", "baddbmm", "addmm_", "baddbmm_", "__matmul__", "__rmatmul__", "inner"}
"""Methods of tensors that are a matrix product."""
_OWN_SHARE = 0.5
"""With at least this share of the device time in own kernels, the library does not do the work."""


def find_library_work(index: KernelSource, walks: Mapping[str, KernelWalk], facts: LaunchFacts | None) -> TraitHit | None:
    """Library calls that do the work: recurrent, convolution and attention calls, torch.compile, products where no kernel has tl.dot or
    sums products itself, and reductions where no kernel reduces.
    """
    if facts is not None and facts.own_time_share is not None and facts.own_time_share >= _OWN_SHARE:
        return None
    calls = find_host_calls(index)
    launched = {call.kernel for call in calls if call.kernel}
    own = [walk for name, walk in walks.items() if name in launched]
    products = any(walk.has_dot or any(product.summed for product in walk.products) for walk in own)
    reductions = products or any(walk.products or walk.reduces or any(loop.updates for loop in walk.loops.values()) for walk in own)
    accepted = {"product": not products, "reduction": not reductions, "heavy": True}
    found: dict[int, str] = {}
    for call in calls:
        kind = find_library_call(index, call)
        if kind and accepted[kind[1]]:
            found.setdefault(call.node.lineno, kind[0])
    for function in {id(call.function): call.function for call in calls}.values():
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and not products:
                found.setdefault(node.lineno, "@")
    for call_node in calls_of(index.tree):
        if index.resolve_name(call_node.func) == "torch.compile":
            found.setdefault(call_node.lineno, "torch.compile")
    launches = bool(launched)
    share = f"; own kernels have {facts.own_time_share:.0%} of the device time" if facts and facts.own_time_share is not None else ""
    if found:
        text = ", ".join(f"{name} (line {line})" for line, name in sorted(found.items())[:8])
        nearest = "" if share or not launches else "a hybrid, if the own kernels take most of the time, which only a measurement says"
        return TraitHit(name=Trait.LIBRARY_PASS_THROUGH, line=min(found), evidence=f"the library computes: {text}{share}", nearest=nearest)
    if "ModelNew" in index.classes and not launches:
        line = index.classes["ModelNew"].lineno
        return TraitHit(name=Trait.LIBRARY_PASS_THROUGH, line=line, evidence="ModelNew.forward launches no Triton kernel of its own")
    return None


def find_library_call(index: KernelSource, call: Call) -> tuple[str, str] | None:
    """Name of the library's computing function that a call enters, and its kind: `heavy`, `product` or `reduction`."""
    node = call.node.func
    for name in _resolve_function(index, node, call):
        for prefix in _NAMESPACES:
            short = name.removeprefix(prefix).split(".")[0]
            kind = _kind_of(short) if name.startswith(prefix) else ""
            if kind:
                return name, kind
        if name.startswith(_FOURIER):
            return name, "heavy"
        owner, _, method = name.rpartition(".")
        if method in _TENSOR_METHODS and owner and not owner.startswith(("torch", "self", "triton", "numpy")):
            return f".{method}", "product"
    name = index.resolve_name(node)
    if isinstance(node, ast.Attribute) and node.attr in _TENSOR_METHODS and not name.startswith("torch."):
        return f".{node.attr}", "product"
    if isinstance(node, ast.Attribute) and node.attr in ("softmax", "cumsum", "logsumexp", "topk") and not name.startswith("torch."):
        return f".{node.attr}", "reduction"
    for module in _find_modules_entered(index, node, call):
        if _HEAVY_MODULES.match(module):
            return f"nn.{module}", "heavy"
        if module in _PRODUCT_MODULES:
            return f"nn.{module}", "product"
        if _REDUCTION_MODULES.match(module):
            return f"nn.{module}", "reduction"
    return None


def _kind_of(name: str) -> str:
    """What a function of torch is; empty for one that does little."""
    if name in _HEAVY:
        return "heavy"
    return "product" if name in _PRODUCTS else "reduction" if name in _REDUCTIONS or name.lstrip("_") in _REDUCTIONS else ""


def _resolve_function(index: KernelSource, node: ast.expr, call: Call, depth: int = 8) -> Iterator[str]:
    """Full names of what an expression that is called may be: through aliases, attributes of self, getattr, partial and tables."""
    if depth == 0:
        return
    if name := index.resolve_name(node):
        yield name
    if isinstance(node, ast.Call):
        called = index.resolve_name(node.func)
        if called == "getattr" and len(node.args) > 1:
            for word in _read_text(index, node.args[1], call, depth - 1):
                yield from (f"{owner}.{word}" for owner in _resolve_function(index, node.args[0], call, depth - 1))
        elif called in ("functools.partial", "torch.jit.script", "torch.jit.trace") and node.args:
            yield from _resolve_function(index, node.args[0], call, depth - 1)
    elif isinstance(node, ast.Name):
        for value in _find_assigned(index, call, node.id):
            yield from _resolve_function(index, value, call, depth - 1)
    elif isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            for owner in index.classes:
                for value in find_attribute_values(index, owner, node.attr):
                    yield from _resolve_function(index, value, call, depth - 1)
                yield from _resolve_class_attribute(index, owner, node.attr, call, depth)
        else:
            for base in _resolve_function(index, node.value, call, depth - 1):
                yield f"{base}.{node.attr}"
    elif isinstance(node, ast.Subscript):  # a table of functions
        for table in _find_tables(index, node.value, call):
            for value in table:
                yield from _resolve_function(index, value, call, depth - 1)
    elif isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call):
        yield from _resolve_function(index, node.body.func, call, depth - 1)
    elif isinstance(node, ast.IfExp):
        yield from _resolve_function(index, node.body, call, depth - 1)
        yield from _resolve_function(index, node.orelse, call, depth - 1)


def _read_text(index: KernelSource, node: ast.expr, call: Call, depth: int) -> list[str]:
    """What a text may be that is a constant, a name for one, or put together from such."""
    if depth <= 0:
        return []
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name):
        return [text for value in _find_assigned(index, call, node.id) for text in _read_text(index, value, call, depth - 1)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pairs = (_read_text(index, side, call, depth - 1) for side in (node.left, node.right))
        return [first + second for first, second in product(*pairs)]
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
        return ["".join(words) for words in product(*(_read_text(index, part, call, depth - 1) for part in parts))]
    if isinstance(node, ast.IfExp):
        return [text for side in (node.body, node.orelse) for text in _read_text(index, side, call, depth - 1)]
    return []


def _resolve_class_attribute(index: KernelSource, owner: str, attribute: str, call: Call, depth: int) -> Iterator[str]:
    """What a class sets in its own body, with staticmethod looked through."""
    for statement in index.classes[owner].body:
        names = [target.id for target in getattr(statement, "targets", ()) if isinstance(target, ast.Name)]
        if isinstance(statement, ast.Assign) and attribute in names:
            value = statement.value
            if isinstance(value, ast.Call) and index.resolve_name(value.func) == "staticmethod" and value.args:
                value = value.args[0]
            yield from _resolve_function(index, value, call, depth - 1)


def _find_assigned(index: KernelSource, call: Call, name: str) -> Iterator[ast.expr]:
    """Values of a name, in the function around the call and at the top level."""
    for scope in (ast.walk(call.function), index.tree.body):
        for part in scope:
            if isinstance(part, ast.Assign) and len(part.targets) == 1:
                target = part.targets[0]
                if isinstance(target, ast.Name) and target.id == name:
                    yield part.value
                elif isinstance(target, ast.Tuple) and isinstance(part.value, ast.Tuple) and len(target.elts) == len(part.value.elts):
                    for element, value in zip(target.elts, part.value.elts, strict=True):
                        if isinstance(element, ast.Name) and element.id == name:
                            yield value


def _find_tables(index: KernelSource, node: ast.expr, call: Call) -> Iterator[list[ast.expr]]:
    tables: list[ast.expr] = [node]
    if isinstance(node, ast.Name):
        tables += _find_assigned(index, call, node.id)
    elif isinstance(node, ast.Attribute):
        tables += (value for owner in index.classes for value in find_attribute_values(index, owner, node.attr))
    for table in tables:
        if isinstance(table, ast.Dict):
            yield table.values
        elif isinstance(table, ast.Call) and index.resolve_name(table.func) == "dict":
            yield [keyword.value for keyword in table.keywords]
        elif isinstance(table, ast.List | ast.Tuple):
            yield table.elts


def _find_modules_entered(index: KernelSource, node: ast.expr, call: Call) -> Iterator[str]:
    """Class names in torch.nn of what a call such as self.lstm(x), self.layers[i](x) or layer(x) enters."""
    if isinstance(node, ast.Call):
        yield from _find_nn_names(index, node.func)
    if isinstance(node, ast.Subscript):
        node = node.value
    attribute = ""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        attribute = node.attr
    elif isinstance(node, ast.Name):
        attribute = find_iterated_attribute(node.id, call.loops) or _find_passed_attribute(index, call, node.id)
    for owner in index.classes if attribute else ():
        for value in find_attribute_values(index, owner, attribute):
            yield from _find_nn_names(index, value)
    if isinstance(node, ast.Attribute) and node.attr == "forward" and isinstance(node.value, ast.Call):
        for base in index.classes["ModelNew"].bases if "ModelNew" in index.classes else ():
            yield from _find_nn_names(index, base)  # super().forward of a library module


def _find_passed_attribute(index: KernelSource, call: Call, name: str) -> str:
    """The attribute of self that is passed for a parameter of the function around the call."""
    names = [parameter.arg for parameter in call.function.args.args if parameter.arg != "self"]
    for other in calls_of(index.tree) if name in names else ():
        called = other.func.attr if isinstance(other.func, ast.Attribute) else getattr(other.func, "id", "")
        given = dict(zip(names, other.args, strict=False)).get(name)
        if called == call.function.name and isinstance(given, ast.Attribute) and ast.unparse(given.value) == "self":
            return given.attr
    return ""


def _find_nn_names(index: KernelSource, value: ast.AST) -> Iterator[str]:
    for part in ast.walk(value):
        if isinstance(part, ast.Attribute | ast.Name):
            name = index.resolve_name(part)
            if name.startswith("torch.nn."):
                yield name.removeprefix("torch.nn.").split(".")[-1]
