"""The prompts: templates of one version, filled with what a stage needs and no more.

A missing variable is an error, not an empty place.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.evaluator.cards.estimate import ROUND
from tritonsmith.evaluator.cards.launch_cost import HOLD, LAUNCH_AS_CALLED, LAUNCH_IN_GRAPH
from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Record, Task, TaskFacts, TensorSpec
from tritonsmith.evaluator.tasks.declarations import assigned_names
from tritonsmith.evaluator.texts.detect.detection import Detection, detect
from tritonsmith.evaluator.texts.source.parse import parse
from tritonsmith.prompts.author import Brief, Example
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates.error_text import ErrorText, trim_error
from tritonsmith.prompts.templates.facts_told import bound_kernels, choose_direction, tell_facts
from tritonsmith.prompts.templates.families import MOST_FAMILIES, families_of
from tritonsmith.prompts.templates.hints import hints_for
from tritonsmith.prompts.templates.operators import costly_operators
from tritonsmith.prompts.templates.places import describe_place
from tritonsmith.prompts.templates.triton_features import list_features

Value = TypeVar("Value")

VERSION = "v1"
"""The folder of templates that is used."""
STAGES = ("seed", "repair", "analyze", "optimize", "tune")
"""Names of the templates that are prompts."""
MOST_TOKENS = 12_000
"""Of one prompt. A longer one loses what can be left out: examples, old attempts, code of the rules."""
CHARACTERS_PER_TOKEN = 3
"""For an upper bound of tokens without a tokenizer.

These prompts have 3.3 to 3.6 characters for each of the pieces that common tokenizers start from.
"""

MOST_EXAMPLES = 2
"""Worked examples of one prompt."""
BLOCKS = ("examples", "rules")
"""What `prompt_for` can leave out, so that an ablation sees its worth: kernels that are shown, and rules for writing them."""
MOST_FAILURES = 5
"""Failures of earlier runs in one prompt."""

_FOLDER = Path(__file__).parent / VERSION
_WITH_EXAMPLES = ("seed", "optimize")
"""Stages that write a kernel anew."""
_SHORT = 240
"""Characters of a text in the list of attempts."""
_TICKS = re.compile("^`{3,}", re.MULTILINE)
_NUMBER = re.compile(r"\d+")
_DIGITS = 12
"""Digits to which numbers in names are filled up, so that they sort by value."""
_NOT_SHOWN = ("SMALL", "SHAPES", "MODE", "BACKWARD")
"""Names of a task file that say how it is checked."""
_NAMES_SHOWN = 40
"""Parameters listed one by one; the rest is counted."""


class ExampleBook(Protocol):
    """The worked examples that prompts may show: they lie above this package."""

    @property
    def folder(self) -> Path:
        """The folder whose templates the examples are made from."""
        ...

    def name_examples(self, families: tuple[Family, ...], task: Task, facts: TaskFacts) -> tuple[str, ...]:
        """Examples that fit a task of these families, best first."""
        ...

    def write_example(self, name: str, hardware: Hardware, precision: PrecisionClass) -> Example | None:
        """One of them for a card and an accuracy; None where it does not fit the card."""
        ...

    def list_algorithms(self, families: tuple[Family, ...]) -> tuple[str, ...]:
        """What is known for the first family, plainest first, for an analyst."""
        ...


class Prompt(Record):
    """One request to a model: a single user message, as some servers know no other role."""

    stage: str
    family: str
    """The family that shapes the task most."""
    text: str
    version: str
    digest: str
    """Of everything that prompts are made of: `digest()`."""
    parts: tuple[str, ...]
    """Names of the rule blocks, examples and hints in it."""

    @property
    def tokens(self) -> int:
        """An upper bound of its length in tokens."""
        return token_bound(self.text)


@dataclass(frozen=True)
class _Diet:
    """How much of what can be left out is in a prompt."""

    examples: tuple[Example, ...]
    attempts: int
    code: bool
    failures: int = 0
    """How many failures of earlier runs."""
    families: int = MOST_FAMILIES
    """How many families' rules."""
    rules: bool = True
    """Whether there are rules at all."""


