"""Statements that are repeated with other numbers and variables, and the loop that does the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

_KNOWN = frozenset({"self", "torch", "F", "nn", "triton", "math"})
"""Names that are no variables of forward."""
_DIGITS = re.compile(r"(\d+)")
_NUMBERED = re.compile(r"_\d+(?=_|$)")
"""What a variable's name has of the step that it belongs to."""


class SlotKind(StrEnum):
    """What may differ between two steps."""

    LOAD = "load"
    STORE = "store"
    NUMBER = "number"
    STRING = "string"


@dataclass(frozen=True)
class Slot:
    """A place of a statement, from one character to another."""

    kind: SlotKind
    value: str | int
    begin: int
    end: int


@dataclass(frozen=True)
class ForwardStatement:
    """A statement of forward on one line."""

    text: str
    slots: tuple[Slot, ...]
    key: str
    """Equal for two that differ in their slots alone; the text where it cannot be repeated."""

    def put(self, words: Mapping[int, str]) -> str:
        """The text with other words in some slots, by the slots' numbers."""
        text = self.text
        for number in sorted(words, key=lambda one: -self.slots[one].begin):
            slot = self.slots[number]
            text = text[: slot.begin] + words[number] + text[slot.end :]
        return text


def read_statement(text: str) -> ForwardStatement | None:
    """A statement with its slots; None for a text that is none, or has more than ASCII."""
    try:
        nodes = ast.parse(text).body if text.isascii() else []
    except SyntaxError:
        return None
    if len(nodes) != 1:
        return None
    launched = {id(one.func.value) for one in ast.walk(nodes[0]) if isinstance(one, ast.Call) and isinstance(one.func, ast.Subscript)}
    slots = sorted((slot for one in ast.walk(nodes[0]) if id(one) not in launched for slot in _find_slot(one)), key=lambda one: one.begin)
    key = text
    if _is_simple(nodes[0]):
        pieces = [text[left.end : right.begin] for left, right in zip(slots, slots[1:], strict=False)]
        edges = (text[: slots[0].begin], text[slots[-1].end :]) if slots else (text, "")
        key = "\0".join([edges[0], *pieces, edges[1], *(slot.kind for slot in slots)])
    return ForwardStatement(text, tuple(slots), key)


def _find_slot(node: ast.AST) -> Iterable[Slot]:
    if isinstance(node, ast.Name) and node.id not in _KNOWN:
        kind = SlotKind.STORE if isinstance(node.ctx, ast.Store) else SlotKind.LOAD
        yield Slot(kind, node.id, node.col_offset, node.end_col_offset or 0)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield Slot(SlotKind.NUMBER, node.value, node.col_offset, node.end_col_offset or 0)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Slot(SlotKind.STRING, node.value, node.col_offset, node.end_col_offset or 0)


def _is_simple(node: ast.stmt) -> bool:
    """Whether it is a call, or sets variables, and nothing in it has variables of its own."""
    own = (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp, ast.JoinedStr, ast.NamedExpr)
    if any(isinstance(one, own) for one in ast.walk(node)):
        return False
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        several = isinstance(target, ast.Tuple) and ast.unparse(node.value).startswith("self.keep(")
        return isinstance(target, ast.Name) or several
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


@dataclass(frozen=True)
class StepLoop:
    """The loop that takes the place of some statements."""

    lines: tuple[str, ...]
    renamed: Mapping[str, str]
    """By variable of a step: how statements behind the loop read it."""
    lists: Mapping[str, int]
    """By list of what all steps made: their number."""
    fresh: frozenset[str]
    """Variables that nothing else has."""

    def rename(self, statement: ForwardStatement) -> ForwardStatement:
        """A statement behind the loop."""
        slots = enumerate(statement.slots)
        words = {number: self.renamed[str(one.value)] for number, one in slots if one.kind is SlotKind.LOAD and one.value in self.renamed}
        if not words:
            return statement
        plain = short = statement.put(words)
        for name, steps in self.lists.items():
            ones = [f"{name}[{step}]" for step in range(steps)]
            short = short.replace(", ".join(ones), f"*{name}").replace(", ".join(reversed(ones)), f"*{name}[::-1]")
        changed = read_statement(short) or read_statement(plain)  # a tuple without brackets takes no starred list
        assert changed is not None, "a statement with other variables"
        return changed


