"""The reference module itself under the name ModelNew."""
# family: E4
# task: 39_gru
# expect: ok
# label: library

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers=3, bias=True, batch_first=False):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first)

    def forward(self, x, h0):
        return self.gru(x, h0)[0]
