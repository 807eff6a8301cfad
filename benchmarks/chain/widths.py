"""How many hidden units a recurrent program should have: `python -m tritonsmith.benchmarks.chain.widths [--out FILE]`, on a card.

The built-in author's kernels for four recurrent stacks are timed with other slices and warps, each in turn with its plain settings. A
narrow slice has a short product in every step, and needs more programs, which wait for each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonsmith.author.recipe import Settings
from tritonsmith.benchmarks.chain.study import describe_row, match_sized, read_options, time_texts
from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.schema import Hardware

_TASKS = Path(__file__).resolve().parent.parent / "tasks"
SUBJECTS = {
    "39_gru": "recurrent_wavefront", "35_lstm": "recurrent_wavefront",
    "41_gru_bidirectional": "recurrent_layers", "38_lstm_bidirectional": "recurrent_layers",
}  # fmt: skip
"""Tasks and the recipe that writes them."""
WIDTHS = ((8, 4), (8, 8), (16, 4), (16, 8), (32, 4), (32, 8))
"""Hidden units of a program, and its warps."""
_SLOTS = 2
"""Programs that one processor may hold at once, at the most; the launch fails where it cannot."""


def list_settings(plain: Settings, hidden_size: int, layers: int, hardware: Hardware) -> Iterator[Settings]:
    """Settings to be timed: all layers of a wavefront in one launch, where two programs per processor are enough for them.

    Stacks that run layer by layer have a wider tile of their input side's product as well.
    """
    for width, warps in WIDTHS:
        settings = plain | {"slice": width, "num_warps": warps}
        if "layers_per_launch" in plain:
            if 2 * layers * -(-hidden_size // width) > _SLOTS * hardware.processors:
                continue
            settings |= {"layers_per_launch": layers}
        yield settings
    if "block_m" in plain:
        yield plain | {"block_m": 128}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every setting has a row; 2 for bad input."""
    options, hardware = read_options(__doc__, Path("widths.json"), arguments)
    if hardware is None:
        return 2
    record = begin_record("chain.widths", arguments) | {"rows": []}
    for task, name in SUBJECTS.items():
        path = _TASKS / f"{task}.py"
        recipe, plan, plain = match_sized(path, name, (), hardware)
        base = recipe.render(plan, plain)
        print_line(f"{task}: {name}, plain settings {plain}")
        about = {"task": str(path), "overrides": {}, "calls": options.calls, "programs": 0, "stamps": False}
        for settings in list_settings(plain, plan.hidden_size, plan.num_layers, hardware):  # type: ignore[attr-defined]
            tile = f", tile of {settings['block_m']}" if "block_m" in settings else ""
            label = f"{task[:2]}: {settings['slice']} units, {settings['num_warps']} warps{tile}"
            row: dict[str, Any] = {"name": label, "settings": settings, "plain": plain, "right": True, "sizes": {}}
            record["rows"].append(row := row | time_texts(recipe.render(plan, settings), base, about))
            print_line(describe_row(row))
            write_record(record, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
