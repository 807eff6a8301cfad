"""The answer of the process: a self-contained text, or why there is none. Imports torch; runs the user's own task file."""

from __future__ import annotations

import torch

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import Hardware, Task

_MESSAGE = 300


def write_seed(task: Task, hardware: Hardware) -> dict[str, str]:
    """`text` with a candidate's file, or `reason`. Raises TaskError."""
    try:  # parts of Inductor that a later or an earlier version may not have
        from tritonsmith.evaluator.inductor.generate import generate  # noqa: PLC0415
        from tritonsmith.evaluator.inductor.module import write_module  # noqa: PLC0415
        from tritonsmith.evaluator.inductor.records import NoSeedError  # noqa: PLC0415
    except (ImportError, AttributeError) as error:
        return {"reason": f"the Inductor of torch {torch.__version__} is not one that can be asked for its text ({error})"}
    try:
        return {"text": write_module(generate(task, hardware), hardware)}
    except NoSeedError as error:
        return {"reason": str(error)}
    except TaskError:
        raise
    except Exception as error:  # noqa: BLE001 - a text in a form that another version writes must not end a run
        line = (str(error).splitlines() or ["no message"])[0][:_MESSAGE]
        return {"reason": f"the text of Inductor in torch {torch.__version__} cannot be read ({type(error).__name__}: {line})"}
