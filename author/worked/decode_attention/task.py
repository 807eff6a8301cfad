"""One step of decoding in bf16: grouped query heads attend to a cache, of which each sequence has filled its own length."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 16
heads = 32
key_heads = 8
capacity = 8192
width = 128

SMALL = {"batch": 3, "heads": 8, "key_heads": 2, "capacity": 300, "width": 32}


class Model(nn.Module):
    """Maps q [batch, heads, 1, width], keys and values [batch, key_heads, capacity, width] and lengths [batch] to [batch, heads, 1, width]."""

    def forward(self, q, keys, values, lengths):
        places = torch.arange(keys.shape[2], device=keys.device)
        mask = (places[None, :] < lengths[:, None])[:, None, None, :]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)


def get_inputs():
    q = torch.randn(batch, heads, 1, width, dtype=torch.bfloat16)
    cache = [torch.randn(batch, key_heads, capacity, width, dtype=torch.bfloat16) for _ in range(2)]
    return [q, *cache, torch.randint(1, capacity + 1, (batch,))]


def get_init_inputs():
    return []
