"""Inductor's kernels as plain Triton functions with the block sizes that its heuristics choose first. Imports torch and Triton."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

from torch._inductor.runtime import hints, triton_heuristics

from tritonsmith.evaluator.inductor.helpers import rename_helpers
from tritonsmith.evaluator.inductor.records import NoSeedError, PlainKernel, wrap_call

_NUMELS = re.compile(r"[xyz]numel$|r\d+_numel$")
_PREFIX = re.compile(r"triton_(poi|red|per|spl|tem|for|unk)_(fused_)?")
_PLUMBING = re.compile(r"(?<![a-z])native_|_?legit_no_training|_?legit_functional|(?<![a-z])prims_")
"""Parts of operators' names that say nothing to a reader."""
_SECOND_NAME = re.compile(r"\s*(rnumel|RBLOCK|roffset|rindex|r\d+_(?:offset|numel|mask)|[xyz](?:numel|mask))\b(?:: tl\.constexpr)? = ")
"""What Inductor names besides, and often does not use."""


def read_kernels(tree: ast.Module) -> dict[str, PlainKernel]:
    """The kernels of Inductor's text by the name that its code calls them. Raises NoSeedError."""
    found: dict[str, PlainKernel] = {}
    helpers: dict[str, str] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        call, target = statement.value, statement.targets[0]
        if not isinstance(target, ast.Name) or not ast.unparse(call.func).startswith("async_compile."):
            continue
        kind = ast.unparse(call.func).removeprefix("async_compile.")
        if kind != "triton" or len(call.args) < 2 or not isinstance(call.args[1], ast.Constant):
            raise NoSeedError(f"Inductor wrote {target.id} with its {kind} backend, and only kernels of Triton can be taken over")
        found[target.id] = _KernelReader(target.id, str(call.args[1].value), helpers).read()
    return found


class _KernelReader:
    """Reads the module text of one kernel.

    Args:
        name: of the kernel.
        source: the module that Inductor would compile.
        helpers: texts of functions that earlier kernels brought along, by name.
    """

    def __init__(self, name: str, source: str, helpers: dict[str, str]) -> None:
        self._name, self._source, self._helpers = name, source, helpers
        self._lines = source.splitlines()
        self._tree = ast.parse(source)

    def read(self) -> PlainKernel:
        """The kernel."""
        functions = [one for one in self._tree.body if isinstance(one, ast.FunctionDef)]
        if not functions:
            raise NoSeedError(f"Inductor's module of {self._name} holds no function")
        kernel = functions[-1]
        config, meta = self._choose_config(kernel)
        constants = {name: value for name, value in config.kwargs.items() if name in _names_of(kernel)}
        set_inside = _find_numels(kernel)
        names = _names_of(kernel)
        left_out = tuple(place for place, name in enumerate(names) if name in set_inside)
        constexprs = _find_constexprs(kernel)
        missing = sorted(constexprs - set(constants))
        if missing:
            raise NoSeedError(f"Inductor's heuristics give {self._name} no value for {missing[0]}")
        passed = tuple(name for name in names if name not in set_inside and name not in constexprs)
        text, helpers = self._write(functions[:-1], kernel, passed, sorted(constants, key=names.index))
        return PlainKernel(
            name_kernel(self._name), text, passed, left_out, write_grid(meta, constants, set_inside, self._name),
            tuple((name, int(constants[name])) for name in sorted(constants, key=names.index)),
            int(config.num_warps), int(config.num_stages), helpers,
        )  # fmt: skip

    def _choose_config(self, kernel: ast.FunctionDef) -> tuple[Any, dict[str, Any]]:
        """The first configuration of Inductor's heuristics, and what they know of the kernel."""
        heuristics = next((one for one in kernel.decorator_list if "triton_heuristics" in ast.unparse(one)), None)
        if heuristics is None:
            raise NoSeedError(f"{self._name} has no heuristics of Inductor, so its block sizes are unknown")
        noted: dict[str, Any] = {}

        def note(size_hints: Any, configs: Any = None, triton_meta: Any = None, **more: Any) -> Callable[..., Any]:
            meta = more.get("inductor_meta") or {}
            noted.update(configs=_respect_minimums(list(configs or ()), size_hints, meta, more.get("heuristic_type")), meta=meta)
            return lambda function: function

        names = {one: getattr(hints, one) for one in dir(hints) if not one.startswith("__")}
        space = {**names, "triton_heuristics": triton_heuristics, "__file__": f"{self._name}.py"}
        expression = compile(ast.Expression(heuristics), self._name, "eval")
        try:
            with mock.patch.object(triton_heuristics, "cached_autotune", note):
                eval(expression, space)  # noqa: S307 - Inductor's own text, which torch.compile would run as it is
        except NoSeedError:
            raise
        except Exception as error:  # a heuristic of another version may want what is not there
            raise NoSeedError(f"Inductor's heuristics of {self._name} cannot be asked ({type(error).__name__}: {error})") from error
        if not noted.get("configs"):
            raise NoSeedError(f"Inductor's heuristics give {self._name} no block sizes")
        return noted["configs"][0], noted["meta"]

    def _write(
        self, inner: list[ast.FunctionDef], kernel: ast.FunctionDef, passed: tuple[str, ...], constants: list[str]
    ) -> tuple[str, frozenset[str]]:
        """The text of the kernel and of the functions before it, and the helpers that they call."""
        parts: list[str] = []
        renamed: dict[str, str] = {}
        for function in inner:
            text = "@triton.jit\n" + self._cut(function)
            own = function.name.lstrip("_").removeprefix("triton_helper_fn_")
            number = 0
            while self._helpers.setdefault(f"combine_{own}" + (f"_{number}" if number else ""), text) != text:
                number += 1
            chosen = f"combine_{own}" + (f"_{number}" if number else "")
            renamed[function.name] = chosen
            parts.append(_rename_all(text, {function.name: chosen}))
        head = wrap_call("def " + name_kernel(self._name) + "(", [*passed, *(f"{name}: tl.constexpr" for name in constants)], "):", "")
        start = kernel.body[0].lineno - 1
        body = _drop_unused(self._lines[start : kernel.end_lineno])
        parts.append(_rename_all("\n".join(["@triton.jit", *head, body]), renamed))
        text, helpers = rename_helpers("\n\n\n".join(parts))
        text = re.sub(r"\btl_math\.", "tl.math.", text)
        foreign = re.search(r"\b(triton_heuristics|hints|torch|inductor)\.\w+", text)
        if foreign:
            raise NoSeedError(f"{self._name} uses {foreign.group(0)}, which only exists inside of Inductor")
        return text, helpers

    def _cut(self, function: ast.FunctionDef) -> str:
        return "\n".join(self._lines[function.lineno - 1 : function.end_lineno])


