"""What a launch, bytes, a product or a step costs on a card: the one place where fusing, analyses, estimates and recipes ask.

The figures are those of the evaluator (`evaluator/cards`), which estimates and floors of verdicts use too. What a kernel reaches of a rate
is a share of it, and stands in `author/cards/fits.py`. All times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from tritonsmith.author.cards.model import CardModel
from tritonsmith.evaluator.cards.estimate import L2_BYTES_PER_CLOCK, ROUND, estimate_trace
from tritonsmith.evaluator.cards.floors import Rates
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_AS_CALLED, LAUNCH_IN_GRAPH, OPERATOR_AS_CALLED, OPERATOR_INSIDE
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import PrecisionClass

PARTS = 3
"""fp16 products of one product of fp32 values."""


class Way(StrEnum):
    """How a product is multiplied."""

    PARTS = "parts"
    """Three products of fp16 parts of fp32 values, on tensor cores."""
    TF32 = "tf32"
    HALF = "half"
    """One product of 16-bit values, on tensor cores."""
    THREADS = "threads"
    """In fp32, without tensor cores."""


def choose_way(dtype: str, precision: PrecisionClass) -> Way:
    """How a kernel multiplies values of a type in a precision class."""
    if dtype != "float32":
        return Way.HALF
    return Way.TF32 if precision is PrecisionClass.TF32 else Way.PARTS


def time_launches(kernels: float = 1, *, replayed: bool = False) -> float:
    """Seconds of so many Triton launches: of the host, or of the card where a CUDA graph replays them."""
    return kernels * (LAUNCH_IN_GRAPH if replayed else LAUNCH_AS_CALLED)


def time_operators(calls: float = 1) -> float:
    """Seconds of the host for so many PyTorch operators."""
    return calls * OPERATOR_AS_CALLED


def time_inner_launches(kernels: float) -> float:
    """Seconds of the host for so many further kernels inside one call of a library."""
    return kernels * OPERATOR_INSIDE


def time_bytes(card: CardModel, moved: float, most: float = float("inf")) -> float:
    """Seconds in which a card's memory moves so many bytes.

    Args:
        card: the card.
        moved: bytes.
        most: bytes in a second that a kernel's programs ask for, where they are few.
    """
    return moved / min(card.hardware.bandwidth, most)


def count_l2_rate(card: CardModel) -> float:
    """Bytes that one processor takes from L2 in a second."""
    return L2_BYTES_PER_CLOCK.middle * card.hardware.clock_hz


def time_product(card: CardModel, flops: float, way: Way, share: float = 1.0) -> float:
    """Seconds of a product that reaches a share of the card's rate.

    Args:
        card: the card.
        flops: operations of the product, those of one of its parts.
        way: how it is multiplied.
        share: of the rate of that way.
    """
    hardware = card.hardware
    if way is Way.PARTS:
        return PARTS * flops / (hardware.fp16 * share)
    return flops / ({Way.TF32: hardware.tf32, Way.HALF: hardware.fp16, Way.THREADS: hardware.fp32}[way] * share)


def bound_product(card: CardModel, flops: float, dtype: str) -> float:
    """The least seconds of a product of values of a type: by the fastest way that is accurate enough, as floors have it."""
    return flops / Rates.of(card.hardware).rate(PrecisionClass.IEEE if dtype == "float32" else PrecisionClass.HALF)


def time_rounds(steps: float) -> float:
    """Seconds of so many exchanges between programs, one after the other."""
    return steps * ROUND.middle


def time_steps(card: CardModel, steps: int, batch: int, weights: float) -> float:
    """Seconds of a recurrent layer's steps where a program has a sequence, and reads the weights of the state from L2 at every step.

    Args:
        card: the card.
        steps: one after the other.
        batch: sequences.
        weights: bytes of the weights.
    """
    return steps * -(-batch // card.processors) * (card.fits.families.step + weights / count_l2_rate(card))


def time_library(card: CardModel, operators: Iterable[OperatorCost]) -> float:
    """Seconds of the card for operators of PyTorch, as the evaluator's estimate has them."""
    listed = list(operators)
    return estimate_trace(card.hardware, listed, in_graph=True).parts["device"] * 1e-3 if listed else 0.0
