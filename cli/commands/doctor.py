"""`tritonsmith doctor`: what works on this machine, what does not, and what to do about it."""

from dataclasses import asdict

import typer

from tritonsmith.cli.options import JsonOption, err, print_json


def doctor(as_json: JsonOption = False) -> None:
    """Show what works here, what does not, and what to do."""
    from tritonsmith.cli.examining import examine_machine, find_ways
    from tritonsmith.cli.screen.checks import show_checks

    with err.status("Trying Triton in child processes (a few seconds) ..."):
        checks = examine_machine()
    ways = find_ways({check.name: check.works for check in checks})
    if as_json:
        print_json({"checks": [asdict(check) for check in checks], "ways": [asdict(way) for way in ways]})
    else:
        show_checks(checks, ways)
    raise typer.Exit(0 if any(way.works for way in ways) else 1)
