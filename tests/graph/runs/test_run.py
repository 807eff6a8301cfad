"""A run from a task file to its folder: what it writes, what it refuses, and what it tells while it goes on."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import RunStopped, TaskError, UsageError
from tritonsmith.evaluator.schema import FIT, ChosenSize, Comparison, Label, PrecisionClass, TaskFacts, TensorSpec
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.policies.presets import Default
from tritonsmith.graph.run import Run, RunConfig, make_context, optimize, optimize_async, resume
from tritonsmith.graph.runs.run import run_to_end
from tritonsmith.graph.storage.summary import Summary, Winner
from tritonsmith.nodes.authors.make import make_author
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = """
import torch
from torch import nn

N = 1024
SMALL = {"N": 16}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
WINNER = "from __future__ import annotations\nWEIGHT_MAP = {}\n"


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "1_relu.py"
    path.write_text(TASK)
    return path


@pytest.fixture
def players():
    author = ScriptedAuthor(seeds=("bad", "good"), variants={("tune_block", "good"): (WINNER,)})
    verdicts = {"bad": scripted_verdict(None, message="it fails"), "good": scripted_verdict(0.6), WINNER: scripted_verdict(1.5)}
    return {"author": author, "evaluator": ScriptedEvaluator(verdicts, facts=TaskFacts(returns="a tensor"))}


class Judge(ScriptedEvaluator):
    """Takes note of the tasks that it is asked about."""

    tasks = ()

    async def describe(self, task):
        self.tasks = (*self.tasks, task)
        return await super().describe(task)

    async def evaluate(self, task, kernel, profile="quick"):
        self.tasks = (*self.tasks, task)
        return await super().evaluate(task, kernel, profile)


def test_a_size_that_the_evaluator_chose_is_told_and_kept(task, players, tmp_path):
    """Without SMALL and without a card the evaluator chooses; every verdict, the events and the summary are about its choice."""
    task.write_text(TASK.replace('SMALL = {"N": 16}', ""))
    chosen = ChosenSize(overrides={"N": 64}, note="shrunk: N 1024 -> 64")
    judge = Judge(players["evaluator"].verdicts, facts=TaskFacts(chosen=chosen))
    events, out = [], tmp_path / "out"
    summary = optimize(task, out=str(out), on_event=events.append, author=players["author"], evaluator=judge)
    first, *rest = judge.tasks
    assert (first.size, first.overrides) == (FIT, {})
    assert {(one.size, one.overrides["N"], one.sha) for one in rest} == {("small", 64, load_task(task, overrides={"N": 64}).sha)}
    assert (summary.size, summary.sized) == ("small", chosen.note)
    (told,) = [event for event in events if event["event"] == "size"]
    assert told["reason"] == chosen.note
    assert [event["size"] for event in events if event["event"] == "run"] == [""]

    (out / "summary.json").unlink()
    (out / "checkpoints.sqlite").unlink()  # the tape alone
    again = Judge(players["evaluator"].verdicts)
    assert resume(out, author=players["author"], evaluator=again).sized == chosen.note and again.tasks == ()


@pytest.mark.parametrize("size", [None, "small"])
def test_a_fault_of_the_task_ends_the_run_before_anybody_is_asked(task, players, tmp_path, size):
    task.write_text(TASK.replace('SMALL = {"N": 16}', ""))
    with pytest.raises(TaskError, match=r"1_relu\.py: declares no small size; .* or add SMALL"):
        optimize(task, size=size, out=str(tmp_path / "out"), **players)  # this evaluator chooses none
    assert players["author"].briefs == [] and not (tmp_path / "out").exists()


