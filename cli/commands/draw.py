"""`tritonsmith graph`: the drawing, with the way a run took."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.options import JsonOption, PolicyOption, err, print_json, write_text
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.drawing import graph_mermaid
from tritonsmith.graph.policies.forked import decisions_in, events_in
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.state import Decision
from tritonsmith.graph.storage.folder import EVENTS


class FormatChoice(StrEnum):
    """How the drawing is written."""

    MERMAID = "mermaid"
    PNG = "png"
    SVG = "svg"


RunOption = Annotated[str | None, typer.Option("--run", metavar="DIR", help="Folder of a run, whose way is marked.")]
FormatOption = Annotated[FormatChoice, typer.Option("--format", help="mermaid or svg; both need no network.")]
FileOption = Annotated[str | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")]


def graph(
    policy: PolicyOption = "default",
    run: RunOption = None,
    format_: FormatOption = FormatChoice.MERMAID,
    out_file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the graph as Mermaid text or as SVG; with --run, the way that the run took is marked."""
    if format_ is FormatChoice.PNG:
        raise UsageError(
            f"--format {format_.value}: drawing pixels needs a renderer that this package does not bring; "
            "take --format svg, which every browser shows, or --format mermaid."
        )
    load_policy(policy)
    decisions = _decisions_of(Path(run)) if run else ()
    text = _svg(decisions) if format_ is FormatChoice.SVG else graph_mermaid(decisions=decisions)
    if out_file:
        write_text(out_file, text)
    if as_json:
        print_json({format_.value: text, "decisions": [decision.model_dump(mode="json") for decision in decisions]})
    elif not out_file:
        typer.echo(text, nl=False)
    if not run:
        err.print("The drawing is the same for every policy: a policy only chooses the way through it (--run DIR shows one).")


def _decisions_of(run: Path) -> tuple[Decision, ...]:
    try:
        return decisions_in(events_in(run / EVENTS))
    except UsageError as error:
        raise UsageError(f"--run {error}") from None


def _svg(decisions: tuple[Decision, ...]) -> str:
    from tritonsmith.cli.report.drawing.draw import draw_file  # noqa: PLC0415  (its layout library would slow every other command)

    return draw_file(decisions)
