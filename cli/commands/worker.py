"""`tritonsmith worker`: judge the kernels that a run elsewhere has put into a folder."""

from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.options import BaselinesChoice, BaselinesOption, SandboxChoice, SandboxOption, TargetOption

FolderArgument = Annotated[str, typer.Argument(metavar="DIR", help="The folder that --evaluator spool:DIR names.")]
OnceOption = Annotated[bool, typer.Option("--once", help="Do what is there and end, instead of waiting for more.")]


def worker(
    folder: FolderArgument,
    once: OnceOption = False,
    target: TargetOption = "auto",
    sandbox: SandboxOption = SandboxChoice.AUTO,
    baselines: BaselinesOption = BaselinesChoice.FOUR,
) -> None:
    """Judge the jobs in DIR with this machine's card (or without one), until Ctrl-C or, with --once, until none is left."""
    from tritonsmith.cli.working import work_on

    work_on(Path(folder), target, sandbox.value, baselines.value, once=once)
