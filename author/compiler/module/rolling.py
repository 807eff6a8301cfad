"""Steps that forward repeats, as a loop: statements that differ in numbers that grow evenly, and in the variables of their step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice

from tritonsmith.author.compiler.ir.code import Evaluate, Expression, Statement
from tritonsmith.author.compiler.ir.walk import names_in, names_set
from tritonsmith.author.compiler.module.record import ForwardCode, ModuleCode
from tritonsmith.author.compiler.module.statements import ForwardStatement, StepLoop, find_loop, read_statement

_LEAST_STEPS = 4
"""Fewer steps are read more easily one by one."""
_LEAST_SAVED = 8
"""Statements that a loop has to save."""
_MOST_TRIED = 200
"""Runs that save the same, of which the shortest loop is taken."""
_LONGEST_STEP = 80
"""Statements of one step, at the most."""


def roll_steps(module: ModuleCode) -> ModuleCode:
    """The module whose forwards have loops; the same where nothing is repeated."""
    return replace(module, forwards=tuple(map(_roll, module.forwards)))


def _roll(forward: ForwardCode) -> ForwardCode:
    """One forward."""
    rolled = _Rolled(forward.statements, forward.returned)
    while rolled.roll_once():
        pass
    return replace(forward, statements=rolled.list_statements(), returned=rolled.returned) if rolled.loops else forward


@dataclass(frozen=True, eq=False)
class _Part:
    """A statement that may be repeated, or loops, which may not."""

    statement: ForwardStatement | None
    loop: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class _Run:
    """Statements that may be the steps of a loop."""

    start: int
    length: int
    """Statements of one step."""
    steps: int

    @property
    def end(self) -> int:
        return self.start + self.length * self.steps

    @property
    def saved(self) -> int:
        """Statements that a loop saves."""
        return self.length * (self.steps - 1)


class _Rolled:
    """A forward whose repeated statements become loops, the longest first."""

    def __init__(self, statements: tuple[Statement, ...], returned: Expression) -> None:
        read = [read_statement(one) for one in statements]
        self.parts = [_Part(one) for one in read]
        self.last = read_statement(Evaluate(returned))
        self.loops = 0
        self.names = {slot.value for one in (*read, self.last) for slot in one.slots if isinstance(slot.value, str)}

    @property
    def returned(self) -> Expression:
        """What forward returns."""
        assert isinstance(self.last.code, Evaluate)
        return self.last.code.value

    def list_statements(self) -> tuple[Statement, ...]:
        """The statements of forward."""
        return tuple(line for part in self.parts for line in ([part.statement.code] if part.statement else part.loop))

    def roll_once(self) -> bool:
        """Make the loop that saves most; whether there is one. Of several with equal steps it is the shortest."""
        for _, runs in groupby(self._list_runs(), key=lambda one: one.saved):
            found = [(run, loop) for run in islice(runs, _MOST_TRIED) if (loop := self._find(run)) is not None]
            if found:
                run, loop = min(found, key=lambda one: (one[0].length, one[1].size, one[0].start))
                self._put(run, loop)
                return True
        return False

    def _find(self, run: _Run) -> StepLoop | None:
        """The loop of a run; None where its statements are no steps, or where a loop behind it reads what it would rename."""
        statements = [part.statement for part in self.parts[run.start : run.end] if part.statement]
        behind = self.parts[run.end :]
        blocks = [statements[at : at + run.length] for at in range(0, len(statements), run.length)]
        loop = find_loop(blocks, [*(part.statement for part in behind if part.statement), self.last], self.names)
        return None if loop is None or any(_is_in_the_way(part.loop, loop) for part in behind) else loop

    def _list_runs(self) -> Iterator[_Run]:
        """Statements with repeated skeletons, those that save most first."""
        known: dict[Statement, int] = {}
        keys = [known.setdefault(part.statement.key, at) if part.statement else -at - 1 for at, part in enumerate(self.parts)]
        found = []
        for length in range(1, min(_LONGEST_STEP, len(keys) // _LEAST_STEPS) + 1):
            at = 0
            while at + length < len(keys):
                end = at
                while end + length < len(keys) and keys[end] == keys[end + length]:
                    end += 1
                steps = (end - at) // length + 1
                if steps >= _LEAST_STEPS:
                    runs = [_Run(start, length, count) for start in range(at, at + 2 * length) for count in (steps, steps - 1, steps - 2)]
                    found += [one for one in runs if one.steps >= _LEAST_STEPS and one.end <= end + length]
                at = max(end, at + 1)
        yield from sorted((one for one in found if one.saved >= _LEAST_SAVED), key=lambda one: -one.saved)

    def _put(self, run: _Run, loop: StepLoop) -> None:
        """Put a loop in the place of statements, and its variables in that of theirs behind it."""
        self.loops += 1
        self.names |= loop.fresh
        behind = [replace(part, statement=loop.rename(part.statement)) if part.statement else part for part in self.parts[run.end :]]
        self.parts = [*self.parts[: run.start], _Part(None, (*loop.ahead, loop.loop)), *behind]
        self.last = loop.rename(self.last)


def _is_in_the_way(statements: tuple[Statement, ...], loop: StepLoop) -> bool:
    """Whether a loop that is there reads a variable that another one would rename, or sets one that it makes."""
    return any(loop.made & {*names_set(one)} or loop.renamed.keys() & names_in(one) for one in statements)
