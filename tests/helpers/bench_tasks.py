"""Task files as KernelBench has them: sizes as module-level names, and no word about smaller ones."""

_FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self{arguments}):
        super(Model, self).__init__()
        {init}

    def forward(self, {inputs}):
        return {result}


{sizes}


def get_inputs():
    return [{drawn}]


def get_init_inputs():
    return [{given}]
"""


def write_task(
    sizes: str, drawn: str, result: str, given: str = "", init: str = "pass", inputs: str = "x", arguments: str | None = None
) -> str:
    """The text of a task file; lines of `init` and `sizes` are parted by semicolons, the constructor's arguments are those given."""
    names = arguments if arguments is not None else given
    return _FILE.format(
        arguments=f", {names}" if names else "", init=init.replace("; ", "\n        "), inputs=inputs, result=result,
        sizes=sizes.replace("; ", "\n"), drawn=drawn, given=given,
    )  # fmt: skip


FILES = {
    "matmul": write_task(
        "M = 1024 * 2; K = 4096 * 2; N = 2048 * 2", "torch.rand(M, K), torch.rand(K, N)", "torch.matmul(A, B)", inputs="A, B"
    ),
    "softmax": write_task("batch_size = 4096; dim = 393216", "torch.rand(batch_size, dim)", "torch.softmax(x, dim=1)"),
    "conv2d": write_task(
        "batch_size = 16; in_channels = 16; out_channels = 128; kernel_size = 3; width = 1024; height = 1024",
        "torch.rand(batch_size, in_channels, height, width)", "self.conv(x)", "in_channels, out_channels, kernel_size",
        "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
    ),
    "layer norm": write_task(
        "batch_size = 16; features = 64; dim1 = 256; dim2 = 256", "torch.rand(batch_size, features, dim1, dim2)", "self.ln(x)",
        "(features, dim1, dim2)", "self.ln = nn.LayerNorm(normalized_shape=normalized_shape)", arguments="normalized_shape",
    ),
    "sum over a dimension": write_task(
        "batch_size = 128; dim1 = 4096; dim2 = 4095; reduce_dim = 1", "torch.rand(batch_size, dim1, dim2)",
        "torch.sum(x, dim=self.dim, keepdim=True)", "reduce_dim", "self.dim = reduce_dim",
    ),
    "linear and group norm": write_task(
        "batch_size = 1024; in_features = 8192; out_features = 8192; num_groups = 256", "torch.rand(batch_size, in_features)",
        "torch.nn.functional.hardtanh(self.norm(self.gemm(x)) + self.bias)", "in_features, out_features, num_groups, (out_features,)",
        "self.gemm = nn.Linear(in_features, out_features); self.norm = nn.GroupNorm(num_groups, out_features); "
        "self.bias = nn.Parameter(torch.randn(bias_shape))",
        arguments="in_features, out_features, num_groups, bias_shape",
    ),
    "transposed convolution": write_task(
        "batch_size = 16; in_channels = 32; out_channels = 64; kernel_size = 5; length = 131072; stride = 2",
        "torch.rand(batch_size, in_channels, length)", "self.conv(x)", "in_channels, out_channels, kernel_size, stride",
        "self.conv = nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride)",
    ),
    "cumulative sum": write_task("batch_size = 32768; input_shape = (32768,); dim = 1", "torch.rand(batch_size, *input_shape)",
                                 "torch.cumsum(x, dim=self.dim)", "dim", "self.dim = dim"),
    "loss": write_task(
        "batch_size = 32768; input_shape = (4096,); dim = 1",
        "torch.rand(batch_size, *input_shape), torch.rand(batch_size, *input_shape).softmax(dim=-1)",
        "torch.nn.functional.kl_div(torch.log_softmax(predictions, -1), targets, reduction='batchmean')", inputs="predictions, targets",
    ),
    "attention": write_task(
        "batch_size = 32; num_heads = 32; sequence_length = 512; embedding_dimension = 1024",
        "*(torch.rand(batch_size, num_heads, sequence_length, embedding_dimension) for _ in range(3))",
        "torch.nn.functional.scaled_dot_product_attention(Q, K, V)", inputs="Q, K, V",
    ),
    "heads": write_task(
        "batch_size = 128; max_seqlen = 1024; n_embd = 768; n_head = 12", "torch.rand(batch_size, max_seqlen, n_embd)",
        "self.attention(x, x, x)[0]", "n_embd, n_head", "self.attention = nn.MultiheadAttention(n_embd, n_head, batch_first=True)",
    ),
    "two names for one size": write_task(
        "batch_size, hidden, same = 4096, 4096, 4096", "torch.rand(batch_size, hidden)", "x * self.scale", "same",
        "self.scale = nn.Parameter(torch.randn(same))",
    ),
    "layers of a list": write_task(
        "batch_size = 128; input_size = 16384; layer_sizes = [16384, 8192]; output_size = 4096", "torch.rand(batch_size, input_size)",
        "self.layers(x)", "input_size, layer_sizes, output_size",
        "sizes = [input_size] + layer_sizes + [output_size]; "
        "self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))",
    ),
    "rows that are columns too": write_task(
        "batch_size = 32768; input_shape = (32768,)",
        "torch.rand(batch_size, *input_shape), torch.randint(0, 2, (batch_size,)).float() * 2 - 1",
        "torch.mean(torch.clamp(1 - predictions * targets, min=0))", inputs="predictions, targets",
    ),
    "rates from a tensor": write_task(
        "batch_size = 4096; dim = 4096; depth = 4", "torch.randn(batch_size, dim)", "self.linear(x) * self.rates[-1]", "dim, depth",
        "self.linear = nn.Linear(dim, dim); self.rates = [rate.item() for rate in torch.linspace(0.5, 1.0, depth)]",
    ),
    "needs values": write_task("batch_size = 4096; dim = 4096", "torch.randn(batch_size, dim)", "x * (1.0 + float(x.sum() > 0.0))"),
    "small": write_task("batch_size = 16; dim = 1024", "torch.randn(batch_size, dim)", "torch.tanh(x)"),
    "literal": write_task("dim = 1", "torch.rand(4096, 65536)", "torch.softmax(x, dim=1)"),
    "constant": write_task("batch_size = 1024; dim = 65536", "torch.rand(batch_size, dim)", "x - x"),
    "a size in the model": write_task(
        "batch_size = 4096; in_features = 4096; out_features = 4096", "torch.rand(batch_size, in_features)", "self.linear(x) * self.scale",
        "in_features, out_features", "self.linear = nn.Linear(in_features, out_features); self.scale = nn.Parameter(torch.rand(4096))",
    ),
    "broken": write_task("batch_size = 16; dim = 16384", "torch.rand(batch_size, dim)", "torch.softmax(x, dim=7)"),
    "broken and large": write_task("batch_size = 4096; dim = 393216", "torch.rand(batch_size, dim)", "self.nothing(x)"),
}
"""By what they compute."""
