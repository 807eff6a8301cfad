"""The concurrent interpreter: litmus kernels, numerics, faults. The kernels run once, in one process with TRITON_INTERPRET=1."""

import json
from typing import Any

import pytest

from interpreted import Interpreted
from project import HELPERS
from tritonsmith.evaluator.channel.report import LaunchCount, LineCount
from tritonsmith.evaluator.oracle.judge.facts_without_card import add_counts
from tritonsmith.evaluator.schema import KernelFacts

CASES = HELPERS / "interpreter_cases.py"
KERNELS = HELPERS / "interpreter_kernels.py"
ORDERS = ("round_robin", "shuffled")


@pytest.fixture(scope="module")
def results(interpreted: Interpreted) -> Any:
    return json.loads(interpreted.run(CASES))


@pytest.mark.parametrize(
    "case",
    ["message", "barrier_double_buffer", "slots_vector_poll", "slots_asm_poll", "split_k_atomic", "spin_lock", "last_block",
     "last_program", "overlap_equal", "copy", "many_programs", "turned", "halves_in_place"],
)  # fmt: skip
@pytest.mark.parametrize("order", ORDERS)
def test_synchronised_kernels_are_clean(results: Any, case: str, order: str) -> None:
    assert results["litmus"][case][order]["races"] == []


@pytest.mark.parametrize(
    "case",
    ["message_relaxed_writer", "message_relaxed_reader", "message_without_fence", "barrier_single_buffer", "split_k_plain",
     "spin_lock_without_fence", "every_block_reads_parts", "last_program_of_blocks", "element_over_block", "element_after_release",
     "overlap_unequal", "shift_in_place", "shared_row", "turned_without_barrier", "turned_in_place"],
)  # fmt: skip
@pytest.mark.parametrize("order", ORDERS)
def test_unordered_accesses_are_reported(results: Any, case: str, order: str) -> None:
    races = results["litmus"][case][order]["races"]
    assert races
    assert all("line" in race and "program" in race for race in races)


@pytest.mark.parametrize("case", ["message", "barrier_double_buffer", "slots_vector_poll", "slots_asm_poll", "last_block"])
def test_order_does_not_change_synchronised_kernels(results: Any, case: str) -> None:
    values = [results["litmus"][case][order] for order in ORDERS]
    assert values[0].get("value") == values[1].get("value")


def test_a_row_shared_without_barrier_depends_on_the_order(results: Any) -> None:
    orders = results["orders"]
    outcomes = [orders["round_robin"], *orders["shuffled"]]
    assert len({tuple(outcome) for outcome in outcomes}) == len(outcomes)
    assert orders["again"] == orders["shuffled"][0], "the same seed repeats the same run"


def test_waits_are_counted_per_step(results: Any) -> None:
    litmus = results["litmus"]
    assert litmus["barrier_double_buffer"]["round_robin"]["rounds"] == 3
    assert litmus["slots_vector_poll"]["shuffled"]["rounds"] == 6
    assert litmus["split_k_atomic"]["round_robin"]["rounds"] == 0


def test_visits_are_counted_by_line(results: Any) -> None:
    """Three rounds of four programs, each of which loads what the others stored in the round before."""
    lines = results["litmus"]["barrier_double_buffer"]["round_robin"]["count"]["lines"]
    assert {line["programs"] for line in lines} == {4}
    (loads,) = [line for line in lines if line["kind"] == "load" and line["foreign"]]
    (store,) = [line for line in lines if line["kind"] == "store" and line["most"] == 3]
    assert loads["most"] % 3 == 0 and not store["foreign"]
    assert [line["foreign"] for line in results["litmus"]["copy"]["round_robin"]["count"]["lines"]] == [0, 0]


def test_bytes_and_operations_are_counted(results: Any) -> None:
    count = results["litmus"]["copy"]["round_robin"]["count"]
    assert (count["bytes_loaded"], count["bytes_stored"], count["unique_bytes"]) == (128, 128, 256)
    split = results["litmus"]["split_k_atomic"]["round_robin"]["count"]
    assert split["atomics"] == 32


