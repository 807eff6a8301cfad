"""What the commands share: option types, the output channels, and files that are checked before use."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tritonsmith.evaluator.cards.cards import CARDS, named_card
from tritonsmith.evaluator.errors import KernelFileError, UsageError
from tritonsmith.evaluator.schema import Allow, Record
from tritonsmith.graph.searches import Tuning

_AS_IT_IS: Any = {"markup": False, "emoji": False, "highlight": False}
"""Texts of models, servers and files are printed as they are; our own colours are `Text` objects and styles."""
out = Console(soft_wrap=True, **_AS_IT_IS)
"""Answers for a reader; unused when `--json` is given."""
err = Console(stderr=True, soft_wrap=True, **_AS_IT_IS)
"""Progress and notes; never part of an answer."""


def choose_page(width: int) -> Console:
    """Where tables go: the terminal, or a page of so many columns where the answer goes to a file or a pipe."""
    return out if out.is_terminal else Console(width=width, **_AS_IT_IS)


class SizeChoice(StrEnum):
    """Which dimensions of the task are used."""

    AUTO = "auto"
    FULL = "full"
    SMALL = "small"


class ProfileChoice(StrEnum):
    """How thorough an evaluation is."""

    QUICK = "quick"
    STRICT = "strict"


class SandboxChoice(StrEnum):
    """How processes that run candidate code are confined."""

    AUTO = "auto"
    STRICT = "strict"
    OFF = "off"


class BaselinesChoice(StrEnum):
    """How many baselines verdicts are timed against on a card."""

    FOUR = "four"
    SIX = "six"
    FOUR_ONLY = "four-only"


class SeedFromChoice(StrEnum):
    """Compilers whose own kernels may be a seed."""

    INDUCTOR = "inductor"


class ConfirmChoice(StrEnum):
    """When confirmations are made on a host with several cards."""

    BESIDE = "beside"
    ALONE = "alone"


class PrecisionChoice(StrEnum):
    """How exact a task's results must be, from strict to loose; auto: what its types mean."""


    AUTO = "auto"
    IEEE = "ieee"
    SPLIT = "split"
    TF32 = "tf32"
    HALF = "16-bit"


class ModeChoice(StrEnum):
    """What a module is put into before it runs."""

    EVAL = "eval"
    TRAIN = "train"


def _check_card(target: str) -> str:
    """The name as it is, where it can be a target; checked before anything is made or started."""
    if target != "auto":
        named_card(target)
    return target


TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="A KernelBench-style file (Model, get_inputs, get_init_inputs), or a number such as 39.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The folder of the run.")]
KernelArgument = Annotated[str, typer.Argument(metavar="KERNEL", help="A file with a ModelNew that calls Triton kernels.")]
TargetOption = Annotated[
    str,
    typer.Option(
        callback=_check_card,
        metavar="CARD",
        help=f"auto: the card of this machine, else h200. A named one that is not here gives estimates: {', '.join(CARDS)}.",
    ),
]
SizeOption = Annotated[SizeChoice, typer.Option(help="auto is full on a card; without one small, or chosen if TASK has no SMALL.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a module-level name of the task file; repeatable.")
]
PrecisionOption = Annotated[
    PrecisionChoice,
    typer.Option(help="How exact results must be: as fp32, near it (split), as TF32, as 16 bit; auto: by the task's types."),
]
BackwardOption = Annotated[
    bool, typer.Option("--backward", help="Judge gradients too, and time forward and backward together; default: the file's BACKWARD.")
]
ModeOption = Annotated[
    ModeChoice | None, typer.Option(help="What the module is put into: eval or train; default: the file's MODE, else eval.")
]
SandboxOption = Annotated[
    SandboxChoice, typer.Option(help="auto: every layer that works here; strict: refuse to run where a needed one is missing; off: none.")
]
BaselinesOption = Annotated[
    BaselinesChoice,
    typer.Option(help="Baselines on a card: six has both max-autotune modes too, as strict verdicts have except with four-only."),
]
AllowOption = Annotated[
    Allow,
    typer.Option(help="Which labels may win: kernel; hybrid (kernels too); library (all, and a library's win is never called a kernel's)."),
]
PolicyOption = Annotated[str, typer.Option(help="A preset or path/to/file.py:ClassName.")]
TuningOption = Annotated[
    Tuning | None,
    typer.Option(help="Who finds variants: search (measured, no tokens), model (the author), both, none; default: as the policy says."),
]
ClaimsOption = Annotated[
    float | None,
    typer.Option("--claims-from", min=0, help="Measured score from which on a kernel is the result; below, the module is kept. Default 1."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on stdout, everything else on stderr.")]

FasterOption = Annotated[
    bool, typer.Option("--fail-unless-faster", help="Exit code 1 unless the best kernel is confirmed and FASTER: measured, or estimated.")
]


def print_json(answer: Record | dict[str, Any]) -> None:
    """The answer as indented JSON on stdout; a number that JSON lacks (infinite, undefined) becomes null."""
    typer.echo(answer.model_dump_json(indent=2) if isinstance(answer, Record) else json.dumps(answer, indent=2, ensure_ascii=False))


def read_kernel(path: str) -> str:
    """The text of a candidate's file. Raises KernelFileError with a sentence for the user."""
    file = Path(path)
    if file.is_dir():
        raise KernelFileError(f"{path} is a directory; name a Python file with the kernel.")
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise KernelFileError(f"{path}: no such file; name a Python file with the kernel.") from None
    except UnicodeDecodeError as error:
        raise KernelFileError(f"{path} is not UTF-8 text (byte {error.start}); name a Python file with the kernel.") from None
    except OSError as error:
        raise KernelFileError(f"{path} cannot be read: {error.strerror}.") from None


def write_text(path: str, text: str, option: str = "--out") -> None:
    """Write a text file. Raises UsageError that names the option."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot write there ({error.strerror}); name another file.") from None


def budget_of(**given: float | None) -> dict[str, float]:
    """The limits that were given; the others stay as they are by default, which is not always none."""
    return {name: value for name, value in given.items() if value is not None}
