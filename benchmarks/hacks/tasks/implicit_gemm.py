"""relu of a convolution with stride and padding."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, k, stride=2, padding=1)

    def forward(self, x):
        return F.relu(self.conv(x))


def get_inputs():
    return [torch.randn(2, 6, 15, 13)]


def get_init_inputs():
    return [6, 20, 3]
