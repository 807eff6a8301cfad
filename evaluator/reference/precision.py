"""Which precision torch's own products have. Imports torch."""

from __future__ import annotations

import torch


def set_tf32(allowed: bool) -> None:
    """Allow or forbid TF32 in cuBLAS and cuDNN."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
