"""Labels that rest on the host code around the kernels: time loops in Python, library calls that do the work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tritonsmith.evaluator.detect.records import Trait, TraitHit
from tritonsmith.evaluator.schema import LaunchFacts, TaskFacts
from tritonsmith.evaluator.source.kernel_file import Call, HostLoop, KernelSource, calls_of, find_attribute_values, find_host_calls

_PRODUCTS = {
    "matmul", "mm", "bmm", "addmm", "addmv", "mv", "baddbmm", "addbmm", "einsum", "linear", "tensordot", "dot", "inner", "bilinear",
    "chain_matmul", "multi_dot", "vdot", "outer",
}  # fmt: skip
"""Functions of torch that are a matrix product."""
_HEAVY = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "cudnn_convolution",
    "scaled_dot_product_attention", "multi_head_attention_forward", "gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell",
}  # fmt: skip
"""Functions of torch that are more than a matrix product."""
_PRODUCT_MODULES = {"Linear", "LazyLinear", "Bilinear"}
"""Layers of torch.nn that are a matrix product."""
_HEAVY_MODULES = re.compile(r"(Lazy)?(GRU|LSTM|RNN)(Cell|Base)?$|(Lazy)?Conv(Transpose)?\dd$|MultiheadAttention$|Transformer\w*$")
"""Layers of torch.nn that are more than a matrix product."""
_NAMESPACES = ("torch.", "torch.nn.functional.", "torch.ops.aten.", "torch._VF.", "torch._C._VF.", "torch.linalg.", "torch._C._nn.")
"""Where functions of torch that compute lie."""
_TENSOR_METHODS = {"matmul", "mm", "bmm", "addmm", "mv", "addmv", "baddbmm", "addmm_", "baddbmm_"}
"""Methods of tensors that are a matrix product."""
_OWN_SHARE = 0.5
"""With at least this share of the device time in own kernels, the library does not do the work."""
_TIME_TARGET = re.compile(r"^_?(t|tt|ts|time|timestep|time_step|step|i_t|t_idx|time_idx|seq_idx|token|pos)$")
"""Loop variables that count time steps."""
_TIME_BOUND = re.compile(r"(?i)\b(T|seq|seq_?len\w*|sequence_?length|(num_?|n_?)?(time_?)?steps|length|max_len|time)\b")
"""Bounds of loops over time steps."""
_OTHER_TARGET = re.compile(r"^_?(l|li|layer\w*|n_layer|d|dir\w*|b|batch\w*|block\w*|stage\w*|head\w*|c|chunk\w*|g|group\w*|gate\w*)$")
"""Loop variables that count something else."""
_FEW_LAUNCHES = 8
"""So many launches of one kernel per forward are no time loop."""


def find_time_loop(index: KernelSource, facts: LaunchFacts | None, task: TaskFacts | None) -> TraitHit | None:
    """A loop in host code that launches once per step.

    With facts of the launches, a loop counts when its kernel is launched far more often than the reference has layers; without them,
    by what it runs over: `for t in range(T)` counts, `for layer in range(num_layers)` and loops over modules do not.
    """
    counted = {kernel.name: kernel.launches for kernel in facts.kernels} if facts is not None else {}
    layers = _count_layers(task)
    for call in find_host_calls(index):
        if not call.loops or not (call.kernel or find_library_call(index, call)):
            continue
        loop, line = call.loops[-1], call.node.lineno
        if call.kernel in counted:
            launches = counted[str(call.kernel)]
            if launches > max(_FEW_LAUNCHES, 2 * layers):
                where = f"{call.kernel} is launched {launches} times per forward, from the Python loop in line {loop.lineno}"
                return TraitHit(name=Trait.TIME_LOOP_IN_PYTHON, line=line, evidence=f"{where} ({_describe_loop(loop)})")
        else:
            over_time = next((around for around in reversed(call.loops) if _runs_over_time(around, call)), None)
            if over_time is not None:
                what = f"launches {call.kernel}" if call.kernel else f"calls {ast.unparse(call.node.func)}"
                where = f"the Python loop in line {over_time.lineno} ({_describe_loop(over_time)})"
                evidence = f"line {line} {what} in every iteration of {where}"
                return TraitHit(name=Trait.TIME_LOOP_IN_PYTHON, line=line, evidence=evidence)
    return None


def _count_layers(task: TaskFacts | None) -> int:
    """Recurrent layers times directions; 0 where unknown."""
    recurrent = [op.attributes for op in task.ops if op.module_type in ("GRU", "LSTM", "RNN")] if task is not None else []
    return sum(int(layer.get("num_layers", 1)) * (2 if layer.get("bidirectional") else 1) for layer in recurrent)


def _describe_loop(loop: HostLoop) -> str:
    if isinstance(loop, ast.For):
        return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}"
    return " ".join(ast.unparse(generator) for generator in loop.generators)


def _runs_over_time(loop: HostLoop, call: Call) -> bool:
    if isinstance(loop, ast.While):
        names = {part.id for part in ast.walk(loop.test) if isinstance(part, ast.Name)}
        return any(_TIME_TARGET.match(name) for name in names)
    heads = [loop] if isinstance(loop, ast.For) else loop.generators
    return any(_head_runs_over_time(head.target, head.iter, loop, call) for head in heads)


def _head_runs_over_time(target: ast.expr, over: ast.expr, loop: HostLoop, call: Call) -> bool:
    if isinstance(over, ast.Call) and ast.unparse(over.func) in ("reversed", "enumerate") and over.args:
        target = target.elts[0] if isinstance(target, ast.Tuple) else target
        over = over.args[0]
    name = target.id if isinstance(target, ast.Name) else ""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in ("unbind", "split", "chunk"):
        return over.func.attr == "unbind"
    if not (isinstance(over, ast.Call) and ast.unparse(over.func) == "range") or _OTHER_TARGET.match(name):
        return False
    bound = over.args[min(1, len(over.args) - 1)]
    if isinstance(bound, ast.Constant):
        return False
    if _TIME_TARGET.match(name) or _TIME_BOUND.search(ast.unparse(bound)):
        return True
    return _comes_from_shape(bound, call) and _indexes_by(loop, name)


def _comes_from_shape(bound: ast.expr, call: Call) -> bool:
    """Whether a bound is an extent of a tensor: x.shape[i], x.size(i), or a name that was set from one."""
    sources = [bound]
    if isinstance(bound, ast.Name):
        for node in ast.walk(call.function):
            if isinstance(node, ast.Assign) and any(
                isinstance(part, ast.Name) and part.id == bound.id for target in node.targets for part in ast.walk(target)
            ):
                sources.append(node.value)
    return any(isinstance(part, ast.Attribute) and part.attr in ("shape", "size") for source in sources for part in ast.walk(source))


def _indexes_by(loop: HostLoop, name: str) -> bool:
    """Whether the loop's variable picks a slice of a tensor, as in x[t] or x[:, t]."""
    return any(
        isinstance(inner, ast.Subscript) and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(inner.slice))
        for inner in ast.walk(loop)
    )


