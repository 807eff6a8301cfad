"""The cost of asking a model: tokens as the server reported them, money by a price table, rows for `usage.csv`."""

import csv
import io
import json
import threading
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.state import Usage
from tritonsmith.graph.storage.files import append_text, fault_of
from tritonsmith.nodes.chat.records import UsageRow

_BUILT_IN = Path(__file__).with_name("prices.toml")
_MILLION = 1_000_000
_WRITING = threading.Lock()


class Price(Record):
    """US dollars for a million tokens."""

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    """Reasoning tokens are output tokens."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Input that the server had in its cache; None: as other input."""


class Prices(Record):
    """Prices by model name, as the server knows it; `as_of` says when they were looked up."""

    as_of: str = ""
    models: dict[str, Price] = Field(default_factory=dict)

    def of(self, model: str) -> Price | None:
        """The price of a model. A name with a date or a path (`gpt-4o-2024-08-06`, `openai/gpt-4o`) has its longest prefix's price."""
        names = [model, model.rpartition("/")[2]]
        for name in names:
            fitting = [known for known in self.models if name == known or name.startswith((f"{known}-20", f"{known}:"))]
            if fitting:
                return self.models[max(fitting, key=len)]
        return None


COLUMNS = tuple(UsageRow.model_fields)
"""The header of `usage.csv`."""


def load_prices(path: str | Path | None = None) -> Prices:
    """The user's price table laid over the built-in one. Raises UsageError that names the file and what is wrong."""
    built_in = _built_in()
    if path is None:
        return built_in
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prices {path}: cannot be read ({fault_of(error)}); name a TOML or JSON file with prices") from error
    try:
        table = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        own = Prices.model_validate(table)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"--prices {path}: not readable as {'JSON' if file.suffix == '.json' else 'TOML'} ({fault_of(error)})") from error
    except ValidationError as error:
        raise UsageError(
            f"--prices {path}: {fault_of(error)}; write "
            '[models."NAME"] with input and output (and cached), in dollars per million tokens'
        ) from error
    return Prices(as_of=own.as_of or built_in.as_of, models={**built_in.models, **own.models})


@cache
def _built_in() -> Prices:
    return Prices.model_validate(tomllib.loads(_BUILT_IN.read_text(encoding="utf-8")))


def dollars(usage: Usage, price: Price | None) -> float | None:
    """What these tokens cost; None without a price."""
    if price is None:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = max(0, usage.input_tokens - usage.cached_tokens)
    return (fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output) / _MILLION


def sum_of(rows: Sequence[UsageRow]) -> Usage:
    """What all tries of one call cost together."""
    answered = [row for row in rows if row.status == "ok"]
    return Usage(
        calls=len(answered),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cached_tokens=sum(row.cached_tokens for row in rows),
        reasoning_tokens=sum(row.reasoning_tokens for row in rows),
        money=sum(row.dollars or 0.0 for row in rows),
        seconds=round(sum(row.seconds for row in rows), 3),
        retries=len(rows) - len(answered),
        unreported=sum(not row.reported for row in answered),
        unpriced=sum(row.dollars is None for row in answered),
        stage=rows[0].stage if rows else "",
        role=rows[0].role if rows else "",
    )


def append_rows(path: Path, rows: Sequence[UsageRow]) -> None:
    """Add lines to `usage.csv`, with a header if it is new. Branches may call this at the same time.

    A try that has its line is not written again: a step that is repeated after a kill reports the same tries. Raises OSError.
    """
    with _WRITING:
        known: set[str] = set()
        if path.exists():
            known.update(path.read_text(encoding="utf-8").splitlines())
        path.touch()
        lines = [_line(COLUMNS), *(_line(row.model_dump().values()) for row in rows)]
        new = "".join(f"{line}\n" for line in lines if line not in known)
        if new:
            append_text(path, new)


def _line(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow("" if value is None else value for value in values)
    return " ".join(text.getvalue().splitlines())


def read_rows(path: Path) -> list[UsageRow]:
    """The lines of a `usage.csv`; empty when there is none."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [UsageRow.model_validate(_parse_types(line)) for line in csv.DictReader(file)]


def _parse_types(line: Mapping[str, Any]) -> dict[str, Any]:
    return {**line, "dollars": line["dollars"] or None}
