"""From the files of a run to its report."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tritonsmith.cli.report.run.command import reproduce
from tritonsmith.cli.report.run.reading import RunFiles, run_config
from tritonsmith.cli.report.run.records import Change, Point, RunReport, RunState, Tone
from tritonsmith.evaluator.schema import TimingKind, Verdict
from tritonsmith.graph.state import Usage
from tritonsmith.graph.storage.outcome import RunOutcome, describe_comparison
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.nodes.chat.ledger import sum_of
from tritonsmith.nodes.chat.records import UsageRow


def build_report(files: RunFiles) -> RunReport:
    """All that the pages and tables need, except for texts of kernels and conversations."""
    summary = files.summary
    verdicts = {row.id: verdict for row in summary.candidates if (verdict := files.verdict(row.id)) is not None}
    state = _state(files, summary)
    command, note = reproduce(files)
    parent = summary.parent or files.settings.get("parent")
    return RunReport(
        state=state,
        tone=_tone(summary),
        headline=_headline(summary, state),
        command=command,
        command_note=note,
        notes=(*files.problems, *_find_missing(files, summary, verdicts)),
        versions=_find_versions(files, verdicts.values()),
        recording=Path(str(run_config(files).get("replay") or "")).name,
        analysed={
            str(event["id"]): str(event.get("candidate")) for event in files.events if event.get("event") == "analysis" and event.get("id")
        },
        parent=parent if isinstance(parent, dict) else None,
        points=_find_points(files),
        changes=_find_changes(files, summary),
        times=_find_times(files),
        usage_by_model=_sum_by_model(files.rows),
        evaluation_seconds=sum(verdict.seconds for verdict in (*files.quick.values(), *files.strict.values())),
        verdicts=verdicts,
        summary=summary,
    )


def _state(files: RunFiles, summary: Summary) -> RunState:
    if summary.waits_for and files.finished:
        return RunState.WAITING
    return RunState.FINISHED if files.finished else RunState.UNFINISHED


def _tone(summary: Summary) -> Tone:
    if summary.outcome is RunOutcome.FASTER:
        return Tone.PROVEN if summary.kind == TimingKind.MEASURED.value else Tone.ESTIMATE
    tones = {
        RunOutcome.KEPT: Tone.KEPT, RunOutcome.RIGHT: Tone.ESTIMATE,
        RunOutcome.NOT_CONFIRMED: Tone.OPEN, RunOutcome.WAITING: Tone.WAITING,
    }  # fmt: skip
    return tones.get(summary.outcome, Tone.NONE)


def _headline(summary: Summary, state: RunState) -> str:
    if state is not RunState.UNFINISHED:
        return summary.answer
    timing = summary.best.verdict.timing if summary.best else None
    return f"Best so far {describe_comparison(timing)}" if timing else "No working candidate so far"


def _find_missing(files: RunFiles, summary: Summary, verdicts: dict[str, Verdict]) -> Iterable[str]:
    if not files.events:
        yield "The folder has no events.jsonl, so the chart over time and the times of decisions are missing."
    if summary.candidates and not any(files.kernel(row.sha) for row in summary.candidates):
        yield "The folder has no kernel texts, so there are no diffs."
    judged = [row.id for row in summary.candidates if row.status != "not evaluated"]
    without = [candidate for candidate in judged if candidate not in verdicts]
    if without:
        yield f"{len(without)} of {len(judged)} verdicts are not in the folder; facts of those kernels are missing."
    if summary.usage.calls and not files.calls:
        yield "The folder has no prompts and replies."


def _find_points(files: RunFiles) -> tuple[Point, ...]:
    stages = {row.id: row.stage for row in files.summary.candidates}
    points: dict[str, Point] = {}
    best: float | None = None
    for event, seconds in zip(files.events, files.seconds, strict=True):
        candidate = str(event.get("candidate"))
        if event.get("event") != "verdict" or event.get("profile") == "strict" or candidate in points or candidate not in stages:
            continue
        score = event.get("score") if isinstance(event.get("score"), int | float) else None
        if score is not None and not event.get("not_allowed"):
            best = max(best or 0.0, score)
        points[candidate] = Point(
            candidate=candidate, stage=stages[candidate], seconds=round(seconds, 3), status=str(event.get("status")), score=score, best=best
        )
    return tuple(points.values())


def _find_times(files: RunFiles) -> dict[str, float]:
    """When each decision was taken first; a run that waited takes its steps once more."""
    times: dict[str, float] = {}
    for event, seconds in zip(files.events, files.seconds, strict=True):
        if event.get("event") == "decision":
            times.setdefault(str(event.get("id")), round(seconds, 3))
    return times


def _find_changes(files: RunFiles, summary: Summary) -> dict[str, Change]:
    shas = {row.id: row.sha for row in summary.candidates}
    found: dict[str, Change] = {}
    for row in summary.candidates:
        old, new = files.kernel(shas.get(row.parent or "", "")), files.kernel(row.sha)
        if row.parent and old is not None and new is not None:
            lines = diff_lines(old, new)
            found[row.id] = Change(parent=row.parent, added=_count(lines, "+"), removed=_count(lines, "-"))
    return found


def diff_lines(old: str, new: str) -> list[str]:
    """The lines of a unified diff without its two file headers; empty for equal texts."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=3, lineterm=""))[2:]


def _count(lines: Sequence[str], sign: str) -> int:
    return sum(line.startswith(sign) for line in lines)


def _sum_by_model(rows: Sequence[UsageRow]) -> dict[str, Usage]:
    table: dict[str, list[UsageRow]] = {}
    for row in rows:
        table.setdefault(row.model or "unnamed", []).append(row)
    return {name: sum_of(lines).model_copy(update={"stage": "", "role": ""}) for name, lines in table.items()}


def _find_versions(files: RunFiles, verdicts: Iterable[Verdict]) -> dict[str, str]:
    found: dict[str, str] = {}
    for versions in (files.settings.get("versions"), *(verdict.environment.get("versions") for verdict in verdicts)):
        if isinstance(versions, dict):
            found |= {str(name): str(version) for name, version in versions.items()}
    return found
