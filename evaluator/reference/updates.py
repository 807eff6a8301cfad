"""Buffers that a forward updates, such as the running statistics of a batch norm in training mode. Imports torch.

What forward leaves in them is compared like its outputs. Each call starts from the values of the weights' file: for the reference, the
baselines and the candidate alike. So calls can be repeated and taken again, and no call depends on those before it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake

from tritonsmith.evaluator.reference.module import flatten, list_tensors
from tritonsmith.evaluator.reference.structure import find_shared


def _holder(model: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """The dict of a module that holds a buffer or a parameter, and the name there."""
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    held: dict[str, Any] = module._parameters if last in module._parameters else module._buffers
    return held, last


class UpdatedBuffers:
    """Some tensors of a model, with the values that each call starts from.

    Args:
        model: what holds them.
        names: their dotted names there, in the order in which they are compared.
    """

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        self._places = [_holder(model, name) for name in names]
        self._tensors: list[torch.Tensor] = [held[last] for held, last in self._places]
        self._values: list[torch.Tensor] = []
        self._versions: list[int] = []
        self.keep()

    def keep(self) -> None:
        """The present values are those that calls start from."""
        self._values = [tensor.detach().clone() for tensor in self._tensors]
        self._versions = [tensor._version for tensor in self._tensors]

    def read(self) -> list[torch.Tensor]:
        """The tensors as a call left them: forward may have put others in their places."""
        return [held[last].detach() for held, last in self._places]

    def list_changed(self) -> list[bool]:
        """Which of them are others than those that calls start from; on fake tensors as far as versions show it."""
        now = [held[last] for held, last in self._places]
        kept = zip(self._tensors, self._versions, self._values, strict=True)
        return [
            found is not tensor or found._version != version or (not is_fake(found) and not _are_equal(found, values))
            for found, (tensor, version, values) in zip(now, kept, strict=True)
        ]

    def part_from(self, result: Any) -> Any:
        """What forward returned, in memory of its own where it lies in these tensors, as it must before they are set back."""
        return copy.deepcopy(result) if find_shared(list_tensors(result), [*self._tensors, *self.read()]) else result

    def set_back(self) -> None:
        """Put the tensors back, with the values that calls start from."""
        with torch.no_grad():
            for (held, last), tensor, values in zip(self._places, self._tensors, self._values, strict=True):
                held[last] = tensor
                tensor.copy_(values)


def run_whole(model: nn.Module, arguments: Sequence[Any], updates: Sequence[str]) -> tuple[Any, list[torch.Tensor]]:
    """What forward returns, and what it leaves in the buffers that it updates; these stay as they were."""
    buffers = UpdatedBuffers(model, updates)
    with torch.no_grad():
        result = model(*arguments)
    found, result = [tensor.clone() for tensor in buffers.read()], buffers.part_from(result)
    buffers.set_back()
    return result, found


def run_forward(
    model: nn.Module, arguments: Sequence[Any], updates: Sequence[str], written: Sequence[int] = ()
) -> list[torch.Tensor]:
    """The tensors that forward returns, those it leaves in the buffers that it updates, and the arguments that it writes to.

    `written` has the numbers of those among the arguments that are tensors. The buffers stay as they were.
    """
    result, found = run_whole(model, arguments, updates)
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return [*flatten(result), *found, *flatten([tensors[number] for number in written])]


def find_updates(model: nn.Module, forward: Callable[[], Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """What a forward returns, and what it leaves in the persistent buffers that it updates; these stay as they were."""
    known = model.state_dict(keep_vars=True)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = [name for name, value in known.items() if isinstance(value, torch.Tensor) and name not in parameters]
    buffers = UpdatedBuffers(model, names)
    result = forward()
    faked = any(is_fake(value) for value in known.values())
    statistics = _list_statistics(model) if faked else set()
    changed = [found or name in statistics for name, found in zip(names, buffers.list_changed(), strict=True)]
    found = {name: value.clone() for name, value, is_new in zip(names, buffers.read(), changed, strict=True) if is_new}
    result = result if faked else buffers.part_from(result)
    buffers.set_back()
    return result, found


def _are_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return bool(((first == second) | ((first != first) & (second != second))).all())  # one that is no number equals another


def _list_statistics(model: nn.Module) -> set[str]:
    """Running statistics of norms in training mode: on fake tensors nothing shows that they are updated."""
    return {
        f"{path}{'.' if path else ''}{name}"
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.training and module.track_running_stats
        for name in ("running_mean", "running_var", "num_batches_tracked")
        if name != "num_batches_tracked" or not isinstance(module, nn.modules.instancenorm._InstanceNorm)  # which counts none
    }
