"""The script that prints the pages' figures runs on the raw files that are committed."""

import subprocess
import sys

from project import ROOT


def test_the_figures_of_the_pages_come_from_the_raw_files() -> None:
    done = subprocess.run([sys.executable, "benchmarks/results/recompute.txt"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "level2_ 100 " in done.stdout, done.stderr
