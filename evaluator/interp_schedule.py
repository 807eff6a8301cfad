"""Concurrent Triton interpreter: the programs of a launch run at the same time, in an order that is chosen and repeatable.

Programs switch at atomics, volatile loads and acquire loads; in shuffled runs also at ordinary loads and stores. Every access is checked
against the tensors of the launch and given to the race detector; bytes, operations and waits are counted. Imports torch and Triton: for
evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonsmith.evaluator import interp_patches
from tritonsmith.evaluator.interp_counts import LaunchCount
from tritonsmith.evaluator.interp_memory import AddressMap, OutOfBounds
from tritonsmith.evaluator.interp_numerics import Builder, TensorHandle, dot_kind
from tritonsmith.evaluator.interp_programs import Order, Program, Programs, Stuck
from tritonsmith.evaluator.interp_races import RaceDetector
from tritonsmith.evaluator.triton_untyped import interpreter

Array = NDArray[Any]


class KernelFault(Exception):
    """A kernel did something that no GPU would let pass; the message is one sentence with kernel, line and program."""


class DeadlockError(KernelFault):
    """Every resident program waits for memory that nobody will change."""


class OutOfBoundsError(KernelFault):
    """An access outside the tensors of the launch."""


class KernelError(KernelFault):
    """Any other exception raised inside a kernel."""


@dataclass
class Session:
    """What happened while it was active."""

    order: Order
    seed: int
    detect_races: bool = True
    resident: dict[str, int] = field(default_factory=dict)
    launches: list[LaunchCount] = field(default_factory=list)
    faults: list[KernelFault] = field(default_factory=list)
    """Every fault raised, also those that the candidate's own code caught."""


_session: Session | None = None
_launch: _Launch | None = None
_hooked = False