def test_the_folder_of_a_run(task, players, tmp_path):
    events = []
    out = tmp_path / "out"
    summary = optimize(task, out=str(out), on_event=events.append, **players)
    told = json.loads((out / "summary.json").read_text())
    assert {"task", "policy", "model", "winner", "candidates", "decisions", "usage", "stopped_because"} <= set(told)
    assert {"id", "stage", "verdict"} <= set(told["winner"]) and told["winner"]["verdict"]["profile"] == "strict"
    assert all({"id", "parent", "stage", "status", "score"} <= set(row) for row in told["candidates"])
    assert all({"site", "choice", "reason", "evidence"} <= set(row) for row in told["decisions"])
    assert (told["task"], told["policy"], told["model"]) == ("1_relu", "default", "scripted")
    assert told["winner"]["id"] == summary.winner.id == "block-01"

    best = (out / "best.py").read_text()
    assert best.endswith(WINNER) and "score 1.500 against eager: estimated" in best
    assert "# proven on: Triton's interpreter, without a card; figures for" in best and "are estimates\n" in best
    assert "ModelNew(...).eval().cuda(); weights = reference.state_dict(); model.load_state_dict({own: weights[ModelNew.WEIGHT_MAP" in best
    compile(best, "best.py", "exec")

    lines = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [event["event"] for event in events]
    assert {line["branch"] for line in lines} == {"main", "seed0", "seed1"}
    assert {path.stem for path in (out / "verdicts").iterdir()} == {"seed0-01", "seed1-01", "block-01", "block-01.strict"}
    assert {path.stem for path in (out / "kernels").iterdir()} == {row["sha"] for row in told["candidates"]}


def test_a_winner_has_its_confirmed_figure_and_label(task, tmp_path):
    """A winner is shown with its confirmed figure, its label and what was proven."""
    quick = scripted_verdict(4.61, comparison=Comparison.FASTER, label=Label.HYBRID, share=0.62)
    strict = scripted_verdict(4.55, comparison=Comparison.FASTER, label=Label.HYBRID, share=0.62)
    correctness = strict.correctness.model_copy(update={"precision_class": PrecisionClass.SPLIT})
    environment = {"versions": {"python": "3.11", "torch": "2.11.0"}, "nvml": {"driver": "580.1"}}
    strict = strict.model_copy(update={"correctness": correctness, "environment": environment})
    facts = TaskFacts(inputs=(TensorSpec(shape=(4, 8)),), init_inputs=("8", "", "'gelu'"), returns="a tensor float32[4, 8]")
    players = {"author": ScriptedAuthor(seeds=("good",)), "evaluator": ScriptedEvaluator({"good": quick}, {"good": strict}, facts=facts)}
    summary = optimize(task, out=str(tmp_path / "out"), seeds=1, target="h200", precision="tf32", **players)
    line = "4.55x: FASTER than eager (hybrid: 62 % of device time in own Triton kernels, split); search said 4.61x, confirmed 4.55x"
    told = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary.result == told["result"] == line and told["allow"] == "hybrid"
    assert told["winner"]["verdict"]["timing"]["score"] == 4.55 and told["winner"]["search_score"] == 4.61
    (row,) = told["candidates"]
    assert (row["score"], row["search_score"], row["comparison"]) == (4.55, 4.61, "faster")
    assert (row["label"], row["precision"]) == ("hybrid", "split")
    best = (tmp_path / "out" / "best.py").read_text()
    assert f"# {line}\n" in best and "score 4.550 against eager" in best
    header = [line.removeprefix("# ") for line in best.splitlines() if line.startswith("# ")]
    assert header[-8:] == [
        "proven for: ModelNew(8, ..., 'gelu') on float32[4, 8], which gives a tensor float32[4, 8]; "
        "precision class split, where tf32 was asked for; evaluation mode",
        "proven on: NVIDIA H200 (sm_90), driver 580.1, torch 2.11.0, python 3.11",
        "other sizes: none was tried; what the kernel is not made for, it should refuse",
        "use, where `reference` is the task's Model with your weights:",
        "  from best import ModelNew",
        "  model = ModelNew(8, ..., 'gelu').eval().cuda(); model.load_state_dict(reference.state_dict())",
        "  y = model(x)",
        "the kernels compute forward only: call it under torch.no_grad() where no gradients are needed",
    ]


