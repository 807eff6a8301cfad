"""Memory plans: which one fits, and that a task judged in parts or on the host is judged as it is whole."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks import planning
from tritonsmith.evaluator.oracle.checks.answers import Answers
from tritonsmith.evaluator.oracle.checks.batch import Batch
from tritonsmith.evaluator.oracle.checks.inputs import KINDS
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan, Needs, OraclePlace, choose_plan, count_bytes, refuse
from tritonsmith.evaluator.oracle.checks.planning import calibrate, find_batch, load_on_card
from tritonsmith.evaluator.oracle.checks.trials import compute_expected, judge_outputs
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge import on_card
from tritonsmith.evaluator.oracle.judge.memory_watch import MemoryWatch
from tritonsmith.evaluator.oracle.judge.on_card import CardJudge
from tritonsmith.evaluator.oracle.timing.known_baselines import KnownBaselines
from tritonsmith.evaluator.oracle.timing.paired import Paired
from tritonsmith.evaluator.schema import LaunchFacts, PrecisionClass, Status
from tritonsmith.evaluator.tasks.files import load_task

GB = 1e9
H200, H100 = 148 * GB, 84 * GB
HOST = 60 * GB
IEEE = PrecisionClass.IEEE


def needs(inputs: float, outputs: float, peak: float, rows: int = 0) -> Needs:
    """In gigabytes."""
    return Needs(inputs * GB, outputs * GB, 0.0, peak * GB, rows=rows)


def test_a_small_task_saves_nothing_and_a_large_one_saves_what_it_must() -> None:
    small = choose_plan(needs(0.5, 0.5, 0.5), H200, HOST)
    assert small is not None and (small.oracle, small.input_sets, small.together) == (OraclePlace.WHOLE, 3, True)
    plans = [choose_plan(needs(6.4, 6.4, 6.4, rows), H200, HOST) for rows in (4096, 0)]
    assert [(plan.oracle, plan.together) for plan in plans if plan] == [(OraclePlace.PARTS, True), (OraclePlace.WHOLE, False)]
    host = choose_plan(needs(8.6, 0.0, 8.6), 78 * GB, HOST)  # the host takes minutes, so all that saves the card's memory comes before it
    assert host is not None and host.oracle is OraclePlace.HOST
    close = choose_plan(needs(8.6, 5.7, 5.7, 64), 143 * GB, HOST)  # three sets of inputs would fit, and leave a candidate 6 GB
    assert close is not None and (close.input_sets, close.together) == (1, True) and close.granted >= 1.25 * 14.3 * GB
    tight = choose_plan(needs(6.4, 6.4, 6.4, 4096), H100, HOST)
    assert tight is not None and not tight.together and tight.input_sets == 1


@pytest.mark.parametrize(("separable", "proven"), [(True, True), (True, False), (False, False)])
def test_parts_are_tried_before_baselines_come_one_at_a_time(monkeypatch: pytest.MonkeyPatch, separable: bool, proven: bool) -> None:
    taken: list[MemoryPlan] = []
    loaded = SimpleNamespace(
        draw=lambda kind: [], reference_outputs=lambda tensors, precision: [], task=SimpleNamespace(path="a.py", precision=IEEE),
        layout=SimpleNamespace(input_bytes=0), take_plan=taken.append,
    )  # fmt: skip
    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(planning, "LoadedTask", lambda *about: loaded)
    monkeypatch.setattr(planning, "_count_needs", lambda loaded, peak: needs(6.4, 6.4, 6.4))
    monkeypatch.setattr(planning, "_measure_room", lambda loaded: H200)
    monkeypatch.setattr(planning, "_read_host_memory", lambda: 2 * HOST)
    monkeypatch.setattr(planning, "find_batch", lambda *about: Batch(4096, (0,)) if separable else None)
    monkeypatch.setattr(planning, "calibrate", lambda loaded, batch, *about: batch if proven else None)
    load_on_card(cast(Any, None), named_card("h200"))
    (plan,) = taken
    assert (plan.oracle, plan.together) == ((OraclePlace.PARTS, True) if proven else (OraclePlace.WHOLE, False))


@pytest.mark.parametrize("room", [H200, H100, 24 * GB])
def test_every_plan_keeps_within_the_card_and_grants_a_candidate_the_references_peak(room: float) -> None:
    found = 0
    for size in (0.1, 1.0, 2.0, 4.0, 6.4, 8.6, 15.0):
        for one in (needs(size, size, size, 1000), needs(size, 0.0, size), needs(size, size, 2 * size, 16)):
            plan = choose_plan(one, room, HOST)
            if plan is not None:
                found += 1
                assert count_bytes(one, plan) == plan.needed <= room and plan.granted >= one.candidate
                assert f"of {room / GB:.1f} GB" in plan.describe() and plan.record(5)["peak_bytes"] == 5
    assert found >= 6


def test_after_a_plan_that_did_not_do_each_next_one_is_leaner_until_none_is_left() -> None:
    one, plans = needs(4, 4, 4), []
    plan = choose_plan(one, H200, HOST)
    while plan is not None:
        plans.append(plan)
        plan = choose_plan(one, H200, HOST, after=plan)
    assert len(plans) >= 4 and len({plan.describe() for plan in plans}) == len(plans)
    assert (plans[0].together, plans[0].input_sets) == (True, 3) and (plans[-1].together, plans[-1].input_sets) == (False, 1)
    assert all(later.is_leaner(earlier) and not earlier.is_leaner(later) for earlier, later in pairwise(plans))


def test_a_task_that_fits_under_no_plan_is_refused_with_its_tensors_and_the_size_that_would_fit() -> None:
    huge = needs(80, 80, 80)
    assert choose_plan(huge, H200, HOST) is None
    said = str(refuse("task.py", "x float32[4000, 5000000] (80.0 GB)", 4000, huge, H200, HOST))
    assert said.startswith("task.py: x float32[4000, 5000000]") and "148.0 GB" in said and said.endswith("use --set NAME=VALUE")
    rows = int(said.split("a first axis of ")[1].split()[0])
    for count, fits in ((rows, True), (rows + 10, False)):
        smaller = replace(huge, **dict.fromkeys(("inputs", "outputs", "peak"), 80 * GB * count / 4000))
        assert (choose_plan(smaller, H200, 0.0) is not None) is fits
    assert "no batch" in str(refuse("task.py", "x", 4000, replace(huge, weights=200 * GB), H200, HOST))


LINEAR = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(24, 24)
    def forward(self, x, scale):
        return torch.softmax(self.a(x), 1) * scale, (x > 0).sum(1)
def get_inputs():
    return [torch.rand(24, 24), torch.rand(24, 1)]
def get_init_inputs():
    return []
"""
BODIES = {
    "square product": ("return x @ y", "[torch.rand(12, 12), torch.rand(12, 12)]", (0,)),
    "running sum over rows": ("return torch.cumsum(x, 0)", "[torch.rand(12, 5)]", None),
    "a loss": ("return ((x - y) ** 2).mean()", "[torch.rand(12, 5), torch.rand(12, 5)]", None),
    "two that go together": ("return x * y.relu()", "[torch.rand(12, 5), torch.rand(12, 5)]", (0, 1)),
    "softmax over the batch": ("return torch.softmax(x, 0)", "[torch.rand(12, 5)]", None),
    "batch in a view": ("return x.view(12, 5) * 2", "[torch.rand(12, 5)]", None),
    "one row": ("return x * 2", "[torch.rand(1, 5)]", None),
}


