"""Which kernels may win a run, by who does the work."""

from __future__ import annotations

from enum import StrEnum

from tritonsmith.evaluator.schema import Label


class Allow(StrEnum):
    """Which labels may win a run: kernels alone, kernels and hybrids, or all; the winner keeps its label."""

    KERNEL = "kernel"
    HYBRID = "hybrid"
    LIBRARY = "library"

    def admits(self, label: Label | None) -> bool:
        """Whether a candidate of this label may win; one without a label (nobody knows who does the work) counts as a hybrid."""
        order = (Label.KERNEL, Label.HYBRID, Label.LIBRARY)
        return order.index(label or Label.HYBRID) <= order.index(Label(self.value))
