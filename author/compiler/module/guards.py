"""What a forward for several sizes asks of its inputs, as conditions in Python's words and in people's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tritonsmith.author.compiler.ir.indices import Shape

Axis = tuple[str, int]
"""An input and one of its axes."""
Ends = Mapping[Axis, tuple[int, int]]
"""The lowest and the highest size of axes."""


class Condition(NamedTuple):
    """A condition and its opposite."""

    right: str
    wrong: str


_OPPOSITES = {"==": "!=", "<=": ">", "is": "is not"}


def compare(left: str, sign: str, right: object) -> Condition:
    """A comparison by `==`, `<=` or `is`."""
    return Condition(f"{left} {sign} {right}", f"{left} {_OPPOSITES[sign]} {right}")


def require_types(types: Mapping[str, str]) -> list[Condition]:
    """Tests of the types of tensors, and of where they lie."""
    tests = [compare(f"{name}.dtype", "is", f"torch.{dtype}") for name, dtype in types.items()]
    cards = " and ".join(f"{name}.is_cuda" for name in types)
    refused = f"COMPILED and not {f'({cards})' if len(types) > 1 else cards}"
    return [*tests, Condition(f"(not COMPILED or {cards})", refused)] if tests else []


def require_values(literals: Mapping[str, str]) -> list[Condition]:
    """Tests of arguments that are no tensors, by the literals that they are to be."""
    return [compare(name, "is" if text in _SINGLE else "==", text) for name, text in literals.items()]


_SINGLE = ("None", "True", "False")
"""Values that there is one object of: another one may equal `True`, and a tensor cannot be compared with `None`."""


def require_inputs(
    inputs: Mapping[str, tuple[Shape, str]], free: Sequence[str], most: int, letters: Mapping[Axis, str] | None = None
) -> tuple[list[Condition], list[str]]:
    """Tests of the shapes of inputs, and each input in people's words.

    Args:
        inputs: by name: shape and type.
        free: those whose leading axis may have any size.
        most: the largest one.
        letters: of axes that other tests are about.
    """
    letters = letters or {}
    tests: list[Condition] = []
    words = []
    for name, (shape, dtype) in inputs.items():
        shown = [letters.get((name, axis), str(size)) for axis, size in enumerate(shape)]
        shown[:1] = ["a"] if name in free else shown[:1]
        words.append(f"{name} {dtype}[{', '.join(shown)}]")
        tests += require_shape(name, shape, name in free, [axis for axis in range(len(shape)) if (name, axis) in letters])
        if name in free:
            size, first = (write_size((held, 0)) for held in (name, free[0]))
            tests.append(compare(size, "<=", most) if name == free[0] else compare(size, "==", first))
    return tests, words


def require_shape(name: str, shape: Shape, free: bool, varied: Sequence[int]) -> list[Condition]:
    """Tests of the axes that have one size.

    free: whether the leading axis may have any.
    """
    if not free and not varied:
        return [compare(f"{name}.shape", "==", shape)]
    fixed = [axis for axis in range(len(shape)) if axis not in varied and not (free and axis == 0)]
    tests = [compare(f"{name}.dim()", "==", len(shape))]
    if len(fixed) > (bool(varied) or not free) and fixed == [*range(fixed[0], len(shape))]:
        return [*tests, compare(f"{name}.shape[{fixed[0]}:]", "==", shape[fixed[0] :])]
    return [*tests, *(compare(f"{name}.shape[{axis}]", "==", shape[axis]) for axis in fixed)]


def require_sizes(
    names: Mapping[Axis, str], rows: Sequence[Mapping[Axis, int]], spans: Sequence[Ends], made: Sequence[int]
) -> tuple[Condition, str]:
    """Whether sizes are among listed ones, or within spans.

    Args:
        names: of the axes.
        rows: the sizes of these that belong together.
        spans: sizes of which all belong to it.
        made: for each row which of the constructor's arguments it is for; empty where that does not matter.
    """
    outside = [number for number, row in enumerate(rows) if not any(_is_within(row, span) for span in spans)]
    tests: list[Condition] = []
    says: list[str] = []
    if outside:
        columns = {write_size(axis): [rows[number][axis] for number in outside] for axis in names}
        listed = _list_rows(list(columns.values()))
        says.append(f"{_enclose(list(names.values()))} one of {listed}")
        if made:
            columns = {"self.made": [made[number] for number in outside]} | columns
            listed = _list_rows(list(columns.values()))
        given = _enclose(list(columns))
        tests.append(Condition(f"{given} in ({listed})", f"{given} not in ({listed})"))
    for span in spans:
        right = " and ".join(_write_ends(write_size(axis), *span[axis]) for axis in names)
        tests.append(Condition(right, f"not {right}" if len(names) == 1 else f"not ({right})"))
        says.append(" and ".join(f"{name} from {span[axis][0]} to {span[axis][1]}" for axis, name in names.items()))
    if len(tests) > 1:
        joined = " or ".join(one.right for one in tests)
        tests = [Condition(f"({joined})", f"not ({joined})")]
    return tests[0], " or ".join(says)


def write_size(axis: Axis) -> str:
    """The size of an axis as Python writes it."""
    return f"{axis[0]}.shape[{axis[1]}]"


def _write_ends(size: str, low: int, high: int) -> str:
    return f"{low} <= {size} <= {high}" if low < high else f"{size} == {low}"


def _is_within(row: Mapping[Axis, int], span: Ends) -> bool:
    return all(span[axis][0] <= size <= span[axis][1] for axis, size in row.items())


def _enclose(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"({', '.join(words)})"


def _list_rows(columns: Sequence[Sequence[int]]) -> str:
    """What stands in these columns, each row once."""
    rows = dict.fromkeys(zip(*columns, strict=True))
    return ", ".join(str(row[0] if len(row) == 1 else row) for row in rows) + ("," if len(rows) == 1 else "")