RESULTS = [
    ("a kernel", {"score": 2.0, "comparison": Comparison.FASTER, "label": Label.KERNEL}, "2.00x: FASTER than eager (kernel win)",
     "FASTER than eager: 2.00x, measured"),
    ("a library", {"score": 2.0, "comparison": Comparison.FASTER, "label": Label.LIBRARY}, "2.00x: FASTER than eager (library win)",
     "FASTER than eager: 2.00x, measured"),
    ("the same", {"score": 0.98, "comparison": Comparison.SAME, "label": Label.KERNEL},
     "NOT FASTER, 0.98x: SAME as eager (no win; label kernel)", "NOT FASTER: the best kernel is SAME as eager: 0.98x, measured"),
    ("noise", {"score": 1.4, "comparison": Comparison.AMBIGUOUS, "label": Label.KERNEL},
     "NOT FASTER, 1.40x: AMBIGUOUS against eager (no win; label kernel)",
     "NOT FASTER: the best kernel is AMBIGUOUS against eager: 1.40x, measured"),
    ("slower", {"score": 0.5, "comparison": Comparison.SLOWER, "label": Label.KERNEL},
     "NOT FASTER, 0.50x: SLOWER than eager (no win; label kernel)", "NOT FASTER: the best kernel is SLOWER than eager: 0.50x, measured"),
    ("an estimate", {"score": 1.7, "label": Label.KERNEL}, "1.70x ESTIMATE: FASTER than eager (kernel win)",
     "FASTER than eager: 1.70x (1.61 to 1.78), ESTIMATE"),
    ("an estimate in its band", {"score": 1.02, "label": Label.KERNEL},
     "1.02x ESTIMATE: AMBIGUOUS against eager (speed not known; label kernel)",
     "right; its speed is not known here (estimate 1.02x, 0.97 to 1.1)"),
    ("an estimate below its baseline", {"score": 0.5, "label": Label.KERNEL},
     "0.50x ESTIMATE: SLOWER than eager (no win; label kernel)", "right; slower by the estimate (estimate 0.50x, 0.47 to 0.53)"),
    ("a hybrid estimate", {"score": 1.7, "label": Label.HYBRID, "share": 0.5},
     "1.70x ESTIMATE: FASTER than eager (hybrid: 50 % of estimated time in own Triton kernels)",
     "FASTER than eager: 1.70x (1.61 to 1.78), ESTIMATE"),
    ("fp32", {"score": 2.0, "comparison": Comparison.FASTER, "label": Label.KERNEL, "precision": PrecisionClass.IEEE},
     "2.00x: FASTER than eager (kernel win, ieee)", "FASTER than eager: 2.00x, measured"),
    ("a looser class", {"score": 2.0, "comparison": Comparison.FASTER, "label": Label.KERNEL, "precision": PrecisionClass.SPLIT},
     "2.00x: FASTER than eager (kernel win, split)", "FASTER than eager: 2.00x, measured, precision split"),
    ("an old verdict", {"score": 1.7, "old": True}, "1.70x ESTIMATE: AMBIGUOUS against eager (speed not known; no label)",
     "right; its speed is not known here (estimate 1.70x)"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "line", "first"), [case[1:] for case in RESULTS], ids=[case[0] for case in RESULTS])
def test_nothing_is_called_faster_that_was_not_found_to_be(fields, line, first):
    verdict = scripted_verdict(fields["score"], **{key: value for key, value in fields.items() if key not in ("score", "old", "precision")})
    if "precision" in fields:
        found = verdict.correctness.model_copy(update={"precision_class": fields["precision"]})
        verdict = verdict.model_copy(update={"correctness": found})
    if "old" in fields:
        timing = verdict.timing.model_copy(update={"comparison": None, "band": None})
        verdict = verdict.model_copy(update={"timing": timing})
    winner = Winner(id="a", stage="seed", verdict=verdict)
    told = json.loads(Summary(task="t", policy="p", model="m", winner=winner).model_dump_json())
    assert winner.result == line and told["answer"] == first
    starts = {"NOT FASTER": "not_faster", "right": "right", "FASTER": "faster"}
    assert told["outcome"] == next(outcome for start, outcome in starts.items() if first.startswith(start))
    unconfirmed = winner.model_copy(update={"confirmed": False})
    assert unconfirmed.result == f"{line}, as the search said; NOT confirmed"
    words = first.removeprefix("NOT FASTER: the best kernel is ")
    told = Summary(task="t", policy="p", model="m", winner=unconfirmed)
    assert told.answer == f"NOT CONFIRMED: only the search says that the best kernel is {words}" and told.outcome == "not_confirmed"


