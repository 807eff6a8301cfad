"""How each kind of reduction is accumulated along a row, finished, and put together from parts; the lines of scans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache

from tritonsmith.author.compiler.ir.code import Binary, Call, Expression, Keyword, Name, Statement, number
from tritonsmith.author.compiler.ir.precedence import tidy
from tritonsmith.author.compiler.ir.template import Value, expression, list_holes, statement
from tritonsmith.author.compiler.ir.values import FLOATS, TYPE_NAMES, Anchor, Scan
from tritonsmith.author.compiler.kernels.pieces import assign, choose, options
from tritonsmith.author.compiler.kernels.tiling import RowLayout, Tiling
from tritonsmith.author.types import TYPES, find_sum_type

LEAST = expression("-3.4028234663852886e38")
"""The least fp32 number: the maximum of nothing, from which even -inf has a distance."""
_LAST = number(2**31 - 1)
"""A place behind all others."""
_ZERO, _ONE = number(0.0), number(1.0)


@dataclass(frozen=True)
class Line:
    """A line of a reduction: a template, and what stands in one of its holes.

    Its holes: `{n}` is the name of the first result, `{n_place}` that with a suffix, and so on; `{v}` the value, `{k}` its place,
    `{h}` the helper's value, `{*a}` the axis and what is kept of it, `{length}` that of the row, `{one}` 1 where the value counts.
    """

    template: str
    counted: str = ""
    """A template of what stands in `{counted}`, where the value counts."""
    neutral: Expression = _ZERO
    """What stands there elsewhere."""
    test: str = ""
    """A template of a condition in `{test}`, which does not hold where the value does not count."""


EXTREMES = {"max": "larger", "min": "smaller"}
"""By kind: the function of a module that combines two values, NaN if one is."""
_STEPS = {
    "max": "tl.maximum({x}, {y}, propagate_nan=tl.PropagateNan.ALL)", "min": "tl.minimum({x}, {y}, propagate_nan=tl.PropagateNan.ALL)",
}  # fmt: skip
"""The same written out."""
TITLES = {"moments": "mean", "exponentials": "most", "logsumexp": "most", "lastmax": "argmax"}
"""By kind: what its first result is called, where that is not the kind's name."""
HELPER = Line("pass")
"""Stands where the helper's value is first known."""
TURN = "_turn"
"""Suffix of a number that all threads have in common."""


@dataclass(frozen=True)
class ReductionKind:
    """One kind of reduction."""

    parts: tuple[str, ...]
    """Suffixes of what is accumulated; the results come first."""
    start: tuple[Expression, ...]
    """What each begins with."""
    step: tuple[Line, ...]
    """Lines that take in another value."""
    finish: tuple[Line, ...]
    """Lines that make one number of what each thread has."""
    whole: tuple[Line, ...]
    """Lines that make it at once of a whole row; `HELPER` stands where the helper's value is first known."""


@dataclass(frozen=True)
class Terms:
    """What the lines of a reduction are filled with.

    Args:
        title: the result's name.
        length: of the row.
        value: what is taken in.
        place: its place along the row.
        helper: the helper's value.
        axis: of the reduction.
        keep: whether the axis stays, with one place.
        valid: the condition under which the value counts; None where it always does.
    """

    title: str
    length: Expression
    value: Expression = _ZERO
    place: Expression = _ZERO
    helper: Expression = _ZERO
    axis: int = 0
    keep: bool = False
    valid: Expression | None = None

    def find(self, hole: str) -> Value:
        """What fills a hole of a line."""
        match hole:
            case "v":
                return self.value
            case "k":
                return self.place
            case "h":
                return self.helper
            case "a":
                return [number(self.axis), *(options(keep_dims=True) if self.keep else ())]
            case "length":
                return self.length
            case "one":
                return _ONE if self.valid is None else expression("{c}.to(tl.float32)", c=self.valid)
        assert hole.split("_")[0] == "n", f"no line has {hole}"
        return Name(f"{self.title}{hole[1:]}")


