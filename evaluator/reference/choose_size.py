"""A size for the interpreter, where the task declares none: the task's own, or a smaller one. Imports torch; runs the user's task file.

Sizes are tried on fake tensors, which compute nothing. The chosen one is run for real, twice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.interpreter_time import REACH_SECONDS, predict_seconds, say_seconds
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.stand_in import make_fake
from tritonsmith.evaluator.reference.trace import trace_operators
from tritonsmith.evaluator.reference.watch import run_watched
from tritonsmith.evaluator.schema import ChosenSize, Task
from tritonsmith.evaluator.tasks.declarations import list_assigned
from tritonsmith.evaluator.tasks.files import at_chosen_size
from tritonsmith.evaluator.texts.source.parse import parse

MOST_SECONDS = 60.0
"""The longest verdict that a task's own size may take."""
_SHRUNK_SECONDS = 5.0
"""What a shrunk size aims at: a run judges dozens of candidates."""
_KEPT = 16
"""Values up to this one stay: kernel sizes, strides, groups, heads."""
_LEAST = 2
"""Smallest size, where larger ones are too slow."""
_REAL_SIZE = 128
"""Largest size that is tried where fake tensors do not do, so that every try computes."""
_FASTER = 0.99
"""A smaller size must take at most this share of the time; else its name is no size."""
_DIFFERENT = 1e-5
"""Root mean square of what other inputs change, as a share of the result, below which the result does not depend on them."""

Sizes = dict[str, int]
"""By name, `name[2]` for an element of a list."""


@dataclass(frozen=True)
class _Trial:
    """The task at some sizes, and how long a verdict takes there."""

    sizes: Sizes
    seconds: float


def choose_size(task: Task) -> ChosenSize:
    """The size at which a task without SMALL is judged in the interpreter.

    Raises:
        TaskError: the reference does not run, or every size that can be had is too slow; one sentence for the user.
    """
    search = _Search(task)
    own = search.begin()
    if own.seconds <= MOST_SECONDS and not search.clipped:
        _run_twice(task)
        return ChosenSize(note=f"the task has no SMALL: judged at its own size ({say_seconds(own.seconds)} a verdict in the interpreter)")
    affordable = [trial for trial in search.shrink(own) if trial.seconds <= MOST_SECONDS]
    for trial in reversed(affordable):
        if _run_twice(search.at(trial.sizes)):
            chosen = ", ".join(f"{name} {search.originals[name]} -> {value}" for name, value in search.overrides(trial.sizes).items())
            note = f"the task has no SMALL: shrunk for the interpreter ({say_seconds(trial.seconds)} a verdict): {chosen}"
            return ChosenSize(overrides=search.overrides(trial.sizes), note=note)
    wait = "" if search.clipped else f", and at its own a verdict takes {say_seconds(own.seconds)} without a card"
    why = "smaller results are not finite, or do not depend on the inputs" if affordable else "no module-level whole number makes it small"
    full = ", or --size full" if search.clipped or own.seconds <= REACH_SECONDS else ""
    raise TaskError(
        f"{task.path}: declares no small size{wait}; {why}; give its sizes module-level names, and add SMALL = {{'NAME': VALUE}} to the "
        f"file (or use --set NAME=VALUE{full})"
    )


