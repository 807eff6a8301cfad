"""The small module for which the recipe of regions is shown to a model."""

from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.recipe import WorkedExample
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts, TensorSpec

_REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):  # x [96, 1000]
        return torch.softmax(self.norm(x) * 2.0, dim=-1)

def get_inputs():
    return [torch.randn(96, 1000)]

def get_init_inputs():
    return [1000]
"""
_ROWS = TensorSpec(shape=(96, 1000))
_MADE = {"normalized_shape": [1000], "eps": 1e-05, "elementwise_affine": True, "bias": True}
_FACTS = TaskFacts(
    traced_by=TraceWay.FX, inputs=(_ROWS,), outputs=(_ROWS,), init_inputs=("1000",), values=("",),
    parameters={"norm.weight": TensorSpec(shape=(1000,)), "norm.bias": TensorSpec(shape=(1000,))},
    ops=(
        OpNode(name="x", op="placeholder", target="x", outputs=(_ROWS,)),
        OpNode(name="norm", op="call_module", target="norm", module_type="LayerNorm", args=({"ref": "x"},), outputs=(_ROWS,),
               attributes=_MADE, constructor=_MADE),
        OpNode(name="mul", op="call_function", target="_operator.mul", args=({"ref": "norm"}, 2.0), outputs=(_ROWS,)),
        OpNode(name="softmax", op="call_function", target="torch.softmax", args=({"ref": "mul"},), kwargs={"dim": -1}, outputs=(_ROWS,)),
        OpNode(name="output", op="output", target="output", args=({"ref": "softmax"},), outputs=(_ROWS,)),
    ),
)  # fmt: skip
EXAMPLE = WorkedExample(_REFERENCE, read_regions(Task(name="example", path="example.py", source=_REFERENCE), _FACTS, FIRST))
