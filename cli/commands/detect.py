"""`tritonsmith detect`: what kind of kernel is this, with the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tritonsmith.cli.options import (
    JsonOption,
    KernelArgument,
    SetOption,
    SizeChoice,
    SizeOption,
    TargetOption,
    err,
    out,
    print_json,
    read_kernel,
)
from tritonsmith.evaluator.schema import Status

if TYPE_CHECKING:
    from tritonsmith.evaluator.texts.detect.detection import Detection

TaskOption = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help="Evaluate against this task first: then launches and bounds are known.")
]


def detect(
    kernel: KernelArgument,
    task: TaskOption = None,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what kind of kernel this is, with the lines that the answer rests on."""
    from tritonsmith.evaluator.texts.detect.detection import detect as detect_labels

    source = read_kernel(kernel)
    detection = detect_labels(source, path=kernel)
    if task is not None:
        from tritonsmith.cli.judging import JudgingSettings, judge

        judged = judge(source, JudgingSettings(task, target, size, tuple(set_ or ())), "quick")
        if judged.verdict.status is Status.OK:
            detection = detect_labels(source, judged.verdict.facts, judged.task_facts, judged.hardware, judged.verdict.timing, kernel)
        else:
            err.print(f"{kernel} is rejected ({judged.verdict.status.value}), so the labels rest on its text alone.")
    if as_json:
        print_json(detection)
    else:
        _show(detection, kernel)


def _show(detection: Detection, kernel: str) -> None:
    for hit in detection.labels:
        where = f"{kernel}:{hit.line}" if hit.line else "measured or estimated"
        out.print(f"{hit.name.value:<24} {where}  {hit.evidence}{f' (or: {hit.nearest})' if hit.nearest else ''}")
        out.print(f"{'':<24} {hit.routing}")
    if not detection.labels:
        out.print("no label applies")
    for code in detection.kernels:
        known = {"tl.dot": code.uses_dot, "waits for other programs": code.waits, "persistent": code.persistent}
        traits = [text for text, holds in known.items() if holds]
        out.print(f"kernel {code.name} in line {code.line}: {', '.join(traits) or 'no special traits'}")
    if not detection.kernels:
        out.print("no Triton kernel is defined in the file")
