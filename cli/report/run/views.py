"""What the templates show, computed from a report: short words, ordered rows, and no markup."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from tritonsmith.cli.report.run.build import diff_lines
from tritonsmith.cli.report.run.reading import RunFiles
from tritonsmith.cli.report.run.records import RunReport, RunState
from tritonsmith.cli.report.run.regions import describe_launches
from tritonsmith.cli.report.run.texts import MOST_OF_ONE, Room, diff_html, python_html
from tritonsmith.evaluator.schema import Comparison, KernelFacts, TimingKind, Verdict
from tritonsmith.graph.state import Decision
from tritonsmith.graph.storage.header import describe_mode
from tritonsmith.graph.storage.outcome import count_words, digits, kind_of_win, name_baseline
from tritonsmith.graph.storage.summary import CandidateRow, Summary

_SHOWN_VERSIONS = ("tritonsmith", "torch", "triton", "python")
"""Versions that are shown with the answer."""


@dataclass
class Node:
    """One candidate in the tree."""

    row: CandidateRow
    score: str
    tone: str
    """good, weak, bad or idle: the colour of its mark."""
    wins: bool
    change: str
    text: Markup
    """The difference from its parent, or the whole text of a first kernel."""
    text_title: str
    cut: int
    verdict: Verdict | None
    labels: tuple[str, ...]
    """What detection called it, with the evidence."""
    analyses: tuple[tuple[str, str], ...]
    """What an analysis found, promised and planned."""
    children: list["Node"] = field(default_factory=list)


@dataclass(frozen=True)
class KernelRow:
    """One kernel of one candidate."""

    candidate: str
    wins: bool
    kernel: KernelFacts
    share: str
    """Of the candidate's device time."""


@dataclass(frozen=True)
class Turning:
    """One decision with what it rested on."""

    decision: Decision
    gate: str
    at: str
    evidence: tuple[tuple[str, str], ...]


def score_text(score: float | None, kind: str | None, comparison: str | None = None) -> str:
    """`4.65x measured`, `1.17x ESTIMATE`, `0.98x measured, same` or a dash."""
    if score is None:
        return "\N{EN DASH}"
    word = "measured" if kind == TimingKind.MEASURED.value else "ESTIMATE"
    return f"{digits(score)}x {word}" + (f", {comparison}" if comparison and comparison != "faster" else "")


