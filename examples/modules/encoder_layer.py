"""A layer of torch's own transformer, put into the model that it came from and taken out again."""

import torch
from torch import nn

import tritonsmith

device = "cuda" if torch.cuda.is_available() else "cpu"
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(device)
x = torch.randn(2, 24, 64, device=device)
result = tritonsmith.optimize(model.layers[0], x, target="auto" if device == "cuda" else "h200")
print(result.answer)
result.apply(model)
with torch.no_grad():
    print("output", tuple(model(x).shape), "by", type(model.layers[0]).__mro__[0].__name__)
result.revert(model)
