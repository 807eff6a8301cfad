"""Scripted runs for testing a policy: a whole graph in milliseconds, without a card, a model or a file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from langgraph.errors import GraphRecursionError
from langgraph.graph.state import CompiledStateGraph

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Comparison, Label, Stage, Task, Verdict
from tritonsmith.graph.builder import step_limit
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedDetector, ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category, Promise

Event = dict[str, Any]
Verdicts = dict[str, Verdict | Exception]
"""What an evaluator answers to each text."""
_ENDLESS = 40
"""Length of a chain of kernels that is longer than any allowance."""


@dataclass(frozen=True)
class TrialRun:
    """One scripted world: what the author writes, and what the evaluator says of it."""

    name: str
    verdicts: Verdicts
    seeds: tuple[str, ...]
    budget: Budget = field(default_factory=Budget)
    strict: Verdicts = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    author: dict[str, Any] = field(default_factory=dict)
    """More tables of the scripted author."""
    twice: bool = False
    """Whether it is run twice and must go the same way."""


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial went: the graph's answer with its events, or why there is none."""

    trial: TrialRun
    result: dict[str, Any]
    events: tuple[Event, ...]
    error: str = ""
    endless: bool = False


async def drive(trial: TrialRun, app: CompiledStateGraph[Any, Any, Any, Any], policy: Policy) -> TrialOutcome:
    """Run one trial of a compiled graph under a policy."""
    events: list[Event] = []
    last: dict[str, Any] = {}
    async with _context(trial, policy) as context:
        steps = app.astream(
            {"task": Task(name=trial.name, path="trial.py", source="")}, {"recursion_limit": step_limit(context.budget)},
            context=context, stream_mode=["custom", "values"], subgraphs=True,
        )  # fmt: skip
        try:
            async for namespace, mode, data in cast(AsyncIterator[tuple[Any, str, dict[str, Any]]], steps):
                if mode == "custom":
                    events.append(data)
                elif not namespace:
                    last = data
        except GraphRecursionError:
            return TrialOutcome(trial, last, tuple(events), f"the run had not ended after {step_limit(context.budget)} steps", endless=True)
        except UsageError as error:
            return TrialOutcome(trial, last, tuple(events), str(error))
    return TrialOutcome(trial, last, tuple(events))


@asynccontextmanager
async def _context(trial: TrialRun, policy: Policy) -> AsyncIterator[Context]:
    author = ScriptedAuthor(seeds=_seeds_for(trial.seeds, policy), **trial.author)
    evaluator = ScriptedEvaluator(trial.verdicts, trial.strict)
    context = Context(
        author=author, evaluator=evaluator, policy=policy, budget=trial.budget, seeds=len(trial.seeds),
        detector=ScriptedDetector(trial.labels),
    )  # fmt: skip
    async with context:
        yield context


def _seeds_for(seeds: tuple[str, ...], policy: Policy) -> tuple[str, ...]:
    """The seeds, again from the first where a policy wants more than the trial has."""
    wanted = policy.seeds if isinstance(policy.seeds, int) else 0
    return tuple(seeds[number % len(seeds)] for number in range(max(len(seeds), min(wanted, _ENDLESS))))


def trials() -> tuple[TrialRun, ...]:
    """Every scripted world."""
    return tuple(make() for make in (
        _rescue, _endless_repairs, _endless_analyses, _no_repair, _rejected, _all_rejected, _mended, _never_mended, _noise, _persistent,
        _worse_tuning, _library,
        _few_candidates, _no_allowance,
    ))  # fmt: skip


def _rescue() -> TrialRun:
    verdicts = _score_texts(
        {"slow": 0.1, "broken": None, "fixed": 0.5, "wave": 2.0, "tuned": 2.5, "tuned badly": 0.5, "tuned wrongly": None}
    )
    author = {
        "repairs": {"broken": "fixed"}, "analyses": {"slow": _analysis(), "fixed": _analysis()}, "optimized": {"slow": ("wave",)},
        "variants": {(Stage.TUNE_GRID, "wave"): ("tuned badly", "tuned wrongly"), (Stage.TUNE_BLOCK, "wave"): ("tuned",)},
    }  # fmt: skip
    return TrialRun("a rescue that pays", verdicts, ("slow", "broken"), author=author, twice=True)


def _endless_repairs() -> TrialRun:
    chain = [f"broken {number}" for number in range(_ENDLESS)]
    return TrialRun(
        "repairs that never help", _score_texts(dict.fromkeys(chain)), (chain[0], "broken 1"), Budget(repairs=3, candidates=30),
        author={"repairs": _chain(chain)},
    )  # fmt: skip


