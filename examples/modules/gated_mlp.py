"""A gated MLP block with its weights: optimized, then used in its place. Without a card kernels run in Triton's interpreter."""

import torch
from torch import nn

import tritonsmith


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


device = "cuda" if torch.cuda.is_available() else "cpu"
block, x = GatedMLP(64, 128).eval().to(device), torch.randn(16, 64, device=device)
result = tritonsmith.optimize(block, x, target="auto" if device == "cuda" else "h200")
print(result.answer)
print(result.check(x))
with torch.no_grad():
    print("largest difference", (result.module(x) - block(x)).abs().max().item())
