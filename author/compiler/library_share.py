"""Who would do a forward's work: where PyTorch calls do nearly all of it, a win would be the library's, and none may win."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tritonsmith.author.compiler.fusing.regions import CallRegion, ProductRegion, RecurrentRegion, WorkRegion
from tritonsmith.author.compiler.ir.values import MatrixProduct
from tritonsmith.author.types import AS_THEY_ARE
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.estimate import estimate_trace
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_IN_GRAPH
from tritonsmith.evaluator.records.operator_cost import OperatorCost

_LEAST = 0.06
"""Share of the device's time that kernels shall have; at 0.05 an evaluator says that a library does the work."""

_LAUNCHES_OF_STEP = 2
"""Kernels that a library starts for a step of a recurrent layer."""


def leaves_all_to_library(
    regions: Collection[WorkRegion], products: Mapping[str, MatrixProduct], layers: Mapping[str, int]
) -> bool:
    """Whether products and recurrent layers that are PyTorch calls leave next to nothing to kernels.

    Args:
        regions: of the forward.
        products: those of the forward, by their nodes.
        layers: steps of its recurrent layers, by their nodes.
    """
    hardware = CARDS["h200"]
    calls = [one for one in regions if isinstance(one, CallRegion)]
    own = sum(LAUNCH_IN_GRAPH + one.bytes / hardware.bandwidth for one in regions if not isinstance(one, CallRegion))
    costs = [_find_cost(one, products, layers.get(one.call.name, 0)) for one in calls]
    library = estimate_trace(hardware, costs, in_graph=True).parts["device"] * 1e-3 if costs else 0.0
    return own < _LEAST * (own + library)


def _find_cost(region: CallRegion, products: Mapping[str, MatrixProduct], steps: int) -> OperatorCost:
    product = products.get(region.call.name)
    name = "aten.convolution" if product is not None and product.window else "aten.mm" if product is not None else "aten.other"
    flops, launches = product.flops if product is not None else 0.0, max(1, _LAUNCHES_OF_STEP * steps)
    return OperatorCost(name, launches, flops, float(region.bytes), region.call.dtype in AS_THEY_ARE, launches)


def list_layers(regions: Iterable[WorkRegion]) -> dict[str, int]:
    """Steps of the recurrent layers that have kernels, by their nodes."""
    found: dict[str, int] = {}
    for one in regions:
        if isinstance(one, RecurrentRegion):
            found[one.recurrence.node] = found.get(one.recurrence.node, 0) + one.recurrence.steps
    return found


def list_products(regions: Iterable[WorkRegion]) -> dict[str, MatrixProduct]:
    """The products that have kernels, by their nodes."""
    return {one.product.node: one.product for one in regions if isinstance(one, ProductRegion)}
