"""Whether what forward returns is nested as the reference's result, and is its own: asked of the runner. Imports torch.

Tensors are compared by their values in flat slots. That says nothing of a dict's keys, of a None or a number beside them, or of which
tuple a tensor stands in. So the runner describes the first result in plain values, and the oracle compares the description with the
reference's. A tuple may stand for a list and the reverse, since both are unpacked and indexed alike.

A result must also stay what it is: it may lie in an argument only where the reference's does, and the next call must not overwrite it.
"""

from __future__ import annotations

import cmath
import math
import secrets
from collections.abc import Iterator

import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.oracle.checks.inputs import move_values
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import equal_bits
from tritonsmith.evaluator.oracle.checks.memory import OraclePlace
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.reference.structure import (
    DATACLASS,
    MAPPING,
    NAMED_TUPLE,
    NUMBERS,
    SEQUENCE,
    TENSOR,
    TEXT,
    Structure,
    describe,
)
from tritonsmith.evaluator.reference.updates import run_whole
from tritonsmith.evaluator.schema import PrecisionClass, Status

_FACTOR = 8.0
"""A number may err so many times as much as the reference's own."""
_SHARE = {PrecisionClass.IEEE: 2.0**-17, PrecisionClass.TF32: 2.0**-10, PrecisionClass.HALF: 2.0**-7}
"""By class: the share of a number that the reference's error counts as at least. One number is a small sample of errors."""
_MOVES = 8
"""How often."""
_POISON = 0xFF
"""Byte of poisoned slots."""
_HEAD = 1 << 24
"""Elements of an output that must stay as they are: 64 MB of fp32."""
_LATER = 2
"""The second call that is watched is this one, or one of as many behind it."""
_NEXT, _A_LATER = "the next one", "a later one"
_MOST_NAMED = 8
"""Keys or fields that a message names."""

Pair = tuple[str, Structure, Structure]
"""Where two structures have a part, the candidate's and the reference's."""


