"""What Inductor writes for a task's module on a card. Imports torch; runs the user's own task file.

The module lies on fake tensors of the card, so nothing is computed, and no memory of the card is needed.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument

from tritonsmith.evaluator.inductor.attention import keep_attention
from tritonsmith.evaluator.inductor.pretend_card import pretend_card
from tritonsmith.evaluator.inductor.records import NoSeedError
from tritonsmith.evaluator.reference.module import Reference, load_reference
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.reference.stand_in import make_stand_in
from tritonsmith.evaluator.schema import Hardware, Task

_SEED = 0
_CARD = "cuda"
_PLAIN: dict[str, Any] = {
    "compile_threads": 1, "fx_graph_cache": False, "shape_padding": False, "combo_kernels": False, "graph_partition": False,
    "max_autotune": False, "max_autotune_pointwise": False, "max_autotune_gemm": False, "coordinate_descent_tuning": False,
    "cpp_wrapper": False, "size_asserts": True, "nan_asserts": False, "assert_indirect_indexing": False, "benchmark_kernel": False,
    "benchmark_fusion": False, "freezing": False, "triton.cudagraphs": False, "triton.unique_kernel_names": True,
    "triton.descriptive_names": "original_aten", "triton.cooperative_reductions": False, "triton.autotune_at_compile_time": False,
    "triton.store_cubin": False, "triton.mix_order_reduction": False, "triton.native_matmul": False, "triton.use_block_ptr": False,
    "triton.use_tensor_descriptor": False, "triton.debug_sync_graph": False, "triton.enable_pdl": False, "memory_planning": False,
    "allow_buffer_reuse": True, "profiler_mark_wrapper_call": False, "generate_intermediate_hooks": False,
    "triton.mix_order_reduction_initial_xblock": 1, "autotune_in_subproc": False, "fx_graph_remote_cache": False,
    "autotune_local_cache": False, "joint_graph_constant_folding": False, "autotune_remote_cache": False,
    "bundled_autotune_remote_cache": False,
}  # fmt: skip
"""Settings for the plainest text; those that the installed Inductor does not have are left out."""


@dataclass(frozen=True)
class InputTensor:
    """One tensor that Inductor's code takes."""

    origin: str
    """`parameter`, `buffer` (one that a state_dict holds), `constant` or `input`."""
    name: str
    """Dotted name of a parameter or buffer, name of forward's argument."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    value: torch.Tensor | None = None
    """Of a constant."""


@dataclass(frozen=True)
class Generated:
    """Inductor's text, and how it is called."""

    text: str
    inputs: tuple[InputTensor, ...]
    """In the order of the arguments of `call`."""
    constants: dict[str, torch.Tensor]
    """Tensors that the text names at its top level."""
    arguments: tuple[str, ...]
    """Names of forward's arguments."""
    plain: dict[str, Any]
    """Arguments of forward that are no tensors, with the values that the text is made for."""
    results: tuple[Any, ...]
    """The flattened result: the number of an output of `call`, or a PlainValue."""
    tree: Any
    """Pytree that the flattened result makes."""
    model: nn.Module = field(repr=False)
    """On fake tensors."""
    reference: Reference = field(repr=False)


@dataclass(frozen=True)
class PlainValue:
    """A part of the result that is no tensor."""

    value: Any


