"""The lines of forward, from the `call` of Inductor's text. Imports no torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from tritonsmith.evaluator.inductor.expressions import Rewriter
from tritonsmith.evaluator.inductor.records import Layout, NoSeedError, PlainKernel, count_strides, wrap_call

_NODES = re.compile(r"\s*# Topologically Sorted Source Nodes: \[(.*?)\]")
_EMPTY = re.compile(r"empty_strided_(cuda|cpu)$")
_SHOWN = 120
"""Characters of a comment that names operations."""
_IGNORED = frozenset(("assert_alignment", "torch.cuda.set_device", "async_compile.wait"))
"""Calls that change nothing for one card."""


class ForwardWriter:
    """Writes forward's lines.

    Args:
        text: Inductor's.
        kernels: by the name that `call` uses.
        inputs: what stands for the arguments of `call`, in order, as expressions of forward.
        layouts: of these.
        constants: names of tensors that the text has at its top level.
    """

    def __init__(
        self, text: str, kernels: Mapping[str, PlainKernel], inputs: Sequence[str], layouts: Sequence[Layout], constants: Sequence[str]
    ) -> None:
        self._source, self._kernels, self._inputs, self._given = text.splitlines(), kernels, inputs, layouts
        self._call = _find_call(ast.parse(text))
        self._arguments = self._call.args.args[-1].arg
        self._names: dict[str, str] = {name: f"self.{name}" for name in constants}
        self._layouts: dict[str, Layout] = {}
        self._rewriter = Rewriter(self._names, self._layouts)
        self._passed_on: set[str] = set()
        """Names whose buffer lives on under another one."""
        self._pending: dict[str, tuple[str, bool]] = {}
        """Buffers that nothing has used yet: the line that makes each, and whether it is contiguous."""
        self._own: set[str] = set()
        """Variables of forward that hold a buffer."""
        self._commented = 0
        self.lines: list[str] = []
        self.launched: list[str] = []
        """Kernels by Inductor's names, in the order of their first launch."""
        self.outputs: list[str] = []

    @property
    def used(self) -> set[str]:
        """Functions of the candidate's file, and `F`, that the lines need."""
        return self._rewriter.used

    def write(self) -> None:
        """Fill `lines` and `outputs`. Raises NoSeedError for what cannot stand outside of Inductor."""
        self._write_all(self._call.body)

    def _write_all(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.With):
                guard = ast.unparse(statement.items[0].context_expr)
                if "DeviceGuard" not in guard and not guard.startswith("torch.cuda.device"):
                    raise NoSeedError(f"Inductor's code runs under {guard}, which is not known here")
                self._write_all(statement.body)
            elif isinstance(statement, ast.Return):
                self._return(statement)
            elif isinstance(statement, ast.Delete):
                self._delete([ast.unparse(target) for target in statement.targets])
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value, statement)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._run(statement.value, statement)
            elif not isinstance(statement, ast.Pass | ast.Global) and not _is_text(statement):
                raise NoSeedError(f"Inductor's code has a statement that is not known here ({_shorten(statement)})")

    def _assign(self, target: ast.expr, value: ast.expr, statement: ast.stmt) -> None:
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if ast.unparse(value) == self._arguments:
            self._take_inputs([ast.unparse(one) for one in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])])
            return
        if not isinstance(target, ast.Name):
            raise NoSeedError(f"Inductor's code has an assignment that is not known here ({_shorten(statement)})")
        name = target.id
        if called in ("copy_if_misaligned", "get_raw_stream"):
            return  # Triton looks at the addresses and the stream of each launch itself
        if isinstance(value, ast.Name) and value.id in self._names:
            self._names[name] = self._names[value.id]
            self._passed_on.add(value.id)
            if value.id in self._layouts:
                self._layouts[name] = self._layouts[value.id]
        elif isinstance(value, ast.Call) and _EMPTY.match(called):
            self._allocate(name, value)
        else:
            self._define(name, self._rewriter.rewrite(value), statement)
            if called == "reinterpret_tensor" and isinstance(value, ast.Call):
                shape, strides = (tuple(ast.literal_eval(argument)) for argument in value.args[1:3])
                self._layouts[name] = shape, strides

    def _take_inputs(self, names: list[str]) -> None:
        if len(names) != len(self._inputs):
            taken = f"{len(names)} tensor{'s' * (len(names) != 1)}"
            raise NoSeedError(f"Inductor's code takes {taken} where the traced module has {len(self._inputs)}")
        self._names.update(zip(names, self._inputs, strict=True))
        self._layouts.update(zip(names, self._given, strict=True))

    def _allocate(self, name: str, call: ast.Call) -> None:
        shape, strides = (tuple(ast.literal_eval(argument)) for argument in call.args[:2])
        where = "" if ast.unparse(call.func).endswith("_cpu") else ", device=device"
        plain = strides == count_strides(shape) and 0 not in shape
        make = f"torch.empty({shape}" if plain else f"torch.empty_strided({shape}, {strides}"
        self._names[name], self._layouts[name] = name, (shape, strides)
        self._own.add(name)
        self._pending[name] = f"{name} = {make}{where}, dtype={ast.unparse(call.args[2])})", plain

    def _define(self, name: str, value: ast.expr, statement: ast.stmt) -> None:
        self._names[name] = name
        self._layouts.pop(name, None)
        self._own.add(name)
        self._comment(statement)
        self._add(f"{name} = ", value)

    def _run(self, call: ast.Call, statement: ast.stmt) -> None:
        called = ast.unparse(call.func)
        owner, _, method = called.rpartition(".")
        if called == f"{self._arguments}.clear" or called in _IGNORED:
            return
        if called == "assert_size_stride":
            self._keep_layout(call)
        elif method == "run" and owner in self._kernels:
            self._launch(self._kernels[owner], call, statement)
            if owner not in self.launched:
                self.launched.append(owner)
        else:
            self._effect(call, statement)

    def _effect(self, call: ast.Call, statement: ast.stmt) -> None:
        """A call that writes into a buffer. A product that fills a buffer of its own makes that buffer instead."""
        new = self._rewriter.rewrite(call)
        self._comment(statement)
        out = next((one for one in new.keywords if one.arg == "out"), None) if isinstance(new, ast.Call) else None
        target = ast.unparse(out.value) if out is not None else ""
        if isinstance(new, ast.Call) and out is not None and self._pending.get(target, ("", False))[1]:
            del self._pending[target]
            new.keywords.remove(out)
            self._add(f"{target} = ", new)
        else:
            self._add("", new)

    def _keep_layout(self, call: ast.Call) -> None:
        """Kernels address what a library returned by the strides that Inductor expects; a library may choose others."""
        place = ast.unparse(call.args[0])
        name = self._names.get(place, "")
        if name not in self._own:
            return  # an input, whose layout forward has checked
        shape, strides = (tuple(ast.literal_eval(argument)) for argument in call.args[1:3])
        self._layouts[place] = self._layouts[name] = shape, strides
        self._rewriter.used.add("in_strides")
        made = f"{name} = "
        if self.lines and self.lines[-1].startswith(made):
            self.lines[-1] = f"{made}in_strides({self.lines[-1].removeprefix(made)}, {strides})"
        else:
            self.lines.append(f"{made}in_strides({name}, {strides})")

    def _launch(self, kernel: PlainKernel, call: ast.Call, statement: ast.stmt) -> None:
        given = [argument for place, argument in enumerate(call.args) if place not in kernel.left_out]
        if len(given) != len(kernel.parameters):
            passed = f"{len(given)} argument{'s' * (len(given) != 1)}"
            raise NoSeedError(f"Inductor's code passes {passed} to {kernel.name}, which takes {len(kernel.parameters)}")
        values = [self._rewriter.rewrite(argument) for argument in given]
        self._flush(*values)
        self._comment(statement)
        blocks = [f"{name}={value}" for name, value in kernel.constants]
        options = [f"num_warps={kernel.warps}", *([f"num_stages={kernel.stages}"] if kernel.stages > 1 else [])]
        self.lines += wrap_call(f"{kernel.name}[{kernel.grid}](", [*map(ast.unparse, values), *blocks, *options], ")")
        if "spread_rows" in kernel.grid:
            self._rewriter.used.add("spread_rows")

    def _delete(self, names: list[str]) -> None:
        gone = [self._names[name] for name in names if self._names.get(name) in self._own and name not in self._passed_on]
        for name in gone:
            self._pending.pop(name, None)
        if not gone:
            return
        if self.lines and self.lines[-1].startswith("del "):
            gone = [self.lines.pop().removeprefix("del "), *gone]
        self.lines.append(f"del {', '.join(gone)}")

    def _return(self, statement: ast.Return) -> None:
        if not isinstance(statement.value, ast.Tuple):
            raise NoSeedError("Inductor's code returns no tuple")
        values = [self._rewriter.rewrite(value) for value in statement.value.elts]
        self._flush(*values)
        self.outputs = [ast.unparse(value) for value in values]

    def _add(self, start: str, value: ast.expr) -> None:
        self._flush(value)
        self.lines.append(start + ast.unparse(value))

    def _flush(self, *values: ast.expr) -> None:
        """Make the buffers that these expressions are the first to use."""
        for name in dict.fromkeys(node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)):
            if name in self._pending:
                self.lines.append(self._pending.pop(name)[0])

    def _comment(self, statement: ast.stmt) -> None:
        """The operations of the module that the next lines carry out, as Inductor names them."""
        for number in range(statement.lineno - 2, max(self._commented, statement.lineno - 6), -1):
            found = _NODES.match(self._source[number])
            if found and found.group(1):
                text = found.group(1)
                self._commented = number
                self.lines.append(f"# {text if len(text) <= _SHOWN else text[: _SHOWN - 4].rsplit(',', 1)[0] + ', ...'}")
                return


def _find_call(tree: ast.Module) -> ast.FunctionDef:
    """`call` at the top level, or the method of the class Runner that stands for it."""
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    places = [tree.body, *(one.body for one in classes)]
    found = [one for body in places for one in body if isinstance(one, ast.FunctionDef) and one.name == "call"]
    if len(found) != 1 or not found[0].args.args:
        raise NoSeedError("Inductor's text has no function call in the form that is known here")
    return found[0]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _shorten(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0][:80]
