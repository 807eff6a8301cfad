"""Compare estimates with measurements, without a card, in minutes: `python -m tritonsmith.benchmarks.estimates`.

Every measured text is compiled for the card it was measured on, and estimated as a run without that card would do. The page has
measured and estimated times, bands and the order of pairs, and what the constants of `evaluator/cards/estimate.py` would have to be.
It ends with 1 where a constant is too small for what was measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.benchmarks.estimates.compare import estimate_samples
from tritonsmith.benchmarks.estimates.page import find_too_narrow, render_page
from tritonsmith.benchmarks.estimates.samples import RESULTS, list_samples
from tritonsmith.benchmarks.host import print_line
from tritonsmith.evaluator.caller.questions.describe import TaskDescriptions
from tritonsmith.evaluator.cards.cards import CARDS


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every band and every ratio is as wide as measurements ask; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.estimates", description=__doc__)
    parser.add_argument("--page", type=Path, default=RESULTS / "estimates.md", help="where the page goes")
    options = parser.parse_args(arguments)
    descriptions = TaskDescriptions()
    try:
        samples = list_samples(descriptions)
        kernels, baselines = estimate_samples(samples, CARDS["h200"], descriptions)
    finally:
        descriptions.close()
    options.page.write_text(render_page(kernels, baselines, CARDS["h200"]), encoding="utf-8")
    narrow = find_too_narrow(kernels)
    for sentence in narrow or [f"{len(kernels)} kernels and {len(baselines)} baselines: every constant is as wide as they ask"]:
        print_line(sentence)
    return 1 if narrow else 0


if __name__ == "__main__":
    raise SystemExit(main())
