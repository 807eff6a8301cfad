"""Hints for errors: what a message of Triton, PyTorch or the evaluator usually means, and what removes it.

The table is data, hints.toml.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tritonsmith.evaluator.schema import Hardware, Verdict

MOST_HINTS = 3
"""Hints of one prompt; an error has one cause."""
_LONGEST_MESSAGE = 8000
"""Characters in which a pattern is searched."""
HINTS_FILE = Path(__file__).parent / "v1" / "hints.toml"


@dataclass(frozen=True)
class Hint:
    """One row of the table."""

    name: str
    statuses: frozenset[str]
    """Statuses it belongs to; empty for all."""
    message: re.Pattern[str]
    """Found in the verdict's message; its named groups fill the text's places."""
    source: re.Pattern[str] | None
    """Found in the candidate as well, where one is given."""
    error: tuple[float, float] | None
    """Least and largest error relative to the oracle, where one is given."""
    reference: tuple[float, float] | None
    """Least and largest error of the reference itself, relative to the oracle, where one is given."""
    text: str

    def match(self, verdict: Verdict, source: str, hardware: Hardware) -> str | None:
        """The hint's text for this verdict, or None where it does not apply."""
        found = self.message.search(verdict.message[:_LONGEST_MESSAGE])
        if found is None or self.statuses and verdict.status.value not in self.statuses:
            return None
        if self.source is not None and self.source.search(source) is None:
            return None
        measured = verdict.correctness.err_vs_oracle if verdict.correctness else -1.0
        if self.error is not None and not self.error[0] <= measured < self.error[1]:
            return None
        own = verdict.correctness.reference_err_vs_oracle if verdict.correctness else -1.0
        if self.reference is not None and not self.reference[0] <= own < self.reference[1]:
            return None
        limits = {"processors": str(hardware.processors), "shared_limit": str(hardware.shared_per_block), "card": hardware.name}
        groups = {name: value or "" for name, value in found.groupdict().items()}
        return self.text.format(**{**limits, **groups})


@cache
def hint_table() -> tuple[Hint, ...]:
    """All hints, the most telling first."""
    rows = tomllib.loads(HINTS_FILE.read_text(encoding="utf-8"))["hint"]
    return tuple(
        Hint(
            name=row["name"],
            statuses=frozenset(row.get("status", ())),
            message=re.compile(row.get("message", ""), re.DOTALL),
            source=re.compile(row["source"], re.DOTALL) if "source" in row else None,
            error=(float(row["error"][0]), float(row["error"][1])) if "error" in row else None,
            reference=(float(row["reference"][0]), float(row["reference"][1])) if "reference" in row else None,
            text=row["text"].strip(),
        )
        for row in rows
    )


def hints_for(verdict: Verdict, source: str, hardware: Hardware) -> dict[str, str]:
    """The hints for a failed candidate by name, in the table's order, `MOST_HINTS` at most."""
    if verdict.score is not None:
        return {}
    said = ((hint.name, hint.match(verdict, source, hardware)) for hint in hint_table())
    return dict([(name, text) for name, text in said if text is not None][:MOST_HINTS])
