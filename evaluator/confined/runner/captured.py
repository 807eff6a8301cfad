"""A candidate's forward in a CUDA graph, which the runner captures. Imports torch.

A graph costs the host one launch for all kernels of a forward, so a host that is slow or busy leaves no gaps between them. Authors need
do nothing for it. What it may not do inside: wait for the card, or decide by values that lie there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_WARM_CALLS = 2
"""Forwards on another stream ahead of capturing, in which libraries get what they keep for each stream."""


class CapturedForward:
    """What one forward launches, to be launched again at once. Raises what capturing raises, and leaves torch unusable then.

    Args:
        forward: one forward on tensors whose addresses stay the same; returns its outputs.
        set_back: undoes what a forward left in buffers.
        model: what is run.
    """

    def __init__(self, forward: Callable[[], list[torch.Tensor]], set_back: Callable[[], None], model: nn.Module) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_CALLS):
                forward()
        torch.cuda.current_stream().wait_stream(side)
        set_back()  # now, so that no replay does it
        # A forward may write an attribute in place and then put another tensor there: replays write to the first one, so it must live on.
        self._state = [place[name] for place, name in list_tensor_attributes(model)]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = forward()
        self._replay = self._graph.replay
        set_back()

    def replay(self) -> list[torch.Tensor]:
        """The outputs, which the next replay overwrites."""
        self._replay()
        return list(self._outputs)


def list_tensor_attributes(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where a module keeps tensors as plain attributes."""
    parts = [vars(part) for part in model.modules()]
    return [(part, name) for part in parts for name, value in part.items() if isinstance(value, torch.Tensor)]
