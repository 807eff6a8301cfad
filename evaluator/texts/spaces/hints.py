"""Cache hints of loads: which lines of the cache go first, and which stay."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource, calls_of
from tritonsmith.evaluator.texts.spaces.space import Edit, Offsets, Parameter

_POLICIES = ("", "evict_first", "evict_last")
"""What tl.load takes as `eviction_policy`."""
_MOST_HINTS = 4
"""Loads of one text whose hints are varied."""
Ends = Callable[[ast.Call], tuple[int, tuple[str, str]]]
"""Where a further argument goes into a call, and the text around it."""


def list_hints(
    index: KernelSource, kernels: list[ast.FunctionDef], offsets: Offsets, ends: Ends
) -> Iterator[tuple[Parameter, tuple[Edit, ...]]]:
    """One parameter for each buffer that kernels load from; all loads of one pointer in a kernel get the same hint."""
    counted = 0
    for kernel in kernels:
        loads: dict[str, list[ast.Call]] = {}
        for call in calls_of(kernel):
            if index.resolve_language_name(call.func) == "load" and call.args and not any(word.arg is None for word in call.keywords):
                loads.setdefault(_base_of(call.args[0]), []).append(call)
        for base, calls in loads.items():
            given = [next((word.value for word in call.keywords if word.arg == "eviction_policy"), None) for call in calls]
            texts = {value.value if isinstance(value, ast.Constant) else None for value in given if value is not None}
            if not base or len(texts) > 1 or None in texts or (texts and None in given) or len(calls[0].args) > 5 or counted >= _MOST_HINTS:
                continue
            counted += 1
            places = tuple(_place(call, value, offsets, ends) for call, value in zip(calls, given, strict=True))
            current = str(next(iter(texts), ""))
            name = f"hint_{base}" if len(kernels) == 1 else f"hint_{kernel.name}_{base}"
            origin = f"loads of {base} in {kernel.name}, line {calls[0].lineno}"
            yield Parameter(name, Stage.TUNE_MEMORY, tuple(dict.fromkeys((*_POLICIES, current))), current, origin), places


def _place(call: ast.Call, given: ast.expr | None, offsets: Offsets, ends: Ends) -> Edit:
    if given is not None:
        return Edit(*offsets.span(given))
    at, (before, after) = ends(call)
    return Edit(at, at, f"{before}eviction_policy=", after)


def _base_of(address: ast.expr) -> str:
    """The first name of an address, which is the pointer."""
    while isinstance(address, ast.BinOp):
        address = address.left
    return address.id if isinstance(address, ast.Name) else ""
