"""An image in each program: again and again the best box that is left, which takes away those that it overlaps."""

import torch
import triton
import triton.language as tl
from torch import nn

BY_PRODUCT = False
AREA_FIRST = True


@triton.jit
def suppress(raw, scores, keep, boxes, count, LIMIT: tl.constexpr, BY_PRODUCT: tl.constexpr, AREA_FIRST: tl.constexpr, BLOCK: tl.constexpr):
    image = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < count
    at = (image * count + i) * 4
    x, y = tl.load(raw + at, mask=inside, other=0.0), tl.load(raw + at + 1, mask=inside, other=0.0)
    width = tl.exp(0.3 * tl.load(raw + at + 2, mask=inside, other=0.0) + 0.5)
    height = tl.exp(0.3 * tl.load(raw + at + 3, mask=inside, other=0.0) + 0.5)
    left, top = x - 0.5 * width, y - 0.5 * height
    right, bottom = x + 0.5 * width, y + 0.5 * height
    area = (right - left) * (bottom - top)
    score = tl.load(scores + image * count + i, mask=inside, other=float("-inf"))
    alive = inside
    kept = tl.zeros((BLOCK,), tl.int32)
    for _ in range(count):
        rest = tl.where(alive, score, float("-inf"))
        some = tl.max(alive.to(tl.int32), 0) > 0
        best = i == tl.argmax(rest, 0)
        kept = tl.where(best & some, 1, kept)
        wide = tl.minimum(right, tl.sum(tl.where(best, right, 0.0), 0)) - tl.maximum(left, tl.sum(tl.where(best, left, 0.0), 0))
        high = tl.minimum(bottom, tl.sum(tl.where(best, bottom, 0.0), 0)) - tl.maximum(top, tl.sum(tl.where(best, top, 0.0), 0))
        common = tl.maximum(wide, 0.0) * tl.maximum(high, 0.0)
        own = tl.sum(tl.where(best, area, 0.0), 0)
        if AREA_FIRST:
            union = own + area - common
        else:
            union = own + (area - common)
        limit = LIMIT
        if BY_PRODUCT:
            near = common > limit * union
        else:
            near = common / union > limit
        alive = alive & (near == 0) & (best == 0)
    tl.store(keep + image * count + i, kept != 0, mask=inside)
    tl.store(boxes + at, tl.where(kept != 0, left, 0.0), mask=inside)
    tl.store(boxes + at + 1, tl.where(kept != 0, top, 0.0), mask=inside)
    tl.store(boxes + at + 2, tl.where(kept != 0, right, 0.0), mask=inside)
    tl.store(boxes + at + 3, tl.where(kept != 0, bottom, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, limit=0.5):
        super().__init__()
        self.limit = limit

    def forward(self, raw, scores):
        images, count = scores.shape
        keep = torch.empty((images, count), dtype=torch.bool, device=raw.device)
        boxes = torch.empty((images, count, 4), dtype=torch.float32, device=raw.device)
        block = triton.next_power_of_2(count)
        suppress[(images,)](raw, scores, keep, boxes, count, self.limit, BY_PRODUCT, AREA_FIRST, block)
        return keep, boxes
