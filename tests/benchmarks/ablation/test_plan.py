"""Plans of experiments: suites, policies and where they can fork, and what is refused with a sentence."""

import json
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.benchmarks.ablation.difference import find_first_difference
from tritonsmith.benchmarks.ablation.plan import begin, make_plan, read_plan, settle
from tritonsmith.benchmarks.ablation.policies import EXPERIMENTS
from tritonsmith.cli.main import run
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.presets import Default

SHIPPED = ROOT / "benchmarks" / "tasks"
OWN = """
from tritonsmith.graph.policies.presets import Default


class Greedy(Default):
    name = "greedy"
    enough = 2.0

    def seed_works(self, view):
        return ("rescue", "below enough") if (view.score or 0.0) < self.enough and view.rounds_left else ("accept", "enough")


class Patient(Default):
    name = "patient"

    def after_stage(self, view):
        return "stop", "one stage is enough"
"""


def bases(plan):
    return {policy.key: (policy.base, policy.at, policy.shares) for policy in plan.policies}


def test_numbers_files_and_folders_are_suites(tmp_path):
    plan = make_plan("39, 76", ["default"])
    assert [task.key for task in plan.tasks] == ["39_gru", "76_linear_bias_relu"]
    assert all(Path(task.path).resolve() == SHIPPED / f"{task.key}.py" for task in plan.tasks)
    assert len(make_plan(str(SHIPPED), ["default"]).tasks) == len([*SHIPPED.glob("*.py")])
    assert make_plan(f"{SHIPPED / '39_gru.py'},26", ["default"]).tasks[1].key == "26_gelu_scale_bias"


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_suite_file_has_sizes_and_overrides(form, tmp_path):
    (tmp_path / "mine.py").write_text((SHIPPED / "76_linear_bias_relu.py").read_text())
    told = {
        "toml": '[[tasks]]\ntask = 39\nname = "short"\nset = { seq_len = 8 }\n[[tasks]]\ntask = "mine.py"\nsize = "small"\n',
        "json": json.dumps([{"task": 39, "name": "short", "set": {"seq_len": 8}}, {"task": "mine.py", "size": "small"}]),
    }
    suite = tmp_path / f"suite.{form}"
    suite.write_text(told[form])
    short, mine = make_plan(str(suite), ["default"], size="full").tasks
    assert (short.key, short.overrides, short.size) == ("short", {"seq_len": 8}, "full")
    assert (mine.key, mine.overrides, mine.size) == ("mine", {}, "small"), "files are found beside the suite"


def test_the_experiments_of_the_notes():
    assert set(EXPERIMENTS) == {"abc", "leave-one-out", "seeds"}
    abc = make_plan("39", experiment="abc")
    assert {policy.key: policy.seeds for policy in abc.policies} == {"single-seed": 1, "rescue-best": 3, "no-analysis": 1}
    assert bases(abc)["no-analysis"] == ("single-seed", "after_evaluate", False), "A and C have the same seed, and differ after it"
    assert bases(abc)["single-seed"] == ("rescue-best", "", True), "the one seed of A is the first of B"
    parts = make_plan("39", experiment="leave-one-out", repeats=1)
    assert bases(parts) == {
        "default": (None, "", False), "no-analysis": ("default", "after_evaluate", False), "single-seed": ("default", "", True),
        "no-repair": ("default", "after_evaluate", False), "no-detect": ("default", "after_detect", False),
        "no-tune": ("default", "after_detect", False),
    }  # fmt: skip
    seeds = make_plan("39", experiment="seeds")
    assert (seeds.repeats, [policy.given for policy in seeds.policies], seeds.seed_step) == (10, ["best-of-n"], 1)


