"""A spiking layer: how often each neuron fires in 100 steps, and its last potential."""

import torch
from torch import nn

STEPS = 100
BATCH = 128
NEURONS = 512
SMALL = {"BATCH": 4, "NEURONS": 32}


class Model(nn.Module):
    def __init__(self, neurons, beta=0.9):
        super().__init__()
        self.fc = nn.Linear(neurons, neurons)
        self.beta = beta

    def forward(self, x):
        v = torch.zeros_like(x[0])
        fired = []
        for t in range(x.shape[0]):
            v = self.beta * v + self.fc(x[t])
            spike = (v > 1.0).to(v.dtype)
            v = v - spike
            fired.append(spike)
        return torch.stack(fired).mean(0), v


def get_inputs():
    return [torch.randn(STEPS, BATCH, NEURONS)]


def get_init_inputs():
    return [NEURONS]
