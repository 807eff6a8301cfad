"""The plan of an experiment: made from options, kept in its folder, and followed by every process that works there."""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tritonsmith.benchmarks.ablation.policies import EXPERIMENTS, Experiment, plan_policies
from tritonsmith.benchmarks.ablation.schema import FORMAT, AblationPlan
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Hardware, PrecisionClass
from tritonsmith.graph.run import RunConfig
from tritonsmith.graph.runs.config import PLACES
from tritonsmith.graph.storage.files import fault_of
from tritonsmith.graph.suites.tasks import Overrides, load_suite

PLAN = "plan.json"
CUSTOM = "custom"
_OWN = frozenset({"task", "size", "overrides", "precision", "mode", "policy", "seeds", "out"})
"""Fields of a run's settings that the plan sets by itself."""
_REPEATS = 3


def make_plan(
    suite: str,
    policies: Sequence[str] | None = None,
    *,
    experiment: str | None = None,
    repeats: int | None = None,
    seeds: int | None = None,
    size: str | None = None,
    overrides: Overrides | None = None,
    precision: PrecisionClass | None = None,
    mode: Literal["eval", "train"] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AblationPlan:
    """The plan for these options; `settings` are further fields of RunConfig, the same for all runs. Raises UsageError."""
    chosen = _choose_experiment(policies, experiment)
    asked, count = seeds or chosen.seeds, repeats or chosen.repeats
    if count < 1 or asked < 1:
        raise UsageError("--repeats and --seeds must be 1 or more")
    common = dict(settings or {})
    refused = sorted(_OWN & set(common)) + sorted(set(common) - set(RunConfig.model_fields))
    if refused:
        raise UsageError(f"settings of an experiment: {', '.join(refused)} cannot be set for all runs")
    model = str(common.get("model", "offline"))
    for name in ("model", "analyst_model", "repair_model"):
        if str(common.get(name, "")).startswith("handoff:"):
            raise UsageError(f"--{name.replace('_', '-')} {common[name]}: an experiment needs an author that answers by itself")
    planned = plan_policies(chosen.policies, asked)
    return AblationPlan(
        name=experiment or CUSTOM,
        tasks=load_suite(suite, size=size, overrides=overrides, precision=precision, mode=mode),
        policies=planned,
        repeats=count,
        settings=_complete_settings(common),
        precision=precision,
        mode=mode,
        seed_step=max(policy.seeds for policy in planned) if model == "offline" else 0,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={name: version(name) for name in ("tritonsmith", "langgraph", "numpy")},
    )


def begin(plan: AblationPlan, root: Path) -> AblationPlan:
    """Make the experiment's folder, or go on with the one that is there; more repeats than before are added to it.

    Raises UsageError when another experiment, or something else, lies there.
    """
    find_plan(plan, root)  # what is refused must not leave a lock behind
    with _lock_plan(root):
        stored = find_plan(plan, root)
        if stored is None:
            _write_plan(plan, root)
            return plan
        if plan.repeats > stored.repeats:
            stored = stored.model_copy(update={"repeats": plan.repeats})
            _write_plan(stored, root)
        return stored.model_copy(update={"tasks": plan.tasks, "policies": plan.policies})  # with paths as seen from here


def find_plan(plan: AblationPlan, root: Path) -> AblationPlan | None:
    """The same experiment's plan where the folder has one; None where a new one can begin there. Nothing is written.

    Raises UsageError when another experiment, or something else, lies there.
    """
    nearest = next((place for place in (root, *root.parents) if place.exists()), root)
    if nearest.exists() and not nearest.is_dir():
        raise UsageError(f"--out {root}: {nearest} is a file; name a new folder")
    if (root / PLAN).is_file():
        stored = read_plan(root)
        other = [name for name in _FIXED if _fixed_part(stored, name) != _fixed_part(plan, name)]
        if other:
            raise UsageError(f"--out {root}: another experiment lies there (it differs in {', '.join(other)}); name a new folder")
        return stored
    if root.is_dir() and any(root.iterdir()) and not (root / "locks").is_dir():
        raise UsageError(f"--out {root}: the folder is not empty and holds no experiment; name a new one")
    return None


def settle(plan: AblationPlan, root: Path, hardware: Hardware) -> AblationPlan:
    """Hold the experiment to one card: the first process names it. Raises UsageError for a process with another one."""
    card, kind = hardware.name, "measured" if hardware.present else "estimated"
    with _lock_plan(root):
        stored = read_plan(root)
        if not stored.card:
            stored = stored.model_copy(update={"card": card, "kind": kind})
            _write_plan(stored, root)
        if (stored.card, stored.kind) != (card, kind):
            raise UsageError(
                f"--out {root}: its figures are {stored.kind} for {stored.card}, and here they would be {kind} for {card}; "
                "an experiment has one kind of card: name a new folder"
            )
        return plan.model_copy(update={"card": card, "kind": kind})


def read_plan(root: Path) -> AblationPlan:
    """The plan in a folder. Raises UsageError that says why there is none."""
    path = root / PLAN
    try:
        plan = AblationPlan.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{root}: no experiment lies there; name the folder that `tritonsmith ablate --out` wrote") from None
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path}: cannot be read as the plan of an experiment ({fault_of(error)}); name another folder") from error
    if plan.format != FORMAT:
        raise UsageError(f"{path}: format {plan.format} is not {FORMAT}; use the version that wrote it")
    return plan


def _choose_experiment(policies: Sequence[str] | None, name: str | None) -> Experiment:
    if name is None:
        if not policies:
            raise UsageError(f"--policies: name some, such as default,no-analysis, or use --experiment ({', '.join(EXPERIMENTS)})")
        return Experiment("", tuple(policies), repeats=_REPEATS)
    if policies:
        raise UsageError(f"--policies and --experiment {name}: an experiment has its policies; choose one of the two")
    if name not in EXPERIMENTS:
        raise UsageError(f"--experiment {name}: no such experiment; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def _complete_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON, complete, so that a default that changes later is seen as a change. Raises UsageError."""
    try:
        # policies are compared by the kernels that they reach, and no run may be shown those of another one
        config = RunConfig(task="", **{"claims_from": 0.0, **settings, "remember": False})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"setting {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from error
    return config.model_dump(mode="json", exclude=set(_OWN))


_FIXED = ("tasks", "policies", "settings", "precision", "mode", "seed_step", "format")
"""What may not change from one process of an experiment to the next; texts of files count by their content."""


def _fixed_part(plan: AblationPlan, name: str) -> Any:
    if name == "tasks":
        return [task.model_dump(exclude={"path"}) for task in plan.tasks]
    if name == "policies":
        return [policy.model_dump(exclude={"given"} if policy.sha else set()) for policy in plan.policies]
    if name == "settings":
        return {key: value for key, value in plan.settings.items() if key not in PLACES}
    return getattr(plan, name)


@contextmanager
def _lock_plan(root: Path) -> Iterator[None]:
    """Nobody else reads or writes the plan meanwhile."""
    try:
        (root / "locks").mkdir(parents=True, exist_ok=True)
        file = (root / "locks" / "plan.lock").open("a")
    except OSError as error:
        raise UsageError(f"--out {root}: cannot write there ({error.strerror}); name a folder that you may write to") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write_plan(plan: AblationPlan, root: Path) -> None:
    path = root / PLAN
    partial = path.with_suffix(".part")
    try:
        partial.write_text(plan.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"--out {root}: cannot write there ({error.strerror}); name a folder that you may write to") from error
