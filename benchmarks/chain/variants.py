"""Variants of the built-in author's GRU kernel, made from its own text: what a step costs without one of its parts, and other exchanges.

Each variant is a list of replacements. A piece of text that is not there exactly once stops the study: then the recipe has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Change = Callable[[str], str]


class TextChanged(ValueError):
    """The recipe's text lacks a piece that a variant replaces."""


@dataclass(frozen=True)
class ChainVariant:
    """One way to write the chain."""

    name: str
    about: str
    change: Change
    right: bool = True
    """Whether it computes the same results; else it is there for its time alone."""


def replace_each(text: str, *pairs: tuple[str, str]) -> str:
    """`text` with each piece replaced by another. Raises TextChanged where a piece is not there exactly once."""
    for old, new in pairs:
        if text.count(old) != 1:
            raise TextChanged(f"the recipe's text has {text.count(old)} times, not once: {old.strip().splitlines()[0]}")
        text = text.replace(old, new)
    return text


# ---- stamps of the clock

PLACES = ("waited", "multiplied", "gates", "published", "fetched")
"""Moments of a step, in order; each difference is a phase."""
_STAMP = '''@triton.jit
def stamp(stamps, after, place: tl.constexpr):
    """Write the clocks of the multiprocessor and of the card, once `after` is there."""
    if len(after.shape) == 0:
        cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64; // $1", "=l,r", [after], dtype=tl.int64, is_pure=False, pack=1)
        card = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer; // $1", "=l,r", [after], dtype=tl.int64, is_pure=False, pack=1)
        tl.store(stamps + 2 * place, cycles)
        tl.store(stamps + 2 * place + 1, card)
    else:
        cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64; // $1", "=l,f", [after], dtype=tl.int64, is_pure=False, pack=1)
        card = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer; // $1", "=l,f", [after], dtype=tl.int64, is_pure=False, pack=1)
        number = tl.arange(0, after.shape[0])[:, None] * after.shape[1] + tl.arange(0, after.shape[1])[None, :]
        first = tl.zeros(after.shape, tl.int32)
        tl.store(stamps + 2 * place + first, cycles, mask=number == 0)
        tl.store(stamps + 2 * place + 1 + first, card, mask=number == 0)


'''


def add_stamps(text: str) -> str:
    """The kernel with a stamp at each of `PLACES` of each recurrent program's steps, in `ModelNew.stamps` [programs, steps, 5, 2]."""
    text = replace_each(
        text,
        ("@triton.jit\ndef pack_layer(", _STAMP + "@triton.jit\ndef pack_layer("),
        ("    x, h0, w_first, w_input,", "    stamps, x, h0, w_first, w_input,"),
        ("                    source, source if start is None else start, group",
         "                    self.stamps, source, source if start is None else start, group"),
        ("            reset, update, new = by_gate(sums, SLICE, BATCH)\n            new = tanh(",
         "            reset, update, new = by_gate(sums, SLICE, BATCH)\n            stamp(at, reset, 1)\n            new = tanh("),
        ("            h = new + sigmoid(x_update + update) * (h - new)\n",
         "            h = new + sigmoid(x_update + update) * (h - new)\n            stamp(at, h, 2)\n"),
        ("            # The next step's gate sums are fetched while",
         "            stamp(at, seen, 3)\n            # The next step's gate sums are fetched while"),
    )  # fmt: skip
    waited = r"            seen = wait_until\(state_counter, SLICES \* \(t \+ 1\), seen\)\n"
    text = _after(text, waited, "            at = stamps + (tile * T + t) * 10\n            stamp(at, seen, 0)\n")
    fetched = r"            x_new = tl\.load\(handed \+ \(following \* 3 \+ 2\) \* gate,.*\n"
    return _after(text, fetched, "            stamp(at, x_new, 4)\n")


def _after(text: str, pattern: str, more: str) -> str:
    return _substitute(text, pattern, lambda found: found[0] + more)


def _substitute(text: str, pattern: str, write: Callable[[re.Match[str]], str]) -> str:
    if (count := len(re.findall(pattern, text, re.M))) != 1:
        raise TextChanged(f"the recipe's text has {count} times, not once: {pattern}")
    return re.sub(pattern, write, text, flags=re.M)


# ---- without one of its parts

def without_product(text: str) -> str:
    """Only the exchange is left: no state is read or multiplied, and no gate is computed."""
    return replace_each(
        text,
        ("            sums = times_state(mine + t * step, first, second, B, H, HP, ROWS, BATCH, PARTS)\n"
         "            reset, update, new = by_gate(sums, SLICE, BATCH)\n"
         "            new = tanh(x_new + sigmoid(x_reset + reset) * (new + new_bias))\n"
         "            h = new + sigmoid(x_update + update) * (h - new)\n",
         "            h = h * 0.5 + x_new\n"),
    )  # fmt: skip


