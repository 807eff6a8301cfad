"""How each kind of reduction is accumulated along a row, finished, and put together from parts; the lines of scans."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tritonsmith.author.compiler.ir.values import FLOATS, TRITON_TYPES, Anchor, Scan
from tritonsmith.author.compiler.kernels.tiling import RowLayout, Tiling
from tritonsmith.author.types import TYPES, find_sum_type

LEAST = "-3.4028234663852886e38"
"""The least fp32 number: the maximum of nothing, from which even -inf has a distance."""


@dataclass(frozen=True)
class ReductionKind:
    """One kind of reduction.

    In its lines `{n}` is the name, `{v}` the value, `{k}` the place, `{h}` the helper's value, `{a}` the axis and what is kept of it.
    `[value|other]` is the value where it counts; `{also}` and `{one}` ask the same in other words.
    """

    parts: tuple[str, ...]
    """Suffixes of what is accumulated; the results come first."""
    start: tuple[str, ...]
    """What each begins with."""
    step: tuple[str, ...]
    """Lines that take in another value."""
    finish: tuple[str, ...]
    """Lines that make one number of what each thread has."""
    whole: tuple[str, ...]
    """Lines that make it at once of a whole row; `HELPER` stands where the helper's value is first known."""


HELPER = "HELPER"
TURN = "_turn"
"""Suffix of a number that all threads have in common."""


_COUNTED = re.compile(r"\[([^|\[\]]*)\|([^|\[\]]*)\]")
"""A value and what stands for it where it does not count."""


def fill_line(line: str, title: str, text: str, place: str, helper: str, axis: str, valid: str, length: str) -> str:
    """A line of a kind of reduction.

    Args:
        line: as `ReductionKind` has it.
        title: the result's name.
        text: the value that is taken in.
        place: its place along the row.
        helper: the helper's value.
        axis: of the reduction, and what is kept of it.
        valid: the condition under which the value counts; empty where it always does.
        length: of the row.
    """
    filled = line.format(
        n=title, v=text, k=place, h=helper, a=axis, also=f"{valid} & " if valid else "", length=length,
        one=f"{valid}.to(tl.float32)" if valid else "1.0",
    )  # fmt: skip
    return _COUNTED.sub(lambda found: f"tl.where({valid}, {found[1]}, {found[2]})" if valid else found[1], filled)


def find_kind(kind: str, dtype: str) -> ReductionKind:
    """The kind of a name, for values of a type."""
    wide = find_sum_type(dtype)
    least, most = TYPES[wide].ends
    if kind in ("sum", "prod"):
        sign, plain = ("+", "0") if kind == "sum" else ("*", "1")
        zero = f"{plain}.0" if wide in FLOATS else plain
        take = "tl.sum({0}, {{a}})" if kind == "sum" else "tl.reduce({0}, {{a}}, combine_fn=multiply)"
        return ReductionKind(
            ("",), (zero,), (f"{{n}} {sign}= [{{v}}|{zero}]",), (f"{{n}} = {take.format('{n}')}",),
            (f"{{n}} = {take.format(f'[{{v}}|{zero}]')}",),
        )  # fmt: skip
    if kind in ("max", "min", "any", "all"):
        name = {"any": "max", "all": "min"}.get(kind, kind)
        edge = least if name == "max" else most
        return ReductionKind(
            ("",), (edge,), (f"{{n}} = tl.{name}imum({{n}}, [{{v}}|{edge}])",), (f"{{n}} = tl.{name}({{n}}, {{a}})",),
            (f"{{n}} = tl.{name}([{{v}}|{edge}], {{a}})",),
        )  # fmt: skip
    if kind in ("argmax", "argmin"):
        return _find_place(kind[3:], least if kind == "argmax" else most)
    return _find_moments() if kind == "moments" else _find_exponentials()


def _find_place(name: str, edge: str) -> ReductionKind:
    """The extreme and where it is first found."""
    sign = ">" if name == "max" else "<"
    last = 2**31 - 1
    return ReductionKind(
        ("", "_place"), (edge, "0"),
        (f"better = {{also}}({{v}} {sign} {{n}})", "{n}_place = tl.where(better, {k}, {n}_place)", "{n} = tl.where(better, {v}, {n})"),
        (f"{{n}}_best = tl.{name}({{n}}, {{a}})", f"{{n}}_place = tl.min(tl.where({{n}} == {{n}}_best, {{n}}_place, {last}), {{a}})",
         "{n} = {n}_best"),
        (f"{{n}} = tl.{name}([{{v}}|{edge}], {{a}})",
         f"{{n}}_place = tl.min(tl.where({{also}}({{v}} == {{n}}), {{k}}, {last}), {{a}})"),
    )  # fmt: skip


