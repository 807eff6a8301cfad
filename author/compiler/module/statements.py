"""Statements that are repeated with other numbers and variables, and the loop that does the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from enum import StrEnum
from itertools import groupby

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Assign, Call, Evaluate, Expression, Name, Node, Number, Statement, String, Word, number
from tritonsmith.author.compiler.ir.walk import N, Path, iterate, put, replace
from tritonsmith.author.compiler.module.launches import read_launch

_KNOWN = frozenset({"self", "torch", "F", "nn", "triton", "math"})
"""Names that are no variables of forward."""
_OWN = (code.Lambda, code.Comprehension, code.FormattedString)
"""Expressions with variables, or text, of their own."""
_APART = (Call, code.Keyword, code.Subscript, code.Slice, code.Tuple, code.List, code.Group, Assign)
"""Records whose expressions need no parentheses."""


class SlotKind(StrEnum):
    """What may differ between two steps."""

    LOAD = "load"
    STORE = "store"
    NUMBER = "number"
    STRING = "string"


@dataclass(frozen=True)
class Slot:
    """A place of a statement."""

    kind: SlotKind
    value: str | int
    path: Path
    operand: bool = False
    """Whether an expression in its place stands in parentheses."""


@dataclass(frozen=True, eq=False)
class ForwardStatement:
    """A statement of forward."""

    code: Statement
    slots: tuple[Slot, ...]
    key: Statement
    """Equal for two that differ in their slots alone; the statement itself where it cannot be repeated."""

    def put(self, words: Mapping[int, Expression]) -> Statement:
        """The statement with other expressions in some slots, by the slots' numbers."""
        return put(self.code, {self.slots[place].path: word for place, word in words.items()})


def read_statement(statement: Statement) -> ForwardStatement:
    """A statement with its slots."""
    slots: list[Slot] = []
    _list_slots(statement, (), slots)
    key = put(statement, {slot.path: Word(slot.kind) for slot in slots}) if _is_simple(statement) else statement
    return ForwardStatement(statement, tuple(slots), key)


def _list_slots(node: Node, path: Path, slots: list[Slot], stored: bool = False, called: bool = False) -> None:
    """Add the slots within a record, but the name of a kernel that is launched.

    stored: whether the record is set. called: whether it is what a call calls.
    """
    for place, child in enumerate(node.children()):
        below = (*path, place)
        match child:
            case Name(name=name):
                if name not in _KNOWN and not (called and place == 0 and isinstance(node, code.Subscript)):
                    slots.append(Slot(SlotKind.STORE if _sets(node, place, stored) else SlotKind.LOAD, name, below))
            case Number(value=int() as value):
                slots.append(Slot(SlotKind.NUMBER, value, below, not isinstance(node, _APART)))
            case String(spelling=text):
                if not isinstance(node, code.FormattedString) and text[0] in "\"'" and text[:3] != '"""':
                    slots.append(Slot(SlotKind.STRING, text[1:-1], below))
            case _:
                _list_slots(child, below, slots, _sets(node, place, stored), isinstance(node, Call) and place == 0)


def _sets(node: Node, place: int, stored: bool) -> bool:
    """Whether a record sets the variable that is its child; `stored`: whether it is such a child itself."""
    match node:
        case Assign(targets=targets):
            return place < len(targets)
        case code.Augment() | code.For() | code.Clause():
            return place == 0
        case code.Tuple() | code.List() | code.Star() | code.Group():
            return stored
    return False


def _is_simple(statement: Statement) -> bool:
    """Whether it is a call, or sets variables, and nothing in it has variables of its own."""
    match statement:
        case Assign(targets=(Name(),), annotation=None) | Evaluate(value=Call()):
            return not any(isinstance(node, _OWN) for node in iterate(statement))
    launch = read_launch(statement)
    return launch is not None and launch.keeps


