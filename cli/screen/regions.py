"""What each part of the best kernel takes, as the screen tells it."""

from __future__ import annotations

from rich.table import Table

from tritonsmith.cli.report.run.regions import MORE, REGION_COLUMNS, list_regions, tell_rest
from tritonsmith.graph.storage.summary import Summary

_MOST = 8
"""Rows on the screen; the page and summary.json have all."""


def region_table(summary: Summary) -> Table | None:
    """The parts that take longest, in forward's order; None where there is one part or none."""
    rows = list_regions(summary, _MOST)
    if len(summary.regions) < 2:  # noqa: PLR2004 - one part is the whole kernel
        return None
    rest = tell_rest(summary, _MOST, MORE)
    table = Table(title="What each part takes", title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0),
                  caption=rest or None, caption_justify="left")  # fmt: skip
    for name in REGION_COLUMNS:
        table.add_column(name, justify="right" if name in ("launches", "before", "ms", "at least") else "left", no_wrap=name != "why")
    for row in rows:
        table.add_row(*row)
    return table
