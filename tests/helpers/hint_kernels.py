"""Kernels that provoke the errors that prompts/templates/v1/hints.toml explains: by hint, the kernel's body (or a whole module).

`COMPILED` is refused when it is compiled for a card; `JUDGED` needs a whole verdict. The task is y = x * scale with x [32, 64].
"""

HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn\n\n"
TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        return x * self.scale

def get_inputs():
    return [torch.rand(32, 64)]

def get_init_inputs():
    return []
"""
PRODUCT_TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x):
        return x @ self.weight

def get_inputs():
    return [torch.rand(32, 64)]

def get_init_inputs():
    return []
"""
_MODEL = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(64))

    def forward(self, x):
        y = torch.empty_like(x)
        {launch}
        return y
"""
_KERNEL = """@triton.jit
def kernel(x, y, scale, N{more}):
    row = tl.program_id(0)
    i = tl.arange(0, 64)
    v = tl.load(x + row * 64 + i)
{body}
    tl.store(y + row * 64 + i, v * tl.load(scale + i))

"""
LAUNCH = "kernel[(32,)](x, y, self.scale, 64)"


def module(body: str = "", *, more: str = "", launch: str = LAUNCH, head: str = "") -> str:
    """A candidate whose kernel has `body` between load and store, further parameters `more`, and lines of its own in front."""
    kernel = _KERNEL.format(more=f", {more}" if more else "", body="\n".join(f"    {line}" for line in body.splitlines()))
    return HEAD + head + kernel + _MODEL.format(launch=launch)


def whole(kernel: str, launch: str) -> str:
    """A candidate with a kernel of its own shape."""
    return HEAD + kernel + _MODEL.format(launch=launch)


_TILE = "a = tl.load(x + i[:, None] % 32 * 64 + i[None, :])\n"
_SPIN = """@triton.jit
def kernel(x, y, scale, bar, P):
    row = tl.program_id(0)
    i = tl.arange(0, 64)
    tl.store(y + row % 32 * 64 + i, tl.load(x + row % 32 * 64 + i) * tl.load(scale + i))
    tl.debug_barrier()
    tl.atomic_add(bar, 1, sem="release")
    while tl.atomic_add(bar, 0, sem="acquire") < P:
        pass

