"""The sizes of an entry of SHAPES, one by one."""

from tritonsmith.evaluator.tasks.declared import list_members


def test_single_sizes_and_short_spans_are_told_one_by_one() -> None:
    assert list_members({"width": (3, 5), "kind": "relu"}) == ([{"width": size, "kind": "relu"} for size in (3, 4, 5)], ())


def test_a_long_span_has_its_ends_and_odd_primes_within() -> None:
    found, long = list_members({"rows": (1, 64)})
    assert [one["rows"] for one in found] == [1, 64, 3, 11, 23, 61] and long == ("rows",)
    found, long = list_members({"rows": (10, 900), "width": (1, 100)})
    assert found[:2] == [{"rows": 10, "width": 1}, {"rows": 900, "width": 100}] and len(found) == 7
    assert len({(one["rows"], one["width"]) for one in found}) == 7 and set(long) == {"rows", "width"}


def test_a_long_span_beside_a_short_one_has_its_ends_only() -> None:
    found, long = list_members({"rows": (1, 40), "width": (3, 5)})
    assert found == [{"width": width, "rows": rows} for width in (3, 4, 5) for rows in (1, 40)] and long == ("rows",)


def test_no_entry_has_very_many() -> None:
    assert len(list_members({"a": (1, 9), "b": (1, 8), "c": (1, 7), "d": (1, 10**9)})[0]) <= 16
