"""A policy by name or from a file, and what it says about itself."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.policies.default import GOOD_SCORE, Default
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.policies.wider import Beam
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.sites import QUESTIONS

MOST_LINES = 16
"""Lines of work that may go on side by side."""


@dataclass(frozen=True)
class About:
    """A policy in words."""

    name: str
    summary: str
    """What it does, in one sentence."""
    notes: str
    """What it stands for; of a preset, the sentence of the notes."""
    encodes: tuple[int, ...]
    """Numbers of the notes' mechanisms."""
    seeds: int | None


def about(policy: Policy) -> About:
    """A policy in the words of its class's docstring: the first paragraph and the rest."""
    text = inspect.cleandoc(vars(type(policy)).get("__doc__") or "")
    summary, _, rest = text.partition("\n\n")
    own = vars(type(policy)).get("encodes", ())
    return About(policy.name, " ".join(summary.split()), " ".join(rest.split()), tuple(own), policy.seeds)


def load_policy(name: str, option: str = "--policy") -> Policy:
    """A preset by name, or `path/to/file.py:ClassName`. Raises UsageError that names the option and lists what exists."""
    if name in PRESETS:
        return PRESETS[name]()
    if name.startswith(f"{Beam.name}:"):
        return Beam(_read_width(name, option))
    path, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if not path.endswith(".py"):
        raise UsageError(f"{option} {name}: no such policy; choose one of {', '.join(PRESETS)}, or path/to/file.py:ClassName")
    return _from_file(f"{option} {name}", Path(path), attribute)


def _read_width(name: str, option: str) -> int:
    """How many lines `beam:N` keeps. Raises UsageError."""
    number = name.partition(":")[2]
    if not number.isdigit() or not 1 <= int(number) <= MOST_LINES:
        raise UsageError(f"{option} {name}: keep between 1 and {MOST_LINES} lines, such as beam:4")
    return int(number)


def _from_file(asked: str, path: Path, attribute: str) -> Policy:
    if not path.is_file():
        raise UsageError(f"{asked}: there is no file {path}; the presets are {', '.join(PRESETS)}")
    spec = importlib.util.spec_from_file_location(f"tritonsmith_policy_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{asked}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        with redirect_stdout(sys.stderr):  # what the file prints is no part of an answer
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{asked}: {path} does not import ({type(error).__name__}: {error}); fix the file") from error
    made = getattr(module, attribute, None) if attribute else None
    if made is None:
        why = f"{path} has no {attribute}" if attribute else "name a class of the file"
        raise UsageError(f"{asked}: {why}; {_name_classes(module, path)}")
    try:
        policy = made() if isinstance(made, type) else made
        missing = [question for question in QUESTIONS if not callable(getattr(policy, question, None))]
        return _complete(asked, attribute, policy, missing)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # a user's class may raise anything
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"{asked}: {attribute}() raises {why}; fix the class, which is made without arguments") from error


def _name_classes(module: ModuleType, path: Path) -> str:
    """Which classes of a file can be policies, as they are written after an option."""
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    able = [made.__name__ for made in own if all(callable(getattr(made, question, None)) for question in QUESTIONS)]
    if able:
        return f"write {' or '.join(f'{path}:{name}' for name in able)}"
    others = f"it defines {', '.join(made.__name__ for made in own)}, no policy among them" if own else "it defines no class"
    return f"{others}; derive one from tritonsmith.graph.policies.Default"


def _complete(asked: str, attribute: str, policy: Any, missing: list[str]) -> Policy:
    """The policy with a name and a number of seeds. Raises UsageError for one that is none."""
    if missing:
        raise UsageError(f"{asked}: {attribute} lacks {', '.join(missing)}; derive it from tritonsmith.graph.policies.Default")
    if not isinstance(getattr(policy, "name", None), str):
        policy.name = attribute
    elif isinstance(policy, Default) and "name" not in vars(type(policy)):
        policy.name = attribute  # an inherited name would be reported as the preset's
    seeds = getattr(policy, "seeds", None)
    if seeds is not None and (not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1):
        raise UsageError(f"{asked}: {attribute}.seeds is {seeds!r}; make it None or a number from 1 on")
    policy.seeds = seeds
    tuning = getattr(policy, "tuning", Tuning.SEARCH)
    if tuning not in list(Tuning):
        raise UsageError(f"{asked}: {attribute}.tuning is {tuning!r}; make it one of {', '.join(Tuning)}")
    policy.tuning, policy.joint = Tuning(tuning), bool(getattr(policy, "joint", False))
    width = getattr(policy, "width", 1)
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= MOST_LINES:
        raise UsageError(f"{asked}: {attribute}.width is {width!r}; make it a number from 1 to {MOST_LINES}")
    race_below = getattr(policy, "race_below", GOOD_SCORE)
    if not isinstance(race_below, int | float) or isinstance(race_below, bool):
        raise UsageError(f"{asked}: {attribute}.race_below is {race_below!r}; make it a score, or 0 for never")
    policy.race_below = float(race_below)
    policy.width, policy.drop_twins = width, bool(getattr(policy, "drop_twins", False))
    claims = getattr(policy, "claims_from", GOOD_SCORE)
    if not isinstance(claims, int | float) or isinstance(claims, bool) or claims < 0:
        raise UsageError(f"{asked}: {attribute}.claims_from is {claims!r}; make it a score, such as 1.0, or 0 to claim any right kernel")
    policy.claims_from = float(claims)
    encodes = getattr(policy, "encodes", ())
    if not isinstance(encodes, tuple) or not all(isinstance(number, int) for number in encodes):
        raise UsageError(f"{asked}: {attribute}.encodes is {encodes!r}; make it a tuple of numbers, or leave it out")
    return cast(Policy, policy)
