"""A verdict in words: what a score may be called, and who did the work. Nothing is called faster that was not measured to be."""

from tritonsmith.evaluator.schema import Comparison, Label, Timing, TimingKind, Verdict

_COMPARED = {
    Comparison.FASTER: "FASTER than",
    Comparison.SAME: "SAME as",
    Comparison.SLOWER: "SLOWER than",
    Comparison.AMBIGUOUS: "AMBIGUOUS against",
}


def digits(value: float) -> str:
    """A factor as it is shown: three digits below 0.1, none above 100, else two."""
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def is_win(timing: Timing) -> bool:
    """Whether a candidate may be called faster: measured so beyond the noise, or estimated so."""
    return timing.comparison is Comparison.FASTER if timing.comparison is not None else timing.score > 1.0


def describe_comparison(timing: Timing) -> str:
    """`0.98x: SAME as cuda_graph`, or, where nothing was compared, `1.70x ESTIMATE against eager`."""
    if timing.comparison is not None:
        return f"{digits(timing.score)}x: {_COMPARED[timing.comparison]} {timing.baseline}"
    kind = "measured" if timing.kind is TimingKind.MEASURED else "ESTIMATE"
    return f"{digits(timing.score)}x {kind} against {timing.baseline}"


def kind_of_win(verdict: Verdict) -> str:
    """`kernel win`, `hybrid: 62 % of device time in own Triton kernels`, `library win`; `no win; label kernel` where nothing was gained."""
    label = verdict.label
    share = verdict.facts.own_time_share
    hybrid = "hybrid"
    if share is not None and verdict.timing is not None:
        measured = verdict.timing.kind is TimingKind.MEASURED
        hybrid = f"hybrid: {share:.0%} of {'device' if measured else 'estimated'} time in own Triton kernels".replace("%", " %")
    named = hybrid if label is Label.HYBRID else label.value if label else "no label"
    if verdict.timing is None or not is_win(verdict.timing):
        return f"no win; {named}" if label is Label.HYBRID or label is None else f"no win; label {named}"
    return named if label is Label.HYBRID else f"{named} win" if label else f"win, {named}"


def describe_search(search: float | None, confirmed: float | None) -> str:
    """`search said 4.61x, confirmed 4.55x`; empty where the search has no figure of its own."""
    if search is None:
        return ""
    return f"search said {digits(search)}x, {f'confirmed {digits(confirmed)}x' if confirmed is not None else 'not confirmed'}"
