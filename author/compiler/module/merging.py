"""Kernels that differ in whole numbers alone become one, which takes these numbers as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Call, Expression, Function, Name, Node, Parameter, Statement, Word, number
from tritonsmith.author.compiler.ir.walk import canonical, iterate, put
from tritonsmith.author.compiler.ir.walk import replace as replace_nodes
from tritonsmith.author.compiler.module.docs import join_docs
from tritonsmith.author.compiler.module.fitting import Fit, Values, count_arguments, fit_arguments
from tritonsmith.author.compiler.module.launches import read_launch
from tritonsmith.author.compiler.module.record import ForwardCode, ModuleCode
from tritonsmith.author.compiler.module.uses import NumberUse, UsedNumber, list_numbers

_MOST_ARGUMENTS = 12
"""Numbers that a kernel takes. With more, two kernels are easier to read: these have some 20 to 60 lines, and a launch two or three."""
_CONSTANT = code.Attribute(Name("tl"), "constexpr")
_ANY = Word("...")
"""Stands for a number while functions are compared."""


@dataclass
class _Merged:
    """What one of the module's functions is in the end."""

    name: str
    numbers: dict[str, Expression] = field(default_factory=dict)
    """What its launch, or a function that calls it, has to give besides."""


@dataclass(frozen=True)
class _Sketch:
    """A function with its numbers apart."""

    function: Function
    numbers: list[UsedNumber]

    @property
    def name(self) -> str:
        """The function's."""
        return self.function.name


@dataclass
class _Group:
    """Functions with one sketch."""

    docs: list[str]
    words: Mapping[Values, Expression]

    def tell(self, values: Values) -> str | None:
        """The argument that numbers are, where they are one."""
        word = self.words.get(values)
        return word.name if isinstance(word, Name) else None


def merge_kernels(module: ModuleCode) -> ModuleCode:
    """The module with one kernel for all that differ in whole numbers alone; the same where there are none."""
    merger = _Merger(module)
    merger.merge()
    if not merger.groups:
        return module
    merged = merger.merged
    names = {old: one.name for old, one in merged.items()}
    frame = replace(
        module.frame, first=names.get(module.frame.first, module.frame.first),
        names=[tuple(names.get(one, one) for one in ones) for ones in module.frame.names],
        keeps_numbers=any(merged[name].numbers for name in merger.kept if name in merged),
    )  # fmt: skip
    return ModuleCode(merger.list_functions(), tuple(_pass_numbers(one, merged) for one in module.forwards), frame)


def _pass_numbers(forward: ForwardCode, merged: Mapping[str, _Merged]) -> ForwardCode:
    """The forward with the kernels that there are in the end."""

    def change(statement: Statement) -> Statement:
        launch = read_launch(statement)
        known = merged.get(launch.kernel) if launch is not None else None
        return launch.take(known.name, known.numbers) if launch is not None and known is not None else statement

    return replace(forward, statements=tuple(map(change, forward.statements)))


class _Merger:
    """Merges the functions that are called first, then those that call them."""

    def __init__(self, module: ModuleCode) -> None:
        self.functions = {kernel.name: kernel for kernel in module.kernels}
        self.known = list(self.functions)
        launches = map(read_launch, module.list_statements())
        self.kept = {launch.kernel for launch in launches if launch is not None and launch.keeps}
        self.merged: dict[str, _Merged] = {}
        self.groups: dict[str, _Group] = {}
        """By the name that a merged function has."""

    def merge(self) -> None:
        """All functions, as far as they may be."""
        mentions = {name: _list_mentions(function) for name, function in self.functions.items()}
        called = {name: direct & self.functions.keys() for name, (direct, _) in mentions.items()}
        passed_on = set().union(*(other & self.functions.keys() for _, other in mentions.values()))
        helpers = set().union(*called.values())
        done: set[str] = set()
        while ready := [name for name in called if name not in done and called[name] - {name} <= done]:
            for name in ready:
                self._pass_on(name, called[name])
            self._merge_level([name for name in ready if name not in passed_on and name not in called[name]], helpers)
            done |= {*ready}

    def _merge_level(self, names: Sequence[str], helpers: set[str]) -> None:
        """Functions that call none but those that are done."""
        alike: dict[tuple[bool, Function, tuple[str, ...]], list[_Sketch]] = {}
        known = {group: tuple(one.name for one in self.functions[group].parameters) for group in self.groups}
        for name in names:
            function = self.functions[name]
            sketch = _Sketch(function, list_numbers(function, known))
            alike.setdefault((name in helpers, _blank(sketch), _list_comments(function)), []).append(sketch)
        for (helper, *_), members in alike.items():
            for part in _divide(members) if len(members) > 1 else ():
                self._join(part, not helper)

    def _pass_on(self, name: str, called: set[str]) -> None:
        """Give the functions that one calls their new names, and their numbers."""
        if not called & self.merged.keys():
            return

        def change(node: Node) -> Node:
            if not isinstance(node, Call) or not isinstance(node.function, Name) or node.function.name not in self.merged:
                return node
            merged = self.merged[node.function.name]
            return replace(node, function=Name(merged.name), arguments=(*node.arguments, *merged.numbers.values()))

        self.functions[name] = _forget_layout(replace_nodes(self.functions[name], change))

    def _join(self, members: Sequence[_Sketch], launched: bool) -> None:
        """One function for all members: the first of them with arguments in place of numbers."""
        first = members[0]
        uses = _list_uses(members)
        fit = fit_arguments(uses, _list_words(first.function), launched) if uses else Fit()
        words = {
            used.path: code.Group(word) if used.operand and not isinstance(word, Name) else word
            for used, values in zip(first.numbers, _list_values(members), strict=True)
            if len(set(values)) > 1 for word in (fit.words[values],)
        }  # fmt: skip
        self.functions[first.name] = _forget_layout(_sign(put(first.function, words), fit))
        self.groups[first.name] = _Group([_read_doc(one.function) for one in members], fit.words)
        for place, one in enumerate(members):
            self.merged[one.name] = _Merged(first.name, {key: number(values[place]) for key, values in fit.arguments.items()})
            if place:
                del self.functions[one.name]

    def list_functions(self) -> tuple[Function, ...]:
        """The functions in their order, with docstrings that hold for all that they are."""
        renamed = {name: name for name in self.known} | {old: one.name for old, one in self.merged.items()}
        for name, group in self.groups.items():
            function = self.functions[name]
            if function.docstring is not None:
                doc = join_docs(group.docs, group.tell, _list_words(function), renamed)
                head = code.Evaluate(code.String(f'"""{doc}"""'))
                self.functions[name] = replace(function, body=(head, *function.body[1:]))
        return tuple(self.functions.values())


