"""The floor of a task: which limit sets it, how near a time is, and that measured and estimated times have rates of their own."""

import pytest

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.floors import CEILINGS, Rates, add_floor, choose_rate, find_floor
from tritonsmith.evaluator.channel.compiled_text import count_instructions, digest_code
from tritonsmith.evaluator.records.limits import Limit
from tritonsmith.evaluator.schema import Comparison, KernelFacts, LaunchFacts, PrecisionClass, TaskFacts
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.promises import read_metric

CARD = named_card("h200")
IEEE = PrecisionClass.IEEE


@pytest.mark.parametrize(("facts", "limit"), [
    (TaskFacts(min_bytes=4.22e9, flops=1e9), Limit.BYTES),
    (TaskFacts(min_bytes=1e6, flops=1e13), Limit.OPERATIONS),
    (TaskFacts(min_bytes=1e3, flops=1e3), Limit.LAUNCHES),
    (TaskFacts(min_bytes=1e6, flops=1e6, serial_steps=3072), Limit.CHAIN),
])  # fmt: skip
def test_the_largest_lower_bound_is_the_floor(facts, limit):
    floor = find_floor(facts, Rates.of(CARD), IEEE, 20.0)
    assert floor.limit is limit and floor.ms == max(floor.parts.values()) and floor.share == floor.ms / 20.0
    assert set(floor.parts) == {"bytes", "operations", "launches", "serial chain"}


def test_layers_that_overlap_have_a_shorter_chain():
    stack = TaskFacts(serial_steps=3072, shortest_chain=517)
    assert find_floor(stack, Rates.of(CARD), IEEE, 2.5).ms == pytest.approx(0.801, abs=0.001)  # 517 exchanges of 1.55 microseconds


@pytest.mark.parametrize(("tensor_cores", "triton", "on_tensor_cores"), [
    (True, 1, True), (False, 1, False), (None, 23, True), (None, 0, False),
], ids=["products", "no products", "a replayed graph", "library calls alone"])  # fmt: skip
def test_arithmetic_is_compared_with_the_rate_of_its_kernels(tensor_cores, triton, on_tensor_cores):
    rates = Rates.of(CARD)
    kernels = () if tensor_cores is None else (KernelFacts(name="k", launches=1, grid=(1, 1, 1), tensor_cores=tensor_cores),)
    facts = LaunchFacts(launches_per_forward=24, triton_launches=triton, kernels=kernels)
    assert choose_rate(facts, TaskFacts(precision=IEEE), rates) == (rates.half / 3 if on_tensor_cores else rates.fp32)


def test_narrower_types_lower_the_floor_of_a_product():
    facts = TaskFacts(flops=1e12)
    shares = [find_floor(facts, Rates.of(CARD), precision, 10.0).ms for precision in (IEEE, PrecisionClass.TF32, PrecisionClass.HALF)]
    assert shares == sorted(shares, reverse=True) and shares[0] == pytest.approx(3 * shares[2])


def test_an_estimate_is_compared_the_same_way_and_says_so():
    facts = TaskFacts(min_bytes=2.11e9, flops=1e6)
    estimated = add_floor(scripted_verdict(1.0, message="said"), facts, CARD, IEEE)
    assert estimated.message == "said; an estimated 50 % of its floor (0.5 ms by bytes)"
    assert estimated.facts.counters.source == "compiled" and estimated.facts.counters.bandwidth_share == pytest.approx(50.0)
    assert read_metric("dram_throughput", estimated) == pytest.approx(50.0)
    assert read_metric("percent_of_floor", estimated) == pytest.approx(50.0)
    failing = scripted_verdict(None)
    assert add_floor(failing, facts, CARD, IEEE) == failing


def test_a_measured_time_is_compared_with_what_its_card_reached():
    measured = scripted_verdict(1.0, comparison=Comparison.SAME)
    rates = {"bandwidth": 2.11e12, "matrix": 4e14, "launch_ms": 0.002}
    measured = measured.model_copy(update={"environment": {CEILINGS: rates}})
    floor = add_floor(measured, TaskFacts(min_bytes=2.11e9), CARD, IEEE).timing.floor
    assert floor.share == pytest.approx(1.0) and floor.parts["launches"] == 0.002


PTX = """
.version 8.7
.target sm_90a
.visible .entry {name}(
    .param .u64 .ptr .global .align 1 {name}_param_0
)
{{
$L__func_begin0:
    .loc 1 {line} 0 // file.py:{line}
    ld.param.u64 %rd1, [{name}_param_0];
    @%p1 ld.global.v4.b32 {{ %r1, %r2, %r3, %r4 }}, [ %rd1 + 0 ];
    fma.rn.f32 %f1, %f2, %f3, {value};
    st.global.b32 [ %rd1 + 0 ], %r1;
$L__tmp{line}:
    ret;
}}
    .file 1 "/somewhere/{name}.py"
    .section .debug_abbrev
{{ .b8 {line} }}
"""


def test_code_is_compared_without_names_and_places():
    first = PTX.format(name="add", line=3, value="%f4")
    assert digest_code(first) == digest_code(PTX.format(name="add_kernel", line=40, value="%f4"))
    assert digest_code(first) != digest_code(PTX.format(name="add", line=3, value="%f5"))
    assert count_instructions(first) == {"other": 1, "global load": 1, "arithmetic": 1, "global store": 1, "branch": 1}
