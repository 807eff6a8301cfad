"""A kernel in files of its own: written as JSON and text, read again, and run for a module that Hugging Face `kernels` hands over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.modules.dropin.runtime.engine import Engine
from tritonsmith.modules.dropin.runtime.form import Form
from tritonsmith.modules.dropin.runtime.graphs import call_in_graph
from tritonsmith.modules.dropin.runtime.kernel import Kernel
from tritonsmith.modules.dropin.runtime.proof import Case, Proof, TensorCase
from tritonsmith.modules.records import list_records, register_records

RECORD, TEXT, CONSTANTS = "kernel.json", "best.py", "constants.pt"
_LAYER_ENGINE = "_tritonsmith_layer"
"""Attribute of a module that holds its engine."""
_PLAIN = (bool, int, float, str, type(None))


def write_record(kernel: Kernel, folder: Path) -> None:
    """Write a kernel's files. Raises ValueError where a value of its call has no place in JSON."""
    form, proof = kernel.form, kernel.proof
    records = list_records([*form.specs, form.result])
    record = {
        "name": kernel.name,
        "records": records,
        "arguments": [_encode(value) for value in kernel.arguments],
        "form": {
            "parameters": form.parameters, "given": form.given, "positional": form.positional,
            "specs": [spec and pytree.treespec_dumps(spec) for spec in form.specs], "arguments": form.arguments,
            "constants": {str(number): _encode(value) for number, value in form.constants.items()}, "defaults": dict(form.defaults),
            "result": form.result and pytree.treespec_dumps(form.result), "outputs": form.outputs,
            "plain_outputs": {str(number): _encode(value) for number, value in form.plain_outputs.items()},
        },
        "proof": {
            "cases": [
                {
                    "tensors": [known and {"dtype": known.dtype, "shape": known.shape, "strides": known.strides} for known in case.tensors],
                    "ranges": dict(case.ranges),
                }
                for case in proof.cases
            ],
            "capability": proof.capability, "training": proof.training, "by_mode": proof.by_mode, "updates": proof.updates,
            "precision": proof.precision, "words": proof.words,
        },
        "state": dict(kernel.state),
        "config": dict(kernel.config),
    }  # fmt: skip
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / TEXT).write_text(kernel.text, encoding="utf-8")
    if kernel.constants:
        torch.save(dict(kernel.constants), folder / CONSTANTS)


def read_record(folder: Path) -> Kernel:
    """The kernel in a folder. Raises OSError and ValueError."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    register_records(record.get("records", ()))
    form, proof = record["form"], record["proof"]
    cases = tuple(
        Case(
            tuple(
                known
                and TensorCase(known["dtype"], tuple(map(_extent, known["shape"])), _tuple(known["strides"]))
                for known in case["tensors"]
            ),
            {name: (low, high) for name, (low, high) in case["ranges"].items()},
        )
        for case in proof["cases"]
    )
    return Kernel(
        name=record["name"], text=(folder / TEXT).read_text(encoding="utf-8"), arguments=tuple(map(_decode, record["arguments"])),
        form=Form(
            parameters=tuple(form["parameters"]), given=tuple(form["given"]), positional=form["positional"],
            specs=tuple(spec and pytree.treespec_loads(spec) for spec in form["specs"]), arguments=tuple(form["arguments"]),
            constants={int(number): _decode(value) for number, value in form["constants"].items()}, defaults=form["defaults"],
            result=form["result"] and pytree.treespec_loads(form["result"]), outputs=tuple(form["outputs"]),
            plain_outputs={int(number): _decode(value) for number, value in form["plain_outputs"].items()},
        ),
        proof=Proof(
            cases, proof["capability"], proof["training"], tuple(proof["by_mode"]), tuple(proof["updates"]), proof["precision"],
            tuple(proof["words"]), backward=bool(proof.get("backward")),
        ),
        state=record["state"], config=record["config"],
        constants=torch.load(folder / CONSTANTS, weights_only=True) if (folder / CONSTANTS).is_file() else {},
    )  # fmt: skip


def _encode(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple | list) and all(isinstance(item, _PLAIN) for item in value):
        return {"tuple" if isinstance(value, tuple) else "list": list(value)}
    if isinstance(value, _PLAIN):
        return value
    raise ValueError(f"the call has the value {value!r}, which cannot be written to a file")


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        return getattr(torch, inner) if kind == "dtype" else tuple(inner) if kind == "tuple" else inner
    return value


def _extent(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


class Layer:
    """Runs a kernel for any module that is made as its original is, which keeps an engine of its own.

    Args:
        folder: with the kernel's files.
    """

    def __init__(self, folder: Path) -> None:
        self.kernel = read_record(folder)
        self.first: Engine | None = None
        """Of the first module; what compilers follow is the same for all."""

    def __call__(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call of the module."""
        if torch.compiler.is_compiling():
            if self._find_fault(module):
                return type(module).forward(module, *args, **kwargs)
            return call_in_graph(module, self.first, args, kwargs)  # type: ignore[arg-type]
        return self._find_engine(module).call(args, kwargs)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _find_fault(self, module: nn.Module) -> str:
        return self._find_engine(module).guard.fault

    def _find_engine(self, module: nn.Module) -> Engine:
        engine: Engine | None = vars(module).get(_LAYER_ENGINE)
        if engine is None or engine.owner is not module:
            engine = vars(module)[_LAYER_ENGINE] = Engine(module, self.kernel, type(module).forward, module)
            self.first = self.first if self.first is not None and not self.first.guard.fault else engine
        return engine
