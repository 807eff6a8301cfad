"""Steps that put several elements together: reductions, scans, orders, products, convolutions, pools, norms, losses. Imports torch."""

from __future__ import annotations

from tritonsmith.benchmarks.random_modules.scope import Scope, has_axes, is_float, is_number, is_whole

_REDUCED = """
    A.sum(D); A.mean(D); A.amax(D); A.amin(D); A.sum(D, keepdim=True); A.mean(D, keepdim=True); A.amax(D,
    keepdim=True); A.sum(); A.mean(); A.max(); A.min(); A.var(D); A.std(D, correction=0); A.var(D,
    unbiased=False, keepdim=True); torch.max(A, D); torch.min(A, D); A.argmax(D); A.argmin(D, keepdim=True);
    A.argmax(); A.prod(D); A.norm(dim=D); torch.linalg.vector_norm(A, 1, D); torch.linalg.vector_norm(A,
    inf, D); A.norm(); torch.logsumexp(A, D); torch.aminmax(A, dim=D); A.nansum(D); A.nanmean(D);
    torch.count_nonzero(A, D); A.any(D); A.all(D); torch.std_mean(A, D); A.median(D); A.nanmedian(D);
    torch.quantile(A.float(), 0.3, D); A.square().sum(D); A.sum((0, -1)); A.mean((0, 1)); A.sum(D,
    dtype=torch.float64); torch.linalg.vector_norm(A, 3, D); A.abs().amax(D); A.kthvalue(1, D);
    A.float().var(); A.sum(-1).sum()
"""
_SCANNED = """
    A.cumsum(D); A.cumprod(D); torch.cummax(A, D); torch.cummin(A, D); torch.logcumsumexp(A, D);
    torch.sort(A, D); torch.sort(A, D, True); torch.argsort(A, D); torch.topk(A, 1, D); torch.topk(A, 2, D,
    largest=False); torch.softmax(A, D); torch.log_softmax(A, D); F.softmin(A, D); torch.diff(A, dim=D);
    torch.softmax(A, D); A.flip(D).cumsum(D); torch.softmax(A, D, dtype=torch.float32); torch.sort(A, D,
    stable=True); F.glu(A, D); torch.trapezoid(A, dim=D)
"""
_REDUCED_WHOLE = """
    A.sum(D); A.sum(); A.amax(D); A.amin(D); A.prod(D); torch.max(A, D); A.argmax(D); A.argmin(D);
    A.cumsum(D); A.cumprod(D); torch.sort(A, D); A.any(D); A.all(D); torch.count_nonzero(A, D);
    torch.cummax(A, D); A.float().mean(D); torch.aminmax(A, dim=D); A.max(); torch.topk(A, 1, D); A.sum(D,
    dtype=torch.int32); A.median(D); torch.bincount(A.reshape(-1).long() % 5, minlength=5); torch.sum(A, D,
    keepdim=True); A.diff(dim=D)
"""
_NORMED = """
    F.layer_norm(A, (N,)); F.layer_norm(A, (N,), eps=1e-3); F.rms_norm(A, (N,)); F.normalize(A, dim=-1);
    F.normalize(A, p=1.0, dim=0); F.layer_norm(A, A.shape[-2:]); A / A.norm(dim=-1,
    keepdim=True).clamp(min=1e-6); A * torch.rsqrt(A.pow(2).mean(-1, keepdim=True) + 1e-6); (A - A.mean(-1,
    keepdim=True)) / (A.std(-1, keepdim=True) + 1e-5); F.instance_norm(A); F.group_norm(A, 1);
    F.local_response_norm(A, 3)
"""
_POOLED = {
    3: """
    F.max_pool1d(A, 2); F.avg_pool1d(A, 2); F.max_pool1d(A, 3, 2, 1); F.avg_pool1d(A, 3, 1, 1);
    F.adaptive_avg_pool1d(A, 2); F.adaptive_max_pool1d(A, 3); F.max_pool1d(A, 2, 1, 0, 2); F.max_pool1d(A,
    2, ceil_mode=True); F.lp_pool1d(A, 2.0, 2); F.avg_pool1d(A, 3, 2, 1, count_include_pad=False);
    F.max_pool1d(A, 3, return_indices=True); F.interpolate(A, scale_factor=2.0)
""",
    4: """
    F.max_pool2d(A, 2); F.avg_pool2d(A, 2); F.max_pool2d(A, 3, 2, 1); F.avg_pool2d(A, 3, 1, 1);
    F.adaptive_avg_pool2d(A, 1); F.adaptive_avg_pool2d(A, (2, 3)); F.adaptive_max_pool2d(A, 2);
    F.max_pool2d(A, 2, ceil_mode=True); F.lp_pool2d(A, 2.0, 2); F.avg_pool2d(A, 3, 2, 1,
    count_include_pad=False); F.max_pool2d(A, 2, return_indices=True); F.avg_pool2d(A, 2, ceil_mode=True)
""",
}
_LOSSES = """
    F.mse_loss(A, B); F.l1_loss(A, B, reduction='sum'); F.smooth_l1_loss(A, B); F.huber_loss(A, B,
    delta=0.7); F.binary_cross_entropy_with_logits(A, torch.sigmoid(B)); F.kl_div(A, torch.softmax(B, -1),
    reduction='batchmean'); F.mse_loss(A, B, reduction='none'); F.soft_margin_loss(A, torch.sign(B));
    F.cosine_similarity(A, B, dim=-1); F.poisson_nll_loss(A, B.abs()); F.pairwise_distance(A, B);
    F.hinge_embedding_loss(A, torch.sign(B)); F.cross_entropy(A, torch.softmax(B, -1))
"""


