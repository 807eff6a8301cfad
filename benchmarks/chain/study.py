"""Where the time of a recurrent chain goes: `python -m tritonsmith.benchmarks.chain.study [--out FILE]`, on a machine with a card.

The built-in author's kernel for the stack of six GRU layers (`benchmarks/tasks/39_gru.py`) is timed as it is, with clocks read in every
step, without one of its parts, and with other ways to exchange the state. Each variant runs in a process of its own, in turn with the
recipe's text. Some variants give wrong results on purpose: what they save is what the part that they lack takes.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonsmith.author.book import match_recipe
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.recipe import Recipe, Settings
from tritonsmith.benchmarks.chain.variants import VARIANTS, ChainVariant, add_stamps
from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.caller.questions.describe import run_probe
from tritonsmith.evaluator.cards.machine import present_card
from tritonsmith.evaluator.schema import Hardware
from tritonsmith.evaluator.tasks.files import load_task, settle_task

TASK = Path(__file__).resolve().parent.parent / "tasks" / "39_gru.py"
RECIPE = "recurrent_wavefront"
SLICE = 32
"""Hidden units of a program, the same for all sizes."""
STAMPED = ChainVariant("stamps", "the recipe's text with the clocks read five times in every step", add_stamps)
SIZES: tuple[dict[str, int], ...] = (
    {"seq_len": 256}, {"num_layers": 1}, {"num_layers": 1, "seq_len": 256}, {"num_layers": 2}, {"num_layers": 2, "seq_len": 256},
)  # fmt: skip
"""Sizes besides the task's own: two lengths give the time of a step and what is spent once, and few layers how much they disturb each
other."""
_SECONDS = 120.0
"""After which a variant is given up: it waits for something that never comes."""


@functools.cache
def match_sized(path: Path, name: str, overrides: tuple[tuple[str, int], ...], hardware: Hardware) -> tuple[Recipe, KernelPlan, Settings]:
    """A recipe, what it makes of a task at a size, and its plain settings."""
    task = load_task(path, overrides=dict(overrides))
    facts, _ = run_probe(task)
    task = settle_task(task, facts)
    found = match_recipe(name, task, facts, hardware)
    recipe = found.recipe(name) if found else None
    settings = recipe.defaults(found.plan, hardware, task.precision) if found and recipe else None
    assert found and recipe and settings, f"{name} writes {path.name}"
    return recipe, found.plan, settings


def write_recipe(overrides: Mapping[str, int], hardware: Hardware) -> tuple[str, int]:
    """The recipe's text for the task at a size, with slices of 32 units; and how many recurrent programs it has."""
    recipe, plan, settings = match_sized(TASK, RECIPE, tuple(sorted(overrides.items())), hardware)
    assert recipe.complete is not None
    settings = recipe.complete(plan, settings | {"slice": SLICE, "num_warps": 8}, hardware)
    sizes = {"num_layers": 6, "hidden_size": 256} | dict(overrides)
    return recipe.render(plan, settings), sizes["num_layers"] * -(-sizes["hidden_size"] // SLICE)


def time_variant(variant: ChainVariant, overrides: Mapping[str, int], hardware: Hardware, calls: int) -> dict[str, Any]:
    """The row of one variant at one size; with `fault` where it gave no times."""
    base, programs = write_recipe(overrides, hardware)
    row: dict[str, Any] = {"name": variant.name, "about": variant.about, "right": variant.right, "sizes": dict(overrides)}
    request = {"task": str(TASK), "overrides": dict(overrides), "calls": calls, "programs": programs, "stamps": variant is STAMPED}
    return row | time_texts(variant.change(base), base, request)


def time_texts(text: str, base: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What the child says of two texts that are timed in turn; `fault` where it gave no times.

    Args:
        text: the variant's.
        base: what it is compared with.
        about: the rest of the child's request.
    """
    with tempfile.TemporaryDirectory(prefix="tritonsmith-chain-") as folder:
        places = {name: Path(folder) / f"{name}.py" for name in ("text", "base")}
        places["text"].write_text(text, encoding="utf-8")
        places["base"].write_text(base, encoding="utf-8")
        request = Path(folder) / "request.json"
        request.write_text(json.dumps(dict(about) | {name: str(place) for name, place in places.items()}), encoding="utf-8")
        line = [sys.executable, "-m", "tritonsmith.benchmarks.chain.child", str(request)]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return {"fault": f"no answer in {_SECONDS:.0f} s"}
    if done.returncode:
        return {"fault": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def describe_row(row: Mapping[str, Any]) -> str:
    """A row on one line of the screen."""
    sizes = ", ".join(f"{name} {value}" for name, value in row["sizes"].items()) or "the task's size"
    if "fault" in row:
        return f"{row['name']:<20} {sizes:<30} {row['fault']}"
    result = f"error {row['error']:.1e} (recipe {row['error_of_recipe']:.1e})" if row["right"] else "wrong on purpose"
    return f"{row['name']:<20} {sizes:<30} {row['ms']:.3f} ms, {row['times_recipe']:.3f} of the recipe's time, {result}"


def read_options(about: str | None, out: Path, arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Hardware | None]:
    """`calls` and `out`, and the card of this machine; None and a sentence on the screen for bad input."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--calls", type=int, default=40, help="timed pairs of each variant with the recipe's text")
    parser.add_argument("--out", type=Path, default=out, help="the file for rows and samples")
    options = parser.parse_args(arguments)
    hardware, why = present_card(), ""
    if hardware is None:
        why = "this machine has no card; run it on one that has"
    elif options.calls < 1:
        why = f"--calls {options.calls}: each variant must be timed at least once; give 1 or more"
    elif not options.out.parent.is_dir():
        why = f"--out {options.out}: there is no folder {options.out.parent}; make it, or name another place"
    if why:
        sys.stderr.write(f"error: {why}\n")
    return options, None if why else hardware


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every variant has a row; 2 for bad input."""
    options, hardware = read_options(__doc__, Path("chain.json"), arguments)
    if hardware is None:
        return 2
    record = begin_record("chain.study", arguments) | {"rows": []}
    plan: list[tuple[ChainVariant, dict[str, int]]] = [(variant, {}) for variant in (STAMPED, *VARIANTS)]
    plan += [(VARIANTS[0], sizes) for sizes in SIZES]
    for variant, sizes in plan:
        row = time_variant(variant, sizes, hardware, options.calls)
        record["rows"].append(row)
        print_line(describe_row(row))
        for name, nanoseconds in row.get("phases_ns", {}).items():
            print_line(f"    {name:<16} {nanoseconds:8.1f}" + ("" if name == "ns_per_cycle" else " ns"))
        write_record(record, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
