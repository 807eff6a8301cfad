"""Runs the graph on a task file: from settings to a folder with the winner and its history."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.background import run_to_completion
from tritonsmith.graph.runs.active import active_runs
from tritonsmith.graph.runs.config import ROLES, RunConfig, models_of
from tritonsmith.graph.runs.make_context import make_context
from tritonsmith.graph.runs.manifest import read_manifest
from tritonsmith.graph.runs.run import Run, run_to_end
from tritonsmith.graph.storage.folder import (
    OnEvent,
)
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.model import Source
from tritonsmith.prompts.author import Author

__all__ = ["Run", "RunConfig", "active_runs", "make_context", "optimize", "optimize_async", "resume"]


async def optimize_async(
    config: RunConfig,
    *,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
    sketch: Task | None = None,
) -> Summary:
    """Run one task to its end and write the results; every event goes to `on_event` as it happens.

    `models` stands for the settings of `config` where models are objects, and `sketch` for the task file where it was read by these
    settings already, at its full size. An evaluator that is passed in stays open. Raises what `Run.stream` raises, and RunStopped when
    somebody stopped the run.
    """
    return await run_to_end(Run(config, evaluator=evaluator, author=author, models=models, sketch=sketch), on_event)


def optimize(
    task: str | Path,
    *,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
    sketch: Task | None = None,
    **options: Any,
) -> Summary:
    """`optimize_async` for callers that are not asynchronous; `options` are the fields of RunConfig.

    `model`, `analyst_model` and `repair_model` may be LangChain chat models, or functions that make one. Raises UsageError.
    """
    unknown = sorted(set(options) - set(RunConfig.model_fields))
    if unknown:
        raise UsageError(f"optimize() knows no option {', '.join(unknown)}; the options are {', '.join(RunConfig.model_fields)}")
    objects = {name: options.pop(name) for name in ROLES if not isinstance(options.get(name), str | None)}
    try:
        config = RunConfig(task=str(task), **options)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"option {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from error
    if objects:
        models = models_of(config, objects)
    run = Run(config, evaluator=evaluator, author=author, models=models, sketch=sketch)
    return run_to_completion(run_to_end(run, on_event))


def resume(
    folder: str | Path,
    *,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    model: Source | None = None,
    analyst_model: Source | None = None,
    repair_model: Source | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
) -> Summary:
    """Continue a run that was stopped or killed, or that waited. Of a finished run only the summary is read.

    Pass the objects that were passed to `optimize` again. Raises UsageError, and what `Run.stream` raises.
    """
    given = {"model": model, "analyst_model": analyst_model, "repair_model": repair_model}
    objects = {name: value for name, value in given.items() if value is not None}
    if objects and models is None:
        models = models_of(read_manifest(Path(folder)).config(Path(folder)), objects)
    return run_to_completion(run_to_end(Run.of(folder, evaluator=evaluator, author=author, models=models), on_event))
