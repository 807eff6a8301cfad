"""Runs the product recipes on small, ragged products. Under TRITON_INTERPRET=1 it prints {case: {recipe and scheme: error}}.

An error is the kernel's distance from float64 over the reference's own, as the acceptance rule has it; 4 is the most it allows.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tritonsmith.author.book import BOOK, match
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.plan import PLAIN, read_regions
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.confined.interpreter import schedule
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.reference.module import load_reference
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
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
LINEAR = ("self.fc = nn.Linear(37, 41)", "F.gelu(self.fc(x)) * 0.5", ((3, 11, 37),))
WEIGHT = "self.w, self.b = nn.Parameter(torch.randn(41, 37)), nn.Parameter(torch.randn(41))"
FORMS: dict[str, tuple[str, str, tuple[tuple[int, ...], ...]]] = {
    "linear": LINEAR,
    "function": (WEIGHT, "torch.relu(F.linear(x, self.w, self.b))", ((35, 37),)),
    "without bias": (WEIGHT, "F.linear(x, self.w) + self.b", ((35, 37),)),
    "two inputs": ("pass", "x @ y", ((35, 37), (37, 41))),
    "left transposed": ("pass", "torch.matmul(x.t(), y)", ((37, 35), (37, 41))),
    "right transposed": ("pass", "torch.tanh(torch.mm(x, y.T))", ((35, 37), (41, 37))),
    "both transposed": ("pass", "x.transpose(0, 1) @ y.permute(1, 0)", ((37, 35), (41, 37))),
    "weight on the left": (WEIGHT, "self.w @ x", ((37, 18),)),
    "weight on the left, with work behind it": (WEIGHT, "torch.relu(self.w @ x)", ((37, 18),)),
    "batches": ("pass", "torch.bmm(x, y) + z", ((3, 17, 19), (3, 19, 34), (3, 17, 34))),
    "two batch axes": ("pass", "x @ y.transpose(-2, -1)", ((2, 2, 17, 19), (2, 2, 34, 19))),
    "added matrix": (WEIGHT, "torch.addmm(self.b, x, self.w.t(), beta=0.5, alpha=2.0)", ((35, 37),)),
    "added batches": ("pass", "torch.baddbmm(z, x, y)", ((2, 17, 19), (2, 19, 34), (2, 17, 34))),
    "equation": ("pass", "torch.einsum('bik,bjk->bji', x, y)", ((2, 17, 19), (2, 34, 19))),
    "equation of many rows": (WEIGHT, "torch.einsum('abk,nk->abn', x, self.w)", ((2, 17, 37),)),
    "operations ahead": ("pass", "(torch.exp(x * 0.5) @ (y.sigmoid() + 0.25).t()).relu()", ((35, 37), (41, 37))),
    "one row": ("self.fc = nn.Linear(5, 3)", "self.fc(x)", ((1, 5),)),
    "deep": ("self.fc = nn.Linear(128, 41)", "F.gelu(self.fc(x)) * 0.5", ((3, 11, 128),)),
    "deep, transposed": ("pass", "torch.relu(x.t() @ y + z)", ((128, 35), (128, 41), (35, 41))),
}
"""Constructor, forward, and shapes of the inputs x, y, z."""
BLOCKS = {"block_m": 32, "block_n": 64, "block_k": 32, "group": 2, "num_warps": 4, "num_stages": 2}
KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "loop fp16x3": ("product", {"scheme": "fp16x3"}),
    "loop tf32x3": ("product", {"scheme": "tf32x3"}),
    "loop ieee": ("product", {"scheme": "ieee"}),
    "loop fp16": ("product", {"scheme": "fp16"}),
    "loop tf32": ("product", {"scheme": "tf32"}),
    "parts fp16x3": ("product_in_parts", {"scheme": "fp16x3", "carried": True}),
    "parts fp16x3 in blocks": ("product_in_parts", {"scheme": "fp16x3", "carried": False}),
    "parts fp16": ("product_in_parts", {"scheme": "fp16", "carried": False}),
    "region fp16x3": ("regions", {"scheme": "fp16x3"}),
    "region tf32x3": ("regions", {"scheme": "tf32x3"}),
    "region fp16": ("regions", {"scheme": "fp16"}),
    "region tf32": ("regions", {"scheme": "tf32"}),
}
IN_SLICES = {"slices fp16x3": ("product", {"scheme": "fp16x3", "split_k": 4}), "slices ieee": ("product", {"scheme": "ieee", "split_k": 2})}
"""Kernels whose programs share the depth, for forms whose depth they divide."""
AS_REGIONS = ("function", "weight on the left, with work behind it", "batches", "operations ahead")
"""Forms that the recipe of regions writes too."""
IN_LOOP = ("two inputs", "operations ahead", "left transposed", "batches", "one row")
RANGES = ("huge", "tiny", "denormal", "uneven columns", "uneven rows", "zero rows", "all over", "infinite")
CARD = CARDS["h200"]


def source_of(form: str) -> str:
    """The task of a form."""
    init, forward, shapes = FORMS[form]
    names = "xyz"[: len(shapes)]
    inputs = ", ".join(f"torch.randn{shape}" for shape in shapes)
    return TASK.format(init=init, forward=forward, arguments=", ".join(names), inputs=inputs)


@cache
def read(form: str, regions: bool = False) -> tuple[Any, Any]:
    """A form's plan, and its reference."""
    task = Task(name="case", path="case.py", source=source_of(form))
    if regions:
        return read_regions(task, probe(task)[0], FIRST), load_reference(task)
    matched = match(task, probe(task)[0], CARD)
    assert matched is not None, task.source
    return matched.plan, load_reference(task)