"""

COMPILED: dict[str, str] = {
    "tanh": module("v = tl.tanh(v)"),
    "unknown_function": module("v = tl.silu(v)"),
    "libdevice": module("v = tl.libdevice.tanh(v)"),
    "torch_in_kernel": module("v = torch.exp(v)"),
    "python_max": module("v = tl.max(v, v)"),
    "arange_constexpr": module("j = tl.arange(0, N)"),
    "arange_power_of_two": module("j = tl.arange(0, 48)"),
    "shape_power_of_two": module("z = tl.zeros((48,), tl.float32)"),
    "shape_constexpr": module("z = tl.zeros((N,), tl.float32)"),
    "tile_too_large": module("j = tl.zeros((2048, 1024), tl.float32)"),
    "tensor_index": module("v = v[i]"),
    "tensor_slice": module("v = v[0:32]"),
    "item_assignment": module("v[0] = 1.0"),
    "shapes_do_not_broadcast": module("v = v + tl.arange(0, 32)"),
    "mask_shape": module("tl.store(y + i, v, mask=tl.arange(0, 32) < N)"),
    "store_block_to_scalar": module("tl.store(y, v)"),
    "load_no_pointer": module("v = tl.load(N + i)"),
    "float_offset": module("v = tl.load(x + i / 2)"),
    "float_pointer_store": module("tl.store(v, v)"),
    "dot_dtypes": module(_TILE + "b = tl.dot(a, a.to(tl.float16))"),
    "dot_small": module("j = tl.arange(0, 8)\na = tl.load(x + j[:, None] * 64 + j[None, :])\nb = tl.dot(a, a)"),
    "dot_inner": module(_TILE + "j = tl.arange(0, 32)\nb = tl.dot(a, tl.load(x + j[:, None] * 64 + i[None, :]))"),
    "dot_rank": module("b = tl.dot(v, v)"),
    "branch_on_tensor": module("if v > 0:\n    v = v * 2"),
    "break": module("for k in range(N):\n    if k > 3:\n        break"),
    "continue": module("for k in range(N):\n    if k > 3:\n        continue\n    v = v + 1"),
    "return_in_loop": module("for k in range(N):\n    if k > 3:\n        return"),
    "comprehension": module("w = [v * k for k in range(4)]"),
    "try": module("try:\n    v = v + 1\nexcept ValueError:\n    pass"),
    "loop_carried_dtype": module("t = 0\nfor k in range(N):\n    t = t + 0.5\nv = v + t"),
    "loop_carried_shape": module("t = 0.0\nfor k in range(N):\n    t = t + v\nv = t"),
    "branches_differ": module("if N > 3:\n    t = v\nelse:\n    t = v.to(tl.float16)\nv = v + t"),
    "only_in_a_loop": module("for k in range(N):\n    t = v + k\nv = t"),
    "only_in_a_branch": module("if N > 3:\n    t = v\nv = t"),
    "undefined": module("v = v + offset"),
    "global_variable": module("v = v * FACTOR", head="FACTOR = 2.0\n\n"),
    "atomics_dtype": module("tl.atomic_add(y.to(tl.pointer_type(tl.int8)) + i, i.to(tl.int8))"),
    "atomic_max_float16": module("tl.atomic_max(y.to(tl.pointer_type(tl.float16)) + i, v.to(tl.float16))"),
    "reduction_axis": module("v = v + tl.sum(v, axis=1)"),
    "cat": module(_TILE + "w = tl.cat(v, a)"),
    "split": module("a, b = tl.split(v)"),
    "reshape_size": module("w = tl.reshape(v, (16, 16))"),
    "trans_rank": module("w = tl.trans(v, 1, 0)"),
    "block_pointer_order": module("p = tl.make_block_ptr(x, (32, 64), (64, 1), (0, 0), (16, 16), (0,))"),
    "block_pointer_mask": module("p = tl.make_block_ptr(x, (32, 64), (64, 1), (0, 0), (16, 16), (1, 0))\nw = tl.load(p, mask=i < 4)"),
    "num_warps": module(launch="kernel[(32,)](x, y, self.scale, 64, num_warps=3)"),
    "missing_grid": module(launch="kernel(x, y, self.scale, 64)"),
    "grid_is_no_tuple": module(launch="kernel[32](x, y, self.scale, 64)"),
    "grid_too_large": module(launch="kernel[(1, 70000)](x, y, self.scale, 64)"),
    "missing_argument": module(more="BLOCK: tl.constexpr", launch=LAUNCH),
    "too_many_arguments": module(launch="kernel[(32,)](x, y, self.scale, 64, 64)"),
    "unknown_keyword": module(launch="kernel[(32,)](x, y, self.scale, 64, BLOCK=64)"),
    "list_argument": module(more="sizes", launch="kernel[(32,)](x, y, self.scale, 64, [1, 2])"),
    "none_argument": module("v = v + tl.load(bias + i)", more="bias", launch="kernel[(32,)](x, y, self.scale, 64, None)"),
    "autotune_conflict": module(
        more="BLOCK: tl.constexpr", launch="kernel[(32,)](x, y, self.scale, 64, BLOCK=64)",
        head="@triton.autotune([triton.Config({'BLOCK': 64})], key=['N'])\n",
    ),
    "shared_memory": whole(
        """@triton.jit
def kernel(x, y, scale, N):
    i = tl.arange(0, 128)
    j = tl.arange(0, 128)
    total = tl.zeros((128, 128), tl.float32)
    for k in range(0, N, 128):
        a = tl.load(x + i[:, None] * N + (k + j)[None, :])
        b = tl.load(x + (k + j)[:, None] * N + i[None, :])
        total = tl.dot(a, b, total)
    tl.store(y + i[:, None] * N + j[None, :], total)

