"""One self-contained page: no script, no network, and a policy in the page itself that forbids both."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tritonsmith.cli.report.drawing.draw import DRAWING_RULES, draw_panels
from tritonsmith.cli.report.run.charts import score_chart
from tritonsmith.cli.report.run.reading import RunFiles
from tritonsmith.cli.report.run.records import RunReport, RunState
from tritonsmith.cli.report.run.regions import MORE, REGION_COLUMNS, list_regions, tell_rest
from tritonsmith.cli.report.run.searches import search_views
from tritonsmith.cli.report.run.texts import MOST_OF_ALL, Room, conversations
from tritonsmith.cli.report.run.views import (
    answer_facts,
    candidate_tree,
    counter_rows,
    gates,
    kernel_rows,
    library_rows,
    millis,
    seconds_text,
    turnings,
)
from tritonsmith.evaluator.schema import Comparison, TimingKind, Verdict
from tritonsmith.graph.state import Usage
from tritonsmith.graph.storage.outcome import count_words, describe_way_on, digits

_TEMPLATES = Path(__file__).parents[1] / "templates"
_SECTIONS = {
    "keep": "The fastest form", "sizes": "Sizes", "regions": "What each part takes", "score": "Score over time",
    "candidates": "Candidates", "decisions": "Decisions", "searches": "Tuning searches", "kernels": "Kernels",
    "baselines": "Baselines", "errors": "Failures", "models": "Prompts and replies", "cost": "Cost", "environment": "Environment",
    "again": "Run it again",
}  # fmt: skip
_MOST_REGIONS = 60
"""Rows of the table of parts; summary.json has all."""
_FLAT = ("date", "audit", "interpreter_audit", "card", "target")


def run_page(files: RunFiles, report: RunReport) -> str:
    """The page of a report."""
    room = Room(MOST_OF_ALL // 2)
    nodes = candidate_tree(files, report, room)
    room.left += MOST_OF_ALL // 2  # so that kernels leave room for what was said
    winner = report.summary.best
    timing = winner.verdict.timing if winner else None
    turns = turnings(report)
    parts: dict[str, Any] = {
        "nodes": nodes,
        "talks": conversations(files.calls, room),
        "turns": turns,
        "gates": gates(turns),
        "panels": draw_panels(report.summary.decisions, link=True) if turns else (),
        "kernels": kernel_rows(report),
        "libraries": library_rows(report),
        "kept": report.summary.kept,
        "regions": list_regions(report.summary, _MOST_REGIONS) if len(report.summary.regions) > 1 else [],
        "region_columns": REGION_COLUMNS,
        "regions_rest": tell_rest(report.summary, _MOST_REGIONS, MORE),
        "counters": counter_rows(report),
        "searches": search_views(report),
        "timing": timing,
        "failures": [row for row in report.summary.candidates if row.not_allowed or row.status not in ("ok", "not evaluated", "...")],
        "chart": score_chart(report.points, winner.id if winner else None, _baseline(report), _kind(report)),
        "environment": _environment_tables(report),
    }
    filled = {
        "keep": parts["kept"], "sizes": report.summary.sizes, "regions": parts["regions"],
        "score": parts["chart"], "searches": parts["searches"], "kernels": parts["kernels"], "baselines": timing,
        "errors": parts["failures"], "models": parts["talks"], "environment": parts["environment"],
    }  # fmt: skip
    sections = [(key, name) for key, name in _SECTIONS.items() if filled.get(key, True)]
    lines, facts = headline_lines(report), answer_facts(report)
    return render("run.html.j2", report=report, lines=lines, facts=facts, sections=sections, model_cost=model_cost(report), **parts)


def render(template: str, **parts: Any) -> str:
    """Fill a page's template; every value is escaped unless it is markup of our own making."""
    made = _load_templates()
    # a file of this package, with nothing of a run in it
    style = Markup(made.get_template("style.css.j2").render(drawing=Markup(DRAWING_RULES)).strip())
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    words = {"millis": millis, "seconds": seconds_text, "factor": _factor_in_words, "known": _or_dash, "dollars": _dollars}
    return made.get_template(template).render(style=style, style_hash=f"sha256-{digest}", **words, **parts)


def _factor_in_words(ratio: float) -> str:
    return f"{digits(ratio)}x faster" if ratio >= 1 else f"{digits(1 / ratio)}x slower"


