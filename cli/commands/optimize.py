"""`tritonsmith optimize`: the main job, with live progress and the table at the end."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tritonsmith.cli.options import (
    AllowOption,
    BackwardOption,
    BaselinesChoice,
    BaselinesOption,
    ClaimsOption,
    ConfirmChoice,
    FasterOption,
    JsonOption,
    ModeChoice,
    ModeOption,
    PolicyOption,
    PrecisionChoice,
    PrecisionOption,
    SandboxChoice,
    SandboxOption,
    SeedFromChoice,
    SetOption,
    SizeChoice,
    SizeOption,
    TargetOption,
    TuningOption,
    budget_of,
    err,
)
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Allow, SizeValue
from tritonsmith.evaluator.tasks.files import load_task, parse_overrides
from tritonsmith.graph.storage.folder import name_folder
from tritonsmith.graph.suites.shipped import find_task_file
from tritonsmith.modules.shell import TASK_FOLDER, bring_named, name_of, names_module, tell_of_module
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
        help="offline (the built-in recipes), openai:NAME for an OpenAI-compatible server, or handoff:DIR (you answer requests in files); "
        "A,B works side by side, turns:A,B in turn."
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
SeedFromOption = Annotated[
    SeedFromChoice | None,
    typer.Option("--seed-from", help="Take one of the seeds from a compiler: inductor, the Triton that torch.compile writes for TASK."),
]
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
    str,
    typer.Option("--evaluator", help="local; ray[:ADDRESS], a cluster's cards; spool:DIR, files that `tritonsmith worker` judges."),
]
DevicesOption = Annotated[
    str | None, typer.Option("--devices", metavar="0,1", help="Cards of this host that judge side by side: numbers, or all.")
]
ConfirmOption = Annotated[
    ConfirmChoice, typer.Option("--confirm", help="Confirmations beside the work of the host's other cards, or alone, while they rest.")
]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Measure everything again, also what this machine has an answer to.")]
MemoryOption = Annotated[
    str | None, _about_files("--memory", metavar="DIR", help="Show kernels of earlier runs as examples, and add this one's.")
]
TasksArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TASK...",
        help="Task files (Model, get_inputs, get_init_inputs), folders, patterns, numbers, or a TOML list; or one module: FILE.py:Class, "
        "hf:CONFIG.json, timm:NAME.",
    ),
]
ParallelOption = Annotated[
    int | None, _about_limits("--parallel", min=1, max=1000, help="Tasks worked on at a time; default 4 for each card, offline 2.")
]
ModelCallsOption = Annotated[
    int, _about_limits("--model-calls", min=1, max=1000, help="Requests to models under way at a time, over all tasks.")
]
CheckpointsOption = Annotated[
    str, _about_files("--checkpoints", help="sqlite (in the run's folder), postgres:NAME (a variable with the connection string), or none.")
]

InputsOption = Annotated[
    str | None,
    typer.Option("--inputs", help='Inputs of a module: "float32[32,512,768], int64[32,512]:50000"; default: example_inputs() of its file.'),
]
ShapesOption = Annotated[
    str | None,
    typer.Option("--shapes", help='Other sizes at which a module\'s kernel must be right: "batch=1..64, length=128; batch=200".'),
]
InitOption = Annotated[str | None, typer.Option("--init", help='Arguments of a module\'s class: "768, 12, bias=False".')]


def optimize(
    tasks: TasksArgument,
    inputs: InputsOption = None,
    init: InitOption = None,
    shapes: ShapesOption = None,
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
    devices: DevicesOption = None,
    confirm: ConfirmOption = ConfirmChoice.BESIDE,
    fresh: FreshOption = False,
    memory: MemoryOption = None,
    checkpoints: CheckpointsOption = "sqlite",
    policy: PolicyOption = "default",
    tuning: TuningOption = None,
    claims_from: ClaimsOption = None,
    seeds: SeedsOption = 2,
    seed_from: SeedFromOption = None,
    target: TargetOption = "auto",
    size: SizeOption = SizeChoice.AUTO,
    set_: SetOption = None,
    precision: PrecisionOption = PrecisionChoice.AUTO,
    mode: ModeOption = None,
    backward: BackwardOption = False,
    sandbox: SandboxOption = SandboxChoice.AUTO,
    baselines: BaselinesOption = BaselinesChoice.FOUR,
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
    model_calls: ModelCallsOption = 8,
    out_folder: OutOption = None,
    fail_unless_faster: FasterOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search for faster kernels of TASK; exit code 0 with a right kernel or a module that is kept, 1 without, 3 when the run waits.

    With several tasks the exit code is 0 only if each has a right kernel; a task that fails does not stop the others.
    """
    common = {
        "model": model, "base_url": base_url, "analyst_model": analyst_model, "repair_model": repair_model, "key_env": key_env,
        "model_timeout": model_timeout, "prices": prices, "record": record, "replay": replay, **name_evaluator(evaluator),
        "memory": memory, "checkpoints": checkpoints, "policy": policy, "tuning": tuning, "claims_from": claims_from, "seeds": seeds,
        "target": target, "backward": backward or None,
        "sandbox": sandbox.value, "devices": devices, "confirm": confirm.value, "fresh": fresh, "allow": allow,
        "baselines": baselines.value, "seed_from": seed_from and seed_from.value, "budget": budget_of(
            candidates=budget_candidates, repairs=budget_repairs, rounds=budget_rounds, seconds=budget_seconds, tokens=budget_tokens,
            money=budget_money, configurations=budget_configurations, tuning_seconds=budget_tuning_seconds),
    }  # fmt: skip
    about_task, limits = TaskOptions.of(size, set_, precision, mode), {"parallel": parallel, "model_calls": model_calls}
    if len(tasks) == 1 and names_module(tasks[0]):
        out_folder = out_folder or str(name_folder(None, name_of(tasks[0])))
        file = _bring_in(tasks[0], Path(out_folder), inputs, init, about_task.mode or "eval", shapes, backward=backward)
        try:
            return _optimize_task(file, common, about_task, out_folder, must_be_faster=fail_unless_faster, as_json=as_json)
        except UsageError as error:
            raise tell_of_module(error, file, tasks[0]) from error
    if inputs is not None or init is not None or shapes is not None:
        raise UsageError(
            "--inputs, --init and --shapes are for a module that is named alone, such as FILE.py:Class; a task file declares SHAPES"
        )
    if reads_as_one_task(tasks):
        return _optimize_task(find_task_file(tasks[0]), common, about_task, out_folder, must_be_faster=fail_unless_faster, as_json=as_json)
    _optimize_suite(tasks, common, about_task, limits, out_folder, must_be_faster=fail_unless_faster, as_json=as_json)


