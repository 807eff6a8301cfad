"""A kernel as an operator of PyTorch, with a fake for compilers and with gradients of the original."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch.utils import _pytree as pytree

from tritonsmith.modules.dropin.runtime.form import list_tensors
from tritonsmith.modules.dropin.runtime.kernel import Kernel, reach

_MOST_INSTANCES = 1024
"""Instances of ModelNew for one operator; more modules than these would make each other's packed weights anew."""
_OPERATORS: dict[str, Operator] = {}
"""By digest of the kernel. An operator stays registered as long as the process lives."""


class Instance:
    """A ModelNew that computes with the weights of one module.

    Args:
        kernel: whose ModelNew it is.
        device: of the weights.
    """

    def __init__(self, kernel: Kernel, device: torch.device) -> None:
        self.model = kernel.build()
        origins: dict[str, str] = getattr(self.model, "WEIGHT_MAP", {})
        self.places: list[tuple[str, dict[str, Any], str]] = []
        """For each tensor of ModelNew that the original has too: its name in the task's state, and where it is held."""
        for path, part in self.model.named_modules():
            for held in (part._parameters, part._buffers):
                for name, value in held.items():
                    own = f"{path}.{name}" if path else name
                    origin = origins.get(own, own)
                    if value is not None and (origin in kernel.state or origin in kernel.constants):
                        self.places.append((origin, held, name))
                        held[name] = (
                            value.new_empty(0)
                            if held is part._buffers
                            else nn.Parameter(value.new_empty(0), False)
                        )
        self.model.to(device)
        for origin, held, name in self.places:
            if origin in kernel.constants:
                held[name] = _like(held[name], kernel.constants[origin].to(device))
        self.places = [place for place in self.places if place[0] in kernel.state]
        self.addresses: tuple[tuple[int, int], ...] = ()

    def bind(self, weights: dict[str, torch.Tensor]) -> None:
        """Compute with these tensors, by name of the task's state."""
        for origin, held, name in self.places:
            held[name] = weights[origin]


def _like(held: Any, value: torch.Tensor) -> torch.Tensor:
    return nn.Parameter(value, requires_grad=False) if isinstance(held, nn.Parameter) else value


