"""The page that compares estimates with measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from tritonsmith.benchmarks.estimates.compare import ComparedTime, Pair, list_pairs, needed_band, needed_ratio
from tritonsmith.evaluator.cards.device_time import Bound
from tritonsmith.evaluator.cards.estimate import SPREADS
from tritonsmith.evaluator.schema import Hardware


def render_page(kernels: Sequence[ComparedTime], baselines: Sequence[ComparedTime], hardware: Hardware) -> str:
    """The whole page as Markdown."""
    pairs = list(list_pairs(kernels))
    lines = [
        "# Estimates beside measurements", "",
        f"Kernels that were measured on an {hardware.name}, and what the estimate without a card says of the same texts. "
        "Made by `python -m tritonsmith.benchmarks.estimates`, which compiles them for that card and runs nothing. "
        "The formula is in `evaluator/cards/device_time.py`, bands and ranking in `evaluator/cards/estimate.py`.", "",
        *_summarise(kernels, pairs), *_list_bounds(kernels, pairs), *_list_order(pairs),
        "## Kernels", "",
        "A text counts where its exact bytes are known: a winner that is kept, the same with other constants, or what a recipe writes "
        "today, if its sha is the measured one. Equal compiled kernels of one task count once.", "",
        *_table(kernels, "bound"), "",
        "## Baselines", "",
        "PyTorch's own forward, by the formula for a library's operators. Its bands are set by hand from this table, a fifth beyond the "
        "worst error of their kind.", "",
        *_table(baselines, "baseline"), "",
    ]  # fmt: skip
    return "\n".join(lines)


def find_too_narrow(kernels: Sequence[ComparedTime]) -> list[str]:
    """Sentences about constants that measurements contradict."""
    pairs = list(list_pairs(kernels))
    found = []
    for bound, rows in _by_bound(kernels):
        if (needed := needed_band(rows)) > SPREADS[bound].band * 1.005:
            found.append(f"the band of kernels bound by {bound.value} must be {needed:.2f}, and is {SPREADS[bound].band}")
    wrong = [pair for pair in pairs if pair.ranked and not pair.equal and not pair.right]
    ranked = [pair for pair in pairs if pair.ranked and not pair.equal]
    if len(wrong) > 0.05 * len(ranked):
        found.append(f"of {len(ranked)} ranked pairs {len(wrong)} are in the wrong order")
    return found


def _by_bound(kernels: Sequence[ComparedTime]) -> Iterator[tuple[Bound, list[ComparedTime]]]:
    for bound in Bound:
        if rows := [row for row in kernels if row.bound == bound.value]:
            yield bound, rows


def _summarise(kernels: Sequence[ComparedTime], pairs: Sequence[Pair]) -> list[str]:
    clear = [pair for pair in pairs if not pair.equal]
    ranked = [pair for pair in clear if pair.ranked]
    right = sum(pair.right for pair in ranked)
    all_right = sum(pair.right for pair in clear)
    inside = sum(row.inside for row in kernels)
    return [
        f"- **Bands**: {inside} of {len(kernels)} measured times are inside their band.",
        f"- **Errors**: the estimates are {min(row.ratio for row in kernels):.2f} to {max(row.ratio for row in kernels):.2f} times what "
        f"was measured, in the geometric mean {geometric_mean([row.ratio for row in kernels]):.2f}.",
        f"- **Order**: {len(clear)} pairs do the same work in measurably different times. The estimate ranks {len(ranked)} of them, "
        f"{right} rightly ({right / max(1, len(ranked)):.0%}). The other {len(clear) - len(ranked)} it calls not told apart; by the bare "
        f"estimates {all_right} of all {len(clear)} would be in the right order ({all_right / max(1, len(clear)):.0%}).",
        "",
        "The constants of the formula were fitted to these same kernels. So bands are a fifth wider than the worst error here, and that is "
        "all that is known of other kernels and cards.", "",
    ]  # fmt: skip


def _list_bounds(kernels: Sequence[ComparedTime], pairs: Sequence[Pair]) -> list[str]:
    lines = [
        "## How bands are set", "",
        "What bounds a kernel decides how far its estimate may be off. *band*: the worst error of the kernels here, and a fifth more. "
        "*apart*: the least ratio of two estimates from which 95 % of the pairs here are in the right order; where fewer than ten pairs "
        "say so, the square of the band. Both are rounded up.", "",
        "| bound by | kernels | estimate / measured | band needed | band | pairs | apart needed | apart |",
        "|--|--|--|--|--|--|--|--|",
    ]  # fmt: skip
    for bound, rows in _by_bound(kernels):
        own = [pair for pair in pairs if bound.value in (pair.one.bound, pair.other.bound) and _leads(pair, bound)]
        ratio, band = needed_ratio(own), needed_band(rows)
        lines.append(
            f"| {bound.value} | {len(rows)} | {min(row.ratio for row in rows):.2f} to {max(row.ratio for row in rows):.2f} | {band:.2f} "
            f"| {SPREADS[bound].band} | {sum(not pair.equal for pair in own)} "
            f"| {f'{ratio:.2f}' if ratio else f'{band**2:.2f}'} | {SPREADS[bound].apart} |"
        )
    return [*lines, ""]


def _leads(pair: Pair, bound: Bound) -> bool:
    """Whether this bound's ratio decides about the pair: of two bounds the larger one does."""
    return max(pair.one.estimate.apart, pair.other.estimate.apart) == SPREADS[bound].apart


def _list_order(pairs: Sequence[Pair]) -> list[str]:
    wrong = [pair for pair in pairs if pair.ranked and not pair.equal and not pair.right]
    if not wrong:
        return []
    lines = ["## Pairs in the wrong order", "", "| task | estimated | measured |", "|--|--|--|"]
    for pair in wrong:
        one, other = pair.one, pair.other
        lines.append(
            f"| {one.group} | {one.estimate.ms:.4g} and {other.estimate.ms:.4g} ms | {one.measured:.4g} and {other.measured:.4g} ms |"
        )
    return [*lines, ""]


def _table(rows: Sequence[ComparedTime], kind: str) -> list[str]:
    lines = [
        f"| task | settings | {kind} | measured, ms | estimate, ms | band, ms | estimate / measured | inside |", "|--|--|--|--|--|--|--|--|"
    ]  # fmt: skip
    for row in rows:
        band = f"{row.estimate.low_ms:.4g} to {row.estimate.high_ms:.4g}"
        lines.append(
            f"| {row.group} | {row.settings} | {row.bound} | {row.measured:.4g} | {row.estimate.ms:.4g} | {band} | {row.ratio:.2f} "
            f"| {'yes' if row.inside else 'no'} |"
        )
    return lines
