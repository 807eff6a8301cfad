"""`tritonsmith resume`: go on with a run that waited for replies in files."""

from typing import Annotated

import typer

from tritonsmith.cli.common import JsonOption, err
from tritonsmith.cli.optimize import answer
from tritonsmith.cli.progress import open_progress
from tritonsmith.graph.run import resume as resume_run

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The folder of the run.")]


def resume(run: RunArgument, as_json: JsonOption = False) -> None:
    """Go on with RUN, which waited for replies; exit code 1 when no candidate was accepted, or when it still waits."""
    with open_progress(err) as progress:
        summary = resume_run(run, on_event=progress)
    answer(summary, as_json)