""",
        "kernel[(1,)](x, y, self.scale, 4096, num_warps=8, num_stages=5)",
    ),
    "cooperative_too_large": module(launch="kernel[(40000,)](x, y, self.scale, 64, launch_cooperative_grid=True)"),
    "barrier_too_large": whole(_SPIN, "kernel[(40000,)](x, y, self.scale, torch.zeros(1, dtype=torch.int32, device=x.device), 40000)"),
    "descriptor_allocator": module(
        "d = tl.make_tensor_descriptor(x, [32, 64], [64, 1], [16, 64])\nw = d.load([0, 0])\nd.store([16, 0], w)"
    ),
    "import": "import torchvision_extra\n" + module(),
    "syntax": module("v = v +"),
    "jit_in_exec": HEAD + "exec('@triton.jit\\ndef kernel(x):\\n    pass')\n" + _MODEL.format(launch="kernel[(1,)](x)"),
}

_RACE = """@triton.jit
def kernel(x, y, scale, N):
    row = tl.program_id(0)
    i = tl.arange(0, 64)
    tl.store(y + row * 64 + i, tl.load(x + row * 64 + i) * tl.load(scale + i))
    other = tl.load(y + (row + 1) % 32 * 64 + i)
    tl.store(y + row * 64 + i, other)

"""
_DEADLOCK = """@triton.jit
def kernel(x, y, scale, bar, P):
    row = tl.program_id(0)
    i = tl.arange(0, 64)
    tl.store(y + row * 64 + i, tl.load(x + row * 64 + i) * tl.load(scale + i))
    tl.debug_barrier()
    tl.atomic_add(bar, 1, sem="release")
    while tl.atomic_add(bar, 0, sem="acquire") < P:
        pass

"""
_PRODUCT = HEAD + """@triton.jit
def kernel(x, w, y):
    m = tl.arange(0, 32)
    n = tl.arange(0, 64)
    a = tl.load(x + m[:, None] * 64 + n[None, :])
    b = tl.load(w + n[:, None] * 64 + n[None, :])
    tl.store(y + m[:, None] * 64 + n[None, :], DOT)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(64, 64))

    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(1,)](x, self.weight, y)
        return y
"""

JUDGED: dict[str, str] = {
    "torch_in_kernel": COMPILED["torch_in_kernel"],
    "num_warps": COMPILED["num_warps"],
    "missing_grid": COMPILED["missing_grid"],
    "grid_is_no_tuple": COMPILED["grid_is_no_tuple"],
    "missing_argument": COMPILED["missing_argument"],
    "too_many_arguments": COMPILED["too_many_arguments"],
    "list_argument": COMPILED["list_argument"],
    "autotune_conflict": COMPILED["autotune_conflict"],
    "no_model": HEAD + "class Model(nn.Module):\n    pass\n",
    "forward_arguments": module().replace("def forward(self, x)", "def forward(self, x, h)"),
    "init_arguments": module().replace("def __init__(self)", "def __init__(self, size)"),
    "missing_weight": module().replace("self.scale", "self.gain"),
    "weight_shape": module().replace("torch.empty(64)", "torch.empty(64, 1)"),
    "weight_unmapped": module().replace("self.scale = nn.Parameter(torch.empty(64))", "self.scale = torch.ones(64)"),
    "wrong_shape": module().replace("return y", "return y.t()"),
    "wrong_number": module().replace("return y", "return y, y"),
    "wrong_dtype": module().replace("return y", "return y.half()"),
    "never_written": module(launch="kernel[(31,)](x, y, self.scale, 64)"),
    "not_finite": module("v = v / 0.0"),
    "plainly_wrong": module("v = v + 0.25"),
    "reads_outside": module("w = tl.load(x + row * 64 + 64 + i)\nv = tl.where(i < 64, v, w)"),
    "writes_outside": module("tl.store(y + row * 64 + 64 + i, v)"),
    "offset_overflow": module("far = i + 2000000000\nw = tl.load(x + (far + far), mask=i < 64)\nv = tl.where(i < 64, v, w)"),
    "racy": whole(_RACE, LAUNCH),
    "barrier_waits_for_more": whole(_DEADLOCK, "kernel[(32,)](x, y, self.scale, torch.zeros(1, dtype=torch.int32, device=x.device), 33)"),
    "changes_input": module(launch="kernel[(32,)](x, y, self.scale, 64)\n        x.add_(1)"),
    "host_numpy": module(launch=f"{LAUNCH}\n        y = torch.from_numpy(x.numpy() * self.scale.detach().numpy())"),
    "host_view": module(launch="kernel[(32,)](x, y, self.scale, 64)\n        z = y.t().view(-1)"),
    "host_shapes": module(launch="kernel[(32,)](x, y, self.scale, 64)\n        z = y @ y"),
    "exit": module(launch="raise SystemExit"),
    "attribute": module(launch="kernel[(32,)](x, y, self.gain, 64)"),
}
STRICT = {"wrong_on_other_inputs": module("v = tl.minimum(v, 30.0)")}
"""Found by the profile that decides promotion."""
LATE = {"endless": module("while N > 0:\n    v += 1")}
"""Found by a limit of time; judge it with a short one."""
JUDGED_PRODUCTS: dict[str, str] = {
    "tf32": _PRODUCT.replace("DOT", "tl.dot(a, b)"),
    "near_fp32": _PRODUCT.replace("DOT", 'tl.dot(a, b, input_precision="bf16x3")'),
    "half": _PRODUCT.replace("DOT", "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))"),
    "transposed": _PRODUCT.replace("DOT", 'tl.dot(a, tl.trans(b), input_precision="ieee")'),
}

ROWS_TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        y = x - x.amax(dim=-1, keepdim=True)
        return y / (x.var(dim=-1, keepdim=True) + 1.0)

def get_inputs():
    return [torch.rand(32, 50) - 2.0]

def get_init_inputs():
    return []
"""
_ROWS = HEAD + """@triton.jit
def kernel(x, y):
    i = tl.arange(0, 64)
    v = tl.load(x + tl.program_id(0) * 50 + i, mask=i < 50, other=OTHER)
    top = tl.max(v, axis=0)
    real = REAL
    d = CENTRED
    tl.store(y + tl.program_id(0) * 50 + i, (v - top) / (tl.sum(d * d, axis=0) / COUNT + 1.0), mask=i < 50)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y)
        return y
"""
_REAL, _CENTRED = "tl.where(i < 50, v, 0.0)", "tl.where(i < 50, v - tl.sum(real, axis=0) / 50, 0.0)"