def seconds_text(seconds: float) -> str:
    """`0.2 s`, `41 s`, `3 min 20 s` or `2 h 5 min`."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def millis(value: float | None) -> str:
    """Milliseconds with four digits."""
    return "\N{EN DASH}" if value is None else f"{value:.4g} ms"


def candidate_tree(files: RunFiles, report: RunReport, room: Room) -> list[Node]:
    """The seeds with everything that came of them."""
    rows = report.summary.candidates
    winner = report.summary.best.id if report.summary.best else None
    shas = {row.id: row.sha for row in rows}
    nodes = {row.id: _make_node(files, report, row, shas, winner, room) for row in _put_winner_first(rows, winner)}
    roots: list[Node] = []
    for row in rows:
        parent = nodes.get(row.parent or "")
        (parent.children if parent is not None and row.parent != row.id else roots).append(nodes[row.id])
    return roots


def _put_winner_first(rows: Sequence[CandidateRow], winner: str | None) -> list[CandidateRow]:
    """The order in which texts get room."""
    return sorted(rows, key=lambda row: row.id != winner)


def _make_node(files: RunFiles, report: RunReport, row: CandidateRow, shas: Mapping[str, str], winner: str | None, room: Room) -> Node:
    new, old = files.kernel(row.sha), files.kernel(shas.get(row.parent or "", ""))
    text, title, cut = Markup(""), "", 0
    if new is not None and old is not None:
        part, cut = room.take("\n".join(diff_lines(old, new)))
        text, title = diff_html(part.splitlines(), room), f"Difference from {row.parent}"
    elif new is not None:
        part, cut = room.take(new, MOST_OF_ONE)
        text, title = python_html(part, room), "Text of the kernel"
    change = report.changes.get(row.id)
    return Node(
        row=row,
        score=score_text(row.score, row.kind, row.comparison),
        tone=_tone(row),
        wins=row.id == winner,
        change=f"+{change.added} \N{MINUS SIGN}{change.removed}" if change else "",
        text=text,
        text_title=title if text else ("The text is the same as its parent's" if title else ""),
        cut=cut,
        verdict=report.verdicts.get(row.id),
        labels=_labels(report.summary, row.id),
        analyses=tuple(pair for key, about in report.analysed.items() if about == row.id for pair in _analysis(report.summary, key)),
    )


def _labels(summary: Summary, candidate: str) -> tuple[str, ...]:
    found = summary.findings.get(candidate)
    labels = [label for label in found if isinstance(label, dict)] if isinstance(found, list | tuple) else []
    return tuple(map(_label_text, labels))


def _label_text(found: dict[str, Any]) -> str:
    line = f" (line {found['line']})" if found.get("line") else ""
    return f"{found.get('name')}: {found.get('evidence')}{line}"


def _analysis(summary: Summary, key: str) -> list[tuple[str, str]]:
    analysis = summary.analyses.get(key)
    if not isinstance(analysis, dict):
        return []
    promised = analysis.get("expected_speedup")
    rows = [
        ("Bottleneck", analysis.get("bottleneck")), ("Method", analysis.get("optimisation_method")),
        ("Plan", analysis.get("modification_plan")),
        ("Promised", f"{promised:g}x" if isinstance(promised, int | float) else None), ("Because", analysis.get("reason")),
    ]  # fmt: skip
    return [(name, str(value)) for name, value in rows if value]


def _tone(row: CandidateRow) -> str:
    if row.status in ("not evaluated", "..."):
        return "idle"
    if row.status != "ok" or row.not_allowed:
        return "bad"
    return "good" if row.comparison == Comparison.FASTER.value else "weak"


def kernel_rows(report: RunReport) -> list[KernelRow]:
    """Every kernel of every candidate, the winner's first."""
    winner = report.summary.best.id if report.summary.best else None
    rows: list[KernelRow] = []
    for row in _put_winner_first(report.summary.candidates, winner):
        verdict = report.verdicts.get(row.id)
        kernels = verdict.facts.kernels if verdict else ()
        timed = [kernel.device_ms for kernel in kernels if kernel.device_ms is not None]
        own = verdict.facts.own_time_share if verdict else None
        total = sum(timed) if len(timed) == len(kernels) else (own or 0.0) * ((verdict and verdict.facts.device_ms) or 0.0)
        for kernel in kernels:
            share = own if len(kernels) == 1 else None
            if own is not None and total and kernel.device_ms is not None:
                share = own * kernel.device_ms / total
            rows.append(KernelRow(row.id, row.id == winner, kernel, _percent(share)))
    return rows


def _percent(share: float | None) -> str:
    return "\N{EN DASH}" if share is None else f"{share * 100:.0f} %"


def library_rows(report: RunReport) -> list[tuple[str, str, int]]:
    """Candidate, name and count of calls into libraries."""
    rows = ((row.id, report.verdicts[row.id].facts.library_calls) for row in report.summary.candidates if row.id in report.verdicts)
    return [(candidate, name, count) for candidate, calls in rows for name, count in calls.items()]


def turnings(report: RunReport) -> list[Turning]:
    """The decisions in the order of time; where times are missing, in the order of the table."""
    decisions = sorted(report.summary.decisions, key=lambda decision: report.times.get(decision.id, float("inf")))
    return [
        Turning(
            decision=decision,
            gate=decision.gate or decision.site,
            at=seconds_text(report.times[decision.id]) if decision.id in report.times else "",
            evidence=tuple((name, evidence_text(value)) for name, value in decision.evidence.items()),
        )
        for decision in decisions
    ]


