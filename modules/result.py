"""What came of a module that was optimized: the run's answer, its folder, and the drop-in. Imports torch where the drop-in is asked for."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonsmith.graph.storage.outcome import RunOutcome
from tritonsmith.graph.storage.summary import Summary

if TYPE_CHECKING:
    from torch import nn

    from tritonsmith.graph.storage.sizes import SizeRow


class Result:
    """The end of one run on a module.

    Args:
        original: the module that was given, as it is.
        folder: of the run; it holds `best.py`, `summary.json` and every kernel.
        task: the folder of the task that the module was written down as.
        summary: the run as `summary.json` tells it.

    Example:
        >>> result = tritonsmith.optimize(block, torch.randn(8, 128, 512))
        >>> print(result.answer)
        >>> faster = result.module
    """

    def __init__(self, original: nn.Module, folder: Path, task: Path, summary: Summary) -> None:
        self.original = original
        self.folder = folder
        self.task = task
        self.summary = summary

    @property
    def answer(self) -> str:
        """The first words about the run: FASTER, NOT FASTER, `keep your module`, right, NOT CONFIRMED or NO KERNEL."""
        return self.summary.answer

    @property
    def best(self) -> Path | None:
        """The file with the winning kernel; None where no kernel is the result."""
        path = self.folder / "best.py"
        return path if self.summary.winner is not None and path.is_file() else None

    @property
    def kept(self) -> bool:
        """Whether the answer is to keep the module: a card measured no kernel that is as fast as its strongest form."""
        return self.summary.outcome is RunOutcome.KEPT

    @property
    def code(self) -> str:
        """The lines that give the module's own fastest form; empty where a kernel is the result, or nobody measured."""
        return "\n".join(self.summary.kept.code) if self.summary.kept else ""

    @cached_property
    def _drop_in(self) -> Any:
        """The drop-in's own record. Raises UsageError where there is no kernel."""
        return import_module("tritonsmith.modules.dropin.drop_in").make_drop_in(
            self.original, self.folder, self.task
        )

    @property
    def module(self) -> nn.Module:
        """The drop-in: the original's class, parameters and storage, with the winning kernel where it is proven; the original itself
        where it is `kept`. Raises UsageError where there is no kernel and no answer."""
        if self.kept:
            return self.original
        module: nn.Module = self._drop_in.module
        return module

    @property
    def sizes(self) -> tuple[SizeRow, ...]:
        """A row for the module's own size and for each of `shapes=`: where the kernel is right, its time, and its score against the
        strongest baseline and against eager. Without a card only the own size has a score, an estimate. Empty for one size.

        Example:
            >>> [(row.size, row.score, row.baseline) for row in result.sizes]
            [('batch = 32', 1.42, 'compile'), ('batch = 1 to 64', 1.1, 'eager')]
        """
        return self.summary.sizes

    @property
    def report(self) -> str:
        """For what the kernel is proven, on what, and when the original runs in its place; where the module is `kept`, its fastest form
        with the code. Several lines. Raises UsageError."""
        if self.kept:
            return f"{self.answer}\n{self.code}"
        return str(self._drop_in.report)

    def save(self, folder: str | Path, name: str | None = None) -> Path:
        """Write a folder that pip installs and that follows the layout of Hugging Face `kernels`.

        Args:
            folder: new or empty.
            name: of the package, such as `fast-block`; from the class's name where it is left out.
        Raises:
            UsageError: there is no kernel, the folder is not empty, or the module's call cannot be written down.
        """
        return Path(self._drop_in.save(folder, name))

    def apply(self, model: nn.Module, name: str | None = None) -> list[str]:
        """Put the drop-in into a larger model, and give the names where it stands.

        Args:
            model: it is changed.
            name: of the module there, or a pattern such as `layers.*.mlp`; looked for where it is left out.
        Raises:
            UsageError: there is no kernel, or nothing there fits; the model stays as it is.
        """
        return list(self._drop_in.apply(model, name))

    def revert(self, model: nn.Module) -> list[str]:
        """Take the drop-ins of this result out of a model, and give the names where the originals stand again."""
        return list(self._drop_in.revert(model))

    def check(self, inputs: Any, *, gradients: bool = False) -> Any:
        """Compare drop-in and original on the inputs of one call, by the judge's rule; the answer is true where they agree.

        Args:
            inputs: in any form that `optimize` takes.
            gradients: whether gradients of inputs and parameters are compared too.
        Raises:
            UsageError: there is no kernel, or the original fails on these inputs.
        """
        return self._drop_in.check(inputs, gradients=gradients)

    def __repr__(self) -> str:
        return f"<tritonsmith result: {self.answer}; {self.folder}>"
