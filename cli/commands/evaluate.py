"""`tritonsmith evaluate`: verdicts about kernel files."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tritonsmith.cli.options import (
    BackwardOption,
    BaselinesChoice,
    BaselinesOption,
    JsonOption,
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
    choose_page,
    out,
    print_json,
)
from tritonsmith.evaluator.schema import Status, Verdict

KernelsArgument = Annotated[
    list[str], typer.Argument(metavar="KERNEL...", help="Files with a ModelNew that calls Triton kernels; folders; 'patterns/*.py'.")
]
ProfileOption = Annotated[
    ProfileChoice, typer.Option(help="strict proves: all kinds of inputs, new weights, other sizes; quick is a first look, and no proof.")
]
SamplesOption = Annotated[str | None, typer.Option("--samples", metavar="DIR", help="Keep the samples behind the timing there.")]
_NO_PROOF = "none: --profile quick is a first look that passes some wrong kernels; leave it out for a proof"
"""Said of a kernel that only the quick profile has accepted."""
_WIDTH = 160
"""Columns of the table where the answer does not go to a terminal."""
Answer = Verdict | str
"""The verdict about a kernel, or the reason why there is none."""


def evaluate(
    task: TaskArgument,
    kernels: KernelsArgument,
    profile: ProfileOption = ProfileChoice.STRICT,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.AUTO,
    mode: ModeOption = None,
    backward: BackwardOption = False,
    sandbox: SandboxOption = SandboxChoice.AUTO,
    baselines: BaselinesOption = BaselinesChoice.FOUR,
    samples: SamplesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge each KERNEL against TASK; exit code 1 when one is rejected."""
    from tritonsmith.cli.judging import JudgingSettings, judge_each
    from tritonsmith.cli.kernels import find_kernels

    texts = find_kernels(kernels, task)
    paths, answers = list(texts), dict[str, Answer]()
    several = len(paths) > 1 or not Path(kernels[0]).is_file()

    def tell(number: int, answer: Answer) -> None:
        answers[paths[number]] = answer
        if not as_json:
            _show(paths[number] if several else "", answer)

    settings = JudgingSettings(task, target, size, tuple(set_ or ()), precision, sandbox, mode, baselines, backward)
    judge_each(list(texts.values()), settings, profile.value, Path(samples) if samples else None, tell)
    in_order = {path: answers[path] for path in paths}
    if as_json:
        told = [_as_json(path, answer) for path, answer in in_order.items()]
        print_json({"verdicts": told} if several else told[0])
    elif several:
        _show_table(in_order)
    raise typer.Exit(0 if all(_is_right(answer) for answer in answers.values()) else 1)


def _is_right(answer: Answer) -> bool:
    return isinstance(answer, Verdict) and answer.status is Status.OK


def _is_proven(answer: Answer) -> bool:
    return isinstance(answer, Verdict) and _is_right(answer) and answer.profile == ProfileChoice.STRICT


def _show(name: str, answer: Answer) -> None:
    """One verdict, below its name where there are several."""
    from tritonsmith.cli.screen.tables import verdict_lines

    if name:
        out.print(f"kernel    {name}", style="bold")
    if isinstance(answer, str):
        out.print(f"status    not judged\nmessage   {answer}\n")
        return
    first, *others = verdict_lines(answer)
    out.print(first)
    if _is_right(answer) and not _is_proven(answer):
        out.print(f"proof     {_NO_PROOF}", style="yellow")
    for line in others:
        out.print(line)
    if answer.timing and answer.timing.raw:
        out.print(f"samples   {answer.timing.raw}")
    if name:
        out.print()


def _show_table(answers: dict[str, Answer]) -> None:
    """Every kernel in a row, and how many are right."""
    from tritonsmith.cli.screen.tables import verdict_table

    page = choose_page(_WIDTH)
    page.print(verdict_table(answers.items()), soft_wrap=False)
    right = sum(map(_is_right, answers.values()))
    proven = all(_is_proven(answer) for answer in answers.values() if _is_right(answer))
    out.print(f"{right} of {len(answers)} kernels are right{'' if proven else f'; proof {_NO_PROOF}'}.")


def _as_json(path: str, answer: Answer) -> dict[str, Any]:
    """The verdict as it is, with the file and whether it proves that the kernel is right."""
    import json

    if isinstance(answer, str):
        return {"kernel": path, "status": "not judged", "message": answer, "proven": False}
    return {"kernel": path, **json.loads(answer.model_dump_json()), "proven": _is_proven(answer)}
