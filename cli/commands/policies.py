"""`tritonsmith policies`: the presets with what they stand for, one policy's answers, and the conformance test for a user's own."""

from typing import Annotated

import typer

from tritonsmith.cli.options import JsonOption
from tritonsmith.evaluator.errors import UsageError

ShowOption = Annotated[str | None, typer.Option("--show", metavar="POLICY", help="What one policy answers: a preset or file.py:ClassName.")]
CheckOption = Annotated[
    str | None, typer.Option("--check", metavar="POLICY", help="Put a policy to the conformance test; exit code 1 when it breaks a rule.")
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the presets as Markdown, as in docs/policies.md.")]


def policies(show: ShowOption = None, check: CheckOption = None, markdown: MarkdownOption = False, as_json: JsonOption = False) -> None:
    """List the policy presets with the sentence of the notes that each stands for; --show and --check take any policy."""
    if sum((show is not None, check is not None, markdown)) > 1:
        raise UsageError("--show, --check and --markdown: choose one of them")
    from tritonsmith.cli.screen.policies import print_check, print_policy, print_presets, render_presets
    from tritonsmith.graph.conformance.check import check_named
    from tritonsmith.graph.policies.load import load_policy

    if check is not None:
        report = check_named(check, "--check")
        print_check(report, as_json)
        raise typer.Exit(1 if report.violations else 0)
    if show is not None:
        print_policy(load_policy(show, "--show"), as_json)
    elif markdown:
        typer.echo(render_presets(), nl=False)
    else:
        print_presets(as_json)
