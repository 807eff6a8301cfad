"""`--seed-from`: one seed is a compiler's own text. It is asked for once, and its absence ends no run that has another seed."""

import asyncio
from pathlib import Path

import pytest

from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.protocol import CompilerSeed
from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.run import optimize
from tritonsmith.graph.runs.fork import fork
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.nodes.tape.recorder import TapeRecorder
from tritonsmith.nodes.tape.tape import Tape, load_tape
from tritonsmith.prompts.author import AuthorError

TASK = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
OWN, COMPILED = "# ours\nclass ModelNew: pass\n", "# compiled\nclass ModelNew: pass\n"


class Compiling(ScriptedEvaluator):
    """Answers the question about a compiler's text too, and counts it."""

    asked = 0
    seed: CompilerSeed | Exception = CompilerSeed(text=COMPILED)

    async def write_seed(self, task):
        self.asked += 1
        if isinstance(self.seed, Exception):
            raise self.seed
        return self.seed


def judge(seed=Compiling.seed):
    made = Compiling({OWN: scripted_verdict(1.2), COMPILED: scripted_verdict(1.5)})
    made.seed = seed
    return made


def play(folder: Path, name: str, evaluator=None, *, author: ScriptedAuthor | None = None, **options):
    task = folder / "1_relu.py"
    task.write_text(TASK)
    given = {"seeds": 2, "policy": "no-tune", "seed_from": "inductor", "size": "full", "author": author or ScriptedAuthor([OWN]), **options}
    return optimize(task, out=str(folder / name), evaluator=evaluator, **given)


def test_the_last_seed_is_the_compilers_and_is_asked_for_once(tmp_path):
    evaluator, tape = judge(), tmp_path / "tape.jsonl"
    summary = play(tmp_path, "live", evaluator, record=str(tape))
    assert [(row.id, row.author, row.rationale) for row in summary.candidates] == [
        ("seed0-01", "", "seed 0"), ("seed1-01", "inductor", "Inductor's own kernels"),
    ]  # fmt: skip
    assert (summary.winner.id, summary.winner.author) == ("seed1-01", "inductor") and evaluator.asked == 1
    assert "author inductor" in (tmp_path / "live/best.py").read_text() and COMPILED in (tmp_path / "live/best.py").read_text()
    assert fork(tmp_path / "live", at="after_detect", policy="default", out=str(tmp_path / "fork"), evaluator=evaluator,
                author=ScriptedAuthor([OWN])).winner.id == "seed1-01"  # fmt: skip
    assert evaluator.asked == 1, "what was written is kept with the run"


@pytest.mark.parametrize("fault", [CompilerSeed(reason="it leaves the work to libraries"), InfrastructureError("its process died")])
def test_without_a_text_the_other_seeds_go_on(tmp_path, fault):
    summary = play(tmp_path, "live", judge(fault))
    assert summary.winner.id == "seed0-01" and [row.id for row in summary.candidates] == ["seed0-01"]
    sentence = str(fault) if isinstance(fault, Exception) else fault.reason
    assert any(f"--seed-from inductor: {sentence}; drop the option" in decision.reason for decision in summary.decisions)
    with pytest.raises(AuthorError, match=f"--seed-from inductor: {sentence}"):
        play(tmp_path, "alone", judge(fault), seeds=1)


def test_a_recording_answers_for_the_task_that_it_was_made_for(tmp_path):
    path, task, evaluator = tmp_path / "tape.jsonl", Task(name="mine", path="mine.py", source="x"), judge()
    recording = TapeEvaluator(Tape([], path), evaluator, TapeRecorder(path, model="offline"))
    assert [asyncio.run(recording.write_seed(task)).text for _ in range(2)] == [COMPILED] * 2 and evaluator.asked == 1
    replay = TapeEvaluator(load_tape(path))
    assert asyncio.run(replay.write_seed(task)).text == COMPILED
    with pytest.raises(UsageError, match="the recording has no kernel of a compiler; drop --seed-from"):
        asyncio.run(replay.write_seed(task.model_copy(update={"source": "y"})))


def test_an_author_that_refuses_the_task_leaves_the_compilers_seed(tmp_path):
    class Choosing(ScriptedAuthor):
        def require(self, task, facts, hardware):
            raise AuthorError("no recipe")

        async def seed(self, brief):
            raise AuthorError("no recipe")

    assert play(tmp_path, "with", judge(), author=Choosing()).winner.author == "inductor"
    with pytest.raises(AuthorError, match="no recipe"):
        play(tmp_path, "without", judge(), author=Choosing(), seed_from=None)


def test_a_wrong_compiler_is_one_sentence(tmp_path, capsys):
    with pytest.raises(UsageError, match="option seed_from: .*'inductor'"):
        play(tmp_path, "wrong", judge(), seed_from="tvm")
    assert command(["optimize", str(tmp_path / "1_relu.py"), "--seed-from", "tvm"]) == 2
    assert "'tvm' is not one of 'inductor'" in " ".join(capsys.readouterr().err.split())


def test_a_task_with_other_sizes_is_refused_before_the_compiler_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are for one size, and the strict profile would refuse them after minutes; another seed goes on."""
    monkeypatch.setattr(f"{__name__}.TASK", f"rows = 4\nSHAPES = [{{'rows': (1, 64)}}]\n{TASK}")
    evaluator = judge()
    with pytest.raises(UsageError, match="--seed-from inductor: the compiler's kernels are made for one size.*leave SHAPES out"):
        play(tmp_path, "alone", evaluator, seeds=1)
    assert evaluator.asked == 0 and play(tmp_path, "both", evaluator).winner.id == "seed0-01"
