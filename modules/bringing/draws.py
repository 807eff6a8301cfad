"""`get_inputs` of a task: values like the real ones, drawn anew. Imports torch."""

from __future__ import annotations

import math

import torch

_FEW = 8
"""Different values of a floating tensor that are drawn from a list."""
_ENOUGH = 64
"""Elements from which on a short list of values is no accident."""


def write_draw(value: torch.Tensor, shape: list[str], highest: int | None = None) -> str:
    """An expression that draws a tensor like a real one, in its type and memory order.

    Args:
        value: the real one.
        shape: its sizes as the task file writes them.
        highest: the end of what whole numbers may be, where the module says it.
    """
    order = _find_order(value)
    if order is None:
        return _draw(value, shape, highest)
    laid = [shape[axis] for axis in order]
    back = [order.index(axis) for axis in range(value.ndim)]
    return f"({_draw(value.permute(order), laid, highest)}).permute({', '.join(map(str, back))})"


def _find_order(value: torch.Tensor) -> list[int] | None:
    """The axes from the outermost in memory to the innermost; None for a contiguous tensor, and for one with gaps."""
    if value.is_contiguous() or 0 in value.stride():
        return None
    order = sorted(range(value.ndim), key=lambda axis: (-value.stride()[axis], axis))
    return order if value.permute(order).is_contiguous() else None


def _draw(value: torch.Tensor, shape: list[str], highest: int | None) -> str:
    sizes = f"({', '.join(shape)}{',' * (len(shape) == 1)})"
    if value.dtype == torch.bool:
        return f"(torch.rand({sizes}) < {float(value.float().mean()) if value.numel() else 0.5:.4g})"
    if value.dtype.is_complex:
        return f"torch.randn({sizes}, dtype={value.dtype})"
    if not value.is_floating_point():
        return _draw_whole(value, shape, sizes, highest)
    return _draw_floating(value, shape, sizes)


def _draw_whole(value: torch.Tensor, shape: list[str], sizes: str, highest: int | None) -> str:
    kind = "" if value.dtype == torch.int64 else f", dtype={value.dtype}"
    if value.numel() == 0:
        return f"torch.zeros({sizes}, dtype={value.dtype})"
    low, high = int(value.min()), int(value.max()) + 1
    if (
        value.ndim
        and value.shape[-1] > 1
        and bool((value == torch.arange(value.shape[-1], device=value.device)).all())
    ):
        row = f"torch.arange({shape[-1]}{kind})"
        return row if value.ndim == 1 else f"{row}.expand{sizes}.clone()"
    if low + 1 == high and highest is None:
        return f"torch.full({sizes}, {low}, dtype={value.dtype})"
    drawn = f"torch.randint({min(low, 0)}, {max(high, highest or high)}, {sizes}{kind})"
    rising = value.ndim and value.shape[-1] > 2 and low != high - 1 and bool((value.diff(dim=-1) >= 0).all())  # noqa: PLR2004
    return f"{drawn}.sort(-1).values" if rising else drawn


def _draw_floating(value: torch.Tensor, shape: list[str], sizes: str) -> str:
    kind = "" if value.dtype == torch.float32 else f".to({value.dtype})"
    flat = value.detach().float().reshape(-1)
    finite = flat[flat.isfinite()]
    if value.numel() >= _ENOUGH or not bool(flat.isfinite().all()):
        few = flat.unique() if value.numel() <= 1 << 20 else flat[: 1 << 16].unique()
        if len(few) <= _FEW and value.numel() <= 1 << 20:
            return f"{_draw_listed(value, few, shape, sizes)}{kind}"
    spread, mean = (
        (float(finite.std()), float(finite.mean()))
        if finite.numel() > 1
        else (1.0, float(finite[0]) if finite.numel() else 0.0)
    )
    if spread == 0 or math.isnan(spread):
        spread = 1.0
    if finite.numel() > 1 and float(finite.min()) >= 0:  # positive values stay so
        return (
            f"(torch.rand({sizes}) * {2 * mean or 1.0:.4g}){kind}"
            if kind
            else f"torch.rand({sizes}) * {2 * mean or 1.0:.4g}"
        )
    scale = "" if abs(spread - 1) < 0.05 else f" * {spread:.4g}"  # noqa: PLR2004 - a standard normal draw
    shift = "" if abs(mean) < 0.1 * spread else f" + {mean:.4g}" if mean > 0 else f" - {-mean:.4g}"  # noqa: PLR2004
    drawn = f"torch.randn({sizes}){scale}{shift}"
    return f"({drawn}){kind}" if kind and (scale or shift) else f"{drawn}{kind}"


def _draw_listed(value: torch.Tensor, few: torch.Tensor, shape: list[str], sizes: str) -> str:
    """One of a few values at each place, as masks of zero and minus infinity have them; a triangle stays one."""
    listed = [
        f'float("{number}")' if not math.isfinite(number) else repr(round(number, 6))
        for number in few.tolist()
    ]
    if len(listed) == 1:
        return f"torch.full({sizes}, {listed[0]})"
    if len(listed) == 2 and value.ndim >= 2 and value.shape[-1] > 1:  # noqa: PLR2004 - a matrix of two values
        low, high = few.tolist()
        zero = next((one for one in (low, high) if one == 0), None)
        above = low if zero == high else high
        triangle = torch.triu(torch.full_like(value, above, dtype=torch.float32), 1)
        if zero is not None and torch.equal(
            torch.nan_to_num(value.float(), neginf=-1e30), torch.nan_to_num(triangle, nan=0.0, neginf=-1e30)
        ):
            return f"torch.full({sizes}, {listed[0] if zero == high else listed[1]}).triu(1)"
    if not bool(
        few.isfinite().all()
    ):  # a row of nothing but minus infinity means nothing: the first place stays
        places = f"torch.randint(0, {len(listed)}, {sizes})"
        return f"torch.tensor([{', '.join(listed)}])[{places}].index_fill(-1, torch.tensor(0), {listed[-1]})"
    return f"torch.tensor([{', '.join(listed)}])[torch.randint(0, {len(listed)}, {sizes})]"
