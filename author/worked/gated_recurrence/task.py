"""A gated recurrence whose gates follow from the inputs alone, in bf16."""

import torch
from torch import nn

batch = 16
steps = 256
features = 1024

SMALL = {"batch": 2, "steps": 20, "features": 64}


class Model(nn.Module):
    """Maps x [batch, steps, features] to all states h, where h = f * h + (1 - f) * c, and f and c are products with x."""

    def __init__(self, features):
        super().__init__()
        self.gates = nn.Linear(features, 2 * features, dtype=torch.bfloat16)

    def forward(self, x):
        forget, new = self.gates(x).float().chunk(2, dim=-1)
        forget, state, states = torch.sigmoid(forget), torch.zeros_like(new[:, 0]), []
        for step in range(x.shape[1]):
            state = forget[:, step] * state + (1.0 - forget[:, step]) * torch.tanh(new[:, step])
            states.append(state)
        return torch.stack(states, dim=1).to(x.dtype)


def get_inputs():
    return [torch.randn(batch, steps, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features]
