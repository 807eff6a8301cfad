"""How many programs of a kernel a card holds at once (CUDA's occupancy rules: registers, shared memory, threads, blocks)."""

from tritonsmith.evaluator.schema import Hardware

_WARP = 32
_REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""
_RESERVED_SHARED = 1024
"""Bytes of shared memory the driver keeps per program since compute capability 8.0."""


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def programs_per_processor(hardware: Hardware, *, registers: int, shared: int, warps: int) -> int:
    """Programs of `warps` warps, `registers` per thread and `shared` bytes that fit on one processor."""
    warp_registers = _up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    by_registers = hardware.registers_per_processor // warp_registers // 4 * 4 // warps
    by_shared = hardware.shared_per_processor // _up(shared + _RESERVED_SHARED, 128)
    by_threads = hardware.threads_per_processor // _WARP // warps
    return max(0, min(by_registers, by_shared, by_threads, hardware.blocks_per_processor))


def resident_programs(hardware: Hardware, *, registers: int, shared: int, warps: int) -> int:
    """Programs that fit on the whole card at once; a barrier among more of them would hang."""
    return hardware.processors * programs_per_processor(hardware, registers=registers, shared=shared, warps=warps)