def fill_line(line: Line, terms: Terms) -> Statement:
    """A line of a kind of reduction, as a statement."""

    def fill(template: str) -> Expression:
        return expression(template, **{hole: terms.find(hole) for hole in _list_holes(template)})

    values: dict[str, Value] = {hole: terms.find(hole) for hole in _list_holes(line.template) - {"counted", "test"}}
    if line.counted:
        values["counted"] = choose(terms.valid, fill(line.counted), line.neutral)
    if line.test:
        test = fill(line.test)
        values["test"] = test if terms.valid is None else tidy(Binary(terms.valid, "&", test))
    return statement(line.template, **values)


_list_holes = lru_cache(maxsize=None)(list_holes)


@cache
def find_kind(kind: str, dtype: str) -> ReductionKind:
    """The kind of a name, for values of a type."""
    wide = find_sum_type(dtype)
    least, most = _find_ends(wide)
    if kind == "sum":
        return _accumulate("{n} += {counted}", "tl.sum({x}, {{*a}})", number(0.0 if wide in FLOATS else 0))
    if kind == "prod":
        return _accumulate("{n} *= {counted}", "tl.reduce({x}, {{*a}}, combine_fn=multiply)", number(1.0 if wide in FLOATS else 1))
    if kind in ("max", "min") and wide in FLOATS:
        step, helper = _STEPS[kind], EXTREMES[kind]
        return _accumulate(f"{{n}} = {step.format(x='{n}', y='{counted}')}", f"tl.reduce({{x}}, {{{{*a}}}}, combine_fn={helper})",
                           least if kind == "max" else most)
    if kind in ("max", "any"):
        return _accumulate("{n} = tl.maximum({n}, {counted})", "tl.max({x}, {{*a}})", least)
    if kind in ("min", "all"):
        return _accumulate("{n} = tl.minimum({n}, {counted})", "tl.min({x}, {{*a}})", most)
    if kind in ("argmax", "argmin") and wide in FLOATS:
        return _find_real_place(kind[3:], least if kind == "argmax" else most)
    if kind in ("lastmax", "lastmin"):
        return _find_last_place(kind[4:], least if kind == "lastmax" else most)
    if kind in ("argmax", "argmin"):
        return _find_place(kind[3:], least if kind == "argmax" else most)
    return _find_moments("1.0 / {n_turn}") if kind == "moments" else _find_exponentials(kind)


def _accumulate(step: str, take: str, neutral: Expression) -> ReductionKind:
    """A kind with one number."""
    finish, whole = (f"{{n}} = {take.format(x=x)}" for x in ("{n}", "{counted}"))
    return ReductionKind(("",), (neutral,), (Line(step, "{v}", neutral),), (Line(finish),), (Line(whole, "{v}", neutral),))


@cache
def _find_ends(wide: str) -> tuple[Expression, Expression]:
    least, most = TYPES[wide].ends
    return expression(least), expression(most)


def _find_place(name: str, edge: Expression) -> ReductionKind:
    """The extreme and where it is first found."""
    sign = ">" if name == "max" else "<"
    return ReductionKind(
        ("", "_place"), (edge, number(0)),
        (Line("better = {test}", test=f"({{v}} {sign} {{n}})"), Line("{n_place} = tl.where(better, {k}, {n_place})"),
         Line("{n} = tl.where(better, {v}, {n})")),
        (Line(f"{{n_best}} = tl.{name}({{n}}, {{*a}})"),
         Line("{n_place} = tl.min(tl.where({n} == {n_best}, {n_place}, 2147483647), {*a})"), Line("{n} = {n_best}")),
        (Line(f"{{n}} = tl.{name}({{counted}}, {{*a}})", "{v}", edge),
         Line("{n_place} = tl.min(tl.where({test}, {k}, 2147483647), {*a})", test="({v} == {n})")),
    )  # fmt: skip


