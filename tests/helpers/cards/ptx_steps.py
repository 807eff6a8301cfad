"""One thread of a kernel's PTX, step by step without a card: for kernels that read the clock and write words."""

from __future__ import annotations

from collections.abc import Callable

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__, "ne": int.__ne__, "gt": int.__gt__, "lt": int.__lt__,
}  # fmt: skip


def read_lines(ptx: bytes) -> list[str]:
    """Labels and instructions of the body, without comments and declarations."""
    lines = [line.split("//")[0].strip().rstrip(";") for line in ptx.decode().splitlines()]
    return [line for line in lines[lines.index("{") + 1 :] if line and line != "}" and not line.startswith(".")]


def run_thread(
    ptx: bytes, parameters: dict[str, int], thread: int, clock: Callable[[], int], load: Callable[[str, int], int]
) -> dict[tuple[str, int], int]:
    """What the thread leaves in memory, by the register of the address and the offset in bytes. `load` gives what it reads."""
    lines, registers, left, place = read_lines(ptx), {"%globaltimer": 0, "%tid.x": thread}, {}, 0

    def value(name: str) -> int:
        if name == "%globaltimer":
            return clock()
        return registers[name] if name.startswith("%") else int(name)

    def address(text: str) -> tuple[str, int]:
        base, _, offset = text.strip("[]").partition("+")
        return base, int(offset or 0)

    while lines[place] != "ret":
        line = lines[place]
        place += 1
        if line.startswith("@"):
            guard, line = line[1:].split(maxsplit=1)
            if not registers[guard]:
                continue
        name, _, rest = line.partition(" ")
        to, *given = [part.strip() for part in rest.split(",")]
        kind = name.split(".")
        if name == "bra":
            place = lines.index(f"{to}:")
        elif name.startswith("ld.param"):
            registers[to] = parameters[given[0].strip("[]")]
        elif name.startswith("ld."):
            registers[to] = load(*address(given[0]))
        elif name.startswith("st."):
            left[address(to)] = value(given[0])
        elif kind[0] == "setp":
            registers[to] = COMPARE[kind[1]](*map(value, given))
        elif kind[0] in ("mov", "cvt"):
            registers[to] = value(given[0])
        elif kind[0] in ("sub", "max", "or"):
            one, other = map(value, given)
            registers[to] = {"sub": (one - other) % 2**64, "max": max(one, other), "or": one or other}[kind[0]]
        else:
            assert name.endswith(":") or name == "membar.sys", line
    return left
