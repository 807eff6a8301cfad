"""A run whose task reads other files: what changed is refused, and what cannot be known is judged anew."""

import pytest

import chat_server as chat
from durable_driver import begin
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reads.record import TaskReads, find_state, find_version
from tritonsmith.evaluator.schema import TaskFacts
from tritonsmith.graph.run import resume
from tritonsmith.graph.runs.fork import fork
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict


@pytest.fixture
def task(tmp_path):
    (tmp_path / "helper.py").write_text("K = 2.0\n")
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


def players(**reads):
    author = ScriptedAuthor(seeds=("bad", "good"), variants={("tune_block", "good"): ("better",)})
    verdicts = {"bad": scripted_verdict(None, message="it fails"), "good": scripted_verdict(0.6), "better": scripted_verdict(1.5)}
    return {"author": author, "evaluator": ScriptedEvaluator(verdicts, facts=TaskFacts(reads=TaskReads(**reads)))}


@pytest.mark.parametrize("checkpoints", ["sqlite", "none"])
def test_a_run_whose_helper_changed_is_refused_and_goes_on_once_it_is_back(task, tmp_path, checkpoints):
    helper, out = tmp_path / "helper.py", tmp_path / "out"
    given = players(files={"helper.py": find_state(helper)}, packages={"pytest": find_version("pytest")})
    begin(task, given, out, checkpoints=checkpoints)
    helper.write_text("K = 3.0\n")
    with pytest.raises(UsageError, match=r"out: .*helper\.py, which .*1_relu\.py needs, has changed since the run began; put it back"):
        resume(out, **given)
    with pytest.raises(UsageError, match=r"helper\.py, which .* has changed since the run began"):
        fork(out, at="after_detect", policy="no-tune", **given)
    helper.write_text("K = 2.0\n")
    assert resume(out, **given).winner.id == "block-01"


def test_a_run_that_imports_a_package_of_another_version_is_refused(task, tmp_path):
    given = players(packages={"pytest": "1.0"})
    begin(task, given, tmp_path / "out")
    with pytest.raises(UsageError, match=r"the package pytest \(1\.0, and .* is installed\), which .* needs, has changed since"):
        resume(tmp_path / "out", **given)


def test_where_nobody_knows_what_a_task_reads_a_resumed_run_judges_everything_anew(task, tmp_path, caplog):
    given = players(unknown="it uses the network")
    begin(task, given, tmp_path / "out")
    before = [*given["evaluator"].calls]
    assert before and resume(tmp_path / "out", **given).winner.id == "block-01"
    assert set(before) <= set(given["evaluator"].calls[len(before) :]), "judged once more"
    assert "only replies are used again, and everything is judged anew" in caplog.text and "it uses the network" in caplog.text