@dataclass(frozen=True)
class StepLoop:
    """The loop that takes the place of some statements."""

    ahead: tuple[Statement, ...]
    """What its first step finds."""
    loop: code.For
    renamed: Mapping[str, Expression]
    """By variable of a step: how statements behind the loop read it."""
    lists: Mapping[str, int]
    """By list of what all steps made: their number."""
    made: frozenset[str]
    """Variables that the statements of its steps set."""
    fresh: frozenset[str]
    """Variables that nothing else has."""

    @property
    def size(self) -> int:
        """Its lines."""
        return len(self.ahead) + 1 + len(self.loop.body)

    def rename(self, statement: ForwardStatement) -> ForwardStatement:
        """A statement behind the loop."""
        words = {place: self.renamed[str(slot.value)] for place, slot in enumerate(statement.slots)
                 if slot.kind is SlotKind.LOAD and slot.value in self.renamed}  # fmt: skip
        return read_statement(self._join_lists(statement.put(words))) if words else statement

    def _join_lists(self, statement: N) -> N:
        """The record with `*made_by_step` where all that the steps made stands in a row."""

        def change(node: Node) -> Node:
            match node:
                case Call(arguments=items):
                    return _with_items(node, "arguments", self._shorten(items))
                case code.Tuple(items=items) | code.List(items=items):
                    return _with_items(node, "items", self._shorten(items))
            return node

        return replace(statement, change) if self.lists else statement

    def _shorten(self, items: tuple[Expression, ...]) -> tuple[Expression, ...]:
        for name, steps in self.lists.items():
            made = tuple(_take(name, step) for step in range(steps))
            backwards = code.Subscript(Name(name), code.Slice(step=code.Unary("-", Number(1, "1"))))
            for row, value in ((made, Name(name)), (made[::-1], backwards)):
                while (at := next((at for at in range(len(items) - steps + 1) if items[at : at + steps] == row), None)) is not None:
                    items = (*items[:at], code.Star(value), *items[at + steps :])
        return items


def _with_items(node: N, place: str, items: tuple[Expression, ...]) -> N:
    return with_fields(node, **{place: items}) if items != getattr(node, place) else node


def _take(name: str, step: int) -> Expression:
    return code.Subscript(Name(name), number(step))


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


Key = tuple[int, int]
"""What a step makes: its statement and slot."""


