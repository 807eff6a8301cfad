"""The evaluator on a real card (`make test-gpu`): measured verdicts, faults that cost one verdict, and work that is not done."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench_tasks import write_task
from project import ROOT
from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.benchmarks.kernelbench.texts import copy_reference
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.channel.doorbell import BASELINES, QUICK_BASELINES
from tritonsmith.evaluator.oracle.handles import sanitizer
from tritonsmith.evaluator.records.contest import Alternative, Contest, ContestInput
from tritonsmith.evaluator.records.op_node import TensorSpec
from tritonsmith.evaluator.schema import Candidate, Label, Stage, Status, Task, TimingKind, Verdict
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.prompts.author import Attempt, Brief, Raced

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

CHAIN = (ROOT / "tests/helpers/kernels/gelu_chain.py").read_text()
TILED = (ROOT / "tests/helpers/kernels/gru_tiled_racy.py").read_text()
START = "        out = torch.empty_like(x)\n"


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    with open_evaluator("auto", tmp_path_factory.mktemp("raw"), call_seconds=20) as opened:
        if not opened.hardware.present:
            pytest.fail("these tests need a CUDA card")
        yield opened


@pytest.fixture(scope="module")
def chain() -> Task:
    return load_task(ROOT / "benchmarks/tasks/26_gelu_scale_bias.py")


def changed(old: str, new: str) -> str:
    assert old in CHAIN
    return CHAIN.replace(old, new)


PAIRS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        i, j = torch.tril_indices(64, 64, offset=-1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, x, ids):
        return x[ids][:, self.i, self.j] * 2.0


def get_inputs():
    return [torch.randn(1024, 64, 64), torch.randint(0, 1024, (1024,))]


def get_init_inputs():
    return []
"""
PICK = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pick(x, ids, i, j, out, COUNT: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < COUNT
    row = tl.load(ids + tl.program_id(0))
    at = tl.load(i + place, mask=inside, other=0) * SIDE + tl.load(j + place, mask=inside, other=0)
    value = tl.load(x + row * SIDE * SIDE + at, mask=inside, other=0.0)
    tl.store(out + tl.program_id(0) * COUNT + place, value * 2.0, mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("i", torch.full((2016,), 1 << 40))
        self.register_buffer("j", torch.full((2016,), 1 << 40))

    def forward(self, x, ids):
        out = torch.empty(len(ids), 2016, device=x.device)
        pick[(len(ids), triton.cdiv(2016, 1024))](x, ids, self.i, self.j, out, COUNT=2016, SIDE=64, BLOCK=1024)
        return out
"""


def expect_sanitizer(verdict: Verdict) -> str:
    """What the audit says on this host, by the sandbox that the verdict itself had."""
    if sanitizer.find_tool() is None:
        return "not done: compute-sanitizer is not installed"
    if verdict.environment["sandbox"]["layers"].get("uid") == "applied":
        return "no memory error found"
    return "not done: compute-sanitizer needs candidates to run as a user of their own (root starts them so)"


def test_an_audit_gives_a_kernel_the_index_buffers_of_a_caller(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """Before weights are copied into them they may hold anything."""
    (tmp_path / "pairs.py").write_text(PAIRS)
    verdict = evaluator.evaluate_now(load_task(tmp_path / "pairs.py"), PICK, "strict")
    assert verdict.status is Status.OK, verdict.message
    assert verdict.environment["audit"]["compute-sanitizer"] == expect_sanitizer(verdict)


def test_an_honest_kernel_is_measured_against_every_baseline(evaluator: LocalEvaluator, chain: Task) -> None:
    verdict = evaluator.evaluate_now(chain, CHAIN)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.label is Label.KERNEL
    timing = verdict.timing
    assert timing is not None and timing.kind is TimingKind.MEASURED
    assert set(timing.baselines_ms) == set(QUICK_BASELINES), timing.notes
    assert timing.baseline == min(timing.baselines_ms, key=lambda name: timing.baselines_ms[name])
    assert timing.interval is not None and timing.interval[0] <= timing.score <= timing.interval[1]
    samples = json.loads(Path(str(timing.raw)).read_text())["samples"]
    assert all(len(side["candidate_ms"]) == len(side["baseline_ms"]) for side in samples.values())
    assert len(samples[timing.baseline]["candidate_ms"]) >= 12
    strongest = timing.baselines_ms[timing.baseline]
    for name, side in samples.items():
        few = 6 if timing.baselines_ms[name] > 2 * strongest else 12  # no noise makes a baseline that is so far off the strongest
        assert len(side["all"]["candidate_card_ms"]) == len(side["all"]["baseline_card_ms"]) >= few, name
    (kernel,) = verdict.facts.kernels
    assert kernel.launches == 1 and kernel.registers and verdict.facts.own_time_share == 1.0
    assert verdict.facts.device_ms is not None and verdict.facts.device_ms <= 1.5 * timing.median_ms
    assert "facts of the runner" not in verdict.environment["seconds_by_step"]  # the witness told them
    assert verdict.environment["card"] == evaluator.hardware.name


def test_strict_adds_trials_new_weights_and_the_audit(evaluator: LocalEvaluator, chain: Task) -> None:
    verdict = evaluator.evaluate_now(chain, CHAIN, "strict")
    assert verdict.status is Status.OK, verdict.message
    assert verdict.correctness is not None and verdict.correctness.trials >= 6
    assert verdict.environment["audit"]["interpreter"] == "no race found"
    assert verdict.environment["audit"]["compute-sanitizer"] == expect_sanitizer(verdict)
    assert verdict.timing is not None and len(verdict.timing.sessions) == 3
    assert set(verdict.timing.baselines_ms) == set(BASELINES), verdict.timing.notes
    assert "the strongest of six baselines" in verdict.message


def test_an_autotuned_baseline_is_built_once(evaluator: LocalEvaluator) -> None:
    """A product, of which an autotuner has a choice; the second strict verdict of the task builds nothing, and quick ones have four."""
    task = load_task(ROOT / "benchmarks/tasks/76_linear_bias_relu.py")
    text = copy_reference(task.source, task.path)
    first, again = (evaluator.evaluate_now(task, text, "strict") for _ in range(2))
    for verdict in (first, again):
        assert verdict.timing is not None and set(verdict.timing.baselines_ms) == set(BASELINES), verdict.message
    assert "autotune baselines" in first.environment["seconds_by_step"]
    assert "autotune baselines" not in again.environment["seconds_by_step"]
    quick = evaluator.evaluate_now(task, text)
    assert quick.timing is not None and set(quick.timing.baselines_ms) == set(QUICK_BASELINES)


FAULTS = {
    "endless kernel": (
        changed(
            "    tl.store(out",
            "    while tl.load(x, volatile=True) == tl.load(x, volatile=True):\n        tl.store(out, 1.0)\n    tl.store(out",
        ),
        Status.TIMEOUT,
    ),
    "illegal address": (changed("tl.store(out + place,", "tl.store(out + place * 100000000000,"), Status.RUNTIME_ERROR),
    "segmentation fault": (changed(START, "        import ctypes\n\n        ctypes.string_at(0)\n" + START), Status.CRASHED),
    "exit": (changed(START, "        import os\n\n        os._exit(0)\n" + START), Status.CRASHED),
    "out of memory": (changed(START, "        torch.empty(1 << 40, device=x.device)\n" + START), Status.RUNTIME_ERROR),
    "same answer for every input": (
        changed("        return out\n", "        self.kept = getattr(self, 'kept', out)\n        return self.kept\n"),
        Status.INACCURATE,
    ),
    "input returned after forty calls": (
        changed(START, "        self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls > 40:\n            return x\n" + START),
        Status.CHEATING,
    ),
    "filled later by a thread": (
        changed(
            "        return out\n",
            "        import threading\n        import time\n\n        late = torch.empty_like(out)\n"
            "        threading.Thread(target=lambda: (time.sleep(0.02), late.copy_(out))).start()\n        return late\n",
        ),
        Status.INACCURATE,
    ),
    "weights kept from the first call": (
        changed(
            START, "        self.first = getattr(self, 'first', None) if hasattr(self, 'first') else self.bias.clone()\n" + START
        ).replace("(x, self.bias,", "(x, self.first,"),
        Status.INACCURATE,
    ),
    "half precision inside": (
        changed("value * 0.7071067811865476", "value.to(tl.float16).to(tl.float32) * 0.7071067811865476"),
        Status.INACCURATE,
    ),
    "unknown function": (changed("tl.erf(", "tl.tanh("), Status.COMPILE_ERROR),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_one_verdict(evaluator: LocalEvaluator, chain: Task, name: str) -> None:
    source, status = FAULTS[name]
    profile = "strict" if name == "weights kept from the first call" else "quick"
    verdict = evaluator.evaluate_now(chain, source, profile)
    assert verdict.status is status, f"{verdict.status}: {verdict.message}"


def test_the_card_is_clean_after_the_faults(evaluator: LocalEvaluator, chain: Task) -> None:
    """After the faults the card is clean, and an honest kernel passes."""
    assert evaluator.evaluate_now(chain, CHAIN).status is Status.OK
    listing = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    table = {int(pid): (int(parent), args) for pid, parent, args in (line.split(None, 2) for line in listing.splitlines()[1:])}
    ours, size = {os.getpid()}, 0
    while len(ours) > size:  # other programs on this machine may judge kernels too
        size, ours = len(ours), ours | {pid for pid, (parent, _) in table.items() if parent in ours}
    left = ours | {pid for pid, (parent, _) in table.items() if parent == 1}  # those that lost their parent are nobody else's either
    runners = [pid for pid in left if "tritonsmith.evaluator.confined.runner" in table.get(pid, (0, ""))[1]]
    assert len(runners) <= 7  # the baselines' own, and three of each kind that wait for their candidates


TURNED = write_task(
    "size = 64", "torch.randn(64, 64, 128, 128)", "x * self.scale", "size", "self.scale = nn.Parameter(torch.rand(1) + 0.5)"
)


SIZED = (
    write_task(
        "rows, width = 64, 4096", "torch.randn(rows, width)", "x * self.scale", "width", "self.scale = nn.Parameter(torch.rand(1) + 0.5)"
    )
    + 'SHAPES = [{"rows": 3}, {"rows": 5, "width": 100}]\n'
)


def test_strict_judges_other_sizes_that_the_task_allows(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "sized.py"
    path.write_text(SIZED)
    right = copy_reference(SIZED, str(path))
    verdict = evaluator.evaluate_now(load_task(path), right, "strict")
    assert verdict.status is Status.OK and verdict.environment["audit"]["other sizes"] == "right at 2 of them", verdict.message
    for size, rows in zip(verdict.sizes, (3, 5), strict=True):
        assert size.sizes["rows"] == rows and size.timing is not None, size.note
        assert set(size.timing.baselines_ms) == {"eager", "compile"} and size.timing.kind is TimingKind.MEASURED
    wrong = right.replace("x * self.scale", "x * self.scale * (1 if x.shape[0] == 64 else 2)")
    verdict = evaluator.evaluate_now(load_task(path), wrong, "strict")
    assert verdict.status is Status.INACCURATE and "at another size that the task allows" in verdict.message, verdict.message


def test_an_output_in_a_layout_of_its_own_is_no_cheating(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """Copying channels-last memory into the reference's order takes longer than the baselines' delivery; it is part of the time."""
    path = tmp_path / "turned.py"
    path.write_text(TURNED)
    view = "(x * self.scale).contiguous(memory_format=torch.channels_last)"
    text = copy_reference(TURNED.replace("x * self.scale", view), str(path))
    verdict = evaluator.evaluate_now(load_task(path), text, "strict")
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.copied_outputs == (0,)


def test_a_library_call_is_labelled_as_one(evaluator: LocalEvaluator, chain: Task) -> None:
    source = changed(START, "        return torch.clamp(torch.nn.functional.gelu(x + self.bias) * self.scale, max=self.limit)\n" + START)
    verdict = evaluator.evaluate_now(chain, source)
    assert verdict.status is Status.OK and verdict.label is Label.LIBRARY
    assert verdict.facts.triton_launches == 0 and verdict.facts.library_calls


def test_the_notes_racy_gru_is_refused(evaluator: LocalEvaluator) -> None:
    task = load_task(ROOT / "benchmarks/tasks/39_gru.py")
    verdict = evaluator.evaluate_now(task, TILED.replace("BH=16", "BH=32"))
    assert verdict.status in (Status.RACY, Status.INACCURATE), verdict.message


STATEFUL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(4096, 4096)

    def forward(self, x, first):
        self.state.copy_(first)
        self.state = self.state.to(x.device)
        self.state = torch.tanh(x + self.state)
        return self.state * 2


def get_inputs():
    return [torch.randn(4096, 4096), torch.randn(4096, 4096)]


def get_init_inputs():
    return []
"""


def test_a_state_that_is_written_and_put_aside_stays_where_a_graph_writes_it(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """The graph of the baseline writes the tensor that the module put aside while it was recorded."""
    path = tmp_path / "stateful.py"
    path.write_text(STATEFUL)
    verdict = evaluator.evaluate_now(load_task(path), copy_reference(STATEFUL, str(path)), "strict")
    assert verdict.status is Status.OK, verdict.message
    assert verdict.timing is not None and "cuda_graph" in verdict.timing.baselines_ms, verdict.timing


MANY = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)) for _ in range(6)))

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""


