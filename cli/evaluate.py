"""`tritonsmith evaluate`: one verdict about one kernel file."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.common import (
    JsonOption,
    KernelArgument,
    PrecisionChoice,
    PrecisionOption,
    ProfileChoice,
    SetOption,
    SizeChoice,
    SizeOption,
    TargetOption,
    TaskArgument,
    err,
    out,
    print_json,
    read_kernel,
)
from tritonsmith.cli.tables import verdict_lines
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.schema import PrecisionClass, Status, Verdict
from tritonsmith.evaluator.tasks import load_task, parse_overrides

ProfileOption = Annotated[ProfileChoice, typer.Option(help="strict uses more trials, fresh processes and more samples.")]


def evaluate(
    task: TaskArgument,
    kernel: KernelArgument,
    profile: ProfileOption = ProfileChoice.QUICK,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.IEEE,
    as_json: JsonOption = False,
) -> None:
    """Judge KERNEL against TASK; exit code 1 when it is rejected."""
    source = read_kernel(kernel)
    overrides, wanted = parse_overrides(set_ or []), PrecisionClass(precision.value)
    load_task(task, "full", overrides, wanted)  # what is wrong with the file is said before anything is started

    async def judge() -> Verdict:
        async with open_evaluator(target, raw) as evaluator:
            chosen = size.value if size is not SizeChoice.AUTO else "full" if evaluator.hardware.present else "small"
            loaded = load_task(task, chosen, overrides, wanted)
            return await evaluator.evaluate(loaded, source, profile.value)

    raw = Path(tempfile.mkdtemp(prefix="tritonsmith-raw-"))
    try:
        with err.status("Evaluating ..."):
            verdict = asyncio.run(judge())
    finally:
        if not any(raw.iterdir()):
            raw.rmdir()
    if as_json:
        print_json(verdict)
    else:
        for line in verdict_lines(verdict):
            out.print(line)
        if verdict.timing and verdict.timing.raw:
            out.print(f"samples   {verdict.timing.raw}", markup=False)
    raise typer.Exit(0 if verdict.status is Status.OK else 1)
