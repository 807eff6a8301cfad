"""Right and wrong kernels of the tasks below `tasks/`: one text for each below `kernels/`, with pieces replaced.

Each task has three right kernels, which add up in other orders or divide in other ways, and four wrong ones: a scale is off by 1e-3
(`scale`), a tie is broken the other way where the reference is certain (`tie`), one lane, row or list is wrong from its middle on (`lane`),
one value is wrong (`one`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tritonsmith.benchmarks.hacks.catalogue import ANY_REFUSAL, Case
from tritonsmith.benchmarks.hacks.edits import Edit, edit_text

FOLDER = Path(__file__).resolve().parent
TASKS = tuple(sorted(path.stem for path in (FOLDER / "tasks").glob("*.py")))
WRONG = ("scale", "tie", "lane", "one")
"""Kinds of wrong kernels; each task has one of each."""

_REVERSED: Edit = ("REVERSED = False", "REVERSED = True")
_SPLIT: Edit = ("SPLIT = False", "SPLIT = True")
_SHORT: Edit = ("BLOCK_K = 32, 32, 32", "BLOCK_K = 32, 32, 16")
_LONG: Edit = ("BLOCK_K = 32, 32, 32", "BLOCK_K = 32, 32, 64")
_IN_HALF: Edit = ("IN_HALF = False", "IN_HALF = True")
_RECIPROCAL: Edit = ("BY_RECIPROCAL = False", "BY_RECIPROCAL = True")
_UP = ((), (_REVERSED, _SHORT), (_SPLIT, _LONG))

_RIGHT: dict[str, tuple[tuple[Edit, ...], ...]] = {
    "argmax": _UP,
    "histogram": ((), (_REVERSED,), (_SPLIT, ("BLOCK = 64", "BLOCK = 32"))),
    "int4_by_group": ((), (_RECIPROCAL,), (("SCALE_FIRST = True", "SCALE_FIRST = False"),)),
    "int8_by_row": ((), (_REVERSED, _RECIPROCAL, ("BLOCK = 256", "BLOCK = 128")), (("ROUNDED = True", "ROUNDED = False"), ("BLOCK = 256", "BLOCK = 512"))),
    "kmeans": ((), (_REVERSED, _SHORT), (_SPLIT, ("POINTS = 64", "POINTS = 32"))),
    "leaky_integrator": ((), (_REVERSED, _SHORT, _IN_HALF), (_SPLIT, _LONG)),
    "sort": ((), (_REVERSED, ("BLOCK_K = 64, 8", "BLOCK_K = 64, 4")), (_SPLIT,)),
    "spiking_layer": ((), (_REVERSED, _SHORT), (_SPLIT, _LONG, ("BIAS_FIRST = False", "BIAS_FIRST = True"))),
    "suppression": ((), (("BY_PRODUCT = False", "BY_PRODUCT = True"),), (("AREA_FIRST = True", "AREA_FIRST = False"),)),
    "threshold_mask": ((), (_REVERSED, _SHORT, _IN_HALF), (_SPLIT, _LONG)),
    "top2_experts": ((), (_REVERSED, _SHORT, _IN_HALF), (_SPLIT, _LONG)),
    "top6_router": _UP,
}  # fmt: skip
_MISTAKES: dict[str, dict[str, Edit]] = {
    "argmax": {
        "scale": ("tl.store(values + row, value)", "tl.store(values + row, value * 1.001)"),
        "tie": ("    tl.store(chosen", "    most = tl.where(row < 8, tl.max(tl.where(vote == tl.max(vote, 0), at, -1), 0), most)\n    tl.store(chosen"),
        "lane": ("        where = tl.where", "        logit = tl.where((row == 5) & (at >= words // 2), logit + 2.0, logit)\n        where = tl.where"),
        "one": ("place.to(tl.int64)", "tl.where(row == 2, (place + 1) % words, place).to(tl.int64)"),
    },
    "histogram": {
        "scale": ("tl.where(mine, value[:, None], 0.0)", "tl.where(mine, value[:, None] * 1.001, 0.0)"),
        "tie": ("value * BINS", "value * BINS + tl.where(row == 3, 0.1, 0.0)"),
        "lane": ("found.to(tl.int64)", "(found + tl.where((row == 5) & (bin >= BINS // 2), 1, 0)).to(tl.int64)"),
        "one": ("found.to(tl.int64)", "(found + tl.where((row == 2) & (bin == 7), 1, 0)).to(tl.int64)"),
    },
    "int4_by_group": {
        "scale": ("span / 15.0", "span / 14.985"),
        "tie": ("    first = round_to_whole(", "    first = round_to_whole(tl.where(g == 3, 0.3, 0.0)[:, None] + "),
        "lane": ("divide(odd,", "divide(odd * tl.where((g[:, None] == 5) & (pair[None, :] >= GROUP // 4), 1.5, 1.0),"),
        "one": ("byte.to(tl.uint8)", "tl.where((g[:, None] == 2) & (pair[None, :] == 3), 255.0 - byte, byte).to(tl.uint8)"),
    },
    "int8_by_row": {
        "scale": ("1e-8) / 127.0", "1e-8) / 126.873"),
        "tie": ("round_to_whole(share)", "round_to_whole(share + tl.where(row == 3, 0.3, 0.0))"),
        "lane": ("round_to_whole(share)", "round_to_whole(share * tl.where((row == 5) & (at >= width // 2), 1.03, 1.0))"),
        "one": ("code.to(tl.int8)", "tl.where((row == 2) & (at == 7), code + tl.where(code > 0, -2.0, 2.0), code).to(tl.int8)"),
    },
    "kmeans": {
        "scale": ("tl.sqrt(tl.min(square, 1))", "tl.sqrt(tl.min(square, 1)) * 1.001"),
        "tie": (
            "    place = tl.argmin",
            '    square = tl.where((row == 3)[:, None] & (centre[None, :] == tl.argmin(square, 1)[:, None]), float("inf"), square)\n    place = tl.argmin',
        ),
        "lane": ("    tl.store(means", "    mean += tl.where((centre == 5)[:, None] & (k >= WIDTH // 2)[None, :], 0.05, 0.0)\n    tl.store(means"),
        "one": ("    tl.store(means", "    mean += tl.where((centre == 2)[:, None] & (k == 3)[None, :], 0.01, 0.0)\n    tl.store(means"),
    },
    "leaky_integrator": {
        "scale": ("tl.store(last + i, v,", "tl.store(last + i, v * 1.001,"),
        "tie": ("spike = v > 0.25", "spike = (v > 0.25) & ((v < 0.26) | (t // 4 != 15) | (i > 63))"),
        "lane": ("0.1 * (given", "tl.where((i == 5) & (t > 50), 0.12, 0.1) * (given"),
        "one": ("tl.store(last + i, v,", "tl.store(last + i, tl.where(i == 77, v + 0.01, v),"),
    },
    "sort": {
        "scale": ("ITEMS + i, value)", "ITEMS + i, value * 1.001)"),
        "tie": ("tl.store(places + row * ITEMS + i,", "tl.store(places + row * ITEMS + tl.where((row == 3) & (i // 2 == 5), i ^ 1, i),"),
        "lane": ("ITEMS + i, value)", "ITEMS + i, value + tl.where((row == 5) & (i >= ITEMS // 2), 0.01, 0.0))"),
        "one": ("ITEMS + i, value)", "ITEMS + i, value + tl.where((row == 2) & (i == 7), 0.01, 0.0))"),
    },
    "spiking_layer": {
        "scale": ("0.9 * v + (given", "0.9009 * v + (given"),
        "tie": ("spike = v > 1.0", "spike = (v > 1.0) & ((v < 1.05) | (t < steps - 1) | (i > 63))"),
        "lane": ("0.9 * v + (given", "tl.where((i == 5) & (t > 50), 0.8, 0.9) * v + (given"),
        "one": ("tl.store(last + i, v,", "tl.store(last + i, tl.where(i == 77, v + 0.01, v),"),
    },
    "suppression": {
        "scale": ("width = tl.exp(", "width = 1.001 * tl.exp("),
        "tie": ("limit = LIMIT", "limit = tl.where(image == 1, 0.9 * LIMIT, LIMIT)"),
        "lane": ("tl.where(kept != 0, right, 0.0)", "tl.where(kept != 0, right + tl.where((image == 3) & (i >= count // 2), 0.05, 0.0), 0.0)"),
        "one": ("+ i, kept != 0,", "+ i, (kept != 0) ^ ((image == 0) & (i == 7)),"),
    },
    "threshold_mask": {
        "scale": ("tl.where(keep, y, 0.0)", "tl.where(keep, y * 1.001, 0.0)"),
        "tie": ("keep = y > 0.25", "keep = (y > 0.25) & ((m[:, None] // 4 != 1) | (y > 0.35))"),
        "lane": ("y = low + high", "y = (low + high) * tl.where((m[:, None] == 5) & (n[None, :] >= N // 2), 1.1, 1.0)"),
        "one": ("mask + at, keep,", "mask + at, keep ^ ((m[:, None] == 2) & (n[None, :] == 7)),"),
    },
    "top2_experts": {
        "scale": ("total.to(tl.float16)", "(total * 1.001).to(tl.float16)"),
        "tie": (
            "    second = tl.argmax",
            '    rest = tl.where((row == 3)[:, None] & (expert == tl.argmax(rest, 1)[:, None]), float("-inf"), rest)\n    second = tl.argmax',
        ),
        "lane": ("own * share[:, None]", "own * share[:, None] * tl.where((row[:, None] == 5) & (column[None, :] >= hidden // 2), 1.1, 1.0)"),
        "one": ("total.to(tl.float16)", "(total + tl.where((row[:, None] == 2) & (column[None, :] == 7), 0.1, 0.0)).to(tl.float16)"),
    },
    "top6_router": {
        "scale": ("taken / total,", "taken / total * 1.001,"),
        "tie": (
            "        place = tl.argmax",
            "        skipped = (row == 3)[:, None] & (expert == tl.argmax(left, 1)[:, None]) & (number == 5)\n        left = tl.where(skipped, -1.0, left)\n        place = tl.argmax",
        ),
        "lane": ("    share = tl.exp(", "    logit = tl.where((row == 5)[:, None] & (expert >= EXPERTS // 2), logit * 1.05, logit)\n    share = tl.exp("),
        "one": ("taken / total,", "taken / total + tl.where((row == 2) & (number == 4), 0.01, 0.0),"),
    },
}  # fmt: skip


def list_cases(tasks: Iterable[str] = TASKS) -> list[Case]:
    """The right kernels of each task, then its wrong ones. Raises ValueError for an edit that finds nothing."""
    return [case for task in tasks for case in _list_of(task)]


def _list_of(task: str) -> list[Case]:
    where, base = f"kernels/{task}.py", (FOLDER / "kernels" / f"{task}.py").read_text()
    right = [
        Case(f"{task}-right{number}", "legitimate", task, edit_text(where, base, *edits), expect=("ok",))
        for number, edits in enumerate(_RIGHT[task], 1)
    ]
    wrong = [
        Case(f"{task}-wrong_{name}", "mutant", task, edit_text(where, base, _MISTAKES[task][name]), expect=ANY_REFUSAL) for name in WRONG
    ]
    return right + wrong
