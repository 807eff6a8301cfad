"""Small convolution networks and what their kernels make of them. Under TRITON_INTERPRET=1 it prints {case: {measure: value}}.

Its arguments are the names of the cases to try.
"""

import copy
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tritonsmith.author.book import match
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.confined.interpreter import schedule
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Task

_TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a, self.na = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.b, self.nb = nn.Conv2d(outputs, outputs, 3, 1, 2, dilation=2, groups=2), nn.BatchNorm2d(outputs)
        self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        return torch.relu(self.nb(self.b(y)) + self.around(x))
class Model(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
def get_inputs():
    return [torch.randn({shape}){cast}]
def get_init_inputs():
    return []
"""
_RESIDUAL = (
    "self.stem = nn.Sequential(nn.Conv2d(3, 10, 5, 2, 2), nn.BatchNorm2d(10), nn.ReLU(), nn.MaxPool2d(3, 2, 1))\n"
    "        self.block = Block(10, 14, 2)\n"
    "        self.more = nn.Sequential(nn.Conv2d(14, 6, 3, padding=1), nn.GELU(), nn.MaxPool2d(2))\n"
    "        self.fc = nn.Sequential(nn.Linear(6, 17), nn.ReLU(), nn.Dropout(0.0), nn.Linear(17, classes))",
    "x = self.more(self.block(self.stem(x))); return self.fc(x.view(x.size(0), -1))", "3, 3, 17, 19",
)  # fmt: skip
_DEPTHWISE = (
    "self.a, self.n = nn.Conv2d(24, 16, 3, padding=1), nn.BatchNorm2d(16)\n"
    "        self.b, self.m = nn.Conv2d(16, 16, 3, 2, 1, groups=8), nn.BatchNorm2d(16, affine=False)\n"
    "        self.c, self.p = nn.Conv2d(16, 20, (3, 1), padding=(1, 0)), nn.AvgPool2d(3, 2, 1)\n"
    "        self.q, self.e = nn.AvgPool2d(2, count_include_pad=False, padding=1), nn.Linear(20 * 4, 7)",
    "x = torch.sigmoid(self.n(self.a(x))) * 2.0 + 1.0; x = self.m(self.b(x)).clamp(-1, 1)\n"
    "        return self.e(torch.flatten(torch.relu(self.q(self.p(self.c(x)))), 1))", "1, 24, 11, 12",
)  # fmt: skip
_CHANNELS = (
    "self.a, self.n = nn.Conv2d(6, 12, 3, 2, 1, groups=6, bias=False), nn.BatchNorm2d(12)\n"
    "        self.b, self.m = nn.Conv2d(12, 12, (5, 3), padding=(2, 1), groups=12), nn.BatchNorm2d(12)\n"
    "        self.c, self.d = nn.Conv2d(12, 20, 1), nn.Conv2d(20, 20, 3, dilation=2, groups=20)",
    "x = F.relu6(self.n(self.a(x))); y = torch.relu(self.m(self.b(x)) + x)\n"
    "        return F.max_pool2d(torch.tanh(self.d(F.silu(self.c(y)))), 2)", "3, 6, 17, 19",
)  # fmt: skip
_GATED = (
    "self.a, self.b = nn.Conv2d(5, 24, 3, padding=1), nn.Conv2d(24, 6, 1)",
    "y = F.relu(self.a(x)); z = F.adaptive_avg_pool2d(y, 1); v = F.max_pool2d(y, (11, 13))\n"
    "        return torch.tanh(self.b(z) + self.b(v))", "2, 5, 11, 13",
)  # fmt: skip
_DEEP = (
    "self.a, self.b = nn.Conv2d(96, 40, 3, padding='same', dilation=2), nn.Conv2d(40, 96, 1)",
    "return F.max_pool2d(F.relu(self.b(self.a(x)) + x), 2).mean([2, 3])",
    "2, 96, 9, 7",
)
_HALF = ("self.a = nn.Conv2d(5, 20, 3, bias=False).{cast}()", "return torch.tanh(self.a(x))", "2, 5, 8, 9")
CASES: dict[str, tuple[tuple[str, str, str], dict[str, Any]]] = {
    "residual": (_RESIDUAL, {}),
    "residual, batch statistics": (_RESIDUAL, {"mode": "train"}),
    "residual, by the library": (_RESIDUAL, {"recipe": "convnet_library"}),
    "residual, both": (_RESIDUAL, {"library": "small", "scheme": "tf32x3"}),
    "residual, TF32": (_RESIDUAL, {"precision": "tf32"}),
    "residual, TF32 operands": (_RESIDUAL, {"precision": "tf32", "scheme": "tf32"}),
    "depthwise": (_DEPTHWISE, {"carried": 1}),
    "depthwise, batch statistics": (_DEPTHWISE, {"mode": "train", "scheme": "ieee"}),
    "channels": (_CHANNELS, {}),
    "channels, batch statistics": (_CHANNELS, {"mode": "train"}),
    "channels, by the library": (_CHANNELS, {"recipe": "convnet_library"}),
    "channels, TF32": (_CHANNELS, {"precision": "tf32"}),
    "pools of whole images": (_GATED, {}),
    "deep": (_DEEP, {"programs": 528}),
    "bfloat16": (_HALF, {"cast": "bfloat16"}),
    "float16": (_HALF, {"cast": "half"}),
}
"""By name: the module's lines and the shape of its input; settings that differ from the defaults."""
REFUSED = {
    "transposed": ("self.a, self.b = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 2)", "return self.b(self.a(x))"),
    "product": ("self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)", "return self.a(x) * self.b(x)"),
    "padding": ("self.a = nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect')", "return self.a(x)"),
    "uneven parts": ("self.a = nn.Conv2d(3, 4, 3)", "return F.adaptive_avg_pool2d(self.a(x), 4)"),
    "all batches": ("self.a, self.b = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None)", "return self.b(self.a(x))", "train"),
    "in place": ("self.a = nn.Conv2d(3, 4, 3)", "y = self.a(x); z = F.relu(y, inplace=True); return z + y"),
}


def main() -> None:
    """The named cases, and the sentences of what is refused."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:]:
            lines, settings = CASES[name]
            found[name] = dict(measure(lines, Path(folder) / f"case_{len(found)}.py", **settings))
    found["refused"] = {name: read_refusal(*lines) for name, lines in REFUSED.items()}
    json.dump(found, sys.stdout)


def write_task(init: str, forward: str, shape: str, mode: str = "eval", precision: str = "ieee", cast: str = "") -> Task:
    """A task of one small network."""
    text = _TASK.format(init=init.format(cast=cast), forward=forward, shape=shape, cast=f".{cast}()" if cast else "")
    return Task(name="case", path="case.py", source=text, mode=mode, precision=PrecisionClass(precision))


def read_refusal(init: str, forward: str, mode: str = "eval") -> str:
    """What no recipe writes, in words."""
    from tritonsmith.author.book import explain_refusal

    task = write_task(init, forward, "2, 3, 9, 9", mode)
    return explain_refusal(task, probe(task)[0], CARDS["h200"])


def measure(lines: tuple[str, str, str], path: Path, recipe: str = "convnet_products", **settings: Any) -> Iterator[tuple[str, Any]]:
    """Errors of a kernel before and after a change of its weights, over those of the reference; launches; wrong buffers."""
    task = write_task(*lines, **{key: settings.pop(key) for key in ("mode", "precision", "cast") if key in settings})
    found = match(task, probe(task)[0], CARDS["h200"])
    chosen = found.recipe(recipe) if found else None
    assert found is not None and chosen is not None, task.source
    defaults = chosen.defaults(found.plan, CARDS["h200"], task.precision)
    assert defaults is not None
    path.write_text(chosen.render(found.plan, defaults | settings))
    reference = load_reference(task)
    torch.manual_seed(3)
    model, kernel = reference.module.Model().train(task.mode == "train"), import_candidate(path).ModelNew().train(task.mode == "train")
    for trial in ("error", "error with other weights"):
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                if tensor.is_floating_point():
                    tensor.mul_(1.2).add_(0.3 if "var" in name else torch.randn_like(tensor) * 0.05)
            for name, tensor in kernel.state_dict().items():
                tensor.copy_(model.state_dict()[name])
        yield trial, compare(model, kernel, reference.module.get_inputs(), races=trial == "error")
    state = model.state_dict()
    yield (
        "buffers",
        [
            name
            for name, tensor in kernel.named_buffers()
            if not torch.allclose(tensor.double(), state[name].double(), rtol=1e-5, atol=2e-6)
        ],
    )


def compare(model: Any, kernel: Any, inputs: list[torch.Tensor], races: bool) -> dict[str, float]:
    """Root mean squares of both errors against float64, relative to the result."""
    exact = copy.deepcopy(model).double()
    with torch.no_grad(), schedule.session("round_robin", 0, detect_races=races):
        got = kernel(*inputs).double()
    with torch.no_grad():
        wanted, own = exact(*[one.double() for one in inputs]), model(*inputs).double()
    size = float(wanted.square().mean().sqrt())
    return {"kernel": float((got - wanted).square().mean().sqrt()) / size, "reference": float((own - wanted).square().mean().sqrt()) / size}


if __name__ == "__main__":
    main()
