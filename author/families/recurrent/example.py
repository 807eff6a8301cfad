"""The small GRU for which the recipes of this family are shown to a model."""

from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.families.recurrent.plan import RecurrentPlan
from tritonsmith.author.recipe import WorkedExample

_REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers)

    def forward(self, x):  # x [24, 4, 48]
        states, _ = self.gru(x)
        return states

def get_inputs():
    return [torch.rand(24, 4, 48)]

def get_init_inputs():
    return [48, 64, 2]
"""
_PLAN = RecurrentPlan(
    card=FIRST,
    signature="input_size, hidden_size, num_layers",
    members=("self.gru = GRUWeights(input_size, hidden_size, num_layers)",),
    kind="GRU", arguments="x", holder="self.gru", x="x", h0="None", tail=("return sequence",), needs_sequence=True,
    needs_last=False, linear=False,
    input_size=48, hidden_size=64, num_layers=2, steps=24, batch=4,
    returns="a tensor float32[24, 4, 64], the top layer's states of every step of gru",
)  # fmt: skip
EXAMPLE = WorkedExample(_REFERENCE, _PLAN)
