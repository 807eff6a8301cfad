"""Which dimensions of a chain's tensors are free in its kernel, and what its forward refuses.

The leading dimensions that all tensors share, or broadcast over, never enter the kernel's index arithmetic: it takes them from the inputs.
The dimensions behind them are constants of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonsmith.author.plan import NoPlan

Shape = tuple[int, ...]
_LETTERS = "abcdefgh"
"""Names of free dimensions in messages."""


@dataclass(frozen=True)
class Source:
    """A tensor that a chain reads."""

    name: str
    """Its expression in forward."""
    shape: Shape
    """What it contributes to the result's shape: for a linear layer's input, the shape of the product."""
    dtype: str
    given: bool
    """Whether forward gets it; a parameter has one shape for ever."""
    inner: int = 0
    """The last dimension of a linear layer's input; 0 for other tensors."""

    def spans(self, target: Shape, free: int) -> bool:
        """Whether it has all of the first `free` dimensions."""
        return self.given and len(self.shape) == len(target) and self.shape[:free] == target[:free]

    def broadcasts(self, target: Shape, free: int) -> bool:
        """Whether it is the same along the first `free` dimensions."""
        return not self.inner and set(_pad(self.shape, target)[:free]) <= {1}

    def tail(self, free: int) -> Shape:
        """Its own dimensions behind the free ones."""
        return (*self.shape[free:-1], self.inner) if self.inner else self.shape[free:]


@dataclass(frozen=True)
class Sizes:
    """What a chain's forward says about sizes, as Python writes it."""

    free: int
    """Leading dimensions that may have any size."""
    result: str
    """The result's shape."""
    wrong: str
    """Whether forward got something that the kernel is not made for."""
    made_for: str
    """What the kernel is made for, in words."""
    device_of: str
    """The tensor whose device the result has."""


def find_sizes(target: Shape, sources: Sequence[Source], *, fixed: bool = False) -> Sizes:
    """Sizes for a result of shape `target`, every one a constant where `fixed`. Raises NoPlan for tensors that do not broadcast to it."""
    if not sources:
        raise NoPlan
    free = next((count for count in range(0 if fixed else len(target), 0, -1) if _is_free(target, sources, count)), 0)
    named = {source.name: source for source in reversed(sources) if source.given}  # a linear layer's input stands first
    given = [named[name] for name in dict.fromkeys(source.name for source in sources if source.given)]
    first = next((source for source in given if source.spans(target, free)), None) if free else None
    if first is None:
        result = repr(target)
    elif not first.inner and first.shape[free:] == target[free:]:
        result = f"{first.name}.shape"
    else:
        result = f"({', '.join([f'*{first.name}.shape[:{free}]', *map(str, target[free:])])})"
    any_rank = free == len(target) and not any(source.shape for source in sources if not source.spans(target, free))
    tests = [test for source in given if (test := _test_shape(source, first, target, free, any_rank))]
    tests += [f"{source.name}.dtype is not torch.{source.dtype}" for source in given]
    tests += [f"{source.name}.numel() >= 2**31" for source in given if source.inner]
    if given:
        cards = " and ".join(f"{source.name}.is_cuda" for source in given)
        tests.append(f"COMPILED and not {f'({cards})' if len(given) > 1 else cards}")
    words = ", ".join(_describe(source, target, free, any_rank) for source in given)
    if first is not None:
        alike = "all of one shape" if len(given) > 1 else "of any shape"
        words += f", {alike if any_rank else ' and '.join(_name_free(free)) + ' of any size'},"
    return Sizes(free, result, " or ".join(tests), f"{words} on a CUDA device", (given or sources)[0].name)


def write_index(source: Source, target: Shape, free: int) -> str:
    """Index into a contiguous tensor that broadcasts to `target`, from the flat position `offset` in `target`. Raises NoPlan."""
    spans = source.spans(target, free)
    if source.shape == target and (spans or not free):
        return "offset"
    terms: list[str] = []
    outer, stride = 1, 1
    for position, (size, wanted) in reversed(list(enumerate(zip(_pad(source.shape, target), target, strict=True)))):
        if size not in (1, wanted):
            raise NoPlan((_describe_apart(source.shape, target), None))
        if spans and position < free:  # the free part as a whole: no size of it is needed
            terms.append(f"offset // {outer}" + (f" * {stride}" if stride > 1 else ""))
            break
        if size > 1:
            term = "offset" if outer == 1 else f"offset // {outer}"
            terms.append(f"({term}) % {wanted}" + (f" * {stride}" if stride > 1 else ""))
            stride *= size
        outer *= wanted
    return " + ".join(reversed(terms)) or "offset * 0"


def _pad(shape: Shape, target: Shape) -> Shape:
    if len(shape) > len(target):
        raise NoPlan((_describe_apart(shape, target), None))
    return (1,) * (len(target) - len(shape)) + shape


def _describe_apart(shape: Shape, target: Shape) -> str:
    return f"a tensor of shape {list(shape)} where the result has {list(target)}"


def _is_free(target: Shape, sources: Sequence[Source], count: int) -> bool:
    spanning = [source.spans(target, count) and count <= len(target) - bool(source.inner) for source in sources]
    return any(spanning) and all(spans or source.broadcasts(target, count) for spans, source in zip(spanning, sources, strict=True))


def _test_shape(source: Source, first: Source | None, target: Shape, free: int, any_rank: bool) -> str:
    """A test that is true where the source has a shape that the kernel is not made for."""
    shape = f"{source.name}.shape"
    if first is None or not source.spans(target, free):
        return f"{shape} != {source.tail(0)!r}"
    if source is not first:
        if (source.shape, source.inner) == (first.shape, first.inner):
            return f"{shape} != {first.name}.shape"
        return f"{shape}[:{free}] != {first.name}.shape[:{free}] or {shape}[{free}:] != {source.tail(free)!r}"
    if free == len(target):
        return "" if any_rank else f"{source.name}.dim() != {free}"
    if len(tail := source.tail(free)) == 1:  # many times faster than a slice
        return f"{source.name}.dim() != {free + 1} or {shape}[{free}] != {tail[0]}"
    return f"{shape}[{free}:] != {tail!r}"


def _describe(source: Source, target: Shape, free: int, any_rank: bool) -> str:
    free = free if source.spans(target, free) else 0
    sizes = ["..."] if any_rank and free == len(target) else [*_name_free(free), *map(str, source.tail(free))]
    few = " of less than 2**31 elements" if source.inner else ""
    return f"{source.name} {source.dtype}[{', '.join(sizes)}]{few}"


def _name_free(free: int) -> list[str]:
    return [_LETTERS[number] if number < len(_LETTERS) else f"n{number}" for number in range(free)]
