"""Lines of reductions and scans: what they do where values do not count."""

from __future__ import annotations

import pytest

from tritonsmith.author.compiler.ir.code import Name, Statement, number
from tritonsmith.author.compiler.ir.template import statements
from tritonsmith.author.compiler.ir.values import Held, Reduction, Scan
from tritonsmith.author.compiler.kernels.anchors import (
    HELPER,
    TURN,
    Line,
    Terms,
    count_alone,
    fill_line,
    find_kind,
    list_joins,
    pick_other,
    write_scan,
)
from tritonsmith.author.compiler.kernels.tiling import RowLayout, Tiling

X = Held(shape=(4, 64), dtype="float32", name="x", source="x")
VALUE, VALID = Name("x"), Name("valid")


def _fill(lines: tuple[Line, ...], terms: Terms) -> tuple[Statement, ...]:
    return tuple(fill_line(line, terms) for line in lines if line is not HELPER)


@pytest.mark.parametrize(("kind", "step", "always"), [
    ("sum", "s += tl.where(valid, x, 0.0)", "s += x"),
    ("prod", "s *= tl.where(valid, x, 1.0)", "s *= x"),
    ("max", "s = tl.maximum(s, tl.where(valid, x, -2147483648))", "s = tl.maximum(s, x)"),
    ("min", "s = tl.minimum(s, tl.where(valid, x, 2147483647))", "s = tl.minimum(s, x)"),
])  # fmt: skip
def test_a_value_that_does_not_count_changes_nothing(kind: str, step: str, always: str) -> None:
    lines = find_kind(kind, "float32" if kind in ("sum", "prod") else "int32").step
    assert _fill(lines, Terms("s", number(64), VALUE, valid=VALID)) == statements(step)
    assert _fill(lines, Terms("s", number(64), VALUE)) == statements(always)


def test_places_of_extremes_ask_whether_a_value_counts() -> None:
    terms = Terms("s", number(64), VALUE, Name("k"), axis=1, keep=True, valid=VALID)
    kind = find_kind("argmax", "int32")
    assert _fill(kind.step, terms)[0] == statements("better = valid & (x > s)")[0]
    assert _fill(kind.whole, terms) == statements("""
s = tl.max(tl.where(valid, x, -2147483648), 1, keep_dims=True)
s_place = tl.min(tl.where(valid & (x == s), k, 2147483647), 1, keep_dims=True)
""")


def test_an_extreme_of_floats_is_nan_where_one_is() -> None:
    terms = Terms("s", number(64), VALUE, Name("k"), valid=VALID)
    assert _fill(find_kind("min", "float16").whole, terms) == statements(
        's = tl.reduce(tl.where(valid, x, float("inf")), 0, combine_fn=smaller)'
    )
    assert _fill(find_kind("argmax", "float32").step, terms)[0] == statements("better = valid & ((s == s) & ~(x <= s))")[0]


def test_moments_share_a_count_unless_threads_have_others() -> None:
    kind = find_kind("moments", "float16")
    alone = count_alone(kind)
    assert TURN in kind.parts and TURN not in alone.parts and len(alone.start) == len(alone.parts)
    terms = Terms("mean", number(64), VALUE)
    assert statements("mean += distance * (1.0 / mean_turn)")[0] in _fill(kind.step, terms)
    assert statements("mean += distance * (1.0 / tl.maximum(mean_count, 1.0))")[0] in _fill(alone.step, terms)
    assert not any("n_turn" in line.template for line in alone.step) and count_alone(find_kind("sum", "float32")).parts == ("",)


def test_the_helper_is_asked_for_between_the_lines_of_a_whole_row() -> None:
    first, helper, second = find_kind("exponentials", "float32").whole
    assert helper is HELPER and "{h}" not in (first.template, first.counted) and second.counted == "{h}"


def test_parts_of_a_row_are_joined() -> None:
    exponentials = Reduction(shape=(4,), dtype="float32", source=X, axes=(1,), kind="exponentials")
    assert _fill(list_joins(exponentials), Terms("most", number(64))) == statements("""
most = tl.max(most_parts, 0)
most_total = tl.sum(most_total_parts * tl.exp(most_parts - most), 0)
""")
    assert pick_other(exponentials, "_total") == number(0.0)


def test_a_scan_carries_what_its_blocks_leave() -> None:
    scan = Scan(shape=(4, 64), dtype="int64", source=X, axes=(1,), kind="max", reverse=True)
    tile = Tiling(RowLayout.TILE, 4, 16, True, 1)
    assert tuple(write_scan(scan, "top", VALUE, VALID, tile)) == statements("""
top_counted = tl.where(valid, (x).to(tl.int64), -9223372036854775808)
top = tl.maximum(top_before, tl.associative_scan(top_counted, 1, larger, reverse=True))
top_before = tl.maximum(top_before, tl.max(top_counted, 1, keep_dims=True))
""")
    columns = Tiling(RowLayout.COLUMNS, 32, 1, True, 1)
    assert tuple(write_scan(scan, "top", VALUE, None, columns)) == statements(
        "top_before = tl.maximum(top_before, (x).to(tl.int64))\ntop = top_before"
    )