def load(folder: Path, text: str) -> LoadedTask:
    path = folder / "task.py"
    path.write_text(text)
    return LoadedTask(load_task(path), named_card("h200"), "cpu")


def write(body: str, inputs: str, arguments: str = "x, y=None") -> str:
    return (
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        f"    def forward(self, {arguments}):\n        {body}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n"
    )


@pytest.fixture
def linear(tmp_path: Path) -> Iterator[LoadedTask]:
    loaded = load(tmp_path, LINEAR)
    yield loaded
    loaded.close()


def judge_by(loaded: LoadedTask, plan: MemoryPlan) -> None:
    loaded.batch = find_batch(loaded, tensors := loaded.draw("own"), loaded.reference_outputs(tensors, IEEE))
    loaded.take_plan(plan)


@pytest.mark.parametrize(
    "plan",
    [
        MemoryPlan(OraclePlace.PARTS, 5),
        MemoryPlan(OraclePlace.HOST),
        *(pytest.param(MemoryPlan(OraclePlace.PARTS, rows), marks=pytest.mark.slow) for rows in (1, 24)),
    ],
    ids=str,
)
def test_parts_and_host_judge_as_the_whole_does(linear: LoadedTask, plan: MemoryPlan) -> None:
    tensors = linear.draw("own")
    got = linear.reference_outputs(tensors, IEEE)
    whole = Answers(linear, tensors).measure(got)
    own = Answers(linear, tensors).measure_reference([IEEE])
    judge_by(linear, plan)
    assert linear.batch is not None and linear.batch.split == (0, 1)
    assert Answers(linear, tensors).measure(got).rms == pytest.approx(whole.rms)
    parts = Answers(linear, tensors).measure_reference([IEEE], moved=True)
    assert parts.finite and parts.moved is not None and parts.moved.rms > 0.0
    assert parts.by_class[IEEE].oracle_rms == pytest.approx(own.by_class[IEEE].oracle_rms)
    assert parts.by_class[IEEE].rms < 4.0 * own.by_class[IEEE].rms
    for kind in KINDS:
        inputs = linear.draw(kind)
        right = linear.reference_outputs(inputs, IEEE)
        assert judge_outputs(linear, inputs, right, kind).meets(IEEE), kind
    for row, column in ((0, 3), (23, 0), (11, 23)):
        wrong = [output.clone() for output in got]
        wrong[0][row, column] *= 1.01
        assert not judge_outputs(linear, tensors, wrong).meets(IEEE)
        assert judge_outputs(linear, tensors, wrong).candidate.worst_index == (row, column)
    wrong = [got[0], got[1].clone()]
    wrong[1][17] += 1
    assert not judge_outputs(linear, tensors, wrong).meets(IEEE)


