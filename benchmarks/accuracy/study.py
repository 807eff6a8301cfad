"""Which precision class each way to multiply reaches, by the evaluator's own rule; writes the table of docs/correctness.md.

`python -m tritonsmith.benchmarks.accuracy.study [--lengths 64,256] [--out FILE]` measures; with `--write PAGE` the page's table is made
from FILE and nothing is measured. Inputs are drawn under fixed seeds. Without a card products are emulated (products.py); with one they
are measured on it as well (on_card.py).
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tritonsmith.benchmarks.accuracy.products import BLOCK, PRODUCTS, multiply_bf16, multiply_in_chain, multiply_tf32
from tritonsmith.benchmarks.host import cpu_name, print_line
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.oracle.checks.correctness import Trial, reached_class
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.schema import PrecisionClass

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
References = Mapping[str, tuple[Multiply, Multiply]]
"""By name, a library's product in fp32 and in TF32."""

LENGTHS = (64, 256, 1024, 4096, 16384, 65536)
RESULTS = Path(__file__).parents[1] / "results" / "accuracy_classes.json"
CHAIN, BLOCKS, CARD = "chain", "blocks", "card"
"""References: one chain of FMAs, torch.matmul on this processor, cuBLAS on this card."""
_ROWS = _COLUMNS = 64
_BEGIN, _END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"


