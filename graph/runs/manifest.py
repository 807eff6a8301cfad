"""`run.json`: what a run was started with. Another process resumes the run by it, or refuses."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import Field, ValidationError

from tritonsmith.author.examples import digest
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.policies.forked import PARENT
from tritonsmith.graph.runs.config import RunConfig, restore_address, settings_to_keep
from tritonsmith.graph.runs.reads import refuse_changed_reads
from tritonsmith.graph.runs.version import graph_version
from tritonsmith.graph.storage.files import fault_of, parse_object, put_text
from tritonsmith.graph.storage.folder import MANIFEST
from tritonsmith.prompts.templates.render import VERSION

FORMAT = 1
"""Version of the manifest's fields; a run of another one is not resumed."""


class Manifest(Record):
    """The beginning of a run. Keys are not in it, only the names of the variables that hold them."""

    format: int = FORMAT
    run: str = Field(default_factory=lambda: uuid4().hex)
    """Names the run."""
    thread: str
    """The thread of its checkpoints."""
    settings: dict[str, Any]
    """The fields of RunConfig but `out`, with whole paths."""
    objects: tuple[str, ...] = ()
    """What was passed from Python and has to be passed again: `evaluator`, `author`, `model`, ..."""
    task_sha: str
    """Of the task file's text."""
    graph: str
    """Version of the graph that the checkpoints belong to."""
    versions: dict[str, str] = Field(default_factory=dict)
    parent: dict[str, str] | None = None
    """`run` and `at` where this run was forked from another one."""
    date: str = ""

    @classmethod
    def of(cls, config: RunConfig, task_source: str, objects: tuple[str, ...], parent: dict[str, str] | None = None) -> "Manifest":
        """The manifest of a run that begins now."""
        name = uuid4().hex
        return cls(
            run=name, thread=name, settings=settings_to_keep(config), objects=objects, task_sha=text_sha(task_source),
            graph=graph_version(), versions=_versions(), parent=parent, date=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write `run.json`. Raises OSError."""
        put_text(folder / MANIFEST, self.model_dump_json(indent=1) + "\n")

    def config(self, folder: Path) -> RunConfig:
        """The settings of the run in a folder. Raises UsageError."""
        try:
            config = RunConfig.model_validate({**self.settings, "out": str(folder)})
        except ValidationError as error:
            raise UsageError(
                f"{folder / MANIFEST}: the settings of this run cannot be read ({fault_of(error)}); begin a new run"
            ) from error
        return config if config.base_url is None else config.model_copy(update={"base_url": restore_address(config.base_url)})

    def refuse_what_changed(self, folder: Path, task_source: str, objects: tuple[str, ...]) -> None:
        """Raise UsageError where the graph, the task file, what it reads or what was passed is not what the run began with."""
        if self.graph != graph_version():
            wrote, name = self.versions.get("tritonsmith", "unknown"), self.settings.get("task")
            raise UsageError(
                f"{folder}: the run was begun by another version of the graph ({self.graph}, tritonsmith {wrote} of {self.date[:10]}; this "
                f"is {graph_version()}, tritonsmith {version('tritonsmith')}), so its states cannot be read; resume it with that version, "
                f"or begin anew: tritonsmith optimize {name}"
            )
        if text_sha(task_source) != self.task_sha:
            name = self.settings.get("task")
            raise UsageError(f"{folder}: {name} has changed since the run began; put the old text back, or begin a new run with it")
        refuse_changed_reads(folder, str(self.settings.get("task")))
        missing = [name for name in self.objects if name not in objects]
        if missing:
            raise UsageError(
                f"{folder}: this run was started from Python with its own {' and '.join(missing)}; pass the same again: "
                f"resume({str(folder)!r}, {', '.join(f'{name}=...' for name in missing)})"
            )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the run in a folder. Raises UsageError that says why there is none."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; name the folder of a run")
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{folder}: no run lies there (it has no {MANIFEST}); name the folder of a run") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{folder / MANIFEST}: cannot be read ({fault_of(error)}); name the folder of another run") from error
    try:
        found = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"{folder / MANIFEST}: this is not what a run of this version writes ({fault_of(error)}); begin a new run"
        ) from error
    if found.format != FORMAT:
        raise UsageError(f"{folder / MANIFEST}: format {found.format} is not {FORMAT}; resume the run with the version that began it")
    return found


def read_same_run(folder: Path, config: RunConfig, task_source: str, objects: tuple[str, ...]) -> Manifest:
    """The manifest of a run that lies in a folder already. Raises UsageError where that run has other settings or another task."""
    manifest = read_manifest(folder)
    settings, others = settings_to_keep(config), settings_to_keep(manifest.config(folder))
    if settings != others:
        other = ", ".join(sorted(name for name in settings if others[name] != settings[name]))
        raise UsageError(
            f"--out {folder}: a run with other settings lies there ({other}); name a new folder, or go on with that run: "
            f"tritonsmith resume {folder}"
        )
    manifest.refuse_what_changed(folder, task_source, objects)
    return manifest


def read_parent(folder: Path) -> dict[str, str] | None:
    """`run` and `at` of a fork, from the `parent.json` that lies in its folder; None for other runs. Raises UsageError."""
    path = folder / PARENT
    if not path.is_file():
        return None
    try:
        parent = parse_object(path.read_text(encoding="utf-8"))
        return {"run": str(parent["run"]), "at": str(parent["at"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: cannot be read ({fault_of(error)}); fork the run again into a new folder") from error


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("tritonsmith", "langgraph", "langgraph-checkpoint")}
    return {**found, "python": platform.python_version(), "prompts": f"{VERSION} {digest()}"}
