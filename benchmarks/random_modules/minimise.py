"""Makes a module that is wrong as small as it gets while it stays wrong. Imports torch and Triton."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from tritonsmith.benchmarks.random_modules.judge import Judged, ModuleJudge, lay_out, run_and_compare
from tritonsmith.benchmarks.random_modules.module import Argument, RandomModule, drop_unused
from tritonsmith.benchmarks.random_modules.values import draw_values

_TRIALS = 60
"""Smaller modules that are looked at."""
_WORDS = re.compile(r"\.([a-z_0-9]+)\(|(\*\*|//|<=|>=|==|!=|<<|>>|[@+*/%<>&|^~-])")


@dataclass(frozen=True)
class Failure:
    """A module with values at which it is wrong."""

    module: RandomModule
    values: tuple[torch.Tensor, ...]
    phrase: str

    @property
    def signature(self) -> str:
        """Its operators in their order: equal ones are probably of one kind."""
        words = [first or second for step in self.module.steps for first, second in _WORDS.findall(step.text)]
        return " ".join(dict.fromkeys(words))


def minimise(judge: ModuleJudge, module: RandomModule, judged: Judged, seed: int) -> Failure:
    """A smaller module of the same kind; the module itself where its author raises only in this size.

    Args:
        judge: runs the smaller ones.
        module: the module.
        judged: what became of it.
        seed: of its values.
    """
    values = tuple(draw_values(module.arguments, judged.kind or "plain", seed))
    best = Failure(module, values, judged.reason)
    left = _TRIALS
    progress = True
    while progress and left:
        progress = False
        for smaller, some in _list_smaller(best):
            left -= 1
            phrase = _find_fault(judge, smaller, some, judged)
            if phrase:
                best, progress = Failure(smaller, some, phrase), True
                break
            if not left:
                break
    return best


def _find_fault(
    judge: ModuleJudge, module: RandomModule, values: Sequence[torch.Tensor], judged: Judged
) -> str:
    """What is wrong in the same way; empty where nothing."""
    planned = judge.plan(module, 0)
    if isinstance(planned, Judged):
        return planned.reason if planned.fate == judged.fate else ""
    if judged.fate != "wrong":
        return ""
    comparison = run_and_compare(planned, lay_out(module, values), module)
    return comparison.phrase if comparison else ""


def _list_smaller(failure: Failure) -> Iterator[tuple[RandomModule, tuple[torch.Tensor, ...]]]:
    """Modules with one thing less: a result, a layout, a step whose results become arguments."""
    module, values = failure.module, failure.values
    for name in module.outputs if len(module.outputs) > 1 else ():
        yield _keep_values(drop_unused(replace(module, outputs=(name,))), module, values)
    for place, argument in enumerate(module.arguments):
        if argument.layout != "plain":
            plain = (
                *module.arguments[:place],
                replace(argument, layout="plain"),
                *module.arguments[place + 1 :],
            )
            yield replace(module, arguments=plain), values
    try:
        known = module.compute(lay_out(module, values))
    except (RuntimeError, IndexError, ValueError):
        return
    for place in reversed(range(len(module.steps))):
        step = module.steps[place]
        if not step.targets:
            yield _keep_values(
                drop_unused(replace(module, steps=module.steps[:place] + module.steps[place + 1 :])),
                module,
                values,
            )
            continue
        if set(step.targets) & set(module.outputs):
            continue
        made = tuple(Argument(name, tuple(known[name].shape), known[name].dtype) for name in step.targets)
        cut = replace(
            module,
            arguments=(*module.arguments, *made),
            steps=module.steps[:place] + module.steps[place + 1 :],
        )
        yield _keep_values(
            drop_unused(cut), cut, (*values, *(known[part.name].contiguous() for part in made))
        )


def _keep_values(
    smaller: RandomModule, module: RandomModule, values: Sequence[torch.Tensor]
) -> tuple[RandomModule, tuple[torch.Tensor, ...]]:
    known = {argument.name: value for argument, value in zip(module.arguments, values, strict=True)}
    return smaller, tuple(known[argument.name] for argument in smaller.arguments)
