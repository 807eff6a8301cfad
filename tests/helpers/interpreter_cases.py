"""Launches litmus kernels under the concurrent interpreter. Run as a script under TRITON_INTERPRET=1, it prints {case: result}."""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from interpreter_kernels import (
    arithmetic,
    barrier_sum,
    copy,
    faulty,
    halves_in_place,
    last_block,
    last_program,
    late_part,
    message,
    odds,
    overlap,
    overwritten,
    product,
    shared_row,
    shift_in_place,
    slots,
    spin_lock,
    split_k,
    tuned,
    turned,
    turned_in_place,
)
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.channel.report import LaunchCount
from tritonsmith.evaluator.confined.interpreter import patches, schedule
from tritonsmith.evaluator.confined.stand_ins.cuda import FakeCuda


def _floats(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def _word(count: int = 1) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


def _run(launch: Callable[[], Any], order: str = "round_robin", seed: int = 0, **options: Any) -> dict[str, Any]:
    with schedule.session(order, seed, **options) as session:  # type: ignore[arg-type]
        try:
            value = launch()
        except schedule.KernelFault as fault:
            return {"fault": type(fault).__name__, "message": str(fault), "faults": len(session.faults)}
    last = session.launches[-1]
    result = {"races": list(last.races), "rounds": last.sync_rounds, "count": last.as_dict()}
    assert LaunchCount.from_dict(json.loads(json.dumps(last.as_dict()))) == last
    return result | ({"value": value.tolist()} if isinstance(value, torch.Tensor) else {})


def _both(launch: Callable[[], Any], **options: Any) -> dict[str, Any]:
    return {order: _run(launch, order, 7, **options) for order in ("round_robin", "shuffled")}


def _message(release: str, acquire: str, fence: bool) -> torch.Tensor:
    out = _floats(8)
    message[(2,)](_floats(8), _word(), out, release, acquire, fence)
    return out


def _launch(kernel: Any, grid: int, result: torch.Tensor, *arguments: Any) -> Callable[[], torch.Tensor]:
    fresh = result.clone()

    def launch() -> torch.Tensor:
        result.copy_(fresh)
        for argument in arguments:
            if isinstance(argument, torch.Tensor) and argument is not result and argument.dtype == torch.int32:
                argument.zero_()
        kernel[(grid,)](*arguments)
        return result

    return launch


def _litmus() -> dict[str, Any]:
    x = torch.arange(32, dtype=torch.float32)
    out, part, flag = _floats(8), _floats(4), _word()
    single, double, row = torch.ones(4), torch.ones(8), torch.ones(9 * 16)
    weight = torch.eye(16) * 0.5 + 0.1
    ring, progress = torch.ones(7 * 4), _word(4)
    short = torch.rand(30)
    return {
        "message": _both(lambda: _message("release", "acquire", True)),
        "message_relaxed_writer": _both(lambda: _message("relaxed", "acquire", True)),
        "message_relaxed_reader": _both(lambda: _message("release", "relaxed", True)),
        "message_without_fence": _both(lambda: _message("release", "acquire", False)),
        "barrier_single_buffer": _both(_launch(barrier_sum, 4, single, single, flag, 4, 3, 0)),
        "barrier_double_buffer": _both(_launch(barrier_sum, 4, double, double, flag, 4, 3, 1)),
        "slots_vector_poll": _both(_launch(slots, 4, ring, ring, progress, 6, 4, False)),
        "slots_asm_poll": _both(_launch(slots, 4, ring, ring, progress, 6, 4, True)),
        "split_k_atomic": _both(_launch(split_k, 4, out, x, out, True)),
        "split_k_plain": _both(_launch(split_k, 4, out, x, out, False)),
        "spin_lock": _both(_launch(spin_lock, 4, out, x, out, flag, True)),
        "spin_lock_without_fence": _both(_launch(spin_lock, 4, out, x, out, flag, False)),
        "last_block": _both(_launch(last_block, 4, out, x, part, out, flag, 4, True)),
        "every_block_reads_parts": _both(_launch(last_block, 4, out, x, part, out, flag, 4, False)),
        "last_program": _both(_launch(last_program, 4, out, x, part, out, flag, 4, 1)),
        "last_program_of_blocks": _both(_launch(last_program, 4, out, x, _floats(8), out, flag, 4, 2)),
        "element_over_block": _both(_launch(overwritten, 2, (block := _floats(4)), block, out, flag)),
        "element_after_release": _both(_launch(late_part, 2, (late := _floats(4)), late, out, flag)),
        "turned": _both(_launch(turned, 4, _floats(32), x, _floats(32), (backwards := _floats(32)), True)),
        "turned_without_barrier": _both(_launch(turned, 4, backwards, x, _floats(32), backwards, False)),
        "turned_in_place": _both(_launch(turned_in_place, 4, x.clone(), x.clone())),
        "halves_in_place": _both(_launch(halves_in_place, 4, x.clone(), x.clone())),
        "overlap_equal": _both(_launch(overlap, 4, _floats(40), _floats(40), True)),
        "overlap_unequal": _both(_launch(overlap, 4, _floats(40), _floats(40), False)),
        "shift_in_place": _both(_launch(shift_in_place, 4, x.clone(), x.clone(), 32)),
        "shared_row": _both(_launch(shared_row, 4, row, row, weight, 8, 16, 4)),
        "out_of_bounds": _both(_launch(copy, 4, out, short, _floats(32))),
        "copy": _both(_launch(copy, 4, out, x, _floats(32))),
        "deadlock": _both(_launch(barrier_sum, 4, double, double, flag, 5, 3, 1)),
        "deadlock_resident": _both(_launch(barrier_sum, 4, double, double, flag, 4, 3, 1), resident={"barrier_sum": 3}),
        "kernel_error": _both(_launch(faulty, 1, out, x, out)),
        "many_programs": _both(_launch(copy, 3000, out, torch.rand(24000), _floats(24000))),
    }


def _row_under(order: str, seed: int) -> list[float]:
    row, weight = torch.zeros(9 * 16), torch.eye(16) * 0.5 + 0.1
    row[:16] = 1
    with schedule.session(order, seed):  # type: ignore[arg-type]
        shared_row[(4,)](row, weight, 8, 16, 4)
    result: list[float] = row[-16:].tolist()
    return result


def _bfloat16() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, generator=generator).to(torch.bfloat16) for _ in range(2))
    out = torch.zeros(4 * 64, dtype=torch.bfloat16)
    arithmetic[(1,)](a, b, out, 64)
    expected = torch.cat([a + b, a * b, torch.where(a > b, -a, b), (a.float() / 3).to(torch.bfloat16)])
    return {"equal": torch.equal(out, expected)}


