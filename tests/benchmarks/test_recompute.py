"""The figures of the results' pages come from the raw files that are committed, and pages name the digests of these files."""

import hashlib
import re
import subprocess
import sys

from project import ROOT

RESULTS = ROOT / "benchmarks" / "results"
HERE = re.compile(r"(?m)^\| `([^`]+)` \| here \| `([0-9a-f]{64})` \|$")
"""A row of a page's table of data: a file below the results' folder, and its SHA-256 digest."""
BESIDE = re.compile(r"\]\(([\w.]+\.jsonl)\), SHA-256 `([0-9a-f]{64})`")
"""The same in the head of a page that a script writes, for a file beside the page."""


def test_the_figures_of_the_pages_come_from_the_raw_files() -> None:
    done = subprocess.run([sys.executable, "benchmarks/results/recompute.txt"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "level2_ 100 " in done.stdout, done.stderr


def test_pages_have_the_digests_of_their_data() -> None:
    """Data that changes needs its page brought up to date."""
    named = {}
    for page in (ROOT / "benchmarks").rglob("*.md"):
        text = page.read_text()
        named |= {RESULTS / name: digest for name, digest in HERE.findall(text)}
        named |= {page.parent / name: digest for name, digest in BESIDE.findall(text)}
    assert len(named) > 50
    wrong = {place.name for place, digest in named.items() if hashlib.sha256(place.read_bytes()).hexdigest() != digest}
    assert not wrong, "their pages have other digests; update figures and digest together"
