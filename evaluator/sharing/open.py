"""The evaluator that a run's settings name: this machine's, several cards of it, or a cluster's, with answers that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.sharing.answers import AnswerStore, KeptEvaluator, find_answers
from tritonsmith.evaluator.sharing.devices import Confirm, open_devices


@dataclass(frozen=True)
class JudgeSettings:
    """Where verdicts are made."""

    target: str = "auto"
    sandbox: str = "auto"
    devices: str | None = None
    """Cards of this host: `0,1` or `all`; None: the first."""
    confirm: Confirm = "beside"
    fresh: bool = False
    """Measure everything again."""
    keep: bool = True
    """Whether answers are kept for other runs; an experiment with repeats wants each repeat measured."""


def open_judges(settings: JudgeSettings, raw_dir: Path | None = None) -> Evaluator:
    """The evaluator for these settings. Raises UsageError and InfrastructureError."""
    inner: Evaluator
    if settings.devices is not None:
        inner = open_devices(settings.devices, settings.target, raw_dir, settings.sandbox, settings.confirm)
    else:
        inner = open_evaluator(settings.target, raw_dir, sandbox=settings.sandbox)
    answers = find_answers() if settings.keep else None
    if answers is None:
        return inner
    return KeptEvaluator(inner, AnswerStore(answers), {"sandbox": settings.sandbox, "confirm": settings.confirm}, fresh=settings.fresh)