class StructureCheck:
    """Compares the structure of results of a candidate with the reference's; numbers in them in every trial.

    Args:
        loaded: the task.
    """

    def __init__(self, loaded: LoadedTask) -> None:
        self._loaded = loaded
        self._numbers: list[Pair] = []
        self._calls = 0
        self._watched, self._next = 0, 1
        """The call whose result must stay, and the next one that is watched in its place."""
        self._shared: list[int] = []
        """Numbers of the outputs that lie in arguments, where the reference's do not."""
        self._first: list[torch.Tensor] = []
        """The outputs of the watched call, of large ones their beginning: a card must have room for them until another one is watched."""

    def look(self, runner: RunnerHandle, timeout: float) -> None:
        """After a call and ahead of its delivery.

        Raises RunnerFault: wrong_shape where the result is nested in another way, inaccurate where a call overwrote an earlier one.
        """
        self._calls += 1
        if self._first:
            self._require_kept(runner, timeout)
        if self._calls != self._next and not self._numbers:
            return
        self._next = self._choose_next() if self._calls == self._next else self._next
        self._watched, self._first = self._calls, []  # the runner watches whichever result it describes
        try:
            nested, in_arguments = runner.describe_result(timeout)
            given = Structure.from_plain(nested)
        except (ValueError, TypeError, RecursionError) as error:
            raise RunnerFault(Status.CRASHED, "the runner sent no readable description of what forward returned") from error
        pairs = list(pair_parts(given, self._loaded.structure))
        if problem := find_difference(pairs):
            raise RunnerFault(Status.WRONG_SHAPE, problem)
        given_on = self._loaded.call.list_given_on(self._loaded.lent)
        self._shared = [number for number in in_arguments if number not in given_on]
        self._numbers = [pair for pair in pairs if pair[2].kind in NUMBERS]

    def keep(self, got: list[torch.Tensor]) -> None:
        """Note what the first call gave, whose arguments are unchanged. Raises RunnerFault(inaccurate) where it gave an argument."""
        if self._shared:
            raise RunnerFault(
                Status.INACCURATE,
                f"{self._loaded.call.name_result(self._shared[0])} is an argument of forward, or a view of it; "
                "the reference returns a tensor of its own: "
                "return a copy",
            )
        if self._calls == self._watched:
            self._first = [_take_head(output).clone() for output in got[: len(self._loaded.layout.outputs)]]

    def _choose_next(self) -> int:
        """The next call to be watched: the first one's result, then that of a later call, up to the end.

        A candidate may give new memory at first, and later the same again: at once, or of several buffers in turn.
        """
        return _LATER + secrets.randbelow(_LATER) if self._calls == 1 else 0

    def _require_kept(self, runner: RunnerHandle, timeout: float) -> None:
        """Raises RunnerFault(inaccurate) where the watched result, as far as the candidate still holds it, was changed by a later call."""
        runner.poison()
        self._loaded.sync()
        runner.command(Command.EARLIER, timeout=timeout)
        for number, (then, now) in enumerate(zip(self._first, runner.outputs, strict=True)):
            kept = _take_head(now)
            is_held = number not in self._loaded.lent and bool((kept.view(torch.uint8) != _POISON).any())
            if is_held and not equal_bits(kept, then):
                raise RunnerFault(
                    Status.INACCURATE,
                    f"{self._loaded.call.name_result(number)} of one call is overwritten by "
                    f"{_NEXT if self._calls == self._watched + 1 else _A_LATER}: "
                    "return memory of its own from each call",
                )
        runner.poison_secretly()
        self._loaded.sync()

    def finish(self, tensors: list[torch.Tensor]) -> None:
        """On the inputs of that call, once its results are here. Raises RunnerFault(inaccurate) where a number is another one."""
        if not self._numbers:
            return
        own, right = (_list_numbers(found) for found in _run_reference(self._loaded, tensors))
        moved: list[list[Structure]] = []
        share = _SHARE[self._loaded.task.precision.arithmetic]
        for place, (where, given, _) in enumerate(self._numbers):
            if _is_near(_read(given), [_read(own[place])], _read(right[place]), share):
                continue
            if not moved:  # only where something differs
                moved = [found for _ in range(_MOVES) for found in self._move(tensors)]
            if not _is_near(_read(given), [_read(found[place]) for found in (own, *moved)], _read(right[place]), share):
                told = f"forward returns the number {given.text}{where}, the reference returns {own[place].text}"
                raise RunnerFault(Status.INACCURATE, told)

    def _move(self, tensors: list[torch.Tensor]) -> list[list[Structure]]:
        """The reference's and the oracle's numbers on inputs that are moved by a few units of the last place."""
        step = self._loaded.arithmetic.find_step(self._loaded.task.precision.arithmetic)
        return [_list_numbers(found) for found in _run_reference(self._loaded, move_values(tensors, step))]


def _take_head(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1)[:_HEAD]


def pair_parts(given: Structure, wanted: Structure, place: str = "") -> Iterator[Pair]:
    """The parts in which a candidate's result corresponds to the reference's, down to where they differ."""
    if given.kind == wanted.kind == MAPPING and set(given.names) == set(wanted.names) and len(given.names) == len(wanted.names):
        mine = dict(zip(given.names, given.parts, strict=True))
        for name, part in zip(wanted.names, wanted.parts, strict=True):
            yield from pair_parts(mine[name], part, f"{place}[{name}]")
    elif _are_alike(given, wanted) and len(given.parts) == len(wanted.parts):
        for number, (mine_, part) in enumerate(zip(given.parts, wanted.parts, strict=True)):
            step = f".{wanted.names[number]}" if wanted.names else f"[{number}]"
            yield from pair_parts(mine_, part, place + step)
    else:
        yield f" at result{place}" if place else "", given, wanted