def _or_dash(value: object) -> object:
    return "\N{EN DASH}" if value is None else value


@cache
def _load_templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def headline_lines(report: RunReport) -> list[str]:
    """Sentences under the headline: what it rests on, and what it does not say."""
    lines: list[str] = []
    winner = report.summary.best
    if report.state is RunState.UNFINISHED:
        lines.append("The run is not over: this page shows what its folder holds so far.")
        lines.append("If no process works on it, `tritonsmith resume` goes on.")
    if report.state is RunState.WAITING:
        way_on = describe_way_on(report.summary.waits_for, report.summary.out)
        lines.append(f"To go on, {way_on}")
    if winner is None or winner.verdict.timing is None:
        return lines + _origin(report)
    if report.summary.behind is not None:
        lines.append("A kernel below 1.0x is no result. It was found right, and lies in the folder for who wants it: "
                     f"kernels/{winner.sha}.py.")
    if winner.confirmed:
        lines.append("Confirmed in fresh processes with new seeds and the strict profile.")
    elif report.summary.behind is not None:
        lines.append("Its figure is the search's: the strict profile has more baselines, so there was nothing to confirm.")
    else:
        lines.append("NOT confirmed: the figure is the search's, and the run ended before it was measured again.")
    if winner.verdict.timing.kind is TimingKind.ESTIMATED:
        why = "two estimates by one formula are compared, and torch.compile is not among them"
        lines.append(f"An ESTIMATE: no time was measured on a card; {why}.")
        if winner.verdict.timing.said in (Comparison.SAME, Comparison.AMBIGUOUS):
            lines.append("Its band contains the baseline, so only a measurement can tell which is faster.")
    return lines + _origin(report)


def _origin(report: RunReport) -> list[str]:
    lines = []
    if report.recording:
        lines.append(f"Played from the recording {report.recording}: replies and verdicts are those of the run that was recorded.")
    if report.parent:
        lines.append(f"Forked from {report.parent.get('run')} at {report.parent.get('at')}.")
    return lines


def _baseline(report: RunReport) -> str:
    timings = [verdict.timing for verdict in report.verdicts.values() if verdict.timing is not None]
    winner = report.summary.best
    named = winner.verdict.timing if winner and winner.verdict.timing else (timings[0] if timings else None)
    return named.baseline if named else "baseline"


def _kind(report: RunReport) -> str:
    kinds = {row.kind for row in report.summary.candidates if row.kind}
    return "measured" if kinds == {TimingKind.MEASURED.value} else "ESTIMATE" if kinds == {TimingKind.ESTIMATED.value} else "both kinds"


def _dollars(used: Usage) -> str:
    if used.unpriced and not used.money:
        return "no price known"
    return f"{used.money:.4f}" + (f" and {count_words(used.unpriced, 'call')} without a price" if used.unpriced else "")


def model_cost(report: RunReport) -> str:
    """What asking models cost, in one or two sentences."""
    used = report.summary.usage
    if not used.calls and not used.retries:
        return "No model was asked."
    guessed = f" Tokens of {count_words(used.unreported, 'call')} are estimated from the length of the texts." if used.unreported else ""
    money = f"{used.money:.4f} dollars" if used.money else "no known price" if used.unpriced else "no money"
    asked = f"Models were asked {count_words(used.calls, 'time')}"
    return f"{asked}: {used.input_tokens:,} tokens read, {used.output_tokens:,} written, {money}.{guessed}"


def _environment_tables(report: RunReport) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the verdict that counts says about where it was found."""
    winner = report.summary.best
    verdict: Verdict | None = winner.verdict if winner else next(iter(report.verdicts.values()), None)
    environment = verdict.environment if verdict else {}
    found: list[tuple[str, list[tuple[str, str]]]] = []
    flat = [(name, str(environment[name])) for name in _FLAT if environment.get(name) and not isinstance(environment[name], dict)]
    if flat:
        found.append(("Where", flat))
    for name, value in environment.items():
        if isinstance(value, dict):
            found += _flatten_table(name, value)
    return [(title, rows) for title, rows in found if rows]


def _flatten_table(name: str, table: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    flat = [(key, _plain(value)) for key, value in table.items() if key not in inner and value not in (None, [], "")]
    title = name.replace("_", " ").capitalize()
    below = [(f"{title}: {key}", [(place, _plain(entry)) for place, entry in value.items()]) for key, value in inner.items()]
    return [(title, flat), *below]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