def _find_real_place(name: str, edge: Expression) -> ReductionKind:
    """The extreme and where it is first found. NaN is beyond all, so its first place is that of the extreme."""
    sign = "<=" if name == "max" else ">="
    take = f"tl.reduce({{x}}, {{{{*a}}}}, combine_fn={EXTREMES[name]})"
    place = "{n_place} = tl.min(tl.where(({n} == {n_best}) | ({n} != {n}), {n_place}, 2147483647), {*a})"
    return ReductionKind(
        ("", "_place"), (edge, number(0)),
        (Line("better = {test}", test=f"(({{n}} == {{n}}) & ~({{v}} {sign} {{n}}))"),
         Line("{n_place} = tl.where(better, {k}, {n_place})"), Line("{n} = tl.where(better, {v}, {n})")),
        (Line(f"{{n_best}} = {take.format(x='{n}')}"), Line(place), Line("{n} = {n_best}")),
        (Line(f"{{n}} = {take.format(x='{counted}')}", "{v}", edge),
         Line("{n_place} = tl.min(tl.where({test}, {k}, 2147483647), {*a})", test="(({v} == {n}) | ({v} != {v}))")),
    )  # fmt: skip


def _find_last_place(name: str, edge: Expression) -> ReductionKind:
    """The extreme and where it is first found, but of NaN the last place: PyTorch's pools go on to the next NaN."""
    sign = ">" if name == "max" else "<"
    take = f"tl.reduce({{x}}, {{{{*a}}}}, combine_fn={EXTREMES[name]})"
    found = "{n_place} = tl.abs(tl.min(tl.where(%s, %s, tl.where(%s, -%s, 2147483647)), {*a}))"
    return ReductionKind(
        ("", "_place"), (edge, number(0)),
        (Line("better = {test}", test=f"(({{v}} {sign} {{n}}) | ({{v}} != {{v}}))"),
         Line("{n_place} = tl.where(better, {k}, {n_place})"), Line("{n} = tl.where(better, {v}, {n})")),
        (Line(f"{{n_best}} = {take.format(x='{n}')}"),
         Line(found % ("{n} == {n_best}", "{n_place}", "{n} != {n}", "{n_place}")), Line("{n} = {n_best}")),
        (Line(f"{{n}} = {take.format(x='{counted}')}", "{v}", edge),
         Line(found % ("{test}", "{k}", "{counted} != {counted}", "{k}"), "{v}", edge, test="({v} == {n})")),
    )  # fmt: skip


def _find_moments(share: str) -> ReductionKind:
    """Mean and sum of squared distances from it: each thread updates its own, and all are put together at the end.

    What a thread has at the same time of other rows or places has the same count, so one division serves them all.
    """
    return ReductionKind(
        ("", "_squares", "_count", TURN), (_ZERO,) * 4,
        (Line("{n_count} += {one}"), Line("{n_turn} += 1.0"), Line("distance = {v} - {n}"),
         Line("{n} += {counted}", f"distance * ({share})"), Line("{n_squares} += {counted}", "distance * ({v} - {n})")),
        (Line("{n_all} = tl.sum({n} * {n_count}, {*a}) / {length}"),
         Line("{n_squares} = tl.sum({n_squares} + {n_count} * ({n} - {n_all}) * ({n} - {n_all}), {*a})"), Line("{n} = {n_all}")),
        (Line("{n} = tl.sum({counted}, {*a}) / {length}", "{v}"), HELPER,
         Line("{n_squares} = tl.sum({counted}, {*a})", "{h} * {h}")),
    )  # fmt: skip


def count_alone(kind: ReductionKind) -> ReductionKind:
    """The kind where threads have other counts, since a loop begins with the block that is not full."""
    if TURN not in kind.parts:
        return kind
    alone = _find_moments("1.0 / tl.maximum({n_count}, 1.0)")
    return replace(alone, parts=kind.parts[:-1], start=kind.start[:-1], step=(alone.step[0], *alone.step[2:]))


def _find_exponentials(kind: str) -> ReductionKind:
    """Maximum and sum of exponentials below it, in one pass. A `logsumexp` goes by an infinite maximum alone, so that one keeps NaN."""
    if kind == "exponentials":
        higher, take = "tl.maximum({n}, {counted})", "tl.max({x}, {{*a}})"
    else:
        higher, take = _STEPS["max"].format(x="{n}", y="{counted}"), f"tl.reduce({{x}}, {{{{*a}}}}, combine_fn={EXTREMES['max']})"
    return ReductionKind(
        ("", "_total"), (LEAST, _ZERO),
        (Line(f"higher = {higher}", "{v}", LEAST),
         Line("{n_total} = {n_total} * tl.exp({n} - higher) + {counted}", "tl.exp({v} - higher)"), Line("{n} = higher")),
        (Line(f"{{n_most}} = {take.format(x='{n}')}"), Line("{n_total} = tl.sum({n_total} * tl.exp({n} - {n_most}), {*a})"),
         Line("{n} = {n_most}")),
        (Line(f"{{n}} = {take.format(x='{counted}')}", "{v}", LEAST), HELPER, Line("{n_total} = tl.sum({counted}, {*a})", "{h}")),
    )  # fmt: skip


