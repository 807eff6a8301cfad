"""A module that no kernel betters is kept: what a run says, writes and returns then."""

from pathlib import Path

import pytest
from torch import nn

from project import ROOT
from tritonsmith.cli.report.write import write_report
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Comparison, Hardware, KernelFacts, Label, Status, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.evaluator.texts.source.copies import copy_reference
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.kept import write_form
from tritonsmith.graph.storage.outcome import RunOutcome
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.graph.suites.records import RowState, SuitePlan, SuiteResults, SuiteRow
from tritonsmith.modules.result import Result
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.author import AuthorError

GRU = ROOT / "benchmarks" / "tasks" / "39_gru.py"
CARD = named_card("h200").model_copy(update={"present": True})
FORMS = {"eager": 2.0, "cuda_graph": 0.5, "compile": 1.0, "compile_reduce_overhead": 0.8}
SLOWER = scripted_verdict(0.98, comparison=Comparison.SLOWER)


class Choosy(ScriptedAuthor):
    """Has no recipe for anything."""

    def require(self, task: Task, facts: TaskFacts, hardware: Hardware) -> None:
        raise AuthorError("no recipe for this forward")


def with_forms(verdict: Verdict) -> Verdict:
    assert verdict.timing is not None
    timing = verdict.timing.model_copy(update={"baselines_ms": FORMS, "baseline": "cuda_graph"})
    return verdict.model_copy(update={"timing": timing})


def copy_of_task() -> str:
    return copy_reference(load_task(GRU).source, str(GRU))


def play(out: Path, judge: ScriptedEvaluator, author: ScriptedAuthor | None = None, **options: object) -> Summary:
    author = author or ScriptedAuthor(seeds=("kernel",))
    return optimize(str(GRU), out=str(out), seeds=1, author=author, evaluator=judge, checkpoints="none", **options)


def test_a_confirmed_kernel_below_one_is_no_result(tmp_path: Path) -> None:
    """What the search could not tell from 1.0 is confirmed; below it the module is kept, as `Result.module` too."""
    judge = ScriptedEvaluator({"kernel": scripted_verdict(1.01, comparison=Comparison.AMBIGUOUS)}, {"kernel": with_forms(SLOWER)})
    summary = play(tmp_path / "out", judge)
    assert ("kernel", "strict") in judge.calls and summary.outcome is RunOutcome.KEPT and summary.winner is None
    assert summary.answer == (
        "keep your module; its fastest form here is a CUDA graph of it, 4.00x eager (0.5 ms, the fastest of 4 forms); "
        "the best kernel is 0.98x, measured"
    )
    module = nn.Linear(2, 2)
    result = Result(module, tmp_path / "out", GRU, summary)
    assert result.kept and result.module is module and result.best is None
    assert "graph.replay()" in result.code and result.report == f"{summary.answer}\n{result.code}"
    with pytest.raises(UsageError, match="no kernel is the result, so there is no drop-in; keep your module"):
        result.save(tmp_path / "package")


def test_a_kernel_that_the_search_measured_below_one_is_not_measured_again(tmp_path: Path) -> None:
    judge = ScriptedEvaluator({"kernel": with_forms(scripted_verdict(0.998, comparison=Comparison.SAME))})
    summary = play(tmp_path / "out", judge)
    assert summary.outcome is RunOutcome.KEPT and ("kernel", "strict") not in judge.calls


@pytest.mark.parametrize(("score", "comparison"), [(1.0, Comparison.SAME), (1.01, Comparison.AMBIGUOUS)])
def test_from_one_on_a_kernel_is_the_result(tmp_path: Path, score: float, comparison: Comparison) -> None:
    summary = play(tmp_path / "out", ScriptedEvaluator({"kernel": scripted_verdict(score, comparison=comparison)}))
    assert summary.outcome is RunOutcome.NOT_FASTER and summary.kept is None and (tmp_path / "out" / "best.py").is_file()


def test_nothing_measured_is_said_of_an_estimate(tmp_path: Path) -> None:
    summary = play(tmp_path / "out", ScriptedEvaluator({"kernel": scripted_verdict(0.5)}))
    assert summary.outcome is RunOutcome.RIGHT and summary.winner is not None and summary.kept is None


