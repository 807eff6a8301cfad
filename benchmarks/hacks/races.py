"""Kernels for the race detector: racy ones, some of which give the right answer in an interpreter, and clean ones that synchronise."""

from __future__ import annotations

from tritonsmith.benchmarks.hacks.catalogue import Case
from tritonsmith.benchmarks.hacks.edits import Edit, make_case

_ATOMIC: Edit = (
    "tl.atomic_add(out + column, part, mask=column < columns)",
    "tl.store(out + column, tl.load(out + column, mask=column < columns) + part, mask=column < columns)",
)
_POLL = '        while tl.atomic_add(flags + program - 1, 0, sem="acquire") == 0:\n            pass\n'
_GRID_POLL = '    while tl.atomic_add(arrived, 0, sem="acquire") < P:\n        pass\n'
_STEP_POLL = '        while tl.atomic_add(arrived, 0, sem="acquire") < P * (t + 1):\n            pass\n'
_LOCK = '    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:\n        pass\n'
_FENCE, _STEP_FENCE = "    tl.debug_barrier()\n", "        tl.debug_barrier()\n"


def _racy(title: str, base: str, *edits: Edit) -> Case:
    return make_case("racy", title, base, *edits, expect=("racy",))


def racy() -> list[Case]:
    """Each must be refused as racy."""
    return [
        _racy("read, add, write without an atomic", "column_sum_atomic", _ATOMIC),
        _racy("no grid barrier", "column_sum_barrier", (_GRID_POLL, "")),
        _racy("a barrier that waits for one too few", "column_sum_barrier", ("< P:", "< P - 1:")),
        _racy("a barrier without fence", "column_sum_barrier", (_FENCE, "")),
        _racy("a relaxed wait", "column_sum_barrier", ('0, sem="acquire") < P', '0, sem="relaxed") < P')),
        _racy("a relaxed arrival", "column_sum_barrier", ('1, sem="release")', '1, sem="relaxed")')),
        _racy("no lock", "column_sum_lock", (_LOCK, "")),
        _racy("a relaxed lock", "column_sum_lock", ('0, 1, sem="acquire"', '0, 1, sem="relaxed"')),
        _racy("a lock without fence", "column_sum_lock", (_FENCE, "")),
        _racy("a chain that does not wait", "column_sum_chain", (_POLL, "")),
        _racy("a chain with a relaxed wait", "column_sum_chain", ('0, sem="acquire") == 0', '0, sem="relaxed") == 0')),
        _racy("a chain without fence", "column_sum_chain", (_FENCE, "")),
        _racy("the last one takes no ticket", "column_sum_last", ('tl.atomic_add(ticket, 1, sem="acq_rel")', "program")),
        _racy("a ticket before the parts", "column_sum_last", ("tl.debug_barrier()\n    if", "if")),
        _racy("no barrier between steps", "gru_tiled", (_STEP_POLL, "")),
        _racy("a step's barrier waits for the step before", "gru_tiled", ("< P * (t + 1)", "< P * t")),
        _racy("a step's barrier without fence", "gru_tiled", (_STEP_FENCE, "")),
    ]


def _clean(title: str, base: str, *edits: Edit) -> Case:
    return make_case("clean", title, base, *edits, expect=("ok",))


def clean() -> list[Case]:
    """None may be reported as racy."""
    spin = ('while tl.atomic_add(arrived, 0, sem="acquire") < P', 'while tl.atomic_cas(arrived, P, P, sem="acquire") < P')
    double = ("tl.store(parts + program * BLOCK + column, part)\n", "tl.store(parts + program * BLOCK + column, part)\n    tl.store(parts + program * BLOCK + column, part)\n")
    again = ("    tl.store(totals + program * BLOCK + column, total)\n", "    tl.store(totals + program * BLOCK + column, 2.0 * total - total)\n")
    return [
        _clean("atomic additions", "column_sum_atomic"),
        _clean("atomic additions of few rows", "column_sum_atomic", ("ROWS = 16", "ROWS = 4")),
        _clean("relaxed atomic additions", "column_sum_atomic", ("part, mask=column < columns)", 'part, mask=column < columns, sem="relaxed")')),
        _clean("grid barrier", "column_sum_barrier"),
        _clean("grid barrier of two", "column_sum_barrier", ("PROGRAMS = 4", "PROGRAMS = 2")),
        _clean("grid barrier of eight", "column_sum_barrier", ("PROGRAMS = 4", "PROGRAMS = 8")),
        _clean("a wait by compare and swap", "column_sum_barrier", spin),
        _clean("an arrival that also acquires", "column_sum_barrier", ('1, sem="release")', '1, sem="acq_rel")')),
        _clean("a program writes its part twice", "column_sum_barrier", double),
        _clean("spin lock", "column_sum_lock"),
        _clean("spin lock, eight rows", "column_sum_lock", ("ROWS = 16", "ROWS = 8")),
        _clean("chain", "column_sum_chain"),
        _clean("longer chain", "column_sum_chain", ("ROWS = 16", "ROWS = 8")),
        _clean("chain with arithmetic", "column_sum_chain", again),
        _clean("last one adds", "column_sum_last"),
        _clean("last of eight adds", "column_sum_last", ("ROWS = 16", "ROWS = 8")),
        _clean("split-K", "linear_split_k"),
        _clean("split-K in two", "linear_split_k", ("SPLIT = 3", "SPLIT = 2")),
        _clean("grid barrier in every step", "gru_tiled"),
        _clean("a program per batch rows", "gru"),
        _clean("persistent stride", "gelu_persistent"),
        _clean("persistent stride, five programs", "gelu_persistent", ("PROGRAMS = 3", "PROGRAMS = 5")),
        _clean("a row per program", "gelu_rows"),
        _clean("overlapping stores of equal values", "gelu", ("grid = (triton.cdiv(x.numel(), BLOCK),)", "grid = (triton.cdiv(x.numel(), BLOCK) + 1,)"),
               ("tl.program_id(0).to(tl.int64) * BLOCK", "tl.maximum(tl.program_id(0) - 1, 0).to(tl.int64) * BLOCK")),
    ]  # fmt: skip