def test_policies_fork_where_they_first_differ(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    assert find_first_difference(Default(), load_policy("notes")) == "after_optimize"
    assert find_first_difference(Default(), load_policy("rescue-best")) == "after_evaluate"
    assert find_first_difference(Default(), load_policy(f"{file}:Greedy")) == "after_evaluate", "a helper of the method differs"
    assert find_first_difference(Default(), load_policy(f"{file}:Patient")) == "after_stage"
    plan = make_plan("39", ["default", f"{file}:Patient", "no-detect"])
    assert bases(plan)["patient"] == ("default", "after_stage", False) and plan.policies[1].sha
    greedy = load_policy(f"{file}:Greedy")
    eager = load_policy(f"{file}:Greedy")
    eager.enough = 1.5
    assert find_first_difference(greedy, eager) == "after_evaluate", "a number that the method reads differs"


REFUSED = [
    (["99", "--policies", "default"], "SUITE 99: no task that comes along has number 99; there are 9, 11, 12, 13, 26"),
    (["nothing", "--policies", "default"], "SUITE nothing: nothing is no folder, no file and no number of a task"),
    (["{tmp}/none.toml", "--policies", "default"], "none.toml: there is no such file"),
    (["{tmp}/bad.toml", "--policies", "default"], "bad.toml: tasks.0.sise: Extra inputs are not permitted"),
    (["{tmp}", "--policies", "default"], "has no task files"),
    (["39,39", "--policies", "default"], "39_gru is there twice"),
    (["39"], "--policies: name some"),
    (["39", "--policies", "defolt"], "--policies defolt: no such policy; choose one of default"),
    (["39", "--policies", "default,default"], "default is there twice"),
    (["39", "--policies", "default", "--experiment", "abc"], "--policies and --experiment abc"),
    (["39", "--experiment", "xyz"], "--experiment xyz: no such experiment; choose one of abc, leave-one-out, seeds"),
    (["39", "--policies", "default", "--set", "nothing=3"], "names nothing, which the file does not set at module level"),
    (["39", "--policies", "default", "--model", "handoff:{tmp}"], "an experiment needs an author that answers by itself"),
    (["39", "--policies", "default", "--out", "{tmp}"], "the folder is not empty and holds no experiment"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_what_cannot_be_run_is_said_in_a_sentence(words, sentence, tmp_path, capsys):
    (tmp_path / "bad.toml").write_text('[[tasks]]\ntask = 39\nsise = "small"\n')
    assert run(["ablate", *(word.replace("{tmp}", str(tmp_path)) for word in words)]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("error:") == 1 and "Traceback" not in told
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


def test_a_dry_run_shows_the_plan_and_makes_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["ablate", "39,40,26", "--experiment", "leave-one-out", "--repeats", "2", "--dry-run", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "3 tasks x 6 policies x 2 repeats: 36 runs, 0 of them finished" in told and "24 of the 36 runs fork" in told
    assert "no-detect  2 seeds; forks from default at after_detect" in told and not out.exists()


def test_another_experiment_is_not_written_into_the_folder(tmp_path):
    out = tmp_path / "out"
    plan = make_plan("39", ["default"], repeats=2)
    assert begin(plan, out) == plan and begin(plan, out) == plan
    assert begin(make_plan("39", ["default"], repeats=3), out).repeats == 3, "more repeats are added"
    assert begin(plan, out).repeats == 3
    for other in (make_plan("39", ["no-tune"]), make_plan("39", ["default"], settings={"target": "a100"}), make_plan("40", ["default"])):
        with pytest.raises(UsageError, match=r"another experiment lies there \(it differs in"):
            begin(other, out)
    assert read_plan(out).repeats == 3


def test_a_task_whose_text_has_changed_is_another_experiment(tmp_path):
    task = tmp_path / "task.py"
    task.write_text((SHIPPED / "39_gru.py").read_text())
    begin(make_plan(str(task), ["default"]), tmp_path / "out")
    task.write_text(task.read_text() + "\n# changed\n")
    with pytest.raises(UsageError, match="it differs in tasks"):
        begin(make_plan(str(task), ["default"]), tmp_path / "out")
    task.write_text("def nothing(): ...\n")
    with pytest.raises(TaskError, match="lacks Model"):
        make_plan(str(task), ["default"])


def test_an_experiment_has_one_card_and_one_kind(tmp_path):
    out, card = tmp_path / "out", named_card("h200")
    plan = begin(make_plan("39", ["default"]), out)
    assert settle(plan, out, card).kind == "estimated" == settle(plan, out, card).kind
    for other in (card.model_copy(update={"present": True}), named_card("a100")):
        with pytest.raises(UsageError, match="an experiment has one kind of card"):
            settle(plan, out, other)


def test_settings_that_make_no_run_are_refused():
    for settings, sentence in (({"model_timeout": -1.0}, "setting model_timeout"), ({"seeds": 3}, "seeds cannot be set for all runs")):
        with pytest.raises(UsageError, match=sentence):
            make_plan("39", ["default"], settings=settings)


@pytest.mark.slow
def test_the_command_with_the_built_in_author(tmp_path, capsys):
    """Two runs of the interpreter's evaluator; the second has nothing left to judge."""
    out = tmp_path / "out"
    words = ["ablate", "26", "--policies", "no-tune,best-of-n", "--repeats", "1", "--size", "small", "--target", "h200", "--out", str(out)]
    assert run([*words]) == 0
    told = capsys.readouterr()
    assert "Scores are ESTIMATES for NVIDIA H200" in told.out and "no time was measured on a card" in told.out
    assert "[2/2] 26_gelu_scale_bias best-of-n repeat 1:" in told.err and "3 verdicts, 3 shared" in told.err
    rows = json.loads((out / "ablation.json").read_text())["cells"]
    assert [(row["solved"], row["kind"], row["state"]) for row in rows] == [(True, "estimated", "done")] * 2
    assert rows[0]["winner_sha"] == rows[1]["winner_sha"] and (rows[1]["base"], rows[1]["at"]) == ("no-tune", "after_evaluate")
    assert (out / "report.html").is_file()
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "estimated"
