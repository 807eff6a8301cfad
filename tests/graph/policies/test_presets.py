"""Policies route as their rules state: a view in, a choice out; and loading one by name or from a file."""

from dataclasses import replace

import pytest

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Allow, Candidate, Comparison, Label, Stage, Status
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.presets import PRESETS, Default
from tritonsmith.graph.policies.view import View
from tritonsmith.graph.pool import rank_working, refusal
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.state import Budget, PromiseCheck
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category

KERNEL = Candidate(id="seed0-01", sha="0", stage=Stage.SEED)
BROKEN = PromiseCheck(candidate="seed0-01", analysis="a", kept=False, reason="3000 launches")


PROVEN = scripted_verdict(1.1, comparison=Comparison.FASTER)
CONFIRMED = PROVEN.model_copy(update={"profile": "strict"})
NOISE = scripted_verdict(1.1, comparison=Comparison.AMBIGUOUS)


def view(score=None, *, status=Status.RUNTIME_ERROR, profile="quick", comparison=None, **fields):
    known = Comparison(comparison) if comparison else None
    verdict = scripted_verdict(score, status=Status.OK if score is not None else status, comparison=known)
    verdict = verdict.model_copy(update={"profile": profile})
    best = {"best": KERNEL, "best_score": score, "scores": {KERNEL.id: score}} if score is not None else {}
    return View(site="", current=KERNEL, verdict=verdict, **{**best, **fields})


def measured(score, *, share=None, floor=None, **fields):
    """A kernel that a card measured slower than its strongest baseline."""
    slower = scripted_verdict(score, comparison=Comparison.SLOWER, share=share, floor=floor)
    return view(score, comparison="slower", best_verdict=slower, **fields)


def analysed(**fields):
    change = {"bottleneck": "b", "optimisation_method": "m", "modification_plan": "p", "category": Category.FUSION, "expected_speedup": 2.0}
    return Analysis(**{**change, **fields})


def loop():
    return PromiseCheck(candidate="seed0-01", analysis="a", kept=False, time_loop_in_python=True, reason="loop")