@pytest.mark.parametrize("order", ORDERS)
def test_out_of_bounds_names_kernel_line_and_program(results: Any, order: str) -> None:
    outcome = results["litmus"]["out_of_bounds"][order]
    assert outcome["fault"] == "OutOfBoundsError"
    for part in ("kernel copy", "line ", "program (3, 0, 0)", "2 of 8", "past the end of x"):
        assert part in outcome["message"]
    assert outcome["faults"] == 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", ["deadlock", "deadlock_resident"])
def test_a_wait_that_cannot_end_is_a_deadlock(results: Any, case: str, order: str) -> None:
    outcome = results["litmus"][case][order]
    assert outcome["fault"] == "DeadlockError"
    assert "kernel barrier_sum, line " in outcome["message"] and "line 0" not in outcome["message"]
    assert ("only 3 fit" in outcome["message"]) == (case == "deadlock_resident")


def test_an_error_in_a_kernel_names_its_line(results: Any) -> None:
    outcome = results["litmus"]["kernel_error"]["round_robin"]
    line = next(number for number, text in enumerate(KERNELS.read_text().splitlines(), 1) if "no_such_method" in text)
    assert outcome["fault"] == "KernelError"
    assert f"kernel faulty, line {line}," in outcome["message"] and "no_such_method" in outcome["message"]


def test_bfloat16_is_bitwise_what_torch_computes(results: Any) -> None:
    assert results["numerics"]["bfloat16"]["equal"]


def test_products_have_the_accuracy_that_was_asked_for(results: Any) -> None:
    errors = results["numerics"]["products"]
    assert errors["ieee"] < 1e-4 and errors["tf32x3"] < 1e-4 and errors["bf16"] < 1e-4
    assert errors["tf32"] > 20 * errors["ieee"], "TF32 must not be as good as float32"
    assert errors["tf32"] < 0.1
    assert 5 * errors["ieee"] < errors["bf16x3"] < errors["tf32"] / 10, "two bfloat16 halves hold 16 bits"
    assert errors["bf16x6"] < 1e-4


def test_runtime_ranges_reductions_libdevice_and_autotuning_work(results: Any) -> None:
    odds = results["numerics"]["odds"]
    assert odds["error"] < 1e-5
    assert odds["tuned"] == 16.0, "every configuration runs on the same buffer, as a benchmark of them does"


def test_fake_cuda_answers_for_the_named_card(results: Any) -> None:
    fake = results["fake_cuda"]
    assert fake["is_cuda"] and fake["device"] == fake["like"] == "cuda:0" and fake["dtype"] == "torch.float16"
    assert fake["processors"] == 108 and fake["capability"] == [8, 0]
    assert fake["gru"] == [3, 2, 4]
    assert fake["restored"] and fake["outside"] == "cpu"


def test_counts_fill_the_facts_of_the_same_name_and_grid() -> None:
    facts = [KernelFacts(name="f", launches=4, grid=(2, 1, 1)), KernelFacts(name="f", launches=1, grid=(3, 1, 1))]
    first = (LineCount(7, "load", 2, 4), LineCount(8, "store", 1, 4))
    second = (LineCount(7, "load", 5, 3, 1),)
    counts = [
        LaunchCount("f", (2, 1, 1), bytes_loaded=10, bytes_stored=2, dot_flops={"tf32": 6}, flops=1, sync_rounds=3, count=3, lines=first),
        LaunchCount("f", (2, 1, 1), bytes_loaded=30, bytes_stored=2, dot_flops={"tf32": 6}, flops=1, sync_rounds=2, lines=second),
    ]
    filled, empty = add_counts(facts, counts)
    assert (filled.bytes_loaded, filled.bytes_stored, filled.flops, filled.sync_rounds) == (15, 2, 7, 3)
    assert [(line.line, line.most, line.programs, line.foreign) for line in filled.lines] == [(7, 5, 4, 1), (8, 1, 4, 0)]
    assert empty.bytes_loaded is None and empty.lines == ()
