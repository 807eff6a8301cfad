"""The report of an experiment: its tables, its charts and a link to each run's own page."""

from pathlib import Path

from pydantic import ValidationError

from tritonsmith.benchmarks.ablation.runner import retabulate
from tritonsmith.benchmarks.ablation.schema import Ablation
from tritonsmith.cli.report.ablation.charts import charts
from tritonsmith.cli.report.ablation.views import facts, flatten, headline, sentences, sheets, size
from tritonsmith.cli.report.run.markdown import render_markdown
from tritonsmith.cli.report.run.pages import render
from tritonsmith.cli.report.run.tables import csv_text
from tritonsmith.cli.report.run.views import score_text
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.files import fault_of

_TABLES = "ablation.json"


def is_ablation(folder: Path) -> bool:
    """Whether an experiment lies in a folder."""
    return (folder / _TABLES).is_file() or (folder / "plan.json").is_file()


def read_ablation(folder: Path) -> Ablation:
    """The tables of an experiment; made anew where only its plan is there. Raises UsageError."""
    path = folder / _TABLES
    if not path.is_file():
        return retabulate(folder)
    try:
        return Ablation.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path}: cannot be read ({fault_of(error)}); remove it, and run tritonsmith report {folder} again") from error


def ablation_page(tables: Ablation, folder: Path) -> str:
    """The page of these tables; runs are linked where their pages are."""
    pages = [f"{row.folder}/report.html" if row.folder and (folder / row.folder / "report.html").is_file() else "" for row in tables.cells]
    words = {"headline": headline(tables), "lines": sentences(tables), "facts": facts(tables), "size": size(tables)}
    return render(
        "ablation.html.j2", tables=tables, sheets=sheets(tables), charts=charts(tables), pages=pages,
        score=lambda score, kind, comparison: score_text(score, kind, comparison or None), **words,
    )  # fmt: skip


def ablation_markdown(tables: Ablation) -> str:
    """The same tables as Markdown."""
    return render_markdown(
        "ablation.md.j2", tables=tables, headline=headline(tables), lines=sentences(tables), facts=facts(tables), sheets=sheets(tables)
    )


def ablation_csv(tables: Ablation) -> dict[str, str]:
    """Every table by its file name, but for `runs.csv`, which the experiment writes itself."""
    fast = (point.model_copy() for curve in tables.fast for point in curve.points)
    found: dict[str, list[dict[str, object]]] = {
        "policies.csv": flatten(tables.policies),
        "tasks.csv": flatten(tables.tasks),
        "fast_p.csv": [
            {"policy": policy, **row}
            for policy, row in zip((curve.policy for curve in tables.fast for _ in curve.points), flatten(fast), strict=True)
        ],
        "pairs.csv": flatten(tables.pairs),
        "attribution.csv": flatten(tables.attribution),
        "tuning.csv": flatten(tables.tuning),
        "seeds.csv": flatten(tables.seeds),
        "costs.csv": flatten(tables.costs),
    }
    return {name: csv_text(tuple(dict.fromkeys(key for row in rows for key in row)), rows) for name, rows in found.items() if rows}
