"""The drop-in of a finished run: the module, copies of it in larger models, a folder of it, a check and a report. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.structure import as_call
from tritonsmith.modules.dropin.checking import Check, check_module
from tritonsmith.modules.dropin.finished import read_kernel
from tritonsmith.modules.dropin.placing import apply_kernel, revert_model
from tritonsmith.modules.dropin.runtime.kernel import Kernel
from tritonsmith.modules.dropin.runtime.module import replace_module
from tritonsmith.modules.dropin.runtime.proof import describe_case
from tritonsmith.modules.dropin.saving import load_kernel, save_kernel


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
            raise UsageError(
                "this drop-in was loaded from a folder and has no module of its own; call wrap(module) with yours"
            )
        if self._module is None:
            self._module = self.wrap(self.original)
        return self._module

    def wrap(self, module: nn.Module) -> nn.Module:
        """A drop-in for a module that is made as the original is. Raises UsageError where it cannot be replaced."""
        try:
            return replace_module(module, self.kernel)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def apply(self, model: nn.Module, name: str | None = None) -> list[str]:
        """Put the drop-in into a larger model, and give the names where it stands.

        Args:
            model: it is changed.
            name: of the module there, or a pattern such as `layers.*.mlp`. Without one it is looked for: the original itself, else every
                module that is made as it is.

        Raises:
            UsageError: one sentence: nothing there fits. Nothing is changed then.
        """
        return apply_kernel(model, self.kernel, self.original, name)

    def revert(self, model: nn.Module) -> list[str]:
        """Take the drop-ins of this kernel out of a model, and give the names where the originals stand again."""
        return revert_model(model, self.kernel.digest)

    def check(self, inputs: Any, module: nn.Module | None = None, *, gradients: bool = False) -> Check:
        """Compare drop-in and original on one call, by the judge's rule.

        Args:
            inputs: of one call: a tensor, a tuple of arguments, a dict of keyword arguments, or a pair `(args, kwargs)`.
            module: a drop-in in use; the one of this result where it is left out.
            gradients: whether gradients of inputs and parameters are compared too, for cotangents drawn at random.

        Raises:
            UsageError: where the original fails on these inputs.
        """
        args, kwargs = as_call(inputs)
        return check_module(self.module if module is None else module, args, kwargs, gradients=gradients)

    @property
    def report(self) -> str:
        """For what the kernel is proven, on what, and when the original runs instead; several lines."""
        proof = self.kernel.proof
        lines = [f"{self.kernel.name}, kernel {self.kernel.digest}", *proof.words]
        lines += [f"runs its kernel on: {describe_case(case)}" for case in proof.cases]
        mode = "training" if proof.training else "evaluation"
        other = f" alone, because of {proof.by_mode[0]}" if proof.by_mode else ", and in the other one"
        lines.append(f"runs its kernel in {mode} mode{other}")
        lines.append(
            "runs the original for other inputs, under autocast, inside torch.func transforms and torch.export"
        )
        if self.kernel.has_own_backward:
            lines.append("gradients are the kernel's own, judged with it; under torch.compile and dispatch modes they are the original's")
        else:
            lines.append("gradients are the original's" + (", and were judged with the kernel" if proof.backward else ""))
        return "\n".join(lines)

    def save(self, folder: str | Path, name: str | None = None) -> Path:
        """Write a folder that pip installs and that follows the layout of Hugging Face `kernels`.

        Args:
            folder: new or empty.
            name: of the package, such as `fast-block`; from the class's name where it is left out.

        Raises:
            UsageError: one sentence: the folder is not empty, or the call of the module cannot be written down.
        """
        return save_kernel(self.kernel, Path(folder), name, self.original)


def load(folder: str | Path) -> DropIn:
    """The drop-in in a folder that `save` wrote. Its `wrap` and `apply` take modules that are made as the original is.

    Raises:
        UsageError: where the folder holds none.
    """
    return DropIn(load_kernel(Path(folder)))


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
