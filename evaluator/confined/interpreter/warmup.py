"""What `kernel.warmup(...)` gives in the interpreter: a compiled kernel's numbers, and launches of it.

Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter

_REGISTERS = 64
"""Registers per thread of an average kernel. Hosts choose the number of programs by it, and a kernel must be right for any number."""
_SHARED = 1024
"""Bytes of shared memory of an average kernel, for the same purpose."""


class WarmKernel:
    """Stands for the compiled kernel that hosts ask how many programs fit on the card.

    Args:
        function: the interpreted kernel.
        options: as given to warmup.
    """

    n_regs, n_spills, n_max_threads = _REGISTERS, 0, 1024
    function = packed_metadata = module = None

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        self._function = function
        given = {name: options.get(name, usual) for name, usual in (("num_warps", 4), ("num_stages", 3), ("num_ctas", 1))}
        self.metadata = SimpleNamespace(shared=_SHARED, name=function.__name__, **given)

    def _init_handles(self) -> None:
        """Nothing is loaded."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*arguments: Any, stream: Any = None) -> None:
            self._function.run(*arguments, grid=grid, warmup=False)

        return launch

    def launch_metadata(self, grid: Any, stream: Any, *arguments: Any) -> None:
        """Nobody has hooks that would read it."""

    def run(
        self, x: int, y: int, z: int, stream: Any, function: Any, packed: Any, metadata: Any, enter: Any, leave: Any, *given: Any
    ) -> None:  # fmt: skip
        """A launch as Triton itself makes it of a compiled kernel."""
        self[x, y, z](*given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"a compiled kernel has no {name} where no card is; launch it as kernel[grid](...)")


def install_warmup() -> None:
    """Stock Triton returns None."""
    stock = interpreter.InterpretedFunction.run

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return WarmKernel(self, options) if warmup else stock(self, *arguments, grid=grid, warmup=False, **options)

    interpreter.InterpretedFunction.run = run