class _NoLoop(Exception):
    """The statements are no steps of a loop."""


def find_loop(blocks: Sequence[Sequence[ForwardStatement]], later: Sequence[ForwardStatement], names: Iterable[str]) -> StepLoop | None:
    """The loop whose steps are these blocks, if they are any.

    Args:
        blocks: the statements of each step, with equal keys.
        later: what comes behind them.
        names: every variable of forward.
    """
    try:
        return _LoopWriter(blocks, later, {*names}).write()
    except _NoLoop:
        return None


@dataclass
class _LoopWriter:
    blocks: Sequence[Sequence[ForwardStatement]]
    later: Sequence[ForwardStatement]
    names: set[str]
    made: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By variable: its step, statement and slot."""
    initial: dict[tuple[int, int], str] = field(default_factory=dict)
    """By what a step leaves for the next one: what the first one finds."""
    read_at: dict[tuple[int, int], int] = field(default_factory=dict)
    """And the last statement that reads what the step before left."""
    fresh: set[str] = field(default_factory=set)

    def write(self) -> StepLoop:
        for step, block in enumerate(self.blocks):
            for at, statement in enumerate(block):
                for number, slot in enumerate(statement.slots):
                    if slot.kind is SlotKind.STORE:
                        if str(slot.value) in self.made:
                            raise _NoLoop
                        self.made[str(slot.value)] = step, at, number
        roles = [[self._find_role(at, number) for number in range(len(one.slots))] for at, one in enumerate(self.blocks[0])]
        progress = [one for row in roles for role in row if isinstance(role, list) for one in role if isinstance(one, tuple)]
        first = self._find_first(progress)
        counter = self._choose("step")
        read = {str(slot.value) for one in self.later for slot in one.slots if slot.kind is SlotKind.LOAD} & self.made.keys()
        plain = {key: self._name(key) for key in sorted({(at, number) for _, at, number in self.made.values()})}
        earlier = {key: self._choose(f"last_{plain[key]}") if self._needs_both(key) else plain[key] for key in self.initial}
        lists, renamed = self._collect(read, plain)
        lines = [f"{name} = []" for name in lists.values()]
        lines += [f"{earlier[key]} = {text}" for key, text in self.initial.items() if earlier[key] != text]
        steps = len(self.blocks)
        lines.append(f"for {counter} in range({first}, {first + steps}):" if first else f"for {counter} in range({steps}):")
        for at, statement in enumerate(self.blocks[0]):
            words = {}
            for number, role in enumerate(roles[at]):
                if isinstance(role, list):
                    words[number] = _write_value(role, statement, number, counter, first)
                elif role is not None:
                    key, carried = role
                    words[number] = earlier[key] if carried else plain[key]
            lines.append(f"    {statement.put(words)}")
        lines += [f"    {name}.append({plain[key]})" for key, name in lists.items()]
        lines += [f"    {earlier[key]} = {plain[key]}" for key in self.initial if earlier[key] != plain[key]]
        return StepLoop(tuple(lines), renamed, dict.fromkeys(lists.values(), steps), frozenset(self.fresh))

    def _find_role(self, at: int, number: int) -> tuple[tuple[int, int], bool] | list[str | tuple[int, int]] | None:
        """What stands in a slot: a variable of the step or of the one before, text with numbers that grow, or what all steps have."""
        slots = [block[at].slots[number] for block in self.blocks]
        values = [slot.value for slot in slots]
        kind = slots[0].kind
        if kind in (SlotKind.NUMBER, SlotKind.STRING):
            return None if len(set(values)) == 1 else _find_progress([*map(str, values)])
        if kind is SlotKind.STORE:
            return (at, number), False
        places = [self.made.get(str(value)) for value in values]
        if len(set(values)) == 1 and places[0] is None:
            return None
        last = places[-1]
        if last is None:
            raise _NoLoop
        key = last[1:]
        if all(place == (step, *key) for step, place in enumerate(places)) and key[0] < at:
            return key, False
        if places[0] is None and all(place == (step, *key) for step, place in enumerate(places[1:])):
            if self.initial.setdefault(key, str(values[0])) != values[0]:
                raise _NoLoop
            self.read_at[key] = max(self.read_at.get(key, 0), at)
            return key, True
        raise _NoLoop

    def _needs_both(self, key: tuple[int, int]) -> bool:
        """Whether a step reads what the one before left when it has made its own."""
        return self.read_at[key] > key[0]

    @staticmethod
    def _find_first(progress: Sequence[tuple[int, int]]) -> int:
        """The first value of the counter: one for which every number is a multiple of it, or 0."""
        firsts = {begin // by if by > 0 and begin % by == 0 else 0 for begin, by in progress}
        return firsts.pop() if len(firsts) == 1 else 0

    def _name(self, key: tuple[int, int]) -> str:
        own = str(self.blocks[0][key[0]].slots[key[1]].value)
        short = _NUMBERED.sub("", own)
        return own if short in self.names else self._choose(short)

    def _collect(
        self, read: set[str], plain: Mapping[tuple[int, int], str]
    ) -> tuple[dict[tuple[int, int], str], dict[str, str]]:
        """Lists of what every step made, where more than the last one is read behind the loop; and how all of it is read there."""
        lists: dict[tuple[int, int], str] = {}
        last = len(self.blocks) - 1
        for name in sorted(read, key=lambda one: self.made[one]):
            step, *key = self.made[name]
            if step != last:
                lists.setdefault((key[0], key[1]), "")
        for one in lists:
            lists[one] = self._choose(f"{_NUMBERED.sub('', plain[one])}_by_step")
        renamed = {}
        for name in read:
            step, at, number = self.made[name]
            renamed[name] = f"{lists[at, number]}[{step}]" if (at, number) in lists else plain[at, number]
        return lists, renamed

    def _choose(self, name: str) -> str:
        """A name that nothing has."""
        free, number = name, 2
        while free in self.names | self.fresh:
            free, number = f"{name}_{number}", number + 1
        self.fresh.add(free)
        return free


def _find_progress(values: Sequence[str]) -> list[str | tuple[int, int]]:
    """Texts as one: pieces that all have, and numbers as (first, growth from step to step). Raises _NoLoop."""
    split = [_DIGITS.split(value) for value in values]
    if len({len(one) for one in split}) != 1:
        raise _NoLoop
    found: list[str | tuple[int, int]] = []
    for number, pieces in enumerate(zip(*split, strict=True)):
        if len(set(pieces)) == 1:
            found.append(pieces[0])
            continue
        if number % 2 == 0 or any(str(int(one)) != one for one in pieces):
            raise _NoLoop
        whole = [*map(int, pieces)]
        by = whole[1] - whole[0]
        if any(right - left != by for left, right in zip(whole, whole[1:], strict=False)):
            raise _NoLoop
        found.append((whole[0], by))
    return found


def _write_value(role: Sequence[str | tuple[int, int]], statement: ForwardStatement, number: int, counter: str, first: int) -> str:
    """The expression of a number or string that grows. Raises _NoLoop where the string cannot be written."""
    slot = statement.slots[number]
    words = [one if isinstance(one, str) else _write_number(*one, counter, first) for one in role]
    if slot.kind is SlotKind.NUMBER:
        (text,) = [word for word in words if word]
        before, after = statement.text[: slot.begin].rstrip()[-1:], statement.text[slot.end :].lstrip()[:1]
        return text if before in "([,=:" and after in "),]:" else f"({text})"
    if any(set("{}\"\\'") & set(one) for one in role if isinstance(one, str)):
        raise _NoLoop
    if sum(map(bool, words)) == 1:
        return f"str({''.join(words)})"
    return 'f"' + "".join(word if isinstance(one, str) else "{" + word + "}" for one, word in zip(role, words, strict=True)) + '"'


def _write_number(begin: int, by: int, counter: str, first: int) -> str:
    """begin + by * steps, by a counter that begins at `first`."""
    begin -= by * first
    grown = counter if by == 1 else f"{by} * {counter}"
    if not begin:
        return grown
    return f"{begin} - {-by} * {counter}" if by < 0 else f"{grown} + {begin}" if by == 1 else f"{begin} + {grown}"
