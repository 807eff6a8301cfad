"""The bar: the module itself judged as a candidate ahead of all kernels, so that a model knows what it has to beat."""

from __future__ import annotations

from tritonsmith.evaluator.schema import Bar, Task, TaskFacts, TimingKind, Verdict
from tritonsmith.graph.context import Context
from tritonsmith.nodes.forms import judge_copy
from tritonsmith.prompts.author import Computing

_MOST_KERNELS = 8
"""Kernels of the reference that are named, those that take longest."""


async def measure_bar(context: Context, task: Task, facts: TaskFacts) -> TaskFacts:
    """The facts with the baselines' times, where there is a card and a model reads them; as they were where that fails.

    The module is judged as a candidate of its own, in the quick profile. What the judge builds for it, it keeps for the first kernel.
    """
    evaluator = context.evaluator
    if not evaluator.hardware.present or not evaluator.at_once or isinstance(context.author, Computing):
        return facts
    verdict = await judge_copy(evaluator, task)  # where there is none, the first kernel's verdict has them
    bar = read_bar(verdict) if verdict is not None else None
    return facts.model_copy(update={"bar": bar}) if bar is not None else facts


def read_bar(verdict: Verdict) -> Bar | None:
    """The baselines of a measured verdict about the module itself; None where nothing was measured."""
    timing = verdict.timing
    if timing is None or timing.kind is not TimingKind.MEASURED or not timing.baselines_ms:
        return None
    strongest = min(timing.baselines_ms, key=lambda name: timing.baselines_ms[name])
    longest = sorted(verdict.facts.library_ms.items(), key=lambda row: -row[1])[:_MOST_KERNELS]
    return Bar(baseline=strongest, baselines_ms=timing.baselines_ms, kernels=dict(longest))
