"""Cards that can be named as a target, with the figures that occupancy and estimates need.

Vendor data sheets (dense rates), except the H200 rows marked measured: device-to-device copy 4.22 TB/s and
8192-cubed GEMM rates bf16 790, TF32 400, fp32 51 TFLOP/s, torch 2.11, 2026-11.
"""

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Hardware

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30

CARDS: dict[str, Hardware] = {
    card.key: card
    for card in (
        Hardware(
            key="h200", name="NVIDIA H200", capability=90, processors=132, shared_per_processor=228 * _KIB, shared_per_block=227 * _KIB,
            threads_per_processor=2048, blocks_per_processor=32, l2_bytes=60 * _MIB, memory_bytes=141 * _GIB,
            bandwidth=4.22e12, fp32=51e12, tf32=400e12, fp16=790e12, clock_hz=1.98e9,  # measured
        ),
        Hardware(
            key="h100", name="NVIDIA H100 80GB HBM3", capability=90, processors=132, shared_per_processor=228 * _KIB,
            shared_per_block=227 * _KIB, threads_per_processor=2048, blocks_per_processor=32, l2_bytes=50 * _MIB, memory_bytes=80 * _GIB,
            bandwidth=3.35e12, fp32=66.9e12, tf32=494e12, fp16=989e12, clock_hz=1.98e9,
        ),
        Hardware(
            key="a100", name="NVIDIA A100-SXM4-80GB", capability=80, processors=108, shared_per_processor=164 * _KIB,
            shared_per_block=163 * _KIB, threads_per_processor=2048, blocks_per_processor=32, l2_bytes=40 * _MIB, memory_bytes=80 * _GIB,
            bandwidth=2.04e12, fp32=19.5e12, tf32=156e12, fp16=312e12, clock_hz=1.41e9,
        ),
        Hardware(
            key="rtx4090", name="NVIDIA GeForce RTX 4090", capability=89, processors=128, shared_per_processor=100 * _KIB,
            shared_per_block=99 * _KIB, threads_per_processor=1536, blocks_per_processor=24, l2_bytes=72 * _MIB, memory_bytes=24 * _GIB,
            bandwidth=1.008e12, fp32=82.6e12, tf32=82.6e12, fp16=165e12, clock_hz=2.52e9,
        ),
    )
}  # fmt: skip
"""Cards by their key."""
_WARP = 32
"""Threads of a warp."""
_REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""
_REGISTER_WARPS = 4
"""Warps that share a processor's registers are a multiple of this: it has so many parts."""
_SHARED_UNIT = 128
"""Shared memory is given to a program in units of so many bytes."""
_RESERVED_SHARED = 1024
"""Bytes of shared memory the driver keeps per program since compute capability 8.0."""


def named_card(key: str) -> Hardware:
    """The card of that name. Raises UsageError that lists what exists."""
    card = CARDS.get(key.lower())
    if card is None:
        raise UsageError(f"--target {key}: no such card; choose one of auto, {', '.join(CARDS)}")
    return card


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def programs_per_processor(hardware: Hardware, *, registers: int, shared: int, warps: int) -> int:
    """Programs of `warps` warps, `registers` per thread and `shared` bytes that fit on one processor."""
    warp_registers = _round_up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    by_registers = hardware.registers_per_processor // warp_registers // _REGISTER_WARPS * _REGISTER_WARPS // warps
    by_shared = hardware.shared_per_processor // _round_up(shared + _RESERVED_SHARED, _SHARED_UNIT)
    by_threads = hardware.threads_per_processor // _WARP // warps
    return max(0, min(by_registers, by_shared, by_threads, hardware.blocks_per_processor))


def resident_programs(hardware: Hardware, *, registers: int, shared: int, warps: int) -> int:
    """Programs that fit on the whole card at once; a barrier among more of them would hang."""
    return hardware.processors * programs_per_processor(hardware, registers=registers, shared=shared, warps=warps)
