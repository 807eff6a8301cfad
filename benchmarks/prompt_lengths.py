"""How long the prompts of tasks are, by class: `python -m tritonsmith.benchmarks.prompt_lengths TASK.py ... [--out DIR]`.

Prints a table with the tokens of the seed's prompt by task (characters / 4), and the median by class. With `--out` the prompts
of both seeds are written there; `--without examples` or `--without rules` leaves that block out, for an ablation. Facts come from running
each reference once, so the tasks should be the project's own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.author.examples import prompt_for
from tritonsmith.benchmarks.host import print_line
from tritonsmith.evaluator.caller.questions.describe import TaskDescriptions
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.tasks.files import load_task, settle_task
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.templates.render import BLOCKS

CHARACTERS_PER_TOKEN = 4
"""What common tokenizers take on these texts, about."""


def measure(
    path: Path, card: str, descriptions: TaskDescriptions, out: Path | None = None, without: Sequence[str] = ()
) -> dict[str, str | int]:
    """Name, family, class and tokens of a task's first prompt; both seeds' prompts are written to `out`, without some blocks."""
    task = load_task(str(path))
    facts = descriptions.describe(task)[0]
    task = settle_task(task, facts)
    hardware = named_card(card).model_copy(update={"present": True, "triton": "3.6.0", "torch": "2.11.0"})
    prompts = [prompt_for("seed", Brief(task=task, facts=facts, hardware=hardware, branch=branch), without) for branch in (0, 1)]
    for branch, prompt in enumerate(prompts):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{path.stem}_seed{branch}.md").write_text(prompt.text, encoding="utf-8")
    tokens = len(prompts[0].text) // CHARACTERS_PER_TOKEN
    return {"task": path.stem, "family": prompts[0].family, "class": task.precision.value, "tokens": tokens}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tasks", nargs="+", type=Path)
    parser.add_argument("--card", default="h200")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--without", nargs="+", choices=BLOCKS, default=(), help="blocks to leave out")
    given = parser.parse_args(arguments)
    rows, descriptions = [], TaskDescriptions()
    for path in given.tasks:
        try:
            rows.append(measure(path, given.card, descriptions, given.out, given.without))
        except TaskError as error:
            sys.stderr.write(f"{path.stem}: {error}\n")
    descriptions.close()
    if not rows:  # each file is told above
        return 2
    for row in rows:
        print_line(f"{row['task']:34} {row['family']:12} {row['class']:7} {row['tokens']:6}")
    for key in ("family", "class"):
        for value in sorted({str(row[key]) for row in rows}):
            lengths = [int(row["tokens"]) for row in rows if row[key] == value]
            print_line(f"median of {value:15} {statistics.median(lengths):8.0f} ({len(lengths)})")
    print_line(f"median of all {statistics.median(int(row['tokens']) for row in rows):8.0f} ({len(rows)})")
    if given.out is not None:
        (given.out / "lengths.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
