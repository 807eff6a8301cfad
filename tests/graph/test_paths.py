"""The ways through the graph, seen through its decisions: scripted author, scripted evaluator, real nodes and policies."""

from dataclasses import replace

import pytest

from tritonsmith.evaluator.errors import InfrastructureError, KernelFileError, UsageError
from tritonsmith.evaluator.schema import Allow, Comparison, Label, Status
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.policies.presets import Default
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.author import AuthorError

SLOW = scripted_verdict(0.1, launches=3000)


def test_a_slow_seed_is_rescued(script, analysis):
    """A slow seed is rescued and a fast persistent kernel is not tuned."""
    run = script(
        {"steps": SLOW, "wave": 2.7}, seeds=("steps",), analyses={"steps": analysis()}, optimized={"steps": ("wave",)},
        labels={"wave": ("persistent",)},
    )  # fmt: skip
    result = run.run()
    assert run.path("seed0") == [
        ("after_evaluate", "rescue"), ("worth_optimizing", "optimize"), ("after_evaluate", "check"), ("after_optimize", "kept"),
    ]  # fmt: skip
    assert run.path("main") == [("after_select", "detect"), ("after_detect", "skip"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "wave"
    assert result["verdicts"][result["winner"]].profile == "strict"
    assert result["stopped_because"] == "the winner is confirmed"
    kept = result["decisions"]["seed0/03"]
    assert kept.evidence["metric"] == "launches_per_forward" and kept.evidence["actual"] == 1 and kept.evidence["bound"] == 2


def test_decision_ids_and_order_are_the_same_in_every_run(script, analysis):
    def decisions():
        run = script(
            {"a": SLOW, "b": None, "b2": 1.2, "a2": 1.5}, seeds=("a", "b"), analyses={"a": analysis()}, optimized={"a": ("a2",)},
            repairs={"b": "b2"},
        )  # fmt: skip
        return list(run.run()["decisions"].items())

    first = decisions()
    assert first == decisions()
    assert [key for key, _ in first][:2] == ["seed0/00", "seed0/01"]


def test_repair_stops_at_its_limit_and_sees_every_attempt(script):
    """Repair stops at its limit and sees every earlier attempt."""
    texts = [f"broken{number}" for number in range(8)]
    run = script(
        {text: scripted_verdict(None, status=Status.COMPILE_ERROR, message=text) for text in texts},
        seeds=(texts[0],),
        repairs=dict(zip(texts, texts[1:], strict=False)),
        budget=Budget(repairs=3),
    )
    result = run.run()
    assert run.path("seed0") == [("after_evaluate", "repair")] * 3 + [("after_evaluate", "give_up")]
    last = [brief for kind, brief in run.author.briefs if kind == "repair"][-1]
    assert [attempt.verdict.message for attempt in last.history] == ["broken0", "broken1"]
    assert result["winner"] is None
    assert result["stopped_because"] == "no candidate works (compile_error)"


def test_an_author_out_of_ideas_ends_the_line_with_a_reason(script):
    """An author with nothing further to try ends the line of work with a reason."""
    run = script({"broken": None}, seeds=("broken",))
    run.run()
    assert run.path("seed0") == [("after_evaluate", "repair"), ("after_evaluate", "give_up")]
    assert "nothing further" in run.result["decisions"]["seed0/01"].reason


def test_tuning_never_continues_from_a_worse_candidate(script):
    run = script(
        {"base": 1.2, "grid": 0.4, "block": 0.3, "block2": 1.5, "memory": 0.9},
        seeds=("base",),
        variants={
            ("tune_grid", "base"): ("grid",), ("tune_block", "base"): ("block", "block2"), ("tune_memory", "block2"): ("memory",),
        },
    )  # fmt: skip
    result = run.run()
    assert run.asked("tune_grid") == ["base"] and run.asked("tune_block") == ["base"] and run.asked("tune_memory") == ["block2"]
    assert run.text(result["winner"]) == "block2"
    stages = [decision.evidence["stage"] for decision in result["decisions"].values() if decision.site == "after_stage"]
    assert stages == ["grid", "block", "memory"]


def test_the_next_round_does_not_start_from_a_worse_kernel(script, analysis):
    """An optimized kernel that is worse is not the base of the next round."""
    run = script(
        {"seed": SLOW, "worse": scripted_verdict(0.05, launches=1), "better": 1.1},
        seeds=("seed",), analyses={"seed": analysis()}, optimized={"seed": ("worse", "better")},
    )  # fmt: skip
    run.run()
    assert run.asked("analyze") == ["seed", "seed"] and run.asked("optimize") == ["seed", "seed"]
    assert ("after_optimize", "again") in run.path("seed0")
    assert run.text(run.result["winner"]) == "better"
    second = [brief for kind, brief in run.author.briefs if kind == "analyze"][1]
    assert [attempt.source for attempt in second.history] == ["worse"]


def test_a_broken_promise_goes_back_to_the_analysis(script, analysis):
    run = script(
        {"seed": SLOW, "still3000": scripted_verdict(0.9, launches=3000), "one": 1.4},
        seeds=("seed",), analyses={"seed": analysis(), "still3000": analysis()}, optimized={"seed": ("still3000",), "still3000": ("one",)},
    )  # fmt: skip
    run.run()
    assert [choice for site, choice in run.path("seed0") if site == "after_optimize"] == ["broken", "kept"]
    broken = next(decision for decision in run.result["decisions"].values() if decision.choice == "broken")
    assert broken.evidence["promise_kept"] is False and broken.evidence["actual"] == 3000


def test_a_time_loop_in_python_breaks_any_promise(script, analysis):
    run = script(
        {"seed": SLOW, "loop": 1.3}, seeds=("seed",), analyses={"seed": analysis()}, optimized={"seed": ("loop",)},
        labels={"loop": ("time_loop_in_python",)}, budget=Budget(rounds=1), policy="notes",
    )  # fmt: skip
    run.run()
    assert ("after_optimize", "stop") in run.path("seed0")
    assert run.result["decisions"]["seed0/03"].evidence["time_loop_in_python"] is True


def test_an_unrepairable_optimized_kernel_leaves_the_best(script, analysis):
    """An optimized kernel that cannot be repaired leaves the best one in its place."""
    run = script(
        {"seed": SLOW, "fails": None}, seeds=("seed",), analyses={"seed": analysis()}, optimized={"seed": ("fails",)},
        budget=Budget(repairs=1, rounds=1), policy="no-tune",
    )  # fmt: skip
    run.run()
    assert run.path("seed0")[2:] == [("after_evaluate", "repair"), ("after_evaluate", "check"), ("after_optimize", "stop")]
    assert run.text(run.result["winner"]) == "seed"


def test_an_analysis_that_is_not_worth_it_ends_the_branch(script, analysis):
    run = script({"seed": SLOW}, seeds=("seed",), analyses={"seed": analysis(worth_optimizing=False, reason="memory bound")})
    run.run()
    assert run.path("seed0") == [("after_evaluate", "rescue"), ("worth_optimizing", "stop")]
    assert "memory bound" in run.result["decisions"]["seed0/01"].reason


def test_the_best_is_analysed_again_only_if_all_seeds_are_bad(script, analysis):
    """The best goes back to the analysis only when all seeds are bad."""
    tables = {"analyses": {"b": analysis()}, "optimized": {"b": ("wave",)}, "policy": "rescue-best"}
    bad = script({"a": 0.1, "b": 0.3, "c": 0.2, "wave": 2.0}, seeds=("a", "b", "c"), **tables)
    bad.run()
    assert bad.path("main")[:2] == [("after_select", "rescue"), ("after_select", "detect")]
    assert bad.path("improve1")[0] == ("worth_optimizing", "optimize")
    assert bad.text(bad.result["winner"]) == "wave"
    good = script({"a": 0.1, "b": 0.3, "c": 1.2, "wave": 2.0}, seeds=("a", "b", "c"), **tables)
    good.run()
    assert good.path("main")[0] == ("after_select", "detect")


def test_identical_kernels_are_measured_once(script):
    """Identical kernels are measured once, and ties go to the first."""
    run = script({"same": 1.5}, seeds=("same", "same"), policy="no-tune")
    result = run.run()
    assert run.evaluator.calls == [("same", "quick"), ("same", "strict")]
    assert result["winner"] == "seed0-01" and set(result["verdicts"]) == {"seed0-01", "seed1-01"}


def test_a_kernel_that_two_branches_wrote_is_confirmed_for_both(script):
    run = script({"same": 4.64}, strict={"same": 4.60}, seeds=("same", "same"))  # the strict score is a little lower
    result = run.run()
    assert result["stopped_because"] == "the winner is confirmed"
    assert {verdict.profile for verdict in result["verdicts"].values()} == {"strict"}
    assert result["verdicts"][result["winner"]].score == 4.60


def test_an_equal_variant_replaces_nothing(script):
    run = script({"base": 1.5, "equal": 1.5}, seeds=("base",), variants={("tune_block", "base"): ("equal",)})
    assert run.run()["winner"] == "seed0-01"
    assert run.asked("tune_memory") == ["base"]


def test_a_winner_that_fails_confirmation_gives_way(script):
    """A winner that fails confirmation makes room for the next best."""
    lucky = scripted_verdict(None, status=Status.RACY)
    run = script({"lucky": 3.0, "honest": 1.5}, strict={"lucky": lucky}, seeds=("lucky", "honest", "lucky"), policy="no-repair")
    result = run.run()
    assert run.path("main")[-2:] == [("after_confirm", "next_best"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "honest"
    assert result["verdicts"]["seed0-01"].status is Status.RACY


def test_no_winner_when_every_candidate_fails_confirmation(script):
    """No winner is reported when every candidate fails confirmation."""
    run = script({"lucky": 3.0}, strict={"lucky": None}, seeds=("lucky",), policy="no-tune")
    assert run.run()["winner"] is None
    assert run.path("main")[-1] == ("after_confirm", "give_up")


@pytest.mark.parametrize("budget", [Budget(candidates=2), Budget(seconds=1e-9)], ids=["candidates", "seconds"])
def test_a_spent_budget_ends_the_run_with_the_best_so_far(script, analysis, budget):
    run = script({"a": 0.2, "b": 0.4, "wave": 2.0}, seeds=("a", "b"), analyses={"b": analysis()}, optimized={"b": ("wave",)}, budget=budget)
    result = run.run()
    assert run.path("seed1") == [("budget", "stop"), ("after_evaluate", "give_up")]
    assert run.text(result["winner"]) == "b" and result["verdicts"][result["winner"]].profile == "strict"
    assert result["stopped_because"].startswith("budget:")


def test_a_spent_allowance_overrules_a_policy(script, analysis):
    """An allowance that is spent overrules a policy that never stops."""
    class Endless(Default):
        def after_optimize(self, view):
            return "again", "once more"

    run = script(
        {"seed": SLOW, "o1": 1.1, "o2": 1.2}, seeds=("seed",), policy=Endless(), analyses={"seed": analysis(), "o1": analysis()},
        optimized={"seed": ("o1",), "o1": ("o2",)}, labels={"o2": ("persistent",)},
    )  # fmt: skip
    run.run()
    assert run.path("seed0")[-2:] == [("after_optimize", "again"), ("budget", "stop")]
    assert run.text(run.result["winner"]) == "o2"


def test_failing_machinery_ends_the_run_with_the_best_so_far(script):
    lost = InfrastructureError("the card fell off the bus")
    run = script({"good": 1.2, "g": lost}, seeds=("good",), variants={("tune_grid", "good"): ("g",)})
    result = run.run()
    assert [text for text, _ in run.evaluator.calls].count("g") == 2, "one retry"
    assert "grid-01" not in result["verdicts"], "a verdict is never made from this"
    assert run.path("main")[-3:] == [("budget", "stop"), ("after_stage", "stop"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "good" and "fell off the bus" in result["stopped_because"]


def test_an_unconfirmed_winner_is_said_to_be_unconfirmed(script):
    """A winner that could not be confirmed is said to be unconfirmed."""
    run = script({"good": 1.2}, strict={"good": InfrastructureError("gone")}, seeds=("good",), policy="no-tune")
    result = run.run()
    assert result["winner"] == "seed0-01" and result["verdicts"]["seed0-01"].profile == "quick"
    assert run.path("main")[-1] == ("after_confirm", "give_up") and "gone" in result["stopped_because"]


def test_an_author_that_cannot_serve_the_task_reaches_the_caller(script):
    with pytest.raises(AuthorError, match="no seed for branch 0"):
        script({}, seeds=()).run()


def test_a_missing_context_is_named(script):
    with pytest.raises(UsageError, match="without context="):
        build_graph().compile().invoke({"task": script({}).task})


def test_a_wrong_answer_of_a_policy_is_named_with_the_choices(script):
    """A wrong answer of a policy is named together with what it may answer."""
    class Wrong(Default):
        name = "wrong"

        def after_detect(self, view):
            return "polish", "why not"

    with pytest.raises(UsageError, match="wrong: after_detect answered 'polish'; it may answer tune, skip"):
        script({"a": 1.5}, seeds=("a",), policy=Wrong()).run()


LIBRARY = scripted_verdict(3.0, label=Label.LIBRARY, library={"aten::gru": 1})
HYBRID = scripted_verdict(1.5, label=Label.HYBRID, share=0.62, library={"aten::addmm": 2})
KERNEL = scripted_verdict(1.2, label=Label.KERNEL)


def test_a_library_kernel_is_sent_back_and_the_repaired_one_wins(script):
    """A library kernel is sent back with the reason, and the repaired one wins."""
    run = script({"passes on": LIBRARY, "own": KERNEL}, seeds=("passes on",), repairs={"passes on": "own"}, policy="no-tune")
    result = run.run()
    assert run.path("seed0") == [("after_evaluate", "repair"), ("after_evaluate", "accept")]
    (brief,) = [brief for kind, brief in run.author.briefs if kind == "repair"]
    assert "the library does the work (label library: aten::gru x1)" in brief.current.refusal and brief.allow is Allow.HYBRID
    assert run.text(result["winner"]) == "own"
    sent_back = result["decisions"]["seed0/00"]
    assert "the library does the work" in sent_back.reason and sent_back.evidence["score"] == 3.0 and "refusal" in sent_back.evidence


def test_nothing_wins_when_nothing_allowed_works(script):
    run = script({"passes on": LIBRARY, "broken": None}, seeds=("passes on", "broken"))
    result = run.run()
    assert result["winner"] is None
    assert result["stopped_because"] == (
        "nothing that may win works (allowed: hybrid; seed0-01 is labelled library; the others: runtime_error)"
    )
    assert run.path("main") == [("after_select", "finish"), ("after_confirm", "give_up")]
    assert ("passes on", "strict") not in run.evaluator.calls


@pytest.mark.parametrize(("allow", "winner"), [(Allow.KERNEL, "own"), (Allow.HYBRID, "half"), (Allow.LIBRARY, "passes on")])
def test_the_setting_decides_who_may_win(script, allow, winner):
    scores = {"passes on": LIBRARY, "half": HYBRID, "own": KERNEL}
    run = script(scores, seeds=tuple(scores), allow=allow, policy="no-tune")
    assert run.text(run.run()["winner"]) == winner


def test_an_optimized_kernel_that_may_not_win_leaves_the_best(script, analysis):
    run = script(
        {"seed": SLOW, "passes on": LIBRARY}, seeds=("seed",), analyses={"seed": analysis()}, optimized={"seed": ("passes on",)},
        budget=Budget(repairs=1, rounds=1), policy="no-tune",
    )  # fmt: skip
    run.run()
    assert run.path("seed0")[2:] == [("after_evaluate", "repair"), ("after_evaluate", "check"), ("after_optimize", "stop")]
    assert run.text(run.result["winner"]) == "seed"


def test_tuning_does_not_go_on_from_a_variant_that_may_not_win(script):
    run = script({"own": KERNEL, "passes on": LIBRARY}, seeds=("own",), variants={("tune_grid", "own"): ("passes on",)})
    run.run()
    assert run.asked("tune_block") == ["own"] and run.text(run.result["winner"]) == "own"


def test_a_winner_whose_label_falls_on_confirmation_makes_room(script):
    run = script({"two-faced": HYBRID, "own": KERNEL}, strict={"two-faced": LIBRARY}, seeds=("two-faced", "own"), policy="no-repair")
    result = run.run()
    assert run.path("main")[-2:] == [("after_confirm", "next_best"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "own"


def test_a_quarantined_kernel_does_not_win(script):
    """A quarantine that the audit does not lift keeps a kernel from winning."""
    held = scripted_verdict(40.0, quarantine="40x the strongest baseline")
    free = held.model_copy(update={"quarantine": ""})
    lifted = script({"fast": held, "plain": 1.2}, strict={"fast": free}, seeds=("fast", "plain"), policy="no-tune")
    assert lifted.text(lifted.run()["winner"]) == "fast"
    kept = script({"fast": held, "plain": 1.2}, seeds=("fast", "plain"), policy="no-tune")
    assert kept.text(kept.run()["winner"]) == "plain"
    alone = script({"fast": held}, strict={"fast": InfrastructureError("gone")}, seeds=("fast",), policy="no-tune")
    assert alone.run()["winner"] is None, "without an audit it does not win either"


def test_a_gain_that_proves_to_be_noise_gives_way(script):
    """A gain that confirmation shows to be noise makes room for a proven one."""
    lucky, small = scripted_verdict(1.3, comparison=Comparison.FASTER), scripted_verdict(1.1, comparison=Comparison.FASTER)
    same = scripted_verdict(1.01, comparison=Comparison.SAME)
    run = script({"lucky": lucky, "small": small}, strict={"lucky": same}, seeds=("lucky", "small"), policy="no-tune")
    result = run.run()
    assert run.path("main")[-2:] == [("after_confirm", "next_best"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "small"
    both = script({"lucky": lucky, "small": small}, strict={"lucky": same, "small": same}, seeds=("lucky", "small"), policy="no-tune")
    result = both.run()
    assert result["winner"] == "seed0-01" and both.path("main")[-1] == ("after_confirm", "accept")


def test_the_search_score_is_kept_with_the_confirmed_figure(script):
    """The score of the search is kept next to the confirmed figure."""
    run = script({"good": 4.61}, strict={"good": 4.55}, seeds=("good", "good"), policy="no-tune")
    result = run.run()
    assert result["verdicts"][result["winner"]].score == 4.55
    assert result["searched"] == {"seed0-01": 4.61, "seed1-01": 4.61}


def test_an_unreadable_kernel_has_no_labels(script):
    """A kernel whose text cannot be followed has no labels, and the run goes on."""
    def puzzled(*given):
        raise KernelFileError("its functions call each other in more ways than can be followed")

    run = script({"good": 1.5}, seeds=("good",))
    run.context = replace(run.context, detector=puzzled)
    result = run.run()
    assert run.text(result["winner"]) == "good" and ("after_detect", "tune") in run.path("main")
