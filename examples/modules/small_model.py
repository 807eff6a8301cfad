"""A whole small model with whole numbers as inputs; saved as a package and loaded again."""

import tempfile

import torch
from torch import nn

import tritonsmith

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.EmbeddingBag(500, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 10), nn.Softmax(-1)).eval().to(device)
ids = torch.randint(500, (8, 12), device=device)
result = tritonsmith.optimize(model, ids, target="auto" if device == "cuda" else "h200")
print(result.answer)
folder = result.save(tempfile.mkdtemp() + "/small_model")
print("saved; loaded again:", type(tritonsmith.load(folder)).__name__)
