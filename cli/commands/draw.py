"""`tritonsmith graph`: the drawing, with the way a run took, or the ways that a policy can take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonsmith.cli.options import JsonOption, err, print_json, write_text
from tritonsmith.evaluator.errors import UsageError

if TYPE_CHECKING:
    from tritonsmith.graph.state import Decision


class FormatChoice(StrEnum):
    """How the drawing is written."""

    MERMAID = "mermaid"
    SVG = "svg"


RunOption = Annotated[str | None, typer.Option("--run", metavar="DIR", help="Folder of a run, whose way is marked.")]
MarkedPolicyOption = Annotated[
    str | None, typer.Option("--policy", help="A preset or path/to/file.py:ClassName, whose possible ways are marked.")
]
FormatOption = Annotated[FormatChoice, typer.Option("--format", help="Both need no network.")]
FileOption = Annotated[str | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")]


def graph(
    policy: MarkedPolicyOption = None,
    run: RunOption = None,
    format_: FormatOption = FormatChoice.MERMAID,
    out_file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the graph as Mermaid text or as SVG; --run marks the way that a run took, --policy the ways that a policy can take."""
    if run and policy:
        raise UsageError("--run, --policy: choose one of them; each marks ways of its own")
    from tritonsmith.cli.report.drawing.draw import POSSIBLE_WAYS, TAKEN_WAY, draw_file
    from tritonsmith.graph.drawing import graph_mermaid

    decisions = _possible_decisions(policy) if policy else _decisions_of(Path(run)) if run else ()
    if format_ is FormatChoice.SVG:
        text = draw_file(decisions, POSSIBLE_WAYS if policy else TAKEN_WAY)
    else:
        text = graph_mermaid(decisions=decisions)
    if out_file:
        write_text(out_file, text)
    if as_json:
        print_json({format_.value: text, "decisions": [decision.model_dump(mode="json") for decision in decisions]})
    elif not out_file:
        typer.echo(text, nl=False)
    if not run and not policy:
        err.print("--run DIR marks the way that a run took, and --policy P the ways that a policy can take.")


def _possible_decisions(policy: str) -> tuple[Decision, ...]:
    from tritonsmith.cli.screen.policies import ask_everywhere
    from tritonsmith.graph.drawing import possible_decisions
    from tritonsmith.graph.policies.load import load_policy

    return possible_decisions((answer["gate"], answer["choice"]) for answer in ask_everywhere(load_policy(policy)))


def _decisions_of(run: Path) -> tuple[Decision, ...]:
    from tritonsmith.graph.policies.forked import decisions_in, events_in
    from tritonsmith.graph.storage.folder import EVENTS

    try:
        return decisions_in(events_in(run / EVENTS))
    except UsageError as error:
        raise UsageError(f"--run {error}") from None
