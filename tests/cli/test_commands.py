"""The command line as a user meets it: answers, exit codes, and one sentence for every bad input."""

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.cli.screen.answer import show
from tritonsmith.cli.screen.tables import verdict_lines
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Comparison, Measurement
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

GRU = str(ROOT / "benchmarks" / "tasks" / "39_gru.py")
TINY = ["--size", "small", "--set", "seq_len=4", "--set", "num_layers=2", "--target", "h200"]
COMMAND = str(Path(sys.executable).parent / "tritonsmith")

TASK = """
import torch
from torch import nn

ROWS = 48

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x) * 2.0

def get_inputs():
    return [torch.randn(ROWS, 33)]

def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def relu_twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(y + at, tl.maximum(value, 0.0) * 2.0, at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_twice[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Good and bad files by name."""
    contents = {
        "task.py": TASK,
        "good.py": KERNEL,
        "noticed.py": "import gc\n" + KERNEL,
        "syntax.py": "class Model(:\n",
        "no_inputs.py": "class Model: pass\ndef get_init_inputs(): return []\n",
        "policy.py": "class Mine: pass\n",
        "exits.py": "raise SystemExit(3)\n",
        "woe.py": "raise RuntimeError('two\\nlines')\n",
        "breaks.py": "class Mine:\n    def __init__(self):\n        raise ValueError('no way')\n",
        "encodes.py": "from tritonsmith.graph.policies import Default\nclass Mine(Default):\n    encodes = 7\n",
        "inf.toml": '[models."x"]\ninput = inf\noutput = 1\n',
        "deep.json": "[" * 100_000,
        "odd.jsonl": '{"kind": "tape", "format": 1}\n{"kind": "verdict", "task": [1], "kernel": "k", "profile": "quick"}\n',
        "broken/events.jsonl": '{"event": "run"}\n[1]\n',
    }
    (tmp_path / "broken").mkdir()
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\x00\xff\xfe\x80")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old.txt").write_text("earlier result")
    names = [*contents, "binary.py", "full", "broken"]
    paths = {name.partition(".")[0]: str(tmp_path / name) for name in [*names, "missing.py"]}
    return paths | {"folder": str(tmp_path), "long": str(tmp_path / ("x" * 300))}