def test_a_forward_of_many_launches_is_timed_in_a_graph(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """The reference's own text in a graph is as fast as the reference in one; what waits for the card is timed as called."""
    path = tmp_path / "many.py"
    path.write_text(MANY)
    task, text = load_task(path), copy_reference(MANY, str(path))
    verdict = evaluator.evaluate_now(task, text)
    assert verdict.status is Status.OK, verdict.message
    timing = verdict.timing
    assert timing is not None and timing.form == "cuda_graph" and timing.forms_ms["cuda_graph"] < timing.forms_ms["as_called"], timing
    assert timing.host_ms is not None and timing.host_ms > timing.median_ms and len(timing.sessions) == 1 and timing.pairs >= 30
    waiting = text.replace("        return self.layers(x)", "        return self.layers(x) if x.sum().item() else x")
    verdict = evaluator.evaluate_now(task, waiting)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.timing is not None and verdict.timing.form == "as_called", verdict.timing
    assert any("cannot be captured" in note for note in verdict.timing.notes), verdict.timing.notes


def test_other_work_while_it_is_captured_gains_nothing(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "many.py"
    path.write_text(MANY)
    text = copy_reference(MANY, str(path)).replace(
        "        return self.layers(x)",
        "        if torch.cuda.is_current_stream_capturing():\n            return self.layers(x)\n        return self.layers(x * 1.0)",
    )
    verdict = evaluator.evaluate_now(load_task(path), text)
    assert verdict.status is Status.OK and verdict.timing is not None, verdict.message
    assert verdict.timing.form == "as_called" and any("a call 1 times" in note for note in verdict.timing.notes), verdict.timing.notes


RACED = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(32, 320)
        self.first = nn.Conv2d(320, 320, 3, padding=1)
        self.second = nn.Conv2d(320, 320, 3, padding=1)
        self.last = nn.Linear(320, 1280)
        self.half()

    def forward(self, x):
        h = self.second(F.silu(self.first(F.silu(self.norm(x))))) + x
        return self.last(h.permute(0, 2, 3, 1))


def get_inputs():
    return [torch.randn(8, 320, 32, 32, dtype=torch.float16)]


def get_init_inputs():
    return []
"""


def test_regions_are_raced_and_the_cut_follows(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """Each way of two convolutions and a product has a time of its own; the module of the cut that follows is right and faster."""
    path = tmp_path / "raced.py"
    path.write_text(RACED)
    task, author = load_task(path), RecipeAuthor()
    asked = Brief(task=task, facts=asyncio.run(evaluator.describe(task)), hardware=evaluator.hardware)
    draft = asyncio.run(author.seed(asked))
    before = evaluator.evaluate_now(task, draft.source)
    assert before.status is Status.OK, before.message
    candidate = Candidate(id="a", sha="a", stage=Stage.SEED, recipe=draft.recipe, settings=draft.settings)
    asked = asked.model_copy(update={"current": Attempt(candidate=candidate, source=draft.source, verdict=before)})
    contests = author.list_contests(asked)
    report = evaluator.race_regions_now(task, contests, 40.0)
    told = [[(one.name, one.us, one.reason) for one in found.times] for found in report.contests]
    assert not report.note and len(report.contests) == len(contests) and report.seconds < 100.0, report
    assert all(us is not None and us > 0.0 for ways in told for _, us, _ in ways), told
    raced = Raced(times={contest.key: found for contest, found in zip(contests, report.contests, strict=True)})
    analysis = asyncio.run(author.analyze(asked.model_copy(update={"raced": raced})))
    assert analysis.settings, (analysis, told)
    other = asyncio.run(author.optimize(asked.model_copy(update={"analysis": analysis})))
    assert other is not None
    after = evaluator.evaluate_now(task, other.source)
    assert after.status is Status.OK, after.message
    assert after.score is not None and before.score is not None and after.score > before.score, (analysis.bottleneck, told)


def test_a_way_that_fails_has_a_reason_and_the_others_have_times(evaluator: LocalEvaluator, chain: Task) -> None:
    good = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1.0\n"
    bad = good.replace("return x + 1.0", "raise ValueError('no')")
    given = ContestInput(spec=TensorSpec(shape=(1 << 20,)))
    ways = (Alternative(name="own", text=bad), Alternative(name="library", text=good))
    report = evaluator.race_regions_now(chain, [Contest(inputs=(given,), alternatives=ways)], 20.0)
    own, library = report.contests[0].times
    assert own.us is None and "no" in own.reason and library.us is not None and library.us > 0.0
