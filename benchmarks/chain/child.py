"""One variant of the chain on the card, in a process of its own: one that waits forever ends with it. Imports torch.

`python -m tritonsmith.benchmarks.chain.child REQUEST` prints one line of JSON. Only texts of this project's own recipes are run here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tritonsmith.benchmarks.chain.variants import PLACES
from tritonsmith.benchmarks.direct.loading import load_module, make_model

_WARM_CALLS = 3


def time_call(model: Any, inputs: list[Any]) -> float:
    """Milliseconds of one forward by the card's events."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    model(*inputs)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def read_stamps(stamps: torch.Tensor) -> dict[str, Any]:
    """What the stamps of one call say, in nanoseconds per step.

    Args:
        stamps: int64 [layers, slices, steps, places, 2]: the multiprocessor's cycles and the card's nanoseconds.

    Returns:
        The median of each phase (from a place to the next one), of a whole step, and of the way from a layer's last publication to a
        program that waited for it.
    """
    cycles, card = stamps[..., 0].double(), stamps[..., 1].double()
    per_cycle = float(((card[:, :, -1, 0] - card[:, :, 0, 0]) / (cycles[:, :, -1, 0] - cycles[:, :, 0, 0])).median())
    phases = {place: cycles[:, :, :, number] - cycles[:, :, :, number - 1] for number, place in enumerate(PLACES) if number}
    phases[PLACES[0]] = cycles[:, :, 1:, 0] - cycles[:, :, :-1, -1]
    phases["whole step"] = cycles[:, :, 1:, 0] - cycles[:, :, :-1, 0]
    published = card[..., PLACES.index("published")]
    hops = card[:, :, 1:, 0] - published[:, :, :-1].amax(1, keepdim=True)
    found = {name: float(spent.median()) * per_cycle for name, spent in phases.items()}
    return found | {"hop": float(hops.median()), "ns_per_cycle": per_cycle}


def measure_error(results: Any, expected: Any) -> float:
    """The largest difference of any output."""
    outputs, right = (tree_leaves(one) for one in (results, expected))
    return max(float((output.double() - one).abs().max()) for output, one in zip(outputs, right, strict=True))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Times of the variant and of the recipe's text in turn, the difference of their results, and stamps where they are asked for."""
    task = load_module(request["task"], "task")
    for name, value in request["overrides"].items():
        setattr(task, name, value)
    torch.manual_seed(0)
    inputs, init = [one.cuda() for one in task.get_inputs()], task.get_init_inputs()
    reference = make_model(task.Model, init).cuda()
    models = []
    for name in ("text", "base"):
        model = make_model(load_module(request[name], name).ModelNew, init).cuda()
        model.load_state_dict(reference.state_dict())
        models.append(model)
    variant, base = models
    if request["stamps"]:
        programs, steps = request["programs"], inputs[0].shape[0]
        variant.stamps = torch.zeros(programs * steps * len(PLACES) * 2, dtype=torch.int64, device="cuda")
    results = [[model(*inputs) for _ in range(_WARM_CALLS)][-1] for model in (variant, base)]
    expected = reference.double()(*(one.double() for one in inputs))
    pairs = [(time_call(variant, inputs), time_call(base, inputs)) for _ in range(request["calls"])]
    found: dict[str, Any] = {
        "error": measure_error(results[0], expected),
        "error_of_recipe": measure_error(results[1], expected),
        "variant_ms": [one for one, _ in pairs],
        "recipe_ms": [other for _, other in pairs],
        "card": torch.cuda.get_device_name(),
    }
    found |= {"ms": median(found["variant_ms"]), "times_recipe": median(one / other for one, other in pairs)}
    if request["stamps"]:
        layers = init[2]
        found["phases_ns"] = read_stamps(variant.stamps.view(layers, programs // layers, steps, len(PLACES), 2))
    return found


if __name__ == "__main__":
    with torch.no_grad():
        sys.stdout.write(json.dumps(answer(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))) + "\n")
