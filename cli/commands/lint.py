"""`tritonsmith lint`: would a kernel that does not do the task pass as its solution?"""

from typing import Annotated

import typer

from tritonsmith.cli.options import (
    BackwardOption,
    JsonOption,
    ModeOption,
    PrecisionChoice,
    PrecisionOption,
    SetOption,
    SizeChoice,
    TaskArgument,
    err,
    out,
    print_json,
)

LintSizeOption = Annotated[SizeChoice, typer.Option("--size", help="auto is small: the reference runs on the CPU a few dozen times.")]


def lint(
    task: TaskArgument,
    size: LintSizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.AUTO,
    mode: ModeOption = None,
    backward: BackwardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say whether zeros, a constant, an old result or a rounded one would pass as TASK's answer; exit code 1 when one would."""
    from tritonsmith.cli.judging import JudgingSettings
    from tritonsmith.evaluator.caller.questions.lint import lint_task

    settings = JudgingSettings(task, size=size, overrides=tuple(set_ or ()), precision=precision, mode=mode, backward=backward)
    loaded = settings.load(present=False)
    with err.status("Linting ..."):
        report = lint_task(loaded)
    if as_json:
        print_json(report)
    else:
        for finding in report.findings:
            out.print(f"finding   {finding.name}: {finding.reason}")
        for note in report.notes:
            out.print(f"note      {note}")
        count = len(report.findings)
        answer = "fit to judge kernels by" if not count else f"{count} finding{'s' if count > 1 else ''}"
        out.print(f"{loaded.path} ({report.size} size): {answer}")
    raise typer.Exit(1 if report.findings else 0)
