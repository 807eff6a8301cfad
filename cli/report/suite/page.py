"""The page of a suite: one table, with a link to each task's own page."""

from pathlib import Path

from pydantic import ValidationError

from tritonsmith.cli.report.run.markdown import render_markdown
from tritonsmith.cli.report.run.pages import render
from tritonsmith.cli.report.run.views import score_text
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.files import fault_of
from tritonsmith.graph.suites.folder import RESULTS, collect_results, is_suite, read_suite
from tritonsmith.graph.suites.records import RowState, SuiteResults, SuiteRow, results_csv

__all__ = ["is_suite", "read_results", "suite_csv", "suite_markdown", "suite_page"]


def read_results(folder: Path) -> SuiteResults:
    """The rows of a suite as they are now; they are collected anew. Raises UsageError."""
    try:
        return collect_results(read_suite(folder), folder)
    except ValidationError as error:
        raise UsageError(f"{folder / RESULTS}: cannot be made ({fault_of(error)}); remove the run that it names") from error


def suite_page(results: SuiteResults, folder: Path) -> str:
    """The page of these rows; tasks are linked where their pages are."""
    pages = [f"{row.folder}/report.html" if (folder / row.folder / "report.html").is_file() else "" for row in results.rows]
    return render(
        "suite.html.j2", results=results, pages=pages, lines=_sentences(results), facts=_facts(results), score=_score,
        ended=_describe_end,
    )  # fmt: skip


def suite_markdown(results: SuiteResults) -> str:
    """The same table as Markdown."""
    return render_markdown(
        "suite.md.j2", results=results, lines=_sentences(results), facts=_facts(results), score=_score, ended=_describe_end
    )


def suite_csv(results: SuiteResults) -> str:
    """The rows as CSV."""
    return results_csv(results)


def _score(row: SuiteRow) -> str:
    return str(score_text(row.score, row.kind, row.comparison or None))


def _describe_end(row: SuiteRow) -> str:
    """How a task ended in words, with the reason where there is one."""
    word = row.outcome.replace("_", " ") if row.state is RowState.DONE else row.state.value
    return f"{word}: {row.reason}" if row.reason else word


def _sentences(results: SuiteResults) -> list[str]:
    lines = [f"{number} {word}." for word, number in results.counts.items()]
    if results.mean_words:
        lines.append(results.mean_words)
    return [" ".join(lines)]


def _facts(results: SuiteResults) -> list[tuple[str, str]]:
    plan, rows = results.plan, results.rows
    facts = [("tasks", str(len(rows))), ("candidates", str(sum(row.candidates for row in rows)))]
    facts += [("author", str(plan.settings.get("model", ""))), ("policy", str(plan.settings.get("policy", "")))]
    if plan.card:
        facts.append(("card", f"{plan.card} ({plan.kind})"))
    if tokens := sum(row.tokens for row in rows):
        facts.append(("tokens", f"{tokens:,}"))
    if money := sum(row.money for row in rows):
        facts.append(("dollars", f"{money:.4f}"))
    return facts
