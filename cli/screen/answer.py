"""The answer of a run on the screen, and its page."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.padding import Padding
from rich.text import Text

from tritonsmith.cli.options import choose_page, err, out, print_json
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.screen.regions import region_table
from tritonsmith.cli.screen.tables import candidate_table, decision_grid, decision_lines, size_table, verdict_lines
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.graph.storage.kept import Kept
from tritonsmith.graph.storage.outcome import RunOutcome, count_words, describe_way_on, split_waiting
from tritonsmith.graph.storage.summary import Summary, Winner

WAITS = 3
"""Exit code of a run that waits for replies or verdicts."""
_STYLES = {
    RunOutcome.FASTER: "bold green", RunOutcome.NOT_FASTER: "bold red", RunOutcome.KEPT: "bold", RunOutcome.RIGHT: "bold yellow",
    RunOutcome.NOT_CONFIRMED: "bold yellow", RunOutcome.NO_KERNEL: "bold red", RunOutcome.WAITING: "bold cyan",
}  # fmt: skip

_INDENT = (0, 0, 0, 2)
"""Padding of what stands below a heading: top, right, bottom, left."""
_FILE_WIDTH = 160
"""Columns where the answer does not go to a terminal."""


def answer(summary: Summary, as_json: bool, *, must_be_faster: bool = False) -> None:
    """The end of a run, its page, and its exit code."""
    write_page(Path(summary.out))
    if as_json:
        print_json(summary)
    else:
        show(summary)
    raise typer.Exit(exit_code(summary, must_be_faster=must_be_faster))


def exit_code(summary: Summary, *, must_be_faster: bool = False) -> int:
    """0 for a right kernel or a module that is best kept, or for a FASTER kernel where it must be; else 1; 3 for a run that waits."""
    if summary.outcome is RunOutcome.WAITING:
        return WAITS
    kept = summary.outcome is RunOutcome.KEPT
    enough = summary.outcome is RunOutcome.FASTER if must_be_faster else summary.winner is not None or kept
    return 0 if enough else 1


def write_page(folder: Path) -> None:
    """Write report.html; a page that cannot be written only gives a line on stderr."""
    from tritonsmith.cli.report.write import write_report  # noqa: PLC0415  (matplotlib would slow every other command)

    try:
        write_report(folder, Form.HTML)
    except UsageError as error:
        err.print(f"No report was written: {error}")


def show(summary: Summary) -> None:
    """The end of a run for a reader: the answer, the way it took, every candidate, the winner, and where the files are."""
    _show_first_words(summary)
    out.print(Text.assemble("\n", ("The way it took", "bold"), f" (policy {summary.policy}, author {summary.model})"))
    if out.is_terminal:
        out.print(Padding(decision_grid(summary.decisions, out.width), _INDENT), soft_wrap=False)
    else:
        for decided in decision_lines(summary.decisions):
            out.print(f"  {decided}")
    out.print()
    page = choose_page(_FILE_WIDTH)
    if summary.candidates:
        table = candidate_table(summary.candidates, page.width, summary.best.id if summary.best else None, title="Candidates")
        page.print(table, soft_wrap=False)
    for search in summary.searches:
        out.print(f"Search {search.stage} around {search.base}: {search.sentence()}.")
    out.print()
    if summary.kept:
        _show_kept(summary.kept)
    if (regions := region_table(summary)) is not None:
        page.print(regions, soft_wrap=False)
        out.print()
    if summary.best:
        _show_best(summary, summary.best)
        _show_sizes(summary, page.width)
    elif summary.outcome is RunOutcome.KEPT:
        out.print("No candidate was written.", style="bold")
    elif summary.waits_for:
        _show_waiting(summary)
    else:
        out.print("No candidate was accepted.", style="bold red")
    for row in summary.candidates:
        if row.not_allowed:
            out.print(f"Not allowed to win (--allow {summary.allow}): {row.id}: {row.not_allowed}")
    if summary.stopped_because and not summary.waits_for:
        out.print(f"Stopped because: {summary.stopped_because}")
    if summary.sized:
        out.print(f"Size: {summary.sized}.")
    if summary.kind == "estimated":
        what = "two estimates by one formula, torch.compile not among them"
        out.print(f"Scores are ESTIMATES for {summary.target} ({what}); no time was measured on a card.")
    elif summary.kind == "measured":
        out.print(f"Scores were measured on {summary.target}.")
    _show_files(Path(summary.out), summary)


def _show_kept(kept: Kept) -> None:
    """The module's own fastest form, with the code that gives it."""
    out.print(f"Your module's fastest form ({kept.ms:.4g} ms), where `model` is the module:")
    for line in kept.code:
        out.print(f"    {line}")