def _rows(other: str = "-float('inf')", real: str = _REAL, centred: str = _CENTRED, count: str = "49") -> str:
    filled = _ROWS.replace("OTHER", other).replace("REAL", real).replace("CENTRED", centred)
    return filled.replace("COUNT", count)


JUDGED_ROWS: dict[str, str] = {
    "padded_maximum": _rows(other="0.0"),
    "padded_sum": _rows(real="v", centred="v - tl.sum(real, axis=0) / 50")
    .replace(", other=-float('inf')", "").replace("tl.max(v, axis=0)", "tl.max(v - (i >= 50) * 9.0, axis=0)"),
    "another_formula": _rows(count="50"),
}
"""Kernels of a task with rows that are no power of two."""

HALF_TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [0.25 * torch.randn(96, 256, dtype=torch.float16)]

def get_init_inputs():
    return []
"""
JUDGED_HALVES: dict[str, str] = {
    "half_sums": HEAD + """@triton.jit
def kernel(x, y):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    v = tl.load(x + at).to(tl.float32)
    most = tl.max(v)
    v = tl.exp(v - most)
    total = tl.zeros((4,), tl.float16)
    for start in range(0, 256, 4):
        part = tl.load(x + tl.program_id(0) * 256 + start + tl.arange(0, 4)).to(tl.float32)
        total += tl.exp(part - most).to(tl.float16)
    tl.store(y + at, v / tl.sum(total).to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y)
        return y
""",
}
"""Kernels of a task in fp16."""

HINTS = {
    "float_pointer_store": "load_no_pointer", "only_in_a_loop": "undefined", "only_in_a_branch": "undefined",
    "comprehension": "unsupported_syntax", "try": "unsupported_syntax", "continue": "break", "atomic_max_float16": "atomics_dtype",
    "forward_arguments": "missing_argument", "init_arguments": "missing_argument", "weight_unmapped": "missing_weight",
    "wrong_number": "wrong_shape", "wrong_dtype": "wrong_shape", "not_finite": "never_written", "reads_outside": "out_of_bounds",
    "writes_outside": "out_of_bounds", "transposed": "plainly_wrong", "barrier_waits_for_more": "barrier_deadlock", "endless": "timeout",
    "host_numpy": "foreign_values",
}  # fmt: skip
"""Kernels whose hint has another name."""
