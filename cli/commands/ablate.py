"""`tritonsmith ablate`: tasks x policies x repeats, with statistics; the same command goes on with what is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonsmith.cli.commands.optimize import (
    AnalystOption,
    BaseUrlOption,
    CandidatesOption,
    ConfigurationsOption,
    ConfirmOption,
    DevicesOption,
    KeyOption,
    MemoryOption,
    ModelOption,
    MoneyOption,
    PricesOption,
    RepairOption,
    RepairsOption,
    RoundsOption,
    SecondsOption,
    TimeoutOption,
    TokensOption,
    TuningSecondsOption,
    name_evaluator,
)
from tritonsmith.cli.options import (
    AllowOption,
    ConfirmChoice,
    JsonOption,
    ModeOption,
    PrecisionChoice,
    PrecisionOption,
    SandboxChoice,
    SandboxOption,
    SetOption,
    SizeChoice,
    SizeOption,
    TargetOption,
    budget_of,
    err,
    out,
    print_json,
)
from tritonsmith.evaluator.schema import Allow, PrecisionClass
from tritonsmith.evaluator.tasks.files import parse_overrides
from tritonsmith.nodes.chat.defaults import KEY, REQUEST_SECONDS

if TYPE_CHECKING:
    from tritonsmith.benchmarks.ablation.schema import AblationPlan

SuiteArgument = Annotated[
    str, typer.Argument(metavar="SUITE", help="A folder of tasks, task files or numbers (39,40,26), or a TOML or JSON file.")
]
PoliciesOption = Annotated[str | None, typer.Option("--policies", metavar="A,B,...", help="Presets or path/to/file.py:ClassName.")]
ExperimentOption = Annotated[
    str | None, typer.Option("--experiment", help="A comparison of the notes: abc, leave-one-out or seeds; brings its policies along.")
]
RepeatsOption = Annotated[int | None, typer.Option("--repeats", min=1, max=10_000, help="Runs of each policy on each task; default 3.")]
SeedsOption = Annotated[int | None, typer.Option("--seeds", min=1, max=1000, help="Seeds of policies that insist on no number; default 2.")]
OutOption = Annotated[str | None, typer.Option("--out", help="The experiment's folder, new or to go on with; default: runs/ablate-<time>.")]
JudgeOption = Annotated[str, typer.Option("--evaluator", help="local; ray or ray:ADDRESS, the cards of a cluster.")]
ParallelOption = Annotated[int | None, typer.Option("--parallel", min=1, max=1000, help="Runs that go on at a time; default 4, offline 2.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")]


def ablate(
    suite: SuiteArgument,
    policies: PoliciesOption = None,
    experiment: ExperimentOption = None,
    repeats: RepeatsOption = None,
    seeds: SeedsOption = None,
    model: ModelOption = "offline",
    base_url: BaseUrlOption = None,
    analyst_model: AnalystOption = None,
    repair_model: RepairOption = None,
    key_env: KeyOption = KEY,
    model_timeout: TimeoutOption = REQUEST_SECONDS,
    prices: PricesOption = None,
    memory: MemoryOption = None,
    evaluator: JudgeOption = "local",
    devices: DevicesOption = None,
    confirm: ConfirmOption = ConfirmChoice.BESIDE,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.AUTO,
    mode: ModeOption = None,
    sandbox: SandboxOption = SandboxChoice.AUTO,
    allow: AllowOption = Allow.HYBRID,
    budget_candidates: CandidatesOption = None,
    budget_repairs: RepairsOption = None,
    budget_rounds: RoundsOption = None,
    budget_seconds: SecondsOption = None,
    budget_tokens: TokensOption = None,
    budget_money: MoneyOption = None,
    budget_configurations: ConfigurationsOption = None,
    budget_tuning_seconds: TuningSecondsOption = None,
    parallel: ParallelOption = None,
    dry_run: DryRunOption = False,
    out_folder: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare policies on SUITE; any number of processes may work on one folder. Exit code 1 when a run could not be made."""
    from tritonsmith.benchmarks.ablation.plan import find_plan, make_plan
    from tritonsmith.nodes.authors.make import make_author
    from tritonsmith.nodes.chat.connect import Models

    budget = budget_of(
        candidates=budget_candidates, repairs=budget_repairs, rounds=budget_rounds, seconds=budget_seconds, tokens=budget_tokens,
        money=budget_money, configurations=budget_configurations, tuning_seconds=budget_tuning_seconds,
    )  # fmt: skip
    settings = {
        "model": model, "base_url": base_url, "analyst_model": analyst_model, "repair_model": repair_model, "key_env": key_env,
        "model_timeout": model_timeout, "prices": prices, "target": target, "sandbox": sandbox.value, "allow": allow,
        **name_evaluator(evaluator), "devices": devices, "confirm": confirm.value, "budget": budget, "memory": memory,
    }  # fmt: skip
    plan = make_plan(
        suite, None if policies is None else policies.split(","), experiment=experiment, repeats=repeats, seeds=seeds,
        size=None if size is SizeChoice.AUTO else size.value, overrides=parse_overrides(set_ or []), settings=settings,
        precision=None if precision is PrecisionChoice.AUTO else PrecisionClass(precision.value), mode=None if mode is None else mode.value,
    )  # fmt: skip
    root = Path(out_folder or Path("runs") / f"ablate-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}")
    find_plan(plan, root)
    make_author(Models(model, analyst_model, repair_model, base_url, key_env, model_timeout, prices))  # a missing key is said before
    _carry_out(plan, root, parallel or (2 if model == "offline" else 4), dry_run=dry_run, as_json=as_json)


def _carry_out(plan: AblationPlan, root: Path, parallel: int, *, dry_run: bool, as_json: bool) -> None:
    from tritonsmith.benchmarks.ablation.runner import ablate as run_ablation
    from tritonsmith.benchmarks.ablation.schema import CellState
    from tritonsmith.cli.screen.ablation_answer import print_row, show_plan, show_tables
    from tritonsmith.cli.screen.answer import write_page

    show_plan(plan, root, err if as_json else out)
    if dry_run:
        if as_json:
            print_json(plan)
        raise typer.Exit(0)
    err.print(f"Killed or stopped, it goes on with the same command and --out {root}")
    tables = run_ablation(plan, root, parallel=parallel, on_row=print_row)
    write_page(root)
    if as_json:
        print_json(tables)
    else:
        show_tables(tables, root)
    raise typer.Exit(1 if any(row.state is CellState.FAILED for row in tables.cells) else 0)
