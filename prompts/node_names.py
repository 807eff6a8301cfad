"""What the nodes of a traced forward call, as people write it, and which of them are plain elementwise operations."""

from __future__ import annotations

from tritonsmith.evaluator.schema import OpNode

GETITEM = ("_operator.getitem", "operator.getitem", "getitem")
"""Targets of nodes that index."""

ELEMENTWISE = frozenset({
    "abs", "add", "clamp", "cos", "div", "elu", "erf", "exp", "gelu", "hardsigmoid", "hardswish",
    "hardtanh", "identity", "leaky_relu", "log", "maximum", "minimum", "mul", "neg", "pow",
    "reciprocal", "relu", "relu6", "rsqrt", "sigmoid", "silu", "sin", "softplus", "softsign", "sqrt",
    "square", "sub", "tanh",
})  # fmt: skip
"""Operations that are one formula for each element, by the name that torch gives the function."""

_ALIASES = {
    "truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg", "clip": "clamp",
    "iadd": "add", "imul": "mul", "isub": "sub", "itruediv": "div", "add_": "add", "mul_": "mul", "sub_": "sub", "div_": "div",
    "relu_": "relu", "clamp_": "clamp", "contiguous": "identity", "dropout": "identity", "absolute": "abs",
}  # fmt: skip

MODULES = {
    "ReLU": "relu", "ReLU6": "relu6", "Sigmoid": "sigmoid", "Tanh": "tanh", "SiLU": "silu", "GELU": "gelu", "LeakyReLU": "leaky_relu",
    "ELU": "elu", "Softplus": "softplus", "Hardsigmoid": "hardsigmoid", "Hardswish": "hardswish", "Softsign": "softsign",
    "Hardtanh": "hardtanh", "Identity": "identity", "Dropout": "identity",
}  # fmt: skip
"""Modules of torch.nn by the operation that they apply."""

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "neg": "-",
    "matmul": "@", "mod": "%", "floordiv": "//", "getitem": "[]", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and_": "&", "or_": "|", "xor": "^", "invert": "~", "lshift": "<<", "rshift": ">>",
}  # fmt: skip


def name_node(node: OpNode) -> str:
    """What a node calls, as people write it: `nn.Conv2d`, `F.softmax`, `torch.cumsum`, `Tensor.mean`, `the operator @`."""
    if node.op == "call_module":
        return f"nn.{node.module_type}"
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    module, _, name = node.target.rpartition(".")
    if name == "getattr" and len(node.args) == 2:
        return f"the attribute {node.args[1]}"
    if module in ("_operator", "operator"):
        return f"the operator {_SYMBOLS.get(name) or _SYMBOLS.get(name.removeprefix('i'), name)}"
    return f"F.{name}" if module == "torch.nn.functional" else node.target


def operation_name(node: OpNode) -> str | None:
    """Canonical name of an elementwise node, or None when it is none."""
    if node.op == "call_module":
        return MODULES.get(node.module_type)
    if node.op not in ("call_function", "call_method"):
        return None
    name = node.target.rpartition(".")[2]
    name = _ALIASES.get(name, name)
    plain = name.rstrip("_")  # a write in place
    name = name if name in ELEMENTWISE else _ALIASES.get(plain, plain)
    return name if name in ELEMENTWISE else None