def token_bound(text: str) -> int:
    """An upper bound of a text's tokens."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


@cache
def digest(examples: Path, own: Path = _FOLDER) -> str:
    """The first 12 hex digits of SHA-256 over templates, rules, hints and the templates of examples, with their names.

    Args:
        examples: the folder that `ExampleBook.folder` gives.
        own: the folder with templates, rules and hints.
    """
    made = hashlib.sha256()
    for folder, patterns in ((own, ("*.j2", "*.toml")), (examples, ("*.j2", "worked/*/kernel.py"))):
        for file in sorted(path for pattern in patterns for path in folder.rglob(pattern)):
            made.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return made.hexdigest()[:12]


def prompt_for(stage: str, brief: Brief, book: ExampleBook, without: Sequence[str] = ()) -> Prompt:
    """The prompt of a stage (one of `STAGES`) for a brief, the fullest that is within `MOST_TOKENS`.

    A reference or kernel so long that nothing else is left to leave out makes a longer one.

    Args:
        stage: one of `STAGES`.
        brief: what may be told.
        book: the worked examples.
        without: blocks to leave out, of `BLOCKS`; without examples the rules show no kernels of their own either.

    Raises:
        jinja2.UndefinedError: a template asks for what the stage's brief does not have.
    """
    families = families_of(brief.facts, brief.task.source)
    context = _context(stage, brief, families, book)
    template = _environment().get_template(f"{stage}.j2")
    for diet in _list_diets(stage, brief, families, book):
        diet = _leave_out(diet, without)
        text = _tidy(template.render({**context, **_portions(brief, diet, families)}))
        if token_bound(text) <= MOST_TOKENS:
            break
    parts = [f"rules/{family.value}" for family in families[: diet.families]]
    if stage != "analyze" and diet.rules:
        parts.insert(0, "rules/general")
    parts += [f"example: {example.title}" for example in diet.examples]
    parts += ["earlier failures"] * bool(brief.failures[: diet.failures])
    parts += [f"hint/{name}" for name in context["hint_names"]]
    return Prompt(stage=stage, family=families[0].value, text=text, version=VERSION, digest=digest(book.folder), parts=tuple(parts))


def _list_diets(stage: str, brief: Brief, families: tuple[Family, ...], book: ExampleBook) -> Iterator[_Diet]:
    """Diets from the fullest to the leanest: with worked examples, else with the rules' short kernels, at last with few old attempts."""
    code = stage in _WITH_EXAMPLES
    failures = MOST_FAILURES if code else 0
    for examples in _choose_examples(brief, families, book) if code else ():
        yield _Diet(examples, 8, False, failures)  # an example that fits teaches more than the rules' short kernels
    for attempts in (8, 4, 2):
        yield _Diet((), attempts, code, failures)
    yield _Diet((), 2, False)
    yield _Diet((), 1, False, families=1)


def _leave_out(diet: _Diet, without: Sequence[str]) -> _Diet:
    """The diet without the blocks that an ablation leaves out."""
    if "examples" in without:
        diet = replace(diet, examples=(), code=False)
    return replace(diet, families=0, rules=False) if "rules" in without else diet


def _choose_examples(brief: Brief, families: tuple[Family, ...], book: ExampleBook) -> Iterator[tuple[Example, ...]]:
    """Choices of examples, best first: kernels of earlier runs before recipes, without the recipe of the current kernel."""
    remembered = [example for example in brief.examples if brief.current is None or not example.start][:MOST_EXAMPLES]
    own = brief.current.candidate.recipe if brief.current else ""
    names = [name for name in book.name_examples(families, brief.task, brief.facts.full or brief.facts) if name != own]
    recipes = [book.write_example(name, brief.hardware, brief.task.precision) for name in names]
    found = [example for example in recipes if example is not None]
    if len(remembered) < MOST_EXAMPLES:
        for example in found:
            yield (*remembered, example)
    for count in range(len(remembered), 0, -1):
        yield (*remembered[:count],)


def _portions(brief: Brief, diet: _Diet, families: tuple[Family, ...]) -> dict[str, Any]:
    left_out = max(0, len(brief.history) - diet.attempts)
    return {
        "examples": diet.examples, "failures": brief.failures[: diet.failures], "history": brief.history[left_out:],
        "left_out": left_out, "code": diet.code, "rules": diet.rules,
        "families": [family.value for family in families[: diet.families]],
    }  # fmt: skip


def _context(stage: str, brief: Brief, families: tuple[Family, ...], book: ExampleBook) -> dict[str, Any]:
    """What every diet shares. Names that a stage must not use are missing on purpose."""
    told = brief.facts.full or brief.facts  # kernels are for that size, wherever they are checked
    context: dict[str, Any] = {
        "families": [family.value for family in families], "task": brief.task, "facts": told, "card": brief.hardware,
        "sizes": brief.task.meant or {} if brief.facts.full else brief.task.overrides,
        "checked": brief.facts if brief.task.meant is not None else None,
        "reference": hide_check_sizes(brief.task.source), "other_sizes": "SHAPES" in _locate_declarations(brief.task.source),
        "exchange": ROUND.low, "launch": (LAUNCH_AS_CALLED, LAUNCH_IN_GRAPH), "allow": brief.allow.value, "hint_names": (),
        "parameters": _parameters(told.parameters), "operators": costly_operators(told), "bar": brief.facts.bar, "hold": HOLD,
    }  # fmt: skip
    context |= tell_facts(brief.task, told, brief.hardware, families)
    context["shorter"] = stage in ("repair", "tune")  # how time is taken mends nothing
    shown = stage in _WITH_EXAMPLES
    context["features"] = _list_features(brief.hardware, context, families) if shown else ()
    if stage == "seed":
        return context | {"branch": brief.branch, "direction": choose_direction(brief, told, families)}
    if brief.current is not None:
        context |= _describe_current(brief)
    if stage == "tune":
        context["stage"] = brief.stage.value
    if stage in ("repair", "analyze") or brief.analysis is not None:
        context["analysis"] = brief.analysis
    if stage == "analyze":
        context["known"] = book.list_algorithms(families)
    if stage == "repair" and brief.current is not None:
        found = hints_for(brief.current.verdict, brief.current.source, brief.hardware) if brief.current.verdict else {}
        context |= {"hints": tuple(found.values()), "hint_names": tuple(found)}
    return context


