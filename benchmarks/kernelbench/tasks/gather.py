"""Rows of an embedding for a million 64-bit places (2.7 GB out)."""

import torch
from torch import nn

batch = 2_048
length = 512
vocabulary = 100_000
width = 640

SMALL = {"batch": 4, "length": 10, "vocabulary": 50, "width": 40}


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)

    def forward(self, places):
        return self.embedding(places)


def get_inputs():
    return [torch.randint(vocabulary, (batch, length))]


def get_init_inputs():
    return [vocabulary, width]