def _are_alike(given: Structure, wanted: Structure) -> bool:
    """Whether a container may stand for another, as far as the kind and the fields say."""
    if wanted.kind == SEQUENCE:
        return given.kind in (SEQUENCE, NAMED_TUPLE)
    if wanted.kind == NAMED_TUPLE:
        return given.kind == NAMED_TUPLE and given.names == wanted.names
    return wanted.kind == DATACLASS and given.kind in (DATACLASS, NAMED_TUPLE) and given.names == wanted.names


def find_difference(pairs: list[Pair]) -> str:
    """A sentence about the first part that is another one; empty where none is. Values of numbers are not looked at."""
    for place, given, wanted in pairs:
        if given.kind == wanted.kind == MAPPING:
            missing, extra = (sorted(set(one.names) - set(other.names)) for one, other in ((wanted, given), (given, wanted)))
            if missing:
                return f"forward returns no key {missing[0]}{place}, the reference does"
            return f"forward returns the key {(extra or list(given.names))[0]}{place}, the reference does not"
        if given.kind != wanted.kind and not (given.kind == "int" and wanted.kind == "float"):
            return f"forward returns {_say(given)}{place}, the reference returns {_say(wanted)}"
        if wanted.names or wanted.parts or given.parts or (wanted.kind == TEXT and given.text != wanted.text):
            return f"forward returns {_say(given)}{place}, the reference returns {_say(wanted)}"
    return ""


def _say(part: Structure) -> str:
    if part.kind == SEQUENCE:
        return f"a tuple or list of {len(part.parts)}"
    if part.kind in (NAMED_TUPLE, DATACLASS, MAPPING):
        more = ", ..." if len(part.names) > _MOST_NAMED else ""
        what = "keys" if part.kind == MAPPING else "fields"
        return f"a {part.kind} with the {what} {', '.join(part.names[:_MOST_NAMED])}{more}" if part.names else f"an empty {part.kind}"
    if part.kind in NUMBERS:
        return f"the number {part.text}"
    if part.kind == TEXT:
        return f"the text {part.text}"
    return f"a {part.kind}" if part.kind == TENSOR else part.kind


def _run_reference(loaded: LoadedTask, tensors: list[torch.Tensor]) -> tuple[Structure, Structure]:
    """The structure of the reference's own result, and of the float64 one; of the own one twice where that is not computed whole."""
    given = loaded.fill_arguments([tensor.clone() for tensor in tensors])
    own = describe(run_whole(loaded.model, given, loaded.updates)[0])
    if loaded.plan.oracle is OraclePlace.PARTS:
        return own, own
    with loaded.in_float64(loaded.model64):
        return own, describe(run_whole(loaded.model64, loaded.fill_arguments(loaded.widen(tensors)), loaded.updates)[0])


def _list_numbers(structure: Structure) -> list[Structure]:
    """The numbers of a structure, in the order of its parts."""
    if structure.kind in NUMBERS:
        return [structure]
    return [number for part in structure.parts for number in _list_numbers(part)]


def _read(number: Structure) -> complex:
    """What a number's text stands for; none that equals another where it stands for nothing."""
    text = {"True": "1", "False": "0"}.get(number.text, number.text)
    try:
        return int(text) if number.kind in ("bool", "int") else complex(text)
    except ValueError:
        return cmath.nan


def _is_near(given: complex, seen: list[complex], right: complex, share: float) -> bool:
    """Whether a number is right: `seen` has what the reference gives, also on moved inputs, and the oracle there."""
    own = seen[0]
    if isinstance(own, int):
        real = [int(one.real) for one in (*seen, right) if cmath.isfinite(one)]
        return given in real or (len(set(real)) > 2 and min(real) < given.real < max(real))  # noqa: PLR2004 - not all can be seen
    if not cmath.isfinite(right) or not cmath.isfinite(own):
        return given in (right, own) or (cmath.isnan(given) and (cmath.isnan(right) or cmath.isnan(own)))
    error = abs(given - right)
    return math.isfinite(error) and error <= _FACTOR * max(share * abs(right), *(abs(one - right) for one in seen if cmath.isfinite(one)))
