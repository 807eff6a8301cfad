"""Tasks on which a family of the built-in author and its compiler are set side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path(__file__).resolve().parent / "tasks"
_HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n"


@dataclass(frozen=True)
class FamilyTask:
    """A task in one class of precision.

    Args:
        name: what its rows are found by.
        path: its file, relative to `benchmarks/tasks`; empty where `text` has it.
        text: the task file itself.
        precision: the class of precision; empty for what follows from its types.
    """

    name: str
    path: str = ""
    text: str = ""
    precision: str = ""

    def place(self, folder: Path) -> Path:
        """The task's file in `folder`, for its own size alone: with SHAPES the kernels of all sizes would have to be covered."""
        place = folder / f"{self.name}.py"
        text = self.text or (_TASKS / self.path).read_text(encoding="utf-8")
        place.write_text(re.sub(r"^SHAPES = .*\n", "", text, flags=re.MULTILINE), encoding="utf-8")
        return place


def _write_chain(sizes: str, small: str, init: str, forward: str, inputs: str) -> str:
    """A task whose forward is one expression of its inputs `x, y, ...` and members.

    Args:
        sizes: the sizes by name, such as `rows=64, columns=32`.
        small: the same for a verdict without a card.
        init: statements of the constructor, with semicolons.
        forward: arguments and expression, with a colon between them.
        inputs: expressions of the inputs.
    """
    arguments, _, result = forward.partition(":")
    names = "\n".join(part.strip().replace("=", " = ") for part in sizes.split(","))
    few = {name.strip(): int(value) for name, _, value in (part.partition("=") for part in small.split(","))}
    return (
        f"{_HEAD}{names}\nSMALL = {few}\n\n\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init or 'pass'}\n\n"
        f"    def forward(self, {arguments}):\n        return {result.strip()}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


_GATE = _write_chain(
    "rows=8192, columns=8192", "rows=24, columns=96", "self.scale = nn.Parameter(torch.randn(columns)); self.bfloat16()",
    "x, y: F.silu(x) * y + self.scale",
    "torch.randn(rows, columns, dtype=torch.bfloat16), torch.randn(rows, columns, dtype=torch.bfloat16)",
)  # fmt: skip
_OUTER = _write_chain(
    "rows=4096, columns=4096", "rows=33, columns=70", "", "x, y: torch.tanh(x + y) * torch.sigmoid(x - y)",
    "torch.randn(rows, 1), torch.randn(1, columns)",
)  # fmt: skip
_FEW = _write_chain("rows=64, columns=1024", "rows=8, columns=64", "", "x: F.hardswish(x) * 0.5 + 1", "torch.randn(rows, columns)")
_HALF_LINEAR = _write_chain(
    "rows=4096, inner=4096, columns=4096", "rows=32, inner=96, columns=80", "self.fc = nn.Linear(inner, columns); self.bfloat16()",
    "x: F.relu(self.fc(x)) * 0.5", "torch.randn(rows, inner, dtype=torch.bfloat16)",
)  # fmt: skip
_BATCHED = _write_chain(
    "batch=64, rows=512, inner=256, columns=512", "batch=3, rows=40, inner=48, columns=33", "",
    "x, y: torch.sigmoid(torch.bmm(x, y) * 0.125)", "torch.randn(batch, rows, inner), torch.randn(batch, inner, columns)",
)  # fmt: skip
_DEEP = _write_chain(
    "rows=256, inner=32768, columns=256", "rows=32, inner=1024, columns=32", "", "x, y: x @ y",
    "torch.randn(rows, inner), torch.randn(inner, columns) / 64",
)  # fmt: skip
_TURNED = _write_chain(
    "rows=2048, inner=4096, columns=4096", "rows=48, inner=64, columns=80", "", "x, y: F.gelu(x.T @ y.T)",
    "torch.randn(inner, rows), torch.randn(columns, inner)",
)  # fmt: skip
_SQUARE = _write_chain("size=4096", "size=64", "", "x, y: x @ y", "torch.randn(size, size), torch.randn(size, size)")
_THIN = _write_chain(
    "rows=32768, inner=64, columns=1024", "rows=40, inner=32, columns=70", "self.fc = nn.Linear(inner, columns)",
    "x: torch.relu(self.fc(x)) + 1", "torch.randn(rows, inner)",
)  # fmt: skip

_MOBILE = f'''{_HEAD}batch = 8
image = 224
width = 32
classes = 1000
SMALL = {{"batch": 2, "image": 32, "width": 8, "classes": 10}}


class Inverted(nn.Module):
    """A 1x1 convolution that widens, a depthwise one, and a 1x1 that narrows; a way around where sizes agree."""

    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        inner = inputs * expand
        self.around = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )

    def forward(self, x):
        return x + self.body(x) if self.around else self.body(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        plan = [(1, 0.5, 1, 1), (6, 0.75, 2, 2), (6, 1, 3, 2), (6, 2, 4, 2), (6, 3, 3, 1), (6, 5, 3, 2), (6, 10, 1, 1)]
        layers = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6()]
        inputs = width
        for expand, factor, count, stride in plan:
            for number in range(count):
                outputs = int(width * factor)
                layers.append(Inverted(inputs, outputs, stride if number == 0 else 1, expand))
                inputs = outputs
        self.features = nn.Sequential(*layers, nn.Conv2d(inputs, 4 * inputs, 1, bias=False), nn.BatchNorm2d(4 * inputs), nn.ReLU6())
        self.fc = nn.Linear(4 * inputs, classes)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def get_inputs():
    return [torch.rand(batch, 3, image, image)]


def get_init_inputs():
    return []
'''
_BOTTLENECK = f'''{_HEAD}batch = 8
image = 224
width = 64
classes = 1000
SMALL = {{"batch": 2, "image": 32, "width": 8, "classes": 10}}


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with norms, and a way around."""

    def __init__(self, inputs, inner, stride):
        super().__init__()
        outputs = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )
        self.around = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.body(x) + self.around(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inputs = width
        for depth, count in enumerate((3, 4, 6, 3)):
            for number in range(count):
                layers.append(Bottleneck(inputs, width * 2**depth, 2 if depth and number == 0 else 1))
                inputs = 4 * width * 2**depth
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def get_inputs():
    return [torch.rand(batch, 3, image, image)]


def get_init_inputs():
    return []
'''

_CHAIN = (
    FamilyTask("gelu_scale_bias", "26_gelu_scale_bias.py"),
    FamilyTask("gate_bf16", text=_GATE),
    FamilyTask("outer_tanh", text=_OUTER),
    FamilyTask("few_elements", text=_FEW),
    FamilyTask("linear_leaky", "12_linear_mul_leakyrelu.py"),
    FamilyTask("linear_leaky_tf32", "12_linear_mul_leakyrelu.py", precision="tf32"),
    FamilyTask("matmul_gelu", "13_matmul_bias_gelu.py"),
    FamilyTask("linear_relu_tf32", "76_linear_bias_relu.py", precision="tf32"),
    FamilyTask("linear_bf16", text=_HALF_LINEAR),
    FamilyTask("linear_gelu_fp16", "half/fp16_linear_gelu.py"),
    FamilyTask("batched", text=_BATCHED),
    FamilyTask("deep", text=_DEEP),
    FamilyTask("turned_tf32", text=_TURNED, precision="tf32"),
    FamilyTask("square", text=_SQUARE),
    FamilyTask("thin", text=_THIN),
    FamilyTask("thin_tf32", text=_THIN, precision="tf32"),
)
_CONVNET = (
    FamilyTask("resnet18", "9_resnet18.py"),
    FamilyTask("vgg16", "11_vgg16.py"),
    FamilyTask("mobilenet", text=_MOBILE),
    FamilyTask("resnet50", text=_BOTTLENECK),
    FamilyTask("resnet18_tf32", "9_resnet18.py", precision="tf32"),
    FamilyTask("vgg16_tf32", "11_vgg16.py", precision="tf32"),
)
TASKS: dict[str, tuple[FamilyTask, ...]] = {"chain": _CHAIN, "convnet": _CONVNET}
"""By family: what it is judged on."""
