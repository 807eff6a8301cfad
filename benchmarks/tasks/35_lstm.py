"""Six LSTM layers over 512 time steps; a linear layer classifies the top layer's state after the last step."""

import torch
from torch import nn

batch_size = 10
seq_len = 512
input_size = 128
hidden_size = 256
num_layers = 6
output_size = 10
dropout = 0.0

SMALL = {"seq_len": 16, "input_size": 32, "hidden_size": 64}
SHAPES = [{"batch_size": 1}, {"batch_size": (11, 35), "seq_len": (5, 9)}, {"seq_len": 1}, {"seq_len": 7, "input_size": (17, 63)}]


class Model(nn.Module):
    """Maps x [batch, seq_len, input], h0 and c0 [layers, batch, hidden] to logits [batch, output]."""

    def __init__(self, input_size, hidden_size, num_layers, output_size, dropout=0.0):
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, batch_first=True, dropout=dropout)
        self.fc = nn.Linear(hidden_size, output_size)

    def forward(self, x, h0, c0):
        states, _ = self.lstm(x, (h0, c0))
        return self.fc(states[:, -1, :])


def get_inputs():
    state = (num_layers, batch_size, hidden_size)
    return [torch.rand(batch_size, seq_len, input_size), torch.rand(state), torch.rand(state)]


def get_init_inputs():
    return [input_size, hidden_size, num_layers, output_size, dropout]
