"""Tables that scripts write into pages, each between two marks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def run_page_script(words: Sequence[str], usage: str, page: Path, tables: Sequence[str]) -> int:
    """Print the tables, or write them into their page; returns the exit code, 2 for other words.

    Args:
        words: of the command: none, or `--write`.
        usage: what is said for other words.
        page: where the tables stand.
        tables: each begins and ends with a mark, a line of its own that the page has too.
    """
    if list(words) not in ([], ["--write"]):
        sys.stderr.write(f"{usage}\n")
        return 2
    text = page.read_text(encoding="utf-8")
    for table in tables:
        lines = table.splitlines()
        text = text.partition(lines[0])[0] + table + text.partition(lines[-1])[2]
        if not words:
            sys.stdout.write(table + "\n")
    if words:
        page.write_text(text, encoding="utf-8")
    return 0
