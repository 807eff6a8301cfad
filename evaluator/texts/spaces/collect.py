"""What has been read of a file so far, and the places where values stand or go."""

from __future__ import annotations

import ast
from dataclasses import replace

from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.spaces.definitions import Definitions
from tritonsmith.evaluator.texts.spaces.ends import CallEnds
from tritonsmith.evaluator.texts.spaces.space import Edit, Offsets, Parameter, Value, Values


class Collected:
    """Parameters of one file in the order of reading.

    Args:
        text: the file.
        index: the same, indexed.
    """

    def __init__(self, text: str, index: KernelSource) -> None:
        self.text = text
        self.index = index
        self.offsets = Offsets(text)
        self.ends = CallEnds(text, self.offsets)
        self.definitions = Definitions(index)
        self.found: dict[str, tuple[Parameter, tuple[Edit, ...]]] = {}
        self.always: list[tuple[int, int, str]] = []
        self.starts: list[Values] = []
        self.unread: list[str] = []
        self._by_place: dict[int, str] = {}
        """Parameters by the start of the constant that they were read from."""

    def put(
        self, name: str, stage: Stage, values: tuple[Value, ...], node: ast.Constant, places: list[ast.Constant], origin: str,
        kernel: str = "",
    ) -> None:  # fmt: skip
        """Add a parameter that stands at constants of the text; one constant is one parameter, however many launches read it."""
        start, _ = self.offsets.span(node)
        if kernel and start in self._by_place:
            known, known_places = self.found[self._by_place[start]]
            self.found[known.name] = replace(known, kernels=tuple(dict.fromkeys((*known.kernels, kernel)))), known_places
        if start in self._by_place or len(values) < 2 or not isinstance(node.value, int):
            return
        key, number = name, 1
        while key in self.found:
            number += 1
            key = f"{name}_{number}"
        self._by_place[start] = key
        kernels = (kernel,) if kernel else ()
        places_of = tuple(Edit(*self.offsets.span(place)) for place in places)
        self.add(Parameter(key, stage, values, node.value, origin, kernels=kernels), places_of)

    def add(self, parameter: Parameter, places: tuple[Edit, ...]) -> None:
        """Add a parameter with at least two values."""
        if len(parameter.values) > 1 and places:
            self.found.setdefault(parameter.name, (parameter, places))

    def insertion(self, call: ast.Call, option: str) -> Edit:
        """Where a further argument of that name goes into a call."""
        at, (before, after) = self.ends.of(call)
        return Edit(at, at, f"{before}{option}=", after)

    def given(self, kernel: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
        """The arguments of a launch by name."""
        names = [argument.arg for argument in (*kernel.args.posonlyargs, *kernel.args.args)]
        given = dict(zip(names, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
        for word in call.keywords:
            if word.arg is None:
                given |= self.definitions.find_entries(word.value, call)
        return given