@pytest.mark.parametrize(("body", "inputs", "split"), BODIES.values(), ids=BODIES)
def test_a_task_is_taken_apart_only_where_rows_do_not_depend_on_each_other(
    tmp_path: Path, body: str, inputs: str, split: tuple[int, ...] | None
) -> None:
    loaded = load(tmp_path, write(body, inputs, "x, y" if inputs.count("rand") > 1 else "x"))
    tensors = loaded.draw("own")
    batch = find_batch(loaded, tensors, loaded.reference_outputs(tensors, IEEE))
    assert (batch.split if batch else None) == split
    loaded.close()


def test_a_task_that_mixes_rows_only_in_large_batches_is_found_at_full_size(tmp_path: Path) -> None:
    found = []
    for body in ("return x - x.mean(0) if x.shape[0] > 8 else x * 1.0", "return x.exp()"):
        loaded = load(tmp_path, write(body, "[torch.randn(64, 16)]", "x"))
        tensors = loaded.draw("own")
        outputs = loaded.reference_outputs(tensors, IEEE)
        batch = find_batch(loaded, tensors, outputs)
        assert batch is not None  # the sample has too few rows to show it
        found.append(calibrate(loaded, batch, 8, tensors, outputs, IEEE))
        loaded.close()
    assert found[0] is None and found[1] is not None
    assert 1.0 <= found[1].rms_factor < 4.0 and 1.0 <= found[1].max_factor < 4.0


def test_a_larger_largest_error_of_the_whole_does_not_widen_the_mean(linear: LoadedTask) -> None:
    judge_by(linear, MemoryPlan(OraclePlace.PARTS, 6))
    assert linear.batch is not None
    tensors = linear.draw("own")
    plain = Answers(linear, tensors).measure_reference([IEEE]).by_class[IEEE]
    linear.batch = replace(linear.batch, max_factor=8.0)
    wider = Answers(linear, tensors).measure_reference([IEEE]).by_class[IEEE]
    assert (wider.rms, wider.max_abs) == (plain.rms, 8.0 * plain.max_abs)
    assert [part.rms for part in wider.parts] == [part.rms for part in plain.parts]


def test_pieces_of_the_reference_hold_no_more_rows_than_the_plan_says(linear: LoadedTask, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_by(linear, MemoryPlan(OraclePlace.PARTS, 7))
    monkeypatch.setattr(linear, "decides", False)  # chance decides whether rounding asks for more runs
    seen = []
    compute = linear.oracle
    monkeypatch.setattr(linear, "oracle", lambda tensors: seen.append(tensors[0].shape[0]) or compute(tensors))
    compute_expected(linear, linear.draw("signed"), KINDS["signed"])
    assert max(seen) == 7 and sum(seen) == 2 * 24  # the inputs, and the same moved by their last place


def test_a_candidate_is_blamed_for_memory_only_where_it_had_what_the_plan_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = MemoryPlan(needed=50 * GB, room=80 * GB, peak=5 * GB, granted=35 * GB)
    watch = MemoryWatch(cast(Any, SimpleNamespace(plan=plan)))
    fault = RunnerFault(Status.RUNTIME_ERROR, "line 9: OutOfMemoryError: CUDA out of memory")
    free = 40 * GB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 80 * GB))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    said = str(watch.explain(fault))
    assert said.startswith("line 9") and "35.0 GB for a candidate" in said and "7.0 times the reference's peak of 5.0 GB" in said
    assert watch.record()["peak_bytes"] == 40 * GB
    other = RunnerFault(Status.RUNTIME_ERROR, "line 9: ValueError: no")
    assert watch.explain(other) is other
    free = 10 * GB
    with pytest.raises(InfrastructureError, match=r"may have 35\.0 GB .* 10\.0 GB are free"):
        watch.explain(fault)


