"""A fork of a run has the parent's seeds, replies and verdicts, and differs from it only where its own policy decides."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import chat_server as chat
from project import ROOT
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import TaskFacts
from tritonsmith.graph.conformance.situations import situations
from tritonsmith.graph.conformance.trial_runs import trials
from tritonsmith.graph.policies.forked import ForkedPolicy, Parent, decisions_before
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.fork import fork, fork_run
from tritonsmith.graph.sites import QUESTIONS, SITES
from tritonsmith.graph.state import Decision
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category

VERDICTS = {
    "bad": scripted_verdict(None, message="it fails"), "mended": scripted_verdict(1.05), "slow": scripted_verdict(0.6),
    "wave": scripted_verdict(1.2), "tuned": scripted_verdict(1.5),
}  # fmt: skip
CHANGE = Analysis(
    bottleneck="launches", optimisation_method="one launch", modification_plan="fuse", category=Category.LAUNCHES, expected_speedup=2.0
)


def players():
    author = ScriptedAuthor(
        seeds=("bad", "slow"), repairs={"bad": "mended"}, analyses={"slow": CHANGE}, optimized={"slow": ("wave",)},
        variants={("tune_block", "wave"): ("tuned",), ("tune_block", "slow"): ("tuned",)},
    )  # fmt: skip
    return {"author": author, "evaluator": ScriptedEvaluator(VERDICTS, facts=TaskFacts(returns="a tensor"))}


@pytest.fixture
def parent(tmp_path):
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)
    summary = optimize(task, out=str(tmp_path / "parent"), seeds=2, **players())
    return SimpleNamespace(folder=tmp_path / "parent", summary=summary, task=task)


def told(decisions):
    return {decision.id: decision for decision in decisions}


def difference(one, other):
    """Ids of the decisions that are not the same in both runs, in the order of the second."""
    first, second = told(one.decisions), told(other.decisions)
    return [id for id in {**first, **second} if first.get(id) != second.get(id)]


LATE = [pytest.param(site, marks=pytest.mark.slow) for site in ("after_optimize", "after_stage", "after_memory", "after_confirm")]


@pytest.mark.parametrize("at", ["after_evaluate", "after_detect", *LATE])
def test_the_same_policy_gives_the_same_run(parent, at):
    """A fork with the same policy gives the same run and judges nothing again."""
    given = players()
    summary = fork(parent.folder, at=at, policy="default", out=parent.folder / "fork", **given)
    assert summary.winner.id == parent.summary.winner.id and summary.winner.verdict == parent.summary.winner.verdict
    assert summary.decisions == parent.summary.decisions
    assert given["evaluator"].calls == [], "what the parent has judged was judged again"
    assert json.loads((parent.folder / "fork" / "run.json").read_text())["parent"] == {"run": "parent", "at": at}
    assert summary.parent == {"run": "parent", "at": at}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_the_same_rules_give_the_same_run_at_every_site(tmp_path, name):
    """With every policy and at every site, the same rules give the same run."""
    trial = next(one for one in trials() if one.name == "a rescue that pays")
    (tmp_path / "1_relu.py").write_text(chat.TASK)

    def given():
        author = ScriptedAuthor(seeds=(*trial.seeds, "slow"), **trial.author)
        return {"author": author, "evaluator": ScriptedEvaluator(trial.verdicts, facts=TaskFacts(returns="a tensor"))}

    seeds = load_policy(name).seeds or 2
    whole = optimize(tmp_path / "1_relu.py", out=str(tmp_path / "parent"), seeds=seeds, policy=name, **given())
    reached = [gate for gate in SITES if decisions_before(gate, whole.decisions)[1]]
    assert len(reached) >= 4
    for at in reached:
        players = given()
        summary = fork(tmp_path / "parent", at=at, policy=name, **players)
        assert summary.decisions == whole.decisions and players["evaluator"].calls == [], at


def test_another_policy_differs_only_after_the_site(parent):
    given = players()
    summary = fork(parent.folder, at="after_detect", policy="no-tune", **given)
    assert Path(summary.out).name == "parent-after_detect-no-tune" and summary.policy == "no-tune"
    ours, theirs = told(summary.decisions), told(parent.summary.decisions)
    (site,) = [one for one in summary.decisions if one.site == "after_detect"]
    same = [id for id, one in theirs.items() if one.branch != "main" or id < site.id]
    assert len(same) > 5 and all(ours[id] == theirs[id] for id in same), "also the name of the policy that decided"
    assert {ours[id].policy for id in same} == {"default"}
    assert difference(parent.summary, summary)[0] == site.id and (site.choice, site.policy) == ("skip", "no-tune")
    assert summary.winner.id != parent.summary.winner.id and summary.winner.stage == "optimize"
    assert given["evaluator"].calls == [("wave", "strict")], "only what the parent never judged"


def test_after_a_site_in_the_branches_the_other_policy_decides(parent):
    """A site inside the branches leaves what follows them to the other policy."""
    summary = fork(parent.folder, at="worth_optimizing", policy="no-tune", **players())
    names = {one.id: one.policy for one in summary.decisions}
    cut = next(one for one in summary.decisions if one.site == "worth_optimizing")
    assert cut.branch == "seed1"
    assert all(name == "default" for id, name in names.items() if id.startswith("seed0")), "seed0 never came to the site"
    assert {name for id, name in names.items() if id.startswith("main") or (id.startswith("seed1") and id >= cut.id)} == {"no-tune"}


def test_the_number_of_seeds_is_the_parents(parent):
    summary = fork(parent.folder, at="after_select", policy="rescue-best", **players())
    assert {one.branch for one in summary.decisions} == {"seed0", "seed1", "main"}, "rescue-best alone would have three"


def test_a_run_may_be_named_by_the_folder_one_stands_in(parent, monkeypatch):
    monkeypatch.chdir(parent.folder)
    summary = fork(".", at="after_detect", policy="no-tune", **players())
    assert Path(summary.out) == parent.folder.parent / "parent-after_detect-no-tune"


def test_a_fork_of_a_fork(parent):
    first = fork(parent.folder, at="after_detect", policy="no-tune", out=parent.folder / "one", **players())
    second = fork(first.out, at="after_detect", policy="default", out=parent.folder / "two", **players())
    assert second.parent == {"run": "one", "at": "after_detect"}
    assert second.winner.id == parent.summary.winner.id and not difference(parent.summary, second)


def test_a_stopped_fork_goes_on_with_the_parents_decisions(parent):
    given = players()
    run = fork_run(parent.folder, at="after_detect", policy="no-tune", out=parent.folder / "fork", **given)
    assert not (run.folder / "run.json").exists() and (run.folder / "parent.json").is_file()
    summary = fork(parent.folder, at="after_detect", policy="no-tune", out=parent.folder / "fork", **given)
    again = fork(parent.folder, at="after_detect", policy="no-tune", out=parent.folder / "fork", **players())
    assert again.decisions == summary.decisions
    for other in ({"at": "after_select", "policy": "no-tune"}, {"at": "after_detect", "policy": "notes"}):
        with pytest.raises(UsageError, match="a fork of parent at after_detect with policy no-tune lies there"):
            fork(parent.folder, out=parent.folder / "fork", **other, **players())


@pytest.mark.parametrize("site", ["after_evaluate", "after_select", "after_grid"])
def test_a_stopped_and_resumed_fork_ends_the_same(parent, site):
    """A fork that is stopped and resumed ends like one that is not."""
    whole = fork(parent.folder, at="after_select", policy="no-detect", out=parent.folder / "whole", **players())
    run = fork_run(parent.folder, at="after_select", policy="no-detect", out=parent.folder / "fork", **players())

    async def until():
        async for event in run.stream():
            if event["event"] == "decision" and event["gate"] == site:
                run.stop("the test says so")

    asyncio.run(until())
    assert run.summary is None and run.stopped
    resumed = resume(run.folder, **players())
    assert resumed.decisions == whole.decisions and resumed.winner.verdict == whole.winner.verdict and resumed.parent == whole.parent


def cut(folder, event_of):
    """Leave the events of a run up to the first that fits, as a kill would."""
    (folder / "summary.json").unlink()
    lines = (folder / "events.jsonl").read_text().splitlines()
    end = next(number for number, line in enumerate(lines) if event_of(json.loads(line)))
    (folder / "events.jsonl").write_text("\n".join([*lines[: end + 1], '{"event": "verd']))


def test_an_unfinished_run_may_be_forked_at_a_reached_site(parent):
    """An unfinished run may be forked where the site was reached."""
    cut(parent.folder, lambda event: event["event"] == "decision" and event["site"] == "after_detect")
    summary = fork(parent.folder, at="after_detect", policy="default", out=parent.folder / "fork", **players())
    assert not difference(parent.summary, summary)
    with pytest.raises(UsageError, match="never asked its policy there; it asked at after_evaluate, .*after_select, after_detect"):
        fork(parent.folder, at="after_confirm", policy="default", out=parent.folder / "other", **players())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"at": "after_lunch"}, "--at after_lunch: there is no such site; choose one of after_evaluate, .*after_grid.*after_stage"),
        ({"policy": "greedy"}, "--policy greedy: no such policy"),
        ({"folder": "nowhere"}, "there is no such folder"),
        ({"out": "parent"}, "that is the run itself"),
        ({"out": "1_relu.py"}, "that is a file"),
        ({"out": "full"}, "the folder is not empty"),
        ({"evaluator": None}, "started from Python with its own evaluator"),
    ],
)
def test_what_cannot_be_forked_is_said(parent, tmp_path, monkeypatch, change, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("x")
    given = {"folder": "parent", "at": "after_detect", "policy": "no-tune", **players(), **change}
    with pytest.raises(UsageError, match=says):
        fork(given.pop("folder"), **given)
    assert not (tmp_path / "parent-after_detect-no-tune").exists()


@pytest.mark.parametrize(
    ("tape", "says"),
    [
        (b"", "this is not the tape of a run"),
        (b"{}\n", "this is not the tape of a run"),
        (b'{"kind": "tape", "format": 1}\n\x7fELF\xff\n', "line 2 cannot be read"),
        (b"[1]\n", "line 1 cannot be read .it is no JSON object"),
    ],
)
def test_a_damaged_tape_is_refused_before_a_folder_is_made(parent, tape, says):
    (parent.folder / "tape.jsonl").write_bytes(tape)
    with pytest.raises(UsageError, match=f"tape.jsonl: {says}.*fork another run"):
        fork(parent.folder, at="after_detect", policy="no-tune", out=parent.folder / "fork", **players())
    assert not (parent.folder / "fork").exists()


def test_a_changed_task_or_a_lost_tape_is_refused(parent):
    (parent.folder / "tape.jsonl").rename(parent.folder / "kept.jsonl")
    with pytest.raises(UsageError, match="has no tape.jsonl"):
        fork(parent.folder, at="after_detect", policy="no-tune", **players())
    parent.task.write_text(chat.TASK + "\n# changed\n")
    with pytest.raises(UsageError, match="has changed since the run began"):
        fork(parent.folder, at="after_detect", policy="no-tune", **players())


def decision(id, gate, choice="", site="", reason="r"):
    branch = id.partition("/")[0]
    return Decision(id=id, site=site or SITES[gate].asks, choice=choice, reason=reason, branch=branch, gate=gate)


LINES = [
    decision("seed0/00", "after_evaluate", "accept"),
    decision("seed1/00", "after_evaluate", "give_up"),
    decision("main/00", "after_select", "rescue"),
    decision("improve1/00", "worth_optimizing", "optimize"),
    decision("improve1/01", "after_evaluate", "check"),
    decision("main/01", "after_select", "detect"),
    decision("main/02", "after_detect", "tune"),
    decision("main/03", "after_grid", "stop", site="budget"),
    decision("main/04", "after_grid", "stop", reason="not asked: the budget is spent"),
    decision("main/05", "after_confirm", "accept"),
]


@pytest.mark.parametrize(
    ("at", "kept", "reached"),
    [
        ("after_evaluate", [], True),
        ("after_select", ["seed0/00", "seed1/00"], True),
        ("worth_optimizing", ["seed0/00", "seed1/00", "main/00"], True),
        ("after_detect", ["seed0/00", "seed1/00", "main/00", "improve1/00", "improve1/01", "main/01"], True),
        ("after_stage", None, False),  # the budget answered there, no policy
        ("after_grid", None, False),
        ("after_optimize", None, False),
    ],
)
def test_where_a_site_cuts_a_run(at, kept, reached):
    found, was_reached = decisions_before(at, reversed(LINES))
    assert was_reached is reached
    assert kept is None or sorted(found) == sorted(kept)


def test_a_recorded_answer_is_given_to_the_same_question_only():
    known = decision("seed0/01", "after_evaluate", "repair").model_copy(update={"policy": "notes", "candidate": "seed0-02"})
    policy = ForkedPolicy(Parent(run="parent", at="after_detect", seeds=2, decisions={known.id: known}), load_policy("no-repair"))
    failing = next(one.view for one in situations() if one.name == "seed: runtime_error")
    same = replace(failing, step=1, current=failing.current.model_copy(update={"id": "seed0-02"}))
    assert policy.after_evaluate(same) == ("repair", "r") and policy.name_at(same) == "notes"
    for other in (replace(same, step=2), replace(same, branch="seed1"), replace(same, current=failing.current), replace(same, gate="x")):
        assert policy.after_evaluate(other)[0] == "give_up" and policy.name_at(other) == "no-repair"
    assert all(callable(getattr(policy, question)) for question in QUESTIONS) and not hasattr(policy, "after_lunch")


def test_with_a_model_the_seeds_are_not_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)
    verdicts = {chat.kernel(1): scripted_verdict(0.5, launches=7), chat.kernel(2): scripted_verdict(1.5, launches=1)}

    def models(server):
        return Models(author="openai:toy", base_url=server.url)

    with chat.ChatServer([chat.answer(1)]) as server:
        first = ScriptedEvaluator(verdicts)
        run = optimize(task, models=models(server), evaluator=first, out=str(tmp_path / "parent"), seeds=1, policy="best-of-n")
        assert len(server.requests) == 1 and run.winner.id == "seed0-01"
    with chat.ChatServer([chat.analysis(), chat.answer(2)]) as server:
        second = ScriptedEvaluator(verdicts)
        other = fork(tmp_path / "parent", at="after_evaluate", policy="no-tune", evaluator=second, models=models(server))
        assert len(server.requests) == 2, "the analysis and the optimized kernel; the seed is the parent's"
        assert second.calls == [(chat.kernel(2), "quick"), (chat.kernel(2), "strict")]
    assert other.winner.id == "seed0-02" and other.candidates[0].sha == run.candidates[0].sha
    with chat.ChatServer([]) as server:
        given = ScriptedEvaluator(verdicts)
        same = fork(tmp_path / "parent", at="after_evaluate", policy="best-of-n", evaluator=given, models=models(server))
        assert server.requests == [] and given.calls == [] and same.decisions == run.decisions
        assert same.usage == run.usage, "what the parent has paid counts, once"


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    example, out = ROOT / "examples" / "recorded_run", tmp_path / "run"
    settings = ["--seeds=1", "--policy=no-tune", "--size=small", "--target=h200", "--replay", str(example / "run.jsonl")]
    assert command(["optimize", str(example / "task.py"), *settings, "--out", str(out), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert command(["fork", str(out), "--at", "after_detect", "--policy", "best-of-n", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["out"] == f"{out}-after_detect-best-of-n" and told["parent"] == {"run": "run", "at": "after_detect"}
    assert told["winner"]["id"] == first["winner"]["id"] and {one["policy"] for one in told["decisions"]} == {"no-tune", "best-of-n"}
    assert command(["fork", str(out), "--at", "after_evaluate", "--policy", "best-of-n", "--json"]) == 1, "its first seed does not work"
    capsys.readouterr()
    for arguments, says in (
        (["--at", "after_lunch", "--policy", "default"], "error: --at after_lunch: there is no such site; choose one of after_evaluate, "),
        (["--at", "after_evaluate", "--policy", "no-analysis"], "and --policy no-analysis goes a way that the recording"),
        (["--at", "after_stage", "--policy", "default"], "never asked its policy there; it asked at after_evaluate, "),
        (["--policy", "default"], "Missing option '--at'"),
    ):
        assert command(["fork", str(out), *arguments]) == 2
        told = capsys.readouterr()
        assert says in told.err.splitlines()[-1] and told.out == "", told.err
