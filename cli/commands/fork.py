"""`tritonsmith fork`: the same seeds, and from one site on other rules."""

from typing import Annotated

import typer

from tritonsmith.cli.options import FasterOption, JsonOption, err

ParentArgument = Annotated[str, typer.Argument(metavar="RUN", help="The folder of the run to branch off from; it stays as it is.")]
SiteOption = Annotated[
    str, typer.Option("--at", metavar="SITE", help="From where on the other policy decides: a gate of the drawing or a policy's method.")
]
OtherPolicyOption = Annotated[str, typer.Option("--policy", help="A preset or path/to/file.py:ClassName.")]
ForkOutOption = Annotated[str | None, typer.Option("--out", help="A new folder for the fork; default: RUN-SITE-POLICY.")]


def fork(
    run: ParentArgument, at: SiteOption, policy: OtherPolicyOption, out: ForkOutOption = None, fail_unless_faster: FasterOption = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Branch off from RUN: its kernels, replies and verdicts, its decisions until SITE, another policy's from there on.

    Nothing that RUN has asked a model or measured is asked or measured again. Exit code 1 without a right kernel.
    """
    from tritonsmith.cli.screen.answer import answer
    from tritonsmith.cli.screen.progress import open_progress
    from tritonsmith.graph.runs.fork import fork as fork_a_run

    with open_progress(err) as progress:
        summary = fork_a_run(run, at=at, policy=policy, out=out, on_event=progress)
    answer(summary, as_json, must_be_faster=fail_unless_faster)
