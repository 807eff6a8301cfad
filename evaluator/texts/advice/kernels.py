"""Advice about the Triton side: missing or unused kernels, library calls in their place, precision, inputs that are written to."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

from tritonsmith.evaluator.texts.advice.text import Remark, Text, find_assigned_names
from tritonsmith.evaluator.texts.source.kernel_file import Function, calls_of

_COMPUTING = frozenset(
    "matmul mm bmm addmm addmv addbmm baddbmm mv dot einsum tensordot linear bilinear conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d gru lstm "
    "rnn_tanh rnn_relu gru_cell lstm_cell softmax log_softmax relu gelu silu sigmoid tanh erf exp layer_norm "
    "batch_norm group_norm instance_norm rms_norm scaled_dot_product_attention max_pool2d avg_pool2d adaptive_avg_pool2d mean sum var std "
    "logsumexp cumsum clamp clip hardtanh dropout embedding cross_entropy mse_loss normalize topk sort".split()
)
"""Functions of torch that compute; making, viewing and copying tensors is not among them."""
_LAYERS = frozenset(
    "GRU LSTM RNN GRUCell LSTMCell RNNCell Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LayerNorm "
    "BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm RMSNorm MultiheadAttention Transformer TransformerEncoderLayer Softmax GELU ReLU SiLU "
    "Sigmoid Tanh MaxPool2d AvgPool2d AdaptiveAvgPool2d Sequential".split()
)
"""Classes of torch.nn whose forward computes."""
_PREFIXES = ("torch.nn.functional.", "torch.special.", "torch.linalg.", "torch.fft.", "torch.ops.aten.", "torch.")
"""Where functions of torch that compute lie; longer names first."""
_COMPILERS = {name: name for name in ("torch.compile", "torch.jit", "torch._dynamo", "torch._inductor")}
"""Compilers of torch, by full name."""
_ROUNDING = ("half", "bfloat16", "float16")
"""Methods and types of torch that round to 16 bit."""


def check_model_is_there(text: Text) -> Iterator[Remark]:
    """The module must define ModelNew with a forward."""
    bound = {node.id for node in text.everything if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if "ModelNew" not in bound | set(text.index.classes) | set(text.index.aliases):
        yield Remark(1, "there is no class ModelNew; the evaluator asks for it by this name")


def check_kernels_run(text: Text) -> Iterator[Remark]:
    """A candidate without a kernel, kernels that nothing names, a forward that reaches no launch, grids that are empty."""
    jit = text.index.jit
    if not jit:
        yield Remark(1, "there is no @triton.jit kernel; without one the result is a library's")
        return
    used = _count_uses(text.everything)
    for name, kernel in jit.items():
        helper = any(isinstance(node, ast.Return) and node.value is not None for node in text.kernels[name])
        if not helper and used[name] <= _count_uses(text.kernels[name])[name]:  # but for a call of itself
            yield Remark(kernel.lineno, f"kernel {name} is defined but never launched")
    launches = text.find_launches()
    forward = text.model.get("forward")
    named = any(isinstance(node, ast.Name) and (node.id in jit or node.id in text.index.kernel_aliases) for node in text.forward)
    if forward is not None and not launches and not named:
        yield Remark(forward.lineno, "forward reaches no launch of a kernel")
    for launch in launches:
        if isinstance(launch.func, ast.Subscript) and _is_empty(launch.func.slice):
            yield Remark(launch.lineno, "the grid is empty, so this launch does nothing")


def check_libraries(text: Text) -> Iterator[Remark]:
    """Library calls that forward reaches: a note next to launches, a warning where they are all there is."""
    alone = not text.find_launches()
    tail = "nothing but a library works here; write kernels that do it" if alone else "time in a library counts against the label `kernel`"
    layers = _find_layers(text)
    for node in text.forward:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield Remark(node.lineno, f"`@` is a product by a library; {tail}", note=not alone)
        if not isinstance(node, ast.Call):
            continue
        name = text.resolve_name(node.func)
        prefix = next((known for known in _PREFIXES if name.startswith(known)), "")
        if prefix and name.removeprefix(prefix).rstrip("_").partition(".")[0] in _COMPUTING:
            yield Remark(node.lineno, f"{name} computes in a library; {tail}", note=not alone)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.attr in layers:
            yield Remark(node.lineno, f"self.{node.func.attr} is nn.{layers[node.func.attr]}, a library's layer; {tail}", note=not alone)


def check_compilers(text: Text) -> Iterator[Remark]:
    """Other compilers than Triton."""
    for node in text.host:
        if isinstance(node, ast.Attribute):
            name = text.resolve_name(node)
            if name in _COMPILERS:
                yield Remark(node.lineno, f"{_COMPILERS[name]} writes the kernels here, not you; the label will say library")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("torch.utils.cpp_extension", "torch._inductor")):
            yield Remark(node.lineno, f"{node.module} is another compiler than Triton")


def check_precision(text: Text) -> Iterator[Remark]:
    """Products and roundings that lose what an fp32 task asks for."""
    if text.precision.allows_tf32:
        return
    halves = any(_is_half(node) for node in text.everything)
    for call in (node for nodes in text.kernels.values() for node in nodes if isinstance(node, ast.Call)):
        if text.index.resolve_language_name(call.func) != "dot":
            continue
        if any(_is_half(node) for operand in call.args for node in ast.walk(operand)):
            yield Remark(call.lineno, "this product rounds its operands to 16 bit; the task asks for fp32 accuracy", note=True)
        elif not halves and not {keyword.arg for keyword in call.keywords} & {"input_precision", "allow_tf32"}:
            yield Remark(call.lineno, 'tl.dot of fp32 rounds to TF32 unless it gets input_precision="ieee"', note=True)
    for node in text.forward:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            to = node.func.attr == "to" and any(isinstance(given, ast.Attribute) and given.attr in _ROUNDING for given in node.args)
            if to or (node.func.attr in _ROUNDING and not node.args and not text.is_imported(node.func)):
                yield Remark(node.lineno, "this rounds to 16 bit; the task asks for fp32 accuracy", note=True)


def check_answers(text: Text) -> Iterator[Remark]:
    """What forward returns: memory that no kernel wrote, one part shown many times, or an input."""
    forward = text.model.get("forward")
    returns = [node for node in ast.walk(forward) if isinstance(node, ast.Return) and node.value] if forward else []
    fresh = {id(node): _name_fresh_memory(text, node.value) for node in returns}
    for node in returns:
        if name := fresh[id(node)]:
            yield Remark(node.lineno, f"forward returns {name}(...), which no kernel wrote", note=not all(fresh.values()))
        elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) and node.value.func.attr.startswith("expand"):
            yield Remark(node.lineno, "forward returns one part of a result many times over", note=True)
        elif isinstance(node.value, ast.Name) and node.value.id in text.inputs:
            yield Remark(node.lineno, f"forward returns its input {node.value.id} itself")


def check_inputs_are_kept(text: Text) -> Iterator[Remark]:
    """Arguments of forward that are written to, by torch or by a kernel; the text alone does not say whether the reference does so."""
    forward = text.model.get("forward")
    if forward is None:
        return
    same = _find_aliases(forward, text.inputs)
    for node in ast.walk(forward):
        written: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            written = node.func.value if name.endswith("_") and not name.startswith("_") and name != "requires_grad_" else None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            written = node.value
        elif isinstance(node, ast.AugAssign):
            written = node.target
        if isinstance(written, ast.Name) and written.id in same:
            yield Remark(written.lineno, f"this writes to the input {same[written.id]}; right only where the reference does so too")
    yield from _find_launches_on_inputs(text, forward, same)


def _find_launches_on_inputs(text: Text, forward: Function, same: dict[str, str]) -> Iterator[Remark]:
    for call in calls_of(forward):
        kernel = text.index.jit.get(text.index.find_launched_kernel(call) or "")
        if kernel is None or any(isinstance(argument, ast.Starred) for argument in call.args):
            continue
        names = [argument.arg for argument in kernel.args.posonlyargs + kernel.args.args]
        given = dict(zip(names, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
        for name in sorted(_find_stores(text, kernel) & set(given)):
            value = given[name]
            if isinstance(value, ast.Name) and value.id in same:
                yield Remark(call.lineno, f"kernel {kernel.name} stores to `{name}`, which is the input {same[value.id]}")


def _find_stores(text: Text, kernel: ast.FunctionDef) -> set[str]:
    """Parameters that pointers of stores and atomics are made from; what a load returned is no pointer."""
    parameters = {argument.arg for argument in kernel.args.posonlyargs + kernel.args.args}
    origin: dict[str, set[str]] = {name: {name} for name in parameters}

    def origins(node: ast.AST) -> set[str]:
        if isinstance(node, ast.Call) and text.index.resolve_language_name(node.func):
            return set()  # offsets and loaded values; pointers are made by plain sums
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub):
            return set()
        if isinstance(node, ast.Name):
            return origin.get(node.id, set())
        return set().union(*(origins(child) for child in ast.iter_child_nodes(node)))

    stored: set[str] = set()
    for node in (part for statement in kernel.body for part in ast.walk(statement)):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            origin[node.targets[0].id] = origin.get(node.targets[0].id, set()) | origins(node.value)
    for call in calls_of(kernel):
        if text.index.resolve_language_name(call.func) == "store" or text.index.resolve_language_name(call.func).startswith("atomic_"):
            stored |= origins(call.args[0]) if call.args else set()
    return stored


def _find_aliases(forward: Function, inputs: frozenset[str]) -> dict[str, str]:
    """Names in forward that stand for an input, with that input.

    These are the input itself, and `out = x` where `out` never gets another meaning.
    """
    found = {name: name for name in inputs}
    once: dict[str, list[ast.expr]] = {}
    for node in ast.walk(forward):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            once.setdefault(node.targets[0].id, []).append(node.value)
    for name in sorted(find_assigned_names(forward)):
        values = once.get(name, [])
        if len(values) == 1 and isinstance(values[0], ast.Name) and values[0].id in inputs:
            found[name] = values[0].id
    return found


def _find_layers(text: Text) -> dict[str, str]:
    """Attributes of the file's modules that hold a layer of torch, with the layer's name."""
    found: dict[str, str] = {}
    for node in text.host:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = text.resolve_name(node.value.func)
            layer = name.removeprefix("torch.nn.")
            if name.startswith("torch.nn.") and layer in _LAYERS:
                found |= {target.attr: layer for target in node.targets if isinstance(target, ast.Attribute)}
    return found


def _count_uses(nodes: list[ast.AST]) -> Counter[str]:
    return Counter(node.id if isinstance(node, ast.Name) else node.attr for node in nodes if isinstance(node, ast.Name | ast.Attribute))


def _name_fresh_memory(text: Text, value: ast.expr | None) -> str:
    """The function's name where a value (or a branch of it) is memory fresh from torch; else nothing."""
    for side in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
        name = text.resolve_name(side.func) if isinstance(side, ast.Call) else ""
        if name.removeprefix("torch.").partition("_like")[0] in ("empty", "zeros", "ones", "full"):
            return name
    return ""


def _is_half(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("float16", "bfloat16")


def _is_empty(grid: ast.expr) -> bool:
    sides = grid.elts if isinstance(grid, ast.Tuple) else [grid]
    return not sides or any(isinstance(side, ast.Constant) and side.value == 0 for side in sides)


RULES: tuple[Callable[[Text], Iterator[Remark]], ...] = (
    check_model_is_there, check_kernels_run, check_libraries, check_compilers, check_precision, check_answers, check_inputs_are_kept,
)  # fmt: skip
"""The rules of this file."""
