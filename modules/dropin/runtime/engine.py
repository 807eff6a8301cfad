"""One call of a drop-in: a guard, and then the kernel or the original."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack

from tritonsmith.modules.dropin.runtime.form import RefusedCall, list_tensors
from tritonsmith.modules.dropin.runtime.guard import Guard
from tritonsmith.modules.dropin.runtime.kernel import Kernel
from tritonsmith.modules.dropin.runtime.operator import Instance, Operator, find_operator
from tritonsmith.modules.dropin.runtime.straight import LEFT, key_of, write_straight_call

_MOST_ACCEPTED = 4096
"""Shapes of calls that the short way knows; with more of them it begins anew."""


class FallbackWarning(UserWarning):
    """A drop-in runs the original in place of its kernel, and why."""


class Engine:
    """What decides for one module whether its kernel runs.

    Args:
        owner: the module in whose place the kernel runs.
        kernel: the kernel.
        original: forward of the original, called as `original(owner, *args, **kwargs)`.
        plain: the owner as an object of its own class.
    """

    def __init__(
        self, owner: nn.Module, kernel: Kernel, original: Callable[..., Any], plain: nn.Module
    ) -> None:
        self.owner = owner
        self.kernel = kernel
        self.original = original
        self.told: set[str] = set()
        """Reasons that were told already."""
        self.operator: Operator = find_operator(kernel, plain)
        self.guard = Guard(owner, kernel, self.operator, plain)
        self._flat = kernel.form.is_flat
        self._count = len(kernel.form.given)
        self._arguments = kernel.form.arguments
        self._straight = self._arguments == tuple(range(len(self._arguments))) and not kernel.form.constants
        self.instance: Instance | None = None
        """The ModelNew that computes with the weights of the latest call."""
        self._captured: list[Instance] = []
        self._bound: list[torch.Tensor] = []
        self._straight_call: Callable[..., Any] | None = None
        self._accepted: set[Any] = set()
        self._written_for: list[torch.Tensor] | None = None
        self._written_at: tuple[int, ...] = ()
        kernel.see_writes(owner)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and files of a module hold no engine: each module makes its own."""
        return type(None), ()

    # ---- one call

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call: by the kernel where that is proven, else by the original."""
        try:
            tensors = (
                args
                if self._flat and not kwargs and len(args) == self._count
                else self.kernel.form.read_tensors(args, kwargs)
            )
        except RefusedCall as refused:
            return self._fall_back(str(refused), args, kwargs)
        straight = self._straight_call
        try:
            if straight is not None:
                result = straight(*tensors)
                if result is not LEFT:
                    return result
            reason = self.guard.find_reason(tensors)
            if not reason:
                return self._run(tensors)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a kernel that refuses or cannot be launched: the original stands for it
            if type(error).__module__ == "torch.utils.checkpoint":
                raise  # recomputation ends a forward in this way
            text = " ".join(str(error).split())[:200]
            reason = f"the kernel refuses ({type(error).__name__}: {text})"
        return self._fall_back(reason, args, kwargs)

    def _remember(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have later calls like this one, which was let through, take the short way."""
        assert self.instance is not None  # it has just computed
        versions = tuple(weight._version for weight in self.guard.weights) if self.kernel.keeps else ()
        if (
            self._written_for is not self.guard.weights
            or self._written_at != versions
            or len(self._accepted) >= _MOST_ACCEPTED
        ):
            self._accepted = set()
            self._straight_call = write_straight_call(
                self.guard, self.instance.model, self._differentiate_straight(), tensors, self._accepted
            )
            self._written_for, self._written_at = self.guard.weights, versions
        self._accepted.add(key_of(tensors))

    def _fall_back(self, reason: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.tell(reason)
        return self.original(self.owner, *args, **kwargs)

    def tell(self, reason: str) -> None:
        """Warn about a fallback, once for each reason."""
        kind = re.sub(r"\d+", "#", reason)[:80]  # other numbers are the same reason
        if kind not in self.told:
            self.told.add(kind)
            message = f"{self.kernel.name} runs as the original, without its kernel: {reason} (told once)"
            warnings.warn(message, FallbackWarning, stacklevel=6)

    # ---- the kernel

    def _run(self, tensors: Sequence[torch.Tensor]) -> Any:
        weights = self.guard.weights
        differentiated = torch.is_grad_enabled() and (_needs_gradient(tensors) or _needs_gradient(weights))
        if differentiated and self.kernel.has_own_backward and not _len_torch_dispatch_stack():
            return self._run_with_backward(tensors)
        if differentiated and (self.operator.skeleton is None or self.kernel.proof.updates):
            return self._run_original(tensors, "gradients are asked for, and they come from the original")
        if _len_torch_dispatch_stack():  # modes that watch operators, such as selective checkpointing
            return self.kernel.form.build_result(self.operator.compute(tensors, weights))
        if differentiated:
            results = apply_function(self, self._launch_given, *tensors, *weights)
            self._remember(tensors)
            return self.kernel.form.build_result([results] if isinstance(results, torch.Tensor) else results)
        result = self.launch(tensors)
        self._remember(tensors)
        if type(result) is torch.Tensor and self.kernel.form.result is None:
            return result
        return self.kernel.form.build_result(list_tensors(result))

    def _run_with_backward(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The kernel's result with the gradients that were judged with it; gradients of gradients were not, and are refused."""
        results = list_tensors(self.launch(tensors))
        for result in results:
            if result.requires_grad:
                result.register_hook(_refuse_second_order)
        return self.kernel.form.build_result(results)

    def launch(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What ModelNew gives for tensors that the guard has let through, with the weights of that call."""
        weights, instance = self.guard.weights, self.instance
        first = tensors[0] if tensors else weights[0]
        if instance is None or self._bound is not weights:
            device = first.device
            instance = self.instance = Instance(self.kernel, device)
            instance.bind(dict(zip(self.kernel.state, weights, strict=True)))
            self._bound = weights
        if not first.is_cuda:
            result = self.kernel.forward(instance.model, *self._pick(tensors))
        elif first.get_device() == torch._C._cuda_getDevice():
            result = self.kernel.forward(self._choose_for_capture(instance).model, *self._pick(tensors))
        else:
            with torch.cuda.device(first.device):
                result = self.kernel.forward(self._choose_for_capture(instance).model, *self._pick(tensors))
        if self.kernel.proof.updates:
            self._take_updates(instance)
        return result

    def _launch_given(self, *tensors: torch.Tensor) -> Any:
        return self.launch(tensors)

    def _differentiate_straight(self) -> Callable[..., Any]:
        """Outputs with gradients for the tensors and weights of a call, where all that `launch` looks at was looked at."""
        assert self.instance is not None  # it has just computed
        launch = functools.partial(self.kernel.forward, self.instance.model) if self._straight else self._launch_given
        return functools.partial(apply_function, self, launch)

    def _run_original(self, tensors: Sequence[torch.Tensor], reason: str) -> Any:
        args, kwargs = self.kernel.form.build_call(tensors)
        return self._fall_back(reason, args, kwargs)

    def _pick(self, tensors: Sequence[torch.Tensor]) -> Sequence[Any]:
        return tensors if self._straight else self.kernel.form.pick_arguments(tensors)

    def _choose_for_capture(self, instance: Instance) -> Instance:
        """Inside a CUDA graph that is being captured: a ModelNew that packs its weights in the graph, unless they were packed before it.

        What is packed in a graph has no values until the graph is replayed, so nothing else may use it.
        """
        if not self.kernel.keeps:
            return instance
        versions = tuple(weight._version for weight in self.guard.weights)
        if not torch.cuda.is_current_stream_capturing():
            self.guard.versions = versions
            return instance
        if versions == self.guard.versions:
            return instance
        fresh = Instance(self.kernel, self.guard.weights[0].device)
        fresh.bind(dict(zip(self.kernel.state, self.guard.weights, strict=True)))
        self._captured.append(fresh)
        return fresh

    def _take_updates(self, instance: Instance) -> None:
        """Buffers that forward replaced, back into the module."""
        places = dict(zip(self.kernel.state, self.guard.places, strict=True))
        for origin, own, own_name in instance.places:
            _, held, name = places[origin]
            if own[own_name] is not held.get(name) and origin in self.kernel.proof.updates:
                held[name] = own[own_name]


class _Differentiable(torch.autograd.Function):
    """One launch with gradients of the original. An eager call takes it, for the operator costs 15 microseconds more."""

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, launch: Callable[..., Any], *given: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The kernel's outputs for the tensors and then the weights of a call; `launch` takes the tensors."""
        ctx.engine = engine
        ctx.save_for_backward(*given)
        ctx.set_materialize_grads(False)
        operator = engine.operator
        result = launch(*given[: operator.count])
        if type(result) is torch.Tensor and result.is_contiguous() and not result._is_view():
            for tensor in given:
                if tensor is result:
                    break
            else:
                return result  # memory of its own, as nearly always
        return operator.own_outputs(list_tensors(result), given)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the original."""
        needed = ctx.needs_input_grad[2:]
        return None, None, *ctx.engine.operator.differentiate(ctx.saved_tensors, needed, gradients)


apply_function: Callable[..., Any] = super(torch.autograd.Function, _Differentiable).apply
"""Runs it. What `Function.apply` does besides is for transforms of torch.func, which the guard keeps away: 3 microseconds of a call."""


def _refuse_second_order(gradient: torch.Tensor) -> None:
    """Raises RuntimeError where autograd records backward, as it does with create_graph=True."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "gradients of gradients are asked for, and this kernel is proven for gradients alone: use the original module there"
        )


def _needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether one of them needs a gradient; a loop, since `any` with a generator takes a microsecond."""
    for tensor in tensors:
        if tensor.requires_grad:  # noqa: SIM110
            return True
    return False
