"""Presets that go on where `default` stops, through the whole graph: nearer to the floor, and with several lines of work."""

from dataclasses import replace

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.records.limits import Counters, KernelCounters
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.context import Sessions
from tritonsmith.graph.drawing import graph_mermaid
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Promise


def test_analysis_goes_on_beyond_1_while_the_floor_is_far(script, analysis):
    verdicts = {"seed": scripted_verdict(1.3, floor=0.4), "near": scripted_verdict(2.8, floor=0.9)}
    tables = {"analyses": {"seed": analysis(promise=None)}, "optimized": {"seed": ("near",)}, "seeds": ("seed",)}
    run = script(verdicts, policy="to-the-floor", **tables)
    run.run()
    assert run.path("seed0") == [
        ("after_evaluate", "rescue"), ("worth_optimizing", "optimize"), ("after_evaluate", "check"), ("after_optimize", "kept"),
    ]  # fmt: skip
    first = run.result["decisions"]["seed0/00"]
    assert "40 % of its floor" in first.reason and first.evidence["floor_share"] == 0.4 and first.evidence["floor_limit"] == "bytes"
    plain = script(verdicts, **tables)
    plain.run()
    assert plain.path("seed0") == [("after_evaluate", "accept")]


def test_rounds_end_near_the_floor_or_where_little_is_predicted(script, analysis):
    far = scripted_verdict(1.5, floor=0.5)
    again = script(
        {"seed": scripted_verdict(1.3, floor=0.4), "far": far}, policy="to-the-floor", seeds=("seed",),
        analyses={"seed": analysis(promise=None), "far": analysis(promise=None, expected_speedup=1.05)}, optimized={"seed": ("far",)},
    )  # fmt: skip
    again.run()
    assert again.path("seed0")[-2:] == [("after_optimize", "again"), ("worth_optimizing", "stop")]
    unknown = script({"seed": 1.3}, policy="to-the-floor", seeds=("seed",))
    unknown.run()
    assert unknown.path("seed0") == [("after_evaluate", "accept")]


@pytest.mark.parametrize(("counted", "kept"), [(84.0, True), (61.0, False), (None, False)])
def test_a_promise_about_a_counter_is_checked_against_the_next_verdict(script, analysis, counted, kept):
    """Counted by Nsight Compute, or the achieved share where nobody could count."""
    promise = Promise(metric="dram_throughput", before=35.0, bound=80.0, at_most=False)
    kernel = KernelCounters(name="kernel", dram_throughput=counted, grid=132)
    counters = Counters(source="compiled" if counted is None else "ncu", kernels=(kernel,), bandwidth_share=70.0)
    run = script(
        {"seed": 0.4, "streams": scripted_verdict(1.2, counters=counters)}, seeds=("seed",), budget=Budget(rounds=1),
        analyses={"seed": analysis(promise=promise)}, optimized={"seed": ("streams",)},
    )  # fmt: skip
    run.run()
    check = next(decision for decision in run.result["decisions"].values() if decision.site == "after_optimize")
    assert (check.choice == "kept") is kept and check.evidence["actual"] == (70.0 if counted is None else counted)
    assert ("not counted" if counted is None else "counted by Nsight Compute") in run.result["checks"]["seed0-02"].reason


@pytest.mark.parametrize("computes", [False, True])
def test_nothing_is_counted_for_an_author_that_computes_its_analyses(script, analysis, computes):
    counters = Counters(source="ncu", kernels=(KernelCounters(name="kernel", dram_throughput=50.0, grid=132),))
    run = script(
        {"seed": scripted_verdict(0.4, kind=TimingKind.MEASURED), "streams": 1.2}, seeds=("seed",),
        analyses={"seed": analysis(promise=None)}, optimized={"seed": ("streams",)},
    )  # fmt: skip
    run.evaluator.counted = {"seed": counters}
    if computes:
        run.author.computes_analyses = True
    run.run()
    brief = next(brief for request, brief in run.author.briefs if request == "analyze")
    known = brief.current.verdict.facts.counters
    assert (known is not None and known.source == "ncu") is not computes


def beam(script, analysis, **more):
    names = ("a", "b", "c", "d")
    scores = dict(zip(names, (1.0, 0.9, 0.8, 0.1), strict=True))
    scores |= {"a2": 1.05, "b2": 2.0, "c2": 0.5, "b3": 3.0, "a3": 1.1}
    return script(
        {text: scripted_verdict(score) for text, score in scores.items()}, seeds=names,
        analyses={text: analysis(promise=None) for text in (*names, "a2", "b2")},
        optimized={"a": ("a2",), "b": ("b2",), "c": ("c2",), "b2": ("b3",), "a2": ("a3",)}, **{"policy": "beam:2", **more},
    )  # fmt: skip


