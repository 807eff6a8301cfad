"""Any policy can be put to the conformance test: the presets pass, and each planted mistake is found and named."""

import asyncio
import random
from itertools import count

import pytest

from tritonsmith.graph.conformance.check import check_named, check_policy
from tritonsmith.graph.conformance.situations import situations
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.presets import PRESETS, Default
from tritonsmith.graph.sites import SITES
from tritonsmith.graph.state import Budget


def test_situations_are_many_named_once_and_reach_every_choice():
    found = situations()
    assert len({one.name for one in found}) == len(found) > 200
    assert {one.gate for one in found} == set(SITES)
    for gate, site in SITES.items():
        offered = {choice for one in found if one.gate == gate for choice in one.view.offers()}
        assert offered == set(site.choices), gate


FEW = ("default", "no-analysis", "tune-both", "beam")
"""Presets judged in every run: with and without an analysis, a race of tuners, and several lines of work at once."""


@pytest.mark.parametrize("name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS])
def test_every_preset_answers_every_situation_as_it_should(name):
    assert check_policy(load_policy(name), runs=False) == ()


@pytest.mark.parametrize(
    "name", [name if name == "default" else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]
)
def test_every_preset_conforms(name):
    report = check_named(name)
    assert report.violations == () and report.runs >= 10


class Raises(Default):
    name = "raises"

    def after_detect(self, view):
        return "tune", view.labels["persistent"]


class Unknown(Default):
    name = "unknown"

    def after_select(self, view):
        return "win", "I say so"


class Random(Default):
    name = "random"

    def after_detect(self, view):
        return random.choice(["tune", "skip"]), "a coin"


class Counting(Default):
    name = "counting"
    asked = count()

    def after_stage(self, view):
        return "next", f"answer {next(self.asked)}"


class EndlessAgain(Default):
    name = "endless again"

    def after_optimize(self, view):
        return "again", "until it is perfect"


class EndlessRepairs(Default):
    name = "endless repairs"

    def failing(self, view):
        return "repair", "once more"


class EndlessConfirm(Default):
    name = "endless confirmation"

    def after_confirm(self, view):
        return "next_best", "who knows"


class Unreasonable(Default):
    name = "unreasonable"

    def worth_optimizing(self, view):
        return "stop", " "


class Alone(Default):
    name = "choice alone"

    def after_select(self, view):
        return "finish"


class Asynchronous(Default):
    name = "asynchronous"

    async def after_select(self, view):
        return "finish", "later"


class Impossible(Default):
    name = "impossible"

    def after_evaluate(self, view):
        return "check", "whatever was promised"


class Meddling(Default):
    name = "meddling"

    def after_select(self, view):
        view.scores.clear()
        return super().after_select(view)


class Redrawing(Default):
    name = "redrawing"

    def after_select(self, view):
        SITES["after_select"].choices["win"] = "finish"
        return "win", "a choice of my own"


class Nameless(Default):
    name = ""
    seeds = 0


class Partial:
    name = "partial"
    seeds = None


BAD = [
    (Raises, "raises", "after_detect", "TypeError"),
    (Unknown, "choice", "after_select", "'win'; it may answer detect, rescue, widen, finish"),
    (Random, "repeatable", "after_detect", "answered"),
    (Counting, "repeatable", "after_stage", "and then ('next', 'answer"),
    (EndlessAgain, "allowance", "after_optimize", "again, but no rounds are left"),
    (EndlessRepairs, "allowance", "after_evaluate", "repair, but no repairs are left"),
    (EndlessConfirm, "choice", "after_confirm", "next_best, but"),
    (Unreasonable, "reason", "worth_optimizing", "no reason for 'stop'"),
    (Alone, "answer", "after_select", "two strings, not 'finish'"),
    (Asynchronous, "answer", "after_select", "leave `async` out"),
    (Impossible, "choice", "after_evaluate", "check, but there is no analysis"),
    (Meddling, "read-only", "after_select", "changes the view"),
    (Redrawing, "drawing", "", "drawn differently"),
    (Nameless, "interface", "", "name must be a string"),
    (Partial, "interface", "", "lacks after_evaluate"),
]


@pytest.mark.parametrize(("policy", "rule", "site", "says"), BAD, ids=[policy.__name__ for policy, *_ in BAD])
def test_a_planted_mistake_is_found(policy, rule, site, says):
    try:
        found = check_policy(policy(), runs=False)
    finally:
        SITES["after_select"].choices.pop("win", None)
    matching = [one for one in found if (one.rule, one.site) == (rule, site)]
    assert any(says in str(one) for one in matching), [str(one) for one in found]
    if policy is not Redrawing:
        assert {one.site for one in found} == {site}, "a site without a mistake is named"


def test_what_a_policy_changed_is_not_shown_to_the_next_one():
    before = repr(situations())
    assert check_policy(Meddling(), runs=False)
    assert repr(situations()) == before


class LateAgain(Default):
    name = "again, but only in a long run"

    def after_optimize(self, view):
        return ("again", "once more") if view.rounds == 3 else super().after_optimize(view)


class LateConfirm(Default):
    name = "confirms again and again, but only in a run"

    def after_confirm(self, view):
        return ("next_best", "once more") if view.step else super().after_confirm(view)


class LateSilence(Default):
    name = "no reason, but only in a run"

    def after_stage(self, view):
        return ("next", "") if view.step else super().after_stage(view)


class Moody(Default):
    name = "moody, but only in a run"
    asked = count()

    def after_stage(self, view):
        return ("next", f"answer {next(self.asked)}") if view.step else super().after_stage(view)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "rule", "says"),
    [
        (LateAgain, "allowance", "again, but no rounds are left; seen in: a run: a promise that is broken again and again"),
        pytest.param(LateConfirm, "choice", "next_best, but", marks=pytest.mark.slow),
        pytest.param(LateSilence, "reason", "no reason for 'next'", marks=pytest.mark.slow),
        (Moody, "repeatable", "the same run twice decides differently"),
    ],
)
def test_what_only_whole_runs_show_is_found_too(policy, rule, says):
    assert check_policy(policy(), runs=False) == ()
    (found,) = check_policy(policy())
    assert found.rule == rule and says in str(found)


@pytest.mark.parametrize("candidates", [3, 4, 5, 7])
def test_a_tight_budget_is_shared_out_deterministically(script, candidates):
    """A tight budget is shared out the same way, no matter which branch is fast."""
    chains = {name: [f"{name}{number}" for number in range(9)] for name in "ab"}
    repairs = {text: after for chain in chains.values() for text, after in zip(chain, chain[1:], strict=False)}
    ways = []
    for slow in "ab":
        texts = dict.fromkeys([*chains["a"], *chains["b"]])
        run = script(texts, seeds=("a0", "b0"), repairs=repairs, budget=Budget(candidates=candidates))
        repair = run.author.repair

        async def slowly(brief, repair=repair, slow=slow):
            await asyncio.sleep(0.02 if brief.current.source.startswith(slow) else 0)
            return await repair(brief)

        run.author.repair = slowly
        result = run.run()
        assert len(result["candidates"]) == candidates and result["stopped_because"].startswith(f"budget: {candidates} of {candidates}")
        ways.append((sorted(result["candidates"]), run.path("seed0"), run.path("seed1"), run.path("main")))
    assert ways[0] == ways[1]
    assert run.path("seed0")[-2:] == [("budget", "stop"), ("after_evaluate", "give_up")]
