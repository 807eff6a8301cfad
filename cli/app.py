"""The `tritonsmith` command: registers the subcommands and turns every expected failure into one sentence and an exit code.

Exit codes: 0 done, 1 the answer is no (or the machinery failed), 2 wrong usage or input, 3 the run waits for replies or verdicts, 130 or
143 interrupted (SIGINT, SIGTERM).
"""

import errno
from collections.abc import Sequence
from typing import Annotated

import typer

from tritonsmith.cli.commands.ablate import ablate
from tritonsmith.cli.commands.answers import answers
from tritonsmith.cli.commands.assistants import assistants
from tritonsmith.cli.commands.detect import detect
from tritonsmith.cli.commands.doctor import doctor
from tritonsmith.cli.commands.draw import graph
from tritonsmith.cli.commands.evaluate import evaluate
from tritonsmith.cli.commands.fork import fork
from tritonsmith.cli.commands.lint import lint
from tritonsmith.cli.commands.memory import memory
from tritonsmith.cli.commands.optimize import optimize
from tritonsmith.cli.commands.policies import policies
from tritonsmith.cli.commands.report import report
from tritonsmith.cli.commands.resume import resume
from tritonsmith.cli.commands.watch import watch
from tritonsmith.cli.commands.worker import worker
from tritonsmith.cli.stopping import Stopper, handle_signals
from tritonsmith.cli.versions import find_versions
from tritonsmith.evaluator.errors import InfrastructureError, RunError, RunStopped, UsageError

app = typer.Typer(
    name="tritonsmith",
    help="Turn a PyTorch module into a Triton kernel that is proven right and measured faster.",
    epilog="Exit codes: 0 done, 1 the answer is no, 2 wrong usage or input, 3 the run waits for replies or verdicts, 130, 143 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(", ".join(f"{name} {version}" for name, version in find_versions().items()))
        raise typer.Exit


@app.callback()
def _take_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the versions of tritonsmith, torch and triton.")
    ] = False,
) -> None:
    del version  # its callback has printed


_COMMANDS = (
    optimize, resume, fork, watch, ablate, worker, evaluate, detect, lint, graph, report, assistants, policies, answers, memory, doctor,
)  # fmt: skip
for command in _COMMANDS:
    app.command()(command)

# Typer vendors click since 0.26 and uses the installed one before; the base of its usage errors is found by name to work with both.
_ClickError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
_INTERRUPTED = 130
_NO_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
"""What writing an answer to a full or closed place raises."""


def run(arguments: Sequence[str]) -> int:
    """Execute one command line and return its exit code; expected failures become one sentence on stderr."""
    with handle_signals() as stopper:
        return _run(arguments, stopper)


def _run(arguments: Sequence[str], stopper: Stopper) -> int:
    try:
        _refuse_empty(arguments)
        code = app(args=list(arguments) or ["--help"], prog_name="tritonsmith", standalone_mode=False)
        if code == _INTERRUPTED:  # what newer versions of Typer make of Ctrl-C
            raise KeyboardInterrupt
        if not arguments:
            return 2
        return code if isinstance(code, int) else 0
    except UsageError as error:
        return _end_with(f"error: {error}", 2)
    except _ClickError as error:
        sentence = error.format_message() if hasattr(error, "format_message") else str(error)
        sentence = " ".join(sentence.replace("Value error, ", "").split())  # a word of the library that reads values
        return _end_with(f"error: {sentence} (see `tritonsmith {_name_command(arguments)}--help`)", 2)
    except InfrastructureError as error:
        return _end_with(f"error: the evaluator failed, not the kernel: {error}", 1)
    except RunStopped as stopped:
        return _end_with(str(stopped), stopper.code)
    except RunError as error:
        return _end_with(f"error: {error}", 1)
    except OSError as error:
        if error.filename is not None:
            return _end_with(f"error: {error.filename}: {error.strerror}; name another place, or fix this one", 2)
        if error.errno in _NO_OUTPUT:
            return _end_with(f"error: the answer cannot be written ({error.strerror}); send it elsewhere", 1)
        raise
    except (typer.Abort, KeyboardInterrupt):
        ways = " or ".join(f"tritonsmith resume {folder}" for folder in stopper.resumable)
        return _end_with(f"Interrupted; what was finished is kept{f'. Go on with: {ways}' if ways else ''}", stopper.code)


def _end_with(sentence: str, code: int) -> int:
    """Print one sentence on stderr, always in one line, and return the exit code."""
    typer.echo(" ".join(sentence.splitlines()), err=True)
    return code


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Raise UsageError for what an unset variable of the shell leaves: an empty name would be read as none, or as this folder."""
    for number, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option.startswith("--") and equals and not value:
            raise UsageError(f"{option} is empty; give it a value, or leave it out")
        before = arguments[number - 1] if number else ""
        if not argument:
            place = f"{before} is empty" if before.startswith("-") else f"argument {number + 1} is empty"
            raise UsageError(f"{place}; give it a value, or leave it out")


def _name_command(arguments: Sequence[str]) -> str:
    names = {info.callback.__name__ for info in app.registered_commands if info.callback}
    return f"{arguments[0]} " if arguments and arguments[0] in names else ""