def test_where_memory_is_short_baselines_that_cannot_be_the_strongest_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    milliseconds = {"eager": 9.0, "cuda_graph": 5.0, "compile": 8.0, "compile_reduce_overhead": 5.5}
    made: list[str] = []

    class Session:
        def __init__(self, timer: Any, runner: Any, profile: str, limit: float, names: tuple[str, ...], forms: Any) -> None:
            (name,) = names
            made.append(name)
            self.strongest, self.clocks, self.far_slower = name, (4.0, 4.0), False
            self.paired = {name: Paired((4.0,) * 12, (milliseconds[name],) * 12)}

        def compare_alone(self) -> None:
            made.append("alone")

    class Baselines:
        def __init__(self, session: Any, known: KnownBaselines | None = None) -> None:
            self.known = known or KnownBaselines()
            self.modes, self.notes = self.known.modes, self.known.notes

        def start(self, names: tuple[str, ...]) -> None:
            self.modes |= {name: 0 for name in names if name != "compile"}
            if names[0] == "compile_max_autotune":  # as where it takes too long
                self.known.leave_out(names[0], "it takes too long")

        def wait_ready(self) -> None:
            made.append("built")

        def close(self) -> None:
            made.append("closed")

    class Runner:
        facts = staticmethod(lambda limit: {})
        __enter__ = __exit__ = lambda self, *about: made.append("runner")  # noqa: E731

    plan = MemoryPlan(together=False, input_sets=1)
    pool = SimpleNamespace(fill=lambda **counts: made.append(f"waits: {counts}"))
    session = cast(Any, SimpleNamespace(plan=plan, pool=pool, hardware=SimpleNamespace(l2_bytes=1)))
    monkeypatch.setattr(on_card, "BaselineProcess", Baselines)
    monkeypatch.setattr(on_card, "CallTimer", lambda baselines: SimpleNamespace(set_candidate=made.append, open_baselines=lambda: None))
    monkeypatch.setattr(on_card, "TimingSession", Session)
    monkeypatch.setattr(on_card, "_read_facts", lambda report, kernel, order: LaunchFacts())
    monkeypatch.setattr(CardJudge, "_check", lambda self, log, runner, kernel, profile: False)
    monkeypatch.setattr(CardJudge, "_runner", lambda self, kernel, witness=None: Runner())
    judge, watch = CardJudge(session), cast(Any, SimpleNamespace(look=lambda: None))
    first = judge._time_one_by_one(cast(Any, None), watch, KernelText.of(""), "quick")
    assert [name for name in made if name in milliseconds] == ["eager", "cuda_graph", "compile_reduce_overhead"]  # one cannot be had
    assert made.index("built") < len(made) - 1 - made[::-1].index("runner") and made.count("closed") == 4
    assert made.count("waits: {'reference': 1}") == 4  # the next baseline's process imports while one builds
    assert first.first.strongest == "cuda_graph" and set(first.paired) == {"eager", "cuda_graph", "compile_reduce_overhead"}
    assert len(first.others) == 2
    made.clear()
    milliseconds["compile_reduce_overhead"] = 4.0
    again = judge._time_one_by_one(cast(Any, None), watch, KernelText.of(""), "quick")
    assert [name for name in made if name in milliseconds] == ["eager", "cuda_graph", "compile_reduce_overhead"]
    assert again.first.strongest == "compile_reduce_overhead"
    made.clear()
    milliseconds["cuda_graph"] = 30.0
    judge._time_one_by_one(cast(Any, None), watch, KernelText.of(""), "quick")
    made.clear()
    judge._time_one_by_one(cast(Any, None), watch, KernelText.of(""), "quick")
    assert [name for name in made if name in milliseconds] == ["eager", "compile_reduce_overhead"]
    made.clear()
    milliseconds["compile_max_autotune_no_cudagraphs"] = 3.0
    strict = judge._time_one_by_one(cast(Any, None), watch, KernelText.of(""), "strict")  # it has what no quick verdict has tried
    assert [name for name in made if name in milliseconds] == ["eager", "compile_reduce_overhead", "compile_max_autotune_no_cudagraphs"]
    assert strict.first.strongest == "compile_max_autotune_no_cudagraphs" and judge.baselines.notes == ["it takes too long"]
