"""Each token goes through the weights of its own expert, in bf16: products whose sizes depend on values."""

import torch
from torch import nn

tokens = 8192
experts = 16
inner = 1024
columns = 4096

SMALL = {"tokens": 150, "experts": 4, "inner": 128, "columns": 136}


class Model(nn.Module):
    """Maps x [tokens, inner] and places [tokens] of experts to x[t] @ weight[places[t]].T [tokens, columns]."""

    def __init__(self, experts, inner, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, columns, inner, dtype=torch.bfloat16) * inner**-0.5)

    def forward(self, x, places):
        y = torch.empty(x.shape[0], self.weight.shape[1], dtype=x.dtype, device=x.device)
        for expert in range(self.weight.shape[0]):
            rows = (places == expert).nonzero()[:, 0]
            y[rows] = x[rows] @ self.weight[expert].T
        return y


def get_inputs():
    return [torch.randn(tokens, inner, dtype=torch.bfloat16), torch.randint(0, experts, (tokens,))]


def get_init_inputs():
    return [experts, inner, columns]
