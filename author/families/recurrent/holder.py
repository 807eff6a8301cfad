"""The call that makes the holder of a recurrent module's weights, as the task writes it where that is self-contained."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tritonsmith.author.constructor import bind, made_for, names_of, read_constructor, write_signature
from tritonsmith.evaluator.schema import OpNode, TaskFacts

_WRITTEN = ("input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "bidirectional")
"""Arguments that a call with sizes as constants gives."""


def call_holder(
    source: str, facts: TaskFacts, node: OpNode, *, layout: bool, kept: bool, dtype: str = "float32"
) -> tuple[str, str, dict[str, str]]:
    """The call that makes the holder of the weights, the parameters of `__init__`, and the arguments that it is made for.

    Call and parameters as the task writes them where that is self-contained, else with sizes as constants.

    Args:
        source: the task's text.
        facts: what running it showed.
        node: the recurrent module.
        layout: whether forward's code depends on `batch_first`.
        kept: whether it depends on arguments that `__init__` keeps as attributes.
        dtype: of the weights.
    """
    typed = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    init = read_constructor(source)
    call = _find_call(init, node.target) if init else None
    if init is None or call is None:
        given = {
            key: node.attributes[key] for key in _WRITTEN if key in node.attributes and (key != "bidirectional" or node.attributes[key])
        }
        sizes = ", ".join(f"{key}={value!r}" for key, value in given.items())
        signature, fixed = made_for(source, facts.init_inputs)
        return f"{node.module_type}Weights({sizes}{typed})", signature, fixed
    inner = ", ".join([ast.unparse(a) for a in call.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords])
    elsewhere = _names_beside(init, () if kept else _list_kept(init), call)
    if layout:
        position = 5 if node.module_type == "RNN" else 4
        places = (*call.args[position : position + 1], *(keyword_.value for keyword_ in call.keywords if keyword_.arg == "batch_first"))
        elsewhere |= {name for place in places for name in _names(place)}
    bound = bind(init, facts.init_inputs) if facts.init_inputs is not None else {}
    fixed = {name: value for name, value in bound.items() if name in elsewhere}
    return f"{node.module_type}Weights({inner}{typed})", write_signature(init), fixed


def _find_call(init: ast.FunctionDef, target: str) -> ast.Call | None:
    """The call that makes `self.target` of nothing but the parameters of `__init__`; None where it needs more."""
    known = {*names_of(init)} - {part.id for part in ast.walk(init) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    for item in ast.walk(init):
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == f"self.{target}" and isinstance(item.value, ast.Call):
            call = item.value
            used = {name for argument in (*call.args, *(k.value for k in call.keywords)) for name in _names(argument)}
            if used <= known and all(keyword_.arg for keyword_ in call.keywords):
                return call
    return None


def _list_kept(init: ast.FunctionDef) -> list[ast.expr]:
    """Names that `__init__` keeps as attributes and does nothing else with."""
    assigned = [part for part in ast.walk(init) if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Attribute)]
    return [part.value for part in assigned if isinstance(part.value, ast.Name)]


def _names_beside(init: ast.FunctionDef, kept: Iterable[ast.expr], call: ast.Call) -> set[str]:
    """Names that `__init__` uses outside of these expressions."""
    skipped = {id(part) for root in (call, *kept) for part in ast.walk(root)}
    return {part.id for line in init.body for part in ast.walk(line) if isinstance(part, ast.Name) and id(part) not in skipped}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
