"""A kernel that passed the search and that only the strict profile refuses: back to its author, within the limits of a run."""

import pytest

import chat_server as chat
from durable_driver import begin, outcome_of
from tritonsmith.cli.report.drawing.draw import draw_panels
from tritonsmith.cli.screen.policies import ask_everywhere
from tritonsmith.evaluator.schema import Status
from tritonsmith.graph.drawing import drawn_graph, possible_decisions, visited_nodes
from tritonsmith.graph.policies.forked import decisions_before
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.fork import fork
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.author import AuthorError

RACY = scripted_verdict(None, status=Status.RACY, message="two programs touch one address")


def test_a_refused_kernel_is_repaired_and_wins(script):
    scores = {"lucky": 3.0, "mended": 2.5, "honest": 1.5}
    run = script(scores, strict={"lucky": RACY}, seeds=("lucky", "honest"), repairs={"lucky": "mended"})
    result = run.run()
    assert run.text(result["winner"]) == "mended" and result["verdicts"][result["winner"]].profile == "strict"
    assert run.path("main") == [
        ("after_select", "detect"), ("after_detect", "tune"), *[("after_stage", "next")] * 3, ("after_confirm", "repair"),
        ("after_select", "finish"), ("after_confirm", "accept"),
    ]  # fmt: skip
    assert run.path("return1") == [("after_evaluate", "accept")]
    assert result["candidates"]["return1-01"].parent == "seed0-01" and result["winner"] == "return1-01"
    assert "rejected on confirmation (racy): repair 1 of 5" in result["decisions"]["main/05"].reason


def test_the_author_sees_what_strict_found_and_all_earlier_tries(script):
    run = script(
        {"bad": None, "lucky": 3.0, "mended": 2.5}, strict={"lucky": RACY}, seeds=("bad",), repairs={"bad": "lucky", "lucky": "mended"},
        policy="no-tune",
    )  # fmt: skip
    run.run()
    brief = [brief for kind, brief in run.author.briefs if kind == "repair"][-1]
    assert brief.current.source == "lucky" and [attempt.source for attempt in brief.history] == ["bad"]
    assert (brief.current.verdict.profile, brief.current.verdict.message) == ("strict", "two programs touch one address")