class _CapturedText(BaseException):
    """Ends the compilation where the text is complete; no handler for exceptions stops it."""

    def __init__(self, text: str, constants: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.text, self.constants = text, constants


def generate(task: Task, hardware: Hardware) -> Generated:
    """Inductor's text for the task's module on the card. Raises TaskError, and NoSeedError where Inductor has none to give."""
    set_tf32(task.precision.allows_tf32)
    if not hasattr(GraphLowering, "save_output_code"):
        raise NoSeedError(f"the Inductor of torch {torch.__version__} does not hand out its text; use torch 2.11 or later")
    reference = load_reference(task)
    stand_in = make_stand_in(reference, _SEED)
    _refuse_recurrent(stand_in.model)
    if any(isinstance(value, list | tuple | dict) for value in stand_in.inputs):
        raise NoSeedError("forward takes a list or a dict of tensors, which Inductor's code takes apart")
    names = _name_arguments(stand_in.model, len(stand_in.inputs))
    with pretend_card(hardware), keep_attention(), torch.no_grad():
        program = _export(reference, stand_in.mode, stand_in.model, stand_in.inputs)
        inputs = _describe_inputs(program, reference, names)
        captured = _capture(program, inputs)
    results, tree = _describe_results(program)
    plain = {name: value for name, value in zip(names, stand_in.inputs, strict=True) if not isinstance(value, torch.Tensor)}
    return Generated(captured.text, tuple(inputs), captured.constants, names, plain, results, tree, stand_in.model, reference)


def _refuse_recurrent(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.LSTMCell | nn.GRUCell):
            where = "cuDNN" if isinstance(module, nn.RNNBase) else "a fused kernel of PyTorch"
            raise NoSeedError(f"Inductor leaves nn.{type(module).__name__} to {where} and writes no kernel for it")


def _to_card(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor like this one on the card; call inside of the fake mode."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CARD)


def _move(model: nn.Module) -> None:
    """Put parameters and buffers on the card; tied ones stay tied."""
    moved: dict[int, torch.Tensor] = {}

    def move(tensor: torch.Tensor, *, parameter: bool) -> torch.Tensor:
        if id(tensor) not in moved:
            there = _to_card(tensor)
            moved[id(tensor)] = nn.Parameter(there, requires_grad=False) if parameter else there
        return moved[id(tensor)]

    kept = list(model.parameters()), list(model.buffers())  # so that no address is given twice
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = move(parameter, parameter=True)  # type: ignore[assignment]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = move(buffer, parameter=False)
    del kept


def _export(reference: Reference, mode: FakeTensorMode, model: nn.Module, inputs: list[Any]) -> Any:
    try:
        with mode:
            _move(model)
            there = tuple(_to_card(value) if isinstance(value, torch.Tensor) else value for value in inputs)
            return torch.export.export(model, there, strict=False)
    except Exception as error:  # forward is the user's code, and torch.export has many ways to refuse it
        raise NoSeedError(f"torch.export cannot trace the module for Inductor ({_shorten(error)})") from error


def _shorten(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return f"{type(error).__name__}: {lines[0][:200]}"


def _describe_inputs(program: Any, reference: Reference, names: tuple[str, ...]) -> list[InputTensor]:
    """The tensors among the placeholders of the graph, in order; the graph loses the others."""
    graph = program.graph_module.graph
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    find = _Values(program, reference)
    found: list[InputTensor] = []
    arguments = iter(names)
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        value, spec = node.meta.get("val"), specs[node.name]
        argument = next(arguments) if spec.kind is InputKind.USER_INPUT else ""
        if not isinstance(value, torch.Tensor):
            if node.users:
                raise NoSeedError(f"argument {argument} of forward is no tensor, and the traced graph computes with it")
            graph.erase_node(node)
            continue
        held = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.USER_INPUT: "input"}.get(spec.kind, "constant")
        if spec.kind is InputKind.BUFFER and spec.persistent is False:
            held = "constant"
        constant = find.value_of(spec.target) if held == "constant" else None
        name = argument or str(spec.target)
        dtype = str(value.dtype).removeprefix("torch.")
        found.append(InputTensor(held, name, tuple(value.shape), tuple(value.stride()), dtype, constant))
    for node in [node for node in graph.nodes if node.target is torch.ops.aten._assert_tensor_metadata.default]:
        graph.erase_node(node)  # it would want constants of the host to stay there
    program.graph_module.recompile()
    return found


class _Values:
    """Values of constants, which fake tensors do not have: the module is built for real where one is asked for."""

    def __init__(self, program: Any, reference: Reference) -> None:
        self._constants, self._reference = dict(program.constants), reference
        self._model: nn.Module | None = None

    def value_of(self, target: str) -> torch.Tensor:
        """The tensor of that dotted name. Raises NoSeedError where nobody has its values."""
        known = self._constants.get(target)
        if isinstance(known, torch.Tensor) and not isinstance(known, FakeTensor):
            return known.detach().cpu()
        if self._model is None:
            self._model = self._reference.build(_SEED)
        value: Any = self._model
        for part in target.split("."):
            value = getattr(value, part, None)
        if not isinstance(value, torch.Tensor):
            raise NoSeedError(f"forward uses a constant tensor ({target}) whose values nobody has")
        return value.detach().cpu()


def _capture(program: Any, inputs: list[InputTensor]) -> _CapturedText:
    module = program.graph_module
    mode = next((node.meta["val"].fake_mode for node in module.graph.nodes if node.op == "placeholder"), None)
    if mode is None:
        raise NoSeedError("forward takes no tensor, and the module has none")
    with mode:  # a tensor of its own for each, since Inductor would join equal ones; constants of the host are put on the card as well
        fakes = [torch.empty_strided(one.shape, one.strides, dtype=getattr(torch, one.dtype), device=_CARD) for one in inputs]

    def hand_out(text: str) -> None:
        raise _CapturedText(text, {name: value for name, value in V.graph.constants.items() if isinstance(value, torch.Tensor)})

    known = {name: value for name, value in _PLAIN.items() if _has_setting(name)}
    try:
        with mock.patch.object(GraphLowering, "save_output_code", hand_out), inductor_config.patch(known):
            compile_fx(module, fakes)
    except _CapturedText as captured:
        return captured
    except Exception as error:  # Inductor has as many ways to refuse
        raise NoSeedError(f"Inductor cannot compile the module for this card ({_shorten(error)})") from error
    raise NoSeedError("Inductor writes no text for the module: it computes nothing")


def _has_setting(name: str) -> bool:
    try:
        inductor_config.__getattr__(name)
    except AttributeError:
        return False
    return True


def _describe_results(program: Any) -> tuple[tuple[Any, ...], Any]:
    """For each flattened part of the result the number of `call`'s output, and the tree that they make."""
    outputs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    if len(outputs) != len(program.graph_signature.output_specs):
        raise NoSeedError("the traced forward returns more than the module does")
    results: list[Any] = []
    for number, argument in enumerate(outputs):
        if isinstance(argument, ConstantArgument):
            results.append(PlainValue(argument.value))
        elif isinstance(argument, TensorArgument):
            results.append(number)
        else:
            raise NoSeedError("forward returns a number that depends on values")
    return tuple(results), program.call_spec.out_spec


def _name_arguments(model: nn.Module, count: int) -> tuple[str, ...]:
    parameters = list(inspect.signature(model.forward).parameters.values())
    plain = all(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters[:count])
    if len(parameters) >= count and plain:
        return tuple(one.name for one in parameters[:count])
    return tuple(f"x{number}" for number in range(count))

