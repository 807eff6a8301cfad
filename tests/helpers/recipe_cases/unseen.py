"""Small modules of kinds that the built-in author once refused or got wrong, as others wrote them."""

from recipe_cases.regions import RegionCase

UNSEEN = [
    RegionCase(
        "recurrent layers with odd options",
        "y, h = self.a(x); z, (n, c) = self.b(y); return self.d(z.relu()), h, n, c, self.e(z[0]), self.f(y[:, 0])[0].tanh()",
        "torch.randn(6, 3, 5)",
        init="self.a = nn.RNN(5, 9, 2, nonlinearity='relu', bias=False); self.b = nn.LSTM(9, 7, proj_size=4); "
        "self.d = nn.Linear(4, 40); self.e = nn.RNNCell(4, 6, nonlinearity='relu'); self.f = nn.GRU(9, 3)",
    ),
    RegionCase(
        "writes in place",
        "y = x * 2; z, t, row = y.view(-1), y.t(), y[1]; z[3:7] = 5.0; t[0] += 1; row.mul_(3); before = y + 0; y[:, -1] = 0; "
        "a, b = t.split([2, 3]); b.neg_(); a.copy_(torch.ones_like(a)); y.unbind(0)[2].zero_(); "
        "return before, y, z * 1, t + 0, row + 0, a + b[:2]",
        "torch.randn(4, 5)",
    ),
    RegionCase(
        "writes to parts, masks and places",
        "p = torch.empty(x.shape[0] + 2, 9); p.fill_(0.5); p[1:-1] = x; p[:, ::2] = torch.sin(p[:, 1::2].repeat(1, 2))[:, :5]; "
        "y = x.exp(); y[x > 1] = 0.25; y[m] = -1.0; hot = torch.zeros_like(x); hot[torch.arange(5), i] = 1.0; hot.fill_diagonal_(3.0); "
        "return p, y, hot * 2, torch.slice_scatter(x, y[:, :3], 1, 2, 8, 2)",
        "torch.randn(5, 9), torch.tensor([3, 0, 5, 2, 6]), torch.rand(5) > 0.5",
        arguments="x, i, m",
    ),
    RegionCase(
        "running statistics while training",
        "y = self.b(F.relu(self.a(x))) + self.a(x * 2); self.m.mul_(0.9).add_(y.mean((0, 2, 3)), alpha=0.1); self.n += 1; "
        "return y - self.m[0]",
        "torch.randn(3, 4, 5, 6)",
        init="self.a = nn.BatchNorm2d(4, momentum=None); self.b = nn.BatchNorm2d(4, affine=False); "
        "self.register_buffer('m', torch.zeros(4)); self.register_buffer('n', torch.zeros((), dtype=torch.long))",
        mode="train",
    ),
    RegionCase(
        "norms by running statistics, and places that a kernel finds",
        "i = x.max(1, keepdim=True)[1]; y, j = self.p(x[None, None]); return self.a(x[None]), torch.zeros_like(x).scatter_(1, i, 1.0) + x, "
        "self.u(y * 2, j), torch.tensor([0.5, 1.5, 2.5], device=x.device) * x[:, :3]",
        "torch.randn(6, 8)",
        init="self.a = nn.InstanceNorm1d(6, affine=True, track_running_stats=True); self.p = nn.MaxPool2d(2, return_indices=True); "
        "self.u = nn.MaxUnpool2d(2)",
    ),
    RegionCase(
        "tensors that no state holds",
        "m = self.mask[: x.size(-2), : x.size(-1)].to(x.device); y = (x + self.p.table[:, : x.size(1)]).masked_fill(~m, 0.0); "
        "return y * torch.tensor([[1.0, -2.0, 0.5]], device=x.device).repeat(1, 3)",
        "torch.randn(3, 9, 9)",
        init="self.mask = torch.tril(torch.ones(16, 16)).bool(); self.p = nn.Module(); "
        "self.p.register_buffer('table', torch.arange(20.0).cos()[None, :, None], persistent=False)",
    ),
    RegionCase(
        "weights that are computed",
        "return torch.relu(self.a(x)), self.b(self.a(x).flatten(2)[..., :5])",
        "torch.randn(2, 3, 6, 7)",
        init="self.a = torch.nn.utils.weight_norm(nn.Conv2d(3, 4, 3)); "
        "self.b = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(5, 6))",
    ),
    RegionCase(
        "records of results",
        "R = __import__('collections').namedtuple('R', ['low', 'rest']); return R(x.amin(1), (x.tanh(), x.sum()))",
        "torch.randn(5, 7)",
    ),
    RegionCase(
        "equations of several tensors",
        "e = torch.einsum; return e('bi,ijk,bk->bj', x, self.w, y), e('ij,jk,kl->il', x, x.t(), y), e('...i,i->...', x, x[0]), "
        "e('bb->b', x[:, :9]), e('bi,bj->bij', x, y), torch.tensordot(x, self.w, 1), self.b(x, y), torch.kron(x[:2], y[:2])",
        "torch.randn(9, 10), torch.randn(9, 4)",
        init="self.w = nn.Parameter(torch.rand(10, 3, 4)); self.b = nn.Bilinear(10, 4, 5)",
        arguments="x, y",
    ),
    RegionCase(
        "functions of elements",
        "return torch.clamp(x, y - 0.5, y + 0.5), torch.div(n, 3, rounding_mode='floor'), torch.div(n, 3, rounding_mode='trunc'), "
        "n << 2, ~n, torch.logaddexp(x, y) + torch.xlogy(x.abs(), y.abs()) + torch.frac(x) + torch.asinh(y), "
        "torch.nan_to_num(x / (n > 0)), torch.copysign(x, y) + torch.lgamma(y.abs() + 1) + torch.sinc(x), "
        "(n > 0) * (n > 2), n**2, torch.logit(x.sigmoid(), 1e-3)",
        "torch.randn(6, 11), torch.randn(6, 11), torch.randint(-9, 9, (6, 11))",
        arguments="x, y, n",
    ),
    RegionCase(
        "losses with weights",
        "return self.a(x, y.sigmoid()), self.b(x, t), F.multilabel_soft_margin_loss(x, (y > 0).float()), F.huber_loss(x, y, 'sum', 0.5), "
        "self.c(x.exp(), y.abs()), F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), y.abs())",
        "torch.randn(9, 4), torch.randn(9, 4), torch.randint(0, 4, (9,))",
        init="w = torch.tensor([1.0, 2.0, 0.5, 3.0]); self.a = nn.BCEWithLogitsLoss(pos_weight=w); self.b = nn.MultiMarginLoss(weight=w); "
        "self.c = nn.PoissonNLLLoss(log_input=False, full=True)",
        arguments="x, y, t",
    ),
    RegionCase(
        "bags, distances and differences",
        "return self.a(i), self.b(i, per_sample_weights=w), torch.cdist(w, w + 1), torch.diff(w, dim=0), "
        "torch.cross(w[:, :3], w[:, 3:6], dim=1), "
        "torch.count_nonzero(w > 0.5, dim=1), torch.rot90(w), torch.hstack([w, w * 2]), torch.aminmax(w, dim=1)[1]",
        "torch.randint(0, 20, (5, 7)), torch.rand(5, 7)",
        init="self.a = nn.EmbeddingBag(20, 6, mode='mean', padding_idx=0); self.b = nn.EmbeddingBag(20, 6, mode='sum')",
        arguments="i, w",
    ),
    RegionCase(
        "recurrent layers between other work",
        "y, (h, c) = self.a(F.silu(x), (s, s * 2)); z, n = self.b(self.n(y).transpose(0, 1)); return z.amax(0), c.mean(0), h[1], n",
        "torch.randn(3, 5, 7), torch.randn(4, 3, 18)",
        init="self.a = nn.LSTM(7, 18, 2, batch_first=True, bidirectional=True); self.n = nn.LayerNorm(36); "
        "self.b = nn.GRU(36, 33, bias=False)",
        arguments="x, s",
    ),
    RegionCase(
        "heads of other widths",
        "y, w = self.a(q, k, v); return y + self.b(q, q, q, need_weights=False)[0], w",
        "torch.randn(2, 7, 12), torch.randn(2, 9, 10), torch.randn(2, 9, 8)",
        init="self.a = nn.MultiheadAttention(12, 3, kdim=10, vdim=8, batch_first=True, bias=False); "
        "self.b = nn.MultiheadAttention(12, 2, add_bias_kv=True, add_zero_attn=True)",
        arguments="q, k, v",
    ),
    RegionCase(
        "complex numbers",
        "q = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * self.f[: x.shape[1]]; g = q / (q.conj() + 3.0) - 1j * q.abs(); "
        "return torch.view_as_real(q).flatten(-2), g, torch.angle(g).cos(), torch.cat([q.real, q.imag], -1)",
        "torch.randn(2, 7, 8)",
        init="self.register_buffer('f', torch.polar(torch.ones(9, 4), torch.arange(36.0).view(9, 4)), persistent=False)",
    ),
    RegionCase(
        "products of spectra",
        "f = torch.fft.rfft2(x); o = torch.zeros_like(f); o[..., :2, :3] = torch.einsum('bixy,ioxy->boxy', f[..., :2, :3], self.w); "
        "o[..., -2:, :3] *= 0.5; return F.gelu(torch.fft.irfft2(o, s=x.shape[-2:]) + x)",
        "torch.randn(2, 3, 8, 10)",
        init="self.w = nn.Parameter(torch.rand(3, 3, 2, 3, dtype=torch.cfloat))",
    ),
    RegionCase(
        "places of several axes",
        "return x[[0, 2]] * 2, x[..., i, 0], x[i, None, :, 1], x[torch.tensor([1, 0]), :, torch.tensor([2, 3])], self.w[0](x[0])",
        "torch.randn(4, 5, 6), torch.tensor([0, 3, 1])",
        init="self.w = nn.ModuleList([nn.Linear(6, 40)])",
        arguments="x, i",
    ),
    RegionCase(
        "several arguments and factorizations",
        "m = rest[0]; s = m @ m.T + 5 * torch.eye(6); return x.relu() + rest[1], torch.linalg.cholesky(s).diagonal().log().sum(), "
        "torch.addr(m, m[0], m[1], alpha=2), torch.addmv(m[0], m, m[1], beta=0.5)",
        "torch.randn(5, 6), torch.randn(6, 6), torch.randn(5, 6)",
        arguments="x, *rest",
    ),
    RegionCase(
        "running extremes and logarithms",
        "return torch.logcumsumexp(x * 30, -1), *torch.cummax(x, 1), torch.cummin(n, 0)[0], torch.logcumsumexp(x, 0), "
        "torch.cummax(x.repeat(50, 1), 0)[0]",
        "torch.randn(7, 130), torch.randint(-9, 9, (9, 50))",
        arguments="x, n",
    ),
    RegionCase(
        "quotients of whole numbers and of fractions",
        "return n // m, n % m, torch.fmod(n, -m), torch.div(n, m, rounding_mode='trunc'), u % w, u // w, ~u, u % 201, u - w, "
        "x // 0.1, x % 0.1, torch.remainder(x, -y), torch.floor_divide(x, y), torch.round(y * 7, decimals=1)",
        "torch.randint(-50, 50, (5, 33)), torch.randint(1, 9, (5, 33)), torch.randint(0, 256, (5, 33)).byte(), "
        "torch.randint(200, 256, (5, 33)).byte(), torch.arange(-80, 85).view(5, 33) * 0.1, torch.rand(5, 33) + 0.2",
        arguments="n, m, u, w, x, y",
    ),
    RegionCase(
        "sums and extremes by place",
        "a = x.scatter_reduce(1, i, y, 'mean'), x.scatter_reduce(1, i, y[:, :5], 'amax', include_self=False); "
        "b = x.index_add(0, j, y[:4, :1].expand(4, 7), alpha=-2); c = (x > 0).long().scatter_add(1, i, i * 2); "
        "d = torch.ones_like(x).scatter(1, i, 0.5); e = x.new_full((9, 6), float('inf')).index_reduce(0, k, y, 'amin'); "
        "return *a, b, c, d, e, torch.zeros(3, 4).index_add(1, torch.tensor([3, 0, 3]), x[:3, :3].t())",
        "torch.randn(9, 7), torch.randint(0, 7, (9, 5)), torch.randn(9, 6), torch.randint(0, 9, (4,)), torch.randint(0, 9, (9,))",
        arguments="x, i, y, j, k",
    ),
    RegionCase(
        "counts",
        "return torch.bincount(n, minlength=9) * 2, torch.bincount(n[:100] % 4, x[0, :100], 4), torch.histc(x, 10, -0.5, 1.5), "
        "torch.histc(x.abs(), bins=2000, min=0, max=4).cumsum(0)",
        "torch.rand(3, 133) * 3 - 1, torch.randint(0, 9, (2000,))",
        arguments="x, n",
    ),
    RegionCase(
        "attention along the edges of a graph",
        "a, b = e; s = F.leaky_relu((torch.cat([h[a], h[b]], -1) * w).sum(-1)); i = b[:, None].expand(-1, 2); "
        "m = s.new_full((13, 2), float('-inf')).scatter_reduce(0, i, s, 'amax'); p = (s - m[b]).exp(); "
        "z = torch.zeros_like(m).scatter_add(0, i, p); return torch.zeros_like(h).index_add(0, b, h[a] * (p / z[b])[..., None])",
        "torch.randn(13, 2, 8), torch.randint(0, 13, (2, 40)), torch.randn(2, 16)",
        arguments="h, e, w",
    ),
    RegionCase(
        "rows in order",
        "v, i = torch.sort(h, dim=1, descending=True); "
        "return v, x.argsort(1).argsort(1), torch.sort(n, 1)[0], *torch.kthvalue(x, 5, 0), torch.median(n), torch.msort(x), "
        "torch.quantile(x, 0.37), *torch.topk(x, 4, largest=False), torch.median(x, 1)[1], torch.sort(n.long(), 0, descending=True)[0], "
        "torch.topk(x.relu(), 3)[0].softmax(-1), torch.quantile(x, 0.5, dim=0, keepdim=True)",
        "torch.randn(5, 33), torch.randn(3, 40, 6).half(), torch.randint(-90, 90, (4, 17)).int()",
        arguments="x, h, n",
    ),
    RegionCase(
        "experts that are chosen",
        "p, i = torch.topk(self.g(x).softmax(-1), 2); y = torch.einsum('td,tkdf->tkf', x, self.w[i]); "
        "return (y * (p / p.sum(-1, keepdim=True))[..., None]).sum(1), torch.bincount(i.flatten(), minlength=6), "
        "x - x.median(1)[0][:, None]",
        "torch.randn(5, 24)",
        init="self.g = nn.Linear(24, 6); self.w = nn.Parameter(torch.randn(6, 24, 16) * 0.1)",
    ),
    RegionCase(
        "rows too long to be put in order",
        "return x.median(1)[0] * 2, x[:, :300].topk(5)[0] + 1, torch.sort(x.double(), 1)[0] + 1, x[:, :1000].sort(1)[0]",
        "torch.randn(2, 1500)",
    ),
    RegionCase(
        "diagonals and covariances",
        "w = y @ y.T; w.diagonal().add_(1.0); z = x * 1; z.diagonal(-1, dim1=1, dim2=2).zero_(); "
        "return w, z, x.diagonal(1, 1, 2), x.diagonal(-2, dim1=2, dim2=0), torch.diag(y, -1), torch.diag_embed(y, 1), torch.diag(y[0], 2), "
        "torch.diag_embed(y, -2, 0, 2), torch.linalg.diagonal(x, offset=-1), torch.cov(y) * 2, torch.corrcoef(y)",
        "torch.randn(3, 5, 7), torch.randn(4, 6)",
        arguments="x, y",
    ),
    RegionCase(
        "smooth resampling",
        "i = F.interpolate; return i(x, size=(13, 11), mode='bicubic'), i(x, size=(4, 15), mode='bicubic', align_corners=True), "
        "i(x, scale_factor=1.7, mode='bicubic'), i(x[0], size=17, mode='nearest-exact'), i(x, scale_factor=3, mode='nearest-exact')",
        "torch.randn(2, 3, 9, 7)",
    ),
    RegionCase(
        "largest ones among equal ones",
        "k = h * (F.max_pool2d(h, 3, 1, 1) == h).float(); s, i = k.flatten(1).topk(20); return s, i // 9, torch.kthvalue(n, 3)[1] + 1, "
        "torch.sort(n, 1)[1] * 2, torch.sort(n, dim=1, stable=True, descending=True)[1] - 1, torch.relu(h - 0.7).flatten(1).argsort(1)",
        "torch.rand(2, 1, 9, 9), torch.randint(0, 5, (4, 17)).int()",
        arguments="h, n",
    ),
    RegionCase(
        "steps that are written to places of a tensor",
        "a = torch.zeros(3, 11, 5); a[:, 0] = x[:, 0]; for t in range(1, 11):;     a[:, t] = torch.logsumexp(a[:, t - 1, None] + w, 2) + "
        "x[:, t]; y = x.clone(); for t in range(1, 9):;     y[:, t, :] = torch.tanh(y[..., t - 1, :]) + y.select(1, t + 1); y[:, 3] = 0.5; "
        "row = y[:, 4]; row.mul_(2); d = torch.full((3, 4, 4), 9.0); d[:, 0, 0] = 0; for i in range(1, 4):;     "
        "for j in range(1, 4):;         d[:, i, j] = x[:, i, j] + torch.minimum(d[:, i - 1, j], d[:, i, j - 1]); "
        "self.m[1] = x[0, 0]; self.m[2] = self.m[1] * 2 + self.m[0]; return a, a[:, -1], y, y[:, 4] + row, d[:, 3, -1], self.m.sum(0)",
        "torch.randn(3, 11, 5), torch.randn(5, 5)",
        init="self.register_buffer('m', torch.arange(20.0).view(4, 5))",
        arguments="x, w",
    ),
    RegionCase(
        "bits of bytes, and places and numbers side by side",
        "b = (z[..., None] >> torch.arange(8, dtype=torch.uint8)) & 1; y = x.clone(); y[torch.arange(3), -1] += 1.0; "
        "y[i, 1] = x[:, 0]; return b.bool(), (b.int() << torch.arange(8)).sum(-1), y, x.roll(2), x.conj() + 1, "
        "self.m[1](F.dropout2d(self.m[0](x)[:, :, None, None], training=self.training)), self.m[2](x)[0]",
        "torch.randn(3, 7), torch.randint(0, 256, (8, 5)).byte(), torch.tensor([2, 0, 1])",
        init="self.m = nn.ModuleList([nn.AlphaDropout(0.2), nn.Dropout2d(0.1), nn.LSTM(7, 4, proj_size=2)])",
        arguments="x, z, i",
    ),
    RegionCase(
        "steps of stencils",
        "for _ in range(6):;     p = F.pad(x, (1, 1, 1, 1)); "
        "    x = x + 0.1 * (p[..., 2:, 1:-1] + p[..., :-2, 1:-1] + p[..., 1:-1, 2:] + p[..., 1:-1, :-2] - 4 * x); "
        "for _ in range(9):;     y = torch.tanh(y.roll(1, 1) - y.roll(-1, 1)); return x, y.sum(1)",
        "torch.randn(2, 1, 7, 9), torch.randn(3, 33)",
        arguments="x, y",
    ),
    RegionCase(
        "a state that an argument overwrites",
        "self.h.copy_(h); self.h = self.h.to(x.device); self.h = torch.tanh(self.a(torch.cat((x, self.h), 1))); return self.b(self.h)",
        "torch.randn(4, 5), torch.randn(4, 6)",
        init="self.h = torch.randn(4, 6); self.a = nn.Linear(11, 6); self.b = nn.Linear(6, 3)",
        arguments="x, h",
    ),
    RegionCase(
        "elements that a mask picks",
        "y = x.clone(); y[y < 0] *= 0.1; y[y > 1] = torch.sqrt(y[y > 1]) - n; y[m] = y[m].exp() + 0.5; "
        "t = x[m]; t.mul_(2); return t.sum() * 2, x[m].mean(0), x[m].sum(dim=0) + n, y, ((x - y) ** 2)[x > -1].mean(), x[m].sum() + 1, "
        "torch.masked_select(x, x > 0.5).mean()",
        "torch.randn(6, 9), torch.randn(()), torch.tensor([1, 0, 1, 1, 0, 0]).bool()",
        arguments="x, n, m",
    ),
    RegionCase(
        "numbers that forward writes out",
        "w = torch.tensor([[0.299, 0.587, 0.114], [0.5, -0.42, -0.08]]); return torch.tensordot(x, w, dims=([1], [1])), "
        "torch.quantile(x.flatten(1), torch.tensor([0.1, 0.5]), dim=1) * 2",
        "torch.rand(2, 3, 4, 5)",
    ),
    RegionCase(
        "one element alone, and rows of infinities",
        "y = x.masked_fill(m, float('-inf')); b, = x[:1].chunk(1); return a.softmax(-1), a.sum() * 2, a.cumsum(0), "
        "a.argmax(), a.std(unbiased=False), c.exp().sum(), c.max(1), c.mean() + c.sort(1)[0], "
        "F.max_pool2d(c[None], 1, return_indices=True), b + 1, torch.logsumexp(c, 1), "
        "torch.logsumexp(y, 1), torch.logsumexp(y, 0), torch.logsumexp(y.repeat(1, 900), 1), torch.logaddexp(y, y.flip(1)), "
        "torch.logsumexp(-y, 0), torch.broadcast_tensors(x, a)[1] * x, torch.gradient(x[0])[0] * 2",
        "torch.randn(()), torch.randn(1, 1), torch.randn(4, 5), torch.tensor([1, 0, 1, 1, 0]).bool().repeat(4, 1) | torch.eye(4, 5).bool()",
        arguments="a, c, x, m",
    ),
    RegionCase(
        "tensors without elements",
        "past = x[:, :0]; k = torch.cat([past, x], 1); z, = past.split(4); return k.softmax(1), x[:0].sum(0) + x, x[:, 2:2].mean(), "
        "past.any(1), torch.linalg.vector_norm(past) + 1, F.pad(past, (1, 1)) + x[:, :2], torch.linalg.multi_dot([z.T, x, x.T]).sum() + x",
        "torch.randn(3, 4)",
    ),
    RegionCase(
        "distributions",
        "D = torch.distributions; m, s = x.chunk(2, -1); s = F.softplus(s); q = D.Normal(m, s); c = D.Categorical(logits=x); "
        "return q.log_prob(y).sum(-1), q.entropy(), c.log_prob(n), c.entropy(), self.p.log_prob(y), "
        "D.kl_divergence(q, D.Normal(y, s + 1)), "
        "D.Bernoulli(logits=m).log_prob((y > 0).float()), D.Gamma(s, s).log_prob(s), D.Independent(D.Laplace(m, s), 1).log_prob(y)",
        "torch.randn(5, 6), torch.randn(5, 3), torch.randint(0, 6, (5,))",
        init="self.p = torch.distributions.Normal(0.0, 1.0)",
        arguments="x, y, n",
    ),
    RegionCase(
        "spectra by frames",
        "if x.shape[1] > 9: x = x * 2; s = torch.stft(x, 16, 4, window=self.w, return_complex=True); "
        "return torch.istft(s * (s.abs() > 0.5), 16, 4, window=self.w, length=x.shape[1]) + 1, torch.cov(x) * 2",
        "torch.randn(2, 64)",
        init="self.register_buffer('w', torch.hann_window(16))",
    ),
    RegionCase(
        "modules in a mode of their own",
        "self.f.eval(); self.d.eval(); return F.relu(self.f(self.c(x))) + self.b(self.d(x)), self.i(x), (u * 300 + (-3)) // 2",
        "torch.randn(3, 4, 5, 6), torch.randint(0, 255, (7, 3)).byte()",
        init="self.c = nn.Conv2d(4, 4, 3, padding=1); self.f = nn.BatchNorm2d(4).eval(); self.d = nn.Dropout(0.5).eval(); "
        "self.b = nn.BatchNorm2d(4); self.i = nn.InstanceNorm2d(4, track_running_stats=True, affine=True, momentum=0.3); "
        "self.train = lambda mode=True: (nn.Module.train(self, mode), self.f.eval(), self.d.eval())[0]",
        arguments="x, u",
        mode="train",
    ),
    RegionCase(
        "tensors in lists and dicts",
        "w = {'weight': self.a.weight * x.mean(), 'bias': self.ws[1]}; y = torch.func.functional_call(self.a, w, (x,)); "
        "return F.relu(y) @ self.ws[0], x * self.t['low'][0, 1] + self.t['rest'][0]",
        "torch.randn(4, 6)",
        init="self.a = nn.Linear(6, 6); self.b = nn.Parameter(torch.ones(6)); self.ws = [self.a.weight, self.b]; "
        "self.t = {'low': torch.tensor([[1.0, 2.0]]), 'rest': (torch.arange(6), None)}",
    ),
    RegionCase(
        "arguments that forward writes to",
        "before = x.clone(); x.add_(1); y.t()[0] = 0; cache[:, 2:3] = x[:, None, :3]; h = h.float(); h += 1; z.mul_(1j); "
        "return x * 2, before, y, cache, x.t(), h, z.abs()",
        "torch.randn(4, 6), torch.randn(4, 6), torch.randn(5, 4, 3).transpose(0, 1), torch.randn(3).half(), "
        "torch.randn(4, dtype=torch.cfloat)",
        arguments="x, y, cache, h, z",
    ),
    RegionCase(
        "rims that a word says, places in lists, and copies that are written",
        "y = self.d(x).relu(); z = y.transpose(2, 3).contiguous(); z[..., [0, 2]] += 1.0; z[[0, 1]] = z[[1, 0]] * 2; "
        "z[[0, 1], [2, 0]] = 0.5; "
        "k = n.clone(); k ^= 5; k <<= 1; return self.c(x).relu(), y, z, k, torch.stack([x, x * 2], axis=-1).amax(axis=1, keepdims=True)",
        "torch.randn(2, 3, 9, 8), torch.randint(0, 99, (7,))",
        init="self.c = nn.Conv2d(3, 4, (4, 3), padding='same', dilation=(1, 2), padding_mode='replicate'); "
        "self.d = nn.Conv2d(3, 4, (2, 3), padding='same', padding_mode='circular')",
        arguments="x, n",
    ),
]