def test_the_next_best_wins_where_the_author_has_no_repair(script):
    run = script({"lucky": 3.0, "honest": 1.5}, strict={"lucky": RACY}, seeds=("lucky", "honest"), policy="no-tune")
    result = run.run()
    assert run.path("return1") == [("after_evaluate", "give_up")]
    assert run.path("main")[2:] == [("after_confirm", "repair"), ("after_select", "finish"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "honest" and result["verdicts"][result["winner"]].profile == "strict"


def test_a_repaired_text_that_failed_before_wins_nothing(script):
    scores, same = {"lucky": 3.0, "honest": 1.5}, {"lucky": "lucky"}
    run = script(scores, strict={"lucky": RACY}, seeds=("lucky", "honest"), repairs=same, policy="no-tune")
    assert run.text(run.run()["winner"]) == "honest"


def test_repairs_of_refused_kernels_share_one_limit(script):
    """Repairs that the strict profile refuses again, and those that fail in the search, count together."""
    chain = [f"kernel {number}" for number in range(20)]
    scores = {text: 3.0 for text in chain} | {"kernel 2": None, "honest": 1.5}
    run = script(
        scores, strict=dict.fromkeys(chain), seeds=(chain[0], "honest"), repairs=dict(zip(chain, chain[1:], strict=False)),
        budget=Budget(repairs=3), policy="no-tune",
    )  # fmt: skip
    result = run.run()
    assert [cid for cid in result["candidates"] if cid.startswith("return")] == ["return1-01", "return2-01", "return2-02"]
    assert run.path("return2") == [("after_evaluate", "repair"), ("after_evaluate", "accept")]
    assert run.path("main")[-2:] == [("after_confirm", "next_best"), ("after_confirm", "accept")]
    assert run.text(result["winner"]) == "honest"


@pytest.mark.parametrize("policy", ["no-repair", "best-of-n"])
def test_a_policy_without_repair_passes_on_to_the_next_best(script, policy):
    run = script({"lucky": 3.0, "honest": 1.5}, strict={"lucky": RACY}, seeds=("lucky", "honest"), repairs={"lucky": "x"}, policy=policy)
    assert run.text(run.run()["winner"]) == "honest" and not run.asked("repair")


def test_a_spent_budget_leaves_the_next_best(script):
    scores, two = {"lucky": 3.0, "honest": 1.5}, Budget(candidates=2)
    run = script(scores, strict={"lucky": RACY}, seeds=("lucky", "honest"), repairs={"lucky": "x"}, budget=two)
    assert run.text(run.run()["winner"]) == "honest" and not run.asked("repair")
    assert run.path("main")[-2:] == [("after_confirm", "next_best"), ("after_confirm", "accept")]


def test_an_author_that_fails_then_leaves_the_next_best(script, monkeypatch):
    run = script({"lucky": 3.0, "honest": 1.5}, strict={"lucky": RACY}, seeds=("lucky", "honest"), policy="no-tune")

    async def fail(brief):
        raise AuthorError("the model is gone")

    monkeypatch.setattr(run.author, "repair", fail)
    assert run.text(run.run()["winner"]) == "honest"


@pytest.fixture
def players():
    author = ScriptedAuthor(seeds=("lucky", "honest"), repairs={"lucky": "worse", "worse": "mended"})
    verdicts = {text: scripted_verdict(score) for text, score in {"lucky": 3.0, "worse": None, "mended": 2.5, "honest": 1.5}.items()}
    return {"author": author, "evaluator": ScriptedEvaluator(verdicts, {"lucky": RACY})}


@pytest.mark.parametrize(("at", "count"), [("stage", 1), ("candidate", 1), ("decision", 1), ("verdict", 2)])
def test_a_run_that_is_left_in_the_return_goes_on(tmp_path, players, at, count):
    """Left before the author is asked, after the author's answer, between two repairs, and after the last verdict."""
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)
    whole = optimize(task, out=str(tmp_path / "whole"), seeds=2, policy="no-tune", **players)
    assert (whole.winner.id, whole.winner.verdict.profile) == ("return1-02", "strict")
    begin(task, players, tmp_path / "out", at, count, "return1", seeds=2, policy="no-tune")
    assert not (tmp_path / "out" / "summary.json").exists()
    assert resume(tmp_path / "out", **players).winner == whole.winner and outcome_of(tmp_path / "out") == outcome_of(tmp_path / "whole")


@pytest.mark.parametrize("at", ["after_confirm", "after_evaluate"])
def test_a_fork_repeats_the_returns_before_its_site(tmp_path, players, at):
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)
    whole = optimize(task, out=str(tmp_path / "whole"), seeds=2, policy="no-tune", **players)
    again = fork(tmp_path / "whole", at=at, policy="no-tune", out=tmp_path / "again", **players)
    assert again.decisions == whole.decisions and again.winner == whole.winner
    before, cut = decisions_before("after_confirm", whole.decisions)
    assert cut and not any(one.branch == "return1" for one in before.values())


def test_the_way_back_is_drawn(script):
    run = script({"lucky": 3.0, "mended": 2.5}, strict={"lucky": RACY}, seeds=("lucky",), repairs={"lucky": "mended"}, policy="no-tune")
    decisions = list(run.run()["decisions"].values())
    seen = visited_nodes(drawn_graph(True), decisions)
    assert {"improve:repair", "improve:evaluate", "finish"} <= set(seen) and "improve:analyze" not in seen
    (panel,) = [one for one in draw_panels(decisions, link=False) if one.name == "improve"]
    assert "repaired" in panel.title
    for policy, ways in (("default", {"return1"}), ("rescue-best", {"improve1", "return1"}), ("no-repair", set())):
        possible = possible_decisions((one["gate"], one["choice"]) for one in ask_everywhere(load_policy(policy)))
        assert {one.branch for one in possible} - {"main", "seed0"} == ways
