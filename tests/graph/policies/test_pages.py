"""What is written about policies is what the code does: docs/policies.md, `tritonsmith policies`, and the example in the docs."""

import json
import re

import pytest

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.graph.conformance.situations import differing_sites
from tritonsmith.graph.policies.load import about, load_policy
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.sites import QUESTIONS, SITES

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")


def part(begin, end):
    (found,) = re.findall(rf"<!-- {begin}.*? -->\n(.*?)<!-- end of the {end} -->", PAGE, re.DOTALL)
    return found


def test_the_presets_are_those_of_the_page(capsys):
    assert run(["policies", "--markdown"]) == 0
    assert capsys.readouterr().out == part("presets", "presets").lstrip("\n")
    assert all(f"### `{name}`" in PAGE for name in PRESETS)


def test_every_preset_says_which_mechanism_it_encodes():
    mechanisms = {int(number): text for number, text in re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)}
    assert set(mechanisms) == set(range(1, 13))
    for name in PRESETS:
        told = about(load_policy(name))
        assert told.encodes and set(told.encodes) <= set(mechanisms), name
        assert re.match(r"The notes, [\d, and to]+[:,] ", told.notes) and told.summary.endswith("."), name
        spans = re.match(r"The notes, ([\d, and to]+)", told.notes)[1]
        assert int(re.search(r"\d+", spans)[0]) == told.encodes[0] and int(re.findall(r"\d+", spans)[-1]) == told.encodes[-1], name
        assert f"{told.notes}\n" in PAGE


def test_the_sites_are_those_of_the_page():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", part("sites", "sites"), re.MULTILINE)
    choices = {site.asks: list(site.choices) for site in SITES.values()}
    assert {site: re.findall(r"`(\w+)`", told) for site, told in rows} == choices and set(choices) == set(QUESTIONS)


def example(tmp_path, monkeypatch):
    """The example's file, written as the page says; returns its commands."""
    text, commands = re.findall(r"```\w+\n(.*?)```", part("example", "example"), re.DOTALL)
    (tmp_path / "thrifty.py").write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return [line.removeprefix("tritonsmith ").split() for line in commands.splitlines()]


def test_the_example_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    check, show, optimize = example(tmp_path, monkeypatch)
    assert run(check) == 0
    assert re.fullmatch(r"Policy thrifty conforms: asked in 4\d\d situations, driven through 14 runs\.\n", capsys.readouterr().out)
    assert run([*show, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["summary"] == "`default` with two repairs instead of five, and no tuning from 1.1 on."
    assert set(told["differs_from_default_at"]) == {"after_evaluate", "after_detect"}
    assert {"site": "after_detect", "gate": "after_detect", "situation": "no label at 3", "choice": "skip"}.items() <= next(
        one for one in told["answers"] if one["situation"] == "no label at 3"
    ).items()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert run([*optimize, "--out", "out", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (skipped,) = [one for one in answer["decisions"] if one["site"] == "after_detect"]
    assert skipped["choice"] == "skip" and f"`after_detect -> skip: {skipped['reason']}`" in PAGE and skipped["policy"] == "thrifty"


def test_the_list_for_a_reader_and_for_a_program(capsys):
    assert run(["policies"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in PRESETS) and "1 to 12" in shown
    assert run(["policies", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["policies"]
    assert [one["name"] for one in told] == list(PRESETS)
    assert {one["name"]: one["seeds"] for one in told if one["seeds"]} == {"single-seed": 1, "rescue-best": 3}


def test_one_policy_for_a_reader(capsys):
    assert run(["policies", "--show", "no-tune"]) == 0
    shown = capsys.readouterr().out
    assert "Differs from default at after_detect." in shown and "this policy never tunes" in shown


def test_a_policy_that_does_not_conform(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "from tritonsmith.graph.policies import Default\n"
        "class Mine(Default):\n"
        "    def after_select(self, view):\n"
        "        return 'win', ''\n"
    )
    assert run(["policies", "--check", f"{path}:Mine"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("choice: after_select: it answers 'win'; it may answer detect, rescue, widen, finish; ")
    assert shown[-1].startswith("Policy Mine breaks 3 rules:")


def test_a_policy_that_does_not_conform_for_a_program(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "from tritonsmith.graph.policies import Default\n"
        "class Mine(Default):\n"
        "    def after_select(self, view):\n"
        "        return 'finish'\n"
    )
    assert run(["policies", "--check", f"{path}:Mine", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["policy"] == "Mine" and told["conforms"] is False
    assert [(one["rule"], one["site"], one["times"]) for one in told["violations"]] == [("answer", "after_select", 37)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--show", "greedy"], "no such policy; choose one of default, notes"),
        (["--check", "nowhere.py:Mine"], "there is no file"),
        (["--check", "default", "--show", "default"], "choose one of them"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments, says, capsys):
    assert run(["policies", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_policy_that_raises_is_shown_as_one_sentence(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "from tritonsmith.graph.policies import Default\n"
        "class Mine(Default):\n"
        "    def after_select(self, view):\n"
        "        raise KeyError('x')\n"
    )
    assert run(["policies", "--show", f"{path}:Mine"]) == 2
    assert "policy Mine: after_select raised KeyError: 'x'; fix the policy" in capsys.readouterr().err


def test_a_policy_is_shown_as_it_is_named(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "print('printed by the file')\n"
        "from tritonsmith.graph.policies import Default\n"
        "class Mine(Default):\n"
        "    'Keeps [/red] as it is.'\n"
        "    name = '[/red]'\n"
    )
    assert run(["policies", "--show", f"{path}:Mine"]) == 0
    printed = capsys.readouterr()
    assert "[/red]: Keeps [/red] as it is." in printed.out and "printed by the file" not in printed.out
    assert "printed by the file" in printed.err


def test_where_two_policies_differ():
    assert differing_sites(load_policy("default"), load_policy("default")) == {}
    assert list(differing_sites(load_policy("default"), load_policy("rescue-best"))) == ["after_evaluate", "after_select"]
