"""A leaky integrator of 16-bit currents: all spikes, and the last potential in fp32; a spike sets it to zero."""

import torch
from torch import nn

STEPS = 100
BATCH = 64
INPUTS = 256
NEURONS = 512
SMALL = {"BATCH": 4, "INPUTS": 48, "NEURONS": 32}


class Model(nn.Module):
    def __init__(self, inputs, neurons):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(neurons, inputs) * inputs**-0.5).half())

    def forward(self, x):
        current = nn.functional.linear(x, self.weight)
        v = torch.zeros_like(current[0], dtype=torch.float32)
        fired = []
        for t in range(x.shape[0]):
            v = v + 0.1 * (current[t].float() - v)
            spike = v > 0.25
            v = torch.where(spike, 0.0, v)
            fired.append(spike.half())
        return torch.stack(fired), v


def get_inputs():
    return [torch.randn(STEPS, BATCH, INPUTS).half()]


def get_init_inputs():
    return [INPUTS, NEURONS]
