"""The evaluator without a card, on a real GRU at its small size: what is right passes, what is wrong gets the status it deserves."""

import asyncio
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.processes.lines import LINE_LIMIT
from tritonsmith.evaluator.schema import Comparison, Label, Status, Task, TimingKind, Verdict
from tritonsmith.evaluator.tasks.files import load_task

GOOD = (ROOT / "tests/helpers/kernels/gru_batch.py").read_text()
RACY = (ROOT / "tests/helpers/kernels/gru_tiled_racy.py").read_text()


@pytest.fixture(scope="module")
def gru() -> Task:
    return load_task(ROOT / "benchmarks/tasks/39_gru.py", size="small", overrides={"num_layers": 2, "seq_len": 4})


def judge(evaluator: LocalEvaluator, task: Task, source: str) -> Verdict:
    return evaluator.evaluate_now(task, source)


def test_a_correct_gru_is_accepted_with_an_estimate_that_says_so(evaluator: LocalEvaluator, gru: Task) -> None:
    verdict = judge(evaluator, gru, GOOD)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.timing is not None and verdict.timing.kind is TimingKind.ESTIMATED
    assert verdict.timing.band and verdict.timing.band[0] < verdict.timing.score < verdict.timing.band[1]
    assert verdict.timing.comparison is not None and (verdict.timing.band[0] > 1 or verdict.timing.said is not Comparison.FASTER)
    assert verdict.timing.interval is None
    assert "ESTIMATE" in verdict.message
    assert set(verdict.timing.baselines_ms) == {"eager", "cuda_graph"}
    assert verdict.correctness is not None and verdict.correctness.trials >= 2
    assert verdict.label in (Label.HYBRID, Label.KERNEL)  # cuBLAS-like addmm for the input side, the recurrence in Triton
    kernel = next(one for one in verdict.facts.kernels if one.name == "gru_layer")
    assert kernel.launches == 2 and kernel.grid == (1, 1, 1)
    assert kernel.registers and kernel.shared_memory is not None and kernel.spills is not None
    assert kernel.bytes_loaded and kernel.flops
    assert verdict.facts.triton_launches == 2
    assert verdict.facts.library_calls.get("addmm") == 2


def test_programs_that_share_state_without_waiting_are_racy(evaluator: LocalEvaluator, gru: Task) -> None:
    """Programs that share the hidden state of a GRU without waiting for each other are racy."""
    verdict = judge(evaluator, gru, RACY)
    assert verdict.status is Status.RACY, verdict.message
    assert "gru_layer_tiled" in verdict.message or "states" in verdict.message or "order" in verdict.message


ONLY_IN_THE_ORACLE = """
import sys
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        if "pytest" not in sys.modules:
            raise ValueError("not on this device")
        return torch.relu(x)


def get_inputs():
    return [torch.rand(8)]


def get_init_inputs():
    return []
"""


def test_on_a_card_the_oracle_runs_the_reference_before_anybody_is_asked(
    evaluator: LocalEvaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "task.py"
    path.write_text(ONLY_IN_THE_ORACLE)
    assert asyncio.run(evaluator.describe(load_task(path))).outputs[0].shape == (8,)  # without a card the probe is enough
    monkeypatch.setattr(evaluator, "hardware", evaluator.hardware.model_copy(update={"present": True}))
    with pytest.raises(TaskError, match=r"task\.py, line 9: forward raised ValueError \(not on this device\)"):
        asyncio.run(evaluator.describe(load_task(path)))


ENTRY = "        steps, batch, _ = x.shape\n"
EXIT = "        return x\n"
DRAWN = "\n    def drawn(self, name):\n        return torch.randn_like(getattr(self.gru, name))\n"


def changed(*edits: tuple[str, str]) -> str:
    source = GOOD
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return source


WRONG = {
    "swapped gates": (changed(("r * (tl.dot(h, w_n", "z * (tl.dot(h, w_n")), Status.INACCURATE),
    "zeros": (changed((EXIT, "        return torch.zeros_like(x)\n")), Status.INACCURATE),
    "last step never written": (changed(("for t in range(steps):", "for t in range(steps - 1):")), Status.INACCURATE),
    "random weights": (
        changed(("getattr(self.gru, f", "self.drawn(f"), ("\n    def forward", DRAWN + "\n    def forward")),
        Status.INACCURATE,
    ),
    "weights under other names": (changed(("self.gru", "self.rnn")), Status.WRONG_WEIGHTS),
    "a weight of another shape": (changed(('("bias_hh", (3 * hidden_size,))', '("bias_hh", (hidden_size,))')), Status.WRONG_WEIGHTS),
    "half of the output": (changed((EXIT, "        return x[: steps // 2]\n")), Status.WRONG_SHAPE),
    "broadcastable output": (changed((EXIT, "        return x[:, :1]\n")), Status.WRONG_SHAPE),
    "another dtype": (changed((EXIT, "        return x.double()\n")), Status.WRONG_SHAPE),
    "changes its input": (changed((ENTRY, ENTRY + "        h0.add_(1e-3)\n")), Status.CHEATING),
    "half precision product": (
        changed(('tl.dot(h, w_n, input_precision="ieee")', "tl.dot(h.to(tl.float16), w_n.to(tl.float16))")),
        Status.INACCURATE,
    ),
    "exits the process": (changed((ENTRY, ENTRY + "        import os\n\n        os._exit(0)\n")), Status.CRASHED),
    "asks to exit": (changed((ENTRY, ENTRY + "        raise SystemExit(0)\n")), Status.CRASHED),
    "raises": (changed((ENTRY, "        steps, batch, _ = x.nonsense\n")), Status.RUNTIME_ERROR),
    "does not parse": ("def broken(:\n", Status.INVALID_FILE),
    "no ModelNew": ("import torch\n", Status.INVALID_FILE),
    "unknown Triton function": (changed(("n = tanh(", "n = tl.tanh(")), Status.COMPILE_ERROR),
}


LONG = (
    "zeros", "random weights", "swapped gates", "half of the output", "broadcastable output", "another dtype",
    "last step never written", "asks to exit", "a weight of another shape", "half precision product", "changes its input",
)  # fmt: skip
"""Their like is among the others; they wait for `make test-all`."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in WRONG])
def test_a_wrong_gru_costs_one_verdict(evaluator: LocalEvaluator, gru: Task, name: str) -> None:
    source, status = WRONG[name]
    assert source != GOOD
    verdict = judge(evaluator, gru, source)
    assert verdict.status is status, f"{verdict.status}: {verdict.message}"
    assert verdict.message and "Traceback" not in verdict.message
    assert verdict.timing is None and verdict.score is None


@pytest.mark.slow
def test_a_gru_that_loops_forever_ends_at_the_limit(gru: Task) -> None:
    with open_evaluator("h200", call_seconds=20) as opened:
        verdict = judge(opened, gru, changed((ENTRY, ENTRY + "        while True:\n            pass\n")))
    assert verdict.status is Status.TIMEOUT and verdict.score is None, verdict.message


@pytest.mark.slow
def test_the_next_honest_candidate_passes_after_the_wrong_ones(evaluator: LocalEvaluator, gru: Task) -> None:
    assert judge(evaluator, gru, WRONG["exits the process"][0]).status is Status.CRASHED
    assert judge(evaluator, gru, GOOD).status is Status.OK


def test_a_declared_map_carries_weights_under_other_names(evaluator: LocalEvaluator, gru: Task) -> None:
    names = [f"{kind}_l{layer}" for layer in range(2) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    mapping = {f"rnn.{name}": f"gru.{name}" for name in names}
    head = "class ModelNew(nn.Module):\n"
    source = changed(("self.gru", "self.rnn"), (head, f"{head}    WEIGHT_MAP = {mapping}\n\n"))
    assert judge(evaluator, gru, source).status is Status.OK


@pytest.mark.slow
def test_a_key_in_our_environment_does_not_reach_the_candidate(gru: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-5f1d")
    look = "        import os\n\n        if 'canary-5f1d' in str(dict(os.environ)):\n            return torch.zeros(1)\n"
    source = changed((ENTRY, look + ENTRY))
    with open_evaluator("h200", call_seconds=20) as opened:
        assert judge(opened, gru, source).status is Status.OK


NESTED_TASK = """
import torch
from torch import nn

rows = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x, k):
        values, indices = torch.topk(x * self.scale, k)
        return {"top": (values, indices), "sum": x.sum(-1), "turned": x.t()}


