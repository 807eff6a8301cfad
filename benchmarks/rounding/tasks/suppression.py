"""Boxes that are left where each takes away those of lower score that it overlaps by half."""

import torch
from torch import nn

IMAGES = 32
BOXES = 256
SMALL = {"IMAGES": 4, "BOXES": 48}


class Model(nn.Module):
    def __init__(self, limit=0.5):
        super().__init__()
        self.limit = limit

    def forward(self, raw, scores):
        centre, half = raw[..., :2], 0.5 * torch.exp(0.3 * raw[..., 2:] + 0.5)
        boxes = torch.cat((centre - half, centre + half), -1)
        order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
        ranked = torch.take_along_dim(boxes, order[..., None], 1)
        corner, end = ranked[..., :2], ranked[..., 2:]
        sides = torch.minimum(end[:, :, None], end[:, None]) - torch.maximum(corner[:, :, None], corner[:, None])
        common = sides.clamp(min=0.0).prod(-1)
        area = (end - corner).prod(-1)
        near = common / (area[:, :, None] + area[:, None] - common) > self.limit
        near = near.triu(1)
        left = torch.ones_like(scores, dtype=torch.bool)
        for i in range(scores.shape[1]):
            left = left & ~(near[:, i] & left[:, i : i + 1])
        keep = torch.zeros_like(left).scatter(1, order, left)
        return keep, torch.where(keep[..., None], boxes, 0.0)


def get_inputs():
    return [torch.randn(IMAGES, BOXES, 4), torch.rand(IMAGES, BOXES)]


def get_init_inputs():
    return []
