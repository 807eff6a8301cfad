"""A live module as a task's folder: `task.py`, its weights, its real inputs, and how a call of it reads. Imports torch."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.check import (
    build_task_model,
    call_module,
    copy_call,
    describe_difference,
    require_no_shared_writes,
    require_repeatable,
    require_same_inputs,
    require_same_weights,
    run_task_model,
)
from tritonsmith.modules.bringing.export import NotExported, export_module
from tritonsmith.modules.bringing.gradients import compare_gradients, declare_backward, find_gradients
from tritonsmith.modules.bringing.shapes import (
    FAILS,
    choose_example,
    compare_at,
    declare_shapes,
    list_other_calls,
)
from tritonsmith.modules.bringing.source import SCRIPT, write_from_source
from tritonsmith.modules.bringing.structure import Signature, as_call, register_records, split_call
from tritonsmith.modules.bringing.writer import (
    INPUTS,
    TASK,
    WEIGHTS,
    TaskWriter,
    WrittenTask,
    refuse_regions,
    use_real_inputs,
)


@dataclass(frozen=True)
class Brought:
    """A module that was brought in."""

    folder: Path
    """Holds `task.py`, `weights.pt`, `inputs.pt` and `signature.pkl`."""
    signature: Signature
    way: str
    """`export`, or `source` where the file of the class was taken."""
    reason: str = ""
    """Why it was not exported; empty where it was."""
    sizes: dict[str, int] | None = None
    """Names of sizes at the head of the task file, with their real values."""

    @property
    def task(self) -> Path:
        """The task file."""
        return self.folder / TASK


def bring(
    module: nn.Module, inputs: Any, folder: Path, *, mode: str = "eval", shapes: Any = None, init: Any = None,
    backward: bool = False,
) -> Brought:  # fmt: skip
    """Write a module down as a task.

    Args:
        module: with its weights, on one device.
        inputs: of one call: a tensor, a tuple of arguments, a dict of keyword arguments, or a pair `(args, kwargs)`.
        folder: new or empty; made where it does not exist.
        mode: `eval` or `train`: what the module is put into while it is looked at.
        shapes: other sizes; see `read_shapes`.
        init: arguments of the class's constructor, for a module that cannot be exported.
        backward: whether the task asks for gradients too.
    Raises:
        UsageError: one sentence; nothing is written then.
    """
    require_module(module)
    call = as_call(inputs)
    with in_mode(module, mode), without_hooks(module):
        register_records(call)
        leaves, _ = split_call(*call)
        require_one_device(module, leaves)
        require_same_inputs(module, *call)
        with require_same_weights(module):
            result, wanted = call_module(module, *call)
        require_no_shared_writes(module, *call)
        require_repeatable(module, *call, wanted)
        gradients = find_gradients(module, *call) if backward else None
        for other in list_other_calls(shapes):
            call_module(module, *other)
        reason, files = "", dict[str, str]()
        try:
            written = _write_exported(module, call, wanted, shapes)
            if gradients is not None and (fault := compare_gradients(written, module, gradients)):
                raise NotExported(f"what was written of it gives {fault}")
        except NotExported as error:
            reason = str(error)
            if shapes:
                raise UsageError(
                    f"{type(module).__name__} cannot be exported: {reason}; other sizes need an export, so leave shapes= out"
                ) from error
            written, files = write_from_source(module, *call, result, init, reason)
            with _beside(files, folder):
                fault = _compare(written, wanted, module)
                if fault or (gradients is not None and (fault := compare_gradients(written, module, gradients))):
                    raise UsageError(
                        f"{type(module).__name__} cannot be exported: {reason}; its class made anew gives {fault}; check init="
                    ) from error
                written = _settle_source(written, module, reason)
    written.signature.to_bytes()  # before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, declare_backward(written) if backward else written)
    _write_files(folder, files)
    return Brought(folder, written.signature, "source" if reason else "export", reason, written.sizes)


def _write_exported(
    module: nn.Module, call: tuple[Any, Any], wanted: list[torch.Tensor], shapes: Any
) -> WrittenTask:
    """The task from an export that gives the wanted results, at other sizes too. Raises NotExported and UsageError."""
    real, spec = split_call(*call)
    example = choose_example(call, shapes)
    example = copy_call(*example)  # a tensor that is given twice is two inputs of the task
    leaves, _ = split_call(*example)
    reason = ""
    for dynamic in (True, False):
        program = export_module(module, *example, dynamic=dynamic)
        for with_layers in (True, False):
            try:
                refuse_regions(program.graph)
                writer = TaskWriter(program, module, leaves, spec, real)
                written = writer.write(
                    f"{type(module).__name__}, as torch.export gives it.", with_layers=with_layers
                )
            except NotImplementedError as error:
                raise NotExported(f"it has {error}, which a task file cannot say") from error
            reason = _compare(written, wanted, module)
            if not reason:
                return _settle_draws(written, module, shapes)
    raise NotExported(f"what was written of it gives {reason}")


def _settle_draws(written: WrittenTask, module: nn.Module, shapes: Any) -> WrittenTask:
    """The task with inputs that the module takes: drawn ones, on which it equals the original too, else the real ones; and with SHAPES."""
    fault = compare_at(written, module, {})
    if fault.startswith(FAILS):
        if shapes:
            raise UsageError(
                f"inputs like the real ones cannot be drawn for other sizes: {fault}; leave shapes= out"
            )
        return use_real_inputs(written)
    if fault:
        raise NotExported(f"on inputs like the real ones what was written of it gives {fault}")
    return declare_shapes(written, module, shapes)


def _settle_source(written: WrittenTask, module: nn.Module, reason: str) -> WrittenTask:
    """The same for a task that calls the module's own class."""
    fault = compare_at(written, module, {})
    if fault and not fault.startswith(FAILS):
        raise UsageError(
            f"{type(module).__name__} cannot be exported: {reason}; on inputs like the real ones its class made anew gives {fault}; "
            "check init="
        )
    return use_real_inputs(written) if fault else written