def get_inputs():
    return [torch.randn(rows, 8), 3]


def get_init_inputs():
    return []
"""
NESTED = (
    NESTED_TASK.replace("class Model(", "class ModelNew(")
    .replace("def get_inputs():\n    return [torch.randn(rows, 8), 3]", "")
    .replace("rows = 6", "")
)


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "nested.py"
    path.write_text(NESTED_TASK)
    return load_task(path)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("", "", Status.OK),
        pytest.param('"sum": x.sum(-1)', '"sum": x[:, :-1].sum(-1)', Status.INACCURATE, marks=pytest.mark.slow),
        ("(values, indices)", "(values, indices.flip(-1))", Status.INACCURATE),
        pytest.param("(values, indices)", "(values, indices.int())", Status.WRONG_SHAPE, marks=pytest.mark.slow),
        ("(values, indices)", "(values,)", Status.WRONG_SHAPE),
    ],
    ids=["right", "one of three outputs wrong", "indices wrong", "indices of another type", "an output missing"],
)
def test_every_tensor_of_a_nested_output_counts(evaluator: LocalEvaluator, nested: Task, old: str, new: str, status: Status) -> None:
    assert old in NESTED
    verdict = judge(evaluator, nested, NESTED.replace(old, new) if old else NESTED)
    assert verdict.status is status, f"{verdict.status}: {verdict.message}"
    if status is Status.OK:
        assert verdict.label is Label.LIBRARY and verdict.facts.triton_launches == 0
        assert verdict.facts.copied_outputs == ()  # x.t() lies in memory as the reference's does


def test_an_output_in_a_layout_of_its_own_is_named(evaluator: LocalEvaluator, nested: Task) -> None:
    """On a card such an output is copied within the timed call, so that its delivery takes no longer than a baseline's."""
    verdict = judge(evaluator, nested, NESTED.replace("(values, indices)", "(values.t().contiguous().t(), indices)"))
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.copied_outputs == (1,)


def test_a_text_longer_than_any_answer_is_judged_like_others(evaluator: LocalEvaluator, nested: Task) -> None:
    long = NESTED + f"# {'x' * 100}\n" * (LINE_LIMIT // 100)
    assert len(long) > LINE_LIMIT
    verdict = judge(evaluator, nested, long)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.sha == text_sha(long)


@pytest.mark.slow
def test_work_inside_an_interpreted_kernel_is_no_library_call(evaluator: LocalEvaluator) -> None:
    """What the interpreter computes inside a kernel does not count as a library call."""
    task = load_task(ROOT / "benchmarks/tasks/26_gelu_scale_bias.py", size="small")
    verdict = judge(evaluator, task, (ROOT / "tests/helpers/kernels/gelu_chain.py").read_text())  # tl.erf is torch.erf in the interpreter
    assert verdict.status is Status.OK, verdict.message
    assert verdict.label is Label.KERNEL and not verdict.facts.library_calls
