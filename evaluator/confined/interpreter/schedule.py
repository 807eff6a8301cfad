"""Concurrent Triton interpreter: the programs of a launch run at the same time, in a repeatable order.

Programs switch at atomics, volatile loads and acquire loads; in shuffled runs also at ordinary loads and stores. Every access is checked
against the tensors of the launch and given to the race detector; bytes, operations and waits are counted. Imports Triton: for evaluator
processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tritonsmith.evaluator.channel.report import LaunchCount
from tritonsmith.evaluator.confined.interpreter import patches
from tritonsmith.evaluator.confined.interpreter.autotuning import drop_configuration
from tritonsmith.evaluator.confined.interpreter.hooks import install_hooks
from tritonsmith.evaluator.confined.interpreter.launch import (
    DeadlockError,
    InterpretedLaunch,
    KernelError,
    KernelFault,
    OutOfBoundsError,
    running,
)
from tritonsmith.evaluator.confined.interpreter.programs import Order
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter

__all__ = ["DeadlockError", "KernelError", "KernelFault", "OutOfBoundsError", "InterpretedRun", "session"]


@dataclass
class InterpretedRun:
    """The launches of a context of `session`, and what they did."""

    order: Order
    seed: int
    detect_races: bool = True
    resident: dict[str, int] = field(default_factory=dict)
    launches: list[LaunchCount] = field(default_factory=list)
    faults: list[KernelFault] = field(default_factory=list)
    """Every fault raised, also those that the candidate's own code caught."""
    before_launch: Callable[[Any, dict[str, Any], tuple[int, int, int]], None] | None = None
    """Called with function, arguments and grid before each launch."""
    patience: int = 0
    """Wakings that are left for programs which wait for one that is kept back."""


_active: InterpretedRun | None = None
_installed = False


def _install_executor() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    install_hooks()
    stock = interpreter.GridExecutor.__call__

    def launch(self: Any, *arguments: Any, **options: Any) -> None:
        if _active is None:
            stock(self, *arguments, **options)
        else:
            _execute(_active, self, arguments, options)

    interpreter.GridExecutor.__call__ = launch


def _find_tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "untyped_storage"):
        yield name, value
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from _find_tensors(f"{name}[{index}]", part)
    elif hasattr(value, "base"):  # a tensor descriptor or a reinterpreted tensor
        yield from _find_tensors(name, value.base)


def _execute(run: InterpretedRun, executor: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """GridExecutor.__call__: bind, convert, run every program, count."""
    function = executor.fn
    names = inspect.getfullargspec(function).args
    options = {name: value for name, value in options.items() if name in names}
    for hook in executor.pre_run_hooks:
        hook(*arguments, **options)
    patches.bind_direct_imports(function)
    bound = inspect.getcallargs(function, *arguments, **options)
    given = executor.grid(bound) if callable(executor.grid) else executor.grid
    x, y, z = (tuple(int(extent) for extent in given) + (1, 1, 1))[:3]
    interpreter.interpreter_builder.set_grid_dim(x, y, z)
    constants = {name: bound[name] for name in executor.constexprs}
    values = {name: value if name in constants else interpreter._implicit_cvt(value) for name, value in bound.items()}
    tensors = [pair for name, value in bound.items() for pair in _find_tensors(name, value)]
    if run.before_launch is not None:
        run.before_launch(function, bound, (x, y, z))
    seed = hash((run.seed, len(run.launches)))
    resident = run.resident.get(function.__name__)
    launch = InterpretedLaunch(function, values, (x, y, z), tensors, run.order, seed, resident, run.detect_races, run.patience)
    outer, running.launch = running.launch, launch
    try:
        launch.run()
    except KernelFault as fault:
        drop_configuration(fault)
        run.faults.append(fault)
        raise
    finally:
        running.launch = outer
        run.patience = launch.programs.patience
        plain = {name: value if isinstance(value, int | float | bool | str | None) else str(value) for name, value in constants.items()}
        run.launches.append(launch.count(plain))


@contextmanager
def session(
    order: Order, seed: int, detect_races: bool = True, resident: dict[str, int] | None = None,
    before_launch: Callable[[Any, dict[str, Any], tuple[int, int, int]], None] | None = None, patience: int = 0,
) -> Iterator[InterpretedRun]:  # fmt: skip
    """Run every Triton launch inside under one schedule.

    Args:
        order: `round_robin` runs programs in turn from one switch point to the next (one after another when there is none);
            `shuffled` starts them in random order, picks the next at random, and switches at random loads and stores too.
        seed: of the shuffled order; equal seeds give equal runs.
        detect_races: whether accesses in no defined order are looked for.
        resident: by kernel name, programs that fit on the card at once; the others start when one of them ends.
        before_launch: called with function, arguments and grid before each launch.
        patience: of a shuffled order: wakings of programs that wait for one which is kept from starting, over all launches.
    Raises:
        DeadlockError, OutOfBoundsError, KernelError: from the launch, inside the context.
    """
    global _active
    patches.install()
    _install_executor()
    opened = InterpretedRun(order, seed, detect_races, dict(resident or {}), before_launch=before_launch, patience=patience)
    outer, _active = _active, opened
    scope = None if patches.is_language_patched() else patches.patch_language()
    try:
        yield opened
    finally:
        _active = outer
        if scope is not None:
            scope.restore()