def _split(texts: str) -> list[str]:
    return [" ".join(text.split()) for text in texts.split(";") if text.strip()]


def _draw_along(scope: Scope, texts: str, name: str) -> str:
    return scope.choose(_split(texts)).replace("A", name).replace("D", str(scope.axis(name)))


def draw_reduction(scope: Scope) -> str:
    """A reduction of a floating value."""
    return _draw_along(scope, _REDUCED, scope.pick(is_float, has_axes(1)))


def draw_scan(scope: Scope) -> str:
    """A running sum, an order, a softmax."""
    return _draw_along(scope, _SCANNED, scope.pick(is_float, has_axes(1)))


def draw_whole_reduction(scope: Scope) -> str:
    """A reduction or an order of whole numbers."""
    return _draw_along(scope, _REDUCED_WHOLE, scope.pick(is_whole, has_axes(1)))


def draw_norm(scope: Scope) -> str:
    """A norm along the last axis, or of channels; at times with weights."""
    name = scope.pick(is_float, has_axes(2))
    value = scope.values[name]
    size = value.shape[-1]
    weights = [
        key for key, part in scope.values.items() if part.shape == (size,) and part.dtype == value.dtype
    ]
    if weights and scope.chance.random() < 0.5:
        weight, bias = scope.choose(weights), scope.choose([*weights, "None"])
        return scope.choose(
            [f"F.layer_norm({name}, ({size},), {weight}, {bias})", f"F.rms_norm({name}, ({size},), {weight})"]
        )
    channels = [
        key
        for key, part in scope.values.items()
        if part.shape == (value.shape[1],) and part.dtype == value.dtype
    ]
    if channels and scope.chance.random() < 0.5:
        first, second = scope.choose(channels), scope.choose(channels)
        return scope.choose(
            [
                f"F.batch_norm({name}, {first}, {second}.abs() + 0.5)",
                f"F.batch_norm({name}, {first}, {second}.abs() + 0.5, {second}, {first})",
                f"F.group_norm({name}, 1, {first}, {second})",
            ]
        )
    return scope.choose(_split(_NORMED)).replace("A", name).replace("N", str(size))


def draw_product(scope: Scope) -> str:
    """A product of matrices, or of vectors."""
    name = scope.pick(is_float, has_axes(1))
    value = scope.values[name]
    inner = value.shape[-1]

    def fits(tensor: object) -> bool:
        return getattr(tensor, "dtype", None) == value.dtype

    rights = [
        key
        for key, part in scope.values.items()
        if fits(part) and part.ndim >= 1 and part.shape[-2:][0] == inner
    ]
    lefts = [
        key for key, part in scope.values.items() if fits(part) and part.ndim == 2 and part.shape[1] == inner
    ]
    kinds = (
        [f"{name} @ {name}.transpose(-1, -2)", f"torch.matmul({name}.transpose(-1, -2), {name})"]
        if value.ndim >= 2
        else []
    )
    for right in rights:
        kinds += [f"{name} @ {right}", f"torch.matmul({name}, {right})"]
        if value.ndim == 2 and scope.values[right].ndim == 2:
            kinds += [
                f"torch.mm({name}, {right})",
                f"torch.einsum('ij,jk->ik', {name}, {right})",
                f"torch.einsum('ij,jk->ki', {name}, {right})",
            ]
        if value.ndim == 3 and scope.values[right].ndim == 3:
            kinds += [f"torch.bmm({name}, {right})", f"torch.einsum('bij,bjk->bik', {name}, {right})"]
    for weight in lefts:
        kinds += [
            f"F.linear({name}, {weight})",
            f"{name} @ {weight}.t()",
            f"F.linear({name}, {weight}, {weight}[:, 0])",
        ]
    vectors = [key for key, part in scope.values.items() if fits(part) and part.ndim == 1]
    if value.ndim == 1 and vectors:
        second = scope.choose(vectors)
        kinds += [f"torch.outer({name}, {second})"] + [f"torch.dot({name}, {second})"] * (
            scope.values[second].numel() == inner
        )
    return scope.choose(kinds or [f"{name} * {name}"])