def _blank(sketch: _Sketch) -> Function:
    """Equal for functions that differ in names and in the numbers alone that may become arguments."""
    constants = [one.name for one in sketch.function.parameters if one.annotation is not None]
    return canonical(put(sketch.function, {used.path: _ANY for used in sketch.numbers}), constants)


def _list_comments(function: Function) -> tuple[str, ...]:
    statements = [node for node in iterate(function) if isinstance(node, Statement)]
    return tuple(text for node in statements for text in (node.text if isinstance(node, code.Comment) else node.comment,) if text)


def _list_mentions(function: Function) -> tuple[set[str], set[str]]:
    """Functions that a function calls by their names, and what else it mentions."""
    nodes = list(iterate(function))
    called = [node.function for node in nodes if isinstance(node, Call)]
    own = {id(node) for node in called}
    return {node.name for node in called if isinstance(node, Name)}, {
        node.name for node in nodes if isinstance(node, Name) and id(node) not in own
    }


def _list_words(function: Function) -> set[str]:
    """Names that an argument of a function may not have."""
    return {node.name for node in iterate(function) if isinstance(node, Name | Parameter | code.Attribute | code.Keyword | Function)}


def _list_values(members: Sequence[_Sketch]) -> list[Values]:
    """For each number of a sketch: what it is in each member."""
    return list(zip(*([used.value for used in one.numbers] for one in members), strict=True))


def _list_uses(members: Sequence[_Sketch]) -> Mapping[Values, Sequence[NumberUse]]:
    """By the numbers that differ: how they are used."""
    uses: dict[Values, list[NumberUse]] = {}
    for used, values in zip(members[0].numbers, _list_values(members), strict=True):
        if len(set(values)) > 1:
            uses.setdefault(values, []).append(used.use)
    return uses


def _divide(members: Sequence[_Sketch]) -> list[Sequence[_Sketch]]:
    """The members in groups of two or more that few arguments do for."""
    if count_arguments(_list_uses(members)) <= _MOST_ARGUMENTS:
        return [members]
    groups: list[list[_Sketch]] = []
    for one in members:
        for group in groups:
            if count_arguments(_list_uses([*group, one])) <= _MOST_ARGUMENTS:
                group.append(one)
                break
        else:
            groups.append([one])
    return [group for group in groups if len(group) > 1]


def _sign(function: Function, fit: Fit) -> Function:
    """A function with further arguments: those that the compiler need not know ahead of its constexpr arguments."""
    given = function.parameters
    first = next((place for place, one in enumerate(given) if one.annotation is not None), len(given))
    constants = [Parameter(name, _CONSTANT) for name in fit.arguments if name not in fit.plain]
    return replace(function, parameters=(*given[:first], *map(Parameter, fit.plain), *given[first:], *constants))


def _forget_layout(function: Function) -> Function:
    """The function with every line as the printer lays it out."""
    return replace_nodes(function, lambda node: replace(node, layout=None) if isinstance(node, Statement) and node.layout else node)


def _read_doc(function: Function) -> str:
    return function.docstring.spelling[3:-3] if function.docstring is not None else ""
