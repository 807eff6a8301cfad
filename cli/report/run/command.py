"""The command that runs a run again, from the settings that it kept."""

import os
import shlex
from pathlib import Path
from typing import Any

from tritonsmith.cli.report.run.reading import RunFiles, run_config
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.summary import Summary

_OPTIONS = {
    "model": "--model", "analyst_model": "--analyst-model", "repair_model": "--repair-model", "base_url": "--base-url",
    "key_env": "--key-env", "model_timeout": "--model-timeout", "prices": "--prices", "replay": "--replay", "memory": "--memory",
    "policy": "--policy", "seeds": "--seeds", "size": "--size", "precision": "--precision", "mode": "--mode",
    "sandbox": "--sandbox", "allow": "--allow", "devices": "--devices", "confirm": "--confirm",
    "baselines": "--baselines", "claims_from": "--claims-from",
}  # fmt: skip
"""Fields of RunConfig to options of `tritonsmith optimize`; the target is in the run itself."""
_PATHS = ("task", "prices", "replay", "memory")


def reproduce(files: RunFiles) -> tuple[str, str]:
    """A command line, and a sentence about what it cannot say; the sentence is empty when the settings were kept."""
    config = run_config(files)
    if not config.get("task"):
        return _from_summary(files.summary), "The folder kept no settings; this is what its summary says, and the task's path is a guess."
    words = ["tritonsmith", "optimize", _shorten_path(config["task"])]
    defaults = {name: field.get_default(call_default_factory=True) for name, field in RunConfig.model_fields.items()}
    for name, option in _OPTIONS.items():
        value = config.get(name, defaults[name])
        if value is not None and str(value) != str(defaults[name]):
            words += [option, _shorten_path(value) if name in _PATHS else _plain(value)]
    if config.get("backward"):
        words.append("--backward")
    if config.get("target", "auto") != "auto":
        words += ["--target", str(config["target"])]
    if isinstance(config.get("spool"), str):
        words += ["--evaluator", f"spool:{_shorten_path(config['spool'])}"]
    if isinstance(config.get("ray"), str):
        words += ["--evaluator", f"ray:{config['ray']}".rstrip(":")]
    for name, value in _table(config, "overrides").items():
        words += ["--set", f"{name}={value}"]
    limits = Budget()
    for name, value in _table(config, "budget").items():
        if value is not None and value != getattr(limits, name, None):
            words += [f"--budget-{name}", _plain(value)]
    return shlex.join(words), "" if config.get("replay") else _sampling(files.summary)


def _from_summary(summary: Summary) -> str:
    words = ["tritonsmith", "optimize", f"{summary.task}.py"]
    seeds = sum(row.stage == "seed" for row in summary.candidates)
    options = {"--model": summary.model, "--policy": summary.policy, "--seeds": str(seeds or ""), "--size": summary.size}
    for option, value in (
        options | {"--precision": summary.precision, "--mode": summary.mode if summary.mode == "train" else "", "--allow": summary.allow}
    ).items():
        if value and value != "custom":
            words += [option, value]
    return shlex.join(words)


def _sampling(summary: Summary) -> str:
    if summary.usage.calls:
        return "A model samples its replies, so another run takes another way; the run's own recording (tape.jsonl) gives the same ones."
    return ""


def _table(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shorten_path(path: object) -> str:
    """A path below the working directory without the way to it."""
    text = str(path)
    inside = os.path.relpath(text) if Path(text).is_absolute() else text
    return text if inside.startswith("..") else inside