RULES = [
    # rule 2: a failing candidate is repaired up to five times
    ("default", "after_evaluate", view(), "repair"),
    ("default", "after_evaluate", view(repairs=4), "repair"),
    ("default", "after_evaluate", view(repairs=5), "give_up"),
    ("default", "after_evaluate", view(exhausted=True), "give_up"),
    ("default", "after_evaluate", view(repairs=5, optimized=True, best=KERNEL), "check"),
    ("no-repair", "after_evaluate", view(), "give_up"),
    ("best-of-n", "after_evaluate", view(), "give_up"),
    # rule 3: below 1.0 is analysed, from 1.0 on it is not
    ("default", "after_evaluate", view(0.99), "rescue"),
    ("default", "after_evaluate", view(1.0), "accept"),
    ("default", "after_evaluate", view(0.99, rounds=2), "accept"),
    ("notes", "after_evaluate", view(0.99), "rescue"),
    ("no-analysis", "after_evaluate", view(0.1), "accept"),
    ("rescue-all", "after_evaluate", view(1.7), "rescue"),
    ("rescue-best", "after_evaluate", view(0.1), "accept"),
    ("best-of-n", "after_evaluate", view(0.1), "accept"),
    ("default", "after_evaluate", view(0.1, optimized=True), "check"),
    # rule 4: worth it?
    ("default", "worth_optimizing", view(0.1, analysis=analysed()), "optimize"),
    ("default", "worth_optimizing", view(0.1, analysis=analysed(worth_optimizing=False)), "stop"),
    ("default", "worth_optimizing", view(0.1, analysis=analysed(expected_speedup=1.05)), "stop"),
    # rule 11: the promise
    ("default", "after_optimize", view(0.9, promise=BROKEN), "broken"),
    ("default", "after_optimize", view(0.9, promise=BROKEN, rounds=2), "stop"),
    ("default", "after_optimize", view(0.9), "again"),
    ("default", "after_optimize", view(1.1), "kept"),
    ("default", "after_optimize", view(1.1, labels=frozenset({"persistent", "one_axis_grid"})), "again"),
    ("default", "after_optimize", view(1.1, labels=frozenset({"persistent", "one_axis_grid"}), rounds=2), "kept"),
    ("default", "after_optimize", view(), "broken"),
    ("default", "after_optimize", view(rounds=2), "stop"),
    ("notes", "after_optimize", view(0.9, promise=BROKEN), "kept"),
    ("notes", "after_optimize", view(0.9, promise=loop()), "broken"),
    ("notes", "after_optimize", view(0.9, promise=loop(), rounds=2), "stop"),
    # rule 6 and experiment B
    ("default", "after_select", view(0.3), "detect"),
    ("default", "after_select", View(site="", failed=3), "finish"),
    ("rescue-best", "after_select", view(0.3), "rescue"),
    ("rescue-best", "after_select", view(0.3, improvements=1), "detect"),
    ("rescue-best", "after_select", view(1.3), "detect"),
    # rule 8: the skip edge, refined in `default`
    ("default", "after_detect", view(1.2, labels=frozenset({"persistent"})), "skip"),
    ("default", "after_detect", view(0.2, labels=frozenset({"persistent"})), "tune"),
    ("notes", "after_detect", view(0.2, labels=frozenset({"persistent"})), "skip"),
    ("default", "after_detect", view(0.2, labels=frozenset({"high_complexity"})), "skip"),
    ("default", "after_detect", view(1.2), "tune"),
    ("no-detect", "after_detect", view(1.2, labels=frozenset({"persistent"})), "tune"),
    ("no-tune", "after_detect", view(0.2), "skip"),
    ("best-of-n", "after_detect", view(0.2), "skip"),
    ("default", "after_stage", view(0.2), "next"),
    # a measured kernel that no setting brings to 1.0 is not tuned: by what searches gained, the share of own kernels, and the floor
    ("default", "after_detect", measured(0.3), "skip"),
    ("default", "after_detect", measured(0.5), "tune"),
    ("default", "after_detect", measured(0.5, share=0.5), "skip"),
    ("default", "after_detect", measured(0.9, floor=0.95), "skip"),
    ("default", "after_detect", measured(0.3, labels=frozenset({"persistent"})), "skip"),
    ("default", "after_stage", measured(0.5, gate="after_grid"), "next"),
    ("default", "after_stage", measured(0.5, gate="after_block"), "stop"),
    ("default", "after_stage", measured(0.95, gate="after_block"), "next"),
    ("default", "after_confirm", measured(0.5), "give_up"),
    # a kernel that works and may not win is repaired like one that fails
    ("default", "after_evaluate", view(1.7, refusal="the library does the work; write Triton kernels"), "repair"),
    ("default", "after_evaluate", view(1.7, refusal="the library does the work; write Triton kernels", exhausted=True), "give_up"),
    ("no-repair", "after_evaluate", view(1.7, refusal="the library does the work; write Triton kernels"), "give_up"),
    ("default", "after_confirm", view(1.7, refusal="quarantined: 20x", profile="strict", best=None, best_score=None), "repair"),
    ("default", "after_confirm", view(1.7, refusal="quarantined: 20x", profile="strict", best=None, best_score=None, repairs=5), "give_up"),
    # confirmation
    ("default", "after_confirm", view(1.2, profile="strict"), "accept"),
    ("default", "after_confirm", view(1.2), "give_up"),
    ("default", "after_confirm", view(1.2, comparison="same", profile="strict", best_verdict=PROVEN), "next_best"),
    ("default", "after_confirm", view(1.2, comparison="faster", profile="strict", best_verdict=PROVEN), "accept"),
    ("default", "after_confirm", view(1.2, comparison="same", profile="strict", best_verdict=CONFIRMED), "accept"),
    ("default", "after_confirm", view(1.2, comparison="same", profile="strict", best_verdict=NOISE), "accept"),
    # so is a kernel that only the strict profile refuses, while repairs and budgets last
    ("default", "after_confirm", view(profile="strict", best=KERNEL, best_score=1.0), "repair"),
    ("default", "after_confirm", view(profile="strict", repairs=4), "repair"),
    ("default", "after_confirm", view(profile="strict", best=KERNEL, best_score=1.0, repairs=5), "next_best"),
    ("default", "after_confirm", view(profile="strict", best=KERNEL, best_score=1.0, stop="budget: all is spent"), "next_best"),
    ("default", "after_confirm", view(profile="strict", repairs=5), "give_up"),
    ("no-repair", "after_confirm", view(profile="strict", best=KERNEL, best_score=1.0), "next_best"),
    ("best-of-n", "after_confirm", view(profile="strict"), "give_up"),
    ("default", "after_evaluate", view(0.2, returns=1), "accept"),
    ("default", "after_evaluate", view(returns=1, repairs=5), "give_up"),
    ("default", "after_select", view(1.2, returns=1), "finish"),
]


