"""What a version of Triton has, for prompts: the table is data, v1/triton.toml, and a test compiles each row."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "v1" / "triton.toml"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Feature:
    """One row of the table."""

    name: str
    since: str
    """The first version that is known to have it."""
    text: str
    """What prompts say; empty for what the rules say."""
    body: str
    """A kernel's body that uses it."""
    needs: str = ""
    """What a task must have for it to be said: `product`, `half product`, `fp32 product`, `rows`, or nothing."""

    def is_in(self, version: str) -> bool:
        """Whether a version has it; an unknown one has nothing."""
        return _read_version(version) >= _read_version(self.since)


@cache
def read_features() -> tuple[Feature, ...]:
    """All rows."""
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["feature"]
    return tuple(Feature(**row) for row in rows)


def list_features(version: str, *, products: bool = True, half: bool = False, rows: bool = True) -> tuple[str, ...]:
    """What a version has for a task, a line for each; none for a version that is not known.

    Args:
        version: such as `3.6.0`.
        products: whether the task has matrix products.
        half: whether these are of 16 bits.
        rows: whether rows are reduced.
    """
    kinds = ("product", "half product" if half else "fp32 product")
    has = {"", *(kinds if products else ()), *(["rows"] if rows else [])}
    return tuple(feature.text for feature in read_features() if feature.text and feature.needs in has and feature.is_in(version))


def _read_version(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(version)[:2])