def _list_features(hardware: Hardware, context: Mapping[str, Any], families: tuple[Family, ...]) -> tuple[str, ...]:
    """What this Triton has for a task."""
    rows = Family.REDUCTION in families or not context["products"]
    return list_features(hardware.triton, products=context["products"], half=context["half"], rows=rows)


def _describe_current(brief: Brief) -> dict[str, Any]:
    current = brief.current
    assert current is not None
    verdict = current.verdict
    failed = verdict is not None and verdict.score is None
    wrong = verdict if failed and verdict and verdict.correctness else None
    library = sorted(sort_by_name(verdict.facts.library_calls), key=lambda item: -item[1])[:8] if verdict else []
    return {
        "current": current, "verdict": verdict, "library": library, "labels": _detect_labels(brief).labels,
        "error": trim_error(verdict.message, current.source) if failed and verdict else ErrorText(text=""),
        "place": describe_place(wrong.correctness, brief.facts.outputs, wrong.facts) if wrong and wrong.correctness else "",
        "bounds": bound_kernels(verdict.facts.kernels, brief.hardware, brief.task.precision) if verdict else {},
    }  # fmt: skip


def _detect_labels(brief: Brief) -> Detection:
    """Labels of the current kernel with their lines; none for a text that cannot be read."""
    assert brief.current is not None
    verdict = brief.current.verdict
    measured = (verdict.facts, verdict.timing) if verdict and verdict.timing else (None, None)
    try:
        return detect(brief.current.source, measured[0], brief.facts, brief.hardware, measured[1])
    except KernelFileError:
        return Detection()


def _locate_declarations(source: str) -> dict[str, tuple[int, int]]:
    """First and last line of the statement that sets each name at the top level of a task file."""
    try:
        statements = parse(source).body
    except (SyntaxError, ValueError):
        return {}
    return {name: (item.lineno, item.end_lineno or item.lineno) for item in statements for name in assigned_names(item)}


def hide_check_sizes(source: str) -> str:
    """A task's text without the lines that say at which other sizes it is checked."""
    declared = _locate_declarations(source)
    spans = [declared[name] for name in _NOT_SHOWN if name in declared]
    lines = source.splitlines()
    return "\n".join(line for at, line in enumerate(lines, start=1) if not any(first <= at <= last for first, last in spans))


def _parameters(parameters: dict[str, TensorSpec]) -> list[tuple[str, str]]:
    """Names with shapes; of very many, the first, and how many more there are."""
    named = sort_by_name(parameters)
    rows = [(name, _shape(spec.shape) + ("" if spec.dtype == "float32" else f" {spec.dtype}")) for name, spec in named]
    more = len(rows) - _NAMES_SHOWN
    return [*islice(rows, _NAMES_SHOWN), (f"and {more} more", "as in the code")] if more > 0 else rows


def sort_by_name(table: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """The rows of a table, numbers within names by their value (`layers.2` before `layers.10`).

    Equal tables thus give equal prompts, however they were stored. A prompt that differs is asked, and paid, again.
    """
    return sorted(table.items(), key=lambda row: (_NUMBER.sub(lambda found: found[0].zfill(_DIGITS), row[0]), row[0]))


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} microseconds"


def _milliseconds(value: float) -> str:
    return _duration(value * 1e-3)


def _short(text: str, most: int = _SHORT) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 4]} ..."


def _code(text: str, language: str = "python") -> str:
    """A fenced block whose fence does not occur in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return f"{fence}{language}\n{text}\n{fence}"


def _tidy(text: str) -> str:
    """One blank line before each heading and between paragraphs, none at the ends; code stays as it is."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        ticks = _TICKS.match(line)
        if fence:
            fence = "" if line == fence else fence
        elif ticks:
            fence = ticks[0]
        elif not line.strip() and lines[-1:] in ([], [""]):
            continue
        elif line.startswith("# ") and lines[-1:] != [""]:
            lines.append("")
        lines.append(line if fence else line.rstrip())
    return "\n".join(lines).strip() + "\n"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,  # a missing variable fails the run, not the kernel
        autoescape=False,  # noqa: S701 - the texts are prompts, not pages
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"shape": _shape, "duration": _duration, "milliseconds": _milliseconds, "short": _short, "code": _code}
    made.filters["by_name"] = sort_by_name
    return made