def test_a_module_without_a_recipe_is_kept_where_a_card_is_there(tmp_path: Path) -> None:
    """Its forms are those of a verdict about its own copy; without a card the author's sentence ends the run."""
    copied = with_forms(scripted_verdict(1.0, comparison=Comparison.SAME, label=Label.LIBRARY))
    judge = ScriptedEvaluator({copy_of_task(): copied}, hardware=CARD)
    summary = play(tmp_path / "out", judge, Choosy())
    assert (summary.outcome, summary.candidates) == (RunOutcome.KEPT, ()) and len(judge.calls) == 1
    assert summary.answer.startswith("keep your module; its fastest form here is a CUDA graph of it, 4.00x eager")
    assert summary.stopped_because == "no recipe for this forward" and not (tmp_path / "out" / "best.py").exists()
    with pytest.raises(AuthorError, match="no recipe for this forward"):
        play(tmp_path / "no card", ScriptedEvaluator({}), Choosy())
    with pytest.raises(AuthorError, match="no recipe for this forward"):
        play(tmp_path / "no verdict", ScriptedEvaluator({}, hardware=CARD), Choosy())


def test_where_no_kernel_is_right_the_fastest_form_is_told(tmp_path: Path) -> None:
    copied = with_forms(scripted_verdict(1.0, comparison=Comparison.SAME, label=Label.LIBRARY))
    failing = scripted_verdict(None, status=Status.INACCURATE, message="too inaccurate")
    summary = play(tmp_path / "out", ScriptedEvaluator({copy_of_task(): copied, "kernel": failing}, hardware=CARD))
    assert summary.outcome is RunOutcome.NO_KERNEL and summary.kept is not None
    assert summary.answer.startswith("NO KERNEL") and "; keep your module; its fastest form here is a CUDA graph" in summary.answer


def test_the_answer_tells_what_each_part_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels with their times, library calls with their counts, and what these take together: on screen, page and in the file."""
    verdict = scripted_verdict(1.5, comparison=Comparison.FASTER, label=Label.HYBRID, library={"aten::mm": 2})
    kernels = (KernelFacts(name="norm", launches=1, device_ms=0.125), KernelFacts(name="gate", launches=2, device_ms=0.25))
    facts = verdict.facts.model_copy(
        update={"kernels": kernels, "device_ms": 0.675, "launches_per_forward": 5, "triton_launches": 3}
    )
    summary = play(tmp_path / "out", ScriptedEvaluator({"kernel": verdict.model_copy(update={"facts": facts})}), policy="best-of-n")
    assert [(row.what, row.own, row.launches, row.ms) for row in summary.regions] == [
        ("norm", True, 1, 0.125), ("gate", True, 2, 0.25), ("aten::mm", False, 2, None),
    ]  # fmt: skip
    assert summary.library_ms == pytest.approx(0.3)
    from tritonsmith.cli.screen.answer import show  # noqa: PLC0415

    show(summary)
    printed = capsys.readouterr().out
    assert "What each part takes" in printed and "1 library call together: 0.3 ms of the card" in printed
    write_report(tmp_path / "out")
    page, text = (tmp_path / "out" / "report.html").read_text(), (tmp_path / "out" / "report.md").read_text()
    assert "What each part takes" in page and "5 per forward: 3 of own kernels, 2 of the library" in page
    assert "## What each part takes" in text and "aten::mm" in text.replace("\\", "")


def test_a_suite_counts_a_kept_module_as_one() -> None:
    rows = [SuiteRow(task=name, state=RowState.DONE, outcome=outcome, score=score, kind="measured") for name, outcome, score in (
        ("a", "faster", 4.0), ("b", "kept", 0.25), ("c", "kept", None),
    )]  # fmt: skip
    results = SuiteResults(plan=SuitePlan(tasks=()), rows=tuple(rows))
    assert (results.kept, results.mean, results.plain_mean) == (2, pytest.approx(4.0 ** (1 / 3)), pytest.approx(1.0))
    assert "(2 of them are a module that is kept): 1.59x. Of the scores as they are: 1.00x." in results.mean_words
    assert results.counts == {"faster": 1, "kept": 2}


@pytest.mark.parametrize("form", ["eager", "cuda_graph", "compile", "compile_max_autotune"])
@pytest.mark.parametrize("inputs", [[], [{}], [{}, None, {}]])
def test_the_code_of_a_form_is_python(form: str, inputs: list[object]) -> None:
    lines = write_form(form, {"inputs": inputs})
    compile("\n".join(lines), form, "exec")
    assert len(lines) <= 4 and any("model" in line for line in lines)
