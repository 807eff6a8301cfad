"""`tritonsmith optimize`: the main job, with live progress and the table at the end."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tritonsmith.cli.common import (
    AllowOption,
    JsonOption,
    PolicyOption,
    PrecisionChoice,
    PrecisionOption,
    SandboxChoice,
    SandboxOption,
    SetOption,
    SizeChoice,
    SizeOption,
    TargetOption,
    TaskArgument,
    err,
    out,
    print_json,
)
from tritonsmith.cli.progress import open_progress
from tritonsmith.cli.tables import candidate_table, decision_lines, verdict_lines
from tritonsmith.evaluator.schema import Allow
from tritonsmith.evaluator.tasks import parse_overrides
from tritonsmith.graph.run import optimize as run_optimize
from tritonsmith.graph.state import Budget
from tritonsmith.graph.summary import Summary

ModelOption = Annotated[str, typer.Option(help="offline (the built-in recipes) or openai:NAME for an OpenAI-compatible server.")]
BaseUrlOption = Annotated[str | None, typer.Option("--base-url", help="Address of that server; default: OpenAI's own, or OPENAI_BASE_URL.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="First kernels, each followed in a branch of its own.")]
OutOption = Annotated[str | None, typer.Option("--out", help="A new or empty folder for the results; default: runs/<task>-<time>.")]
CandidatesOption = Annotated[int | None, typer.Option("--budget-candidates", min=1, help="Kernels written in the whole run; default 60.")]
RepairsOption = Annotated[int | None, typer.Option("--budget-repairs", min=0, help="Repairs in a row of one failing kernel; default 5.")]
RoundsOption = Annotated[int | None, typer.Option("--budget-rounds", min=0, help="Analyses per branch; default 2.")]
SecondsOption = Annotated[float | None, typer.Option("--budget-seconds", min=1, help="Wall time of the run.")]
TokensOption = Annotated[int | None, typer.Option("--budget-tokens", min=1, help="Tokens read and written by the model.")]
MoneyOption = Annotated[float | None, typer.Option("--budget-money", min=0.0001, help="US dollars, where the model's prices are known.")]

_FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


def optimize(
    task: TaskArgument,
    model: ModelOption = "offline",
    base_url: BaseUrlOption = None,
    policy: PolicyOption = "default",
    seeds: SeedsOption = 2,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.IEEE,
    sandbox: SandboxOption = SandboxChoice.AUTO,
    allow: AllowOption = Allow.HYBRID,
    budget_candidates: CandidatesOption = None,
    budget_repairs: RepairsOption = None,
    budget_rounds: RoundsOption = None,
    budget_seconds: SecondsOption = None,
    budget_tokens: TokensOption = None,
    budget_money: MoneyOption = None,
    out_folder: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a faster kernel of TASK; exit code 1 when no candidate was accepted."""
    limits = {
        "candidates": budget_candidates, "repairs": budget_repairs, "rounds": budget_rounds,
        "seconds": budget_seconds, "tokens": budget_tokens, "money": budget_money,
    }  # fmt: skip
    overrides = parse_overrides(set_ or [])
    with open_progress(err) as progress:
        summary = run_optimize(
            task,
            on_event=progress,
            model=model,
            base_url=base_url,
            policy=policy,
            seeds=seeds,
            target=target,
            size=None if size is SizeChoice.AUTO else size.value,
            overrides=overrides,
            precision=precision.value,
            sandbox=sandbox.value,
            allow=allow,
            budget=Budget.model_validate({name: value for name, value in limits.items() if value is not None}),
            out=out_folder,
        )
    if as_json:
        print_json(summary)
    else:
        show(summary)
    raise typer.Exit(0 if summary.winner else 1)


def show(summary: Summary) -> None:
    """The end of a run for a reader: the way it took, every candidate, the winner, and where the files are."""
    out.print(f"\n[bold]The way it took[/] (policy {summary.policy}, author {summary.model})")
    for line in decision_lines(summary.decisions):
        out.print(f"  {line}")
    out.print()
    page = out if out.is_terminal else Console(width=_FILE_WIDTH)
    table = candidate_table(summary.candidates, page.width, summary.winner.id if summary.winner else None, title="Candidates")
    page.print(table, soft_wrap=False)
    out.print()
    if summary.winner:
        proof = "confirmed in fresh processes with new seeds" if summary.winner.confirmed else "NOT confirmed: the run ended before"
        out.print(f"[bold green]Winner {summary.winner.id}[/] ({summary.winner.stage}; {proof})")
        out.print(f"[bold]{escape(summary.winner.result)}[/]")
        for line in verdict_lines(summary.winner.verdict):
            out.print(f"  {line}")
    else:
        out.print("[bold red]No candidate was accepted.[/]")
    for row in summary.candidates:
        if row.not_allowed:
            out.print(f"Not allowed to win (--allow {summary.allow}): {row.id}: {row.not_allowed}", markup=False)
    if summary.stopped_because:
        out.print(f"Stopped because: {summary.stopped_because}", markup=False)
    if summary.kind == "estimated":
        out.print(f"Scores are ESTIMATES for {summary.target} (two estimates by one formula); no time was measured on a card.")
    elif summary.kind == "measured":
        out.print(f"Scores were measured on {summary.target}.")
    _show_files(Path(summary.out), summary)


def _show_files(folder: Path, summary: Summary) -> None:
    if summary.usage.calls:
        used = summary.usage
        out.print(f"The model: {used.calls} calls, {used.input_tokens} tokens read, {used.output_tokens} written, {used.seconds:.0f} s.")
    out.print(f"{summary.seconds:.0f} s for {len(summary.candidates)} candidates of {summary.task} ({summary.size} size). Files:")
    for name, what in (
        ("best.py", "the winner, complete in itself"),
        ("summary.json", "all of this for a program"),
        ("events.jsonl", "every step as it happened"),
        ("kernels", "every kernel text, by content"),
        ("verdicts", "every evaluation, by candidate"),
        ("llm", "every prompt and reply"),
        ("raw", "every timing sample"),
    ):
        path = folder / name
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            out.print(f"  {path}  {what}", markup=False)
