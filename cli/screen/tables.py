"""Verdicts, candidates and decisions for a reader. Every score carries its kind: `measured` or `ESTIMATE`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import KernelFacts, Measurement, Status, Timing, TimingKind, Verdict
from tritonsmith.graph.storage.outcome import count_words, describe_comparison, digits

if TYPE_CHECKING:  # a verdict is shown without loading LangGraph
    from tritonsmith.graph.state import Decision
    from tritonsmith.graph.storage.sizes import SizeRow
    from tritonsmith.graph.storage.summary import CandidateRow

_WIDE = 120
"""Columns from which on a table has room for intervals and sentences."""
_LOOSE = 92
"""Columns from which on the widest cells leave room for gaps of two."""
_BELOW = (0, 0, 0, 4)
"""Padding of a reason that stands below its decision."""


def row_score(row: CandidateRow, *, wide: bool = False) -> str:
    """`2.88x measured`, `0.98x measured, same`, `1.7x ESTIMATE`, or a dash when there is no score; where it is wide, with the interval."""
    if row.score is None:
        return "-"
    kind = "measured" if row.kind == TimingKind.MEASURED.value else "ESTIMATE"
    interval = f" ({digits(row.interval[0])} to {digits(row.interval[1])})" if wide and row.interval else ""
    return f"{digits(row.score)}x{interval} {kind}" + (f", {row.comparison}" if row.comparison and row.comparison != "faster" else "")


def size_table(rows: Iterable[SizeRow], width: int) -> Table:
    """One row per size that the best kernel must be right at: what was found there, and the score where a time was taken."""
    gap = 2 if width >= _LOOSE else 1
    table = Table(title="Sizes", title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column("size", overflow="fold")
    table.add_column("proof", overflow="fold")
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("score", overflow="fold")
    for row in rows:
        table.add_row(row.size, row.proof or "not tried", "-" if row.median_ms is None else _milliseconds(row.median_ms), row.words)
    return table


def candidate_table(
    rows: Iterable[CandidateRow], width: int, winner: str | None = None, title: str | None = None, *, fold: bool = True
) -> Table:
    """One row per candidate: who wrote what from which, verdict, score and time in ms (of the same kind as the score), and tokens if any.

    From 120 columns on also the share of its floor that each reaches, the launches, the parent, the interval of the score, and what the
    author meant by it; without `fold` each row is one line. Where there is too little room, stage and verdict are cut and every figure
    stays whole.
    """
    rows = list(rows)
    wide, tokens = width >= _WIDE, any(row.tokens for row in rows)
    gap = 2 if width >= _LOOSE else 1
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column("candidate", no_wrap=True)
    if wide:
        table.add_column("from", no_wrap=True)
    table.add_column("stage", overflow="ellipsis")
    table.add_column("verdict", overflow="ellipsis")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    floors = wide and any(row.floor_share is not None for row in rows)
    if floors:
        table.add_column("floor", justify="right", no_wrap=True)
    if tokens:
        table.add_column("tokens", justify="right", no_wrap=True)
    if wide:
        table.add_column("launches", justify="right", no_wrap=True)
        table.add_column("what it is", overflow="fold" if fold else "ellipsis", no_wrap=not fold)
    for row in rows:
        launches = str(row.launches_per_forward) if row.launches_per_forward else "-"
        time = _milliseconds(row.median_ms) if row.median_ms is not None else "-"
        cells: list[str | Text] = [row.id, row.parent or "-"] if wide else [row.id]
        cells += [Text(row.stage, no_wrap=True), _verdict_cell(row, wide), row_score(row, wide=wide), time]
        cells += [_floor_cell(row)] if floors else []
        cells += [f"{row.tokens:,}" if row.tokens else "-"] if tokens else []
        cells += [launches, row.rationale or row.recipe] if wide else []
        table.add_row(*cells, style="bold" if row.id == winner else None)
    return table


def _floor_cell(row: CandidateRow) -> str:
    """`62 % bytes`: the share of its floor that a kernel reaches, and what sets the floor."""
    return "-" if row.floor_share is None else f"{100 * row.floor_share:.0f} % {row.floor_limit}"


def _verdict_cell(row: CandidateRow, wide: bool) -> Text:
    if row.not_allowed and not wide:
        return Text("may not win", "yellow", no_wrap=True)
    held = Text(f" ({row.label or 'held'}: may not win)", "yellow") if row.not_allowed else ""
    return Text.assemble(_colour_status(row.status), held, no_wrap=True)


def decision_lines(decisions: Iterable[Decision]) -> list[str]:
    """Per decision one line with branch, gate, candidate, choice and reason."""
    rows = [(d.branch, d.gate or d.site, d.candidate or "", d.choice, d.reason) for d in decisions]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    return ["  ".join([f"{text:<{width}}" for text, width in zip(row[:4], widths, strict=True)] + [row[4]]) for row in rows]


def decision_grid(decisions: Iterable[Decision], width: int) -> RenderableType:
    """The same for a terminal: reasons are folded into a column of their own, or stand below where that column would be narrow."""
    decisions = list(decisions)
    if width < _LOOSE:
        without = (d.model_copy(update={"reason": ""}) for d in decisions)
        pairs = zip(decision_lines(without), decisions, strict=True)
        return Group(*(part for line, d in pairs for part in (line.rstrip(), Padding(d.reason, _BELOW))))
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for d in decisions:
        grid.add_row(d.branch, d.gate or d.site, d.candidate or "", d.choice, d.reason)
    return grid


def verdict_table(verdicts: Iterable[tuple[str, Verdict | str]]) -> Table:
    """One row per kernel file: its verdict, score and time, and why it is refused; or the reason why it has no verdict."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("kernel", "verdict", "score", "ms", "why"):
        table.add_column(name, justify="right" if name in ("score", "ms") else "left", overflow="fold", no_wrap=name != "why")
    for name, verdict in verdicts:
        if isinstance(verdict, str):
            table.add_row(name, Text("not judged", "red"), "-", "-", verdict)
            continue
        status = Text.assemble(_colour_status(verdict.status.value), f" ({verdict.label.value})" if verdict.label else "")
        timing = verdict.timing if verdict.status is Status.OK else None
        score = describe_comparison(timing) if timing else "-"
        why = " ".join((verdict.quarantine if verdict.status is Status.OK else verdict.message).split())
        table.add_row(name, status, score, _milliseconds(timing.median_ms) if timing else "-", why)
    return table


