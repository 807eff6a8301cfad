"""A stack of six GRU layers over 512 time steps; every state of the top layer is returned."""

import torch
from torch import nn

seq_len = 512
batch_size = 10
input_size = 128
hidden_size = 256
num_layers = 6

SMALL = {"seq_len": 8, "input_size": 32, "hidden_size": 32}
SHAPES = [{"batch_size": 1}, {"batch_size": (11, 35), "seq_len": (5, 9)}, {"seq_len": 1}, {"seq_len": 7, "input_size": (17, 63)}]


class Model(nn.Module):
    """Maps x [seq_len, batch, input] and h0 [layers, batch, hidden] to the top layer's states [seq_len, batch, hidden]."""

    def __init__(self, input_size, hidden_size, num_layers=3, bias=True, batch_first=False):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first)

    def forward(self, x, h0):
        states, _ = self.gru(x, h0)
        return states


def get_inputs():
    return [torch.rand(seq_len, batch_size, input_size), torch.rand(num_layers, batch_size, hidden_size)]


def get_init_inputs():
    return [input_size, hidden_size, num_layers]
