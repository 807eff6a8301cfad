"""The checks of a machine as lines."""

from collections.abc import Sequence

from rich.text import Text

from tritonsmith.cli.examining import Check
from tritonsmith.cli.options import out


def show_checks(checks: Sequence[Check], ways: Sequence[Check]) -> None:
    """Print what works and what does not, then the ways that are open here."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        state = Text("works   ", "green") if check.works else Text("does not", "yellow")
        out.print(Text.assemble(state, f"  {check.name:<{width}}  {check.detail}"))
        if check.todo:
            out.print(f"{'':>{width + 10}}  -> {check.todo}")
    out.print("\nWays to use it here:")
    for way in ways:
        state = Text("yes", "green") if way.works else Text("no ", "yellow")
        out.print(Text.assemble("  ", state, f" {way.name}: {way.detail}"))
