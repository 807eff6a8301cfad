"""`tritonsmith optimize`: the main job, with live progress and the table at the end."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

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
    budget_of,
    err,
    out,
    print_json,
)
from tritonsmith.cli.progress import open_progress
from tritonsmith.cli.report.forms import Form
from tritonsmith.cli.tables import candidate_table, decision_grid, decision_lines, verdict_lines
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Allow
from tritonsmith.evaluator.tasks import parse_overrides
from tritonsmith.graph.run import optimize as run_optimize
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.nodes.chat.connect import KEY
from tritonsmith.nodes.chat.handoff import REPLY
from tritonsmith.nodes.chat.model import REQUEST_SECONDS

_DAY = 86_400
_MOST = 100_000
"""Of anything that is counted: far more than a run can do, and no infinity, which files cannot keep."""

ModelOption = Annotated[
    str,
    typer.Option(
        help="offline (the built-in recipes), openai:NAME for an OpenAI-compatible server, or handoff:DIR (you answer requests in files)."
    ),
]
AnalystOption = Annotated[str | None, typer.Option("--analyst-model", help="Who says why a kernel is slow; default: --model.")]
RepairOption = Annotated[str | None, typer.Option("--repair-model", help="Who mends failing kernels; default: --model.")]
KeyOption = Annotated[str, typer.Option("--key-env", metavar="NAME", help="The environment variable with the server's key.")]
TimeoutOption = Annotated[float, typer.Option("--model-timeout", min=1, max=_DAY, help="Seconds that one request to a model may take.")]
PricesOption = Annotated[
    str | None, typer.Option("--prices", metavar="FILE", help="Prices of models (TOML or JSON); they go before the built-in ones.")
]
RecordOption = Annotated[str | None, typer.Option("--record", metavar="FILE", help="Write every request, reply and verdict to a new file.")]
ReplayOption = Annotated[
    str | None, typer.Option("--replay", metavar="FILE", help="Play the run from a recording: no key, no network, no evaluator.")
]
BaseUrlOption = Annotated[str | None, typer.Option("--base-url", help="Address of that server; default: OpenAI's own, or OPENAI_BASE_URL.")]
SeedsOption = Annotated[int, typer.Option(min=1, max=1000, help="First kernels, each followed in a branch of its own.")]
OutOption = Annotated[str | None, typer.Option("--out", help="A new or empty folder for the results; default: runs/<task>-<time>.")]
CandidatesOption = Annotated[
    int | None, typer.Option("--budget-candidates", min=1, max=_MOST, help="Kernels written in the whole run; default 60.")
]
RepairsOption = Annotated[
    int | None, typer.Option("--budget-repairs", min=0, max=_MOST, help="Repairs in a row of one failing kernel; default 5.")
]
RoundsOption = Annotated[int | None, typer.Option("--budget-rounds", min=0, max=_MOST, help="Analyses per branch; default 2.")]
SecondsOption = Annotated[float | None, typer.Option("--budget-seconds", min=1, max=1000 * _DAY, help="Wall time of the run.")]
TokensOption = Annotated[int | None, typer.Option("--budget-tokens", min=1, max=10**12, help="Tokens read and written by the model.")]
MoneyOption = Annotated[
    float | None, typer.Option("--budget-money", min=0.0001, max=10**9, help="US dollars, where the model's prices are known.")
]
EvaluatorOption = Annotated[
    str, typer.Option("--evaluator", help="local, or spool:DIR: jobs are files there, which `tritonsmith worker DIR` judges elsewhere.")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="DIR", help="Show kernels of earlier runs as examples, and add this one's.")
]
CheckpointsOption = Annotated[
    str, typer.Option("--checkpoints", help="sqlite (in the run's folder), postgres:NAME (a variable with the connection string), or none.")
]

_INDENT = (0, 0, 0, 2)
_FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


def optimize(
    task: TaskArgument,
    model: ModelOption = "offline",
    base_url: BaseUrlOption = None,
    analyst_model: AnalystOption = None,
    repair_model: RepairOption = None,
    key_env: KeyOption = KEY,
    model_timeout: TimeoutOption = REQUEST_SECONDS,
    prices: PricesOption = None,
    record: RecordOption = None,
    replay: ReplayOption = None,
    evaluator: EvaluatorOption = "local",
    memory: MemoryOption = None,
    checkpoints: CheckpointsOption = "sqlite",
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
    budget = budget_of(budget_candidates, budget_repairs, budget_rounds, budget_seconds, budget_tokens, budget_money)
    overrides = parse_overrides(set_ or [])
    with open_progress(err) as progress:
        summary = run_optimize(
            task, on_event=progress, model=model, base_url=base_url, analyst_model=analyst_model, repair_model=repair_model,
            key_env=key_env, model_timeout=model_timeout, prices=prices, record=record, replay=replay, spool=_spool(evaluator),
            memory=memory, checkpoints=checkpoints, policy=policy, seeds=seeds, target=target,
            size=None if size is SizeChoice.AUTO else size.value,
            overrides=overrides, precision=precision.value, sandbox=sandbox.value, allow=allow, out=out_folder,
            budget=budget,
        )  # fmt: skip
    answer(summary, as_json)


def _spool(evaluator: str) -> str | None:
    """The folder of `spool:DIR`; None for `local`."""
    provider, colon, folder = evaluator.partition(":")
    if provider == "spool" and colon and folder:
        return folder
    if evaluator != "local":
        raise UsageError(f"--evaluator {evaluator}: no such evaluator; use local or spool:DIR")
    return None


def answer(summary: Summary, as_json: bool) -> None:
    """The end of a run, its page, and its exit code."""
    _write_page(Path(summary.out))
    if as_json:
        print_json(summary)
    else:
        show(summary)
    raise typer.Exit(0 if summary.winner else 1)


def _write_page(folder: Path) -> None:
    """Write report.html; a page that cannot be written is told, and changes nothing else."""
    from tritonsmith.cli.report.write import write_report  # noqa: PLC0415  (matplotlib would slow every other command)

    try:
        write_report(folder, Form.HTML)
    except UsageError as error:
        err.print(f"No report was written: {error}", markup=False)


def show(summary: Summary) -> None:
    """The end of a run for a reader: the way it took, every candidate, the winner, and where the files are."""
    out.print(f"\n[bold]The way it took[/] (policy {summary.policy}, author {summary.model})")
    if out.is_terminal:
        out.print(Padding(decision_grid(summary.decisions), _INDENT), soft_wrap=False)
    else:
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
            if out.is_terminal:
                out.print(Padding(Text.from_markup(line), _INDENT), soft_wrap=False)
            else:
                out.print(f"  {line}")
    elif summary.waits_for:
        _show_waiting(summary)
    else:
        out.print("[bold red]No candidate was accepted.[/]")
    for row in summary.candidates:
        if row.not_allowed:
            out.print(f"Not allowed to win (--allow {summary.allow}): {row.id}: {row.not_allowed}", markup=False)
    if summary.stopped_because and not summary.waits_for:
        out.print(f"Stopped because: {summary.stopped_because}", markup=False)
    if summary.kind == "estimated":
        out.print(f"Scores are ESTIMATES for {summary.target} (two estimates by one formula); no time was measured on a card.")
    elif summary.kind == "measured":
        out.print(f"Scores were measured on {summary.target}.")
    _show_files(Path(summary.out), summary)


def _show_waiting(summary: Summary) -> None:
    replies = [path for path in summary.waits_for if path.endswith(REPLY)]
    results = [path for path in summary.waits_for if not path.endswith(REPLY)]
    if replies:
        out.print("[bold yellow]The run waits for replies.[/] Read each request beside it, and write:")
    for path in replies:
        out.print(f"  {path}", markup=False)
    if results:
        folder = Path(results[0]).parent.parent
        out.print(f"[bold yellow]The run waits for {len(results)} evaluations.[/]")
        out.print(f"  On the machine with the card: tritonsmith worker {folder} --once", markup=False)
    out.print(f"Then: tritonsmith resume {summary.out}", markup=False)


def _show_usage(summary: Summary) -> None:
    """One line about the model, and one per stage."""
    for name, used in (("The model", summary.usage), *((f"  {stage}", one) for stage, one in summary.usage_by_stage.items())):
        inner = f" ({used.cached_tokens} cached)" if used.cached_tokens else ""
        thought = f" ({used.reasoning_tokens} of thought)" if used.reasoning_tokens else ""
        money = f", ${used.money:.4f}" if used.money else ""
        unknown = f", {used.unpriced} without a known price" if used.unpriced else ""
        guessed = f", tokens of {used.unreported} calls estimated" if used.unreported else ""
        failed = f", {used.retries} failed tries" if used.retries else ""
        out.print(
            f"{name}: {used.calls} calls, {used.input_tokens} tokens read{inner}, {used.output_tokens} written{thought}, "
            f"{used.seconds:.0f} s{money}{unknown}{guessed}{failed}.",
            markup=False,
        )


def _show_files(folder: Path, summary: Summary) -> None:
    if summary.usage.calls or summary.usage.retries:
        _show_usage(summary)
    out.print(f"{summary.seconds:.0f} s for {len(summary.candidates)} candidates of {summary.task} ({summary.size} size). Files:")
    for name, what in (
        ("report.html", "all of this as a page that needs no network"),
        ("best.py", "the winner, complete in itself"),
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
            out.print(f"  {path}  {what}", markup=False)
