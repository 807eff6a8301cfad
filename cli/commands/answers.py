"""`tritonsmith answers`: the verdicts that this machine keeps, and their eviction."""

from typing import Annotated

import typer

from tritonsmith.cli.options import JsonOption, out, print_json
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.outcome import count_words

AllOption = Annotated[bool, typer.Option("--all", help="Remove every answer.")]
UnusedOption = Annotated[
    float | None, typer.Option("--unused-days", min=0, max=36_500, help="Remove what was not asked for in so many days.")
]
TaskOption = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Remove answers about tasks of this name.")]
MostOption = Annotated[float | None, typer.Option("--most-mb", min=0, max=10**9, help="Remove the least used beyond so many megabytes.")]


def answers(
    everything: AllOption = False,
    unused_days: UnusedOption = None,
    task: TaskOption = None,
    most_mb: MostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the verdicts that this machine keeps, so that none is measured twice; with options, remove some and give the space back."""
    from tritonsmith.evaluator.caller.sharing.answers import VARIABLE, AnswerStore, find_answers

    path = find_answers()
    if path is None:
        raise UsageError(f"{VARIABLE}=off: no answers are kept; unset the variable, or name a file with it")
    store = AnswerStore(path)
    removed = 0
    if everything or unused_days is not None or task is not None or most_mb is not None:
        removed = store.evict(everything=everything, unused_days=unused_days, task=task, most_mb=most_mb)
    told = store.summarize()
    if as_json:
        print_json({**told, "removed": removed})
        return
    if removed:
        out.print(f"Removed {count_words(removed, 'answer')}.")
    megabytes, hours = told["bytes"] / 1e6, told["seconds"] / 3600
    kept = count_words(int(told["answers"]), "answer")
    out.print(f"{kept} in {told['file']}, {megabytes:.1f} MB; measuring them took {hours:.2f} hours.")
    for card, count in told["cards"].items():
        out.print(f"  {count} for {card}")
