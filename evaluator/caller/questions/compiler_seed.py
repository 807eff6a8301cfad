"""A first kernel that a compiler has written, asked of a process of its own. No card is touched, so any evaluator's card may be named."""

from __future__ import annotations

import asyncio
from typing import Literal

from tritonsmith.evaluator.caller.questions.process import TaskProcess
from tritonsmith.evaluator.protocol import CompilerSeed, Evaluator
from tritonsmith.evaluator.schema import Hardware, Task

SEED_SECONDS = 300.0
"""Longest time for one text; large networks take a minute."""
Compiler = Literal["inductor"]
"""Compilers whose text can be had."""


def ask_inductor(task: Task, hardware: Hardware, timeout: float = SEED_SECONDS) -> CompilerSeed:
    """Inductor's own Triton text for a task on a card, at the task's size, in its precision class and its mode.

    Raises:
        TaskError: the task file is at fault; one sentence for the user.
        InfrastructureError: the process itself failed.
    """
    quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # the card and most processors may be measuring
    process = TaskProcess("tritonsmith.evaluator.inductor", "the process that asks Inductor", quiet)
    return process.ask(task, timeout, f"Inductor wrote no text within {timeout:.0f} s", CompilerSeed.model_validate, hardware)


async def write_seed_with(evaluator: Evaluator, task: Task) -> CompilerSeed:
    """The answer of any evaluator. One without a way of its own has this machine write the text for its card: that needs no card.

    Raises TaskError or InfrastructureError.
    """
    own = await evaluator.write_seed(task)
    return own if own is not None else await asyncio.to_thread(ask_inductor, task, evaluator.hardware)
