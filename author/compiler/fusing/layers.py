"""Which recurrent layers are kernels of their own: what their steps take, against a library that starts two kernels for each."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import RecurrentRegion
from tritonsmith.author.compiler.ir.values import BYTES
from tritonsmith.author.measured import middle
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.estimate import L2_BYTES_PER_CLOCK
from tritonsmith.evaluator.cards.launch_cost import OPERATOR_INSIDE
from tritonsmith.evaluator.schema import Hardware

_STEP = 1.5e-6
"""Seconds of a step whose weights are few (assumed)."""
_LAUNCHES = 2
"""Of a library, for each step."""


def predict_steps(region: RecurrentRegion, hardware: Hardware) -> float:
    """Seconds of the kernel: every program reads the weights of the state from L2 at every step."""
    one = region.recurrence
    bytes_read = len(one.gates) * one.hidden**2 * BYTES[one.dtype]
    waves = -(-one.batch // hardware.processors)
    return one.steps * waves * (_STEP + bytes_read / (middle(L2_BYTES_PER_CLOCK) * hardware.clock_hz))


def prefers_library(region: RecurrentRegion, hardware: Hardware = CARDS["h200"]) -> bool:
    """Whether PyTorch's call is predicted to be faster than the kernel."""
    return _LAUNCHES * OPERATOR_INSIDE * region.recurrence.steps < predict_steps(region, hardware)
