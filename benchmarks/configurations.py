"""Judges random configurations of the built-in author's families against the float64 oracle.

`python -m tritonsmith.benchmarks.configurations --out FILE [--families recurrent,convnet,product] [--count 16] [--seed 1] [--target h200]`

A configuration is a module with sizes, options and types by chance, one of the recipes that write it, and settings by chance from what the
recipe declares. Each gets a quick verdict. On a card sizes are larger, and times are measured; with `--target` a verdict comes from the
interpreter. The seed decides everything but the inputs of the trials.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tritonsmith.author.book import Match, match
from tritonsmith.author.recipe import Recipe, Settings
from tritonsmith.benchmarks.host import begin_record, print_line
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Status, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import load_task, settle_task

COUNT = 16
"""Configurations of each family, if nothing else is asked for."""
_TRIES = 50
"""Draws of settings until some fit the card."""
_SMALLEST_SIDE = 3
"""Of an image behind a convolution; a smaller one would leave nothing to a pool."""
_HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
_TAILS = ("torch.relu({0})", "F.gelu({0}) * 0.5", "torch.sigmoid({0}) + 1", "{0}")
"""Elementwise work behind a product or a convolution."""


def _write(init: Sequence[str], forward: Sequence[str], arguments: str, inputs: str) -> str:
    """A task file."""
    lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in init)]
    lines += ["", f"    def forward(self, {arguments}):", *(f"        {line}" for line in forward)]
    lines += ["", "", "def get_inputs():", f"    return [{inputs}]", "", "", "def get_init_inputs():", "    return []", ""]
    return _HEAD + "\n".join(lines)


def draw_recurrent(rng: random.Random, large: bool) -> str:
    """A stack of GRU, LSTM or RNN layers with its options, initial states and results."""
    kind = rng.choice(("GRU", "LSTM", "RNN"))
    hidden, inputs = (rng.randint(20, 320), rng.randint(8, 256)) if large else (rng.choice((5, 16, 33, 48)), rng.choice((3, 8, 20)))
    batch, steps = (rng.randint(1, 24), rng.randint(1, 200)) if large else (rng.randint(1, 5), rng.randint(1, 6))
    layers, both, first = rng.randint(1, 4 if large else 2), rng.random() < 0.5, rng.random() < 0.5
    dtype = rng.choice(("float32", "float32", "float32", "float16", "bfloat16"))
    options = f"{inputs}, {hidden}, {layers}, bias={rng.random() < 0.7}, batch_first={first}, bidirectional={both}"
    options += f", nonlinearity={rng.choice(('tanh', 'relu'))!r}" if kind == "RNN" else ""
    width = hidden * (2 if both else 1)
    init = [f"self.rnn = nn.{kind}({options})", f"self.fc = nn.Linear({width}, {rng.randint(2, 17)})", f"self.to(torch.{dtype})"]
    shape = f"({layers * (2 if both else 1)}, {batch}, {hidden})"
    drawn = [f"torch.randn({(batch, steps, inputs) if first else (steps, batch, inputs)}).to(torch.{dtype})"]
    arguments, given = "x", "x"
    if rng.random() < 0.5:
        drawn += [f"torch.randn{shape}.to(torch.{dtype})"] * (2 if kind == "LSTM" else 1)
        arguments, given = ("x, h0, c0", "x, (h0, c0)") if kind == "LSTM" else ("x, h0", "x, h0")
    last = "states[:, -1, :]" if first else "states[-1]"
    results = ["states", f"self.fc({last})", f"states, {'last[0]' if kind == 'LSTM' else 'last'}"]
    result = rng.choice([*results, "last[1]"] if kind == "LSTM" else results)
    if "self.fc" not in result:
        init.pop(1)
    return _write(init, [f"states, last = self.rnn({given})", f"return {result}"], arguments, ", ".join(drawn))


def draw_convnet(rng: random.Random, large: bool) -> str:
    """Two or three convolutions with norms, activations, a pool and a linear layer, in evaluation or training mode."""
    side, batch = (rng.randint(24, 80), rng.randint(1, 16)) if large else (rng.randint(9, 15), rng.randint(1, 3))
    wide = (8, 24, 64, 96) if large else (4, 6, 8, 12)
    channels = rng.choice((1, 3, 8))
    shape = f"({batch}, {channels}, {side}, {side + rng.randint(0, 3)})"
    init, forward = [], []
    for number in range(rng.randint(2, 3)):
        out, size, stride = rng.choice(wide), rng.choice((1, 3, 5)), rng.randint(1, 2)
        groups = rng.choice([one for one in (1, 2, channels) if channels % one == 0 and out % one == 0])
        padding, dilation = rng.randint(0, size // 2), rng.randint(1, 2) if size == 3 else 1
        left = (side + 2 * padding - dilation * (size - 1) - 1) // stride + 1
        if left < _SMALLEST_SIDE:
            size, stride, padding, dilation, left = 1, 1, 0, 1, side
        side = left
        where = f"stride={stride}, padding={padding}, dilation={dilation}"
        init.append(f"self.conv{number} = nn.Conv2d({channels}, {out}, {size}, {where}, groups={groups}, bias={rng.random() < 0.5})")
        forward.append(f"x = self.conv{number}(x)")
        if rng.random() < 0.6:
            init.append(f"self.norm{number} = nn.BatchNorm2d({out})")
            forward.append(f"x = self.norm{number}(x)")
        forward.append(f"x = {rng.choice(_TAILS[:3]).format('x')}")
        channels = out
    forward.append(f"return {rng.choice(('F.max_pool2d(x, 2, ceil_mode=True)', 'F.adaptive_avg_pool2d(x, 1).flatten(1)', 'x'))}")
    return _write(init, forward, "x", f"torch.randn{shape}") + (f'\n\nMODE = "{rng.choice(("eval", "train"))}"\n')


def draw_product(rng: random.Random, large: bool) -> str:
    """One product of two tensors in one of its forms, with elementwise work behind it."""
    most = 2000 if large else 70
    rows, inner, columns, batch = (rng.randint(1, most) for _ in range(4))
    batch, dtype = min(batch, 9 if large else 3), rng.choice(("float32", "float32", "float16", "bfloat16"))
    tail = rng.choice(_TAILS)

    def tensor(*sizes: int) -> str:
        return f"torch.randn{sizes}.to(torch.{dtype})"

    if rng.random() < 0.4:
        init = [f"self.fc = nn.Linear({inner}, {columns}, bias={rng.random() < 0.5})", f"self.to(torch.{dtype})"]
        return _write(init, [f"return {tail.format('self.fc(x)')}"], "x", tensor(batch, rows, inner))
    forms = (
        ("a @ b", tensor(rows, inner), tensor(inner, columns)),
        ("a @ b.T", tensor(rows, inner), tensor(columns, inner)),
        ("torch.bmm(a, b)", tensor(batch, rows, inner), tensor(batch, inner, columns)),
        ("torch.einsum('bij,bkj->bik', a, b)", tensor(batch, rows, inner), tensor(batch, columns, inner)),
    )
    text, left, right = rng.choice(forms)
    return _write(["pass"], [f"return {tail.format(text)}"], "a, b", f"{left}, {right}")


FAMILIES: dict[str, Callable[[random.Random, bool], str]] = {
    "recurrent": draw_recurrent, "convnet": draw_convnet, "product": draw_product,
}  # fmt: skip
"""What draws a task of a family."""


def draw_settings(rng: random.Random, found: Match, hardware: Hardware, precision: PrecisionClass) -> tuple[Recipe, Settings]:
    """One of the recipes that write a task, with settings that fit the card; plain ones where no draw does."""
    recipe = rng.choice(found.recipes)
    plain = recipe.defaults(found.plan, hardware, precision)
    assert plain is not None, "match() keeps only recipes that have settings"
    values = {name: own for stage in recipe.tunables for name, own in recipe.list_tunables(found.plan, stage).items()}
    for _ in range(_TRIES):
        drawn = plain | {name: rng.choice(list(own)) for name, own in values.items()}
        if recipe.fits(found.plan, drawn, hardware):
            return recipe, drawn
    return recipe, plain


def judge_one(evaluator: LocalEvaluator, family: str, seed: str, folder: Path) -> dict[str, Any]:
    """The row of one configuration; `ruling` is `right`, `refused` (no recipe writes the task) or the verdict's status."""
    rng, hardware = random.Random(seed), evaluator.hardware
    path = folder / f"{family}_{seed.rpartition('-')[2]}.py"
    path.write_text(FAMILIES[family](rng, hardware.present), encoding="utf-8")
    row: dict[str, Any] = {"family": family, "seed": seed, "task": path.read_text(encoding="utf-8")}
    task: Task = load_task(str(path))
    facts: TaskFacts = asyncio.run(evaluator.describe(task))
    task = settle_task(task, facts)
    found = match(task, facts, hardware)
    if found is None:
        return row | {"ruling": "refused", "message": "no recipe"}
    recipe, settings = draw_settings(rng, found, hardware, task.precision)
    verdict = evaluator.evaluate_now(task, recipe.render(found.plan, settings))
    correctness, timing = verdict.correctness, verdict.timing
    return row | {
        "ruling": "right" if verdict.status is Status.OK else verdict.status.value, "message": verdict.message, "recipe": recipe.name,
        "settings": dict(settings), "precision": task.precision.value,
        "error": correctness.err_vs_oracle if correctness else None,
        "reference_error": correctness.reference_err_vs_oracle if correctness else None,
        "score": verdict.score, "kind": timing.kind.value if timing else "", "seconds": round(verdict.seconds, 1),
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """0 where every configuration is right, 1 where one is not, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.configurations", description="Random configurations.")
    parser.add_argument("--families", default=",".join(FAMILIES), help="names, with commas")
    parser.add_argument("--count", type=int, default=COUNT, help="configurations of each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="auto", help="auto: the card of this machine; a named one that is not here: the interpreter")
    parser.add_argument("--out", required=True, type=Path, help="a new file for the rows")
    asked = parser.parse_args(words)
    try:
        return _judge(asked, words)
    except TritonsmithError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError) else 1


def _judge(asked: argparse.Namespace, words: Sequence[str] | None) -> int:
    names = asked.families.split(",")
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UsageError(f"--families {unknown[0]}: no such family; choose from {', '.join(FAMILIES)}")
    if asked.count < 1:
        raise UsageError(f"--count {asked.count}: give 1 or more")
    if asked.out.exists():
        raise UsageError(f"--out {asked.out}: something lies there; name a new file")
    folder = asked.out.parent / f"{asked.out.stem}_tasks"
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    with open_evaluator(asked.target) as evaluator, asked.out.open("w", encoding="utf-8") as file:
        if not evaluator.hardware.present and asked.target == "auto":
            raise UsageError("--target auto: this machine has no card; name one, such as --target h200, for the interpreter")
        head = begin_record("configurations", words) | {"card": evaluator.hardware.name, "measured": evaluator.hardware.present}
        file.write(json.dumps(head) + "\n")
        for family in names:
            for number in range(asked.count):
                row = judge_one(evaluator, family, f"{asked.seed}-{number}", folder)
                file.write(json.dumps(row) + "\n")
                file.flush()
                counts[row["ruling"]] += 1
                print_line(f"{family} {row['seed']}: {row['ruling']} {row.get('recipe', '')} {row['message'][:150]}")
    print_line(", ".join(f"{number} {ruling}" for ruling, number in counts.items()))
    return int(any(ruling not in ("right", "refused") for ruling in counts))


if __name__ == "__main__":
    sys.exit(main())
