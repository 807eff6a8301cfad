"""What is looked at ahead of each call: inside of what is proven, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._C import _get_tracing_state
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config, find_difference, reach
from tritonsmith.modules.dropin.runtime.operator import Operator
from tritonsmith.modules.dropin.runtime.proof import name_type

_PLAIN = (torch.Tensor, nn.Parameter)
_MOST_KNOWN = 4096
"""Calls whose shapes are known to be proven, or not; more of them are looked at anew."""


class Guard:
    """Says for one module whether a call is within what its kernel is proven for.

    Args:
        owner: the module in whose place the kernel runs.
        kernel: the kernel.
        operator: of the kernel; it knows types and shapes of the weights.
        plain: the owner as an object of its own class.
    """

    def __init__(self, owner: nn.Module, kernel: Kernel, operator: Operator, plain: nn.Module) -> None:
        self.owner = owner
        self.kernel = kernel
        self.operator = operator
        self.fault = find_difference(kernel.config, describe_config(plain))
        """Why this module is none that the kernel is made for."""
        self.weights: list[torch.Tensor] = []
        """The weights of the latest call that was proven; another list where one was moved or replaced."""
        self.is_complex = any(
            known is not None and "complex" in known.dtype
            for case in kernel.proof.cases
            for known in case.tensors
        )
        self._is_interpreted = kernel.is_interpreted  # asked now: torch.compile cannot follow the look at the text
        self._known: dict[Any, str] = {}
        self._memory: list[Any] = []
        self.versions: tuple[int, ...] = ()
        """How often they were written, at the latest call outside a CUDA graph that was being captured."""
        self._device: torch.device | None = None
        self._look_at_structure()

    def _look_at_structure(self) -> None:
        """Note which modules are where, so that another one in a place is seen."""
        parts = dict(self.owner.named_modules(remove_duplicate=False))
        self.parts = [
            (parts[path.rpartition(".")[0]]._modules, path.rpartition(".")[2], part, part.__dict__,
             part._forward_hooks, part._forward_pre_hooks,
             bool(part._forward_hooks or part._forward_pre_hooks))
            for path, part in parts.items() if path
        ]  # fmt: skip
        self.places = []
        for path in self.kernel.state.values():
            holder, _, name = path.rpartition(".")
            part = parts[holder]
            self.places.append((path, part._parameters if name in part._parameters else part._buffers, name))

    def find_reason(self, tensors: Sequence[torch.Tensor]) -> str:
        """Why this call is outside what is proven; empty where it is not."""
        if self.fault:
            return f"the kernel is made for another module, {self.fault}"
        facts: list[Any] = []
        for tensor in tensors:
            if type(tensor) not in _PLAIN:
                return f"an argument is a {type(tensor).__name__}, and the kernel is made for plain tensors"
            facts += (tensor.shape, tensor.dtype, tensor.device, tensor.stride())
            if self.is_complex and tensor.is_conj():
                return "an argument is the conjugate view of a tensor"
        key = tuple(facts)
        reason = self._known.get(key)
        if reason is None:
            reason = self._look_at_tensors(tensors, key)
        return (
            reason or self._look_at_modes(tensors) or self._look_at_parts() or self._look_at_weights(tensors)
        )

    def _look_at_tensors(self, tensors: Sequence[torch.Tensor], key: Any) -> str:
        """The same for tensors of these shapes, types, devices and strides; the answer is kept."""
        reason = self.kernel.proof.refuse_tensors(tensors) or self.refuse_device(
            [tensor.device for tensor in tensors]
        )
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = reason
        return reason

    def refuse_device(self, devices: Sequence[torch.device]) -> str:
        """Why the kernel does not run on these devices; empty where it does."""
        if not devices:
            return ""
        device = devices[0]
        if any(other != device for other in devices):
            return "its arguments are on several devices"
        if self._is_interpreted:
            return "" if device.type in ("cpu", "cuda") else f"it is on {device.type}"
        if device.type != "cuda":
            return f"it is on {device.type}, and the kernel runs on a CUDA card"
        major, minor = torch.cuda.get_device_capability(device)
        if self.kernel.proof.capability and self.kernel.proof.capability != f"{major}{minor}":
            return f"this card has the capability {major}.{minor}, and the kernel is proven for sm_{self.kernel.proof.capability}"
        return ""

    def _look_at_modes(self, tensors: Sequence[torch.Tensor]) -> str:
        if _get_tracing_state() is not None:
            return "it is traced by torch.jit"
        if peek_interpreter_stack() is not None:
            return "it is called inside a transform of torch.func"
        if forward_ad._current_level >= 0:  # no public function says so; tangents would be lost
            return "derivatives are computed forward"
        if torch.is_autocast_enabled(tensors[0].device.type if tensors else "cpu"):
            return "autocast is on, which gives the original other types"
        if self.kernel.proof.by_mode and self.owner.training is not self.kernel.proof.training:
            return self._tell_mode()
        return ""

    def is_in_proven_mode(self) -> bool:
        """Whether the module and all its parts are in the mode that the kernel is made for.

        It reads the parts' attributes and not the parts, because torch.compile does not follow an nn.GRU.
        """
        training = self.kernel.proof.training
        if self.owner.training is not training:
            return False
        for _, _, _, attributes, *_ in self.parts:
            if attributes["training"] is not training:
                return False
        return True

    def _tell_mode(self) -> str:
        made, now = ("training", "evaluation") if self.kernel.proof.training else ("evaluation", "training")
        return f"it is in {now} mode, where {self.kernel.proof.by_mode[0]} acts otherwise than in {made} mode"

    def _look_at_parts(self) -> str:
        by_mode, training = self.kernel.proof.by_mode, self.kernel.proof.training
        for held, name, part, attributes, after, before, hooked in self.parts:
            if held.get(name) is not part:
                return f"another module stands at {name}"
            if (after or before) and not hooked:
                return f"{name} has a hook, which the kernel would not call"
            if "forward" in attributes:
                return f"{name} has another forward"
            if by_mode and attributes["training"] is not training:
                return self._tell_mode()
        return ""

    def _look_at_weights(self, tensors: Sequence[torch.Tensor]) -> str:
        """The same for the weights; those that were moved or replaced are looked at anew."""
        weights = []
        device = tensors[0].device if tensors else None
        same = len(self.weights) == len(self.places) and device == self._device
        for number, (path, held, name) in enumerate(self.places):
            weight = held.get(name)
            if weight is None:
                weight = reach(self.owner, path)
            weights.append(weight)
            same = same and weight is self.weights[number] and _locate(weight) == self._memory[number]
        if same:
            return ""
        reason = self.refuse_weights(weights, device)
        if self.kernel.keeps and any(weight.is_inference() for weight in weights):
            reason = "a weight was made under inference_mode, where writes to it cannot be seen"
        if not reason:
            self.weights, self._memory = weights, [_locate(weight) for weight in weights]
            self._device = device
        return reason

    def refuse_weights(self, weights: Sequence[torch.Tensor], device: torch.device | None) -> str:
        """Why the kernel cannot take these weights; empty where it can."""
        skeleton = self.operator.dtypes
        for (path, _, _), weight, (dtype, shape) in zip(self.places, weights, skeleton, strict=True):
            if (
                type(weight) not in _PLAIN
                and not isinstance(weight, nn.Parameter | nn.Buffer)
                and not is_seen(weight)
            ):
                return f"{path} is a {type(weight).__name__}, and the kernel takes plain tensors"
            if weight.dtype is not dtype:
                return f"{path} is {name_type(weight.dtype)}, and the kernel is proven for {name_type(dtype)}"
            if weight.shape != shape:
                return (
                    f"{path} has the shape {list(weight.shape)}, and the kernel is proven for {list(shape)}"
                )
            if device is not None and weight.device != device:
                return f"{path} is on {weight.device}, and the arguments are on {device}"
            if not weight.is_contiguous():
                return f"{path} lies in memory in another way than the kernel is proven for"
        return ""


def is_seen(weight: torch.Tensor) -> bool:
    """Whether writes to a weight through `.data` are counted; `Kernel.see_writes` makes such weights."""
    return type(weight).__name__ in ("SeenParameter", "SeenBuffer")


def _locate(weight: torch.Tensor) -> tuple[int, int, bool]:
    """Where a weight lies and how much of it; it tells when someone gave it other memory or another layout."""
    return weight.data_ptr(), weight.numel(), weight.is_contiguous()