def name_kernel(name: str) -> str:
    """The name in the candidate's file: what the kernel does, and its number."""
    short = _PLUMBING.sub("", _PREFIX.sub("", name)).strip("_")
    return short if short[:1].isalpha() else f"kernel_{short}"


def _names_of(kernel: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in kernel.args.args]


def _find_constexprs(kernel: ast.FunctionDef) -> set[str]:
    return {one.arg for one in kernel.args.args if one.annotation is not None and "constexpr" in ast.unparse(one.annotation)}


def _find_numels(kernel: ast.FunctionDef) -> dict[str, int]:
    """Sizes among the parameters that the body sets to a number itself."""
    names = set(_names_of(kernel))
    return {
        statement.targets[0].id: statement.value.value
        for statement in kernel.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in names
        and _NUMELS.match(statement.targets[0].id)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, int)
    }


def _drop_unused(lines: list[str]) -> str:
    """The body without second names of sizes and indices that nothing uses."""
    kept = lines
    while True:
        text = "\n".join(kept)
        unused = [line for line in kept if (found := _SECOND_NAME.match(line)) and len(re.findall(rf"\b{found.group(1)}\b", text)) == 1]
        if not unused:
            return text
        kept = [line for line in kept if line not in unused]


def _rename_all(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    return text


def _respect_minimums(configs: list[Any], size_hints: Any, meta: dict[str, Any], kind: Any) -> list[Any]:
    """As Inductor does before it tries them, where its version has that step."""
    enforce: Any = getattr(triton_heuristics, "_enforce_reduction_config_block_minimums", None)
    reductions = {getattr(hints.HeuristicType, name, None) for name in ("REDUCTION", "PERSISTENT_REDUCTION")}
    if enforce is None or size_hints is None or kind not in reductions:
        return configs
    return list(enforce(configs, size_hints, meta))


def write_grid(meta: dict[str, Any], constants: dict[str, Any], numels: dict[str, int], name: str) -> str:
    """The grid of a kernel as Python writes it. Raises NoSeedError for a kind that is not known here."""
    kind = meta.get("grid_type", "Grid1D")

    def divide(axis: str) -> str:
        numel, block = f"{axis}numel" if axis != "r0_" else "r0_numel", "R0_BLOCK" if axis == "r0_" else f"{axis.upper()}BLOCK"
        if numel not in numels:
            raise NoSeedError(f"the size {numel} of {name} is not a number")
        return f'triton.cdiv({numels[numel]}, meta["{block}"])' if block in constants else str(numels[numel])

    axes = {"Grid1D": "x", "Grid2D": "xy", "Grid3D": "xyz"}.get(kind)
    if axes is not None:
        grid = ", ".join(map(divide, axes)) + ("," if len(axes) == 1 else "")
    elif kind == "SplitScanGrid":
        grid = f"{divide('r0_')}, {numels.get('xnumel', 1)}"
    elif kind == "Grid2DWithYZOverflow":
        grid = f"{divide('x')}, *spread_rows({divide('y')})"
    else:
        raise NoSeedError(f"{name} is launched on a grid of Inductor's kind {kind}, which is not known here")
    return f"lambda meta: ({grid})" if "meta[" in grid else f"({grid})"