def verdict_lines(verdict: Verdict) -> list[Text]:
    """A verdict as labelled lines."""
    status = Text.assemble("status    ", _colour_status(verdict.status.value), f" ({verdict.label.value})" if verdict.label else "")
    held = [Text.assemble(("quarantine", "yellow"), f" {verdict.quarantine}")] if verdict.quarantine else []
    message = [f"message   {verdict.message}"] if verdict.message else []
    return [status, *held, *map(Text, (*_figure_lines(verdict), *message, *_fact_lines(verdict)))]


def _figure_lines(verdict: Verdict) -> list[str]:
    """Times and errors; they stand before the words about them."""
    lines: list[str] = []
    if verdict.timing and verdict.status is Status.OK:
        lines += _timing_lines(verdict.timing)
    if verdict.correctness:
        found = verdict.correctness
        lines.append(
            f"error     {found.err_vs_oracle:.2e} of the float64 oracle (the reference's own: {found.reference_err_vs_oracle:.2e}); "
            f"max {found.max_abs_err:.2e}, mean {found.mean_abs_err:.2e}, {count_words(found.trials, 'trial')}"
        )
        lines.append(f"precision {found.precision_class.value if found.precision_class else 'none is met'}")
        if found.fell_on:
            lines.append(f"fell on   {found.fell_on}. A caller has to have such values for the kernel to be wrong in this way")
    if call := verdict.environment.get("call"):
        lines.append(f"call      {call}: gradients are judged by the same rule, and all times are of both together")
    if verdict.environment.get("mode") == "train":
        lines.append("mode      train: batch statistics, and the buffers that forward updates are compared too")
    return lines


