"""Weights and inputs that a task brings along in files beside its own: WEIGHTS and INPUTS. Imports torch; for trusted processes.

Candidates never see the files: weights reach them as every draw does, and inputs through their slots.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.nn.modules.batchnorm import _NormBase

from tritonsmith.evaluator.channel.strides import distinct, with_values
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.declarations import declarations_of

WEIGHTS, INPUTS = "WEIGHTS", "INPUTS"
_MOST_KEPT = 4
"""Files whose contents are kept."""


def find_given(task: Task, name: str) -> Path | None:
    """The file whose name the task gives as words; None for other values, which are names of its own. Raises TaskError without the file."""
    declared = declarations_of(task).get(name)
    if not isinstance(declared, str):
        return None
    path = Path(task.folder or ".") / declared
    if not path.is_file():
        raise TaskError(
            f"{task.path}: {name} names {declared}, and {path} is no file; put it beside the task, or take the line out"
        )
    return path


def list_given(task: Task) -> list[Path]:
    """Every file that the task declares. Raises TaskError."""
    return [path for path in (find_given(task, name) for name in (WEIGHTS, INPUTS)) if path is not None]


def read_weights(task: Task) -> dict[str, torch.Tensor] | None:
    """The state_dict that WEIGHTS names, on the processor; None without one. Raises TaskError."""
    path = find_given(task, WEIGHTS)
    if path is None:
        return None
    state = _load(task, WEIGHTS, path)
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise TaskError(
            f"{path}: WEIGHTS must hold a state_dict; write it with torch.save(model.state_dict(), path)"
        )
    return state


def read_inputs(task: Task) -> list[torch.Tensor] | None:
    """The tensors that INPUTS names, on the processor; None without the file. Raises TaskError."""
    path = find_given(task, INPUTS)
    if path is None:
        return None
    tensors = _load(task, INPUTS, path)
    if not isinstance(tensors, list | tuple) or not all(isinstance(value, torch.Tensor) for value in tensors):
        raise TaskError(
            f"{path}: INPUTS must hold the list of forward's tensors; write it with torch.save([x, ...], path)"
        )
    return list(tensors)


def _load(task: Task, name: str, path: Path) -> Any:
    try:
        facts = os.stat(path)
        with unset_fake_temporarily():
            return _load_once(str(path), facts.st_size, facts.st_mtime_ns)
    except Exception as error:  # torch.load raises what it likes for a file that is none
        raise TaskError(
            f"{task.path}: {name} cannot be read from {path} ({type(error).__name__}); write it with torch.save"
        ) from error


@lru_cache(_MOST_KEPT)
def _load_once(path: str, size: int, changed: int) -> Any:
    del size, changed  # they tell one content of the file from another
    return torch.load(path, map_location="cpu", weights_only=True)


def load_weights(task: Task, model: nn.Module, *, buffers: bool = False) -> None:
    """Give a model the weights that the task brings along; a task without them leaves it as it is. Raises TaskError.

    Args:
        task: with its file.
        model: as the task's Model was built.
        buffers: leave parameters and the statistics of norms as they are drawn, and take what only looks like weights: masks, places.
    """
    state = read_weights(task)
    if state is None:
        return
    own = model.state_dict(keep_vars=True)
    for name in sorted(own.keys() ^ state.keys()):
        where, other = ("Model", "WEIGHTS") if name in own else ("WEIGHTS", "Model")
        raise TaskError(
            f"{task.path}: {where} has {name}, and {other} has not; both need the same names of parameters and buffers"
        )
    statistics = {
        f"{path}.{name}"
        for path, part in model.named_modules()
        if isinstance(part, _NormBase)
        for name, _ in part.named_buffers()
    }
    for name, value in own.items():
        given = state[name]
        if value.shape != given.shape:
            raise TaskError(
                f"{task.path}: WEIGHTS has {name} as {list(given.shape)}, and Model makes it {list(value.shape)} at this size; set no size "
                "that weights depend on"
            )
        if isinstance(value, FakeTensor) or (
            buffers and (isinstance(value, nn.Parameter) or name in statistics)
        ):
            continue
        with torch.no_grad():
            value.copy_(given)


def inputs_fit(given: Sequence[torch.Tensor] | None, drawn: Sequence[torch.Tensor]) -> bool:
    """Whether given tensors are of the types of drawn ones, and at least as long along each axis."""
    if given is None or len(given) != len(drawn):
        return False
    pairs = list(zip(given, drawn, strict=True))
    alike = all(real.dtype == own.dtype and real.ndim == own.ndim for real, own in pairs)
    return alike and all(a >= b for real, own in pairs for a, b in zip(real.shape, own.shape, strict=True))


def fit_inputs(given: Sequence[torch.Tensor], drawn: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Given tensors that fit (`inputs_fit`), cut to the shapes of drawn ones, in their memory order and on their device."""
    parts = [real[tuple(slice(size) for size in own.shape)] for real, own in zip(given, drawn, strict=True)]
    return [with_values(own, distinct(part, own).to(own.device).contiguous()) for part, own in zip(parts, drawn, strict=True)]
