"""Forking a run: the same seeds, replies and verdicts, and from one site on other rules.

A fork is a run of its own in a new folder. It begins with a copy of its parent's tape, so what the parent asked or judged is neither
asked nor judged again; it takes the parent's decisions until the site is reached, and then its own policy's.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.background import run_to_completion
from tritonsmith.graph.policies.forked import PARENT, Parent, check_site, decisions_before, decisions_in, events_in
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.runs.config import models_of, settings_to_keep
from tritonsmith.graph.runs.manifest import Manifest, read_manifest
from tritonsmith.graph.runs.run import Run, run_to_end
from tritonsmith.graph.storage.files import fault_of, lines_of, parse_object, put_text
from tritonsmith.graph.storage.folder import EVENTS, MANIFEST, TAPE, OnEvent, lock_run, make_folder
from tritonsmith.graph.storage.summary import Summary, read_summary
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.prompts.author import Author


def fork(
    folder: str | Path,
    *,
    at: str,
    policy: str,
    out: str | Path | None = None,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
) -> Summary:
    """`fork_async` for callers that are not asynchronous."""
    return run_to_completion(
        fork_async(folder, at=at, policy=policy, out=out, evaluator=evaluator, author=author, models=models, on_event=on_event)
    )


async def fork_async(
    folder: str | Path,
    *,
    at: str,
    policy: str,
    out: str | Path | None = None,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
) -> Summary:
    """Fork a run and take the fork to its end. The same call again continues a fork that was stopped.

    Pass the objects that were passed to the parent again. Raises UsageError, RunStopped, and what `Run.stream` raises.
    """
    run = await asyncio.to_thread(fork_run, folder, at=at, policy=policy, out=out, evaluator=evaluator, author=author, models=models)
    try:
        return await run_to_end(run, on_event)
    except UsageError as error:
        if run.config.replay is None or not str(error).startswith("--replay"):
            raise
        why = str(error).partition(": ")[2].partition(";")[0]
        raise UsageError(
            f"{folder}: the run was played from a recording, and --policy {policy} goes a way that the recording does not know ({why}); "
            "fork a run that was not played, or take another site"
        ) from error


def fork_run(
    folder: str | Path,
    *,
    at: str,
    policy: str,
    out: str | Path | None = None,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
) -> Run:
    """Make the folder of a fork, and its run. A folder that holds this fork already is continued.

    `out` is by default `<folder>-<at>-<policy>`, next to the parent. Raises UsageError for a site that does not exist or that the
    parent never reached, and for a parent that cannot be repeated.
    """
    folder = Path(folder)
    check_site(at)
    name = load_policy(policy).name
    manifest = read_manifest(folder)
    beside = folder if folder.name not in ("", "..") else folder.resolve()
    target = Path(out) if out is not None else beside.with_name(f"{beside.name}-{at}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}")
    if target.resolve() == folder.resolve():
        raise UsageError(f"--out {target}: that is the run itself; name a new folder for the fork")
    config = manifest.config(folder)
    config = config.model_copy(update={"policy": policy, "out": str(target), "record": None})
    task = _refuse_what_cannot_be_repeated(folder, manifest, {"evaluator": evaluator, "author": author, "model": models})
    parent = parent_of(folder, manifest, at)
    if (target / MANIFEST).is_file():
        _refuse_another_fork(target, parent, str(settings_to_keep(config)["policy"]))
        return Run.of(target, evaluator=evaluator, author=author, models=models)
    _prepare(folder, target, parent)
    return Run(config, evaluator=evaluator, author=author, models=models or models_of(config), sketch=task)


def parent_of(folder: Path, manifest: Manifest, at: str) -> Parent:
    """What a fork at a site keeps of the run in a folder. Raises UsageError when that run never reached the site."""
    summary, events = read_summary(folder), events_in(folder / EVENTS)
    decisions = summary.decisions if summary is not None else decisions_in(events)
    answers, reached = decisions_before(at, decisions)
    if not reached:
        asked = (decision for decision in decisions if decision.policy and not decision.reason.startswith("not asked: "))
        seen = ", ".join(dict.fromkeys(decision.gate for decision in asked))
        raise UsageError(f"--at {at}: {folder} never asked its policy there; it asked {f'at {seen}' if seen else 'nothing yet'}")
    seeds = {event["branch"] for event in events if event["event"] == "stage" and event.get("node") == "seed"}
    return Parent(
        run=folder.resolve().name, id=manifest.run, at=at, policy=decisions[-1].policy, seeds=len(seeds), decisions=answers,
    )  # fmt: skip


def _refuse_what_cannot_be_repeated(folder: Path, manifest: Manifest, given: dict[str, object]) -> Task:
    """The task that the run was about. Raises UsageError where a fork could not go the same way."""
    config = manifest.config(folder)
    task = load_task(config.task, "full", dict(config.overrides), config.precision, config.mode, config.backward)
    objects = tuple(name for name, value in given.items() if value is not None)
    roles = ("model", "analyst_model", "repair_model") if given["model"] is not None else ()
    manifest.refuse_what_changed(folder, task.source, (*objects, *roles))
    return task


def _refuse_another_fork(target: Path, parent: Parent, policy: str) -> None:
    try:
        there = Parent.model_validate_json((target / PARENT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--out {target}: another run lies there; name a new folder for the fork") from error
    other = read_manifest(target).settings["policy"]
    if (there.id, there.at, other) != (parent.id, parent.at, policy):
        raise UsageError(f"--out {target}: a fork of {there.run} at {there.at} with policy {other} lies there; name a new folder")


def _tape_of(folder: Path) -> str:
    """The whole lines of a run's tape; the last one may be under way. Raises UsageError where they cannot be used again."""
    whole, _, _ = (folder / TAPE).read_bytes().rpartition(b"\n")
    kinds: list[Any] = []
    for number, line in enumerate(lines_of(whole), start=1):
        try:
            kinds.append(parse_object(line).get("kind"))
        except ValueError as error:
            why = f"line {number} cannot be read ({fault_of(error)}); remove that line, or fork another run"
            raise UsageError(f"{folder / TAPE}: {why}") from error
    if kinds[:1] != ["tape"]:
        raise UsageError(f"{folder / TAPE}: this is not the tape of a run, so nothing of it can be used again; fork another run")
    return f"{whole.decode()}\n"


def _prepare(folder: Path, target: Path, parent: Parent) -> None:
    """Copy the parent's tape and kernels. `parent.json` comes last, so that a half copy is made again."""
    if not (folder / TAPE).is_file():
        raise UsageError(f"{folder}: the run has no {TAPE}, so its replies and verdicts cannot be used again; run it again")
    tape = _tape_of(folder)
    make_folder(target)
    try:
        with lock_run(target):
            put_text(target / TAPE, tape)
            (target / "kernels").mkdir(exist_ok=True)
            for kernel in (folder / "kernels").glob("*.py"):
                put_text(target / "kernels" / kernel.name, kernel.read_bytes().decode())
            put_text(target / PARENT, parent.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"--out {target}: cannot write there ({error.strerror}); name a folder that you may write to") from error
