"""Writes the report of a run, of a suite or of an experiment into its folder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tritonsmith.cli.report.ablation.page import ablation_csv, ablation_markdown, ablation_page, is_ablation, read_ablation
from tritonsmith.cli.report.ablation.views import headline
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.report.run.build import build_report
from tritonsmith.cli.report.run.markdown import run_markdown
from tritonsmith.cli.report.run.pages import run_page
from tritonsmith.cli.report.run.reading import read_run
from tritonsmith.cli.report.run.tables import candidates_csv, decisions_csv, searches_csv
from tritonsmith.cli.report.suite.page import is_suite, read_results, suite_csv, suite_markdown, suite_page
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.storage.files import put_text

Texts = dict[str, Callable[[], str]]
"""File names to what makes their texts."""
_FORMS = {".html": Form.HTML, ".md": Form.MARKDOWN, ".csv": Form.CSV, ".json": Form.JSON}


@dataclass(frozen=True)
class ReportFiles:
    """A report, and the files it may be written to."""

    headline: str
    record: Record
    """What `report.json` holds."""
    texts: Texts


def load_report(folder: Path) -> ReportFiles:
    """The report of a run, of a suite or of an experiment. Raises UsageError when the folder is none of them."""
    if is_suite(folder):
        return _load_suite(folder)
    return _load_ablation(folder) if is_ablation(folder) else _load_run(folder)


def _load_run(folder: Path) -> ReportFiles:
    files = read_run(folder)
    report = build_report(files)
    texts: Texts = {
        "report.html": lambda: run_page(files, report),
        "report.md": lambda: run_markdown(report),
        "candidates.csv": lambda: candidates_csv(report),
        "decisions.csv": lambda: decisions_csv(report),
        **({"searches.csv": lambda: searches_csv(report)} if report.summary.searches else {}),
        "report.json": lambda: report.model_dump_json(indent=1) + "\n",
    }
    return ReportFiles(report.headline, report, texts)


def _load_ablation(folder: Path) -> ReportFiles:
    tables = read_ablation(folder)
    texts: Texts = {
        "report.html": lambda: ablation_page(tables, folder),
        "report.md": lambda: ablation_markdown(tables),
        "report.json": lambda: tables.model_dump_json(indent=1) + "\n",
    }
    return ReportFiles(headline(tables), tables, texts | {name: partial(str, text) for name, text in ablation_csv(tables).items()})


def _load_suite(folder: Path) -> ReportFiles:
    results = read_results(folder)
    texts: Texts = {
        "report.html": lambda: suite_page(results, folder),
        "report.md": lambda: suite_markdown(results),
        "results.csv": lambda: suite_csv(results),
        "report.json": lambda: results.model_dump_json(indent=1) + "\n",
    }
    return ReportFiles(results.headline, results, texts)


def write_report(folder: Path, form: Form = Form.ALL, out: Path | None = None) -> list[Path]:
    """Write the files of one form, or of all; `out` is another folder, or the file for a form that is one file.

    Returns their paths. Raises UsageError when the folder is no run's, suite's or experiment's, or a file cannot be written.
    """
    return write_texts(load_report(folder).texts, folder, form, out)


def write_texts(texts: Texts, folder: Path, form: Form, out: Path | None) -> list[Path]:
    """Make and write the texts of one form. Raises UsageError when a file cannot be written."""
    chosen = [name for name in texts if form is Form.ALL or _FORMS[Path(name).suffix] is form]
    if out is not None and len(chosen) == 1 and not out.is_dir():
        return list(_write_all([(out, texts[chosen[0]])]))
    return list(_write_all([((out or folder) / name, texts[name]) for name in chosen]))


def _write_all(files: Iterable[tuple[Path, Callable[[], str]]]) -> Iterable[Path]:
    for path, make in files:
        text = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            put_text(path, text)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror}); name another place with --out") from error
        yield path