def without_reading(text: str) -> str:
    """The product of a state that is made up in registers: it needs no load."""
    made_up = r"\1tl.zeros((PARTS * BATCH, HP // 2), tl.float16) + (slot.to(tl.int64) % 3).to(tl.float16)"
    for name in ("head", "tail"):
        text = _substitute(text, rf"^(    {name} = )tl\.load\(where.*$", lambda found: found.expand(made_up))
    return text


def without_gates(text: str) -> str:
    """Reset, update and new are added up and not passed through sigmoid and tanh."""
    return replace_each(
        text,
        ("            new = tanh(x_new + sigmoid(x_reset + reset) * (new + new_bias))\n"
         "            h = new + sigmoid(x_update + update) * (h - new)\n",
         "            h = 0.001 * (new + new_bias + x_new + x_reset + reset + x_update + update + h)\n"),
    )  # fmt: skip


def without_inputs(text: str) -> str:
    """The recurrent programs do not wait for the next step's gate sums, and do not fetch them."""
    pattern = (
        r"            following = tl\.minimum\(t \+ 1, T - 1\)\n            ready = wait_until\(gate_counter, following \+ 1, ready\)\n"
        r"(?:            x_\w+ = tl\.load\(handed .*\n){3}"
    )
    return _substitute(text, pattern, lambda found: "")


# ---- other exchanges

_FLAGS = '''@triton.jit
def wait_for_flags(flags, goal, COUNT: tl.constexpr):
    """Wait until the flag of each program (a power of two of them) has reached the goal; acquire loads order what follows."""
    where = flags + tl.arange(0, COUNT)
    seen = tl.min(load_acquire(where))
    while seen < goal:
        seen = tl.min(load_acquire(where))
    return seen


'''


def with_flags(text: str) -> str:
    """Each program raises a flag of its own by a store, and the others read all of a layer's flags at once."""
    return replace_each(
        text,
        ("@triton.jit\ndef split(value, part):", _FLAGS + "@triton.jit\ndef split(value, part):"),
        ("def publish(slot, counter, h, unit,", "def publish(slot, counter, count, h, unit,"),
        ('    tl.atomic_add(counter, 1, sem="release", scope="gpu")', '    tl.atomic_xchg(counter, count, sem="release", scope="gpu")'),
        ("        publish(mine, state_counter, h, unit,", "        publish(mine, state_counter + j, 1, h, unit,"),
        ("            publish(mine + (t + 1) * step, state_counter, h, unit,",
         "            publish(mine + (t + 1) * step, state_counter + j, t + 2, h, unit,"),
        ("            seen = wait_until(state_counter, SLICES * (t + 1), seen)",
         "            seen = wait_for_flags(state_counter, t + 1, SLICES)"),
        ("                done = wait_until(state_counter - STRIDE, SLICES * (t + 2), done)",
         "                done = wait_for_flags(state_counter - STRIDE, t + 2, SLICES)"),
    )  # fmt: skip


_TAGGED_STATE = '''@triton.jit
def load_tagged(where, inside, tag):
    """Words of a state, read until each carries the step's tag; lanes outside are zero."""
    none = (tag.to(tl.int64) << 32) + tl.zeros(where.shape, tl.int64)
    word = tl.load(where, mask=inside, other=none, volatile=True)
    while tl.min(tl.min((word >> 32).to(tl.int32), axis=1), axis=0) < tag:
        word = tl.load(where, mask=inside, other=none, volatile=True)
    return word


@triton.jit
def parts_of(word):
    """High and low fp16 part of each word."""
    high = (word & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    low = ((word >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    return high, low


@triton.jit
def fold_two(high, low, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum of the partial products of the state's high and low part, each [2 * ROWS, COLUMNS]."""
    high_high, low_high = tl.split(tl.reshape(tl.permute(tl.reshape(high, (ROWS // 8, 2, 8, COLUMNS)), (0, 2, 3, 1)), (ROWS, COLUMNS, 2)))
    high_low, low_low = tl.split(tl.reshape(tl.permute(tl.reshape(low, (ROWS // 8, 2, 8, COLUMNS)), (0, 2, 3, 1)), (ROWS, COLUMNS, 2)))
    return high_high + (high_low + low_high + low_low * (1.0 / 2048.0)) * (1.0 / 2048.0)


@triton.jit
def times_state(slot, tag, first, second, B, H: tl.constexpr, HP: tl.constexpr, ROWS: tl.constexpr, BATCH: tl.constexpr,
                PARTS: tl.constexpr):
    """Weight tile times the whole h of one step: [ROWS, BATCH]. A word of the slot has both parts of a value and the step's tag."""
    n = tl.arange(0, BATCH)
    k = tl.arange(0, HP // 2)
    where = slot + n[:, None] * H + k[None, :]
    row = (n < B)[:, None]
    head_high, head_low = parts_of(load_tagged(where, row & (k < H)[None, :], tag))
    tail_high, tail_low = parts_of(load_tagged(where + HP // 2, row & (k + HP // 2 < H)[None, :], tag))
    sums = fold_two(tl.dot(first, tl.trans(head_high)), tl.dot(first, tl.trans(head_low)), ROWS, BATCH)
    return sums + fold_two(tl.dot(second, tl.trans(tail_high)), tl.dot(second, tl.trans(tail_low)), ROWS, BATCH)


@triton.jit
def publish(slot, tag, h, unit, row, B, H: tl.constexpr, PARTS: tl.constexpr):
    """Store this program's units of h, each value with the step's tag in one word: who reads the tag has the value too."""
    high = h.to(tl.float16)
    low = ((h - high.to(tl.float32)) * 2048.0).to(tl.float16)
    value = high.to(tl.uint16, bitcast=True).to(tl.int64) + (low.to(tl.uint16, bitcast=True).to(tl.int64) << 16)
    inside = (row[None, :] < B) & (unit[:, None] < H)
    where = slot + row[None, :] * H + unit[:, None]
    tl.atomic_xchg(where, value + (tag.to(tl.int64) << 32), mask=inside, sem="relaxed", scope="gpu")


'''


