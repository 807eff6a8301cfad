"""The drop-in of a finished run: the module, copies of it in larger models, a folder of it, a check and a report. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.dropin.finished import read_kernel
from tritonsmith.modules.dropin.runtime.kernel import Kernel
from tritonsmith.modules.dropin.runtime.module import replace_module


class DropIn:
    """A kernel that stands for a module.

    Args:
        kernel: the kernel.
        original: the module that it was made for; None for a drop-in that was loaded from a folder.
    """

    def __init__(self, kernel: Kernel, original: nn.Module | None = None) -> None:
        self.kernel = kernel
        self.original = original
        self._module: nn.Module | None = None

    @property
    def module(self) -> nn.Module:
        """The drop-in itself. It shares parameters, buffers and hooks with the original. Raises UsageError where there is no original."""
        if self.original is None:
            raise UsageError("this drop-in was loaded from a folder and has no module of its own; call wrap(module) with yours")
        if self._module is None:
            self._module = self.wrap(self.original)
        return self._module

    def wrap(self, module: nn.Module) -> nn.Module:
        """A drop-in for a module that is made as the original is. Raises UsageError where it cannot be replaced."""
        try:
            return replace_module(module, self.kernel)
        except ValueError as error:
            raise UsageError(str(error)) from error


def make_drop_in(original: nn.Module, folder: Path, task: Path) -> DropIn:
    """The drop-in of a finished run.

    Args:
        original: the module that the run was about.
        folder: of the run, with `best.py` and `summary.json`.
        task: the task's file, or the folder that `bring` wrote.

    Raises:
        UsageError: one sentence: the run has no kernel, or its files cannot be read.
    """
    return DropIn(read_kernel(original, folder, task), original)


def describe(value: Any) -> str:
    """A value in one line."""
    return " ".join(str(value).split())
