"""leaky_relu(a @ b) in float16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return F.leaky_relu(a @ b)


def get_inputs():
    return [torch.randn(70, 64).half(), torch.randn(64, 50).half()]


def get_init_inputs():
    return []
