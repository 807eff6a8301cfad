"""Buffers that a forward updates, such as running statistics in training mode, and what acts by the mode. Imports torch.

What forward leaves in them is compared like its outputs. Each call starts from the values of the weights' file: for the reference, the
baselines and the candidate alike. So calls can be repeated and taken again, and no call depends on those before it.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake

from tritonsmith.evaluator.reference.module import flatten, list_tensors, take_plain_layers
from tritonsmith.evaluator.reference.structure import find_shared

_RATES = ("p", "dropout")
"""Attributes of modules of PyTorch that say how much they drop out in training mode."""


def list_by_mode(model: nn.Module, source: str) -> tuple[str, ...]:
    """What of a model acts otherwise in the other mode, as `nn.Dropout at drop`; code that asks for the mode counts.

    Args:
        model: the reference.
        source: text of its file.
    """
    found = [f"nn.{type(module).__name__}" + (f" at {path}" if path else "") for path, module in model.named_modules() if _differs(module)]
    own = any(isinstance(node, ast.Attribute) and node.attr == "training" for node in ast.walk(ast.parse(source)))
    known = ("torch", type(model).__module__)
    foreign = {type(module) for module in model.modules() if type(module).__module__.partition(".")[0] not in known}
    asking = ["the code that reads `training`"] * own + [one.__name__ for one in foreign if _asks_mode(one)]
    return (*found, *sorted(asking))


def _differs(module: nn.Module) -> bool:
    """Whether a module of PyTorch acts otherwise in the other mode, apart from the modules in it."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    if isinstance(module, nn.RReLU):
        return module.lower != module.upper
    if isinstance(module, nn.modules.dropout._DropoutNd | nn.RNNBase | nn.MultiheadAttention):
        return any(getattr(module, name, 0) > 0 for name in _RATES)
    return type(module).__name__ == "_SpectralNorm"  # a step of its power iteration in training mode


def _asks_mode(module: type) -> bool:
    """Whether the text of a class that no task defines reads `training`; one without a text counts."""
    try:
        return ".training" in inspect.getsource(module)
    except (OSError, TypeError):
        return True


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
    with torch.no_grad(), take_plain_layers():
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
