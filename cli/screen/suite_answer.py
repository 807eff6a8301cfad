"""A suite from its plan to its answer on the screen: progress, one page per task, the table, and the exit code."""

from __future__ import annotations

import threading
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from tritonsmith.cli.options import choose_page, err, out, print_json
from tritonsmith.cli.screen.answer import WAITS, write_page
from tritonsmith.cli.screen.suite_progress import open_suite_progress
from tritonsmith.graph.storage.outcome import count_words, digits
from tritonsmith.graph.storage.summary import SUMMARY
from tritonsmith.graph.suites.folder import row_of
from tritonsmith.graph.suites.records import RowState, SuitePlan, SuiteResults, SuiteRow
from tritonsmith.graph.suites.run import optimize_suite

_FILE_WIDTH = 180
"""Columns of tables that go to a file or a pipe."""
_FILES = {
    "report.html": "this table as a page, with a link to each task's own",
    "results.json": "the same for a program",
    "results.csv": "a row per task",
    "tasks": "every run's folder, with best.py and report.html",
}


def carry_out(plan: SuitePlan, root: Path, *, must_be_faster: bool = False, as_json: bool = False) -> None:
    """Run what is missing of a suite, and answer. Ends the command with its exit code."""
    finished = sum(row_of(task, root).state is RowState.DONE for task in plan.tasks)
    at_once = f"{plan.parallel} at a time" if plan.parallel else f"{plan.each_card} at a time for each card"
    limits = f"{at_once}, {count_words(plan.model_calls, 'request')} to models at a time"
    planned = f"{count_words(len(plan.tasks), 'task')}, {finished} of them finished"
    err.print(f"{planned}; {limits}. Stopped or killed, go on with: tritonsmith resume {root}")
    drawing = threading.Lock()
    with open_suite_progress(err, len(plan.tasks), finished) as progress:

        def end_task(row: SuiteRow) -> None:
            if (root / row.folder / SUMMARY).is_file():
                with drawing:  # the library that draws charts is not made for threads
                    write_page(root / row.folder)
            progress.on_row(row)

        results = optimize_suite(plan, root, on_event=progress.on_event, on_row=end_task)
    write_page(root)
    if as_json:
        print_json(results)
    else:
        show_suite(results, root)
    raise typer.Exit(suite_exit_code(results, must_be_faster=must_be_faster))


def suite_exit_code(results: SuiteResults, *, must_be_faster: bool = False) -> int:
    """3 while a task waits; else 0 where each has a right kernel, or a FASTER one where it must be; else 1."""
    if any(row.state is RowState.WAITING for row in results.rows):
        return WAITS
    enough = all(
        row.state is RowState.DONE and (
            row.outcome == "faster" if must_be_faster else row.score is not None or row.outcome == "kept"
        ) for row in results.rows
    )
    return 0 if enough else 1


def show_suite(results: SuiteResults, root: Path) -> None:
    """Print the table of all tasks, what failed, and where the files are."""
    out.print(Text(results.headline, style="bold"))
    page = choose_page(_FILE_WIDTH)
    page.print(suite_table(results), soft_wrap=False)
    if results.mean_words:
        out.print(results.mean_words)
    used = sum(row.tokens for row in results.rows), sum(row.money for row in results.rows)
    out.print(f"Candidates: {sum(row.candidates for row in results.rows)}; tokens: {used[0]:,}; dollars: {used[1]:.4f}.")
    for row in results.rows:
        if row.state in (RowState.FAILED, RowState.WAITING):
            out.print(f"{row.state.value.capitalize()}: {row.task}: {row.reason}")
    if any(row.state is not RowState.DONE for row in results.rows):
        out.print(f"Go on, and try failed tasks again: tritonsmith resume {root}")
    out.print("Files:")
    for name, what in _FILES.items():
        if (root / name).exists():
            out.print(f"  {root / name}  {what}")


def suite_table(results: SuiteResults) -> Table:
    """One row per task."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("task", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for name in ("score", "ms", "baseline ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("against", "label"):
        table.add_column(name, no_wrap=True)
    for name in ("candidates", "s", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in results.rows:
        table.add_row(*suite_cells(row))
    return table


def suite_cells(row: SuiteRow) -> list[str]:
    """The cells of one row, as the screen and the page show them."""
    kind = "measured" if row.kind == "measured" else "ESTIMATE"
    against = f"{row.baseline}, of {row.baselines}" if row.baselines else row.baseline or "-"
    return [
        row.task, row.outcome.replace("_", " ") if row.state is RowState.DONE else row.state.value,
        f"{digits(row.score)}x {kind}" if row.score is not None else "-",
        f"{row.median_ms:.4g}" if row.median_ms is not None else "-", f"{row.baseline_ms:.4g}" if row.baseline_ms is not None else "-",
        against, row.label or "-", str(row.candidates), f"{row.seconds:.0f}", f"{row.tokens:,}" if row.tokens else "-",
    ]  # fmt: skip
