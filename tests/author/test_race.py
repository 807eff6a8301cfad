"""The measured cut: what is raced, how the cut changes as the numbers say, and that a module of another cut is right."""

import ast
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.author.compiler.reading.choices import Choice, read_cut, write_cut
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.records.contest import NO_CARD, AlternativeTime, Contest, ContestReport, ContestTimes
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Candidate, Stage, Status, Task, TaskFacts, Verdict
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.searches import Tuning
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Attempt, Brief, Draft, Raced

BLOCK = """
import torch
from torch import nn
import torch.nn.functional as F

CHANNELS = 16

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, CHANNELS)
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.half()

    def forward(self, x):
        h = F.silu(self.first(F.silu(self.norm(x))))
        return self.second(h) + x

def get_inputs():
    return [torch.randn(2, CHANNELS, 6, 6, dtype=torch.float16)]

def get_init_inputs():
    return []
"""
CARD = CARDS["h200"].model_copy(update={"present": True})
AUTHOR = RecipeAuthor()


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(name="block", path="block.py", source=BLOCK)


@pytest.fixture(scope="module")
def facts(task: Task) -> TaskFacts:
    return probe(task)[0]


@pytest.fixture
def brief(task: Task, facts: TaskFacts) -> Brief:
    """After the first verdict: the seed works at a third of the baseline's speed."""
    asked = Brief(task=task, facts=facts, hardware=CARD)
    return go_on(asked, asyncio.run(AUTHOR.seed(asked)), scripted_verdict(0.3))


def go_on(brief: Brief, draft: Draft, verdict: Verdict) -> Brief:
    number = len(brief.history) + 1
    candidate = Candidate(id=f"c{number}", sha=str(number), stage=Stage.SEED, recipe=draft.recipe, settings=draft.settings)
    history = (*brief.history, *([brief.current] if brief.current else []))
    current = Attempt(candidate=candidate, source=draft.source, verdict=verdict)
    return brief.model_copy(update={"current": current, "history": history, "raced": None})


def answer(contests: Sequence[Contest], times: Mapping[str, float], chained: float) -> ContestReport:
    """Every way takes what a table says; a convolution among others with channels last what `chained` says."""

    def time(contest: Contest, name: str) -> float:
        return times[name] if len(contest.alternatives) > 1 else chained

    found = tuple(
        ContestTimes(times=tuple(AlternativeTime(name=one.name, us=time(contest, one.name)) for one in contest.alternatives))
        for contest in contests
    )
    return ContestReport(contests=found, seconds=2.0)


def analyze(brief: Brief, times: Mapping[str, float], chained: float) -> tuple[Brief, Analysis]:
    contests = AUTHOR.list_contests(brief)
    report = answer(contests, times, chained)
    raced = Raced(times={contest.key: found for contest, found in zip(contests, report.contests, strict=True)}, seconds=2.0)
    brief = brief.model_copy(update={"raced": raced})
    return brief, asyncio.run(AUTHOR.analyze(brief))


def optimize(brief: Brief, analysis: Analysis) -> Draft:
    draft = asyncio.run(AUTHOR.optimize(brief.model_copy(update={"analysis": analysis})))
    assert draft is not None
    return draft


def test_an_evaluator_without_a_card_refuses_to_race(evaluator: LocalEvaluator, brief: Brief) -> None:
    report = asyncio.run(evaluator.race_regions(brief.task, AUTHOR.list_contests(brief), 5.0))
    assert report.note == NO_CARD and not report.contests


def test_a_cut_is_read_as_it_is_written() -> None:
    choices = {"a.b": Choice.LIBRARY, "conv": Choice.CHANNELS_LAST, "c": Choice.OWN}
    assert read_cut(write_cut(choices)) == choices and read_cut("") == {}


def test_contests_are_complete_modules_and_equal_regions_share_one(brief: Brief) -> None:
    contests = AUTHOR.list_contests(brief)
    ways = [[one.name for one in contest.alternatives] for contest in contests]
    assert ["own", "library", "channels_last"] in ways and ["channels_last"] in ways
    assert len({contest.key for contest in contests}) == len(contests)
    assert [contest.key for contest in AUTHOR.list_contests(brief)] == [contest.key for contest in contests]
    for contest in contests:
        for one in contest.alternatives:
            names = [part.name for part in ast.parse(one.text).body if isinstance(part, ast.ClassDef)]
            assert names == ["ModelNew"]


