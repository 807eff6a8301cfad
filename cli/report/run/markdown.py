"""A report as Markdown that reads well in a pull request. Texts from elsewhere stay texts: no links, no mentions, no markup."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.cli.report.run.pages import headline_lines, model_cost
from tritonsmith.cli.report.run.records import RunReport
from tritonsmith.cli.report.run.regions import MORE, list_regions, tell_rest
from tritonsmith.cli.report.run.searches import search_views
from tritonsmith.cli.report.run.views import answer_facts, counter_rows, kernel_rows, score_text, turnings

_MOST_REGIONS = 60
"""Rows of the table of parts."""
_MOST = 400
"""Characters of one text in a table."""
_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&:/.@-])")


def run_markdown(report: RunReport) -> str:
    """The report of a run."""
    return render_markdown(
        "run.md.j2", report=report, lines=headline_lines(report), facts=answer_facts(report), turns=turnings(report),
        kernels=kernel_rows(report), counters=counter_rows(report), searches=search_views(report), model_cost=model_cost(report),
        score_text=score_text, kept=report.summary.kept, regions_rest=tell_rest(report.summary, _MOST_REGIONS, MORE),
        regions=list_regions(report.summary, _MOST_REGIONS) if len(report.summary.regions) > 1 else [],
        failures=[row for row in report.summary.candidates if row.status not in ("ok", "not evaluated") or row.not_allowed],
    )  # fmt: skip


def render_markdown(template: str, **parts: Any) -> str:
    """Fill a Markdown template; `| md` and `| code` make any text harmless."""
    return _load_templates().get_template(template).render(**parts).rstrip() + "\n"


def prose(text: object) -> str:
    """A text on one line in which nothing is markup, a link or a mention."""
    line = " ".join(str(text).split())
    line = line if len(line) <= _MOST else f"{line[:_MOST]} ..."
    escaped = _MEANS_SOMETHING.sub(lambda found: found[1] if found[1] in ".:/-@()+" else f"\\{found[1]}", line)
    # an invisible character keeps addresses and names from becoming links
    apart = re.sub(r"(https?|www|@)(?=[:.\w])", "\\1\N{WORD JOINER}", escaped)
    return apart.replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def code(text: object) -> str:
    """A text as code on one line, in a fence that it cannot close."""
    line = " ".join(str(text).split())[:_MOST].replace("|", "\\|")
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


@cache
def _load_templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "templates"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"md": prose, "code": code}
    return made