class _Search:
    """Looks for sizes at which the reference still runs, and a verdict is fast."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._fake = True
        self.clipped = False
        """Whether the task's own size could not be tried."""
        self.originals = _find_sizes(task)
        self.declared = {place: size for name, value in self.originals.items() for place, size in _list_places(name, value).items()}

    def begin(self) -> _Trial:
        """The task's own size; where fake tensors refuse it, each size below a limit. Raises TaskError where it runs nowhere."""
        try:
            return self._try(self.declared)
        except TaskError as error:
            self._fake = False
            sizes = {name: _divide_until(value, _REAL_SIZE) for name, value in self.declared.items()}
            self.clipped = sizes != self.declared
            try:
                return self._try(sizes)
            except TaskError as real:  # with values it says what is wrong; at another size it may be that size
                raise (error if self.clipped else real) from None

    def overrides(self, sizes: Sizes) -> dict[str, int | tuple[int, ...]]:
        """The names whose values differ from the file's, with their values at these sizes."""
        found = {name: _collect(name, value, sizes) for name, value in self.originals.items()}
        return {name: value for name, value in found.items() if value != self.originals[name]}

    def at(self, sizes: Sizes) -> Task:
        """The task at these sizes."""
        return at_chosen_size(self._task, ChosenSize(overrides=self.overrides(sizes)))

    def shrink(self, begin: _Trial) -> list[_Trial]:
        """Sizes at which the reference runs, each faster than the one before; the last is fast enough, or the fastest."""
        path = [begin]
        self._halve_all(path)
        for least, wanted in ((_KEPT, _SHRUNK_SECONDS), (_LEAST, MOST_SECONDS)):
            self._shrink_one_by_one(path, least, wanted)
        return path

    def _halve_all(self, path: list[_Trial]) -> None:
        """Halve all sizes together, so that what divides one another still does, and groups keep their share."""
        while path[-1].seconds > _SHRUNK_SECONDS:
            sizes = {name: _divide(value, 2) if value >= 2 * _KEPT else value for name, value in path[-1].sizes.items()}
            if sizes == path[-1].sizes:
                return
            try:
                path.append(self._try(sizes))
            except TaskError:
                return

    def _shrink_one_by_one(self, path: list[_Trial], least: int, wanted: float) -> None:
        """Halve the largest size again and again, with another one where the reference needs both."""
        settled: set[str] = set()
        while path[-1].seconds > wanted:
            sizes = path[-1].sizes
            name = max((name for name in sizes if name not in settled and sizes[name] >= 2 * least), key=sizes.__getitem__, default=None)
            if name is None:
                return
            better = self._make_smaller(path[-1], name, least)
            if better is None:
                settled.add(name)
            else:
                path.append(better)

    def _make_smaller(self, best: _Trial, name: str, least: int) -> _Trial | None:
        """The trial with half of one size; None where none is faster."""
        for together in _list_companions(best.sizes, name):
            changes = {one: _divide(best.sizes[one], 2) for one in together}
            if any(value < least for value in changes.values()):
                continue
            try:
                found = self._try(best.sizes | changes)
            except TaskError:
                continue
            return found if found.seconds <= _FASTER * best.seconds else None  # it runs, and is no faster: the name is no size
        return None

    def _try(self, sizes: Sizes) -> _Trial:
        """The time of a verdict at some sizes. Raises TaskError where the reference does not run there."""
        reference = load_reference(self.at(sizes))
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        model = make_fake(mode, lambda: reference.build(0)) if self._fake else reference.build(0)
        with mode if self._fake else torch.no_grad():
            inputs, traces = reference.draw_inputs(0), []

            def forward() -> object:
                traces.append(trace_operators(model, inputs))
                return traces[0].output

            reference.require_elements(flatten(reference.check_output(forward)))
        return _Trial(sizes, predict_seconds(traces[0].costs))


def _run_twice(task: Task) -> bool:
    """Run the reference on two draws of inputs; whether results are finite and differ. Raises TaskError where it cannot be judged by."""
    reference = load_reference(task)
    model = reference.build(0)
    watched = run_watched(reference, model, reference.draw_inputs(0)).outputs
    seconds = flatten(reference.forward(model, reference.draw_inputs(1)))
    firsts = watched[: len(seconds)]  # without the buffers that it updates
    reference.require_elements(firsts)
    finite = all(bool(torch.isfinite(first).all()) for first in firsts)
    return finite and any(_differ(first, second) for first, second in zip(firsts, seconds, strict=True))


def _differ(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.shape != second.shape:
        return True
    first, second = first.double(), second.double()
    return float((first - second).norm()) > _DIFFERENT * float(first.norm())


def _find_sizes(task: Task) -> dict[str, int | tuple[int, ...]]:
    """Module-level names that are set to a whole number, or to several, which no other name goes into; in the file's order."""
    module = load_reference(task).module
    found: dict[str, int | tuple[int, ...]] = {}
    for statement in parse(task.source).body:
        for name, expression in list_assigned(statement):
            value = getattr(module, name, None)
            computed = any(isinstance(node, ast.Name | ast.Call | ast.Attribute) for node in ast.walk(expression))
            if not computed and type(value) is int and value > _LEAST:
                found[name] = value
            elif not computed and isinstance(value, list | tuple) and any(_list_places(name, tuple(value))):
                found[name] = tuple(value)
    return found


def _list_places(name: str, value: int | tuple[int, ...]) -> Sizes:
    """The sizes in a value; none in a list of other things."""
    if not isinstance(value, tuple):
        return {name: value}
    whole = all(type(one) is int for one in value)
    return {f"{name}[{number}]": one for number, one in enumerate(value) if whole and one > _LEAST}


def _collect(name: str, value: int | tuple[int, ...], sizes: Sizes) -> int | tuple[int, ...]:
    if not isinstance(value, tuple):
        return sizes[name]
    return tuple(sizes.get(f"{name}[{number}]", one) for number, one in enumerate(value))


def _list_companions(sizes: Sizes, name: str) -> Iterator[tuple[str, ...]]:
    """The name alone, with every name of its value, then with each other one, the nearest value first."""
    yield (name,)
    equal = tuple(one for one in sizes if sizes[one] == sizes[name])
    if len(equal) > 2:
        yield equal
    others = sorted((one for one in sizes if one != name and sizes[one] > _LEAST), key=lambda one: abs(sizes[one] - sizes[name]))
    yield from ((name, other) for other in others)


def _divide(value: int, factor: int) -> int:
    """A fraction of a size; an odd one stays odd, since it may be there to test masks."""
    return value // factor | (value & 1)


def _divide_until(value: int, most: int) -> int:
    while value > most:
        value = _divide(value, 2)
    return value