def _compare(written: WrittenTask, wanted: list[torch.Tensor], module: nn.Module) -> str:
    """In what the written Model differs from the original on the real inputs; empty where in nothing beyond rounding."""
    device = next(
        (tensor.device for tensor in (*written.inputs, *written.state.values())), torch.device("cpu")
    )
    try:
        model = build_task_model(written.text, written.state, device, train=module.training)
        found = run_task_model(model, written.inputs)
    except Exception as error:  # noqa: BLE001 - a text that does not run is written in another way
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return describe_difference(found, wanted)


@contextlib.contextmanager
def _beside(files: Mapping[str, str], folder: Path) -> Iterator[None]:
    """While it is open, source files can be imported that will lie beside the task."""
    with tempfile.TemporaryDirectory(prefix="tritonsmith-source-") as place:
        _write_files(Path(place), files)
        sys.path.insert(0, place)
        try:
            yield
        finally:
            sys.path.remove(place)
            sys.modules.pop(SCRIPT, None)


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_folder(folder: Path, written: WrittenTask) -> None:
    """Write the files of a task. Raises OSError."""
    torch.save({name: _to_keep(value) for name, value in written.state.items()}, folder / WEIGHTS)
    torch.save([_to_keep(value) for value in written.inputs], folder / INPUTS)
    written.signature.write(folder)
    (folder / TASK).write_text(written.text, encoding="utf-8")


def _to_keep(value: torch.Tensor) -> torch.Tensor:
    """A copy on the processor with the same memory order, of its elements alone."""
    copied = value.detach().to("cpu", copy=True, memory_format=torch.preserve_format)
    return copied.resolve_conj().resolve_neg()


def require_module(module: object) -> None:
    """Raise UsageError for what is no module whose weights can be read."""
    if isinstance(module, type) and issubclass(module, nn.Module):
        raise UsageError(f"the first argument is the class {module.__name__}; give an object of it, such as {module.__name__}(...)")
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"the first argument is of the kind {type(module).__name__}; give a torch.nn.Module with its weights"
        )
    if isinstance(compiled := getattr(module, "_orig_mod", None), nn.Module):
        raise UsageError(
            f"the module is a {type(compiled).__name__} that torch.compile wraps; give the module itself (module._orig_mod), and compile "
            "the drop-in"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(
            f"{type(module).__name__} is compiled by TorchScript, so its calls cannot be read; give the module that it was made of"
        )
    if "forward" in vars(module):
        raise UsageError(
            f"this {type(module).__name__} has a forward of its own as an attribute, as kernelize and accelerate put one; take it off "
            "first (del module.forward)"
        )
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise UsageError(
                f"{name} is compiled by TorchScript, so its calls cannot be read; put the module that it was made of in its place"
            )
        if ".quantized" in type(part).__module__:
            raise UsageError(f"{name} has quantized weights, which kernels cannot be judged with; give the module before it was quantized")
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.layout != torch.strided or value.is_quantized:
            kind = "quantized" if value.is_quantized else str(value.layout)
            raise UsageError(f"{name} is {kind}, which kernels cannot be judged with; give the module with {name} dense (to_dense)")
        if torch.nn.parameter.is_lazy(value):
            raise UsageError(f"{name} has no size before the first call; call the module once")
        if value.device.type == "meta":
            raise UsageError(
                f"{name} is on the meta device and has no values; load the weights first (module.to_empty and load_state_dict)"
            )


def require_one_device(module: nn.Module, leaves: Sequence[Any]) -> None:
    """Raise UsageError where parameters and inputs lie on several devices."""
    held = {str(value.device) for value in (*module.parameters(), *module.buffers())}
    given = {str(leaf.device) for leaf in leaves if isinstance(leaf, torch.Tensor)}
    if len(held) > 1:
        raise UsageError(
            f"the module lies on several devices ({', '.join(sorted(held))}); bring in the part on one of them"
        )
    if held and len(given | held) > 1:
        raise UsageError(
            f"the module is on {held.pop()} and its inputs are on {', '.join(sorted(given))}; move them to one device"
        )


@contextlib.contextmanager
def without_hooks(module: nn.Module) -> Iterator[None]:
    """While it is open no forward hook of the module itself runs: a drop-in has it too, and it must not count twice."""
    kept = module._forward_hooks.copy()
    module._forward_hooks.clear()
    try:
        yield
    finally:
        module._forward_hooks.update(kept)


@contextlib.contextmanager
def in_mode(module: nn.Module, mode: str) -> Iterator[None]:
    """While it is open the module is in a mode; every part of it then has its own again."""
    if mode not in ("eval", "train"):
        raise UsageError(f"mode {mode!r} does not exist; choose eval or train")
    kept = [(part, part.training) for part in module.modules()]
    module.train(mode == "train")
    try:
        yield
    finally:
        for part, training in kept:
            part.training = training