def evidence_text(value: object) -> str:
    """A number with few digits, a list with commas, yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)


def gates(turns: Sequence[Turning]) -> dict[str, list[Turning]]:
    """Decisions by gate, in the order of first use."""
    table: dict[str, list[Turning]] = {}
    for turn in turns:
        table.setdefault(turn.gate, []).append(turn)
    return table


def counter_rows(report: RunReport) -> list[tuple[str, str, str, str]]:
    """For each candidate with evidence about its kernels: its id, who counted, achieved shares, and what is known of each kernel."""
    rows: list[tuple[str, str, str, str]] = []
    for candidate, verdict in report.verdicts.items():
        found = verdict.facts.counters
        if found is None:
            continue
        shares = {"bandwidth": found.bandwidth_share, "arithmetic": found.operations_share}
        achieved = ", ".join(f"{value:.1f} % of {name}" for name, value in shares.items() if value is not None)
        source = "Nsight Compute" if found.source == "ncu" else "compiling and counting"
        known = [f"{kernel.name}: {kernel.words}" for kernel in found.kernels if kernel.words]
        rows.append((candidate, source, achieved, " | ".join([*known, *([found.reason] if found.reason else [])])))
    return rows


def answer_facts(report: RunReport) -> list[tuple[str, str]]:
    """Facts under the headline: words and what they say, most important first."""
    summary, winner = report.summary, report.summary.best
    facts: list[tuple[str, str]] = []
    if winner is not None and winner.verdict.timing is not None:
        facts += _timing_facts(winner.verdict)
        facts.append(("Kernel", f"{winner.id} ({winner.stage.replace('_', ' ')})"))
        if winner.search_score is not None and winner.confirmed:
            facts.append(("Search said", f"{digits(winner.search_score)}x"))
    else:
        facts.append(("Candidates", _outcomes(summary)))
    if launches := describe_launches(summary):
        facts.append(("Launches", launches))
    facts.append(("Card", _card(report)))
    facts.append(("Stopped because", summary.stopped_because or _why_open(report.state)))
    spent = seconds_text(summary.seconds)
    who = f"policy {summary.policy or 'unknown'}, author {summary.model or 'unknown'}"
    facts.append(("Run", f"{count_words(len(summary.candidates), 'candidate')} in {spent}; {who}"))
    versions = ", ".join(f"{name} {report.versions[name]}" for name in _SHOWN_VERSIONS if name in report.versions)
    return [*facts, *([("Versions", versions)] if versions else [])]


def _timing_facts(verdict: Verdict) -> list[tuple[str, str]]:
    timing = verdict.timing
    if timing is None:
        return []
    kind = "measured" if timing.kind is TimingKind.MEASURED else "ESTIMATE"
    other = f"{millis(timing.baselines_ms.get(timing.baseline))} of {name_baseline(timing.baseline)}"
    facts = [("Latency", f"{millis(timing.median_ms)} against {other} ({kind})")]
    if timing.form_words:
        facts.append(("Form", timing.form_words))
    if timing.floor is not None:
        facts.append(("Floor", f"{kind}: {timing.floor.words}"))
    if timing.interval is not None:
        pairs = f" from {count_words(timing.pairs, 'pair')}" if timing.pairs else ""
        facts.append(("95 % interval", f"{timing.interval[0]:.3f} to {timing.interval[1]:.3f}{pairs}"))
    if timing.band is not None:
        facts.append(("Band of the estimate", f"{timing.band[0]:.3f} to {timing.band[1]:.3f}"))
    facts += [("Label", kind_of_win(verdict)), ("Against eager", f"{digits(timing.score_eager)}x")]
    found = verdict.correctness
    if found is not None:
        reached = found.precision_class.value if found.precision_class else "none is met"
        errors = f"error {found.err_vs_oracle:.1e} of the float64 oracle, the reference's own {found.reference_err_vs_oracle:.1e}"
        facts.append(("Precision", f"{reached}; {errors}"))
    if call := verdict.environment.get("call"):
        facts.append(("One call", f"{call}, timed together; gradients are judged by the same rule"))
    facts.append(("Mode", describe_mode(str(verdict.environment.get("mode", "eval")))))
    return facts


def _card(report: RunReport) -> str:
    winner = report.summary.best
    verdicts = [winner.verdict] if winner else list(report.verdicts.values())
    card = next((verdict.environment.get("card") for verdict in verdicts if verdict.environment.get("card")), None)
    if card:
        return str(card)
    return f"none here; figures are estimates for {report.summary.target}" if report.summary.target else "unknown"


def _outcomes(summary: Summary) -> str:
    counts: dict[str, int] = {}
    for row in summary.candidates:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none were written"


def _why_open(state: RunState) -> str:
    return "the run is not over" if state is RunState.UNFINISHED else "not known"