@pytest.mark.parametrize(
    ("times", "chained", "choice"),
    [
        ({"own": 400.0, "library": 60.0, "channels_last": 90.0}, 500.0, "library"),
        ({"own": 400.0, "library": 60.0, "channels_last": 90.0}, 20.0, "channels_last"),
    ],
)
def test_the_cut_changes_as_the_times_say(brief: Brief, times: dict[str, float], chained: float, choice: str) -> None:
    asked, analysis = analyze(brief, times, chained)
    assert analysis.worth_optimizing and analysis.kernel_type == "regions" and analysis.promise is not None
    assert read_cut(str(analysis.settings["cut"]))["first"].value == choice
    assert "own kernel 400 us" in analysis.bottleneck and "region " in analysis.optimisation_method
    draft = optimize(asked, analysis)
    assert draft.settings["cut"] == analysis.settings["cut"]
    assert draft.source.count("F.conv2d(") == 2 and ("permute(0, 3, 1, 2)" in draft.source) == (choice == "channels_last")


def test_a_cut_that_was_tried_gives_way_to_the_next_and_the_end_says_what_was_raced(brief: Brief) -> None:
    times = {"own": 400.0, "library": 60.0, "channels_last": 90.0}
    asked, first = analyze(brief, times, 20.0)
    again, second = analyze(go_on(brief, optimize(asked, first), scripted_verdict(0.2)), times, 20.0)
    assert second.settings != first.settings or not second.worth_optimizing
    own, last = analyze(brief, {"own": 10.0, "library": 60.0, "channels_last": 90.0}, 60.0)
    assert not last.worth_optimizing and "raced against the library" in last.reason
    assert again.history and own.raced is not None


def test_without_a_card_the_reason_says_that_costs_are_predicted(brief: Brief) -> None:
    analysis = asyncio.run(AUTHOR.analyze(brief.model_copy(update={"raced": Raced(note=NO_CARD)})))
    assert not analysis.worth_optimizing and NO_CARD in analysis.reason


@pytest.mark.parametrize("choice", [Choice.LIBRARY, pytest.param(Choice.CHANNELS_LAST, marks=pytest.mark.slow)])
def test_a_module_with_regions_left_to_the_library_is_right(evaluator: LocalEvaluator, brief: Brief, choice: Choice) -> None:
    analysis = Analysis(
        bottleneck="", optimisation_method="another cut", modification_plan="", category="algorithm_replacement",  # type: ignore[arg-type]
        kernel_type="regions", settings={"cut": write_cut({"first": choice, "second": choice})},
    )
    draft = optimize(brief, analysis)
    verdict = asyncio.run(evaluator.evaluate(brief.task, draft.source))
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.triton_launches and verdict.facts.launches_per_forward > verdict.facts.triton_launches


class ByText(Mapping[str, Verdict]):
    """Texts that call the library's convolution are fast, others are slow."""

    def __getitem__(self, text: str) -> Verdict:
        return scripted_verdict(1.4 if "F.conv2d(" in text else 0.3)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1

    def get(self, text: str, default: Any = None) -> Any:
        return self[text]


def run_graph(task: Task, facts: TaskFacts, policy: str, present: bool = True) -> tuple[dict[str, Any], list[int]]:
    asked: list[int] = []

    def race(contests: Sequence[Contest]) -> ContestReport:
        asked.append(len(contests))
        return answer(contests, {"own": 400.0, "library": 60.0, "channels_last": 90.0}, 500.0)

    card = CARD if present else CARDS["h200"]
    judges = ScriptedEvaluator(verdicts=ByText(), facts=facts, hardware=card, region_racer=race)
    with Context(author=RecipeAuthor(), evaluator=judges, policy=load_policy(policy), seeds=1, tuning=Tuning.NONE) as context:
        return build_graph().compile().invoke({"task": task}, context=context), asked


def test_the_rescue_races_regions_and_the_winner_has_the_new_cut(task: Task, facts: TaskFacts) -> None:
    result, asked = run_graph(task, facts, "default")
    assert len(asked) == 1
    cuts = [candidate.settings.get("cut") for candidate in result["candidates"].values() if candidate.stage is Stage.OPTIMIZE]
    assert cuts and all(cuts)
    path = [(one.site, one.choice) for one in result["decisions"].values() if one.branch == "seed0"]
    assert ("worth_optimizing", "optimize") in path and ("after_optimize", "kept") in path


@pytest.mark.parametrize(("policy", "present"), [("no-race", True), ("default", False)])
def test_nothing_is_raced_where_the_policy_forbids_it_or_no_card_is_there(
    task: Task, facts: TaskFacts, policy: str, present: bool
) -> None:
    result, asked = run_graph(task, facts, policy, present)
    assert asked == []
    (analysis,) = result["analyses"].values()
    assert not analysis.settings and (NO_CARD in analysis.reason) == (not present)