@dataclass(frozen=True)
class TaskOptions:
    """How a task file is read, as the options say."""

    size: str | None
    overrides: dict[str, SizeValue]
    precision: str | None
    mode: str | None

    @classmethod
    def of(cls, size: SizeChoice, set_: list[str] | None, precision: PrecisionChoice, mode: ModeChoice | None) -> "TaskOptions":
        """The options as plain values. Raises UsageError."""
        return cls(
            None if size is SizeChoice.AUTO else size.value, parse_overrides(set_ or []),
            None if precision is PrecisionChoice.AUTO else precision.value, None if mode is None else mode.value,
        )  # fmt: skip


def _bring_in(word: str, out_folder: Path, inputs: str | None, init: str | None, mode: str, shapes: str | None, *, backward: bool) -> str:
    """The task file of a named module, below the run's folder. Raises UsageError."""
    if out_folder.exists() and (not out_folder.is_dir() or any(out_folder.iterdir())):
        raise UsageError(f"--out {out_folder}: the folder is not empty; name a new one, so that no earlier result is overwritten")
    task, reason = bring_named(word, out_folder / TASK_FOLDER, inputs=inputs, init=init, mode=mode, shapes=shapes, backward=backward)
    if reason:
        err.print(f"{word} was not exported: {reason}. Its source file is used.", markup=False, highlight=False, soft_wrap=True)
    return str(task)


def reads_as_one_task(words: list[str]) -> bool:
    """Whether the arguments name one file or one task that comes along, and no suite: then nothing of suites is loaded."""
    if len(words) != 1:
        return False
    path = Path(words[0])
    if path.is_file():
        return path.suffix not in (".toml", ".json")
    return find_task_file(words[0]) != words[0] or path.suffix == ".py" and not set("*?[,") & set(words[0]) and not path.is_dir()


def _optimize_task(
    task: str, common: dict[str, Any], read: TaskOptions, out_folder: str | None, *, must_be_faster: bool, as_json: bool
) -> None:
    # a wrong file is told before LangGraph is loaded
    sketch = load_task(task, "full", read.overrides, read.precision or "auto", read.mode, common["backward"])
    from tritonsmith.cli.screen.answer import answer
    from tritonsmith.cli.screen.progress import open_progress
    from tritonsmith.graph.run import optimize as run_optimize

    with open_progress(err) as progress:
        summary = run_optimize(task, on_event=progress, sketch=sketch, out=out_folder, **asdict(read), **common)
    answer(summary, as_json, must_be_faster=must_be_faster)


def _optimize_suite(
    words: list[str], common: dict[str, Any], read: TaskOptions, limits: dict[str, Any], out_folder: str | None, *,
    must_be_faster: bool, as_json: bool,
) -> None:  # fmt: skip
    from tritonsmith.cli.screen.suite_answer import carry_out
    from tritonsmith.graph.suites.run import plan_suite
    from tritonsmith.nodes.authors.make import make_author
    from tritonsmith.nodes.chat.connect import Models

    plan = plan_suite(words, settings=common, **asdict(read), **limits)
    roles = ("model", "analyst_model", "repair_model", "base_url", "key_env", "model_timeout", "prices")
    make_author(Models(*(common[name] for name in roles)))  # a missing key is said before anything is made
    root = Path(out_folder or Path("runs") / f"suite-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}")
    carry_out(plan, root, must_be_faster=must_be_faster, as_json=as_json)


def name_evaluator(evaluator: str) -> dict[str, str | None]:
    """The settings `spool` and `ray` that `--evaluator` stands for. Raises UsageError."""
    provider, colon, place = evaluator.partition(":")
    if provider == "spool" and place:
        return {"spool": place, "ray": None}
    if provider == "ray" and (place or not colon):
        return {"spool": None, "ray": place}
    if evaluator != "local":
        raise UsageError(f"--evaluator {evaluator}: no such evaluator; use local, ray, ray:ADDRESS or spool:DIR")
    return {"spool": None, "ray": None}
