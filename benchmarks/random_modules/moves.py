"""Steps that move values: views, copies, indexing, joins and fillers. Imports torch."""

from __future__ import annotations

import math

from tritonsmith.benchmarks.random_modules.scope import (
    TYPES,
    WHOLE,
    Scope,
    has_axes,
    is_bool,
    is_float,
    is_number,
)


def draw_view(scope: Scope) -> str:
    """Another look at the same elements."""
    name = scope.pick(has_axes(1))
    value = scope.values[name]
    axis, axes = scope.axis(name), value.ndim
    size = value.shape[axis]
    order = scope.chance.sample(range(axes), axes)
    kinds = [
        f"{name}.reshape(-1)",
        f"{name}.flatten()",
        f"{name}.permute({', '.join(map(str, order))})",
        f"{name}.unsqueeze({axis})",
        f"{name}.squeeze()",
        f"{name}.transpose(0, {axis})",
        f"{name}.movedim(0, {axis})",
        f"{name}.transpose(-1, {axis})",
        f"{name}.select({axis}, {scope.chance.randrange(max(size, 1))})",
        f"{name}[..., :{max(1, value.shape[-1] // 2)}]",
        f"{name}[{scope.choose(['0', '-1', '::2', '1:', 'None', '..., None', '..., 0', ':, None', '..., ::3', '..., 1:-1'])}]",
        f"{name}.narrow({axis}, {size // 3}, {max(1, size // 2)})",
        f"{name}.reshape({_write_shape(scope, value.numel())})",
        f"{name}.view({_write_shape(scope, value.numel())})",
        f"{name}.contiguous()",
        f"{name}.clone()",
        f"{name}.expand(2, *{name}.shape)",
        f"{name}.unsqueeze(0).expand(3, {', '.join(['-1'] * axes)})",
        f"{name}.unfold({axis}, {max(1, min(size, 3))}, {scope.choose([1, 2])})",
        f"{name}.diagonal()",
        f"{name}.swapaxes(0, -1)",
        f"{name}.mT",
        f"{name}.ravel()",
        f"{name}.chunk(2, {axis})",
        f"{name}.split({max(1, (size + 1) // 2)}, {axis})",
        f"{name}.unbind({axis})",
        f"torch.atleast_2d({name})",
        f"{name}.view_as({name})",
    ]
    return scope.choose(kinds)


