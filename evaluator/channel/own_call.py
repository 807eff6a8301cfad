"""One call of a task as it comes: inputs that its get_inputs drew and weights of its reference, in a file. Imports torch.

Processes in which a candidate runs by itself, as under compute-sanitizer, read it. What a kernel takes for places (ids, index buffers,
lengths) is whole: other values would have an honest kernel read outside its tensors. Of large floating tensors the file has the first
values, which are repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.channel.slots import input_spec, spec_bytes, tensor_at
from tritonsmith.evaluator.channel.strides import distinct
from tritonsmith.evaluator.schema import TensorSpec

_MOST_VALUES = 1 << 22
"""Of a floating tensor that the file has: 16 MB of fp32."""


@dataclass(frozen=True)
class _Packed:
    """A tensor in the file."""

    spec: TensorSpec
    values: torch.Tensor
    """Elements in order, of a large floating tensor the first ones."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Packed:
        spec, tensor = input_spec(tensor), tensor.detach()
        flat = (distinct(tensor) if spec.strides else tensor).reshape(-1)
        kept = flat[:_MOST_VALUES] if tensor.is_floating_point() or tensor.is_complex() else flat
        return cls(spec, kept.cpu().clone())

    def unpack(self) -> torch.Tensor:
        """The tensor on the CPU, in its memory layout."""
        made = tensor_at(torch.zeros(spec_bytes(self.spec), dtype=torch.uint8), self.spec)
        once = distinct(made) if self.spec.strides else made
        if count := once.numel():
            once.copy_(self.values.repeat(-(-count // self.values.numel()))[:count].view(once.shape))
        return made


@dataclass(frozen=True)
class OwnCall:
    """What a candidate is built and called with."""

    init: list[Any]
    arguments: list[Any]
    weights: dict[str, torch.Tensor]
    """The reference's state_dict."""
    train: bool
    tf32: bool
    gradients: dict[str, Any] | None = None
    """Which gradients the call gives too, as the plan of the task says it plainly."""


def write_call(path: Path, arguments: Iterable[Any], weights: Mapping[str, torch.Tensor], **settings: Any) -> None:
    """Write the file; `settings` are the other fields of an `OwnCall`."""
    given = [_Packed.of(value) if isinstance(value, torch.Tensor) else value for value in arguments]
    torch.save(settings | {"arguments": given, "weights": {name: _Packed.of(value) for name, value in weights.items()}}, path)


def read_call(path: Path) -> OwnCall:
    """What `write_call` wrote; the file comes from the oracle and not from a candidate."""
    said = torch.load(path, weights_only=False)
    said["arguments"] = [value.unpack() if isinstance(value, _Packed) else value for value in said["arguments"]]
    said["weights"] = {name: value.unpack() for name, value in said["weights"].items()}
    return OwnCall(**said)
