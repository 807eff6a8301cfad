"""Operators that are right alone are right together: modules that the random ones of benchmarks/random_modules showed to be wrong."""

import json

from interpreted import Interpreted
from project import HELPERS

DRIVER = HELPERS / "recipe_cases" / "compositions.py"


def test_modules_that_were_wrong_are_right(interpreted: Interpreted) -> None:
    assert json.loads(interpreted.run(DRIVER)) == {}