def _endless_analyses() -> TrialRun:
    chain = [f"step {number}" for number in range(_ENDLESS)]
    verdicts = {text: scripted_verdict(0.01 + 0.001 * number, launches=3000) for number, text in enumerate(chain)}
    tables = {"analyses": {text: _analysis() for text in chain}, "optimized": {text: (after,) for text, after in _chain(chain).items()}}
    return TrialRun("a promise that is broken again and again", dict(verdicts), (chain[0],), Budget(rounds=3, candidates=30), author=tables)


def _no_repair() -> TrialRun:
    verdicts = _score_texts({"broken": None, "slow": 0.4})
    tables = {"analyses": {"slow": _analysis()}}
    return TrialRun("an author without a repair, and one without an idea", verdicts, ("broken", "slow"), author=tables)


def _rejected() -> TrialRun:
    verdicts = _score_texts({"best": 3.0, "second": 2.0, "third": 0.7})
    rejected = _score_texts({"best": None, "second": None})
    return TrialRun("the best is rejected on confirmation", verdicts, ("best", "second", "third"), strict=rejected, twice=True)


def _all_rejected() -> TrialRun:
    verdicts = _score_texts({"best": 3.0, "second": 0.7})
    return TrialRun("every confirmation is a rejection", verdicts, ("best", "second"), strict=_score_texts({"best": None, "second": None}))


def _mended() -> TrialRun:
    verdicts = _score_texts({"best": 3.0, "mended": 2.5, "second": 0.7})
    rejected, author = _score_texts({"best": None}), {"repairs": {"best": "mended"}}
    return TrialRun("a rejected kernel that is repaired", verdicts, ("best", "second"), strict=rejected, author=author, twice=True)


def _never_mended() -> TrialRun:
    chain = [f"best {number}" for number in range(_ENDLESS)]
    return TrialRun(
        "a rejected kernel whose repairs are rejected", _score_texts({**dict.fromkeys(chain, 3.0), "second": 0.7}), (chain[0], "second"),
        Budget(repairs=3, candidates=30), strict=_score_texts(dict.fromkeys(chain)), author={"repairs": _chain(chain)},
    )  # fmt: skip


def _noise() -> TrialRun:
    faster, same = Comparison.FASTER, Comparison.SAME
    verdicts: Verdicts = {"lucky": scripted_verdict(1.4, comparison=faster), "solid": scripted_verdict(1.2, comparison=faster)}
    return TrialRun("a gain that was noise", verdicts, ("lucky", "solid"), strict={"lucky": scripted_verdict(1.0, comparison=same)})


def _persistent() -> TrialRun:
    verdicts = _score_texts({"persistent": 0.3, "fast": 1.4, "retuned": 0.2})
    author = {"variants": {(Stage.TUNE_GRID, "fast"): ("retuned",)}}
    labels = {"fast": ("persistent",), "persistent": ("persistent", "one_axis_grid")}
    return TrialRun("persistent kernels", verdicts, ("persistent", "fast"), labels=labels, author=author, twice=True)


def _worse_tuning() -> TrialRun:
    stages = (Stage.TUNE_GRID, Stage.TUNE_BLOCK, Stage.TUNE_MEMORY)
    variants = {(stage, "good"): (f"worse {stage.value}",) for stage in stages}
    verdicts = _score_texts({"good": 1.3, **{text: 0.2 for (text,) in variants.values()}})
    return TrialRun("tuning that makes it worse, as the notes saw", verdicts, ("good",), author={"variants": variants})


def _library() -> TrialRun:
    call = scripted_verdict(1.7, label=Label.LIBRARY, library={"aten::gru": 1})
    verdicts = {"call": call, **_score_texts({"own": 0.6})}
    return TrialRun("a library call that may not win", verdicts, ("call",), author={"repairs": {"call": "own"}})


def _few_candidates() -> TrialRun:
    trial = _rescue()
    return TrialRun("three candidates and no more", trial.verdicts, trial.seeds, Budget(candidates=3), author=trial.author, twice=True)


def _no_allowance() -> TrialRun:
    trial = _rescue()
    return TrialRun("no repairs and no analyses", trial.verdicts, trial.seeds, Budget(repairs=0, rounds=0), author=trial.author)


def _score_texts(scores: dict[str, Any]) -> Verdicts:
    return {text: scripted_verdict(score) for text, score in scores.items()}


def _chain(texts: list[str]) -> dict[str, str]:
    return dict(zip(texts, texts[1:], strict=False))


def _analysis() -> Analysis:
    return Analysis(
        bottleneck="launches", optimisation_method="one launch", modification_plan="move the time loop into the kernel",
        category=Category.LAUNCHES, expected_speedup=3.0, promise=Promise(metric="launches_per_forward", before=3000, bound=2),
    )  # fmt: skip