@pytest.mark.parametrize(("policy", "site", "seen", "choice"), RULES, ids=[f"{p}-{s}-{n}" for n, (p, s, _, _) in enumerate(RULES)])
def test_the_rule(policy, site, seen, choice):
    answered, reason = getattr(load_policy(policy), site)(seen)
    assert answered == choice
    assert reason, "a decision without a reason explains nothing"


@pytest.mark.parametrize(
    ("allow", "may_win"),
    [("kernel", {"kernel"}), ("hybrid", {"kernel", "hybrid", "unlabelled"}), ("library", {"kernel", "hybrid", "unlabelled", "library"})],
)
def test_which_labels_may_win(allow, may_win):
    verdicts = {label.value: scripted_verdict(2.0, label=label, library={"aten::gru": 1}) for label in Label}
    verdicts |= {"unlabelled": scripted_verdict(1.0), "broken": scripted_verdict(None)}
    candidates = {name: Candidate(id=name, sha=name, stage=Stage.SEED) for name in verdicts}
    assert {one.id for one in rank_working(candidates, verdicts, Allow(allow))} == may_win
    for name, verdict in verdicts.items():
        refused = refusal(verdict, Allow(allow))
        assert bool(refused) == (name not in may_win and name != "broken")
        assert not refused or "write Triton kernels" in refused
    assert "aten::gru x1" in refusal(verdicts["library"], Allow.HYBRID)


def test_a_proven_gain_beats_a_higher_score_that_may_be_noise():
    """A proven gain goes before a higher score that may be noise."""
    faster, same = Comparison.FASTER, Comparison.SAME
    verdicts = {"noise": scripted_verdict(1.4, comparison=Comparison.AMBIGUOUS), "same": scripted_verdict(1.5, comparison=same)}
    verdicts |= {"slower": scripted_verdict(0.2, comparison=Comparison.SLOWER), "gain": scripted_verdict(1.1, comparison=faster)}
    candidates = {name: Candidate(id=name, sha=name, stage=Stage.SEED) for name in verdicts}
    assert [one.id for one in rank_working(candidates, verdicts, Allow.HYBRID)] == ["gain", "same", "noise", "slower"]


def test_a_quarantine_lasts_until_the_strict_verdict_lifts_it():
    held = scripted_verdict(30.0, quarantine="far above the strongest baseline")
    assert not refusal(held, Allow.HYBRID), "it is confirmed first: that is the audit"
    assert "far above" in refusal(held.model_copy(update={"profile": "strict"}), Allow.HYBRID)


def test_limits_come_from_the_budget():
    tight = replace(view(), budget=Budget(repairs=0))
    assert load_policy("default").after_evaluate(tight)[0] == "give_up"


def test_presets_that_fix_the_number_of_seeds():
    assert {name: load_policy(name).seeds for name in PRESETS if load_policy(name).seeds} == {"single-seed": 1, "rescue-best": 3}


def test_a_policy_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from tritonsmith.graph.policies import Default\n"
        "class Mine(Default):\n"
        "    def after_detect(self, view):\n"
        "        return 'skip', 'mine'\n"
    )
    policy = load_policy(f"{path}:Mine")
    assert policy.name == "Mine" and policy.after_detect(view(0.5)) == ("skip", "mine")


