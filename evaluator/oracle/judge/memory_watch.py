"""The card's memory while a candidate is judged: how much is in use, and whose fault it is where it runs out. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from tritonsmith.evaluator.errors import CardMemoryError
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing.baselines import OUT_OF_MEMORY

_HONOURED = 0.9
"""Share of what the plan grants a candidate that must have been free for it."""


class MemoryWatch:
    """Looks at the card now and then during one verdict.

    Args:
        loaded: the task on the card.
    """

    def __init__(self, loaded: LoadedTask) -> None:
        self._loaded = loaded
        self._peak = 0

    def look(self) -> None:
        """Note what all processes together hold now."""
        free, total = torch.cuda.mem_get_info()
        self._peak = max(self._peak, total - free)

    def record(self) -> dict[str, Any]:
        """The plan and the peak, for the verdict's environment."""
        self.look()
        return self._loaded.plan.record(self._peak)

    def explain(self, fault: RunnerFault) -> RunnerFault:
        """The fault; where the candidate ran out of memory, with what it may have. To be asked when its processes are gone.

        Raises CardMemoryError where the card has not got what the plan grants: then the candidate is not to blame.
        """
        if OUT_OF_MEMORY not in str(fault):
            return fault
        plan = self._loaded.plan
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        if free < _HONOURED * plan.granted:
            raise CardMemoryError(
                f"a candidate may have {plan.granted / 1e9:.1f} GB of the card's memory and {free / 1e9:.1f} GB are free"
            )
        return RunnerFault(fault.status, f"{fault}; {plan.blame()}")
