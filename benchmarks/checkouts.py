"""The checkouts that a script compares: `--checkout NAME=DIR`, once or more. The name is what tables and records say."""

import argparse
import os
from pathlib import Path

_THIS = Path(__file__).parents[1]
_LINKS = ".typecheck"
"""The folder of a checkout that holds it as the package `tritonsmith`."""


def add_checkout_option(parser: argparse.ArgumentParser) -> None:
    """Let a script take checkouts; `read_checkouts` gives what was named."""
    parser.add_argument(
        "--checkout", type=_parse, action="append", metavar="NAME=DIR", help="a checkout to measure; this one where none is named"
    )


def read_checkouts(options: argparse.Namespace) -> dict[str, Path]:
    """The checkouts by name; this one, as `this`, where none was named."""
    return dict(options.checkout or [("this", _THIS)])


def _parse(word: str) -> tuple[str, Path]:
    name, _, folder = word.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=DIR; write before=../before, for example")
    if not (Path(folder) / _LINKS).is_dir():
        raise argparse.ArgumentTypeError(f"{folder} is no checkout of this project: it has no folder {_LINKS}; name the folder of a clone")
    return name, Path(folder).resolve()


def environment_of(checkout: Path) -> dict[str, str]:
    """An environment in which `python -P` imports the project from a checkout."""
    return os.environ | {"PYTHONPATH": str(checkout / _LINKS)}
