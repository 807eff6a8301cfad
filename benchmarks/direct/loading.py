"""Task files and kernels as modules, and what both processes make of them. Imports torch."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_FAULT_CHARACTERS = 500


def load_module(path: str, name: str) -> ModuleType:
    """A file as a module of that name, in place of an earlier one."""
    spec = importlib.util.spec_from_file_location(name, Path(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_model(cls: Any, init: Any) -> Any:
    """A module in evaluation mode with what `get_init_inputs` gives."""
    return (cls(**init) if isinstance(init, dict) else cls(*init)).eval()


def list_launches(model: Any, inputs: list[Any]) -> Callable[[], Any]:
    """A call of forward that launches every kernel, also where the module replays them."""
    if not hasattr(model, "compute"):
        return lambda: model(*inputs)
    return lambda: model.compute(inputs[0], model.pack()) if hasattr(model, "pack") else model.compute(*inputs)


def answer_lines(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer questions from stdin until it closes; an exception is an answer too."""
    for line in sys.stdin:
        question = json.loads(line)
        try:
            with torch.no_grad():
                found = answer(question)
        except Exception as error:  # noqa: BLE001 - kernels may fail in any way, and the row says how
            found = {"kernel": question["name"], "fault": "".join(traceback.format_exception(error))[-_FAULT_CHARACTERS:]}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