class _Launch:
    """One launch while it runs: its programs, memory, races and counts."""

    def __init__(
        self, session: Session, name: str, function: Callable[..., Any], arguments: dict[str, Any], grid: tuple[int, int, int],
        tensors: list[tuple[str, Any]],
    ) -> None:  # fmt: skip
        places = [(x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
        self.name = name
        self.grid = grid
        self.file = function.__code__.co_filename
        self.memory = AddressMap(tensors)
        self.races = RaceDetector(places) if session.detect_races else None
        seed = hash((session.seed, len(session.launches), len(places)))
        self.programs = Programs(
            places, lambda: function(**arguments), self._enter, session.order, seed, session.resident.get(name)
        )
        self.loaded = self.stored = self.atomics = self.flops = 0
        self.dots: Counter[str] = Counter()

    def _enter(self, program: Program) -> None:
        interpreter.interpreter_builder.grid_idx = program.place

    @property
    def number(self) -> int:
        return self.programs.current.number

    def line(self) -> int:
        """Line of the kernel's file that is running."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def where(self, line: int) -> str:
        return f"kernel {self.name}, line {line}, program {self.programs.current.place}"

    def run(self) -> None:
        try:
            self.programs.run()
        except Stuck:
            raise DeadlockError(self._deadlock()) from None
        except KernelFault:
            raise
        except Exception as error:  # noqa: BLE001 - candidate code may raise anything; the boundary names the place
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
            place = self.where(frames[-1].lineno or 0 if frames else 0)
            raise KernelError(f"{place}: {type(error).__name__}: {error}") from error

    def _deadlock(self) -> str:
        waiting = self.programs.not_started
        more = f" and {waiting} programs never start because only {self.programs.resident} fit at once" if waiting else ""
        return f"kernel {self.name}: every running program waits for memory that nobody will change{more} ({self.where(0)} is one of them)"

    def count(self, constexprs: dict[str, Any]) -> LaunchCount:
        return LaunchCount(
            name=self.name,
            grid=self.grid,
            constexprs=constexprs,
            bytes_loaded=self.loaded,
            bytes_stored=self.stored,
            unique_bytes=sum(region.touched_bytes for region in self.memory.regions),
            dot_flops=dict(self.dots),
            flops=self.flops,
            atomics=self.atomics,
            sync_rounds=max((program.rounds for program in self.programs.all), default=0),
            races=tuple(self.races.races) if self.races else (),
        )


@dataclass(frozen=True)
class _Lanes:
    """The unmasked addresses of one operation."""

    addresses: NDArray[np.int64]
    mask: NDArray[np.bool_]
    size: int

    @classmethod
    def of(cls, pointers: Any, mask: Any) -> _Lanes:
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        lanes = np.broadcast_to(mask.data, pointers.data.shape) if mask is not None else np.ones(pointers.data.shape, bool)
        addresses = pointers.data.ravel() if lanes.all() else pointers.data[lanes]
        return cls(addresses.astype(np.int64), np.ascontiguousarray(lanes), size)

    @property
    def bytes(self) -> int:
        return self.addresses.size * self.size

    @property
    def range(self) -> tuple[int, int]:
        return int(self.addresses.min()), int(self.addresses.max()) + self.size - 1


def _located(launch: _Launch, lanes: _Lanes, what: str, line: int) -> list[Any]:
    try:
        accesses = launch.memory.locate(lanes.addresses, lanes.size)
    except OutOfBounds as error:
        raise OutOfBoundsError(f"{launch.where(line)}: out-of-bounds {what}: {error}") from None
    for access in accesses:
        access.region.touch(access.index)
    return accesses


def _peek(pointers: Any, mask: NDArray[np.bool_], dtype: np.dtype[Any]) -> Array:
    other = np.zeros(pointers.data.shape, dtype)
    return np.asarray(interpreter._interpreter.load(pointers.data, mask, other, dtype))


def _hook_load(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_masked_load(
        self: Any, pointers: Any, mask: Any, other: Any, cache_modifier: Any = None, eviction_policy: Any = None, is_volatile: bool = False
    ) -> Any:
        launch = _launch
        if launch is None:
            return stock(self, pointers, mask, other, cache_modifier, eviction_policy, is_volatile)
        lanes = _Lanes.of(pointers, mask)
        if lanes.addresses.size:
            line = launch.line()
            launch.loaded += lanes.bytes
            for access in _located(launch, lanes, "load", line):
                if launch.races and not is_volatile:
                    launch.races.read(launch.number, access, line)
        result = stock(self, pointers, mask, other, cache_modifier, eviction_policy, is_volatile)
        if is_volatile and lanes.addresses.size:
            launch.programs.poll(lanes.range)
        else:
            launch.programs.maybe_switch()
        return result

    return create_masked_load


def _create_acquire_load(self: Any, pointers: Any, mask: Any) -> Any:
    """Inline assembly `ld.acquire`: an atomic load, and a switch point."""
    launch, dtype = _launch, pointers.get_element_ty()
    lanes = _Lanes.of(pointers, mask)
    if launch is not None:
        launch.loaded += lanes.bytes
        line = launch.line()
        accesses = _located(launch, lanes, "load", line)
    result = TensorHandle(_peek(pointers, lanes.mask, interpreter._get_np_dtype(dtype)), dtype)
    if launch is not None:
        for access in accesses:
            if launch.races:
                launch.races.atomic(launch.number, access, line, acquire=True, release=False, changed=False)
        launch.programs.poll(lanes.range)
    return result


def _hook_store(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_masked_store(
        self: Any, pointers: Any, value: Any, mask: Any, cache_modifier: Any = None, eviction_policy: Any = None
    ) -> Any:
        launch = _launch
        if launch is None:
            return stock(self, pointers, value, mask, cache_modifier, eviction_policy)
        lanes = _Lanes.of(pointers, mask)
        if lanes.addresses.size:
            line = launch.line()
            launch.stored += lanes.bytes

            def same(which: NDArray[Any] | slice) -> NDArray[np.bool_]:
                new = np.broadcast_to(value.data, pointers.data.shape)
                return np.asarray((_peek(pointers, lanes.mask, new.dtype) == new)[lanes.mask][which])

            for access in _located(launch, lanes, "store", line):
                if launch.races:
                    launch.races.write(launch.number, access, line, same)
        result = stock(self, pointers, value, mask, cache_modifier, eviction_policy)
        if lanes.addresses.size:
            launch.programs.changed(lanes.range)
        launch.programs.maybe_switch()
        return result

    return create_masked_store


def _after_atomic(launch: _Launch, pointers: Any, lanes: _Lanes, old: Any, semantics: Any, accesses: list[Any], line: int) -> None:
    """Tell clocks, sleepers and counters about an atomic operation that returned `old`."""
    now = _peek(pointers, lanes.mask, old.data.dtype)
    changed = not np.array_equal(now[lanes.mask], np.broadcast_to(old.data, now.shape)[lanes.mask], equal_nan=now.dtype.kind == "f")
    name = str(semantics).rsplit(".", 1)[-1].upper()
    launch.atomics += lanes.addresses.size
    for access in accesses:
        if launch.races:
            launch.races.atomic(
                launch.number, access, line, acquire="ACQUIRE" in name, release=name in ("RELEASE", "ACQUIRE_RELEASE"), changed=changed
            )
    if changed:
        launch.programs.changed(lanes.range)
        launch.programs.switch()
    else:
        launch.programs.poll(lanes.range)


def _hook_rmw(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_atomic_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, semantics: Any, scope: Any) -> Any:
        launch = _launch
        if launch is None:
            return stock(self, operation, pointers, value, mask, semantics, scope)
        lanes, line = _Lanes.of(pointers, mask), launch.line()
        accesses = _located(launch, lanes, "atomic", line) if lanes.addresses.size else []
        result = stock(self, operation, pointers, value, mask, semantics, scope)
        if lanes.addresses.size:
            _after_atomic(launch, pointers, lanes, result, semantics, accesses, line)
        return result

    return create_atomic_rmw


def _hook_cas(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_atomic_cas(self: Any, pointers: Any, compare: Any, value: Any, semantics: Any, scope: Any) -> Any:
        launch = _launch
        if launch is None:
            return stock(self, pointers, compare, value, semantics, scope)
        lanes, line = _Lanes.of(pointers, None), launch.line()
        accesses = _located(launch, lanes, "atomic", line)
        result = stock(self, pointers, compare, value, semantics, scope)
        _after_atomic(launch, pointers, lanes, result, semantics, accesses, line)
        return result

    return create_atomic_cas


def _hook_barrier(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_barrier(self: Any, *arguments: Any) -> Any:
        if _launch is not None and _launch.races:
            _launch.races.fence(_launch.number)
        return stock(self, *arguments)

    return create_barrier


def _hook_arithmetic(stock: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: Any, first: Any, *rest: Any) -> Any:
        result = stock(self, first, *rest)
        if _launch is not None and first.dtype.scalar.is_floating():
            _launch.flops += result.data.size
        return result

    return operation


def _hook_dot(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_dot(self: Any, left: Any, right: Any, accumulator: Any, precision: Any, *rest: Any) -> Any:
        if _launch is not None:
            _launch.dots[dot_kind(left, precision)] += 2 * accumulator.data.size * left.data.shape[-1]
        return stock(self, left, right, accumulator, precision, *rest)

    return create_dot


def _install_hooks() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    hooks: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "create_masked_load": _hook_load, "create_masked_store": _hook_store, "create_atomic_rmw": _hook_rmw,
        "create_atomic_cas": _hook_cas, "create_barrier": _hook_barrier, "binary_op": _hook_arithmetic, "unary_op": _hook_arithmetic,
        "create_dot": _hook_dot,
    }  # fmt: skip
    for name, hook in hooks.items():
        setattr(Builder, name, hook(getattr(Builder, name)))
    Builder.create_acquire_load = _create_acquire_load
    stock = interpreter.GridExecutor.__call__

    def launch(self: Any, *arguments: Any, **options: Any) -> None:
        if _session is None:
            stock(self, *arguments, **options)
        else:
            _execute(_session, self, arguments, options)

    interpreter.GridExecutor.__call__ = launch


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "untyped_storage"):
        yield name, value
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from _tensors(f"{name}[{index}]", part)
    elif hasattr(value, "base"):  # a tensor descriptor or a reinterpreted tensor
        yield from _tensors(name, value.base)


def _execute(session: Session, executor: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """GridExecutor.__call__: bind, convert, run every program, count."""
    global _launch
    function = executor.fn
    names = inspect.getfullargspec(function).args
    options = {name: value for name, value in options.items() if name in names}
    for hook in executor.pre_run_hooks:
        hook(*arguments, **options)
    interp_patches.bind_direct_imports(function)
    bound = inspect.getcallargs(function, *arguments, **options)
    given = executor.grid(bound) if callable(executor.grid) else executor.grid
    x, y, z = (tuple(int(extent) for extent in given) + (1, 1, 1))[:3]
    interpreter.interpreter_builder.set_grid_dim(x, y, z)
    constants = {name: bound[name] for name in executor.constexprs}
    values = {name: value if name in constants else interpreter._implicit_cvt(value) for name, value in bound.items()}
    tensors = [pair for name, value in bound.items() for pair in _tensors(name, value)]
    launch = _Launch(session, function.__name__, function, values, (x, y, z), tensors)
    outer, _launch = _launch, launch
    try:
        launch.run()
    except KernelFault as fault:
        session.faults.append(fault)
        raise
    finally:
        _launch = outer
        plain = {name: value if isinstance(value, int | float | bool | str | None) else str(value) for name, value in constants.items()}
        session.launches.append(launch.count(plain))


@contextmanager
def session(order: Order, seed: int, detect_races: bool = True, resident: dict[str, int] | None = None) -> Iterator[Session]:
    """Run every Triton launch inside under one schedule.

    Args:
        order: `round_robin` runs programs in turn from one switch point to the next (one after another when there is none);
            `shuffled` starts them in random order, picks the next at random, and switches at random loads and stores too.
        seed: of the shuffled order; equal seeds give equal runs.
        detect_races: whether accesses in no defined order are looked for.
        resident: by kernel name, programs that fit on the card at once; the others start when one of them ends.
    Raises:
        DeadlockError, OutOfBoundsError, KernelError: from the launch, inside the context.
    """
    global _session
    interp_patches.install()
    _install_hooks()
    opened = Session(order, seed, detect_races, dict(resident or {}))
    outer, _session = _session, opened
    scope = None if interp_patches.language_is_patched() else interp_patches.patch_language()
    try:
        yield opened
    finally:
        _session = outer
        if scope is not None:
            scope.restore()