def _show_best(summary: Summary, best: Winner) -> None:
    """The best right kernel with its verdict; what it is called depends on what was proven."""
    proof = "confirmed in fresh processes with new seeds" if best.confirmed else "NOT confirmed: the run ended before"
    if summary.behind is not None and not best.confirmed:
        proof = "measured in the search; there was nothing to confirm"
    name = f"{'Winner' if summary.outcome is RunOutcome.FASTER else 'Best kernel'} {best.id}"
    out.print(Text(name, style_of(summary)), f"({best.stage}; {proof})")
    if summary.behind is not None:
        out.print(f"It is no result; its text is {Path(summary.out) / 'kernels' / f'{best.sha}.py'}")
    out.print(best.result, style="bold")
    for line in verdict_lines(best.verdict):
        if out.is_terminal:
            out.print(Padding(line, _INDENT), soft_wrap=False)
        else:
            out.print(Text.assemble("  ", line))


def _show_first_words(summary: Summary) -> None:
    way_on = f": {describe_way_on(summary.waits_for, summary.out)}" if summary.waits_for else ""
    out.print(Text(f"{summary.answer}{way_on}", style_of(summary)))


def _show_sizes(summary: Summary, width: int) -> None:
    """Where the kernel is right and what it scores there, by size; nothing for a task of one size."""
    if summary.sizes:
        choose_page(_FILE_WIDTH).print(size_table(summary.sizes, width), soft_wrap=False)
    for row in summary.sizes:
        if row.note:
            out.print(f"Size {row.size}: {row.note}.")


def style_of(summary: Summary) -> str:
    """The colour of the answer; green is measured."""
    if summary.outcome is RunOutcome.FASTER and summary.kind == TimingKind.ESTIMATED.value:
        return "bold yellow"
    return _STYLES[summary.outcome]


def _show_waiting(summary: Summary) -> None:
    replies, results = split_waiting(summary.waits_for)
    if replies:
        out.print("Read the request next to each reply, and write:")
    for path in replies:
        out.print(f"  {path}")
    if results:
        out.print(f"On the machine with the card: tritonsmith worker {Path(results[0]).parent.parent} --once")
    out.print(f"Then: tritonsmith resume {summary.out}")


def _show_usage(summary: Summary) -> None:
    """One line about the model, and one per stage."""
    for name, used in (("The model", summary.usage), *((f"  {stage}", usage) for stage, usage in summary.usage_by_stage.items())):
        inner = f" ({used.cached_tokens} cached)" if used.cached_tokens else ""
        thought = f" ({used.reasoning_tokens} of thought)" if used.reasoning_tokens else ""
        money = f", ${used.money:.4f}" if used.money else ""
        unknown = f", {used.unpriced} without a known price" if used.unpriced else ""
        guessed = f", tokens of {count_words(used.unreported, 'call')} estimated" if used.unreported else ""
        failed = f", {count_words(used.retries, 'failed try', 'failed tries')}" if used.retries else ""
        asked = f"{name}: {count_words(used.calls, 'call')}, {count_words(used.input_tokens, 'token')} read{inner}"
        out.print(
            f"{asked}, {used.output_tokens} written{thought}, {used.seconds:.0f} s{money}{unknown}{guessed}{failed}.",
        )


def _show_files(folder: Path, summary: Summary) -> None:
    if summary.usage.calls or summary.usage.retries:
        _show_usage(summary)
    made = count_words(len(summary.candidates), "candidate")
    out.print(f"{summary.seconds:.0f} s for {made} of {summary.task} ({summary.size} size). Files:")
    for name, what in (
        ("report.html", "all of this as a page that needs no network"),
        ("best.py", "the best kernel, complete in itself"),
        ("summary.json", "all of this for a program"),
        ("events.jsonl", "every step as it happened"),
        ("kernels", "every kernel text, by content"),
        ("verdicts", "every evaluation, by candidate"),
        ("llm", "every prompt and reply"),
        ("usage.csv", "what every try of a request cost"),
        ("raw", "every timing sample"),
    ):
        path = folder / name
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            out.print(f"  {path}  {what}")
    if summary.winner and not (folder / "best.py").is_file():
        kernels = f"its text is in {folder / 'kernels'}"
        there = (folder / "kernels" / f"{summary.winner.sha}.py").is_file()
        out.print(f"{folder / 'best.py'} is missing: {kernels if there else 'its text is gone too, so run the task again'}.")
