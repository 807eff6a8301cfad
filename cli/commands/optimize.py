"""`tritonsmith optimize`: the main job, with live progress and the table at the end."""

from functools import partial
from typing import Annotated

import typer

from tritonsmith.cli.options import (
    AllowOption,
    FasterOption,
    JsonOption,
    ModeOption,
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
    TuningOption,
    budget_of,
    err,
)
from tritonsmith.evaluator.allow import Allow
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.tasks import load_task, parse_overrides
from tritonsmith.nodes.chat.defaults import KEY, REQUEST_SECONDS

_DAY = 86_400
_MOST = 100_000
"""Of anything that is counted: far more than a run can do, and no infinity, which files cannot keep."""

# below which heading of the help an option stands
_about_models = partial(typer.Option, rich_help_panel="Models")
_about_files = partial(typer.Option, rich_help_panel="Files")
_about_limits = partial(typer.Option, rich_help_panel="Limits")

ModelOption = Annotated[
    str,
    _about_models(
        help="offline (the built-in recipes), openai:NAME for an OpenAI-compatible server, or handoff:DIR (you answer requests in files)."
    ),
]
AnalystOption = Annotated[str | None, _about_models("--analyst-model", help="Who says why a kernel is slow; default: --model.")]
RepairOption = Annotated[str | None, _about_models("--repair-model", help="Who fixes failing kernels; default: --model.")]
KeyOption = Annotated[str, _about_models("--key-env", metavar="NAME", help="The environment variable with the server's key.")]
TimeoutOption = Annotated[float, _about_models("--model-timeout", min=1, max=_DAY, help="Seconds that one request to a model may take.")]
PricesOption = Annotated[
    str | None, _about_models("--prices", metavar="FILE", help="Prices of models (TOML or JSON); they go before the built-in ones.")
]
RecordOption = Annotated[str | None, _about_files("--record", metavar="FILE", help="Write every request, reply and verdict to a new file.")]
ReplayOption = Annotated[
    str | None, _about_files("--replay", metavar="FILE", help="Play the run from a recording: no key, no network, no evaluator.")
]
BaseUrlOption = Annotated[
    str | None, _about_models("--base-url", help="Address of that server; default: OpenAI's own, or OPENAI_BASE_URL.")
]
SeedsOption = Annotated[int, typer.Option(min=1, max=1000, help="First kernels, each followed in a branch of its own.")]
OutOption = Annotated[str | None, _about_files("--out", help="A new or empty folder for the results; default: runs/<task>-<time>.")]
CandidatesOption = Annotated[
    int | None, _about_limits("--budget-candidates", min=1, max=_MOST, help="Kernels written in the whole run; default 60.")
]
RepairsOption = Annotated[
    int | None, _about_limits("--budget-repairs", min=0, max=_MOST, help="Repairs in a row of one failing kernel; default 5.")
]
RoundsOption = Annotated[int | None, _about_limits("--budget-rounds", min=0, max=_MOST, help="Analyses per branch; default 2.")]
SecondsOption = Annotated[float | None, _about_limits("--budget-seconds", min=1, max=1000 * _DAY, help="Wall time of the run.")]
TokensOption = Annotated[int | None, _about_limits("--budget-tokens", min=1, max=10**12, help="Tokens read and written by the model.")]
MoneyOption = Annotated[
    float | None, _about_limits("--budget-money", min=0.0001, max=10**9, help="US dollars, where the model's prices are known.")
]
ConfigurationsOption = Annotated[
    int | None,
    _about_limits("--budget-configurations", min=0, max=_MOST, help="Configurations that tuning searches may try; default 96."),
]
TuningSecondsOption = Annotated[
    float | None,
    _about_limits("--budget-tuning-seconds", min=1, max=1000 * _DAY, help="Seconds of compiling and racing in searches; default 900."),
]
EvaluatorOption = Annotated[
    str, typer.Option("--evaluator", help="local, or spool:DIR: jobs are files there, which `tritonsmith worker DIR` judges elsewhere.")
]
MemoryOption = Annotated[
    str | None, _about_files("--memory", metavar="DIR", help="Show kernels of earlier runs as examples, and add this one's.")
]
CheckpointsOption = Annotated[
    str, _about_files("--checkpoints", help="sqlite (in the run's folder), postgres:NAME (a variable with the connection string), or none.")
]


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
    tuning: TuningOption = None,
    seeds: SeedsOption = 2,
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
    out_folder: OutOption = None,
    fail_unless_faster: FasterOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search for a faster kernel of TASK; exit code 0 with a right kernel (also a slower one), 1 without, 3 when the run waits."""
    overrides = parse_overrides(set_ or [])
    load_task(task, "full", overrides, precision.value, mode)  # what is wrong with the file is said before LangGraph is loaded
    from tritonsmith.cli.screen.answer import answer
    from tritonsmith.cli.screen.progress import open_progress
    from tritonsmith.graph.run import optimize as run_optimize

    budget = budget_of(
        candidates=budget_candidates, repairs=budget_repairs, rounds=budget_rounds, seconds=budget_seconds, tokens=budget_tokens,
        money=budget_money, configurations=budget_configurations, tuning_seconds=budget_tuning_seconds,
    )  # fmt: skip
    with open_progress(err) as progress:
        summary = run_optimize(
            task, on_event=progress, model=model, base_url=base_url, analyst_model=analyst_model, repair_model=repair_model,
            key_env=key_env, model_timeout=model_timeout, prices=prices, record=record, replay=replay, spool=_spool(evaluator),
            memory=memory, checkpoints=checkpoints, policy=policy, tuning=tuning, seeds=seeds, target=target,
            size=None if size is SizeChoice.AUTO else size.value,
            overrides=overrides, precision=None if precision is PrecisionChoice.AUTO else precision.value,
            mode=None if mode is None else mode.value, sandbox=sandbox.value, allow=allow, out=out_folder,
            budget=budget,
        )  # fmt: skip
    answer(summary, as_json, must_be_faster=fail_unless_faster)


def _spool(evaluator: str) -> str | None:
    """The folder of `spool:DIR`; None for `local`."""
    provider, colon, folder = evaluator.partition(":")
    if provider == "spool" and colon and folder:
        return folder
    if evaluator != "local":
        raise UsageError(f"--evaluator {evaluator}: no such evaluator; use local or spool:DIR")
    return None
