"""Hooks in the interpreter's builder: every memory access, barrier and arithmetic operation is reported to the running launch.

Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonsmith.evaluator.confined.interpreter.launch import InterpretedLaunch, Lanes, running
from tritonsmith.evaluator.confined.interpreter.numerics import Array, Builder, TensorHandle, name_dot
from tritonsmith.evaluator.confined.interpreter.threads import find_places
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter

_BOUNDS = ("MAX", "MIN", "UMAX", "UMIN")
"""Atomics that leave memory as it is whenever another value was there first: with an operand that is not zero, they wait for nobody."""


def _peek(pointers: Any, mask: NDArray[np.bool_], dtype: np.dtype[Any]) -> Array:
    other = np.zeros(pointers.data.shape, dtype)
    return np.asarray(interpreter._interpreter.load(pointers.data, mask, other, dtype))


def _hook_load(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_masked_load(
        self: Any, pointers: Any, mask: Any, other: Any, cache_modifier: Any = None, eviction_policy: Any = None, is_volatile: bool = False
    ) -> Any:
        launch = running.launch
        if launch is None:
            return stock(self, pointers, mask, other, cache_modifier, eviction_policy, is_volatile)
        lanes = Lanes.of(pointers, mask)
        if lanes.addresses.size:
            line = launch.line()
            launch.loaded += lanes.bytes
            if not is_volatile:
                launch.programs.note_read(lanes.range)
            for access in launch.locate(lanes, "load", line):
                if launch.races and not is_volatile:
                    # a candidate may have put something else in its place; then another process finds the race
                    launch.foreign[line, "load"] += launch.races.read(launch.number, access, line) or 0
                    launch.races.threads.load(launch.number, access, find_places(lanes.mask, access), line)
        result = stock(self, pointers, mask, other, cache_modifier, eviction_policy, is_volatile)
        if is_volatile and lanes.addresses.size:
            launch.programs.poll(lanes.range, line)
        else:
            launch.programs.maybe_switch()
        return result

    return create_masked_load


def _create_acquire_load(self: Any, pointers: Any, mask: Any) -> Any:
    """Inline assembly `ld.acquire`: an atomic load, and a switch point."""
    launch, dtype = running.launch, pointers.get_element_ty()
    lanes = Lanes.of(pointers, mask)
    if launch is not None:
        launch.loaded += lanes.bytes
        line = launch.line()
        accesses = launch.locate(lanes, "load", line)
    result = TensorHandle(_peek(pointers, lanes.mask, interpreter._get_np_dtype(dtype)), dtype)
    if launch is not None:
        for access in accesses:
            if launch.races:
                launch.races.atomic(launch.number, access, line, acquire=True, release=False, changed=False)
        launch.programs.poll(lanes.range, line)
    return result


def _hook_store(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_masked_store(
        self: Any, pointers: Any, value: Any, mask: Any, cache_modifier: Any = None, eviction_policy: Any = None
    ) -> Any:
        launch = running.launch
        if not pointers.data.flags.writeable:  # a broadcast along an axis of one; the stock interpreter wants to write
            pointers = TensorHandle(pointers.data.copy(), pointers.dtype)
        if launch is None:
            return stock(self, pointers, value, mask, cache_modifier, eviction_policy)
        lanes = Lanes.of(pointers, mask)
        if lanes.addresses.size:
            line = launch.line()
            launch.stored += lanes.bytes

            def same(which: NDArray[Any] | slice) -> NDArray[np.bool_]:
                new = np.broadcast_to(value.data, pointers.data.shape)
                return np.asarray((_peek(pointers, lanes.mask, new.dtype) == new)[lanes.mask][which])

            for access in launch.locate(lanes, "store", line):
                if launch.races:
                    launch.races.write(launch.number, access, line, same, single=pointers.data.size == 1)
                    launch.races.threads.store(launch.number, access, find_places(lanes.mask, access), line)
        result = stock(self, pointers, value, mask, cache_modifier, eviction_policy)
        if lanes.addresses.size:
            launch.programs.note_change(lanes.range)
        launch.programs.maybe_switch()
        return result

    return create_masked_store


def _report_atomic(
    launch: InterpretedLaunch, pointers: Any, lanes: Lanes, old: Any, semantics: Any, scope: Any, accesses: list[Any], line: int,
    waits: bool = True,
) -> None:  # fmt: skip
    """Report an atomic operation that returned `old` to clocks, sleepers and counters.

    One that changed nothing may wait (`waits`).
    """
    now = _peek(pointers, lanes.mask, old.data.dtype)
    changed = not np.array_equal(now[lanes.mask], np.broadcast_to(old.data, now.shape)[lanes.mask], equal_nan=now.dtype.kind == "f")
    # within a block, an atomic orders nothing between programs
    name = "RELAXED" if str(scope).rsplit(".", 1)[-1].upper() == "CTA" else str(semantics).rsplit(".", 1)[-1].upper()
    launch.atomics += lanes.addresses.size
    for access in accesses:
        if launch.races:
            launch.races.atomic(
                launch.number, access, line, acquire="ACQUIRE" in name, release=name in ("RELEASE", "ACQUIRE_RELEASE"), changed=changed,
                single=pointers.data.size == 1,
            )  # fmt: skip
    if pointers.data.size == 1:
        _report_exchange(launch)
    if changed:
        launch.programs.note_change(lanes.range)
        launch.programs.switch()
    elif waits:
        launch.programs.poll(lanes.range, line)
    else:
        launch.programs.switch()


def _report_exchange(launch: InterpretedLaunch) -> None:
    """The threads of the program wait for each other, as a side effect of what it does."""
    if launch.races:
        launch.races.threads.barrier(launch.number)


def _hook_exchange(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Reductions, scans, gathers and histograms: their operands pass from thread to thread."""

    def exchange(self: Any, *arguments: Any, **named: Any) -> Any:
        if running.launch is not None:
            _report_exchange(running.launch)
        return stock(self, *arguments, **named)

    return exchange


