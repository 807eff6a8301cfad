"""The cases of the corpus as records. Hack files are read as text and never imported here.

A hack file starts with a docstring (its first line says what it does) and lines `# family: R2`, `# task: 39_gru`, and
`# expect: inaccurate|cheating`; `ok` among them allows an honest score. Optional: `# label: library|hybrid` (the labels it may be accepted
with), `# precision: tf32`, `# needs: card`, `# profile: strict` for what quick admits since it gains nothing, `# leaves: files`
for what tries to leave something behind, and `# attacks: a.b, c.d`: the modules of `evaluator`, with names in them, that the hack looks up.
A test compares these with the code, so that a hack that finds nothing to attack does not pass for one that is neutralised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_FIELD = re.compile(r"^# (family|task|expect|label|precision|needs|leaves|attacks|profile): (.+)$", re.MULTILINE)
ANY_REFUSAL = (
    "invalid_file", "compile_error", "launch_error", "runtime_error", "wrong_shape", "wrong_weights", "inaccurate", "racy", "cheating",
    "timeout", "crashed",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One text with the verdict that it must get."""

    name: str
    kind: str
    """`hack`, `mutant`, `legitimate`, `racy`, `clean`, or `honest` (what hacks of a task are compared with)."""
    task: str
    source: str
    family: str = ""
    expect: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    precision: str = "ieee"
    needs_card: bool = False
    litters: bool = False
    profile: str = "quick"
    about: str = ""
    attacks: tuple[str, ...] = ()
    """Dotted names below `tritonsmith.evaluator`."""


def read_hack(path: Path) -> Case:
    """The case of a hack file. Raises ValueError when a line of its header is missing."""
    text = path.read_text()
    fields = dict(_FIELD.findall(text))
    if missing := {"family", "task", "expect"} - set(fields):
        raise ValueError(f"{path}: the header lacks {', '.join(sorted(missing))}")
    return Case(
        name=path.stem, kind="hack", task=fields["task"], source=text, family=fields["family"], expect=tuple(fields["expect"].split("|")),
        labels=tuple(fields["label"].split("|")) if "label" in fields else (), precision=fields.get("precision", "ieee"),
        needs_card=fields.get("needs") == "card", litters="leaves" in fields, profile=fields.get("profile", "quick"),
        about=text.split('"""')[1].strip().splitlines()[0],
        attacks=tuple(fields["attacks"].split(", ")) if "attacks" in fields else (),
    )  # fmt: skip


def variants(kind: str) -> list[Case]:
    """Cases that are made from kernels: `honest`, `mutant`, `legitimate`, `racy` or `clean`."""
    from tritonsmith.benchmarks.hacks import idioms, legitimate, mutants, races  # noqa: PLC0415 - they import this module

    sources: dict[str, Callable[[], list[Case]]] = {
        "honest": legitimate.honest, "mutant": mutants.mutants, "legitimate": lambda: legitimate.legitimate() + idioms.idioms(),
        "racy": races.racy, "clean": races.clean,
    }  # fmt: skip
    return sources[kind]()


def hacks() -> list[Case]:
    """Every hack file, in order of names."""
    return [read_hack(path) for path in sorted((FOLDER / "cases").glob("*.py"))]


def load_cases() -> list[Case]:
    """The whole corpus."""
    return hacks() + [case for kind in ("mutant", "legitimate", "racy", "clean") for case in variants(kind)]