def draw_convolution(scope: Scope) -> str:
    """A convolution whose weights are a value, or ones."""
    name = scope.pick(is_float, has_axes(3, 4))
    value = scope.values[name]
    axes, channels = value.ndim - 2, value.shape[1]
    weights = [
        key for key, part in scope.values.items() if part.ndim == value.ndim and part.dtype == value.dtype
    ]
    fitting = [key for key in weights if scope.values[key].shape[1] == channels]
    kernel = scope.choose([1, 2, 3])
    shape = (scope.choose([1, 2, 3, 5]), channels, *[kernel] * axes)
    weight = f"torch.linspace(-1, 1.3, {_multiply(shape)}, dtype={value.dtype}).view({shape})"
    if fitting and scope.chance.random() < 0.6:
        weight = scope.choose(fitting)
    stride, padding, dilation = scope.choose([(1, 0, 1), (2, 1, 1), (1, 1, 1), (1, 2, 2), (2, 0, 1)])
    if scope.chance.random() < 0.2:
        shape = (channels, 1, *[kernel] * axes)
        weight = f"torch.linspace(-1, 1.3, {_multiply(shape)}, dtype={value.dtype}).view({shape})"
        return f"F.conv{axes}d({name}, {weight}, padding={padding}, stride={stride}, groups={channels})"
    if scope.chance.random() < 0.2:
        shape = (channels, scope.choose([1, 2, 3]), *[kernel] * axes)
        weight = f"torch.linspace(-1, 1.3, {_multiply(shape)}, dtype={value.dtype}).view({shape})"
        return (
            f"F.conv_transpose{axes}d({name}, {weight}, stride={stride}, padding={min(padding, kernel - 1)})"
        )
    return f"F.conv{axes}d({name}, {weight}, stride={stride}, padding={padding}, dilation={dilation})"


def _multiply(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def draw_pool(scope: Scope) -> str:
    """A pool over windows."""
    name = scope.pick(is_float, has_axes(3, 4))
    return scope.choose(_split(_POOLED[scope.values[name].ndim])).replace("A", name)


def draw_loss(scope: Scope) -> str:
    """A loss of two values of one shape."""
    name = scope.pick(is_float, has_axes(1))
    shape, dtype = scope.values[name].shape, scope.values[name].dtype
    second = scope.pick(lambda part: part.shape == shape and part.dtype == dtype)
    return scope.choose(_split(_LOSSES)).replace("A", name).replace("B", second)


def draw_attention(scope: Scope) -> str:
    """Attention of a value with itself, or with one of its shape."""
    name = scope.pick(is_float, has_axes(3, 4))
    shape, dtype = scope.values[name].shape, scope.values[name].dtype
    key, value = (scope.pick(lambda part: part.shape == shape and part.dtype == dtype) for _ in range(2))
    causal = scope.choose(["", ", is_causal=True"])
    if scope.chance.random() < 0.4:
        return f"torch.softmax({name} @ {key}.transpose(-1, -2) * 0.5, -1) @ {value}"
    return f"F.scaled_dot_product_attention({name}, {key}, {value}{causal})"


def draw_order(scope: Scope) -> str:
    """What an order gives, put back among values."""
    name = scope.pick(is_number, has_axes(1))
    axis = scope.axis(name)
    return scope.choose(
        [
            f"{name}.gather({axis}, {name}.argsort({axis}, stable=True))",
            f"{name}.sort({axis})[0]",
            f"{name}.topk(1, {axis})[1]",
        ]
    )