def _write_shape(scope: Scope, count: int) -> str:
    divisors = [number for number in range(1, min(count, 64) + 1) if count % number == 0] or [1]
    first = scope.choose(divisors)
    if scope.chance.random() < 0.4:
        second = scope.choose([number for number in divisors if (count // first) % number == 0])
        return f"{first}, {second}, -1"
    return f"{first}, -1"


def draw_copy(scope: Scope) -> str:
    """Elements in another order, several times, or with a rim."""
    name = scope.pick(has_axes(1))
    value = scope.values[name]
    axis, size = scope.axis(name), max(value.shape[scope.axis(name)], 1)
    kinds = [
        f"{name}.flip({axis})",
        f"torch.roll({name}, {scope.choose([1, 2, -1])}, {axis})",
        f"{name}.repeat({', '.join(['2'] * value.ndim)})",
        f"torch.tile({name}, (2,))",
        f"torch.repeat_interleave({name}, 2, dim={axis})",
        f"F.pad({name}, (1, 2))",
        f"torch.rot90({name})",
        f"F.pad({name}, (0, {scope.choose([1, 3])}), value={scope.choose(['0', '1', '2'])})",
        f"torch.diag_embed({name})",
        f"F.pad({name}, (-1, 1))",
        f"torch.flip({name}, [0])",
        f"{name}.repeat(2, {', '.join(['1'] * value.ndim)})",
        f"torch.take_along_dim({name}, {name}.new_zeros({tuple(value.shape)}, dtype=torch.int64), {axis})",
        f"torch.narrow_copy({name}, {axis}, 0, {size})",
    ]
    if value.ndim >= 2:
        kinds += [
            f"{name}.tril()",
            f"{name}.triu(1)",
            f"torch.tril({name}, -1)",
            f"torch.fliplr({name})",
            f"F.pad({name}, (1, 0, 0, 2))",
        ]
    if value.ndim in (2, 3) and is_float(value):
        mode = scope.choose(["reflect", "replicate", "circular"])
        kinds += [f"F.pad({name}, (1, 1), mode='{mode}')"] * 3
    if value.ndim == 4 and is_float(value):
        kinds += [
            f"F.pixel_shuffle({name}, 2)",
            f"F.pad({name}, (1, 0, 1, 1), mode='reflect')",
            f"F.pixel_unshuffle({name}, 2)",
        ] * 2
        kinds += [
            f"F.interpolate({name}, scale_factor=2, mode='{scope.choose(['nearest', 'bilinear'])}')"
        ] * 2
        kinds += [f"F.unfold({name}, 2)", f"F.channel_shuffle({name}, 2)"]
    return scope.choose(kinds)


def draw_join(scope: Scope) -> str:
    """Values behind each other."""
    name = scope.pick(has_axes(1))
    value = scope.values[name]
    axis = scope.axis(name)
    others = tuple(size for place, size in enumerate(value.shape) if place != axis % value.ndim)

    def fits(part: object) -> bool:
        return (
            getattr(part, "ndim", -1) == value.ndim
            and tuple(size for place, size in enumerate(part.shape) if place != axis % value.ndim) == others  # type: ignore[attr-defined]
        )

    second = scope.pick(fits)
    if scope.chance.random() < 0.3 and scope.values[second].shape == value.shape:
        return f"torch.stack(({name}, {second}), {scope.choose([0, -1, 1])})"
    third = f", {scope.pick(fits)}" if scope.chance.random() < 0.3 else ""
    return f"torch.cat(({name}, {second}{third}), {axis})"


def draw_index(scope: Scope) -> str:
    """Elements at places that other values tell."""
    name = scope.pick(has_axes(1))
    value = scope.values[name]
    axis = scope.axis(name)
    size = value.shape[axis]
    if not size:
        raise LookupError("no element")
    flat = scope.pick(lambda tensor: tensor.dtype in WHOLE and tensor.ndim == 1 and tensor.numel() > 0)
    places = f"({flat}.long() % {size})"
    first = f"({flat}.long() % {value.shape[0]})"
    kinds = [
        f"torch.index_select({name}, {axis}, {places})",
        f"{name}[{first}]",
        f"{name}.index_select({axis}, {places})",
        f"{name}[{first} - {value.shape[0]}]",
        f"{name}.take({flat}.long() % {value.numel()})",
    ]
    if value.ndim == 2 and is_float(value):
        kinds += [f"F.embedding({first}, {name})", f"{name}[:, {flat}.long() % {value.shape[1]}]"] * 2
    if value.ndim == 2:
        kinds += [f"{name}[{first}, {flat}.long() % {value.shape[1]}]"]
    same = [key for key, part in scope.values.items() if part.shape == value.shape and part.dtype in WHOLE]
    if same:
        chosen = f"({scope.choose(same)}.long() % {size})"
        kinds += [
            f"torch.gather({name}, {axis}, {chosen})",
            f"torch.take_along_dim({name}, {chosen}, {axis})",
        ] * 3
        if is_number(value):
            kinds += [
                f"{name}.scatter_add({axis}, {chosen}, {name})",
                f"torch.zeros_like({name}).scatter_add({axis}, {chosen}, {name})",
            ] * 2
        kinds += [f"F.one_hot({chosen}, {size})"]
    if is_number(value):
        kinds += [
            f"torch.zeros_like({name}).index_add({axis}, torch.arange({size}) // 2, {name})",
            f"{name}.index_copy({axis}, torch.arange({size}).flip(0), {name})",
            f"{name}.index_fill({axis}, {places}, 1)",
        ]
    return scope.choose(kinds)


def draw_scatter(scope: Scope) -> str:
    """A write of rows at places: at different ones, since the order of two writes to one place is open."""
    target = scope.pick(has_axes(1), is_number)
    value = scope.values[target]
    size = value.shape[0]
    if size < 2:
        raise LookupError("no rows")
    places = scope.choose(
        [
            f"torch.arange({size}).flip(0)",
            f"torch.arange({size // 2}) * 2",
            f"(torch.arange({size}) + 1) % {size}",
        ]
    )
    source = scope.pick_alike(target, lambda part: part.shape == value.shape)
    rows = f"{source}[:{size // 2}]" if "* 2" in places else source
    wide = f"({places}).view({', '.join(['-1', *['1'] * (value.ndim - 1)])}).expand_as({rows})"
    return scope.choose(
        [
            f"{target}.index_copy(0, {places}, {rows})",
            f"{target}.index_add(0, {places}, {rows})",
            f"{target}.scatter(0, {wide}, {rows})",
            f"{target}.scatter_add(0, {wide}, {rows})",
            f"{target}.index_put(({places},), {rows})",
            f"{target}.clone().index_copy_(0, {places}, {rows})",
            f"{target}.index_put(({places} // 2,), {rows}, accumulate=True)",
            f"torch.slice_scatter({target}, {rows}, 0, 0, {rows}.shape[0])",
            f"torch.select_scatter({target}, {source}[0], 0, 1)",
            f"{target}.scatter(0, {wide}, 2)",
            f"{target}.scatter_reduce(0, {wide}, {rows}, 'sum', include_self=False)",
        ]
    )


def draw_rotation(scope: Scope) -> str:
    """Halves of the last axis that change places, and pieces that come together again."""
    name = scope.pick(has_axes(1), is_number)
    size = scope.values[name].shape[-1]
    half = size // 2
    if half < 1:
        raise LookupError("no halves")
    sign = "-" if is_float(scope.values[name]) else ""
    return scope.choose(
        [
            f"torch.cat(({sign}{name}[..., {half}:], {name}[..., :{half}]), -1)",
            f"torch.cat([part * 2 for part in {name}.chunk(2, -1)], -1)",
            f"torch.stack(({sign}{name}[..., 1::2][..., :{half}], {name}[..., ::2][..., :{half}]), -1).flatten(-2)",
            f"sum({name}.unbind(-1))" if size < 9 else f"{name}[..., :{half}] + {name}[..., -{half}:]",
            f"{name}[..., 1:] - {name}[..., :-1]",
        ]
    )


def draw_made(scope: Scope) -> str:
    """Values out of none: places, ones, a diagonal, numbers."""
    name = scope.pick(has_axes(1))
    value = scope.values[name]
    size = value.shape[-1]
    dtype = scope.choose(TYPES)
    start, step = scope.choose([("0", "1"), ("1", "2"), ("-3", "1")])
    kinds = [
        f"torch.arange({size})",
        f"torch.arange({size}) * 1000000007",
        f"torch.arange({size}, dtype=torch.float32)",
        f"torch.arange({start}, {int(start) + int(step) * size}, {step})",
        f"torch.ones_like({name})",
        f"torch.zeros_like({name})",
        f"torch.full_like({name}, 3)",
        f"torch.eye({size})",
        f"torch.linspace(0, 1, {size})",
        f"{name}.new_ones({size})",
        f"torch.full(({size},), 0.1)",
        f"torch.tensor({[round(scope.chance.uniform(-2, 2), 2) for _ in range(min(size, 6))]})",
        f"torch.ones({size}, dtype={dtype})",
        f"torch.arange({size}).to({dtype})",
        f"torch.zeros({tuple(value.shape)}, dtype={dtype})",
        "torch.tensor(2)",
        "torch.tensor(0.3)",
        f"torch.ones({size}, {size}).tril()",
        f"torch.arange({size}).flip(0)",
    ]
    return scope.choose(kinds)


def draw_search(scope: Scope) -> str:
    """Places in an order: bins, and masks by places."""
    name = scope.pick(is_number, has_axes(1))
    size = scope.values[name].shape[-1]
    bounds = "torch.tensor([-1.0, 0.0, 0.5, 2.0])"
    kinds = [
        f"{name} * (torch.arange({size}) < {max(1, math.ceil(size / 2))})",
        f"torch.where(torch.arange({size}) % 2 == 0, {name}, 0)",
    ]
    if is_float(scope.values[name]):
        kinds += [
            f"torch.bucketize({name}.float(), {bounds})",
            f"torch.bucketize({name}.float(), {bounds}, right=True)",
            f"torch.searchsorted({bounds}, {name}.float())",
            f"{name}.masked_fill(torch.ones({size}, {size}).triu(1).bool(), -inf)",
        ]
    return scope.choose(kinds)


def draw_masked(scope: Scope) -> str:
    """Writes and reads by a mask."""
    mask = scope.pick(is_bool)
    return scope.choose(
        [
            f"{mask}.sum()",
            f"{mask}.sum(-1)",
            f"{mask}.any()",
            f"{mask}.all(-1)",
            f"{mask}.float().mean()",
            f"{mask}.cumsum(-1)",
        ]
    )
