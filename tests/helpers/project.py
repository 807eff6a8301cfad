"""Where things lie in this repository."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
HELPERS = TESTS / "helpers"
ROOT = TESTS.parent
