"""`tritonsmith memory`: the kernels and failures that a memory of runs keeps; one of them whole; and forgetting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritonsmith.cli.options import JsonOption, out, print_json
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.authors.remembered import FailedAttempt, MemoryFolder, RememberedKernel

FolderArgument = Annotated[str, typer.Argument(metavar="DIR", help="The folder that `optimize --memory DIR` keeps.")]
ShowOption = Annotated[str | None, typer.Option("--show", metavar="NAME", help="One record whole; the first letters of its name will do.")]
ForgetOption = Annotated[
    list[str] | None, typer.Option("--forget", metavar="NAME", help="Remove this record; may be given several times.")
]
AllOption = Annotated[bool, typer.Option("--forget-all", help="Remove every record.")]


def memory(
    folder: FolderArgument,
    show: ShowOption = None,
    forget: ForgetOption = None,
    forget_all: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the verified kernels and the failures of earlier runs that a folder of `optimize --memory` keeps; show one, or forget some."""
    if sum((show is not None, bool(forget), forget_all)) > 1:
        raise UsageError("--show, --forget and --forget-all: choose one of them")
    kept = MemoryFolder(Path(folder))
    kept.require()
    if show is not None:
        _print_record(kept.find(show), as_json)
        return
    removed = kept.clear() if forget_all else kept.forget(forget) if forget else None
    if removed is None:
        _print_list(kept, as_json)
    elif as_json:
        print_json({"removed": removed})
    else:
        out.print(f"Removed {count_words(removed, 'record')}.")


def _print_list(kept: MemoryFolder, as_json: bool) -> None:
    kernels, failures, unreadable = kept.kernels(), kept.failures(), kept.count_unreadable()
    if as_json:
        rows = [record.model_dump(mode="json", exclude={"source"}) | {"name": record.name} for record in (*kernels, *failures)]
        print_json({"kernels": rows[: len(kernels)], "failures": rows[len(kernels) :], "unreadable": unreadable})
        return
    out.print(f"{count_words(len(kernels), 'kernel')} and {count_words(len(failures), 'failure')} in {kept.root}.")
    if unreadable:
        out.print(f"{count_words(unreadable, 'file')} cannot be read and count for nothing; --forget-all removes them too.")
    every: list[RememberedKernel | FailedAttempt] = [*kernels, *failures]
    for record in every:
        out.print(f"  {record.name}  {_describe(record)}")


def _describe(record: RememberedKernel | FailedAttempt) -> str:
    """What a record is about, in one line."""
    kind = ", ".join(filter(None, ("+".join(record.kind.families), record.kind.types, record.kind.size)))
    where = f"{record.task} ({kind}) on {record.card}{f', Triton {record.triton}' if record.triton else ''}"
    if isinstance(record, RememberedKernel):
        told = f"{record.score:.2f}x {record.baseline}, {record.timed}, {record.profile}"
    else:
        told = ": ".join(filter(None, (record.status, record.reason)))
    return _keep_printable(" ".join(f"{where}: {told}".split()))


def _print_record(record: RememberedKernel | FailedAttempt, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    out.print(_describe(record))
    text = record.source if isinstance(record, RememberedKernel) else record.idea
    for line in text.splitlines():
        out.print(_keep_printable(line))


def _keep_printable(line: str) -> str:
    """The line without what would steer a terminal: records hold texts that nobody vouches for."""
    return "".join(letter if letter.isprintable() else " " for letter in line)
