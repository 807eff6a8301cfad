"""The header of `best.py`: what the kernel is proven for, where, and how it is used."""

from collections.abc import Sequence
from typing import Any

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import TensorSpec, Timing, TimingKind, Verdict
from tritonsmith.graph.storage.outcome import precision_of
from tritonsmith.graph.storage.sizes import SizeRow

_VERSIONS = ("torch", "triton", "python", "tritonsmith")
"""Versions that a reader may want to have the same, most telling first."""


def describe_proof(verdict: Verdict, facts: dict[str, Any], *, precision: str, mode: str, target: str, backward: bool = False) -> list[str]:
    """Lines that say for what a kernel is proven, and on what.

    Args:
        verdict: its last one.
        facts: inputs, result and constructor's arguments of the task, as a summary holds them.
        precision: class that the task asks for.
        mode: what the module was put into.
        target: name of the card that the figures are for.
        backward: whether gradients were judged too.
    """
    inputs = [_describe_input(spec) for spec in facts.get("inputs") or ()]
    given = ", ".join(inputs) or "the task's own inputs"
    returns = f", which gives {facts['returns']}" if facts.get("returns") else ""
    other = verdict.environment.get("audit", {}).get("other sizes")
    beyond = f"{other}, out of those that the task allows" if other else "none was tried; what the kernel is not made for, it should refuse"
    updates = f"; it updates {', '.join(facts['updates'])}, compared after each call" if facts.get("updates") else ""
    gradients = "; its gradients too, and times are of forward and backward together" if backward else ""
    more = f"{describe_mode(mode)}{updates}{gradients}"
    return [
        f"proven for: {_write_call(facts)} on {given}{returns}; {_describe_class(verdict, precision)}; {more}",
        f"proven on: {_describe_place(verdict, target)}",
        f"other sizes: {beyond}",
    ]


def describe_scores(rows: Sequence[SizeRow]) -> list[str]:
    """Lines with the score at each size of a task, and sentences about sizes at which the kernel is slower; none for one size."""
    lines = [f"at {row.size}: {row.words if row.score is not None else 'no time was taken'}" for row in rows]
    return lines + [row.note for row in rows if row.note]


def describe_mode(mode: str) -> str:
    """What a module was put into, in words."""
    return "training mode" if mode == "train" else "evaluation mode"


def _describe_class(verdict: Verdict, asked: str) -> str:
    reached = precision_of(verdict) or asked
    return f"precision class {reached}" + (f", where {asked} was asked for" if reached != asked else "")


def describe_use(facts: dict[str, Any], text: str, mode: str = "eval") -> list[str]:
    """Lines that say how a kernel is used: import, construction with the reference's weights, call."""
    names = [f"x{number}" for number in range(len(facts.get("inputs") or ()))]
    call = ", ".join(["x"] if len(names) == 1 else names) or "*inputs"
    weights = "reference.state_dict()"
    if "WEIGHT_MAP" in text:
        weights = "{own: weights[ModelNew.WEIGHT_MAP.get(own, own)] for own in model.state_dict()}"
    load = f"model.load_state_dict({weights})"
    return [
        "use, where `reference` is the task's Model with your weights:",
        "  from best import ModelNew",
        f"  model = {_write_call(facts)}.{mode}().cuda(); {'weights = reference.state_dict(); ' if 'WEIGHT_MAP' in text else ''}{load}",
        f"  y = model({call})",
        "the kernels compute forward only: call it under torch.no_grad() where no gradients are needed",
    ]


def describe_form(timing: Timing, facts: dict[str, Any], *, backward: bool = False) -> list[str]:
    """Lines that say in which form a kernel was measured, and how to have that form; none where it was called launch by launch."""
    if not timing.form_words:
        return []
    if backward:
        return [f"{timing.form_words}: forward and torch.autograd.grad are captured in one graph"]
    names = [f"x{number}" for number, spec in enumerate(facts.get("inputs") or ()) if spec is not None]
    names = ["x"] if len(names) == 1 else names
    call = ", ".join(names) or "*inputs"
    fill = "; ".join(f"{name}.copy_(...)" for name in names) or "copy new values into the inputs"
    return [
        f"{timing.form_words}. To have that form, capture `model` once, on inputs that stay where they are:",
        "  side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()",
        "  side.wait_stream(torch.cuda.current_stream())",
        "  with torch.no_grad(), torch.cuda.stream(side):",
        f"      for _ in range(3): model({call})",
        "  torch.cuda.current_stream().wait_stream(side)",
        "  with torch.no_grad(), torch.cuda.graph(graph):",
        f"      y = model({call})",
        f"  {fill}; graph.replay()  # y holds the new result until the next replay; capture again after the weights change",
    ]


def _write_call(facts: dict[str, Any]) -> str:
    arguments = facts.get("init_inputs")
    return f"ModelNew({'...' if arguments is None else ', '.join(value or '...' for value in arguments)})"


def _describe_input(spec: Any) -> str:
    if spec is None:
        return "a value that is no tensor"
    tensor = TensorSpec.model_validate(spec)
    strides = f" with strides {list(tensor.strides)}" if tensor.strides else ""
    return f"{tensor.dtype}{list(tensor.shape)}{strides}"


def _describe_place(verdict: Verdict, target: str) -> str:
    environment = verdict.environment
    found = environment.get("versions") or {}
    versions = ", ".join(f"{name} {found[name]}" for name in _VERSIONS if name in found)
    card = next((card for card in CARDS.values() if card.name == target), None)
    named = f"{target} (sm_{card.capability})" if card else target
    if verdict.timing is not None and verdict.timing.kind is TimingKind.MEASURED:
        driver = (environment.get("nvml") or {}).get("driver")
        return ", ".join(filter(None, [named, f"driver {driver}" if driver else "", versions]))
    return ", ".join(filter(None, [f"Triton's interpreter, without a card; figures for {named} are estimates", versions]))