def _products() -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=generator) for _ in range(2))
    errors = {}
    for precision in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"):
        out = torch.zeros(64, 64)
        product[(1,)](a, b, out, 64, precision)
        errors[precision] = float((out - a.double() @ b.double()).abs().max())
    out = torch.zeros(64, 64)
    product[(1,)](a.bfloat16(), b.bfloat16(), out, 64, "ieee")
    errors["bf16"] = float((out - a.bfloat16().double() @ b.bfloat16().double()).abs().max())
    return errors


def _odds() -> dict[str, Any]:
    x, out = torch.rand(3, 16, generator=torch.Generator().manual_seed(0)), torch.zeros(2 + 2 * 16)
    odds[(1,)](x, out, 3, 16)
    total = x.sum(0)
    expected = torch.cat([total.max()[None], total.argmax()[None].float(), total.tanh(), total.cumsum(0)])
    tuned_out = torch.zeros(16)
    tuned[(1,)](tuned_out)
    return {"error": float((out - expected).abs().max()), "tuned": float(tuned_out.sum())}


def _fake_cuda() -> dict[str, Any]:
    card = CARDS["a100"]
    before = torch.cuda.is_available()
    with FakeCuda(card):
        x = torch.ones(4, device="cuda").to("cuda:0", torch.float16).cuda()
        model = torch.nn.GRU(4, 4).cuda().to("cuda")
        inside = {
            "is_cuda": x.is_cuda,
            "device": str(x.device),
            "dtype": str(x.dtype),
            "like": str(torch.zeros(2, device=x.device).device),
            "processors": torch.cuda.get_device_properties(0).multi_processor_count,
            "capability": torch.cuda.get_device_capability(),
            "gru": list(model(torch.ones(3, 2, 4, device="cuda"))[0].shape),
        }
    return inside | {"restored": torch.cuda.is_available() == before, "outside": str(x.device)}


def main() -> None:
    """Run all cases."""
    patches.install()
    patches.install()
    seeds = [_row_under("shuffled", seed) for seed in (1, 2)]
    with schedule.session("round_robin", 0):
        numerics = {"bfloat16": _bfloat16(), "products": _products(), "odds": _odds()}
    results = {
        "litmus": _litmus(),
        "orders": {"round_robin": _row_under("round_robin", 0), "shuffled": seeds, "again": _row_under("shuffled", 1)},
        "numerics": numerics,
        "fake_cuda": _fake_cuda(),
    }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
