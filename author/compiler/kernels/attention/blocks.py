"""How the kernel of an attention cuts heads into blocks, and what that takes of a processor."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.ir.attention import Attention, list_extras
from tritonsmith.author.compiler.ir.values import BYTES, Formula, Tensor, TensorView
from tritonsmith.author.compiler.kernels.tiling import round_up
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import IN_PARTS

_LEAST = 16
"""Rows, columns and terms that a product on tensor cores has at least."""
_CHUNK = 128
"""Features or columns of one product."""
SAFE = 64
"""Places that a piece in `fp16x3` has at least, if another one is larger. With 16 or 32 the code of ptxas reads uniform registers nobody
wrote: of 21 kernels that Triton 3.6 compiled for sm_90 all did, and an H200 reported an illegal address. Of 60 others none does."""
KEPT = 256
"""Features of a query that a program keeps, and columns of the result that it has."""
_SHARING_WARPS = 4
"""Warps that share the keys of a step where queries are few."""
DIRECT = "as they are"
"""The way to multiply operands of 16 bits: one product of these, with a sum in fp32."""
_READERS = 4
"""Blocks of queries from which keys and values are split ahead."""
_BYTES_OF_PARTS = {"fp16x3": 4, "tf32x3": 8, "ieee": 4}
"""Bytes of what stands for one operand of fp32."""


def split_axis(size: int, least: int = _LEAST) -> tuple[tuple[int, int], ...]:
    """An axis of at most 256 places as one or two pieces, (start, places): powers of two, together not much longer than the axis.

    least: places of the second piece.
    """
    whole = max(_LEAST, round_up(size))
    if whole == _LEAST:
        return ((0, whole),)
    half = whole // 2
    rest = max(least, round_up(size - half)) if size > half else half
    return ((0, half), (half, rest)) if half + rest < whole or whole > _CHUNK else ((0, whole),)


@dataclass(frozen=True)
class Blocks:
    """Sizes of a program's blocks."""

    queries: int
    keys: int
    features: tuple[tuple[int, int], ...]
    """Pieces of the features: (start, places)."""
    columns: tuple[tuple[int, int], ...]
    """Pieces of the columns that a program has."""
    slices: int
    """Programs that share the columns of a result."""
    stepped: bool
    """Whether the features are too many to be kept: then they are read again for each block of keys."""


def choose_blocks(attention: Attention, settings: Settings) -> Blocks:
    """The blocks that settings ask for, none larger than the task."""
    stepped, slices = attention.features > KEPT, -(-attention.columns // KEPT)
    least = SAFE if "fp16x3" in (choose_scheme(one.dtype, settings) for one in (attention.query, attention.value)) else _LEAST
    columns = attention.columns if slices == 1 else KEPT
    return Blocks(
        queries=max(_LEAST, min(int(settings["query_rows"]), round_up(attention.rows))),
        keys=max(_LEAST, min(int(settings["key_rows"]), round_up(attention.keys))),
        features=((0, _CHUNK),) if stepped else split_axis(attention.features, least),
        columns=split_axis(columns if least == _LEAST else max(columns, min(SAFE, attention.features)), least),
        slices=slices, stepped=stepped,
    )  # fmt: skip


def choose_scheme(dtype: str, settings: Settings) -> str:
    """How operands of a type are multiplied."""
    return str(settings["attention_products"]) if dtype in IN_PARTS else DIRECT


def splits_ahead(attention: Attention, blocks: Blocks, settings: Settings) -> bool:
    """Whether a kernel splits keys and values into fp16 parts ahead, because several programs read each of them.

    Causal attention of 4,096 keys took 0.52 of its time so with heads of 64, and 0.63 with heads of 128 (H200, 2026-11-26).
    """
    in_parts = all(choose_scheme(one.dtype, settings) == "fp16x3" for one in (attention.query, attention.key, attention.value))
    several = attention.queries > (_READERS - 1) * blocks.queries
    return in_parts and several and not blocks.stepped and blocks.slices == 1


def count_shared_bytes(attention: Attention, settings: Settings) -> int:
    """Bytes of shared memory that a program takes on a card with asynchronous products (sm_90): operands, and blocks that are read ahead.

    Found by compiling 40 kernels with Triton 3.7: exact for two stages or more in nearly all of them, above it in the others.
    """
    blocks, stages = choose_blocks(attention, settings), max(1, int(settings["attention_stages"]))
    scheme, size = choose_scheme(attention.query.dtype, settings), BYTES[attention.query.dtype]
    features, columns = (sum(places for _, places in pieces) for pieces in (blocks.features, blocks.columns))
    widest = max(places for _, places in (*blocks.features, *blocks.columns))
    held = _BYTES_OF_PARTS.get(scheme, size)
    kept = blocks.queries * features * held
    masks = max(1, stages - 1) * blocks.queries * blocks.keys * _count_mask_bytes(attention)
    if scheme not in _BYTES_OF_PARTS or splits_ahead(attention, blocks, settings):
        return kept + stages * blocks.keys * (features + columns) * size + masks
    ahead = (blocks.queries if blocks.stepped else 0) * features + blocks.keys * (features + (0 if blocks.stepped else columns))
    return kept + blocks.keys * widest * held + (stages - 1) * ahead * size + masks


def _count_mask_bytes(attention: Attention) -> int:
    """Bytes of each score's own numbers in masks and biases."""
    seen: dict[int, Tensor] = {}
    todo = list_extras(attention.score, attention.product)
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            todo += one.operands if isinstance(one, Formula | TensorView) else ()
    leaves = [one for one in seen.values() if not isinstance(one, Formula | TensorView)]
    return sum(BYTES[one.dtype] for one in leaves if one.size >= attention.queries * attention.keys)


def count_warps(queries: int, settings: Settings, few: bool = False) -> int:
    """Warps of a program with this many queries: each has 16 of them at least, but of few queries they share the keys."""
    return min(int(settings["attention_warps"]), _SHARING_WARPS if few else max(2, queries // _LEAST))
