"""A recurrent layer in one direction as one value: the states of all steps."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.ir.values import Tensor

GATES = {"GRU": ("reset", "update", "new"), "LSTM": ("enter", "forget", "new", "out"), "RNN": ("new",)}
"""Gates of each kind of cell, in the order in which PyTorch stacks their weights."""


@dataclass(eq=False, kw_only=True)
class Recurrence(Tensor):
    """The states of all steps, [steps, batch, hidden], or [batch, steps, hidden] where `batch_first`."""

    kind: str
    """GRU, LSTM or RNN."""
    activation: str
    """What an RNN applies: tanh or relu."""
    fresh: Tensor
    """What the input gives to all gates, in the layout of the result."""
    weight: Tensor
    """[gates * hidden, hidden], for the state."""
    bias: Tensor | None
    """[gates * hidden]"""
    state: Tensor | None
    """[batch, hidden]; None for zeros."""
    cell: Tensor | None
    """The same for an LSTM's cells."""
    batch_first: bool
    reverse: bool
    node: str
    """Of the trace."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return tuple(one for one in (self.fresh, self.weight, self.bias, self.state, self.cell) if one is not None)

    @property
    def steps(self) -> int:
        """How many follow each other."""
        return self.shape[1] if self.batch_first else self.shape[0]

    @property
    def batch(self) -> int:
        """Sequences beside each other."""
        return self.shape[0] if self.batch_first else self.shape[1]

    @property
    def hidden(self) -> int:
        """Elements of a state."""
        return self.shape[2]

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates."""
        return GATES[self.kind]

    @property
    def flops(self) -> float:
        """Of the products with the state."""
        return 2.0 * self.size * self.hidden * len(self.gates)


@dataclass(eq=False, kw_only=True)
class LastCell(Tensor):
    """The cells of an LSTM behind its last step, [batch, hidden]."""

    recurrence: Recurrence

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.recurrence,)
