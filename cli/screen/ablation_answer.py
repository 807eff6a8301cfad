"""What `tritonsmith ablate` prints: the plan, each finished run, and the tables at the end."""

from pathlib import Path

from rich.console import Console

from tritonsmith.benchmarks.ablation.cells import cells_of
from tritonsmith.benchmarks.ablation.schema import Ablation, AblationPlan, CellRow, CellState
from tritonsmith.cli.options import choose_page, err, out
from tritonsmith.cli.screen.ablation_tables import cell_line, heading, plan_lines, tables_of

_FILE_WIDTH = 180
"""Columns of tables that go to a file or a pipe."""

_FILES = {
    "report.html": "tables and plots in one page",
    "ablation.json": "every table",
    "runs.csv": "a row per run",
    "plan.json": "the plan",
    "cells": "every run's folder",
}


def show_plan(plan: AblationPlan, root: Path, page: Console) -> None:
    """Print what will be run, and how much of it is done."""
    cells = cells_of(plan)
    for line in plan_lines(plan, sum(cell.state(root) is CellState.DONE for cell in cells), len(cells)):
        page.print(line)


def print_row(row: CellRow, finished: int, total: int) -> None:
    """Print one finished run."""
    err.print(cell_line(row, finished, total))


def show_tables(tables: Ablation, root: Path) -> None:
    """Print every table, what failed, and where the files are."""
    out.print(f"\n{heading(tables)}", style="bold")
    page = choose_page(_FILE_WIDTH)
    for table in tables_of(tables):
        page.print()
        page.print(table, soft_wrap=False)
    out.print()
    for note in tables.notes:
        out.print(note)
    for row in tables.cells:
        if row.state is CellState.FAILED:
            out.print(f"Failed: {row.task} {row.policy} repeat {row.repeat}: {row.reason}")
    out.print("Files:")
    for name, what in _FILES.items():
        out.print(f"  {root / name}  {what}")