def test_a_run_in_which_only_a_library_works_says_so(task, tmp_path):
    verdict = scripted_verdict(3.0, label=Label.LIBRARY, library={"aten::gru": 1})
    players = {"author": ScriptedAuthor(seeds=("passes_on",)), "evaluator": ScriptedEvaluator({"passes_on": verdict})}
    summary = optimize(task, out=str(tmp_path / "a"), seeds=1, **players)
    assert summary.winner is None and summary.result == "" and "seed0-01 is labelled library" in summary.stopped_because
    assert "the library does the work" in summary.candidates[0].not_allowed and summary.candidates[0].status == "ok"
    assert not (tmp_path / "a" / "best.py").exists()
    taken = optimize(task, out=str(tmp_path / "b"), seeds=1, allow="library", **players)
    assert taken.result == "3.00x ESTIMATE: FASTER than eager (library win); search said 3.00x, confirmed 3.00x"
    assert "kernel win" not in (tmp_path / "b" / "best.py").read_text() and not taken.candidates[0].not_allowed


def test_without_a_card_the_small_size_runs(task, players, tmp_path):
    assert optimize(task, out=str(tmp_path / "a"), **players).size == "small"
    assert optimize(task, out=str(tmp_path / "b"), size="full", **players).size == "full"


def test_a_run_in_a_running_event_loop(task, players, tmp_path):
    async def notebook():
        return optimize(task, out=str(tmp_path / "a"), **players)

    assert asyncio.run(notebook()).winner.id == "block-01"
    config = RunConfig(task=str(task), out=str(tmp_path / "b"), policy="no-tune")
    assert asyncio.run(optimize_async(config, **players)).winner.id == "seed1-01"


def test_no_winner_leaves_a_summary_and_no_kernel(task, tmp_path):
    players = {"author": ScriptedAuthor(seeds=("bad", "bad")), "evaluator": ScriptedEvaluator({"bad": scripted_verdict(None)})}
    summary = optimize(task, out=str(tmp_path / "out"), **players)
    assert summary.winner is None and summary.stopped_because == "no candidate works (runtime_error)"
    assert (tmp_path / "out" / "summary.json").exists() and not (tmp_path / "out" / "best.py").exists()


