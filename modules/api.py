"""The public calls: a live module in, a `Result` out. Loads torch and the graph when one of them is called."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.background import run_to_completion
from tritonsmith.modules.progress import choose_listener
from tritonsmith.modules.result import Result
from tritonsmith.modules.shell import TASK_FOLDER, tell_of_module

if TYPE_CHECKING:
    from torch import nn

    from tritonsmith.evaluator.protocol import Evaluator


async def optimize_async(
    module: nn.Module,
    inputs: Any,
    *,
    shapes: Iterable[Any] | Mapping[str, Any] | None = None,
    mode: str = "eval",
    init: Any = None,
    model: Any = "offline",
    budget: Any = None,
    out: str | Path | None = None,
    progress: bool | Callable[[dict[str, Any]], None] = True,
    backward: bool = False,
    evaluator: Evaluator | None = None,
    **options: Any,
) -> Result:
    """`optimize` for callers that run an event loop; arguments, result and errors are the same."""
    import asyncio  # noqa: PLC0415 - with what it begins

    from tritonsmith.graph.run import optimize_async as run_async  # noqa: PLC0415 - LangGraph is slow to load

    folder = Path(out) if out is not None else _name_folder(module)
    _require_new(folder)
    config, models = _settle(str(folder / TASK_FOLDER / "task.py"), folder, model, budget, options)
    await asyncio.to_thread(_bring, module, inputs, folder / TASK_FOLDER, mode, shapes, init, backward)
    with choose_listener(progress, sys.stderr) as listen:
        try:
            summary = await run_async(config, models=models, evaluator=evaluator, on_event=listen)
        except UsageError as error:
            raise tell_of_module(error, folder / TASK_FOLDER / "task.py", type(module).__name__) from error
    return Result(module, folder, folder / TASK_FOLDER, summary)


def optimize(module: nn.Module, inputs: Any, **options: Any) -> Result:
    """Search for a faster kernel of a module, prove it right on the module's own weights and inputs, and give a drop-in.

    Args:
        module: any torch.nn.Module with its weights, on one device. It stays as it is.
        inputs: of one call: a tensor, a tuple of arguments, a dict of keyword arguments, or a pair `(args, kwargs)`. They may be nested
            and hold plain values, such as `(torch.randn(8, 128, 512),)` or `{"ids": ids, "mask": mask}`.
        shapes: other sizes that the winner must be right at: a list of further inputs, or a dict from the names of sizes in
            the written task to a value or a pair `(lowest, highest)`, such as `{"batch": (1, 64)}`.
        mode: `eval` or `train`: what the module is judged in.
        init: arguments of the class's constructor, a tuple or a dict; only needed where torch.export cannot take the module.
        model: who writes kernels: `offline` (the built-in author), `openai:NAME`, or a LangChain chat model.
        budget: limits of the run: a number of candidates, or a dict such as `{"candidates": 20, "seconds": 600}`.
        out: a new folder for everything that the run leaves behind; default `runs/<class>-<time>`.
        progress: whether to tell what happens, in a notebook and on a terminal; or a function that hears every event.
        backward: whether gradients are judged too, and forward and backward are timed together. Without it gradients come
            from the original module.
        evaluator: who judges; None for this machine. One that is passed in stays open.
        options: further settings of a run, such as `target="h200"`, `seeds=4`, `policy="greedy"`, `precision="tf32"`.

    Returns:
        A `Result`: `result.module` is the drop-in, `result.answer` says what was found, `result.folder` holds all of it.

    Raises:
        UsageError: one sentence about what is wrong with the module, the inputs or an option, and what helps.

    Example:
        >>> block = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
        >>> result = tritonsmith.optimize(block, torch.randn(32, 512))
        >>> y = result.module(torch.randn(32, 512))
    """
    return run_to_completion(optimize_async(module, inputs, **options))


def _bring(module: nn.Module, inputs: Any, folder: Path, mode: str, shapes: Any, init: Any, backward: bool) -> None:
    from tritonsmith.modules.bringing.bring import bring  # noqa: PLC0415 - it loads torch

    bring(module, inputs, folder, mode=mode, shapes=shapes, init=init, backward=backward)


def _name_folder(module: object) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("runs") / f"{re.sub('[^A-Za-z0-9_.-]+', '_', type(module).__name__)}-{stamp}"


def _require_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"out={str(folder)!r}: the folder is not empty; name a new one, so that no earlier result is overwritten"
        )


def _settle(task: str, folder: Path, model: Any, budget: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """The settings of the run, and the models where one is an object. Raises UsageError."""
    from tritonsmith.graph.runs.config import RunConfig, models_of  # noqa: PLC0415
    from tritonsmith.graph.state import Budget  # noqa: PLC0415

    known = set(RunConfig.model_fields) - {"task", "out", "model", "budget", "mode", "backward"}
    if unknown := sorted(set(options) - known):
        raise UsageError(
            f"optimize() knows no option {', '.join(unknown)}; the options are {', '.join(sorted(known))}"
        )
    if isinstance(budget, Mapping) and (unknown := sorted(set(budget) - set(Budget.model_fields))):
        raise UsageError(f"budget knows no {', '.join(unknown)}; its limits are {', '.join(sorted(Budget.model_fields))}")
    settings = dict(options) | (
        {} if budget is None else {"budget": {"candidates": budget} if isinstance(budget, int) else budget}
    )
    objects = {} if isinstance(model, str) else {"model": model}
    try:
        config = RunConfig(task=task, out=str(folder), **({} if objects else {"model": model}), **settings)
    except ValueError as error:
        raise UsageError(f"an option of optimize() cannot be used: {_tell_fault(error)}") from error
    return config, models_of(config, objects) if objects else None


def _tell_fault(error: ValueError) -> str:
    """Which option is wrong and what it may be, without pydantic's frame."""
    from pydantic import ValidationError  # noqa: PLC0415 - loaded with the settings

    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}={first['input']!r}: {first['msg']}" if place else first["msg"]
