"""Prints, for distances of all pairs and what follows them, how far the built-in author's text is from float64, next to PyTorch.

Run by `test_distances.py` with TRITON_INTERPRET=1, since Triton reads that when it is imported.
"""

import copy
import json
import math
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

from tritonsmith.author.book import match
from tritonsmith.author.compiler.fusing import disguised
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

TASK = """
import torch
from torch import nn
from torch.nn import functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {arguments}):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
LARGE = "torch.randn(40, 33), torch.randn(150, 33)"
"""No size is a multiple of a tile's."""
SETS = "torch.randn(2, 30, 33), torch.randn(2, 140, 33)"
POINTS = "torch.randn(2, 20, 3), torch.randn(2, 30, 3)"
disguised._SMALL = 2**10  # so that few pairs are found by products too
FORMS = {
    "nearest centre": ("return torch.cdist(x, self.c).min(dim=1)[0]", "torch.randn(40, 33)", "self.c = nn.Parameter(torch.randn(150, 33))"),
    "nearest, and where": ("return torch.cdist(x, y).min(2)", SETS, ""),
    "farthest": ("return torch.cdist(x, y).max(1)[0], torch.cdist(y, x).argmax(1)", LARGE, ""),
    "first of one": ("return torch.cdist(x, y).topk(1, dim=1, largest=False)", LARGE, ""),
    "all distances": ("return torch.cdist(x, y)", LARGE, ""),
    "all distances, exactly": ("return torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')", LARGE, ""),
    "few vectors": ("return torch.cdist(x, y)", "torch.randn(3, 4, 9), torch.randn(3, 7, 9)", ""),
    "one vector": ("return torch.cdist(x, y).argmin(-1)", "torch.randn(1, 33), torch.randn(35, 33)", ""),
    "points": ("d = torch.cdist(x, y)\n        return d.min(2)[0], d.min(1)[0]", POINTS, ""),
    "written out": ("return (x[:, None] - y[None]).pow(2).sum(-1)", LARGE, ""),
    "written out, nearest": ("return ((x[:, :, None] - y[:, None]) ** 2).sum(-1).amin(-1)", SETS, ""),
    "norm": ("return (x.unsqueeze(1).expand(40, 150, 33) - y.unsqueeze(0)).norm(dim=-1)", LARGE, ""),
    "squared by hand": ("d = x[:, :, None] - y[:, None]\n        return (d * d).sum(3)", SETS, ""),
    "cosines": ("return F.cosine_similarity(x[:, None], y[None], dim=-1).max(1)", "torch.randn(70, 33), torch.randn(50, 33)", ""),
    "sums of products": ("return (x[:, :, None] * y[None]).sum(1)", "torch.randn(70, 33), torch.randn(33, 50)", ""),
}  # fmt: skip
KINDS = ("normal", "offset", "equal", "near", "large", "infinite")
"""What inputs are like: a common offset of 3; half of the vectors in both sets, as they are or nearly; 1e18; infinities and NaN."""
WATCHED = ("nearest, and where", "all distances", "written out", "points")
"""Forms that get inputs of every kind."""
DIRECT = ("written out",)
"""The one of which PyTorch sums differences, so that an infinity has a distance: by products it has none."""


def draw(module: Any, kind: str) -> list[Any]:
    """Inputs of a kind."""
    torch.manual_seed(1)
    first, *others = module.get_inputs()
    given = [first, *others]
    if kind == "offset":
        given = [one + 3 for one in given]
    if kind in ("equal", "near") and others:
        many = min(first.shape[-2], others[0].shape[-2]) // 2
        noise = torch.randn_like(first[..., :many, :]) * (1e-3 if kind == "near" else 0.0)
        if first.shape[-1] == others[0].shape[-1]:
            others[0][..., :many, :] = first[..., :many, :] + noise
    if kind == "large":
        given = [one * 1e18 for one in given]
    if kind == "infinite":
        first[..., 0, 0], first[..., -1, 1] = math.inf, math.nan
    return given


def load(text: str, name: str, folder: str) -> Any:
    """A text as a module."""
    path = Path(folder) / f"{name}.py"
    path.write_text(text)
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flatten(result: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    return [result] if isinstance(result, torch.Tensor) else [one for part in result for one in flatten(part)]


def compare(model: torch.nn.Module, new: torch.nn.Module, inputs: list[torch.Tensor]) -> dict[str, float]:
    """Errors over what the judge's rule starts from; places whose values are other ones; places of NaN or infinity that differ."""
    with torch.no_grad():
        own, made = flatten(model(*inputs)), flatten(new(*inputs))
        exact = flatten(copy.deepcopy(model).double()(*(one.double() for one in inputs)))
    found = {"rms": 0.0, "max": 0.0, "others": 0.0, "places": 0.0}
    for reference, mine, oracle in zip(own, made, exact, strict=True):
        if not reference.is_floating_point():
            found["places"] = max(found["places"], (mine != oracle).double().mean().item())
            continue
        finite = oracle.isfinite()
        if not finite.any():
            found["others"] += (mine.isnan() != oracle.isnan()).sum().item()
            continue
        alike = torch.where(finite, mine.isfinite(), (mine == oracle) | (mine.isnan() & oracle.isnan()))
        found["others"] += (~alike).sum().item()
        error, least = (mine.double() - oracle)[finite], torch.finfo(reference.dtype).eps / 4 * oracle[finite]
        known = (reference.double() - oracle)[finite]
        for name, measure in (("rms", lambda one: one.pow(2).mean().sqrt()), ("max", lambda one: one.abs().max())):
            ratio = measure(error) / max(measure(known), measure(least), torch.tensor(1e-300))
            found[name] = max(found[name], ratio.item())
    return found


def main() -> None:
    """Every form with every kind of inputs."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (body, inputs, init)) in enumerate(FORMS.items()):
            arguments = "x, y" if "y" in body else "x"
            text = TASK.format(init=init or "pass", arguments=arguments, body=body, inputs=inputs)
            task = Task(name=name, path="mine.py", source=text)
            matched = match(task, probe(task)[0], CARDS["h200"])
            assert matched is not None, name
            recipe = matched.recipes[-1]
            settings = recipe.defaults(matched.plan, CARDS["h200"], task.precision)
            assert settings is not None, name
            written = recipe.render(matched.plan, settings)
            module, kernels = load(text, f"task_{number}", folder), load(written, f"kernels_{number}", folder)
            torch.manual_seed(0)
            model = module.Model().eval()
            new = kernels.ModelNew()
            new.load_state_dict(model.state_dict())
            kinds = KINDS if name in DIRECT else KINDS[:-1] if name in WATCHED else KINDS[:1]
            given = {kind: draw(module, kind) for kind in kinds}
            made = {kind: compare(model, new, one) for kind, one in given.items()}
            results[name] = {"calls": list(matched.plan.calls), "kinds": made, "text": written}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
