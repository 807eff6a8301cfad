"""The kernel of a recurrent layer: all steps of a sequence in one program, which reads back only what it stored itself."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import RecurrentRegion
from tritonsmith.author.compiler.ir.code import Expression, Name, Statement, number
from tritonsmith.author.compiler.ir.recurrence import Recurrence
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.pieces import assign, load, widen

_BIG = 2**31
_SOME = Name("some")
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
            arguments=arguments, sizes=[], constants=[("UNITS", units), ("DEPTH", depth)], body=_write_sequence(one),
            grid=expression("({batch},)", batch=one.batch), stores=stores, warps=max(1, min(16, units * depth // _TILE_OF_WARP)),
        )
    ]  # fmt: skip


def _write_sequence(one: Recurrence) -> tuple[Statement, ...]:
    """The kernel's statements."""
    hidden = one.hidden
    between_rows, between_steps = (one.steps, 1) if one.batch_first else (1, one.batch)
    held: tuple[Statement, ...] = ()
    if one.kind == "LSTM":
        held = statements("held = {cells} + row * {hidden}", cells="cell_ptr" if one.cell is None else "start_ptr", hidden=hidden)
    return statements(
        """
        row = {row}
        previous = {previous}
        {held}
        for step in range({steps}):
            place = ({time}) * {between_steps} + row * {between_rows}
            here = sequence_ptr + place * {hidden}
            for tile in range(0, {hidden}, UNITS):
                {tile}
            tl.debug_barrier()  # all of the step is stored before any warp reads it back
            previous = here
            {cells}
        """,
        row=widen(expression("tl.program_id(0)"), one.size * len(one.gates) >= _BIG),
        previous=expression("sequence_ptr") if one.state is None else expression("state_ptr + row * {hidden}", hidden=hidden),
        held=held, steps=one.steps, hidden=hidden, between_rows=between_rows, between_steps=between_steps,
        time=expression("{last} - step", last=one.steps - 1) if one.reverse else Name("step"), tile=_write_tile(one),
        cells=statements("held = cell_ptr + row * {hidden}", hidden=hidden) if held else (),
    )  # fmt: skip


def _read(one: Recurrence, address: Expression, mask: Expression) -> Expression:
    """Numbers from memory in fp32, 0 where the mask does not hold."""
    read = load(address, mask, number(0.0))
    return read if one.dtype == "float32" else expression("{x}.to(tl.float32)", x=read)


def _since(first: Tensor | None, mask: Expression) -> Expression:
    """A mask that hides what the first step would read, where nothing is given for it."""
    return mask if first is not None else expression("{mask} & (step > 0)", mask=mask)


def _write_tile(one: Recurrence) -> list[Statement]:
    """Some hidden units of a step."""
    hidden = one.hidden
    lines = [*statements("u = tile + tl.arange(0, UNITS)\nsome = u < {hidden}", hidden=hidden)]
    for place, gate in enumerate(one.gates):
        bias = _read(one, expression("bias_ptr + {first} + u", first=place * hidden), _SOME)
        lines.append(assign(gate, bias if one.bias is not None else expression("tl.zeros((UNITS,), tl.float32)")))
    value = _read(one, expression("previous + k"), _since(one.state, expression("(k < {hidden})", hidden=hidden)))
    sums: list[Statement] = []
    for place, gate in enumerate(one.gates):
        weights = _read(one, expression("at + {first}", first=place * hidden**2), Name("inside"))
        sums += statements("{gate} += tl.sum(value * {weights}, 1)", gate=gate, weights=weights)
    lines += statements(
        """
        for first in range(0, {hidden}, DEPTH):
            k = first + tl.arange(0, DEPTH)
            value = {value}[None, :]
            at = weight_ptr + u[:, None] * {hidden} + k[None, :]
            inside = some[:, None] & (k[None, :] < {hidden})
            {sums}
        given = fresh_ptr + place * {width} + u
        """,
        hidden=hidden, value=value, sums=sums, width=hidden * len(one.gates),
    )  # fmt: skip
    fresh = [_read(one, expression("given + {first}", first=place * hidden), _SOME) for place in range(len(one.gates))]
    return [*lines, *_write_gates(one, fresh), *statements("tl.store(here + u, result, mask=some)")]


def _write_gates(one: Recurrence, fresh: list[Expression]) -> tuple[Statement, ...]:
    """What becomes of the gates' sums: the new state, and the new cell of an LSTM."""
    if one.kind == "GRU":
        return statements(
            """
            reset = sigmoid(reset + {reset})
            update = sigmoid(update + {update})
            new = tanh({new} + reset * new)
            own = {own}
            result = new + update * (own - new)
            """,
            **dict(zip(one.gates, fresh, strict=True)), own=_read(one, expression("previous + u"), _since(one.state, _SOME)),
        )  # fmt: skip
    added = tuple(statement("{gate} += {value}", gate=gate, value=value) for gate, value in zip(one.gates, fresh, strict=True))
    if one.kind == "RNN":
        relu = "result = tl.maximum(new, 0.0, propagate_nan=tl.PropagateNan.ALL)"
        return *added, statement(relu if one.activation == "relu" else "result = tanh(new)")
    return *added, *statements(
        """
        kept = {kept}
        kept = sigmoid(forget) * kept + sigmoid(enter) * tanh(new)
        tl.store(cell_ptr + row * {hidden} + u, kept, mask=some)
        result = sigmoid(out) * tanh(kept)
        """,
        kept=_read(one, expression("held + u"), _since(one.cell, _SOME)), hidden=one.hidden,
    )  # fmt: skip
