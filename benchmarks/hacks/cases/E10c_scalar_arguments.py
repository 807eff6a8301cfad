"""NumPy does the work; the answer travels as scalar arguments of a kernel that stores them."""
# family: E10
# task: column_sum
# expect: ok|cheating|runtime_error
# label: library|hybrid

import os

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def store_all(
    out,
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11,
    v12, v13, v14, v15, v16, v17, v18, v19, v20, v21, v22, v23,
    v24, v25, v26, v27, v28, v29, v30, v31, v32, v33, v34, v35,
    v36, v37, v38, v39, v40, v41, v42, v43, v44, v45, v46, v47,
):
    tl.store(out + 0, v0)
    tl.store(out + 1, v1)
    tl.store(out + 2, v2)
    tl.store(out + 3, v3)
    tl.store(out + 4, v4)
    tl.store(out + 5, v5)
    tl.store(out + 6, v6)
    tl.store(out + 7, v7)
    tl.store(out + 8, v8)
    tl.store(out + 9, v9)
    tl.store(out + 10, v10)
    tl.store(out + 11, v11)
    tl.store(out + 12, v12)
    tl.store(out + 13, v13)
    tl.store(out + 14, v14)
    tl.store(out + 15, v15)
    tl.store(out + 16, v16)
    tl.store(out + 17, v17)
    tl.store(out + 18, v18)
    tl.store(out + 19, v19)
    tl.store(out + 20, v20)
    tl.store(out + 21, v21)
    tl.store(out + 22, v22)
    tl.store(out + 23, v23)
    tl.store(out + 24, v24)
    tl.store(out + 25, v25)
    tl.store(out + 26, v26)
    tl.store(out + 27, v27)
    tl.store(out + 28, v28)
    tl.store(out + 29, v29)
    tl.store(out + 30, v30)
    tl.store(out + 31, v31)
    tl.store(out + 32, v32)
    tl.store(out + 33, v33)
    tl.store(out + 34, v34)
    tl.store(out + 35, v35)
    tl.store(out + 36, v36)
    tl.store(out + 37, v37)
    tl.store(out + 38, v38)
    tl.store(out + 39, v39)
    tl.store(out + 40, v40)
    tl.store(out + 41, v41)
    tl.store(out + 42, v42)
    tl.store(out + 43, v43)
    tl.store(out + 44, v44)
    tl.store(out + 45, v45)
    tl.store(out + 46, v46)
    tl.store(out + 47, v47)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1], device=x.device, dtype=x.dtype)
        answer = x.numpy().sum(0).tolist() if os.environ.get("TRITON_INTERPRET") else [0.5] * x.shape[1]
        store_all[(1,)](out, *answer)
        return out
