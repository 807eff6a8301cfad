"""Steps that forward repeats, as a loop: statements that differ in numbers that grow evenly, and in the variables of their step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from tritonsmith.author.compiler.kernels.kernel import join_lines, split_arguments, wrap
from tritonsmith.author.compiler.module.module import ModuleText
from tritonsmith.author.compiler.module.probing import trace_calls
from tritonsmith.author.compiler.module.statements import ForwardStatement, StepLoop, find_loop, read_statement

_LEAST_STEPS = 4
"""Fewer steps are read more easily one by one."""
_LEAST_SAVED = 8
"""Statements that a loop has to save."""
_MOST_TRIED = 200
"""Runs that save the same, of which the shortest loop is taken."""
_LONGEST_STEP = 80
"""Statements of one step, at the most."""


def roll_steps(text: ModuleText) -> ModuleText:
    """The text whose forwards have loops; the same where nothing is repeated."""
    forward, returned = _roll(text.forward, text.returned)
    sized = []
    for one in text.sized:
        lines, shown = _roll(one.lines, one.returned)
        sized.append(replace(one, lines=lines, returned=shown))
    return replace(text, forward=forward, returned=returned, sized=sized)


def _roll(lines: list[str], returned: str) -> tuple[list[str], str]:
    """One forward. What its loops call is compared with what the statements call; where that differs it stays as it is."""
    plain = [read_statement(line) for line in join_lines(lines)] if lines else []
    last = read_statement(returned) if returned else None
    if any(one is None for one in plain) or last is None:
        return lines, returned
    rolled = _Rolled([one for one in plain if one is not None], last)
    while rolled.roll_once():
        pass
    if not rolled.loops:
        return lines, returned
    before = trace_calls([*join_lines(lines), f"return {returned}"])
    after = trace_calls([*rolled.list_texts(), f"return {rolled.last.text}"])
    return (rolled.list_lines(), rolled.last.text) if before is not None and before == after else (lines, returned)


@dataclass
class _Part:
    """A statement, or a loop of some."""

    statement: ForwardStatement | None
    lines: tuple[str, ...] = ()


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

    def __init__(self, statements: list[ForwardStatement], last: ForwardStatement) -> None:
        self.parts = [_Part(one) for one in statements]
        self.last = last
        self.loops = 0
        self.names = {slot.value for one in (*statements, last) for slot in one.slots if isinstance(slot.value, str)}

    def list_texts(self) -> list[str]:
        """The statements, each on one line."""
        return [line for part in self.parts for line in ([part.statement.text] if part.statement else part.lines)]

    def list_lines(self) -> list[str]:
        """The lines of forward."""
        return [line for text in self.list_texts() for line in _wrap(text)]

    def roll_once(self) -> bool:
        """Make the loop that saves most; whether there is one. Of several with equal steps it is the shortest."""
        for _, runs in groupby(self._list_runs(), key=lambda one: one.saved):
            found = [(run, loop) for run in islice(runs, _MOST_TRIED) if (loop := self._find(run)) is not None]
            if found:
                run, loop = min(found, key=lambda one: (one[0].length, len(one[1].lines), one[0].start))
                self._put(run, loop)
                return True
        return False

    def _find(self, run: _Run) -> StepLoop | None:
        """The loop of a run; None where its statements are no steps, or where a loop behind it reads what it would rename."""
        statements = [part.statement for part in self.parts[run.start : run.end] if part.statement]
        behind = self.parts[run.end :]
        blocks = [statements[at : at + run.length] for at in range(0, len(statements), run.length)]
        loop = find_loop(blocks, [*(part.statement for part in behind if part.statement), self.last], self.names)
        return None if loop is None or any(_mentions(part.lines, loop) for part in behind) else loop

    def _list_runs(self) -> Iterator[_Run]:
        """Statements with repeated skeletons, those that save most first."""
        keys = [part.statement.key if part.statement else f"loop {number}" for number, part in enumerate(self.parts)]
        found = []
        for length in range(1, min(_LONGEST_STEP, len(keys) // _LEAST_STEPS) + 1):
            at = 0
            while at + length < len(keys):
                end = at
                while end + length < len(keys) and keys[end] == keys[end + length]:
                    end += 1
                steps = (end - at) // length + 1
                runs = [_Run(start, length, count) for start in range(at, at + 2 * length) for count in (steps, steps - 1, steps - 2)]
                found += [one for one in runs if one.steps >= _LEAST_STEPS and one.end <= end + length]
                at = max(end, at + 1)
        yield from sorted((one for one in found if one.saved >= _LEAST_SAVED), key=lambda one: -one.saved)

    def _put(self, run: _Run, loop: StepLoop) -> None:
        """Put a loop in the place of statements, and its variables in that of theirs behind it."""
        self.loops += 1
        self.names |= loop.fresh
        behind = [replace(part, statement=loop.rename(part.statement)) if part.statement else part for part in self.parts[run.end :]]
        self.parts = [*self.parts[: run.start], _Part(None, loop.lines), *behind]
        self.last = loop.rename(self.last)


def _mentions(lines: Sequence[str], loop: StepLoop) -> bool:
    """Whether a loop that is there reads a variable that another one would rename."""
    return any(re.search(rf"\b{re.escape(name)}\b", line) for name in loop.renamed for line in lines)


def _wrap(text: str) -> list[str]:
    """A statement on several lines where it is a long call."""
    indent = text[: len(text) - len(text.lstrip())]
    head, call, arguments = text.strip().partition("](") if re.match(r"\s*\w+\[", text) else text.strip().partition("self.keep(")
    if not call or not arguments.endswith(")"):
        return [text]
    return wrap(f"{head}{call}", split_arguments(arguments[:-1]), ")", indent)