def _find_moments() -> ReductionKind:
    """Mean and sum of squared distances from it: each thread updates its own, and all are put together at the end.

    What a thread has at the same time of other rows or places has the same count, so one division serves them all.
    """
    return ReductionKind(
        ("", "_squares", "_count", TURN), ("0.0", "0.0", "0.0", "0.0"),
        ("{n}_count += {one}", f"{{n}}{TURN} += 1.0", "distance = {v} - {n}", f"{{n}} += [distance * (1.0 / {{n}}{TURN})|0.0]",
         "{n}_squares += [distance * ({v} - {n})|0.0]"),
        ("{n}_all = tl.sum({n} * {n}_count, {a}) / {length}",
         "{n}_squares = tl.sum({n}_squares + {n}_count * ({n} - {n}_all) * ({n} - {n}_all), {a})", "{n} = {n}_all"),
        ("{n} = tl.sum([{v}|0.0], {a}) / {length}", HELPER, "{n}_squares = tl.sum([{h} * {h}|0.0], {a})"),
    )  # fmt: skip


def count_alone(kind: ReductionKind) -> ReductionKind:
    """The kind where threads have other counts, since a loop begins with the block that is not full."""
    places = [place for place, part in enumerate(kind.parts) if part != TURN]
    alone = "(1.0 / tl.maximum({n}_count, 1.0))"
    return replace(
        kind, parts=tuple(kind.parts[place] for place in places), start=tuple(kind.start[place] for place in places),
        step=tuple(one.replace(f"(1.0 / {{n}}{TURN})", alone) for one in kind.step if f"{TURN} +=" not in one),
    )  # fmt: skip


def _find_exponentials() -> ReductionKind:
    """Maximum and sum of exponentials below it, in one pass."""
    least = LEAST
    return ReductionKind(
        ("", "_total"), (least, "0.0"),
        (f"higher = tl.maximum({{n}}, [{{v}}|{least}])",
         "{n}_total = {n}_total * tl.exp({n} - higher) + [tl.exp({v} - higher)|0.0]", "{n} = higher"),
        ("{n}_most = tl.max({n}, {a})", "{n}_total = tl.sum({n}_total * tl.exp({n} - {n}_most), {a})", "{n} = {n}_most"),
        (f"{{n}} = tl.max([{{v}}|{least}], {{a}})", HELPER, "{n}_total = tl.sum([{h}|0.0], {a})"),
    )  # fmt: skip


@dataclass(frozen=True)
class ScanKind:
    """One kind of scan; in its texts `{0}` and `{1}` are what is put together, `{a}` the axis and what goes with it."""

    join: str
    run: str
    total: str


_SCANS = {
    "sum": ScanKind("{0} + {1}", "tl.cumsum({0}, {a})", "tl.sum({0}, {a})"),
    "prod": ScanKind("{0} * {1}", "tl.cumprod({0}, {a})", "tl.reduce({0}, {a}, combine_fn=multiply)"),
    "max": ScanKind("tl.maximum({0}, {1})", "tl.associative_scan({0}, {a}, larger)", "tl.max({0}, {a})"),
    "min": ScanKind("tl.minimum({0}, {1})", "tl.associative_scan({0}, {a}, smaller)", "tl.min({0}, {a})"),
    "sort": ScanKind("", "tl.sort({0}, {a})", ""),
    "logs": ScanKind("add_logs({0}, {1})", "tl.associative_scan({0}, {a}, add_logs)", "tl.reduce({0}, {a}, combine_fn=add_logs)"),
}


def find_neutral(anchor: Anchor) -> str:
    """What changes nothing where it is put together with a value, as the kernel writes it."""
    wide = find_sum_type(anchor.dtype)
    if anchor.kind in ("sum", "prod"):
        return ("0" if anchor.kind == "sum" else "1") + (".0" if wide in FLOATS else "")
    return TYPES[wide].ends[anchor.kind in ("min", "sort")]


def start_scan(anchor: Anchor, title: str, layout: RowLayout) -> str:
    """What comes before the first block."""
    shape = {RowLayout.ROW: "()", RowLayout.TILE: "(ROWS, 1)", RowLayout.COLUMNS: "(ROWS,)"}[layout]
    return f"{title}_before = tl.full({shape}, {find_neutral(anchor)}, {TRITON_TYPES[find_sum_type(anchor.dtype)]})"


def write_scan(anchor: Anchor, title: str, text: str, valid: str, tiling: Tiling) -> list[str]:
    """The scan of a block, `text`, where `valid`; its result is `title`."""
    kind, before, wide = _SCANS[anchor.kind], f"{title}_before", find_sum_type(anchor.dtype)
    text = text if wide in FLOATS or anchor.kind in ("sum", "prod") else f"({text}).to({TRITON_TYPES[wide]})"  # places are of 32 bits
    if tiling.layout is RowLayout.COLUMNS:
        return [f"{before} = {kind.join.format(before, text)}", f"{title} = {before}"]
    axis = "1" if tiling.layout is RowLayout.TILE else "0"
    lines = [f"{title}_counted = tl.where({valid}, {text}, {find_neutral(anchor)})"] if valid else []
    counted = f"{title}_counted" if valid else text
    run = kind.run.format(counted, a=axis)
    if isinstance(anchor, Scan) and anchor.reverse:
        run = f"{run[:-1]}, reverse=True)"
    if not tiling.looped:
        return [*lines, f"{title} = {run}"]
    keep = ", keep_dims=True" if tiling.layout is RowLayout.TILE else ""
    total = f"{kind.total.format(counted, a=axis)[:-1]}{keep})"
    return [*lines, f"{title} = {kind.join.format(before, run)}", f"{before} = {kind.join.format(before, total)}"]