BAD_INPUTS = [
    ("optimize {missing}", "missing.py"),
    ("lint {folder}", "directory"),
    ("optimize {binary}", "binary.py"),
    ("optimize {syntax}", "syntax.py"),
    ("optimize {no_inputs}", "get_inputs"),
    ("optimize {task} --set ROWS", "ROWS"),
    ("optimize {task} --set NOTHING=3", "NOTHING"),
    ("optimize {task} --policy best", "best"),
    ("optimize {task} --policy {missing}:Mine", "missing.py"),
    ("optimize {task} --policy {policy}:Mine", "after_evaluate"),
    ("optimize {task} --target abacus", "rtx4090"),
    ("optimize {task} --model oracle", "openai:NAME"),
    ("optimize {task} --size medium", "--size"),
    ("optimize {task} --precision fp8", "'--precision': 'fp8' is not one of 'auto', 'ieee', 'split'"),
    ("optimize {task} --mode test", "'--mode': 'test' is not one of 'eval', 'train'"),
    ("optimize {task} --allow anything", "--allow"),
    ("optimize {task} --seeds 0", "--seeds"),
    ("optimize {task} --seeds two", "--seeds"),
    ("optimize {task} --budget-candidates 0", "--budget-candidates"),
    ("optimize {task} --out {good}", "--out"),
    ("optimize {task} --out {good}/below", "--out"),
    ("optimize {task} --out {full}", "not empty"),
    ("optimize", "TASK"),
    ("evaluate {task}", "KERNEL"),
    ("evaluate {task} {missing}", "missing.py"),
    ("evaluate {task} {folder}", "binary.py"),
    ("evaluate {task} {binary}", "binary.py"),
    ("evaluate {missing} {good}", "missing.py"),
    ("evaluate {task} {good} --profile careful", "--profile"),
    ("evaluate {task} {good} --target abacus", "abacus"),
    ("detect {missing}", "missing.py"),
    ("detect {syntax}", "syntax.py"),
    ("graph --policy best", "best"),
    ("graph --policy default --run {folder}", "--run, --policy"),
    ("graph --format png", "mermaid"),
    ("graph --run {folder}", "--run"),
    ("graph --out {folder}", "--out"),
    ("graph --run=", "--run is empty"),
    ("graph --run {broken}", "events.jsonl: line 2 is not an event"),
    ("graph --policy {breaks}:Mine", "Mine() raises ValueError: no way"),
    ("graph --policy {encodes}:Mine", "Mine.encodes"),
    ("resume {long}", "too long"),
    ("report {long}", "too long"),
    ("watch {long}", "too long"),
    ("policies --check {exits}:Mine", "--check"),
    ("policies --show {exits}:Mine", "SystemExit"),
    ("policies --check {woe}:Mine", "RuntimeError: two lines"),
    ("policies --check {policy}", "it defines Mine"),
    ("optimize {task} --out=", "--out is empty"),
    ("optimize {task} --seeds 99999999999", "--seeds"),
    ("optimize {task} --budget-seconds inf", "--budget-seconds"),
    ("optimize {task} --budget-money nan", "--budget-money"),
    ("optimize {task} --model-timeout inf", "--model-timeout"),
    ("optimize {task} --prices {missing}", "--prices"),
    ("optimize {task} --prices {inf}", "models.x.input"),
    ("optimize {task} --prices {deep}", "nested too deeply"),
    ("optimize {task} --replay {odd}", "line 2 is not a line of a recording (task must be text)"),
    ("optimize {task} --replay {binary}", "line 1"),
    ("optimize {task} --model openai:x --base-url http://[::1", "--base-url"),
    ("optimize {task} --model openai:x --base-url http://h:999999", "--base-url"),
    ("ablate {deep} --policies default", "nested too deeply"),
    ("ablate {task} --policies default --out {full}", "holds no experiment"),
    ("ablate {task} --policies default --out {full} --json", "holds no experiment"),
    ("ablate {task} --policies default --out {full} --dry-run", "holds no experiment"),
    ("ablate {task} --policies default --out {good}/below", "good.py is a file"),
    ("ablate {task} --policies default --model openai:x --key-env NO_KEY_HERE", "NO_KEY_HERE"),
    ("ablate {task} --policies default --prices {missing}", "--prices"),
    ("ablate {task} --policies default --repeats 99999999999", "--repeats"),
    ("ablate {task} --policies {exits}:Mine", "--policies"),
    ("assistants --url http://[::1", "--url"),
    ("assistants --policies ,", "--policies"),
    ("optimise {task}", "optimise"),
    ("doctor --quickly", "--quickly"),
]


