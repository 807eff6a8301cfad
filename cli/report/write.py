"""Writes the report of a run or of an experiment into its folder."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tritonsmith.cli.report.build import build_report
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.report.markdown import run_markdown
from tritonsmith.cli.report.pages import run_page
from tritonsmith.cli.report.reading import read_run
from tritonsmith.cli.report.records import Report
from tritonsmith.cli.report.tables import candidates_csv, decisions_csv
from tritonsmith.evaluator.errors import UsageError

Texts = dict[str, Callable[[], str]]
"""File names to what makes their texts."""
_FORMS = {".html": Form.HTML, ".md": Form.MARKDOWN, ".csv": Form.CSV, ".json": Form.JSON}


def report_of_run(folder: Path) -> tuple[Report, Texts]:
    """The report of a run and the files it may be written to. Raises UsageError when the folder is not a run's."""
    files = read_run(folder)
    report = build_report(files)
    return report, {
        "report.html": lambda: run_page(files, report),
        "report.md": lambda: run_markdown(report),
        "candidates.csv": lambda: candidates_csv(report),
        "decisions.csv": lambda: decisions_csv(report),
        "report.json": lambda: report.model_dump_json(indent=1) + "\n",
    }


def write_report(folder: Path, form: Form = Form.ALL, out: Path | None = None) -> list[Path]:
    """Write the files of one form, or of all; `out` is another folder, or the file for a form that is one file.

    Returns their paths. Raises UsageError when the folder is not a run's or a file cannot be written.
    """
    _, texts = report_of_run(folder)
    return write_texts(texts, folder, form, out)


def write_texts(texts: Texts, folder: Path, form: Form, out: Path | None) -> list[Path]:
    """Make and write the texts of one form. Raises UsageError when a file cannot be written."""
    chosen = [name for name in texts if form is Form.ALL or _FORMS[Path(name).suffix] is form]
    if out is not None and len(chosen) == 1 and not out.is_dir():
        return list(_written([(out, texts[chosen[0]])]))
    return list(_written([((out or folder) / name, texts[name]) for name in chosen]))


def _written(files: Iterable[tuple[Path, Callable[[], str]]]) -> Iterable[Path]:
    for path, make in files:
        text = make()
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")  # so that nobody ever reads half a page
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise UsageError(f"{path}: cannot be written ({error.strerror}); name another place with --out") from error
        yield path