def test_the_best_lines_go_on_side_by_side(script, analysis):
    """The winner stems from the second of the seeds; one line would have gone on with the first."""
    run = beam(script, analysis)
    run.run()
    rounds = [decision for decision in run.result["decisions"].values() if decision.choice == "widen"]
    assert [decision.evidence["open_lines"] for decision in rounds] == [["seed0-01", "seed1-01"], ["improve2-01", "improve1-01"]]
    assert run.path("seed0") == [("after_evaluate", "accept")]
    assert run.path("improve2") == [("worth_optimizing", "optimize"), ("after_evaluate", "check"), ("after_optimize", "kept")]
    asked = run.asked("analyze")  # lines of one round in any order; neither c nor d
    assert (sorted(asked[:2]), sorted(asked[2:])) == (["a", "b"], ["a2", "b2"])
    assert run.text(run.result["winner"]) == "b3"
    assert run.result["candidates"][run.result["winner"]].parent == "improve2-01"


def test_rounds_of_the_beam_end_with_the_budget(script, analysis):
    run = beam(script, analysis, budget=Budget(rounds=1))
    run.run()
    assert [choice for _, choice in run.path("main")].count("widen") == 1
    assert run.text(run.result["winner"]) == "b2"


def test_a_beam_goes_on_from_its_checkpoints_and_is_drawn(script, analysis):
    """Stopped after every selection, each part with a session of its own: the same decisions as in one piece."""
    whole = beam(script, analysis)
    whole.run()
    drawn = graph_mermaid(decisions=whole.result["decisions"].values())
    assert "rescue / widen" in drawn and "decide_after_select" in drawn.rpartition("class ")[2]
    parts = beam(script, analysis)
    app = build_graph().compile(checkpointer=InMemorySaver(), interrupt_after=["decide_after_select"])
    thread = {"configurable": {"thread_id": "one"}}
    result, stops = app.invoke({"task": parts.task}, thread, context=parts.context), 0
    while app.get_state(thread).next:
        result, stops = app.invoke(None, thread, context=replace(parts.context, sessions=Sessions())), stops + 1
    assert stops == 3 and sorted(result["decisions"].items()) == sorted(whole.result["decisions"].items())


def test_equal_compiled_code_is_measured_once(script, analysis):
    """An optimized kernel that compiles to its seed's code is dropped; a failing kernel's code is a reason for nothing."""
    run = script(
        {"a": 0.9, "a again": 5.0, "wrong": None, "right": 0.8}, seeds=("a", "wrong"), policy="beam:2",
        analyses={"a": analysis(promise=None)}, optimized={"a": ("a again",)}, repairs={"wrong": "right"},
    )  # fmt: skip
    run.evaluator.codes = {"a": "c1", "a again": "c1", "wrong": "c2", "right": "c2"}
    run.run()
    assert run.path("improve1")[1:] == [("after_evaluate", "check"), ("after_optimize", "stop")]
    assert ("a again", "quick") not in run.evaluator.calls and ("right", "quick") in run.evaluator.calls
    assert run.result["twins"] == {"improve1-01": "seed0-01"} and "seed0-01" in run.result["decisions"]["improve1/01"].reason
    plain = script({"a": 0.9, "b": 0.8}, seeds=("a", "b"))
    plain.evaluator.codes = {"a": "c1", "b": "c1"}
    plain.run()
    assert ("b", "quick") in plain.evaluator.calls


def test_equal_variants_of_a_stage_are_measured_once(script):
    run = script(
        {"a": 1.2, "v1": 1.3, "v2": 1.4}, seeds=("a",), policy="beam:2", variants={("tune_grid", "a"): ("v1", "v2")},
    )  # fmt: skip
    run.evaluator.codes = {"a": "c", "v1": "x", "v2": "x"}
    run.run()
    assert ("v1", "quick") in run.evaluator.calls and ("v2", "quick") not in run.evaluator.calls


def test_the_width_is_part_of_the_name():
    assert load_policy("beam").width == 3 and load_policy("beam:5").name == "beam:5"
    with pytest.raises(UsageError, match="keep between 1 and 16 lines"):
        load_policy("beam:0")