def _fact_lines(verdict: Verdict) -> list[str]:
    """What was launched, called and noticed, and on which card."""
    lines: list[str] = []
    if verdict.facts.kernels or verdict.facts.launches_per_forward:
        lines.append(f"launches  {verdict.facts.launches_per_forward} per forward")
        lines += [f"          {_kernel_text(kernel)}" for kernel in verdict.facts.kernels]
    lines += _counter_lines(verdict.facts.counters) if verdict.facts.counters else []
    if verdict.facts.library_calls:
        calls = ", ".join(f"{name} x{count}" for name, count in verdict.facts.library_calls.items())
        lines.append(f"library   {calls}")
    lines += [f"advice    {line}" for line in verdict.advice]
    if verdict.environment.get("kept"):
        lines.append(f"kept      measured before, on {verdict.environment['kept']}; --fresh measures again")
    if verdict.environment.get("size"):
        lines.append(f"size      {verdict.environment['size']}")
    card = verdict.environment.get("card")
    target = verdict.environment.get("target")
    if card or target:
        lines.append(f"card      {card or f'none here; figures are for {target}'}")
    return lines


def _counter_lines(counters: Counters) -> list[str]:
    """What Nsight Compute counted, or what stands for it and why."""
    name = "Nsight Compute" if counters.source == "ncu" else "from compiling and counting"
    shares = {"bandwidth": counters.bandwidth_share, "arithmetic": counters.operations_share}
    achieved = ", ".join(f"{value:.1f} % of the card's {what}" for what, value in shares.items() if value is not None)
    lines = [f"counters  {name}{f': {achieved} achieved' if achieved else ''}"]
    lines += [f"          {kernel.name}: {kernel.words}" for kernel in counters.kernels if kernel.words]
    return lines + ([f"          {counters.reason}"] if counters.reason else [])


def _colour_status(status: str) -> Text:
    colour = {Status.OK.value: "green", "...": "dim", "not evaluated": "dim"}.get(status, "red")
    return Text(status, colour)


def _timing_lines(timing: Timing) -> list[str]:
    found, name = (timing.interval, "95 % interval") if timing.interval else (timing.band, "band")
    interval = f", {name} {found[0]:.3f} to {found[1]:.3f}" if found else ""
    baselines = ", ".join(f"{name} {_milliseconds(value)}" for name, value in timing.baselines_ms.items())
    kind = " (measured)" if timing.kind is TimingKind.MEASURED else ""
    lines = [
        f"score     {describe_comparison(timing)}{kind}{interval}; {digits(timing.score_eager)}x eager",
        f"time      {_milliseconds(timing.median_ms)} ms; baselines in ms: {baselines}",
    ]
    if timing.form_words:
        lines.append(f"form      {timing.form_words}")
    if timing.control is not None:
        lines.append(f"control   {_ratio(timing.control)} for the baseline against itself")
    if len(timing.sessions) > 1:
        lines.append(f"sessions  {'; '.join(map(_ratio, timing.sessions))}, each in fresh processes")
    if timing.device_ms is not None:
        seen = f", {_milliseconds(timing.wall_ms)} ms by the oracle's" if timing.wall_ms is not None else ""
        lines.append(f"clocks    {_milliseconds(timing.device_ms)} ms by the card's own{seen}")
    if timing.floor_ms is not None:
        lines.append(f"believed  from {_milliseconds(timing.floor_ms)} ms on: no kernel of this card can be faster")
    if timing.floor is not None:
        bounds = ", ".join(f"{name} {_milliseconds(value)}" for name, value in timing.floor.parts.items())
        estimate = " ESTIMATE" if timing.kind is TimingKind.ESTIMATED else ""
        lines.append(f"floor     {timing.floor.words}{estimate}; lower bounds in ms: {bounds}")
    return lines + [f"note      {note}" for note in timing.notes]


def _ratio(found: Measurement) -> str:
    return f"{found.ratio:.3f}x ({found.interval[0]:.3f} to {found.interval[1]:.3f}, {count_words(found.pairs, 'pair')})"


def _kernel_text(kernel: KernelFacts) -> str:
    facts = [
        f"{kernel.launches} x {kernel.name}",
        f"grid {'x'.join(map(str, kernel.grid))}",
        count_words(kernel.num_warps, "warp") if kernel.num_warps else "",
        count_words(kernel.registers, "register") if kernel.registers is not None else "",
        f"{kernel.spills} B spilled" if kernel.spills else "",
        f"{kernel.shared_memory} B shared" if kernel.shared_memory is not None else "",
        f"{kernel.resident} {'fits' if kernel.resident == 1 else 'fit'} at once" if kernel.resident is not None else "",
    ]
    return ", ".join(fact for fact in facts if fact)


def _milliseconds(value: float) -> str:
    return f"{value:.4g}"
