"""The evaluator that a run's settings name: this machine's, several cards of it, or a cluster's, with answers that are kept."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict

from tritonsmith.evaluator.caller.local import BaselineSet, open_evaluator
from tritonsmith.evaluator.caller.sharing.answers import AnswerStore, KeptEvaluator, find_answers
from tritonsmith.evaluator.caller.sharing.devices import Confirm, name_devices, open_devices
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Record


class JudgeSettings(Record):
    """Where verdicts are made. The descriptions are also those of a server's form."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    target: str = "auto"
    """The card that figures are for; one that is not in this machine gives estimates."""
    sandbox: str = "auto"
    """auto: every layer that works here; strict: refuse where a needed one is missing; off: none."""
    baselines: BaselineSet = "four"
    """Baselines on a card: four (strict verdicts have six, with torch.compile's max-autotune), six, or four-only, in strict ones too."""
    devices: str | None = None
    """Cards of this host that judge side by side: `0,1`, or `all`; empty: the first."""
    confirm: Confirm = "beside"
    """Whether confirmations are made while other cards of the host work (`beside`), or while they rest (`alone`)."""
    ray: str | None = None
    """Address of a Ray cluster whose cards judge, or an empty text for the cluster of this host; none: judged by this machine."""
    fresh: bool = False
    """Measure everything again, also what this machine has an answer to."""


def _count(devices: str | None) -> int | None:
    """How many supervisors stand in for cards where a cluster has none."""
    return None if devices in (None, "all") else len(name_devices(str(devices), []))


def open_judges(settings: JudgeSettings, raw_dir: Path | None = None, *, keep: bool = True) -> Evaluator:
    """The evaluator for these settings. Raises UsageError and InfrastructureError.

    Args:
        settings: where verdicts are made.
        raw_dir: where raw samples go; a temporary folder when None.
        keep: whether answers are kept for other runs; an experiment with repeats wants each repeat measured.
    """
    inner: Evaluator
    target, sandbox, confirm, baselines = settings.target, settings.sandbox, settings.confirm, settings.baselines
    if settings.ray is not None:
        from tritonsmith.evaluator.caller.sharing.ray_cards import open_ray  # noqa: PLC0415 - what it needs is an extra

        inner = open_ray(settings.ray, target, raw_dir, sandbox, confirm, _count(settings.devices), baselines=baselines)
    elif settings.devices is not None:
        inner = open_devices(settings.devices, target, raw_dir, sandbox, confirm, baselines)
    else:
        inner = open_evaluator(target, raw_dir, sandbox=sandbox, baselines=baselines)
    answers = find_answers() if keep else None
    if answers is None:
        return inner
    conditions = {"sandbox": sandbox, "confirm": confirm, "baselines": baselines}
    return KeptEvaluator(inner, AnswerStore(answers), conditions, fresh=settings.fresh)
