"""What a small network's kernels should take on a card, by the rates that convolutions reach."""

from __future__ import annotations

import math

from tritonsmith.author.cost import Way, time_bytes, time_launches, time_product
from tritonsmith.author.families.convnet.plan import NetworkPlan, NetworkStep, StepKind
from tritonsmith.evaluator.schema import PrecisionClass

_MOST_LAYERS = 4
"""Networks of more convolutions pass their images on in the form that the next one reads."""
_LEAST, _TILE, _STEP = 16, 128, 32
"""The narrowest and the widest tile of filters, and the depth of a step."""


def predict_network(plan: NetworkPlan, precision: PrecisionClass, replayed: bool) -> float:
    """Seconds of `convnet_products` with its plain settings."""
    deep = sum(step.layer is not None and step.layer.weighs for step in plan.steps) > _MOST_LAYERS
    exact = plan.dtype == "float32" and not precision.allows_tf32
    launch = time_launches(replayed=replayed)
    seconds = sum(max(launch, _predict_step(step, plan, exact)) for step in plan.steps)
    return seconds * (plan.card.fits.families.network_deep if deep else 1.0)


def _predict_step(step: NetworkStep, plan: NetworkPlan, exact: bool) -> float:
    card, fits = plan.card, plan.card.fits.families
    places = plan.batch * math.prod(step.outputs) * step.pool**2
    moved = time_bytes(card, 4.0 * plan.batch * step.channels * (math.prod(step.inputs) + math.prod(step.outputs)))
    layer = step.layer
    if step.kind is not StepKind.CONVOLUTION or layer is None:
        return moved
    taps, filters = math.prod(layer.window), layer.columns // layer.groups
    if layer.by_channel:
        return max(moved, 4.0 * places * layer.columns * taps / fits.network_caches)
    wide = max(_LEAST, 1 << (filters - 1).bit_length())
    if step.gathers:
        depth = -(-taps * layer.inner // _STEP) * _STEP
        reading = layer.groups * places * depth * -(-wide // _TILE) / fits.network_gathered
    else:
        least = min(max(_LEAST, 1 << (layer.inner - 1).bit_length()), 2 * _STEP)
        depth, reading = taps * -(-layer.inner // least) * least, 0.0
    products = 2.0 * layer.groups * places * wide * depth
    return max(moved, reading, time_product(card, products, Way.PARTS if exact else Way.HALF, fits.network_products))
