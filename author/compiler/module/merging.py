"""Kernels that differ in whole numbers alone become one, which takes these numbers as arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritonsmith.author.compiler.kernels.kernel import LINE, fold, split_arguments, unfold, wrap
from tritonsmith.author.compiler.module.docs import join_docs
from tritonsmith.author.compiler.module.fitting import Fit, Values, count_arguments, fit_arguments
from tritonsmith.author.compiler.module.launches import pass_numbers
from tritonsmith.author.compiler.module.module import ModuleText
from tritonsmith.author.compiler.module.skeletons import HelperCall, Skeleton, list_mentions, read_skeleton
from tritonsmith.author.compiler.module.uses import NumberUse

_MOST_ARGUMENTS = 12
"""Numbers that a kernel takes. With more, two kernels are easier to read: these have some 20 to 60 lines, and a launch two or three."""


@dataclass
class _Merged:
    """What one of the module's functions is in the end."""

    name: str
    numbers: dict[str, int] = field(default_factory=dict)
    """What its launch, or a function that calls it, has to give besides."""


@dataclass
class _Group:
    """Functions with one skeleton."""

    members: list[str]
    fit: Fit
    docs: list[str]


def merge_kernels(text: ModuleText) -> ModuleText:
    """The text with one kernel for all that differ in whole numbers alone; the same where there are none."""
    merger = _Merger(text)
    merger.merge()
    if not merger.groups:
        return text
    merged = merger.merged
    names = {old: one.name for old, one in merged.items()}
    numbers = {old: (one.name, one.numbers) for old, one in merged.items()}
    return replace(
        text, kernels=merger.list_texts(), forward=pass_numbers(text.forward, numbers), first=names.get(text.first, text.first),
        names=[tuple(names.get(one, one) for one in ones) for ones in text.names],
        sized=[replace(one, lines=pass_numbers(one.lines, numbers)) for one in text.sized],
        keeps_numbers=any(merged[name].numbers for name in merger.kept if name in merged),
    )  # fmt: skip


class _Merger:
    """Merges the functions that are called first, then those that call them."""

    def __init__(self, text: ModuleText) -> None:
        self.texts = {_read_name(one): one for one in text.kernels}
        self.known = list(self.texts)
        self.forward = "\n".join(line for lines in (text.forward, *(one.lines for one in text.sized)) for line in lines)
        self.kept = set(re.findall(r"self\.keep\(\s*\"[^\"]*\",\s*(\w+)", self.forward))
        self.merged: dict[str, _Merged] = {}
        self.groups: dict[str, _Group] = {}
        """By the name that a merged function has."""

    def merge(self) -> None:
        """All functions, as far as they may be."""
        mentions = {name: list_mentions(text) for name, text in self.texts.items()}
        called = {name: direct & self.texts.keys() for name, (direct, _) in mentions.items()}
        passed_on = set().union(*(other & self.texts.keys() for _, other in mentions.values()))
        helpers = set().union(*called.values())
        done: set[str] = set()
        while ready := [name for name in called if name not in done and called[name] - {name} <= done]:
            self._merge_level([name for name in ready if name not in passed_on and name not in called[name]], helpers)
            done |= {*ready}

    def _merge_level(self, names: Sequence[str], helpers: set[str]) -> None:
        """Functions that call none but those that are done."""
        found: dict[str, list[str]] = {}
        skeletons: dict[str, Skeleton] = {}
        arguments = {group: read_skeleton(self.texts[group], {}).arguments for group in self.groups}
        for name in names:
            self._pass_on(name)
            skeletons[name] = read_skeleton(self.texts[name], arguments)
            found.setdefault(f"{name in helpers} {skeletons[name].key}", []).append(name)
        for members in found.values():
            for part in _divide([skeletons[name] for name in members]) if len(members) > 1 else ():
                self._join([skeletons[one.name] for one in part], part[0].name not in helpers)

    def _pass_on(self, name: str) -> None:
        """Give the functions that one calls their new names, and their numbers."""
        known = {old: () for old, one in self.merged.items() if re.search(rf"\b{old}\b", self.texts[name])}
        calls = read_skeleton(self.texts[name], known).calls if known else ()
        edits = [edit for call in calls for edit in self._rewrite_call(self.texts[name].encode(), call)]
        if edits:
            self.texts[name] = _lay_out(_edit(self.texts[name], edits))

    def _rewrite_call(self, text: bytes, call: HelperCall) -> list[tuple[int, int, str]]:
        merged = self.merged[call.name]
        given = "".join(f", {value}" for value in merged.numbers.values())
        if text[: call.end].rstrip().endswith(b","):  # a call on several lines
            given = given.removeprefix(",")
        return [(call.start, call.start + len(call.name.encode()), merged.name), (call.end, call.end, given)]

    def _join(self, members: Sequence[Skeleton], launched: bool) -> None:
        """One function for all members: the first of them with arguments in place of numbers."""
        first = members[0]
        names = [one.name for one in members]
        uses = _list_uses(members)
        fit = fit_arguments(uses, first.names, launched) if uses else Fit()
        text = self.texts[first.name]
        edits = []
        for number, values in zip(first.numbers, _list_values(members), strict=True):
            if len(set(values)) > 1:
                word = fit.words[values]
                bracketed = " " in word and _is_operand(text, number.start, number.end)
                edits.append((number.start, number.end, f"({word})" if bracketed else word))
        text = _sign(_lay_out(_edit(text, edits)), fit)
        self.groups[first.name] = _Group(names, fit, [one.doc for one in members])
        for place, name in enumerate(names):
            self.merged[name] = _Merged(first.name, {key: values[place] for key, values in fit.arguments.items()})
            if place:
                del self.texts[name]
        self.texts[first.name] = text

    def list_texts(self) -> list[str]:
        """The functions in their order, with docstrings that hold for all that they are."""
        renamed = {name: name for name in self.known} | {old: one.name for old, one in self.merged.items()}
        for name, group in self.groups.items():
            doc = join_docs(group.docs, group.fit.words, self.texts[name], renamed)
            self.texts[name] = self.texts[name].replace(f'"""{group.docs[0]}"""', f'"""{doc}"""', 1)
        return list(self.texts.values())


