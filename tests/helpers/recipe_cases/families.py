"""Some fifty small modules across the families of the built-in author, as people write them, of ragged sizes."""

from recipe_cases.regions import RegionCase

FAMILIES = [
    RegionCase(
        "LSTM and head",
        "y, (h, c) = self.rnn(x); return torch.tanh(self.fc(y[:, -1])), h, c",
        "torch.randn(3, 5, 12)",
        init="self.rnn = nn.LSTM(12, 20, 2, batch_first=True); self.fc = nn.Linear(20, 7)",
    ),
    RegionCase(
        "bidirectional GRU",
        "y, h = self.rnn(x); return y.mean(1)",
        "torch.randn(3, 5, 12)",
        init="self.rnn = nn.GRU(12, 16, 1, batch_first=True, bidirectional=True)",
    ),
    RegionCase(
        "GRU cell by hand",
        "return self.cell(x, h) * 2",
        "torch.randn(3, 12), torch.randn(3, 16)",
        init="self.cell = nn.GRUCell(12, 16)",
        arguments="x, h",
    ),
    RegionCase(
        "unrolled recurrence",
        "h = torch.zeros(x.shape[0], 16); for t in range(x.shape[1]):;     h = torch.tanh(self.i(x[:, t]) + self.h(h)); return "
        "h",
        "torch.randn(3, 4, 12)",
        init="self.i = nn.Linear(12, 16); self.h = nn.Linear(16, 16)",
    ),
    RegionCase(
        "MLP",
        "return self.b(F.gelu(self.a(x)))",
        "torch.randn(3, 37, 66)",
        init="self.a = nn.Linear(66, 130); self.b = nn.Linear(130, 50)",
    ),
    RegionCase("matmul of ragged matrices", "return torch.relu(a @ b.T) + 1", "torch.randn(70, 45), torch.randn(33, 45)", arguments="a, b"),
    RegionCase(
        "batched product",
        "return torch.sigmoid(torch.bmm(a, b.transpose(1, 2)) * 0.1)",
        "torch.randn(3, 41, 30), torch.randn(3, 21, 30)",
        arguments="a, b",
    ),
    RegionCase(
        "einsum of four axes",
        "return F.silu(torch.einsum('bhid,bhjd->bhij', a, b))",
        "torch.randn(2, 3, 17, 20), torch.randn(2, 3, 19, 20)",
        arguments="a, b",
    ),
    RegionCase(
        "conv1d dilated",
        "return F.relu(self.c(x))",
        "torch.randn(2, 10, 51)",
        init="self.c = nn.Conv1d(10, 14, 3, padding=4, dilation=4)",
    ),
    RegionCase(
        "conv2d strided",
        "return F.hardswish(self.n(self.c(x)))",
        "torch.randn(2, 5, 19, 17)",
        init="self.c = nn.Conv2d(5, 12, (3, 5), stride=2, padding=(1, 2)); self.n = nn.BatchNorm2d(12)",
    ),
    RegionCase(
        "conv3d",
        "return F.leaky_relu(self.c(x), 0.2)",
        "torch.randn(1, 3, 7, 9, 8)",
        init="self.c = nn.Conv3d(3, 6, 3, padding=1)",
    ),
    RegionCase(
        "grouped conv2d",
        "return torch.tanh(self.c(x))",
        "torch.randn(2, 12, 11, 9)",
        init="self.c = nn.Conv2d(12, 18, 3, groups=3, bias=False)",
    ),
    RegionCase(
        "depthwise separable",
        "return F.relu6(self.p(F.relu6(self.d(x))))",
        "torch.randn(2, 9, 13, 11)",
        init="self.d = nn.Conv2d(9, 9, 3, padding=1, groups=9); self.p = nn.Conv2d(9, 20, 1)",
    ),
    RegionCase(
        "transposed conv2d",
        "return F.elu(self.c(x))",
        "torch.randn(2, 6, 7, 9)",
        init="self.c = nn.ConvTranspose2d(6, 5, 4, stride=2, padding=1)",
    ),
    RegionCase(
        "transposed conv1d and 3d",
        "return F.relu(self.a(x)), F.relu(self.b(y))",
        "torch.randn(2, 6, 17), torch.randn(1, 4, 4, 5, 3)",
        init="self.a = nn.ConvTranspose1d(6, 5, 5, stride=3, padding=1, output_padding=1, dilation=2); self.b = "
        "nn.ConvTranspose3d(4, 3, 3, stride=2)",
        arguments="x, y",
    ),
    RegionCase(
        "causal attention",
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "torch.randn(2, 3, 37, 24), torch.randn(2, 3, 37, 24), torch.randn(2, 3, 37, 24)",
        arguments="q, k, v",
    ),
    RegionCase(
        "masked attention",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        "torch.randn(2, 2, 13, 16), torch.randn(2, 2, 29, 16), torch.randn(2, 2, 29, 16), torch.rand(2, 1, 13, 29) > 0.3",
        arguments="q, k, v, m",
    ),
    RegionCase(
        "cross attention",
        "return self.a(x, y, y, need_weights=False)[0] + x",
        "torch.randn(2, 9, 24), torch.randn(2, 15, 24)",
        init="self.a = nn.MultiheadAttention(24, 3, batch_first=True)",
        arguments="x, y",
    ),
    RegionCase(
        "grouped query attention",
        "k = k.repeat_interleave(2, dim=1); v = v.repeat_interleave(2, dim=1); s = q @ k.transpose(-2, -1) / 4.0; return "
        "torch.softmax(s, -1) @ v",
        "torch.randn(2, 4, 18, 16), torch.randn(2, 2, 18, 16), torch.randn(2, 2, 18, 16)",
        arguments="q, k, v",
    ),
    RegionCase(
        "layer norm and residual",
        "return self.n(x + y) * 2, x + y",
        "torch.randn(5, 7, 130), torch.randn(5, 7, 130)",
        init="self.n = nn.LayerNorm(130)",
        arguments="x, y",
    ),
    RegionCase(
        "RMS norm by hand",
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
        "torch.randn(5, 7, 130)",
        init="self.w = nn.Parameter(torch.rand(130))",
    ),
    RegionCase("group norm and silu", "return F.silu(self.n(x))", "torch.randn(3, 12, 7, 9)", init="self.n = nn.GroupNorm(3, 12)"),
    RegionCase("instance norm 1d", "return self.n(x)", "torch.randn(3, 5, 77)", init="self.n = nn.InstanceNorm1d(5, affine=True)"),
    RegionCase(
        "batch norms",
        "return F.relu(self.a(x)), self.b(y)",
        "torch.randn(13, 50), torch.randn(2, 5, 3, 4, 6)",
        init="self.a = nn.BatchNorm1d(50); self.b = nn.BatchNorm3d(5)",
        arguments="x, y",
    ),
    RegionCase(
        "softmax over dim 1",
        "return torch.softmax(x, 1), F.log_softmax(x, dim=2), torch.logsumexp(x, (2, 3))",
        "torch.randn(3, 11, 9, 14)",
    ),
    RegionCase("arg reductions", "return x.argmax(1), x.argmin(-1), torch.argmax(x), x.min(0)", "torch.randn(7, 33, 21)"),
    RegionCase("scans", "return x.cumsum(0), torch.cumprod(x * 0.1 + 1, 1), x.flip(1).cumsum(1).flip(1)", "torch.randn(9, 130)"),
    RegionCase(
        "exclusive scan",
        "e = torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), dim=1)[:, :-1]; return torch.cumsum(e, dim=1)",
        "torch.randn(9, 130)",
    ),
    RegionCase("whole scan and cummax", "return x.cumsum(1), torch.cummax(x, 1)", "torch.randint(-5, 5, (9, 50))"),
    RegionCase(
        "pools of three kinds",
        "return F.max_pool1d(x, 3, 2, 1), F.avg_pool2d(y, 3, 2, 1), F.max_pool3d(z, 2)",
        "torch.randn(2, 3, 19), torch.randn(2, 3, 9, 11), torch.randn(2, 3, 6, 7, 8)",
        arguments="x, y, z",
    ),
    RegionCase(
        "adaptive and lp pools",
        "return F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 1), F.lp_pool2d(x, 2, 3, stride=2)",
        "torch.randn(2, 3, 12, 10)",
    ),
    RegionCase(
        "regression losses",
        "return F.mse_loss(x, y), F.huber_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y, beta=0.5)",
        "torch.randn(17, 33), torch.randn(17, 33)",
        arguments="x, y",
    ),
    RegionCase(
        "cross entropy smoothing",
        "return F.cross_entropy(x, y, label_smoothing=0.1), F.nll_loss(F.log_softmax(x, -1), y)",
        "torch.randn(17, 33), torch.randint(0, 33, (17,))",
        arguments="x, y",
    ),
    RegionCase(
        "divergence losses",
        "p = F.log_softmax(x, -1); return F.kl_div(p, y.softmax(-1), reduction='batchmean'), "
        "F.binary_cross_entropy_with_logits(x, y.sigmoid())",
        "torch.randn(17, 33), torch.randn(17, 33)",
        arguments="x, y",
    ),
    RegionCase(
        "ranking losses",
        "return F.triplet_margin_loss(x, y, z), F.cosine_embedding_loss(x, y, t), F.hinge_embedding_loss(x[:, 0], t), "
        "torch.clamp(1 - x * y, min=0).mean()",
        "torch.randn(17, 33), torch.randn(17, 33), torch.randn(17, 33), torch.randint(0, 2, (17,)) * 2 - 1",
        arguments="x, y, z, t",
    ),
    RegionCase(
        "embeddings",
        "return self.n(self.a(i) + self.b(j))",
        "torch.randint(0, 40, (3, 11)), torch.arange(11)",
        init="self.a = nn.Embedding(40, 24); self.b = nn.Embedding(16, 24); self.n = nn.LayerNorm(24)",
        arguments="i, j",
    ),
    RegionCase(
        "gathers",
        "return torch.gather(x, 1, i), x.index_select(0, j), x[j] * 2, x[:, j]",
        "torch.randn(9, 12), torch.randint(0, 12, (9, 5)), torch.randint(0, 9, (4,))",
        arguments="x, i, j",
    ),
    RegionCase(
        "scatters",
        "a = torch.zeros_like(x).scatter_add(1, i, y); return a * 2 + x, x.index_add(0, i[0], y[0, 0] * x[:5])",
        "torch.randn(9, 9), torch.randint(0, 9, (9, 5)), torch.randn(9, 5)",
        arguments="x, i, y",
    ),
    RegionCase(
        "broadcast chain",
        "return torch.exp(-(x - y) ** 2) * z + torch.sin(x) / (1 + y.abs())",
        "torch.randn(7, 1, 13), torch.randn(5, 1), torch.randn(7, 5, 13)",
        arguments="x, y, z",
    ),
    RegionCase(
        "views and joins",
        "a, b = x.chunk(2, dim=1); c = torch.split(y, [3, 4, 5], dim=1); return torch.cat([a * b, c[1]], 1), torch.stack([a, "
        "b], 2).flatten(1), c[2][:, ::2].transpose(0, 1) + 1",
        "torch.randn(6, 10), torch.randn(6, 12)",
        arguments="x, y",
    ),
    RegionCase(
        "masks of several types",
        "return torch.where(m, x, -x), x.masked_fill(~m, 0.5), (n > 2) & m, n * 3 - 1, m.sum(), (n % 3).to(torch.int32), "
        "n.float() / 3",
        "torch.randn(6, 11), torch.rand(6, 11) > 0.4, torch.randint(-5, 9, (6, 11))",
        arguments="x, m, n",
    ),
    RegionCase(
        "dictionary of results",
        "return {'mean': x.mean(), 'rows': (x.sum(1), x.amax(1)), 'big': x > 1, 'count': (x > 1).sum()}",
        "torch.randn(14, 19)",
    ),
    RegionCase(
        "half precision chain",
        "return F.gelu(x) * x.float().mean(-1, keepdim=True), (y * 2 + 1).softmax(-1), x.float() + y.float()",
        "torch.randn(5, 66, dtype=torch.bfloat16), torch.randn(5, 66, dtype=torch.float16)",
        arguments="x, y",
    ),
    RegionCase(
        "strided inputs",
        "return torch.relu(x) + y.sum(1, keepdim=True), y.softmax(0)",
        "torch.randn(12, 9).t(), torch.randn(9, 24)[:, ::2]",
        arguments="x, y",
    ),
    RegionCase(
        "resampling",
        "return F.interpolate(x, scale_factor=2), F.interpolate(x, size=(9, 5), mode='bilinear', align_corners=False), "
        "F.pad(x, (1, 2, 0, 1), mode='reflect'), torch.roll(x, (1, -2), (2, 3)), torch.flip(x, [2])",
        "torch.randn(2, 3, 6, 8)",
    ),
    RegionCase(
        "pools of uneven parts and places of maxima",
        "return F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool1d(x.flatten(2), 5), "
        "*F.max_pool2d(F.relu(x), 3, stride=2, padding=1, return_indices=True)",
        "torch.randn(2, 3, 11, 9)",
    ),
    RegionCase(
        "equal passes around a write",
        "y = x + 0; a = torch.cumsum(y, 1); b = torch.cumsum(y, 1); y.mul_(3); c = torch.cumsum(y, 1); a.add_(1); return a, b, c",
        "torch.randn(5, 30)",
    ),
    RegionCase(
        "places among sorted numbers",
        "b = torch.cumsum(x.abs(), -1); return torch.searchsorted(b, y), torch.searchsorted(b[0], y, side='right'), "
        "torch.bucketize(x, b[1]), torch.bucketize(x, b[1], right=True) * 2",
        "torch.randn(4, 15), torch.rand(4, 6) * 8",
        arguments="x, y",
    ),
    RegionCase(
        "sampling at places",
        "g = F.affine_grid(t, x.shape, align_corners=False); return F.grid_sample(x, g, align_corners=False), "
        "F.grid_sample(x, p, mode='nearest', align_corners=False), "
        "F.grid_sample(x, p, padding_mode='border', align_corners=True) + F.affine_grid(t, (2, 1, 5, 7), align_corners=True).sum()",
        "torch.randn(2, 3, 6, 8), torch.rand(2, 2, 3) - 0.3, torch.rand(2, 5, 7, 2) * 2.6 - 1.3",
        arguments="x, t, p",
    ),
    RegionCase("triangles", "return torch.triu(x), torch.tril(x, -1) @ x, torch.tril(torch.ones(9, 9))[None] * x", "torch.randn(2, 9, 9)"),
    RegionCase("sorted", "v, i = torch.topk(x, 4, dim=1); return torch.softmax(v, 1), i, torch.sort(x, 1)[0] * 2", "torch.randn(7, 30)"),
    RegionCase(
        "one hot",
        "return F.one_hot(i, 11).float() @ x, F.one_hot(i, 11) * 2",
        "torch.randint(0, 11, (17,)), torch.randn(11, 6)",
        arguments="i, x",
    ),
    RegionCase(
        "numbers as tensors",
        "return torch.min(self.c(x), torch.tensor(0.5)) * torch.tensor(2.0) + torch.tensor([3])",
        "torch.randn(2, 6, 17)",
        init="self.c = nn.Conv1d(6, 5, 3)",
    ),
    RegionCase(
        "attention of one query",
        "s = q @ k.transpose(2, 3) * 0.25; return torch.softmax(s, -1) @ v",
        "torch.randn(3, 2, 1, 16), torch.randn(3, 2, 10, 16), torch.randn(3, 2, 10, 16)",
        arguments="q, k, v",
    ),
    RegionCase(
        "sizes that are sliced",
        "h, w = x.shape[-2:]; y = torch.zeros(x.shape[:2] + (3,), device=x.device); "
        "return F.glu(x.reshape(*x.shape[:2], h * w), dim=1), x.mean((2, 3), keepdim=True).squeeze(-1) + y",
        "torch.randn(2, 6, 3, 5)",
    ),
    RegionCase(
        "cells in a loop",
        "for t in range(x.size(0)):;     h, c = self.cell(x[t], (h, c)); return h, c, self.other(x[0], h)",
        "torch.randn(3, 3, 9), torch.randn(3, 14), torch.randn(3, 14)",
        init="self.cell = nn.LSTMCell(9, 14); self.other = nn.RNNCell(9, 14)",
        arguments="x, h, c",
    ),
    RegionCase(
        "rims and neighbours of channels",
        "return F.relu(self.c(x)), F.local_response_norm(x, 3), F.prelu(x, self.w), F.unfold(x, 3, padding=1)",
        "torch.randn(2, 3, 9, 7)",
        init="self.c = nn.Conv2d(3, 8, 3, padding=1, padding_mode='reflect'); self.w = nn.Parameter(torch.rand(3))",
    ),
    RegionCase(
        "weights of classes",
        "return F.cross_entropy(x, y, weight=self.w, label_smoothing=0.2, ignore_index=3), F.nll_loss(x, y, weight=self.w)",
        "torch.randn(31, 11), torch.randint(0, 11, (31,))",
        init="self.register_buffer('w', torch.rand(11) + 0.5)",
        arguments="x, y",
    ),
    RegionCase(
        "grids and factors that are not whole",
        "g = torch.meshgrid(torch.linspace(0, 1, 6), torch.linspace(-1, 1, 8), indexing='xy'); "
        "return x.transpose(2, 3) * g[0] + g[1], F.interpolate(x, scale_factor=1.7, mode='bilinear'), F.interpolate(x, size=(7, 11)), "
        "F.pad(x, (2, 1, 1, 0), mode='replicate'), F.lp_pool2d(x, 1, 3)",
        "torch.randn(2, 3, 6, 8)",
    ),
]
