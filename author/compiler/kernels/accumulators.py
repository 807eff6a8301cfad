"""The kernel of a recurrent layer: all steps of a sequence in one program, which reads back only what it stored itself."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import RecurrentRegion
from tritonsmith.author.compiler.ir.recurrence import Recurrence
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.types import TYPES

_BIG = 2**31
_UNITS, _DEPTH, _LEAST = 64, 128, 16
"""Hidden units of a tile, places of a state that are read at once, and the least of both."""
_TILE_OF_WARP = 512
"""Elements of a tile of weights for each warp."""


def write_steps(region: RecurrentRegion, name: str) -> list[Kernel]:
    """One program for each sequence. A step's states are stored before any warp reads them back."""
    one = region.recurrence
    units, depth = (max(_LEAST, min(most, 1 << (one.hidden - 1).bit_length())) for most in (_UNITS, _DEPTH))
    given = [("fresh", one.fresh), ("weight", one.weight), ("bias", one.bias), ("state", one.state), ("start", one.cell)]
    arguments: list[tuple[str, Tensor]] = [(f"{title}_ptr", value) for title, value in given if value is not None]
    arguments.append(("sequence_ptr", one))
    stores = list(region.stores)
    if one.kind == "LSTM":
        cell = region.cell or Buffer(shape=(one.batch, one.hidden), dtype=one.dtype, name="cell")
        arguments.append(("cell_ptr", cell))
        stores += [cell] if cell is not region.cell else []
    return [
        Kernel(
            name=name, does=f"{one.steps} steps of {one.hidden} units: {one.kind}{' backwards' if one.reverse else ''}.",
            arguments=arguments, sizes=[], constants=[("UNITS", units), ("DEPTH", depth)], lines=_write_lines(one),
            grid=f"({one.batch},)", stores=stores, warps=max(1, min(16, units * depth // _TILE_OF_WARP)),
        )
    ]  # fmt: skip


def _write_lines(one: Recurrence) -> list[str]:
    """The kernel's lines."""
    hidden, number = one.hidden, len(one.gates)
    apart = (one.steps, 1) if one.batch_first else (1, one.batch)  # of sequences and of steps
    wide = ".to(tl.int64)" if one.size * number >= _BIG else ""
    time = f"{one.steps - 1} - step" if one.reverse else "step"
    begin = [f"previous = {f'state_ptr + row * {hidden}' if one.state is not None else 'sequence_ptr'}"]
    if one.kind == "LSTM":
        begin.append(f"held = {f'start_ptr + row * {hidden}' if one.cell is not None else f'cell_ptr + row * {hidden}'}")
    inner = [
        f"place = ({time}) * {apart[1]} + row * {apart[0]}",
        f"here = sequence_ptr + place * {hidden}",
        f"for tile in range(0, {hidden}, UNITS):",
        *(f"    {line}" for line in _write_tile(one)),
        "tl.debug_barrier()  # all of the step is stored before any warp reads it back",
        "previous = here",
        *([f"held = cell_ptr + row * {hidden}"] if one.kind == "LSTM" else []),
    ]
    head = [f"row = tl.program_id(0){wide}", *begin, f"for step in range({one.steps}):"]
    return [*head, *(f"    {line}" for line in inner)]


def _write_tile(one: Recurrence) -> list[str]:
    """Some hidden units of a step."""
    hidden, cast = one.hidden, TYPES[one.dtype].widening
    known = "" if one.state is not None else " & (step > 0)"
    lines = ["u = tile + tl.arange(0, UNITS)", f"some = u < {hidden}"]
    for number, gate in enumerate(one.gates):
        bias = f"tl.load(bias_ptr + {number * hidden} + u, mask=some, other=0.0){cast}"
        lines.append(f"{gate} = {bias if one.bias is not None else 'tl.zeros((UNITS,), tl.float32)'}")
    lines += [
        f"for first in range(0, {hidden}, DEPTH):",
        "    k = first + tl.arange(0, DEPTH)",
        f"    value = tl.load(previous + k, mask=(k < {hidden}){known}, other=0.0){cast}[None, :]",
        f"    at = weight_ptr + u[:, None] * {hidden} + k[None, :]",
        f"    inside = some[:, None] & (k[None, :] < {hidden})",
        *(f"    {gate} += tl.sum(value * tl.load(at + {number * hidden**2}, mask=inside, other=0.0){cast}, 1)"
          for number, gate in enumerate(one.gates)),
        f"given = fresh_ptr + place * {hidden * len(one.gates)} + u",
    ]  # fmt: skip
    fresh = [f"tl.load(given + {number * hidden}, mask=some, other=0.0){cast}" for number in range(len(one.gates))]
    lines += _write_gates(one, fresh, cast)
    return [*lines, "tl.store(here + u, result, mask=some)"]


def _write_gates(one: Recurrence, fresh: list[str], cast: str) -> list[str]:
    """What becomes of the gates' sums: the new state, and the new cell of an LSTM."""
    known = "" if one.state is not None else " & (step > 0)"
    if one.kind == "GRU":
        return [
            f"reset = sigmoid(reset + {fresh[0]})",
            f"update = sigmoid(update + {fresh[1]})",
            f"new = tanh({fresh[2]} + reset * new)",
            f"own = tl.load(previous + u, mask=some{known}, other=0.0){cast}",
            "result = new + update * (own - new)",
        ]
    added = [f"{gate} += {value}" for gate, value in zip(one.gates, fresh, strict=True)]
    if one.kind == "RNN":
        return [*added, "result = tl.maximum(new, 0.0)" if one.activation == "relu" else "result = tanh(new)"]
    kept = "" if one.cell is not None else " & (step > 0)"
    return [
        *added,
        f"kept = tl.load(held + u, mask=some{kept}, other=0.0){cast}",
        "kept = sigmoid(forget) * kept + sigmoid(enter) * tanh(new)",
        f"tl.store(cell_ptr + row * {one.hidden} + u, kept, mask=some)",
        "result = sigmoid(out) * tanh(kept)",
    ]