TWO_POLICIES = (
    "from tritonsmith.graph.policies import Default\nclass One(Default): pass\nclass Two(Default): pass\nclass Helper: pass\n"
)


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (None, "greedy", "choose one of default, notes"),
        (None, "nowhere.py:Mine", "there is no file"),
        ("class Other: pass", "{}:Mine", "it defines Other"),
        ("class Other: pass", "{}:", "no policy among them"),
        ("", "{}", "name a class of the file; it defines no class; derive one from"),
        (TWO_POLICIES, "{}", "name a class of the file; write .*mine.py:One or .*mine.py:Two$"),
        (TWO_POLICIES, "{}:Three", "has no Three; write .*mine.py:One or .*mine.py:Two$"),
        ("x = 1 +", "{}:Mine", "does not import"),
        ("class Mine: pass", "{}:Mine", "lacks after_evaluate"),
        ("class Mine:\n    def __init__(self, x): pass", "{}:Mine", "without arguments"),
        ("from tritonsmith.graph.policies import Default\nclass Mine(Default):\n    seeds = '3'", "{}:Mine", "seeds is '3'; make it None"),
        ("from tritonsmith.graph.policies import Default\nclass Mine(Default):\n    seeds = 0", "{}:Mine", "seeds is 0; make it None"),
    ],
)
def test_an_unloadable_policy_is_named_with_the_way_out(tmp_path, text, name, says):
    """A policy that cannot be loaded is named together with the way out."""
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_policy(name.format(path))


def test_an_impossible_choice_ends_the_branch(script):
    """A choice that cannot be followed ends the branch with the best so far."""
    class Wishful(Default):
        name = "wishful"

        def after_select(self, view):
            return "detect", "whatever there is"

        def after_evaluate(self, view):
            return "check", "whatever was promised"

        def after_confirm(self, view):
            return "next_best", "for ever"

    for scores in ({"bad": None}, {"bad": 0.5}):
        run = script(scores, seeds=("bad",), policy=Wishful())
        run.run()
        assert run.path("seed0") == [("after_evaluate", "check"), ("graph", "give_up")]
        assert run.path("main")[-2:] == [("after_confirm", "next_best"), ("graph", "give_up")]
    assert run.result["decisions"]["seed0/01"].reason == "the policy answered check, but there is no analysis"
    assert run.text(run.result["winner"]) == "bad"


def test_a_policy_that_raises_is_named(script):
    class Broken(Default):
        name = "mine"

        def after_select(self, view):
            raise KeyError("x")

    with pytest.raises(UsageError, match="policy mine: after_select raised KeyError: 'x'; fix the policy, then"):
        script({"a": 1.5}, seeds=("a",), policy=Broken()).run()


def test_a_run_goes_on_with_a_policy_that_was_fixed(tmp_path):
    task, path, out = tmp_path / "1_relu.py", tmp_path / "mine.py", tmp_path / "run"
    lines = ("import torch", "class Model(torch.nn.Module):", "    pass", "def get_inputs(): return []", "def get_init_inputs(): return []")
    task.write_text("\n".join(lines))
    text = "from tritonsmith.graph.policies import Default\nclass Mine(Default):\n    def after_select(self, view):\n        "
    path.write_text(text + "return view.best.speed\n")

    def players():
        return {"author": ScriptedAuthor(seeds=("good",)), "evaluator": ScriptedEvaluator({"good": scripted_verdict(1.5)})}

    with pytest.raises(UsageError, match="policy Mine: after_select raised AttributeError: .*; fix the policy, then resume the run"):
        optimize(task, seeds=1, policy=f"{path}:Mine", size="full", out=str(out), **players())
    path.write_text(text + "return 'detect', 'fixed'\n")
    given = players()
    summary = resume(out, **given)
    assert [one.reason for one in summary.decisions if one.site == "after_select"] == ["fixed"]
    assert summary.winner.confirmed and ("good", "quick") not in given["evaluator"].calls
