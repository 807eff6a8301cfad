"""Operators that are right alone are right together: modules that the random ones of benchmarks/random_modules showed to be wrong."""

import json
import os
import subprocess
import sys

from project import HELPERS

DRIVER = HELPERS / "recipe_cases" / "compositions.py"


def test_modules_that_were_wrong_are_right() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HELPERS)}
    words = [sys.executable, "-P", "-W", "ignore", str(DRIVER)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {}
