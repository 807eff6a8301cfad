"""The estimate orders candidates as arithmetic says it must; no latency is taken for granted."""

import pytest

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.estimate import LatencyEstimate, estimate_candidate, estimate_trace
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Hardware, KernelFacts

H200 = CARDS["h200"]
STEPS, LAYERS, HIDDEN = 512, 6, 256
WEIGHTS = 3 * HIDDEN * HIDDEN * 4


def _kernel(**changes: object) -> KernelFacts:
    base = {"name": "k", "launches": 1, "grid": (64, 1, 1), "num_warps": 4, "bytes_loaded": 1e6, "bytes_stored": 1e5, "flops": 1e7}
    return KernelFacts.model_validate(base | changes)


def _ms(hardware: Hardware, *kernels: KernelFacts, in_graph: bool = False) -> float:
    return estimate_candidate(hardware, kernels, {}, 0.0, 0.0, in_graph=in_graph).ms


@pytest.fixture(params=sorted(CARDS))
def card(request: pytest.FixtureRequest) -> Hardware:
    return CARDS[request.param]


def test_one_persistent_launch_beats_one_launch_per_step(card: Hardware) -> None:
    per_step = _ms(card, _kernel(launches=2 * STEPS * LAYERS, grid=(12, 1, 1), bytes_loaded=WEIGHTS, flops=6.3e6))
    persistent = _ms(card, _kernel(grid=(96, 1, 1), sync_rounds=STEPS + LAYERS - 1, bytes_loaded=5e8, flops=3.8e10, tensor_cores=True))
    assert persistent < per_step


def test_a_wavefront_beats_a_chain_of_layers(card: Hardware) -> None:
    layers = _ms(card, _kernel(launches=LAYERS, sync_rounds=STEPS))
    wavefront = _ms(card, _kernel(sync_rounds=STEPS + LAYERS - 1, bytes_loaded=6e6, bytes_stored=6e5, flops=6e7))
    assert wavefront < layers


@pytest.mark.parametrize(
    "worse",
    [
        {"launches": 50}, {"sync_rounds": 100}, {"bytes_loaded": 1e9}, {"flops": 1e12}, {"spills": 4096, "sync_rounds": 50},
        {"grid": (1, 1, 1)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_more_work_costs_more(card: Hardware, worse: dict[str, object]) -> None:
    base = {"sync_rounds": 50} if "spills" in worse else {}
    plain = estimate_candidate(card, [_kernel(**base)], {}, 0.0, 0.0)
    more = estimate_candidate(card, [_kernel(**worse)], {}, 0.0, 0.0)
    assert more.parts["device"] > plain.parts["device"]
    assert more.ms >= plain.ms


def test_a_graph_helps_what_launches_bind_and_hardly_else(card: Hardware) -> None:
    many, long = _kernel(launches=1000), _kernel(bytes_loaded=1e12)
    assert _ms(card, many, in_graph=True) < 0.5 * _ms(card, many)
    assert _ms(card, long, in_graph=True) == pytest.approx(_ms(card, long), rel=0.01)


def test_reference_and_candidate_go_through_one_formula(card: Hardware) -> None:
    trace = estimate_trace(card, [OperatorCost("add", flops=1e6, bytes=1e8), OperatorCost("mul", flops=1e6, bytes=1e8)])
    candidate = estimate_candidate(card, [], {"add": 1, "mul": 1}, 2e6, 2e8)
    assert trace == candidate


def test_a_recurrent_operator_costs_its_inner_launches(card: Hardware) -> None:
    one = estimate_candidate(card, [], {"gru": 1}, 1e9, 1e6)
    real = estimate_candidate(card, [], {"gru": 1}, 1e9, 1e6, torch_launches=2 * STEPS * LAYERS)
    assert real.ms > 10 * one.ms
    assert real.ms == pytest.approx(estimate_trace(card, [OperatorCost("gru", 2 * STEPS * LAYERS, 1e9, 1e6)]).ms)


def test_launches_that_run_side_by_side_shorten_the_device_time(card: Hardware) -> None:
    serial = estimate_trace(card, [OperatorCost("lstm", 1000)], in_graph=True)
    paired = estimate_trace(card, [OperatorCost("lstm", 1000, chain=500)], in_graph=True)
    assert paired.ms < serial.ms


def test_the_band_holds_its_middle(card: Hardware) -> None:
    estimate = estimate_candidate(card, [_kernel(sync_rounds=10)], {"mm": 2}, 1e9, 1e7)
    assert isinstance(estimate, LatencyEstimate)
    assert 0 < estimate.low_ms < estimate.ms < estimate.high_ms
    assert {"host", "device", "floor", "rounds", "work"} <= estimate.parts.keys()


def test_products_of_16_bits_are_faster_than_those_of_tf32() -> None:
    """The rate follows from the type that is multiplied, in kernels and in the reference."""
    kernels = [[_kernel(flops=1e12, tensor_cores=True, product=product)] for product in ("bf16", "fp16", "tf32")]
    bf16, fp16, tf32 = (estimate_candidate(H200, kernel, {}, 0.0, 0.0).parts["work"] for kernel in kernels)
    assert bf16 == fp16 and tf32 / bf16 == pytest.approx(H200.fp16 / H200.tf32, rel=1e-3)
    half, single = (estimate_trace(H200, [OperatorCost("aten.mm", flops=1e12, half=half)]).parts["work"] for half in (True, False))
    assert single > 5 * half
    allowed = estimate_trace(H200, [OperatorCost("aten.mm", flops=1e12)], tf32=True).parts["work"]
    called = estimate_candidate(H200, [], {"mm": 1}, 1e12, 0.0, torch_tf32=True).parts["work"]
    assert allowed == called == pytest.approx(single * H200.fp32 / H200.tf32)