class Operator:
    """A kernel that PyTorch's dispatcher knows: `overload(*tensors, *weights)` gives the kernel's outputs.

    Args:
        kernel: what it runs.
        original: a module that the kernel stands for. A copy of it without values gives shapes and gradients.
    """

    def __init__(self, kernel: Kernel, original: nn.Module) -> None:
        self.kernel = kernel
        self.skeleton = copy_without_values(original, kernel)
        self.names = tuple(kernel.state)
        """Names of the weights in their order, as the task's state has them."""
        held = dict(_list_held(kernel.build()))
        known = {path: held.get(name, reach(original, path)) for name, path in kernel.state.items()}
        self.dtypes = tuple((value.dtype, value.shape) for value in known.values())
        """Types and shapes of the weights in their order."""
        self.count = len(kernel.form.tensors)
        self._dense = [_is_dense(kernel, number) for number in range(self.count)]
        self._outputs = sum(place is not None for place in kernel.form.outputs)
        self._instances: OrderedDict[Any, Instance] = OrderedDict()
        self._lock = threading.RLock()
        self._register()

    def _register(self) -> None:
        """Make the operator known. Its library object must stay alive."""
        namespace = _find_namespace()
        name = f"{self.kernel.name.lower()}_{self.kernel.digest}"
        arguments = [f"Tensor x{number}" for number in range(self.count)] + [
            f"Tensor w{number}" for number in range(len(self.names))
        ]
        self._library = torch.library.Library(namespace, "FRAGMENT")
        tags = [torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag]
        if self.kernel.keeps and hasattr(torch.Tag, "cudagraph_unsafe"):
            tags.append(
                torch.Tag.cudagraph_unsafe
            )  # what it keeps would lie in memory that Inductor's graphs take back
        self._library.define(
            f"{name}({', '.join(arguments)}) -> {_write_results(self._outputs)}", tags=tuple(tags)
        )
        self._library.impl(name, self.run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{namespace}::{name}", self.pretend, lib=self._library)
        torch.library.register_autograd(
            f"{namespace}::{name}", self._differentiate, setup_context=_keep_arguments, lib=self._library
        )
        self.overload = getattr(getattr(torch.ops, namespace), name).default
        """What programs and compiled graphs call."""

    def compute(self, tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The kernel's outputs, with gradients of the original."""
        results = self.overload(*tensors, *weights)
        return [results] if self._outputs == 1 else list(results)

    def run(self, *given: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The operator on real tensors."""
        form, kernel = self.kernel.form, self.kernel
        tensors = [
            tensor.contiguous() if dense else tensor
            for dense, tensor in zip(self._dense, given[: self.count], strict=True)
        ]
        weights = given[self.count :]
        device = (given[0] if given else torch.empty(0)).device
        with switch_card(device):
            instance = self._find_instance(weights, device)
            outputs = list_tensors(kernel.forward(instance.model, *form.pick_arguments(tensors)))
        return self.own_outputs(outputs, given)

    def own_outputs(
        self, outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Outputs that are contiguous and share memory neither with what was given nor with each other."""
        taken = {tensor.untyped_storage().data_ptr() for tensor in given}
        results: list[torch.Tensor] = []
        for output in outputs:
            shares = output.untyped_storage().data_ptr() in taken
            results.append(
                output.clone(memory_format=torch.contiguous_format) if shares else output.contiguous()
            )
            taken.add(results[-1].untyped_storage().data_ptr())
        return results[0] if self._outputs == 1 else tuple(results)

    def _find_instance(self, weights: Sequence[torch.Tensor], device: torch.device) -> Instance:
        """The ModelNew that has packed these weights before, or a new one. It holds aliases of them, so they can go."""
        key = (device, weights[0].data_ptr()) if weights else (device, 0)
        addresses = tuple(
            (weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights
        )
        with self._lock:
            instance = self._instances.get(key)
            if instance is None:
                instance = self._instances[key] = Instance(self.kernel, device)
                if weights:
                    weakref.finalize(weights[0], self._instances.pop, key, None)
                while len(self._instances) > _MOST_INSTANCES:
                    self._instances.popitem(last=False)
            if instance.addresses != addresses or any(weight.is_inference() for weight in weights):
                aliases = {name: _alias(weight) for name, weight in zip(self.names, weights, strict=True)}
                instance.bind(aliases)
                instance.addresses = addresses
        return instance

    def pretend(self, *given: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The operator's results without values: as the original's, each contiguous and of its own."""
        mode = detect_fake_mode(given)
        allowed = getattr(mode, "allow_non_fake_inputs", False)
        try:
            if mode is not None:
                mode.allow_non_fake_inputs = True  # tables that the original holds outside its state
            with torch.no_grad():
                outputs = self._run_original(given[: self.count], given[self.count :])
        finally:
            if mode is not None:
                mode.allow_non_fake_inputs = allowed
        results = [output.new_empty(output.shape) for output in outputs]
        return results[0] if self._outputs == 1 else tuple(results)

    def _run_original(
        self, tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """What the original gives for these tensors and weights, in the order of the kernel's outputs."""
        if self.skeleton is None:
            raise RuntimeError(
                "the original cannot be copied without values, so this kernel has no fake and no gradients"
            )
        kernel = self.kernel
        given, named = kernel.form.build_call(tensors)
        state = {kernel.state[name]: weight for name, weight in zip(self.names, weights, strict=True)}
        with self._lock, torch.autocast(tensors[0].device.type if tensors else "cpu", enabled=False):
            result = torch.func.functional_call(self.skeleton, state, tuple(given), named, tie_weights=False)
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        order = [number for number in kernel.form.outputs if number is not None]
        return [leaf for _, leaf in sorted(zip(order, leaves, strict=True), key=lambda pair: pair[0])]

    def _differentiate(self, ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return self.differentiate(ctx.saved_tensors, ctx.needs_input_grad, gradients)

    def differentiate(
        self,
        given: Sequence[torch.Tensor],
        need: Sequence[bool],
        gradients: Sequence[torch.Tensor | None],
    ) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the original, whose forward runs again.

        Args:
            given: the tensors and then the weights of the call.
            need: for each of them whether its gradient is asked for.
            gradients: of the outputs; None for one that nothing depends on.
        """
        again = torch.is_grad_enabled()  # gradients of gradients are asked for
        with torch.enable_grad():
            tensors = [
                (tensor.view_as(tensor) if again else tensor.detach().requires_grad_())
                if needed
                else tensor.detach()
                for tensor, needed in zip(given, need, strict=True)
            ]
            outputs = self._run_original(tensors[: self.count], tensors[self.count :])
            pairs = [
                pair
                for pair in zip(outputs, gradients, strict=True)
                if pair[1] is not None and pair[0].requires_grad
            ]
            wanted = [tensor for tensor, needed in zip(tensors, need, strict=True) if needed]
            found: Iterator[torch.Tensor | None] = iter(())
            if pairs and wanted:
                found = iter(
                    torch.autograd.grad(
                        [output for output, _ in pairs],
                        wanted,
                        [gradient for _, gradient in pairs],
                        create_graph=again,
                        allow_unused=True,
                    )
                )
        return tuple(next(found, None) if needed else None for needed in need)


def _write_results(count: int) -> str:
    """The results of an operator in its schema."""
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"


def _find_namespace() -> str:
    """That of the package which these files are in, as Hugging Face `kernels` asks for; `tritonsmith` for the project itself."""
    name = f"{__package__}._ops"
    if importlib.util.find_spec(name) is None:
        return "tritonsmith"
    qualified: str = importlib.import_module(name).add_op_namespace_prefix("")
    return qualified.removesuffix("::")


def _list_held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a ModelNew by the task's names."""
    origins: dict[str, str] = getattr(model, "WEIGHT_MAP", {})
    for named in (
        model.named_parameters(remove_duplicate=False),
        model.named_buffers(remove_duplicate=False),
    ):
        for name, value in named:
            yield origins.get(name, name), value


def _keep_arguments(ctx: Any, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)


def _is_dense(kernel: Kernel, number: int) -> bool:
    """Whether a tensor of the call was contiguous whenever the kernel was judged."""
    cases = [case.tensors[number] for case in kernel.proof.cases]
    return all(known is not None and known.strides is None for known in cases)


def _alias(weight: torch.Tensor) -> torch.Tensor:
    """A tensor with the same memory and the same count of writes, which keeps nobody else's object alive; contiguous."""
    if weight.is_inference():  # such a tensor counts no writes
        with torch.inference_mode(False):
            return weight.clone()
    return weight.detach().contiguous()


@contextlib.contextmanager
def switch_card(device: torch.device) -> Iterator[None]:
    """Launch on the card where the tensors are."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            yield
    else:
        yield


def find_operator(kernel: Kernel, original: nn.Module) -> Operator:
    """The operator of a kernel, which is registered when it is first asked for."""
    if kernel.digest not in _OPERATORS:
        _OPERATORS[kernel.digest] = Operator(kernel, original)
    return _OPERATORS[kernel.digest]


def copy_without_values(original: nn.Module, kernel: Kernel) -> nn.Module | None:
    """A copy of a module on the meta device, in the mode that the kernel is proven for; None where it cannot be copied."""
    memo: dict[int, Any] = {}
    for value in (
        *original.parameters(),
        *original.buffers(),
        *(reach(original, path) for path in kernel.state.values()),
    ):
        empty = torch.empty_like(value, device="meta")
        memo[id(value)] = (
            nn.Parameter(empty, value.requires_grad) if isinstance(value, nn.Parameter) else empty
        )
    try:
        skeleton = copy.deepcopy(original, memo)
    except Exception:  # noqa: BLE001 - a foreign module: anything may stand in it
        return None
    for hooks in (
        skeleton._forward_hooks,
        skeleton._forward_pre_hooks,
        skeleton._backward_hooks,
        skeleton._backward_pre_hooks,
    ):
        hooks.clear()  # those of the whole module run around the kernel
    for part in skeleton.modules():
        part.training = kernel.proof.training
        if (
            isinstance(part, nn.RNNBase) and not part.dropout
        ):  # cuDNN has gradients in training mode alone; without dropout both are one
            part.training = True
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters = functools.partial(_flatten_real, part)  # type: ignore[method-assign]
    return skeleton


def _flatten_real(part: nn.RNNBase) -> None:
    """As `flatten_parameters`, except for weights without values, whose addresses on a card nobody can ask for."""
    if detect_fake_mode(list(part._flat_weights)) is None:
        type(part).flatten_parameters(part)