@dataclass
class _LoopWriter:
    blocks: Sequence[Sequence[ForwardStatement]]
    later: Sequence[ForwardStatement]
    names: set[str]
    made: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By variable: its step, statement and slot."""
    initial: dict[Key, str] = field(default_factory=dict)
    """By what a step leaves for the next one: what the first one finds."""
    read_at: dict[Key, int] = field(default_factory=dict)
    """And the last statement that reads what the step before left."""
    fresh: set[str] = field(default_factory=set)

    def write(self) -> StepLoop:
        self._list_made()
        roles = [[self._find_role(at, place) for place in range(len(one.slots))] for at, one in enumerate(self.blocks[0])]
        progress = [one for row in roles for role in row if isinstance(role, list) for one in role if isinstance(one, tuple)]
        first = self._find_first(progress)
        counter = self._choose("step")
        read = {str(slot.value) for one in self.later for slot in one.slots if slot.kind is SlotKind.LOAD} & self.made.keys()
        plain = {key: self._name(key) for key in sorted({(at, place) for _, at, place in self.made.values()})}
        earlier = {key: self._choose(f"last_{plain[key]}") if self._needs_both(key) else plain[key] for key in self.initial}
        lists, renamed = self._collect(read, plain)
        ahead = [_set(name, code.List()) for name in lists.values()]
        ahead += [_set(earlier[key], Name(name)) for key, name in self.initial.items() if earlier[key] != name]
        body: list[Statement] = []
        for at, statement in enumerate(self.blocks[0]):
            words: dict[int, Expression] = {}
            for place, role in enumerate(roles[at]):
                if isinstance(role, list):
                    words[place] = _write_value(role, statement.slots[place], counter, first)
                elif role is not None:
                    key, carried = role
                    words[place] = Name(earlier[key] if carried else plain[key])
            body.append(statement.put(words))
        body += [Evaluate(Call(code.Attribute(Name(name), "append"), (Name(plain[key]),))) for key, name in lists.items()]
        body += [_set(earlier[key], Name(plain[key])) for key in self.initial if earlier[key] != plain[key]]
        steps = len(self.blocks)
        bounds = (number(first), number(first + steps)) if first else (number(steps),)
        loop = code.For(Name(counter), Call(Name("range"), bounds), tuple(body))
        return StepLoop(tuple(ahead), loop, renamed, dict.fromkeys(lists.values(), steps), frozenset(self.made), frozenset(self.fresh))

    def _list_made(self) -> None:
        """Find what each step makes. Nothing else may make it: not another step, and no statement behind."""
        for step, block in enumerate(self.blocks):
            for at, statement in enumerate(block):
                for place, slot in enumerate(statement.slots):
                    if slot.kind is SlotKind.STORE:
                        if str(slot.value) in self.made:
                            raise _NoLoop
                        self.made[str(slot.value)] = step, at, place
        if any(slot.kind is SlotKind.STORE and slot.value in self.made for one in self.later for slot in one.slots):
            raise _NoLoop

    def _find_role(self, at: int, place: int) -> tuple[Key, bool] | list[str | tuple[int, int]] | None:
        """What stands in a slot: a variable of the step or of the one before, text with numbers that grow, or what all steps have."""
        slots = [block[at].slots[place] for block in self.blocks]
        values = [slot.value for slot in slots]
        kind = slots[0].kind
        if kind in (SlotKind.NUMBER, SlotKind.STRING):
            return None if len(set(values)) == 1 else _find_progress([*map(str, values)])
        if kind is SlotKind.STORE:
            return (at, place), False
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

    def _needs_both(self, key: Key) -> bool:
        """Whether a step reads what the one before left when it has made its own."""
        return self.read_at[key] > key[0]

    @staticmethod
    def _find_first(progress: Sequence[tuple[int, int]]) -> int:
        """The first value of the counter: one for which every number is a multiple of it, or 0."""
        firsts = {begin // by if by > 0 and begin % by == 0 else 0 for begin, by in progress}
        return firsts.pop() if len(firsts) == 1 else 0

    def _name(self, key: Key) -> str:
        own = str(self.blocks[0][key[0]].slots[key[1]].value)
        short = _strip_numbers(own)
        return own if short in self.names else self._choose(short)

    def _collect(self, read: set[str], plain: Mapping[Key, str]) -> tuple[dict[Key, str], dict[str, Expression]]:
        """Lists of what every step made, where more than the last one is read behind the loop; and how all of it is read there."""
        last = len(self.blocks) - 1
        keys = [(at, place) for step, at, place in sorted(self.made[name] for name in read) if step != last]
        lists = {key: self._choose(f"{_strip_numbers(plain[key])}_by_step") for key in dict.fromkeys(keys)}
        renamed: dict[str, Expression] = {}
        for name in read:
            step, *key = self.made[name]
            at, place = key
            renamed[name] = _take(lists[at, place], step) if (at, place) in lists else Name(plain[at, place])
        return lists, renamed

    def _choose(self, name: str) -> str:
        """A name that nothing has."""
        free, count = name, 2
        while free in self.names | self.fresh:
            free, count = f"{name}_{count}", count + 1
        self.fresh.add(free)
        return free


def _strip_numbers(name: str) -> str:
    """The name of a variable without the numbers of the step that it belongs to: `w_3_high` is `w_high`."""
    first, *rest = name.split("_")
    return "_".join((first, *(part for part in rest if not part.isdecimal())))


def _set(name: str, value: Expression) -> Statement:
    return Assign((Name(name),), value=value)


def _find_progress(values: Sequence[str]) -> list[str | tuple[int, int]]:
    """Texts as one: pieces that all have, and numbers as (first, growth from step to step). Raises _NoLoop."""
    split = [["".join(run) for _, run in groupby(value, str.isdecimal)] for value in values]
    if len({len(one) for one in split}) != 1:
        raise _NoLoop
    roles: list[str | tuple[int, int]] = []
    for pieces in zip(*split, strict=True):
        if len(set(pieces)) == 1:
            roles.append(pieces[0])
            continue
        if any(not one.isdecimal() or str(int(one)) != one for one in pieces):
            raise _NoLoop
        whole = [*map(int, pieces)]
        by = whole[1] - whole[0]
        if any(right - left != by for left, right in zip(whole, whole[1:], strict=False)):
            raise _NoLoop
        roles.append((whole[0], by))
    return roles


def _write_value(role: Sequence[str | tuple[int, int]], slot: Slot, counter: str, first: int) -> Expression:
    """The expression of a number or string that grows. Raises _NoLoop where the string cannot be written."""
    grown = [_write_number(*one, counter, first) for one in role if not isinstance(one, str)]
    if slot.kind is SlotKind.NUMBER:
        return code.Group(grown[0]) if slot.operand else grown[0]
    if any(set("{}\"\\'") & set(one) for one in role if isinstance(one, str)):
        raise _NoLoop
    if len(grown) == 1 and not any(isinstance(one, str) and one for one in role):
        return Call(Name("str"), (grown[0],))
    words = iter(grown)
    parts = [String(one) if isinstance(one, str) else code.FormattedValue(next(words)) for one in role if one != ""]
    return code.FormattedString('f"', tuple(parts))


def _write_number(begin: int, by: int, counter: str, first: int) -> Expression:
    """begin + by * steps, by a counter that begins at `first`."""
    begin -= by * first
    step = Name(counter)
    if not begin:
        return step if by == 1 else code.Binary(number(by), "*", step)
    if by == 1:
        return code.Binary(step, "+", number(begin))
    operator = "-" if by < 0 else "+"
    return code.Binary(number(begin), operator, code.Binary(number(abs(by)), "*", step))