@pytest.mark.parametrize(("line", "named"), BAD_INPUTS, ids=[line for line, _ in BAD_INPUTS])
def test_bad_input_gets_one_sentence(
    line: str, named: str, files: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a run folder that should not be made would be made here
    arguments = [word.format_map(files) for word in line.split()]
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert named in printed.err and "Traceback" not in printed.err
    assert not (tmp_path / "runs").exists()


def test_an_empty_argument_is_not_this_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """What `$RUN` leaves where it is not set."""
    assert run(["report", ""]) == 2 and run(["optimize", "task.py", "--out", ""]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: argument 2 is empty; give it a value, or leave it out",
        "error: --out is empty; give it a value, or leave it out",
    ]


def test_an_answer_that_cannot_be_written(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(answer: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tritonsmith.cli.screen.policies.print_json", full)
    assert run(["policies", "--json"]) == 1
    assert capsys.readouterr().err == "error: the answer cannot be written (No space left on device); send it elsewhere\n"


def test_a_line_end_within_a_text_ends_no_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    decision = {"event": "decision", "id": "main/01", "site": "after_select", "choice": "finish", "reason": "one\u2028two"}
    rest = {"gate": "after_select", "policy": "default", "branch": "main", "candidate": None, "evidence": {}}
    (tmp_path / "events.jsonl").write_text(json.dumps(decision | rest, ensure_ascii=False) + "\n", encoding="utf-8")
    assert run(["graph", "--run", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decisions"][0]["reason"] == "one\u2028two"


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("optimize", "evaluate", "detect", "graph", "doctor"))


def test_doctor_tells_what_works_and_keeps_secrets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://user:password@models.example/v1")
    assert run(["doctor", "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    works = {check["name"]: check["works"] for check in answer["checks"]}
    assert works["interpreter"] and works["compiler"] and works["model endpoint"]
    assert any(name.startswith("sandbox") for name in works)
    assert not any(secret in printed.out + printed.err for secret in ("sk-very-secret", "password"))
    assert all(check["works"] or check["detail"] for check in answer["checks"])


@pytest.mark.slow
def test_evaluate_leaves_nothing(files: dict[str, str], tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    line = [COMMAND, "evaluate", files["task"], files["noticed"], "--target", "h200", "--json", "--profile", "quick"]  # for speed
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, env={**os.environ, "TMPDIR": str(temporary)})
    assert done.returncode == 0 and not list(temporary.iterdir()), done.stderr
    assert json.loads(done.stdout)["status"] == "ok"


def test_evaluate_answers_in_json(
    files: dict[str, str], evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused kernel is one of test_judging, and a wrong one of whole/test_newcomer."""
    monkeypatch.setattr("tritonsmith.cli.judging.open_evaluator", lambda *_, **__: nullcontext(evaluator))
    assert run(["evaluate", files["task"], files["noticed"], "--target", "h200", "--json", "--profile", "quick"]) == 0  # for speed
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["timing"]["raw"] is None
    assert verdict["environment"]["size"].startswith("the task has no SMALL: judged at its own size")
    (advice,) = verdict["advice"]  # said, and no part of the verdict
    assert advice.startswith("line 1: import gc")
    assert verdict["status"] == "ok" and verdict["label"] == "kernel" and verdict["proven"] is False
    assert verdict["timing"]["kind"] == "estimated" and "eager" in verdict["timing"]["baselines_ms"]
    assert {"median_ms", "score", "score_eager", "interval", "baseline"} <= set(verdict["timing"])
    assert verdict["facts"]["launches_per_forward"] == 1 and verdict["facts"]["kernels"][0]["name"] == "relu_twice"
    assert {"max_abs_err", "mean_abs_err", "err_vs_oracle", "reference_err_vs_oracle", "trials"} <= set(verdict["correctness"])
    assert verdict["correctness"]["precision_class"] == "ieee"


def test_detect_gives_labels_with_evidence(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["detect", files["good"], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"labels", "kernels"} <= set(answer)
    assert all({"name", "line", "evidence"} <= set(label) for label in answer["labels"])
    assert [kernel["name"] for kernel in answer["kernels"]] == ["relu_twice"]


@dataclass(frozen=True)
class FinishedRun:
    """Folder and printed text of a run."""

    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """One run of the main job on a tiny GRU, through the installed command; slow, as test_demo has the main job already."""
    folder = tmp_path_factory.mktemp("run") / "out"
    line = [COMMAND, "optimize", GRU, *TINY, "--seeds", "1", "--out", str(folder), "--json"]
    return FinishedRun(folder, subprocess.run(line, capture_output=True, text=True, timeout=280, cwd=folder.parent))


@pytest.mark.slow
def test_optimize_leaves_what_it_promises(finished_run: FinishedRun) -> None:
    folder, done = finished_run.folder, finished_run.done
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer == json.loads((folder / "summary.json").read_text())
    assert {"task", "policy", "model", "winner", "candidates", "decisions", "usage", "stopped_because"} <= set(answer)
    assert answer["winner"]["verdict"]["status"] == "ok" and answer["winner"]["verdict"]["timing"]["kind"] == "estimated"
    assert all(decision["reason"] for decision in answer["decisions"])
    assert (folder / "best.py").exists() and (folder / "events.jsonl").exists() and any((folder / "kernels").iterdir())
    assert "after_select" in done.stderr  # the progress goes to stderr, one line per event when it is no terminal


@pytest.mark.slow
def test_optimize_shows_the_table(finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished_run.folder
    summary = Summary.model_validate_json((folder / "summary.json").read_text())
    show(summary)
    printed = capsys.readouterr().out
    assert all(row.id in printed and row.status in printed for row in summary.candidates)
    assert all(decision.reason in printed for decision in summary.decisions)
    assert "ESTIMATE" in printed and str(folder / "best.py") in printed


def test_a_verdict_shows_what_a_measurement_carries() -> None:
    verdict = scripted_verdict(4.55, comparison=Comparison.FASTER, quarantine="40x the strongest baseline")
    session = Measurement(ratio=4.55, interval=(4.53, 4.57), pairs=100)
    assert verdict.timing
    extra = {"control": Measurement(ratio=1.001, interval=(0.998, 1.004), pairs=50), "sessions": (session, session)}
    timing = verdict.timing.model_copy(update={**extra, "device_ms": 1.402, "floor_ms": 0.05})
    verdict = verdict.model_copy(update={"timing": timing, "advice": ("line 3: id() of an object",)})
    text = "\n".join(line.plain for line in verdict_lines(verdict))
    for part in ("4.55x: FASTER than eager (measured)", "1.001x (0.998 to 1.004, 50 pairs) for the baseline against itself",
                 "4.550x (4.530 to 4.570, 100 pairs); 4.550x", "1.402 ms by the card's own", "believed  from 0.05 ms on: no kernel",
                 "40x the strongest baseline", "advice    line 3: id() of an object"):  # fmt: skip
        assert part in text


@pytest.mark.slow
def test_graph_marks_the_way_of_a_run(finished_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished_run.folder
    assert run(["graph", "--run", str(folder)]) == 0
    marked = capsys.readouterr().out
    assert run(["graph"]) == 0
    plain = capsys.readouterr().out
    assert "taken" in marked and "taken" not in plain


@pytest.mark.slow
def test_best_is_a_module_of_its_own(finished_run: FinishedRun) -> None:
    folder = finished_run.folder
    line = [COMMAND, "evaluate", GRU, str(folder / "best.py"), *TINY]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "ok (" in done.stdout and "ESTIMATE" in done.stdout and "measured" not in done.stdout


@pytest.mark.slow
def test_a_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    """What one interrupt does is in test_newcomer."""
    line = [COMMAND, "optimize", GRU, *TINY, "--out", str(tmp_path / "out")]
    # A shell's background job ignores the signal, and so would every child.
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stderr
    first = process.stderr.readline()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        while "Stops at the next safe point" not in first:
            first += process.stderr.readline()
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert "Traceback" not in first + rest and "Interrupted; what was finished is kept" in rest
    assert f"tritonsmith resume {tmp_path / 'out'}" in rest


@pytest.mark.slow
def test_readme_script_runs_as_written(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    script = text.split("## From Python\n", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    assert sum(bool(line.strip()) for line in script.splitlines()) <= 10
    file = tmp_path / "readme.py"
    file.write_text(script)
    done = subprocess.run([sys.executable, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    *steps, answer = done.stdout.splitlines()
    assert any("verdict ok" in line for line in steps) and any("decision" in line and "score" in line for line in steps)
    assert "ESTIMATE" in answer or " as " in answer or " than " in answer
