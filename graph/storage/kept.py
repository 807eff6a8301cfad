"""The answer where nothing is bettered: keep the module, in its fastest form, with the code that gives it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tritonsmith.evaluator.channel.doorbell import find_compile_mode
from tritonsmith.evaluator.schema import Record, Timing
from tritonsmith.graph.storage.outcome import digits

EAGER, GRAPH = "eager", "cuda_graph"
"""Names of the two baselines without torch.compile."""


class Kept(Record):
    """A module's own fastest form, as it was measured."""

    form: str
    """The baseline's name, such as `compile_reduce_overhead`."""
    words: str
    """The same as code or words: `torch.compile(mode="reduce-overhead")`, `a CUDA graph of it`, or `eager, as it stands`."""
    ms: float
    eager: float | None = None
    """How many times as fast as eager execution it is."""
    among: int = 0
    """Forms that were measured."""
    code: tuple[str, ...] = Field(default_factory=tuple)
    """Lines that give the form, where `model` is the module and `x`, or `x0` and so on, are its inputs."""

    @property
    def sentence(self) -> str:
        """`keep your module; its fastest form here is torch.compile(mode="reduce-overhead"), 1.84x eager (0.412 ms, ...)`."""
        factor = f", {digits(self.eager)}x eager" if self.eager is not None and self.form != EAGER else ""
        among = f", the fastest of {self.among} forms" if self.among > 1 else ""
        return f"keep your module; its fastest form here is {self.words}{factor} ({self.ms:.3g} ms{among})"


def keep_module(timing: Timing, facts: dict[str, Any], *, backward: bool = False) -> Kept | None:
    """What to keep, from a timing that has the module's baselines; None where there is none of them.

    Args:
        timing: measured; of a kernel, or of a copy of the module.
        facts: of the task, as a summary holds them: the code names its inputs.
        backward: whether forward and backward were timed together.
    """
    if not timing.baselines_ms:
        return None
    form = min(timing.baselines_ms, key=lambda name: timing.baselines_ms[name])
    ms, eager = timing.baselines_ms[form], timing.baselines_ms.get(EAGER)
    return Kept(
        form=form, words=_name_form(form), ms=ms, eager=eager / ms if eager else None, among=len(timing.baselines_ms),
        code=write_form(form, facts, backward=backward),
    )  # fmt: skip


def write_form(form: str, facts: dict[str, Any], *, backward: bool = False) -> tuple[str, ...]:
    """Lines that give a form of the module.

    Args:
        form: a baseline's name.
        facts: of the task, as a summary holds them.
        backward: whether forward and backward were timed together.

    Example:
        >>> write_form("compile", {"inputs": [{}]})
        ('fast = torch.compile(model)', 'with torch.no_grad():', '    y = fast(x)')
    """
    names = [f"x{number}" for number in range(len(facts.get("inputs") or ()))]
    call = ", ".join(["x"] if len(names) == 1 else names) or "*inputs"
    mode = find_compile_mode(form)
    if backward:
        return _write_with_backward(form, mode, call)
    if mode:
        given = "" if mode == "default" else f', mode="{mode}"'
        return f"fast = torch.compile(model{given})", "with torch.no_grad():", f"    y = fast({call})"
    if form != GRAPH:
        return "with torch.no_grad():", f"    y = model({call})"
    tensors = [name for name, spec in zip(names, facts.get("inputs") or (), strict=False) if spec is not None]
    fill = "; ".join(f"{'x' if len(names) == 1 else name}.copy_(...)" for name in tensors)
    return (
        "graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()",
        f"with torch.no_grad(), torch.cuda.stream(side): [model({call}) for _ in range(3)]",
        f"with torch.no_grad(), torch.cuda.graph(graph): y = model({call})",
        f"{fill}{'; ' * bool(fill)}graph.replay()  # y has the new result until the next replay",
    )


def _write_with_backward(form: str, mode: str, call: str) -> tuple[str, ...]:
    """The same for forward and backward together: `wanted` are the inputs and parameters, `g` is the gradient of the result."""
    backward = "found = torch.autograd.grad(y, wanted, g)"
    if mode:
        given = "" if mode == "default" else f', mode="{mode}"'
        return f"fast = torch.compile(model{given})", f"y = fast({call})", backward
    if form != GRAPH:
        return f"y = model({call})", backward
    both = f"y = model({call}); {backward}"
    return (
        "graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()",
        f"for _ in range(3):\n    with torch.cuda.stream(side): {both}",
        f"with torch.cuda.graph(graph): {both}",
        "graph.replay()  # y and found have new values until the next replay",
    )


def _name_form(form: str) -> str:
    mode = find_compile_mode(form)
    if mode:
        return "torch.compile()" if mode == "default" else f'torch.compile(mode="{mode}")'
    return "a CUDA graph of it" if form == GRAPH else "eager, as it stands"