def list_joins(anchor: Anchor) -> tuple[Line, ...]:
    """The lines that put the parts of a row together; moments as Chan, Golub and LeVeque join them (1979)."""
    if find_sum_type(anchor.source.dtype) in FLOATS and anchor.kind in _REAL_JOINS:
        return _REAL_JOINS[anchor.kind]
    return _JOINS[anchor.kind]


_JOINS = {
    "moments": (
        Line("{n} = tl.sum({n_parts} * count, 0) / {length}"),
        Line("{n_squares} = tl.sum({n_squares_parts} + count * ({n_parts} - {n}) * ({n_parts} - {n}), 0)"),
    ),
    "exponentials": (
        Line("{n} = tl.max({n_parts}, 0)"), Line("{n_total} = tl.sum({n_total_parts} * tl.exp({n_parts} - {n}), 0)"),
    ),
    "argmax": (
        Line("{n} = tl.max({n_parts}, 0)"), Line("{n_place} = tl.min(tl.where({n_parts} == {n}, {n_place_parts}, 2147483647), 0)"),
    ),
    "argmin": (
        Line("{n} = tl.min({n_parts}, 0)"), Line("{n_place} = tl.min(tl.where({n_parts} == {n}, {n_place_parts}, 2147483647), 0)"),
    ),
    "sum": (Line("{n} = tl.sum({n_parts}, 0)"),),
    "prod": (Line("{n} = tl.reduce({n_parts}, 0, combine_fn=multiply)"),),
    **dict.fromkeys(("max", "any"), (Line("{n} = tl.max({n_parts}, 0)"),)),
    **dict.fromkeys(("min", "all"), (Line("{n} = tl.min({n_parts}, 0)"),)),
}  # fmt: skip


_REAL_JOINS = {
    **{
        kind: (Line(f"{{n}} = tl.reduce({{n_parts}}, 0, combine_fn={EXTREMES[kind]})"),) for kind in ("max", "min")
    },
    **{
        f"arg{kind}": (
            Line(f"{{n}} = tl.reduce({{n_parts}}, 0, combine_fn={EXTREMES[kind]})"),
            Line("{n_place} = tl.min(tl.where(({n_parts} == {n}) | ({n_parts} != {n_parts}), {n_place_parts}, 2147483647), 0)"),
        )
        for kind in ("max", "min")
    },
    "logsumexp": (
        Line(f"{{n}} = tl.reduce({{n_parts}}, 0, combine_fn={EXTREMES['max']})"),
        Line("{n_total} = tl.sum({n_total_parts} * tl.exp({n_parts} - {n}), 0)"),
    ),
}  # fmt: skip
"""The same for floats, of which some may be NaN."""


def list_suffixes(anchor: Anchor) -> tuple[str, ...]:
    """Suffixes of what a part of a row leaves of a reduction."""
    return find_kind(anchor.kind, anchor.source.dtype).parts[:2]


def find_part_type(anchor: Anchor, suffix: str) -> str:
    """The type of what a part leaves."""
    return "int32" if suffix == "_place" else find_sum_type(anchor.source.dtype)


def pick_other(anchor: Anchor, suffix: str) -> Expression:
    """What a part that does not exist counts as."""
    if suffix == "_place":
        return _LAST
    return find_kind(anchor.kind, anchor.source.dtype).start[0 if not suffix else 1]


@dataclass(frozen=True)
class ScanKind:
    """One kind of scan, as templates: `{x}` is a block, `{before}` what comes before it, `{axis}` that of the scan."""

    join: str
    run: str
    total: str


