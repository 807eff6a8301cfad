"""The answer of a run on the screen, and its page."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from tritonsmith.cli.options import (
    err,
    out,
    print_json,
)
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.screen.tables import candidate_table, decision_grid, decision_lines, verdict_lines
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.nodes.chat.handoff import REPLY

_INDENT = (0, 0, 0, 2)
"""Padding of what stands below a heading: top, right, bottom, left."""
_FILE_WIDTH = 160
"""Columns where the answer does not go to a terminal."""


def answer(summary: Summary, as_json: bool) -> None:
    """The end of a run, its page, and its exit code."""
    write_page(Path(summary.out))
    if as_json:
        print_json(summary)
    else:
        show(summary)
    raise typer.Exit(0 if summary.winner else 1)


def write_page(folder: Path) -> None:
    """Write report.html; a page that cannot be written only gives a line on stderr."""
    from tritonsmith.cli.report.write import write_report  # noqa: PLC0415  (matplotlib would slow every other command)

    try:
        write_report(folder, Form.HTML)
    except UsageError as error:
        err.print(f"No report was written: {error}", markup=False)


def show(summary: Summary) -> None:
    """The end of a run for a reader: the way it took, every candidate, the winner, and where the files are."""
    out.print(f"\n[bold]The way it took[/] (policy {summary.policy}, author {summary.model})")
    if out.is_terminal:
        out.print(Padding(decision_grid(summary.decisions), _INDENT), soft_wrap=False)
    else:
        for line in decision_lines(summary.decisions):
            out.print(f"  {line}")
    out.print()
    page = out if out.is_terminal else Console(width=_FILE_WIDTH)
    table = candidate_table(summary.candidates, page.width, summary.winner.id if summary.winner else None, title="Candidates")
    page.print(table, soft_wrap=False)
    out.print()
    if summary.winner:
        proof = "confirmed in fresh processes with new seeds" if summary.winner.confirmed else "NOT confirmed: the run ended before"
        out.print(f"[bold green]Winner {summary.winner.id}[/] ({summary.winner.stage}; {proof})")
        out.print(f"[bold]{escape(summary.winner.result)}[/]")
        for line in verdict_lines(summary.winner.verdict):
            if out.is_terminal:
                out.print(Padding(Text.from_markup(line), _INDENT), soft_wrap=False)
            else:
                out.print(f"  {line}")
    elif summary.waits_for:
        _show_waiting(summary)
    else:
        out.print("[bold red]No candidate was accepted.[/]")
    for row in summary.candidates:
        if row.not_allowed:
            out.print(f"Not allowed to win (--allow {summary.allow}): {row.id}: {row.not_allowed}", markup=False)
    if summary.stopped_because and not summary.waits_for:
        out.print(f"Stopped because: {summary.stopped_because}", markup=False)
    if summary.kind == "estimated":
        out.print(f"Scores are ESTIMATES for {summary.target} (two estimates by one formula); no time was measured on a card.")
    elif summary.kind == "measured":
        out.print(f"Scores were measured on {summary.target}.")
    _show_files(Path(summary.out), summary)


def _show_waiting(summary: Summary) -> None:
    replies = [path for path in summary.waits_for if path.endswith(REPLY)]
    results = [path for path in summary.waits_for if not path.endswith(REPLY)]
    if replies:
        out.print("[bold yellow]The run waits for replies.[/] Read the request next to each, and write:")
    for path in replies:
        out.print(f"  {path}", markup=False)
    if results:
        folder = Path(results[0]).parent.parent
        out.print(f"[bold yellow]The run waits for {len(results)} evaluations.[/]")
        out.print(f"  On the machine with the card: tritonsmith worker {folder} --once", markup=False)
    out.print(f"Then: tritonsmith resume {summary.out}", markup=False)


def _show_usage(summary: Summary) -> None:
    """One line about the model, and one per stage."""
    for name, used in (("The model", summary.usage), *((f"  {stage}", usage) for stage, usage in summary.usage_by_stage.items())):
        inner = f" ({used.cached_tokens} cached)" if used.cached_tokens else ""
        thought = f" ({used.reasoning_tokens} of thought)" if used.reasoning_tokens else ""
        money = f", ${used.money:.4f}" if used.money else ""
        unknown = f", {used.unpriced} without a known price" if used.unpriced else ""
        guessed = f", tokens of {used.unreported} calls estimated" if used.unreported else ""
        failed = f", {used.retries} failed tries" if used.retries else ""
        out.print(
            f"{name}: {used.calls} calls, {used.input_tokens} tokens read{inner}, {used.output_tokens} written{thought}, "
            f"{used.seconds:.0f} s{money}{unknown}{guessed}{failed}.",
            markup=False,
        )


def _show_files(folder: Path, summary: Summary) -> None:
    if summary.usage.calls or summary.usage.retries:
        _show_usage(summary)
    out.print(f"{summary.seconds:.0f} s for {len(summary.candidates)} candidates of {summary.task} ({summary.size} size). Files:")
    for name, what in (
        ("report.html", "all of this as a page that needs no network"),
        ("best.py", "the winner, complete in itself"),
        ("summary.json", "all of this for a program"),
        ("events.jsonl", "every step as it happened"),
        ("kernels", "every kernel text, by content"),
        ("verdicts", "every evaluation, by candidate"),
        ("llm", "every prompt and reply"),
        ("usage.csv", "what every try of a request cost"),
        ("raw", "every timing sample"),
    ):
        path = folder / name
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            out.print(f"  {path}  {what}", markup=False)