def _draw_normal(shape: tuple[int, int], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _draw_uniform(shape: tuple[int, int], seed: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


KINDS: dict[str, Callable[[int], tuple[torch.Tensor, torch.Tensor]]] = {
    "normal": lambda length: (_draw_normal((_ROWS, length), length), _draw_normal((length, _COLUMNS), length + 1)),
    "uniform": lambda length: (_draw_uniform((_ROWS, length), length), _draw_uniform((length, _COLUMNS), length + 1)),
    "relu": lambda length: (_draw_normal((_ROWS, length), length).relu(), _draw_normal((length, _COLUMNS), length + 1)),
}
"""Both operands: standard normal; uniform from 0 to 1, as torch.rand; the first after a ReLU."""


def measure_length(length: int, products: Mapping[str, Multiply], references: References) -> list[dict[str, Any]]:
    """One row per product and reference: error over the reference's own for each kind of inputs, and the class that all kinds reach."""
    trials: dict[tuple[str, str], dict[str, Trial]] = {}
    for kind, draw in KINDS.items():
        a, b = draw(length)
        oracle = [a.double() @ b.double()]
        used = {*products.values(), *(multiply for pair in references.values() for multiply in pair)}
        errors = {multiply: error_stats([multiply(a, b)], oracle) for multiply in used}
        half = error_stats([multiply_bf16(a, b).bfloat16().float()], oracle)
        for reference, (exact, coarse) in references.items():
            own = {PrecisionClass.IEEE: errors[exact], PrecisionClass.TF32: errors[coarse], PrecisionClass.HALF: half}
            for name, multiply in products.items():
                trials.setdefault((reference, name), {})[kind] = Trial(errors[multiply], own)
    return [_make_row(length, *key, kinds) for key, kinds in trials.items()]


def _make_row(length: int, reference: str, product: str, kinds: Mapping[str, Trial]) -> dict[str, Any]:
    return {
        "length": length, "reference": reference, "product": product, "class": _name(reached_class(list(kinds.values()))),
        "ratio": max(_ratio(trial) for trial in kinds.values()),
        "kinds": {
            kind: {
                "class": _name(reached_class([trial])), "ratio": _ratio(trial), "relative_rms": trial.candidate.relative_rms,
                "max_abs": trial.candidate.max_abs, "own_relative_rms": trial.own(PrecisionClass.IEEE).relative_rms,
                "own_max_abs": trial.own(PrecisionClass.IEEE).max_abs, "tf32_relative_rms": trial.own(PrecisionClass.TF32).relative_rms,
            }
            for kind, trial in kinds.items()
        },
    }  # fmt: skip


def _ratio(trial: Trial) -> float:
    return trial.candidate.rms / trial.own(PrecisionClass.IEEE).rms


def _name(reached: PrecisionClass | None) -> str:
    return reached.value if reached else "none"


def measure(lengths: Iterable[int]) -> dict[str, Any]:
    """Every row, with what it was made on."""
    card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    rows: list[dict[str, Any]] = []
    for length in lengths:
        print_line(f"length {length}")
        rows += measure_length(length, PRODUCTS, {CHAIN: (multiply_in_chain, multiply_tf32), BLOCKS: (torch.matmul, multiply_tf32)})
        if card:
            rows += _measure_on_card(length)
    return {
        "command": shlex.join(["python", "-m", "tritonsmith.benchmarks.accuracy.study", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "cpu": cpu_name(), "card": card,
        "versions": {"torch": torch.__version__, "python": platform.python_version(), "triton": version("triton")},
        "rows": _ROWS, "columns": _COLUMNS, "block": BLOCK, "results": rows,
    }  # fmt: skip


def _measure_on_card(length: int) -> list[dict[str, Any]]:
    from tritonsmith.benchmarks.accuracy.on_card import card_product, multiply_by_cublas  # noqa: PLC0415 (needs a card)

    products = {name: card_product(name) for name in PRODUCTS}
    return measure_length(length, products, {CARD: (multiply_by_cublas, lambda a, b: multiply_by_cublas(a, b, tf32=True))})


def render(found: Mapping[str, Any]) -> str:
    """The tables in Markdown, with what they were made on."""
    where = f"torch {found['versions']['torch']}, {found['cpu']}, {found['date']}"
    titles = {
        CHAIN: "The reference is one chain of FMAs per result, as a library's fp32 kernel that does not split the sum:",
        BLOCKS: "The reference sums in blocks, as `torch.matmul` does on this processor:",
        CARD: f"Measured on {found['card']}, with `tl.dot`; the reference is cuBLAS:",
    }
    held = [reference for reference in titles if any(row["reference"] == reference for row in found["results"])]
    tables = "\n\n".join(f"{titles[reference]}\n\n{_render_table(found['results'], reference)}" for reference in held)
    unmeasured = "" if found["card"] else " No card has run this yet: the figures are emulated."
    return f"{tables}\n\nMade by `{found['command']}` ({where}).{unmeasured}"


def _render_table(rows: Iterable[Mapping[str, Any]], reference: str) -> str:
    cells = {(row["product"], row["length"]): f"{_digits(row['ratio'])} {row['class']}" for row in rows if row["reference"] == reference}
    lengths, products = sorted({length for _, length in cells}), dict.fromkeys(product for product, _ in cells)
    lines = [f"| product | {' | '.join(f'{length:,}' for length in lengths)} |", "|--" * (len(lengths) + 1) + "|"]
    lines += [f"| {product} | {' | '.join(cells[product, length] for length in lengths)} |" for product in products]
    return "\n".join(lines)


def _digits(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}"


def replace_tables(page: str, found: Mapping[str, Any]) -> str:
    """The page with the tables of these results between its marks."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}\n{render(found)}\n{_END}{rest.split(_END)[1]}"


def read_lengths(text: str) -> list[int]:
    """Lengths that stand between commas. Raises ArgumentTypeError."""
    try:
        lengths = [int(length) for length in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of lengths from 1 on; write some like 64,4096")
    return lengths


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure into a file, or write the page from one; 2 for bad input."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n", maxsplit=1)[0])
    parser.add_argument("--lengths", type=read_lengths, default=LENGTHS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--write", type=Path, help="the page whose tables are made from the file")
    options = parser.parse_args(arguments)
    try:
        if options.write:
            _write_page(options.write, options.out)
            return 0
        if not options.out.parent.is_dir():  # measuring takes a minute
            raise UsageError(f"--out {options.out}: there is no folder {options.out.parent}; make it, or name another place")
        options.out.write_text(json.dumps(measure(options.lengths), indent=1) + "\n", encoding="utf-8")
    except (UsageError, OSError) as error:
        why = f"{error.filename}: {error.strerror}; name another place" if isinstance(error, OSError) else error
        sys.stderr.write(f"error: {why}\n")
        return 2
    return 0


def _write_page(page: Path, results: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if _BEGIN not in text or _END not in text:
        raise UsageError(f"--write {page}: has no line {_BEGIN!r} followed by {_END!r}; name docs/correctness.md")
    if not results.is_file():
        raise UsageError(f"--out {results}: there is no such file; make it by a call without --write")
    try:
        written = replace_tables(text, json.loads(results.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--out {results}: is no file of this study ({type(error).__name__}); make one without --write") from error
    page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