def _list_values(members: Sequence[Skeleton]) -> list[Values]:
    """For each number of a skeleton: what it is in each member."""
    return list(zip(*([number.value for number in one.numbers] for one in members), strict=True))


def _list_uses(members: Sequence[Skeleton]) -> Mapping[Values, Sequence[NumberUse]]:
    """By the numbers that differ: how they are used."""
    found: dict[Values, list[NumberUse]] = {}
    for number, values in zip(members[0].numbers, _list_values(members), strict=True):
        if len(set(values)) > 1:
            found.setdefault(values, []).append(number.use)
    return found


def _divide(members: Sequence[Skeleton]) -> list[Sequence[Skeleton]]:
    """The members in groups of two or more that few arguments do for."""
    if count_arguments(_list_uses(members)) <= _MOST_ARGUMENTS:
        return [members]
    groups: list[list[Skeleton]] = []
    for one in members:
        for group in groups:
            if count_arguments(_list_uses([*group, one])) <= _MOST_ARGUMENTS:
                group.append(one)
                break
        else:
            groups.append([one])
    return [group for group in groups if len(group) > 1]


def _edit(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with other words from one byte to another."""
    data = text.encode()
    for start, end, word in sorted(edits, reverse=True):
        data = data[:start] + word.encode() + data[end:]
    return data.decode()


def _is_operand(text: str, start: int, end: int) -> bool:
    """Whether a product in place of a number would be computed otherwise without brackets."""
    data = text.encode()
    before, behind = data[:start].rstrip()[-1:], data[end:].lstrip()[:1]
    return before in (b"*", b"/", b"%") or behind in (b"*", b"/", b"%")


def _sign(text: str, fit: Fit) -> str:
    """A function with further arguments: those that the compiler need not know ahead of its constexpr arguments."""
    lines = unfold(text)
    place = next(number for number, line in enumerate(lines) if line.startswith("def "))
    head, _, rest = lines[place].partition("(")
    given = rest.removesuffix("):").split(", ")
    first = next((number for number, one in enumerate(given) if ":" in one), len(given))
    constants = [f"{name}: tl.constexpr" for name in fit.arguments if name not in fit.plain]
    signed = wrap(f"{head}(", [*given[:first], *fit.plain, *given[first:], *constants], "):", "")
    return "\n".join([*lines[:place], *signed, *(part for line in lines[place + 1 :] for part in _fold(line))])


def _lay_out(text: str) -> str:
    """The text with no line longer than it has to be."""
    lines = unfold(text)
    head = next(number for number, line in enumerate(lines) if line.startswith("def "))
    start, _, rest = lines[head].partition("(")
    signed = wrap(f"{start}(", rest.removesuffix("):").split(", "), "):", "")
    return "\n".join([*lines[:head], *signed, *(part for line in lines[head + 1 :] for part in _fold(line))])


def _fold(line: str) -> list[str]:
    """A statement, a long call on several lines."""
    folded = fold(line)
    found = re.fullmatch(r"(\s*)((?:\w+ = )?\w+\()(.*)(\))", line) if len(folded) == 1 and len(line) > LINE else None
    if found is None:
        return folded
    indent, head, inner, tail = found.groups()
    return wrap(head, split_arguments(inner), tail, indent)


def _read_name(text: str) -> str:
    found = re.search(r"^def (\w+)\(", text, re.MULTILINE)
    assert found is not None, "a kernel's text is a function"
    return found[1]
