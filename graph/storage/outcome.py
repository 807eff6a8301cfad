"""A verdict and a run in words: what a score may be called, who did the work, what is waited for. Only what beats its band is faster."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from tritonsmith.evaluator.channel.doorbell import find_compile_mode
from tritonsmith.evaluator.schema import Comparison, Label, Timing, TimingKind, Verdict

_COMPARED = {
    Comparison.FASTER: "FASTER than",
    Comparison.SAME: "SAME as",
    Comparison.SLOWER: "SLOWER than",
    Comparison.AMBIGUOUS: "AMBIGUOUS against",
}
_FACTS = "-facts.json"
"""End of the name of a file with a task's facts, which a worker answers before any verdict."""


class RunOutcome(StrEnum):
    """How a run has ended."""

    FASTER = "faster"
    """The best kernel is confirmed, and faster than the strongest baseline; by an estimate, than eager execution."""
    NOT_FASTER = "not_faster"
    """The best kernel is right, and a card measured no gain."""
    KEPT = "kept"
    """A card measured no kernel that is as fast as the strongest baseline, or the author writes none: the module is best kept."""
    RIGHT = "right"
    """The best kernel is right, and the estimate of its speed shows no gain: only a card can tell."""
    NOT_CONFIRMED = "not_confirmed"
    """The run ended before its best kernel was judged again."""
    NO_KERNEL = "no_kernel"
    WAITING = "waiting"
    """For replies or verdicts that come in files; it goes on with `tritonsmith resume`."""


def digits(value: float) -> str:
    """A factor as it is shown: three digits below 0.1, none above 100, else two."""
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def name_baseline(name: str) -> str:
    """A baseline in a reader's words: `torch.compile (reduce-overhead)`."""
    mode = find_compile_mode(name)
    if mode:
        return "torch.compile" if mode == "default" else f"torch.compile ({mode})"
    return "eager in a CUDA graph" if name == "cuda_graph" else name


def judge_outcome(timing: Timing, *, confirmed: bool) -> RunOutcome:
    """How a run with this best kernel has ended."""
    if not confirmed:
        return RunOutcome.NOT_CONFIRMED
    if timing.said is Comparison.FASTER:
        return RunOutcome.FASTER
    return RunOutcome.NOT_FASTER if timing.kind is TimingKind.MEASURED else RunOutcome.RIGHT


def describe_best(timing: Timing, *, confirmed: bool) -> str:
    """The answer of a run in its first words: `FASTER than eager: 1.70x (1.50 to 1.90), ESTIMATE`, or that it is not, or not confirmed.

    An estimate that shows no gain is no finding about speed, so it is told as `right; its speed is not known here`.
    """
    kind = "measured" if timing.kind is TimingKind.MEASURED else "ESTIMATE"
    found = timing.interval or timing.band
    span = f" ({digits(found[0])} to {digits(found[1])})" if found else ""
    against = f"{_COMPARED[timing.said]} {name_baseline(timing.baseline)}"
    words = f"{against}: {digits(timing.score)}x{span}, {kind}"
    unknown = timing.kind is TimingKind.ESTIMATED and timing.said is not Comparison.FASTER
    if unknown:
        words = _describe_unknown(timing)
    if not confirmed:
        return f"NOT CONFIRMED: only the search says that the best kernel is {words}"
    return words if unknown or timing.said is Comparison.FASTER else f"NOT FASTER: the best kernel is {words}"


def _describe_unknown(timing: Timing) -> str:
    """`right; its speed is not known here (estimate 1.29x, 0.095 to 17)`, or that even the band says slower."""
    band = f", {_round(timing.band[0])} to {_round(timing.band[1])}" if timing.band else ""
    said = "slower by the estimate" if timing.said is Comparison.SLOWER else "its speed is not known here"
    return f"right; {said} (estimate {digits(timing.score)}x{band})"


def _round(value: float) -> str:
    """An end of a band, which is known to two digits at the best."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"  # noqa: PLR2004 - from there on two digits would be an exponent


def describe_comparison(timing: Timing) -> str:
    """`0.98x: SAME as cuda_graph` or `1.70x ESTIMATE: FASTER than eager`."""
    kind = "" if timing.kind is TimingKind.MEASURED else " ESTIMATE"
    return f"{digits(timing.score)}x{kind}: {_COMPARED[timing.said]} {timing.baseline}"


def kind_of_win(verdict: Verdict) -> str:
    """`kernel win`, `hybrid: 62 % of device time in own Triton kernels`, `library win`; `no win; label kernel`, `speed not known; ...`."""
    label = verdict.label
    share = verdict.facts.own_time_share
    hybrid = "hybrid"
    if share is not None and verdict.timing is not None:
        measured = verdict.timing.kind is TimingKind.MEASURED
        hybrid = f"hybrid: {share:.0%} of {'device' if measured else 'estimated'} time in own Triton kernels".replace("%", " %")
    named = hybrid if label is Label.HYBRID else label.value if label else "no label"
    timing = verdict.timing
    if timing is None or timing.said is not Comparison.FASTER:
        unknown = timing is not None and timing.kind is TimingKind.ESTIMATED and timing.said is not Comparison.SLOWER
        return f"{'speed not known' if unknown else 'no win'}; {named if label is Label.HYBRID or label is None else f'label {named}'}"
    return named if label is Label.HYBRID else f"{named} win" if label else f"win, {named}"


def precision_of(verdict: Verdict) -> str:
    """The strictest precision class whose rule a candidate meets; empty where that is not known, or none is met."""
    found = verdict.correctness
    return found.precision_class.value if found and found.precision_class else ""


def describe_search(search: float | None, confirmed: float | None) -> str:
    """`search said 4.61x, confirmed 4.55x`; empty where the search has no figure of its own."""
    if search is None:
        return ""
    return f"search said {digits(search)}x, {f'confirmed {digits(confirmed)}x' if confirmed is not None else 'not confirmed'}"


def split_waiting(files: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The replies and a worker's results among the files that a run waits for."""
    results = tuple(file for file in files if file.endswith(".json"))
    return tuple(file for file in files if file not in results), results


def describe_waiting(files: Sequence[str]) -> str:
    """`waiting for 2 replies and 1 verdict`."""
    replies, results = split_waiting(files)
    facts = sum(file.endswith(_FACTS) for file in results)
    counted = [count_words(len(replies), "reply", "replies") if replies else "", "the facts of the task" if facts else ""]
    counted += [count_words(len(results) - facts, "verdict") if len(results) > facts else ""]
    return f"waiting for {' and '.join(filter(None, counted))}"


def describe_way_on(files: Sequence[str], run: str) -> str:
    """What lets a waiting run go on: `write them to DIR, then: tritonsmith resume RUN`."""
    replies, results = split_waiting(files)
    steps = []
    if replies:
        folders = dict.fromkeys(str(Path(file).parent) for file in replies)
        steps.append(f"write {'it' if len(replies) == 1 else 'them'} to {' and '.join(folders)}")
    if results:
        steps.append(f"run tritonsmith worker {Path(results[0]).parent.parent} --once on the machine with the card")
    return ", ".join([*steps, f"then: tritonsmith resume {run}"])


def count_words(number: int, one: str, several: str = "") -> str:
    """`1 candidate`, `2 candidates`, `12,000 calls`; `several` where the plural has not just an s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
