"""`tritonsmith report`: a page about a run, a suite or an ablation that needs no network."""

from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.options import JsonOption, out, print_json
from tritonsmith.cli.report.forms import Form

FolderArgument = Annotated[str, typer.Argument(metavar="DIR", help="Folder of a run (over or not), a suite or an ablation.")]
FormOption = Annotated[Form, typer.Option("--format", help="html, md, csv, json, or all of them.")]
PlaceOption = Annotated[
    str | None, typer.Option("--out", metavar="PATH", help="Another folder, or the file where the format is one file; default: DIR.")
]


def report(folder: FolderArgument, format_: FormOption = Form.ALL, place: PlaceOption = None, as_json: JsonOption = False) -> None:
    """Write report.html (one file, no network), report.md, CSV tables and report.json for a run, a suite or an ablation."""
    from tritonsmith.cli.report.run.records import RunReport
    from tritonsmith.cli.report.write import load_report, write_texts
    from tritonsmith.cli.screen.answer import style_of

    files = load_report(Path(folder))
    paths = write_texts(files.texts, Path(folder), format_, Path(place) if place else None)
    if as_json:
        print_json(files.record)
        return
    out.print(files.headline, style=style_of(files.record.summary) if isinstance(files.record, RunReport) else "bold")
    for path in paths:
        out.print(f"  {path}")
