"""The `tritonsmith` command: registers the subcommands and turns every expected failure into one sentence and an exit code.

Exit codes: 0 done, 1 the answer is no (or the machinery failed), 2 wrong usage or input, 130 or 143 interrupted (SIGINT, SIGTERM).
"""

import sys
from collections.abc import Sequence

import typer

from tritonsmith.cli.ablate import ablate
from tritonsmith.cli.assistants import assistants
from tritonsmith.cli.detect import detect
from tritonsmith.cli.doctor import doctor
from tritonsmith.cli.draw import graph
from tritonsmith.cli.evaluate import evaluate
from tritonsmith.cli.fork import fork
from tritonsmith.cli.lint import lint
from tritonsmith.cli.optimize import optimize
from tritonsmith.cli.policies import policies
from tritonsmith.cli.reporting import report
from tritonsmith.cli.resume import resume
from tritonsmith.cli.stopping import Stopper, stopping
from tritonsmith.cli.watch import watch
from tritonsmith.cli.worker import worker
from tritonsmith.evaluator.errors import InfrastructureError, RunError, RunStopped, UsageError

app = typer.Typer(
    name="tritonsmith",
    help="Turn a PyTorch module into a Triton kernel that is proven right and measured faster.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (optimize, resume, fork, watch, ablate, worker, evaluate, detect, lint, graph, report, assistants, policies, doctor):
    app.command()(command)

# Typer vendors click since 0.26 and uses the installed one before; the base of its usage errors is found by name to work with both.
_ClickError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Execute one command line and return its exit code; expected failures become one sentence on stderr."""
    with stopping() as stopper:
        return _run(arguments, stopper)


def _run(arguments: Sequence[str], stopper: Stopper) -> int:
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="tritonsmith", standalone_mode=False)
        if code == _INTERRUPTED:  # what newer versions of Typer make of Ctrl-C
            raise KeyboardInterrupt
        if not arguments:
            return 2
        return code if isinstance(code, int) else 0
    except UsageError as error:
        typer.echo(f"error: {error}", err=True)
        return 2
    except _ClickError as error:
        sentence = error.format_message() if hasattr(error, "format_message") else str(error)
        typer.echo(f"error: {' '.join(sentence.split())} (see `tritonsmith {_named(arguments)}--help`)", err=True)
        return 2
    except InfrastructureError as error:
        typer.echo(f"error: the evaluator failed, not the kernel: {error}", err=True)
        return 1
    except RunStopped as stopped:
        typer.echo(str(stopped), err=True)
        return stopper.code
    except RunError as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    except (typer.Abort, KeyboardInterrupt):
        ways = " or ".join(f"tritonsmith resume {folder}" for folder in stopper.resumable)
        typer.echo(f"Interrupted; what was finished is kept{f'. Go on with: {ways}' if ways else ''}", err=True)
        return stopper.code


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def _named(arguments: Sequence[str]) -> str:
    names = {info.callback.__name__ for info in app.registered_commands if info.callback}
    return f"{arguments[0]} " if arguments and arguments[0] in names else ""
