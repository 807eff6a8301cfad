"""Cross entropy of bf16 scores for each token, in fp32, with the scores" largest place."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 8192
words = 32000

SMALL = {"tokens": 64, "words": 300}


class Model(nn.Module):
    """Maps scores [tokens, words] and targets [tokens] to the loss of each token (fp32) and the place of its largest score."""

    def forward(self, scores, targets):
        return F.cross_entropy(scores.float(), targets, reduction="none"), scores.argmax(-1)


def get_inputs():
    return [3.0 * torch.randn(tokens, words, dtype=torch.bfloat16), torch.randint(0, words, (tokens,))]


def get_init_inputs():
    return []