def test_the_default_folder_names_the_task(task, players, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = optimize(task, **players)
    assert Path(summary.out).parent == Path("runs") and Path(summary.out).name.startswith("1_relu-")


def test_a_passed_in_evaluator_stays_open(task, players, tmp_path):
    """An evaluator that was passed in stays open, and a context closes its own."""
    optimize(task, out=str(tmp_path / "out"), **players)
    assert not players["evaluator"].closed
    with make_context(**players):
        pass
    assert players["evaluator"].closed


def refused(tmp_path, task, players, **options):
    with pytest.raises(UsageError) as caught:
        optimize(task, **{**players, **options})
    return str(caught.value)


def test_a_folder_that_holds_something_is_refused(task, players, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "best.py").write_text("earlier")
    assert "not empty" in refused(tmp_path, task, players, out=str(tmp_path / "out"))
    assert "is a file" in refused(tmp_path, task, players, out=str(tmp_path / "out" / "best.py"))
    assert "cannot write there" in refused(tmp_path, task, players, out=str(tmp_path / "out" / "best.py" / "deeper"))
    assert (tmp_path / "out" / "best.py").read_text() == "earlier"


def test_a_file_that_a_kill_cut_is_not_in_the_way(task, players, tmp_path):
    """`put_text` writes a partial file first; a kill in between leaves it."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.0f.part").write_text('{"format"')
    assert optimize(task, out=str(tmp_path / "out"), **players).winner


def test_a_run_that_could_not_start_leaves_no_folder_in_the_way(task, players, tmp_path):
    out = tmp_path / "out"
    assert "no seed for branch" in refused(tmp_path, task, {**players, "author": ScriptedAuthor()}, out=str(out))
    assert not out.exists()
    assert optimize(task, out=str(out), **players).winner.id == "block-01"


def test_wrong_options_are_named_before_anything_is_written(task, players, tmp_path):
    out = tmp_path / "out"
    assert "choose one of default" in refused(tmp_path, task, players, out=str(out), policy="greedy")
    assert "knows no option sedes" in refused(tmp_path, task, players, out=str(out), sedes=3)
    assert "option budget.repairs" in refused(tmp_path, task, players, out=str(out), budget={"repairs": -1})
    assert "option precision" in refused(tmp_path, task, players, out=str(out), precision="fp4")
    assert "option allow" in refused(tmp_path, task, players, out=str(out), allow="anything")
    assert not out.exists()


@pytest.mark.parametrize("model", ["gpt-5", "openai:", "anthropic:x"])
def test_an_author_that_does_not_exist_is_named(model):
    with pytest.raises(UsageError, match="use offline or openai:NAME"):
        make_author(model)


def test_a_context_names_a_wrong_setting_of_labels(players):
    with pytest.raises(UsageError, match="--allow anything: choose one of kernel, hybrid, library"):
        make_context(allow="anything", **players)


def test_a_context_takes_a_policy_object(players):
    with make_context(policy=Default(), **players) as context:
        assert context.policy.name == "default" and context.store.root.exists()
    assert not context.store.root.exists(), "a temporary store goes with the context"


@pytest.fixture
def openings(task):
    """How often a file was opened since the last look, by its path: the process says so of each opening."""
    opened = []

    def note(event, arguments):
        if listening and event == "open" and str(arguments[0]) == str(task):
            opened.append(arguments[0])

    def look():
        count = len(opened)
        opened.clear()
        return count

    listening = True
    sys.addaudithook(note)  # nobody can take it away again
    yield look
    listening = False


@pytest.mark.parametrize("size", ["full", "small", None])
def test_a_run_reads_its_task_file_once_and_so_does_a_part_that_resumes_it(task, players, tmp_path, openings, size):
    judge = Stopped(players["evaluator"].verdicts)
    run = judge.run = Run(RunConfig(task=str(task), out=str(tmp_path / "out"), size=size), author=players["author"], evaluator=judge)
    with pytest.raises(RunStopped):
        asyncio.run(run_to_end(run, None))
    assert openings() == 1
    assert resume(tmp_path / "out", author=players["author"], evaluator=players["evaluator"]).winner and openings() == 1
    sketch = load_task(task)
    assert openings() == 1
    assert optimize(task, size=size, sketch=sketch, out=str(tmp_path / "other"), **players).winner and openings() == 0


class Stopped(ScriptedEvaluator):
    """Asks the run to stop at its first verdict."""

    run = None

    async def evaluate(self, task, kernel, profile="quick"):
        self.run.stop("enough")
        return await super().evaluate(task, kernel, profile)


def test_the_command_reads_the_task_file_once(task, openings, tmp_path, monkeypatch):
    """From its words to the winner; the evaluator and the author are scripted."""
    scripted = ScriptedEvaluator({WINNER: scripted_verdict(1.5)})
    monkeypatch.setattr("tritonsmith.graph.runs.run.open_judges", lambda *given: scripted)
    monkeypatch.setattr("tritonsmith.graph.runs.players.make_author", lambda *given, **more: ScriptedAuthor(seeds=(WINNER,)))
    assert command(["optimize", str(task), "--seeds", "1", "--out", str(tmp_path / "out"), "--json"]) == 0
    assert openings() == 1