_SCANS = {
    "sum": ScanKind("{before} + {x}", "tl.cumsum({x}, {axis})", "tl.sum({x}, {axis})"),
    "prod": ScanKind("{before} * {x}", "tl.cumprod({x}, {axis})", "tl.reduce({x}, {axis}, combine_fn=multiply)"),
    "max": ScanKind("tl.maximum({before}, {x})", "tl.associative_scan({x}, {axis}, larger)", "tl.max({x}, {axis})"),
    "min": ScanKind("tl.minimum({before}, {x})", "tl.associative_scan({x}, {axis}, smaller)", "tl.min({x}, {axis})"),
    "sort": ScanKind("", "tl.sort({x}, {axis})", ""),
    "logs": ScanKind(
        "add_logs({before}, {x})", "tl.associative_scan({x}, {axis}, add_logs)", "tl.reduce({x}, {axis}, combine_fn=add_logs)"
    ),
}


_REAL_SCANS = {
    kind: ScanKind(
        _STEPS[kind].format(x="{before}", y="{x}"), f"tl.associative_scan({{x}}, {{axis}}, {helper})",
        f"tl.reduce({{x}}, {{axis}}, combine_fn={helper})",
    )
    for kind, helper in EXTREMES.items()
}  # fmt: skip
"""The same for floats, of which some may be NaN."""


def find_neutral(anchor: Anchor) -> Expression:
    """What changes nothing where it is put together with a value, as the kernel writes it."""
    wide = find_sum_type(anchor.dtype)
    if anchor.kind in ("sum", "prod"):
        plain = 0 if anchor.kind == "sum" else 1
        return number(float(plain) if wide in FLOATS else plain)
    return _find_ends(wide)[anchor.kind in ("min", "sort")]


_SHAPES = {
    RowLayout.ROW: expression("()"), RowLayout.TILE: expression("(ROWS, 1)"), RowLayout.COLUMNS: expression("(ROWS,)"),
}  # fmt: skip
"""By layout: the shape of one number for each row."""


def start_scan(anchor: Anchor, title: str, layout: RowLayout) -> Statement:
    """What comes before the first block."""
    return statement(
        "{before} = tl.full({shape}, {neutral}, {dtype})",
        before=f"{title}_before", shape=_SHAPES[layout], neutral=find_neutral(anchor), dtype=TYPE_NAMES[find_sum_type(anchor.dtype)],
    )  # fmt: skip


def write_scan(anchor: Anchor, title: str, block: Expression, valid: Expression | None, tiling: Tiling) -> list[Statement]:
    """The scan of a block, where `valid`; its result is `title`."""
    before, wide = Name(f"{title}_before"), find_sum_type(anchor.dtype)
    kind = _REAL_SCANS.get(anchor.kind, _SCANS[anchor.kind]) if wide in FLOATS else _SCANS[anchor.kind]
    if wide not in FLOATS and anchor.kind not in ("sum", "prod"):  # places are of 32 bits
        block = expression("({x}).to({dtype})", x=block, dtype=TYPE_NAMES[wide])
    if tiling.layout is RowLayout.COLUMNS:
        return [assign(before.name, expression(kind.join, before=before, x=block)), assign(title, before)]
    axis = 1 if tiling.layout is RowLayout.TILE else 0
    lines: list[Statement] = []
    if valid is not None:
        lines.append(assign(f"{title}_counted", choose(valid, block, find_neutral(anchor))))
        block = Name(f"{title}_counted")
    run = expression(kind.run, x=block, axis=axis)
    if isinstance(anchor, Scan) and anchor.reverse:
        run = _add_options(run, options(reverse=True))
    if not tiling.looped:
        return [*lines, assign(title, run)]
    total = expression(kind.total, x=block, axis=axis)
    if tiling.layout is RowLayout.TILE:
        total = _add_options(total, options(keep_dims=True))
    joined = [expression(kind.join, before=before, x=node) for node in (run, total)]
    return [*lines, assign(title, joined[0]), assign(before.name, joined[1])]


def _add_options(call: Expression, more: tuple[Keyword, ...]) -> Expression:
    assert isinstance(call, Call)
    return replace(call, keywords=(*call.keywords, *more))
