"""Fixes of the stock Triton interpreter (3.6 to 3.7): arithmetic, reductions, libdevice, run-time ranges, speed, autotuning.

Imports torch and Triton: for evaluator processes with TRITON_INTERPRET=1 only, which must be set before Triton is imported.
"""

import inspect
import types
from typing import Any

import numpy as np
from triton.runtime.errors import InterpreterError

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.confined.interpreter.autotuning import StaticAssertion, install_autotuning, run_once
from tritonsmith.evaluator.confined.interpreter.libdevice import install_libdevice
from tritonsmith.evaluator.confined.interpreter.numerics import install_numerics
from tritonsmith.evaluator.confined.interpreter.reductions import install_reductions
from tritonsmith.evaluator.confined.interpreter.speed import install_speed
from tritonsmith.evaluator.confined.interpreter.warmup import install_warmup
from tritonsmith.evaluator.confined.stand_ins.driver import FakeDriver
from tritonsmith.evaluator.confined.stand_ins.untyped import driver, interpreter, knobs, tl
from tritonsmith.evaluator.schema import Hardware

_BOTH = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
"""Stands for a kernel that sees triton.language under both names, so that one patch serves nested helpers too."""
_stock_patch_lang = interpreter._patch_lang


def _convert_to_int(tensor: Any) -> int:
    # numpy >= 2.4 refuses int() of a one-element array, which run-time ranges need
    return int(np.asarray(tensor.handle.data).reshape(-1)[0])


def _keep_value(input: Any, *_hints: Any, **_named: Any) -> Any:  # noqa: A002 - the name that the language has
    """A hint to the compiler: the value stays what it is."""
    return input


def _require(cond: Any, msg: Any = "", **_named: Any) -> None:
    """`tl.static_assert`, whose failure a tuner must know from others."""
    if not cond:
        raise StaticAssertion(str(msg))


def _print_nothing(*_values: Any, **_named: Any) -> None:
    """What the compiler prints is of no use once per program."""


def patch_language(_function: Any = None) -> Any:
    """Point triton.language at the interpreter; returns the scope whose restore() undoes it."""
    scope = _stock_patch_lang(_BOTH)
    for module in (tl, tl.core):
        for name in ("multiple_of", "max_contiguous", "max_constancy"):
            scope.set_attr(module, name, _keep_value)
        scope.set_attr(module, "static_print", _print_nothing)
        scope.set_attr(module, "static_assert", _require)
    scope.set_attr(tl.core.tensor, "__index__", _convert_to_int)
    scope.set_attr(tl.core.tensor, "__int__", _convert_to_int)
    return scope


def is_language_patched() -> bool:
    """Whether triton.language points at the interpreter now."""
    return not tl.core.is_builtin(tl.core.load)


def bind_direct_imports(function: Any) -> None:
    """Wrap builtins that a kernel's module imported by name (`from triton.language import load`); patching modules misses those."""
    names = function.__globals__
    for name, value in list(names.items()):
        if callable(value) and tl.core.is_builtin(value):
            names[name] = _wrap_builtin(value)


def _wrap_builtin(builtin: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = interpreter.interpreter_semantic
        return builtin(*args, **kwargs)

    return call


def _install_helper_calls() -> None:
    """Call jitted helpers without a new patch of the language.

    Stock Triton patches it on every call (0.3 ms); inside a launch once is enough.
    """
    stock = interpreter.InterpretedFunction.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_language_patched():
            return stock(self, *args, **kwargs)
        if self.fn not in self.rewritten_fn:
            bind_direct_imports(self.fn)
        function = self.rewrite()
        return function(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


def _install_closures() -> None:
    """Give rewritten kernels the names of the functions around them.

    Stock Triton rewrites a kernel as if it stood at the top of its module, and loses these names.
    """
    stock = interpreter.FunctionRewriter._compile_and_exec

    def compile_and_exec(self: Any, tree: Any) -> Any:
        captured = inspect.getclosurevars(self.fn).nonlocals
        if not captured:
            return stock(self, tree)
        names, local = {**vars(interpreter), **self.fn.__globals__, **captured}, dict(self.kwargs)
        exec(compile(tree, self.filename, "exec"), names, local)  # noqa: S102 - as stock Triton does
        return local[self.fn.__name__]

    interpreter.FunctionRewriter._compile_and_exec = compile_and_exec


def install(hardware: Hardware | None = None) -> None:
    """Patch the interpreter once, before candidate code is imported; safe to call twice.

    Args:
        hardware: the card that Triton's driver answers for; an H200 when None.
    Raises:
        RuntimeError: TRITON_INTERPRET=1 was not set before Python started.
    """
    if not knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET=1 must be set before Python starts")
    installed = getattr(interpreter, "_tritonsmith", False)
    if hardware is not None or not installed:
        driver.set_active(FakeDriver(hardware or CARDS["h200"], run_once))
    if installed:
        return
    interpreter._tritonsmith = True
    if not hasattr(interpreter, "InterpreterError"):
        interpreter.InterpreterError = InterpreterError
    install_speed()
    install_numerics()
    install_reductions()
    install_libdevice()
    interpreter._patch_lang = patch_language
    _install_helper_calls()
    _install_closures()
    install_warmup()
    install_autotuning()
