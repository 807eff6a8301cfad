"""The evaluator that a run's settings name: this machine's, several cards of it, or a cluster's, with answers that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.sharing.answers import AnswerStore, KeptEvaluator, find_answers
from tritonsmith.evaluator.sharing.devices import Confirm, name_devices, open_devices


@dataclass(frozen=True)
class JudgeSettings:
    """Where verdicts are made."""

    target: str = "auto"
    sandbox: str = "auto"
    devices: str | None = None
    """Cards of this host: `0,1` or `all`; None: the first."""
    confirm: Confirm = "beside"
    ray: str | None = None
    """Address of a Ray cluster whose cards judge; empty: this host's, started where there is none. None: no cluster."""
    fresh: bool = False
    """Measure everything again."""
    keep: bool = True
    """Whether answers are kept for other runs; an experiment with repeats wants each repeat measured."""


def _count(devices: str | None) -> int | None:
    """How many supervisors stand in for cards where a cluster has none."""
    return None if devices in (None, "all") else len(name_devices(str(devices), []))


def open_judges(settings: JudgeSettings, raw_dir: Path | None = None) -> Evaluator:
    """The evaluator for these settings. Raises UsageError and InfrastructureError."""
    inner: Evaluator
    if settings.ray is not None:
        from tritonsmith.evaluator.sharing.ray_cards import open_ray  # noqa: PLC0415 - what it needs is an extra

        inner = open_ray(settings.ray, settings.target, raw_dir, settings.sandbox, settings.confirm, _count(settings.devices))
    elif settings.devices is not None:
        inner = open_devices(settings.devices, settings.target, raw_dir, settings.sandbox, settings.confirm)
    else:
        inner = open_evaluator(settings.target, raw_dir, sandbox=settings.sandbox)
    answers = find_answers() if settings.keep else None
    if answers is None:
        return inner
    return KeptEvaluator(inner, AnswerStore(answers), {"sandbox": settings.sandbox, "confirm": settings.confirm}, fresh=settings.fresh)
