"""How the command line begins: what it loads for which call, its help and its version."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from project import ROOT
from tritonsmith.benchmarks.ablation.policies import EXPERIMENTS
from tritonsmith.cli.app import app, run
from tritonsmith.evaluator.cards.cards import CARDS

HEAVY = (
    "grandalf", "httpx", "jinja2", "langchain_core", "langchain_openai", "langgraph", "langgraph_sdk", "langsmith", "matplotlib", "numpy",
    "openai", "pynvml", "requests", "torch", "triton", "tritonsmith.benchmarks.ablation", "tritonsmith.graph.state",
)  # fmt: skip
"""Modules that no call below needs, and that take up to seconds to load."""
COMMANDS = [info.callback.__name__ for info in app.registered_commands if info.callback]
LOADED_AFTER = """
import json, sys
from tritonsmith.cli.main import run
codes = {}
for line in json.loads(sys.argv[1]):
    code = run(line)
    codes[" ".join(line)] = [code, sorted(set(json.loads(sys.argv[2])) & set(sys.modules))]
import tritonsmith.graph.run
codes["a run"] = [0, sorted({"grandalf", "langchain_openai", "matplotlib", "openai", "torch", "triton"} & set(sys.modules))]
print(json.dumps(codes), file=sys.stderr)
"""


def test_a_call_loads_what_it_needs(tmp_path: Path) -> None:
    """Neither help nor a wrong path nor `detect` loads LangGraph, torch or anything else that is slow; one process, call after call.

    A run loads LangGraph, and no library of a model's server before it has such a model.
    """
    kernel = str(ROOT / "benchmarks" / "hacks" / "kernels" / "warmed_softmax.py")
    task = str(ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py")
    lines = [[], ["--help"], ["--version"], *([name, "-h"] for name in COMMANDS)]
    lines += [["optimize", "nowhere.py"], ["optimize", task, "--set", "NOTHING=3"], ["evaluate", task, "nowhere.py"]]
    lines += [["evaluate", "nowhere.py", kernel], ["lint", "nowhere.py"], ["watch", "nowhere"]]
    lines += [["detect", kernel], ["detect", kernel, "--json"]]
    command = [sys.executable, "-c", LOADED_AFTER, json.dumps(lines), json.dumps(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert {call: loaded for call, (_, loaded) in told.items() if loaded} == {}
    assert told["optimize nowhere.py"][0] == told["lint nowhere.py"][0] == 2 and told[f"detect {kernel}"][0] == 0


def test_help_has_a_short_name_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-h"]) == 0
    short = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == short and all(name in short for name in ("--version", *COMMANDS))
    for name in COMMANDS:
        assert run([name, "-h"]) == 0
        assert f"tritonsmith {name} " in capsys.readouterr().out


def test_the_version_has_those_of_what_it_stands_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == ", ".join(f"{name} {version(name)}" for name in ("tritonsmith", "torch", "triton")) + "\n"


def test_help_names_what_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command with a target names the cards, and the help of `ablate` every experiment."""
    group = typer.main.get_command(app)
    targeted = {
        name: option.help
        for name, command in group.commands.items()  # type: ignore[attr-defined]
        for option in command.params
        if "--target" in option.opts
    }
    assert {"optimize", "ablate", "evaluate", "detect", "worker"} <= set(targeted)
    for name, words in targeted.items():
        assert all(card in words for card in CARDS), name
    assert run(["optimize", "-h"]) == 0
    long = capsys.readouterr().out
    assert all(f"─ {heading} ─" in long for heading in ("Options", "Models", "Files", "Limits")), "what belongs together stands together"
    assert run(["ablate", "-h"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(experiment in text for experiment in EXPERIMENTS)