def _hook_rmw(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_atomic_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, semantics: Any, scope: Any) -> Any:
        launch = running.launch
        if launch is None:
            return stock(self, operation, pointers, value, mask, semantics, scope)
        lanes, line = Lanes.of(pointers, mask), launch.line()
        accesses = launch.locate(lanes, "atomic", line) if lanes.addresses.size else []
        result = stock(self, operation, pointers, value, mask, semantics, scope)
        if lanes.addresses.size:
            bound = str(operation).rsplit(".", 1)[-1].upper() in _BOUNDS and bool(np.any(value.data))
            _report_atomic(launch, pointers, lanes, result, semantics, scope, accesses, line, waits=not bound)
        return result

    return create_atomic_rmw


def _hook_cas(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_atomic_cas(self: Any, pointers: Any, compare: Any, value: Any, semantics: Any, scope: Any) -> Any:
        launch = running.launch
        if launch is None:
            return stock(self, pointers, compare, value, semantics, scope)
        lanes, line = Lanes.of(pointers, None), launch.line()
        accesses = launch.locate(lanes, "atomic", line)
        result = stock(self, pointers, compare, value, semantics, scope)
        _report_atomic(launch, pointers, lanes, result, semantics, scope, accesses, line)
        return result

    return create_atomic_cas


def _hook_barrier(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_barrier(self: Any, *arguments: Any) -> Any:
        launch = running.launch
        if launch is not None and launch.races:
            launch.races.fence(launch.number)
            launch.races.threads.barrier(launch.number)
        return stock(self, *arguments)

    return create_barrier


def _hook_arithmetic(stock: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: Any, first: Any, *rest: Any) -> Any:
        result = stock(self, first, *rest)
        launch = running.launch
        if launch is not None and first.dtype.scalar.is_floating():
            launch.flops += result.data.size
        return result

    return operation


def _hook_dot(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_dot(self: Any, left: Any, right: Any, accumulator: Any, precision: Any, *rest: Any) -> Any:
        launch = running.launch
        if launch is not None:
            launch.dots[name_dot(left, precision)] += 2 * accumulator.data.size * left.data.shape[-1]
            _report_exchange(launch)
        return stock(self, left, right, accumulator, precision, *rest)

    return create_dot


def install_hooks() -> None:
    """Put the hooks around the builder's methods; call once."""
    hooks: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "create_masked_load": _hook_load, "create_masked_store": _hook_store, "create_atomic_rmw": _hook_rmw,
        "create_atomic_cas": _hook_cas, "create_barrier": _hook_barrier, "binary_op": _hook_arithmetic, "unary_op": _hook_arithmetic,
        "create_dot": _hook_dot,
    }  # fmt: skip
    for name, hook in hooks.items():
        setattr(Builder, name, hook(getattr(Builder, name)))
    for owner, name in ((Builder, "create_gather"), (Builder, "create_histogram"), (interpreter.ReduceScanOpInterface, "apply")):
        setattr(owner, name, _hook_exchange(getattr(owner, name)))
    Builder.create_acquire_load = _create_acquire_load
