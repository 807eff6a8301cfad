"""A module as a list of steps, and the task file that it is. Imports torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F

from tritonsmith.benchmarks.operators.calls import write_tensor

_NAME = re.compile(r"\b[xv]\d+\b")
_GLOBALS = {"torch": torch, "F": F, "inf": inf, "nan": nan}
_SOURCE = """import torch
import torch.nn.functional as F
from math import inf, nan
from torch import nn


class Model(nn.Module):
    def forward(self{arguments}):
{steps}
        return {outputs}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

Values = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Argument:
    """A tensor that forward takes.

    Args:
        name: in the steps, `x0` and so on.
        shape: its sizes.
        dtype: its type.
        layout: how its elements lie: `plain`, `turned` (the last two axes change places), `gaps` or `shifted`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "plain"

    def lay_out(self, values: torch.Tensor) -> torch.Tensor:
        """Equal values, in memory as the layout says."""
        if self.layout == "turned" and values.ndim > 1:
            return values.transpose(-1, -2).contiguous().transpose(-1, -2)
        if self.layout == "gaps" and values.ndim:
            return torch.stack([values, values], -1)[..., 0]
        if self.layout == "shifted":
            return torch.cat([values.new_zeros(1), values.reshape(-1)])[1:].view(values.shape)
        return values.contiguous()

    def write_layout(self, text: str) -> str:
        """Python text of the same for a tensor's text."""
        if self.layout == "turned" and len(self.shape) > 1:
            return f"{text}.transpose(-1, -2).contiguous().transpose(-1, -2)"
        if self.layout == "gaps" and self.shape:
            return f"torch.stack([{text}] * 2, -1)[..., 0]"
        if self.layout == "shifted":
            return f"torch.nn.functional.pad({text}.reshape(-1), (1, 0))[1:].view({self.shape})"
        return text

    def write_draw(self) -> str:
        """Python text that draws values of the type."""
        if self.dtype == torch.bool:
            return f"torch.rand({self.shape}) > 0.5"
        if self.dtype.is_floating_point:
            return f"torch.randn({self.shape}, dtype={self.dtype})"
        least = 0 if self.dtype == torch.uint8 else -9
        return f"torch.randint({least}, 10, {self.shape}, dtype={self.dtype})"


@dataclass(frozen=True)
class Step:
    """A line of forward.

    Args:
        targets: names that it makes; none for a write into a tensor.
        text: its right side, or the whole statement where there are no targets.
    """

    targets: tuple[str, ...]
    text: str

    @property
    def line(self) -> str:
        """The line as Python."""
        return f"{', '.join(self.targets)} = {self.text}" if self.targets else self.text

    @property
    def uses(self) -> frozenset[str]:
        """Names of values that it reads or writes to."""
        return frozenset(_NAME.findall(self.text))

    def compile(self) -> CodeType:
        """For `run_step`."""
        return compile(self.line, "<step>", "exec")


def run_step(step: Step, values: Values) -> None:
    """Add what a step makes to the values. Raises what PyTorch raises."""
    space: dict[str, Any] = {**_GLOBALS, **values}
    with torch.no_grad():
        exec(step.compile(), space)  # noqa: S102 - the text is this package's own
    values.update({name: space[name] for name in step.targets})


@dataclass(frozen=True)
class RandomModule:
    """Arguments, steps, and names of the results."""

    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines of forward."""
        return "\n".join([*(step.line for step in self.steps), f"return {', '.join(self.outputs)}"])

    def write(self, values: Sequence[torch.Tensor] | None = None) -> str:
        """A task file: with drawn inputs, or with these values.

        Args:
            values: one tensor for each argument.
        """
        texts = [argument.write_draw() for argument in self.arguments]
        if values is not None:
            texts = [f"{write_tensor(value.reshape(-1))}.reshape({tuple(value.shape)})" for value in values]
        inputs = [
            argument.write_layout(f"({text})") for argument, text in zip(self.arguments, texts, strict=True)
        ]
        return _SOURCE.format(
            arguments="".join(f", {argument.name}" for argument in self.arguments),
            steps="\n".join(f"        {step.line}" for step in self.steps),
            outputs=", ".join(self.outputs),
            inputs=", ".join(inputs),
        )

    def compute(self, values: Sequence[torch.Tensor]) -> Values:
        """All values of a forward by name. Raises what PyTorch raises."""
        known = {argument.name: value for argument, value in zip(self.arguments, values, strict=True)}
        for step in self.steps:
            run_step(step, known)
        return known


def drop_unused(module: RandomModule) -> RandomModule:
    """The same without steps and arguments that no result needs; a write counts as a need of what it writes to."""
    needed = set(module.outputs)
    kept: list[Step] = []
    while True:
        before = len(needed)
        kept = [step for step in module.steps if needed & set(step.targets) or _writes(step, needed)]
        for step in kept:
            needed |= step.uses
        if len(needed) == before:
            break
    arguments = tuple(argument for argument in module.arguments if argument.name in needed)
    return replace(module, arguments=arguments, steps=tuple(kept))


def _writes(step: Step, needed: Iterable[str]) -> bool:
    """Whether a step writes into a needed tensor: `v1[...] = v2`, or `v3 = v1.add_(v2)`."""
    target = re.match(r"([xv]\d+)(?:\[.*?\] = |\.\w+_\()", step.text)
    return target is not None and target[1] in needed
