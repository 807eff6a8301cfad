"""A reference on fake tensors, which have sizes and no values, and the bounds within which it may run for real. Imports torch."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tritonsmith.evaluator.reference.module import Reference

Made = TypeVar("Made")


@dataclass(frozen=True)
class StandIn:
    """A model and its inputs; inside of the mode, everything that runs on them is fake."""

    mode: FakeTensorMode
    model: nn.Module
    inputs: list[Any]


def make_stand_in(reference: Reference, seed: int) -> StandIn:
    """The model and its inputs, each on fake tensors, or for real where making it needs values. Raises TaskError."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)  # what is real is taken as fake where forward reads it
    model = make_fake(mode, lambda: reference.build(seed))
    for value in model.state_dict(keep_vars=True).values():
        _forget_value(value)
    return StandIn(mode, model, list(map(_forget_value, make_fake(mode, lambda: reference.draw_inputs(seed)))))


def _forget_value(argument: Any) -> Any:
    """The argument; a fake tensor that was made of numbers no longer knows them: a call, or a checkpoint, may give others."""
    if isinstance(argument, FakeTensor):
        argument.constant = None
    return argument


def make_fake(mode: FakeTensorMode, make: Callable[[], Made]) -> Made:
    """What `make` gives on fake tensors; for real where it needs values, such as `[x.item() for x in torch.linspace(...)]`."""
    try:
        with mode:
            return make()
    except Exception:  # noqa: BLE001 - fake tensors refuse what needs values; a fault of the task shows again
        return make()


def available_bytes() -> float:
    """Memory of this host that a process may still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (available,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return float(available) * 1024


@contextlib.contextmanager
def limit_memory(more: float) -> Iterator[None]:
    """While open, this process gets no more than so many bytes beyond what it holds; a larger allocation fails."""
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    wanted = held + int(more)
    known = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *known]), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an allocation failed; torch has no type of its own for that on the host."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)