def with_tags(text: str) -> str:
    """Flags in the data: a word has a value's two fp16 parts and the step's tag, so that no barrier, release or counter is needed."""
    start, end = text.index("@triton.jit\ndef times_state("), text.index("@triton.jit\ndef hand_over(")
    text = text[:start] + _TAGGED_STATE + text[end:]
    return replace_each(
        text,
        ("    step = PARTS * B * H\n", "    step = B * H\n"),
        ("        publish(mine, state_counter, h, unit,", "        publish(mine, pid * 0 + 1, h, unit,"),
        ("            publish(mine + (t + 1) * step, state_counter, h, unit,",
         "            publish(mine + (t + 1) * step, pid * 0 + t + 2, h, unit,"),
        ("            seen = wait_until(state_counter, SLICES * (t + 1), seen)\n", ""),
        ("                done = wait_until(state_counter - STRIDE, SLICES * (t + 2), done)\n", ""),
        ("            sums = times_state(mine + t * step, first,",
         "            sums = times_state(mine + t * step, pid * 0 + t + 1, first,"),
        ("                sums = times_state(below + (t + 1) * step, v_first,",
         "                sums = times_state(below + (t + 1) * step, pid * 0 + t + 2, v_first,"),
        ("states = torch.empty((count, T + 1, PARTS, rows, H), dtype=torch.float16, device=x.device)",
         "states = torch.zeros((count, T + 1, rows, H), dtype=torch.int64, device=x.device)"),
    )  # fmt: skip


def with_stored_tags(text: str) -> str:
    """The same with plain stores of 8 bytes: what the exchanges' way through the L2 cache takes. The memory model does not promise it."""
    return replace_each(
        with_tags(text),
        ("    tl.atomic_xchg(where, value +", "    tl.store(where, value +"),
        ('mask=inside, sem="relaxed", scope="gpu")', "mask=inside)"),
    )


def set_constant(name: str, value: int) -> Change:
    """A change that gives one of the text's constants another value."""
    return lambda text: _substitute(text, rf"^{name} = \d+", lambda found: f"{name} = {value}")


VARIANTS = (
    ChainVariant("as written", "the recipe's text", lambda text: text),
    ChainVariant("flags", "a flag for each program in place of a layer's counter", with_flags),
    ChainVariant("tags", "each word of the state carries the step's tag; no barrier, no release", with_tags),
    ChainVariant("tags, plain stores", "the same, by stores and not by atomic exchanges", with_stored_tags),
    ChainVariant("4 warps", "four warps for each program", set_constant("NUM_WARPS", 4)),
    ChainVariant("16 warps", "sixteen warps for each program", set_constant("NUM_WARPS", 16)),
    ChainVariant("without low parts", "one fp16 part of each operand: half of the bytes, a quarter of the products",
            set_constant("PARTS", 1), right=False),
    ChainVariant("without gates", "no sigmoid and no tanh", without_gates, right=False),
    ChainVariant("without inputs", "the next step's gate sums are neither waited for nor fetched", without_inputs, right=False),
    ChainVariant("without reading", "the product of a state that is made up in registers", without_reading, right=False),
    ChainVariant("exchange alone", "nothing is read, multiplied or passed through gates", without_product, right=False),
)  # fmt: skip
