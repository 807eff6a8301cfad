"""What a small network's kernels should take on a card, by the rates that convolutions reached on an H200."""

from __future__ import annotations

import math

from tritonsmith.author.families.convnet.plan import NetworkPlan, NetworkStep, StepKind
from tritonsmith.author.types import IN_PARTS
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_AS_CALLED, LAUNCH_IN_GRAPH
from tritonsmith.evaluator.schema import Hardware, PrecisionClass

_MOST_LAYERS, _DEEP = 4, 0.75
"""A network of more convolutions takes this share of the sum of its steps: they pass their images on in the form that the next one reads.

Measured over predicted without it: AlexNet 0.72, VGG19 0.75, VGG16 0.79, RegNet 0.82 (H200). Networks of small images take longer.
"""
_REACHED = 0.38
"""Share of the tensor cores' rate that products of channels-last images reach (H200, 2026-11-24)."""
_GATHERED = 3e11
"""Elements of windows of forward's own input that an H200 reads in a second, for up to 128 filters (eight tasks: 1.4e11 to 4.2e11)."""
_CACHES = 5e12
"""Bytes that windows read in a second out of the caches (assumed)."""
_PARTS, _HALF = 3, 1
"""fp16 products of one product of fp32 operands, and of 16-bit ones."""
_LEAST, _TILE, _STEP = 16, 128, 32
"""The narrowest and the widest tile of filters, and the depth of a step."""


def predict_network(plan: NetworkPlan, hardware: Hardware, precision: PrecisionClass, replayed: bool) -> float:
    """Seconds of `convnet_products` with its plain settings."""
    deep = sum(step.layer is not None and step.layer.weighs for step in plan.steps) > _MOST_LAYERS
    exact = plan.dtype in IN_PARTS and not precision.allows_tf32
    launch = LAUNCH_IN_GRAPH if replayed else LAUNCH_AS_CALLED
    seconds = sum(max(launch, _predict_step(step, plan, hardware, exact)) for step in plan.steps)
    return seconds * (_DEEP if deep else 1.0)


def _predict_step(step: NetworkStep, plan: NetworkPlan, hardware: Hardware, exact: bool) -> float:
    places = plan.batch * math.prod(step.outputs) * step.pool**2
    moved = 4.0 * plan.batch * step.channels * (math.prod(step.inputs) + math.prod(step.outputs)) / hardware.bandwidth
    layer = step.layer
    if step.kind is not StepKind.CONVOLUTION or layer is None:
        return moved
    taps, filters = math.prod(layer.window), layer.columns // layer.groups
    if layer.by_channel:
        return max(moved, 4.0 * places * layer.columns * taps / _CACHES)
    wide = max(_LEAST, 1 << (filters - 1).bit_length())
    if step.gathers:
        depth = -(-taps * layer.inner // _STEP) * _STEP
        reading = layer.groups * places * depth * -(-wide // _TILE) / (_GATHERED * hardware.fp16 / 989e12)
    else:
        least = min(max(_LEAST, 1 << (layer.inner - 1).bit_length()), 2 * _STEP)
        depth, reading = taps * -(-layer.inner // least) * least, 0.0
    products = 2.0 * layer.groups * places * wide * depth * (_PARTS if exact else _HALF)
    return max(moved, reading, products / (hardware.fp16 * _REACHED))
