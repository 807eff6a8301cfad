"""How a report is written; apart from what writes it, which is slow to load."""

from enum import StrEnum


class Form(StrEnum):
    """The files of a report."""

    HTML = "html"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    ALL = "all"
