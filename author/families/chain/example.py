"""The small modules for which the recipes of this folder are shown to a model."""

from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.families.chain.plan import ChainPlan, Operand
from tritonsmith.author.families.chain.product import FactorPlan, ProductPlan
from tritonsmith.author.families.chain.sizes import Source, find_sizes
from tritonsmith.author.recipe import WorkedExample

_PRODUCT_REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x):  # x [96, 160]
        return torch.relu(self.dense(x)) * 0.5

def get_inputs():
    return [torch.rand(96, 160) - 0.5]

def get_init_inputs():
    return [160, 72]
"""
_PRODUCT_PLAN = ProductPlan(
    card=FIRST,
    signature="inputs, outputs", fixed={"inputs": "160", "outputs": "72"},
    members=(
        "self.dense = nn.Module()",
        "self.dense.weight = nn.Parameter(torch.empty((72, 160), dtype=torch.float32))",
        "self.dense.bias = nn.Parameter(torch.empty((72,), dtype=torch.float32))",
    ),
    arguments="x", operands=(Operand(value="v0", source="self.dense.bias", index="(offset) % 72", per_column=True),),
    lines=("t0 = total + v0", "t1 = tl.maximum(t0, 0.0, propagate_nan=tl.PropagateNan.ALL)", "t2 = t1 * 0.5"),
    result="t2", dtype="float32", elements=6912,
    sizes=find_sizes((96, 72), [Source("x", (96, 72), "float32", given=True, inner=160),
                                Source("self.dense.bias", (72,), "float32", given=False)]),
    given=("x",), flops=13824.0, product_flops=2211840.0,
    a=FactorPlan(source="x[None]", kept=False, along=True), w=FactorPlan(source="self.dense.weight.t()[None]", kept=True, along=True),
    batch=1, rows=96, columns=72, inner=160, half=False,
)  # fmt: skip
PRODUCT_EXAMPLE = WorkedExample(_PRODUCT_REFERENCE, _PRODUCT_PLAN)

_POINTWISE_REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):  # x [40, 96]
        return torch.tanh(x + self.bias) * 2.0

def get_inputs():
    return [torch.rand(40, 96)]

def get_init_inputs():
    return [96]
"""
_POINTWISE_PLAN = ChainPlan(
    card=FIRST,
    signature="features", fixed={"features": "96"},
    members=("self.bias = nn.Parameter(torch.empty((96,), dtype=torch.float32))",), arguments="x",
    operands=(
        Operand(value="v0", source="x", index="offset"),
        Operand(value="v1", source="self.bias", index="(offset) % 96", per_column=True),
    ),
    lines=("t0 = v0 + v1", "t1 = tanh(t0)", "t2 = t1 * 2.0"), result="t2", dtype="float32", elements=3840, flops=38400.0,
    sizes=find_sizes((40, 96), [Source("x", (40, 96), "float32", given=True), Source("self.bias", (96,), "float32", given=False)]),
    given=("x",),
)  # fmt: skip
POINTWISE_EXAMPLE = WorkedExample(_POINTWISE_REFERENCE, _POINTWISE_PLAN)
