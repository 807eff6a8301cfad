"""Texts that no process need see get a verdict of their own, from the evaluator, the command line and a run that waits for a worker."""

import asyncio
import json
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.evaluator.texts.source.refuse import refuse_text
from tritonsmith.nodes.evaluators.spool import Spool, SpoolEvaluator
from tritonsmith.prompts.templates.hints import hints_for

TASK = ROOT / "benchmarks/tasks/26_gelu_scale_bias.py"
MODEL = "class ModelNew:\n    pass\n"
REFUSED = {
    "no Python": (f"{MODEL}x = = 3\n", "line 3: SyntaxError: invalid syntax, in: x = = 3"),
    "left out": ("def f():\n    x = 1\n  y = 2\n", "line 3: IndentationError: "),
    "outside of a function": (f"{MODEL}return 3\n", "line 3: SyntaxError: 'return' outside function"),
    "null bytes": (f"{MODEL}\0", "null bytes"),
    "another name": ('"""Defines ModelNew."""\nclass Model:\n    pass\n', "defines no class ModelNew"),
    "inner class": ("class A:\n    class ModelNew:\n        pass\n", "defines no class ModelNew"),
    "a function": ("x = 1\ndef ModelNew():\n    pass\n", "line 2: ModelNew is a function, so the file defines no class ModelNew"),
    "empty": ("", "defines no class ModelNew"),
}
JUDGED = {
    "a class": MODEL,
    "another name for it": "class A:\n    pass\nModelNew = A\n",
    "in a branch": f"try:\n    import x\nexcept ImportError:\n    {MODEL.replace(chr(10), chr(10) + '    ')}\n",
    "an import": "from torch.nn import Linear as ModelNew\n",
    "any import": "from somewhere import *\n",
    "Python would warn": f"{MODEL}assert (1, 'always'), 2 is 2\n",
    "too long to read": "#" * 300_000,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_that_is_no_candidate_is_refused_with_its_line(name: str) -> None:
    text, says = REFUSED[name]
    verdict = refuse_text(KernelText.of(text), "strict")
    assert verdict is not None and verdict.status is Status.INVALID_FILE and verdict.profile == "strict"
    assert says in verdict.message and "\n" not in verdict.message
    assert verdict.sha == KernelText.of(text).sha


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.filterwarnings("error")
def test_every_other_text_is_judged(name: str) -> None:
    assert refuse_text(KernelText.of(JUDGED[name]), "quick") is None


def test_the_author_who_repairs_is_told_what_the_file_must_be() -> None:
    for name, hint in (("no Python", "syntax"), ("left out", "syntax"), ("another name", "no_model"), ("a function", "no_model")):
        verdict = refuse_text(KernelText.of(REFUSED[name][0]), "quick")
        assert verdict is not None
        assert hint in hints_for(verdict, REFUSED[name][0], named_card("h200"))


def test_the_command_starts_no_evaluator_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tritonsmith.cli.judging.open_evaluator", None)
    file = tmp_path / "kernel.py"
    file.write_text(REFUSED["no Python"][0])
    assert run(["evaluate", str(TASK), str(file)]) == 1
    assert capsys.readouterr().out.split("\n")[:2] == ["status    invalid_file", f"message   {REFUSED['no Python'][1]}"]
    file.write_text(REFUSED["another name"][0])
    assert run(["evaluate", str(TASK), str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "invalid_file"
    assert run(["evaluate", str(tmp_path / "none.py"), str(file)]) == 2  # a task that is none comes first


def test_no_job_is_written_for_it(tmp_path: Path) -> None:
    judge = SpoolEvaluator(tmp_path, "h200")
    verdict = asyncio.run(judge.evaluate(load_task(TASK), KernelText.of(REFUSED["a function"][0])))
    assert verdict.status is Status.INVALID_FILE and Spool(tmp_path).open_jobs() == []