def make(form: str, kernel: str, folder: Path) -> tuple[Any, Any]:
    """The kernel's module and the reference's, with the same weights."""
    recipe, settings = (KERNELS | IN_SLICES)[kernel]
    plan, reference = read(form, recipe == "regions")
    path = folder / f"kernel_{len(list(folder.iterdir()))}.py"
    path.write_text(BOOK[recipe].render(plan, PLAIN | BLOCKS | settings))
    model, wanted = import_candidate(path).ModelNew(), reference.module.Model()
    model.load_state_dict(wanted.state_dict())
    return model, wanted


def measure(model: Any, wanted: nn.Module, inputs: list[torch.Tensor], races: bool = False) -> float:
    """The kernel's error over the reference's own, the larger of root mean square and maximum by their factors."""
    with torch.no_grad():
        with schedule.session("round_robin", 0, detect_races=races):
            got = model(*inputs)
        own = wanted(*inputs)
        exact = wanted.double()(*(one.double() for one in inputs))
        wanted.float()
    own = torch.where(own.isnan() & ~exact.isnan(), exact.float(), own)  # with AVX-512, PyTorch's GELU makes NaN of infinity
    if got.shape != own.shape or not torch.equal(torch.isfinite(got), torch.isfinite(own)):
        return float("inf")
    same = ~torch.isfinite(own)
    if not torch.equal(got[same].nan_to_num(7.0), own[same].nan_to_num(7.0)):
        return float("inf")
    y, e, e_own = (torch.where(same, 0.0, one.double()) for one in (exact, got - exact, own - exact))
    floor = 2.0**-25
    least = 2.0**-150  # half of fp32's least step
    rms = float((e.square().mean().sqrt()) / max(e_own.square().mean().sqrt(), floor * y.square().mean().sqrt(), least))
    few = min(1.0, got.numel() / 64) ** 0.5  # few errors vary more
    return few * max(rms, float(e.abs().max() / max(e_own.abs().max(), floor * y.abs().max(), least)) / 2)


def spread(kind: str, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Bring x [..., 37] and the weight [41, 37] of a linear layer into a range."""
    factors = {"huge": 1e30, "tiny": 1e-30, "denormal": 1e-40}
    columns = torch.logspace(-30, 30, 37)
    if kind in factors:
        x *= factors[kind]
    elif kind == "uneven columns":
        x *= columns
        weight /= columns
    elif kind == "uneven rows":
        x *= torch.logspace(-30, 30, x.shape[-2])[:, None]
    elif kind == "zero rows":
        x[..., ::2, :] = 0.0
        weight[3] = 0.0
    elif kind == "all over":
        weight *= columns.flip(0)
    else:
        x[0, 2, 4], x[1, 3, 5], x[2, 4, 6] = float("inf"), float("-inf"), float("nan")


def try_forms(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Every form by the kernel of parts, some by the one that splits in its loop, and the first by all."""
    for form, (_, _, shapes) in FORMS.items():
        kernels = KERNELS if form == "linear" else ("parts fp16x3", *(("loop fp16x3",) if form in IN_LOOP else ()))
        kernels = (*kernels, *(("region fp16x3",) if form in AS_REGIONS else ()), *(IN_SLICES if form.startswith("deep") else ()))
        inputs = [torch.randn(shape) for shape in shapes]
        yield form, {kernel: measure(*make(form, kernel, folder), inputs, races=form in ("batches", "deep")) for kernel in kernels}


def try_ranges(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The linear layer on values of every range."""
    for kind in RANGES:
        found = {}
        for kernel in ("loop fp16x3", "parts fp16x3", "region fp16x3", *(("parts fp16",) if kind == "all over" else ())):
            model, wanted = make("linear", kernel, folder)
            x = torch.randn(LINEAR[2][0])
            spread(kind, x, wanted.fc.weight.data)
            model.load_state_dict(wanted.state_dict())
            found[kernel] = measure(model, wanted, [x])
        yield kind, found


def try_changes(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """A weight that changes between two calls."""
    found = {}
    for kernel in ("parts fp16x3", "region fp16x3"):
        model, wanted = make("linear", kernel, folder)
        x = torch.randn(LINEAR[2][0])
        found |= {f"{kernel}, first": measure(model, wanted, [x]), f"{kernel}, again": measure(model, wanted, [x])}
        with torch.no_grad():
            for one in (model, wanted):
                one.fc.weight[5] *= -3.0
            found[f"{kernel}, in place"] = measure(model, wanted, [x])
            fresh = torch.randn(41, 37)
            for one in (model, wanted):
                one.fc.weight = nn.Parameter(fresh.clone())
            found[f"{kernel}, replaced"] = measure(model, wanted, [x])
    yield "changes", found


def main() -> None:
    """Everything, as JSON."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = {"forms": dict(try_forms(folder)), "ranges": dict(try_ranges(folder)), **dict(try_changes(folder))}
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main()