def find_library_work(index: KernelSource, facts: LaunchFacts | None, uses_dot: bool) -> TraitHit | None:
    """Library calls that do the work: recurrent, convolution and attention calls, torch.compile, and products when no kernel has tl.dot."""
    if facts is not None and facts.own_time_share is not None and facts.own_time_share >= _OWN_SHARE:
        return None
    calls = find_host_calls(index)
    launches = any(call.kernel for call in calls)
    found: dict[int, str] = {}
    for call in calls:
        kind = find_library_call(index, call)
        if kind and (kind[1] or not uses_dot):
            found.setdefault(call.node.lineno, kind[0])
    for function in {id(call.function): call.function for call in calls}.values():
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and not uses_dot:
                found.setdefault(node.lineno, "@")
    for call_node in calls_of(index.tree):
        if index.resolve_name(call_node.func) == "torch.compile":
            found.setdefault(call_node.lineno, "torch.compile")
    share = f"; own kernels have {facts.own_time_share:.0%} of the device time" if facts and facts.own_time_share is not None else ""
    if found:
        text = ", ".join(f"{name} (line {line})" for line, name in sorted(found.items())[:8])
        return TraitHit(name=Trait.LIBRARY_PASS_THROUGH, line=min(found), evidence=f"the library computes: {text}{share}")
    if "ModelNew" in index.classes and not launches:
        line = index.classes["ModelNew"].lineno
        return TraitHit(name=Trait.LIBRARY_PASS_THROUGH, line=line, evidence="ModelNew.forward launches no Triton kernel of its own")
    return None


def find_library_call(index: KernelSource, call: Call) -> tuple[str, bool] | None:
    """Name of the library's computing function that a call enters, and whether it is more than a matrix product."""
    node = call.node.func
    name = index.resolve_name(node)
    for prefix in _NAMESPACES:
        short = name.removeprefix(prefix).split(".")[0]
        if name.startswith(prefix) and short in _PRODUCTS | _HEAVY:
            return name, short in _HEAVY
    if isinstance(node, ast.Attribute) and node.attr in _TENSOR_METHODS and not name.startswith("torch."):
        return f".{node.attr}", False
    for module in _find_modules_entered(index, node, call):
        if _HEAVY_MODULES.match(module):
            return f"nn.{module}", True
        if module in _PRODUCT_MODULES:
            return f"nn.{module}", False
    return None


def _find_modules_entered(index: KernelSource, node: ast.expr, call: Call) -> Iterator[str]:
    """Class names in torch.nn of what a call such as self.lstm(x), self.layers[i](x) or layer(x) enters."""
    if isinstance(node, ast.Subscript):
        node = node.value
    attribute = ""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        attribute = node.attr
    elif isinstance(node, ast.Name):
        attribute = _find_iterated_attribute(node.id, call.loops)
    for owner in index.classes if attribute else ():
        for value in find_attribute_values(index, owner, attribute):
            yield from _find_nn_names(index, value)
    if isinstance(node, ast.Attribute) and node.attr == "forward" and isinstance(node.value, ast.Call):
        for base in index.classes["ModelNew"].bases if "ModelNew" in index.classes else ():
            yield from _find_nn_names(index, base)  # super().forward of a library module


def _find_iterated_attribute(name: str, loops: tuple[HostLoop, ...]) -> str:
    """The attribute of self over which a loop with this variable runs."""
    for loop in loops:
        pairs: Mapping[ast.expr, ast.expr]
        pairs = {loop.target: loop.iter} if isinstance(loop, ast.For) else {} if isinstance(loop, ast.While) else {
            generator.target: generator.iter for generator in loop.generators
        }  # fmt: skip
        for target, over in pairs.items():
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target)):
                for part in ast.walk(over):
                    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                        return part.attr
    return ""


def _find_nn_names(index: KernelSource, value: ast.AST) -> Iterator[str]:
    for part in ast.walk(value):
        if isinstance(part, ast.Attribute | ast.Name):
            name = index.resolve_name(part)
            if name.startswith("torch.nn."):
                yield name.removeprefix("torch.nn.").split(".")[-1]
