"""The small network for which the recipes of this family are shown to a model."""

from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.families.convnet.plan import NetworkLayer, NetworkPlan, NetworkStep, StepKind
from tritonsmith.author.recipe import WorkedExample

_REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(16, channels, 3, stride=2, padding=1)

    def forward(self, x):  # x [4, 16, 20, 28]
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.rand(4, 16, 20, 28)]

def get_init_inputs():
    return [40]
"""
_LAYER = NetworkLayer(name="conv", inner=16, columns=40, window=(3, 3), stride=(2, 2), padding=(1, 1))
_PLAN = NetworkPlan(
    card=FIRST,
    signature="channels", fixed={"channels": "40"},
    members=(
        "self.conv = nn.Module()",
        "self.conv.weight = nn.Parameter(torch.empty((40, 16, 3, 3), dtype=torch.float32))",
        "self.conv.bias = nn.Parameter(torch.empty((40,), dtype=torch.float32))",
    ),
    arguments="x", x="x", input_shape=(16, 20, 28), dtype="float32", result_dtype="float32",
    steps=(
        NetworkStep(
            kind=StepKind.CONVOLUTION, result="conv", source="x", layer=_LAYER, gathers=True, activation="relu", inputs=(20, 28),
            outputs=(10, 14), channels=40, last=True,
        ),
    ),
    activations={"relu": ("v = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)",)},
    returned="conv[0]", largest=5600, flops=6473600.0, batch=4,
)  # fmt: skip
EXAMPLE = WorkedExample(_REFERENCE, _PLAN)
