"""Modules that a command line names: told apart from task files, and brought in by a process of their own, for a command loads no torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tritonsmith.evaluator.errors import UsageError

TASK_FOLDER = "task"
"""Name of the task's folder in that of a run."""
_NAMED = re.compile(r"^(?:hf:.+|timm:.+|.+\.py:[A-Za-z_]\w*)$")


def names_module(word: str) -> bool:
    """Whether a word names a module and no task file: `FILE.py:Class`, `hf:CONFIG.json` or `timm:NAME`."""
    return _NAMED.match(word) is not None and not Path(word).exists()


def name_of(word: str) -> str:
    """What a named module is called in the name of a folder."""
    kind, _, rest = word.partition(":")
    return Path(rest).stem if kind in ("hf", "timm") else word.rpartition(":")[2]


def tell_of_module(error: UsageError, task: Path | str, name: str) -> UsageError:
    """An error of a run in words about the module, since the task that was written of it goes with the run's folder.

    Args:
        error: about the task's file.
        task: that file.
        name: of the module.
    """
    text = re.sub(rf"{re.escape(str(task))}(, line \d+)?", name, str(error))
    text = re.sub(r", line \d+: result = super\(\)\.forward\(.*?\)(?=\))", "", text)  # of what is written around a class
    return UsageError(re.sub(r"\bline \d+: ", "", text))


def bring_named(
    word: str, folder: Path, *, inputs: str | None, init: str | None, mode: str, shapes: str | None = None,
    backward: bool = False,
) -> tuple[Path, str]:
    """The task file of a named module, and why it was not exported (empty where it was). Raises UsageError.

    Args:
        word: see `names_module`.
        folder: of the task, new or empty.
        inputs: types and sizes of its inputs; None for `example_inputs()` of its file.
        init: arguments of its constructor.
        mode: `eval` or `train`.
        shapes: other sizes that the kernel must be right at, such as `batch=1..64, length=128`.
        backward: whether gradients are judged too.
    """
    asked: dict[str, object] = {"word": word, "folder": str(folder), "inputs": inputs, "init": init, "mode": mode, "shapes": shapes}
    asked["backward"] = backward
    done = subprocess.run(
        [sys.executable, "-m", "tritonsmith.modules.bringing"],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise UsageError(
            f"{word}: the process that reads it ended with code {done.returncode}; its own message stands above"
        ) from None
    if "error" in answer:
        raise UsageError(answer["error"])
    return Path(answer["task"]), answer["reason"]
