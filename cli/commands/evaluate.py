"""`tritonsmith evaluate`: one verdict about one kernel file."""

from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.options import (
    BaselinesChoice,
    BaselinesOption,
    JsonOption,
    KernelArgument,
    ModeOption,
    PrecisionChoice,
    PrecisionOption,
    ProfileChoice,
    SandboxChoice,
    SandboxOption,
    SetOption,
    SizeChoice,
    SizeOption,
    TargetOption,
    TaskArgument,
    out,
    print_json,
    read_kernel,
)
from tritonsmith.evaluator.schema import Status

ProfileOption = Annotated[ProfileChoice, typer.Option(help="strict uses more trials, fresh processes and more samples.")]
SamplesOption = Annotated[str | None, typer.Option("--samples", metavar="DIR", help="Keep the samples behind the timing there.")]


def evaluate(
    task: TaskArgument,
    kernel: KernelArgument,
    profile: ProfileOption = ProfileChoice.QUICK,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.AUTO,
    mode: ModeOption = None,
    sandbox: SandboxOption = SandboxChoice.AUTO,
    baselines: BaselinesOption = BaselinesChoice.FOUR,
    samples: SamplesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge KERNEL against TASK; exit code 1 when it is rejected."""
    source = read_kernel(kernel)
    from tritonsmith.cli.judging import JudgingSettings, judge, refuse
    from tritonsmith.cli.screen.tables import verdict_lines

    settings = JudgingSettings(task, target, size, tuple(set_ or ()), precision, sandbox, mode, baselines)
    refused = refuse(source, settings, profile.value)
    verdict = refused or judge(source, settings, profile.value, Path(samples) if samples else None).verdict
    if as_json:
        print_json(verdict)
    else:
        for line in verdict_lines(verdict):
            out.print(line)
        if verdict.timing and verdict.timing.raw:
            out.print(f"samples   {verdict.timing.raw}")
    raise typer.Exit(0 if verdict.status is Status.OK else 1)
