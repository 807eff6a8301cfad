"""Hints for errors: every row of the table explains a message that a kernel really provokes, with the installed Triton."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import hint_kernels
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.schema import Correctness, Status, Task, Verdict
from tritonsmith.prompts.templates.hints import MOST_HINTS, hint_table, hints_for

H200 = named_card("h200")
CARD_ONLY = {"registers", "cpu_tensor", "cooperative_refused"}
"""Hints for what shows on a card alone."""
SAMPLE = ("tanh", "arange_constexpr", "loop_carried_dtype", "shared_memory", "dot_dtypes", "num_warps")
COMPILE_ALL = """
import json, sys, tempfile
from pathlib import Path
from tritonsmith.evaluator.confined.compiler import launches
from tritonsmith.evaluator.confined.runner.faults import classify
from tritonsmith.evaluator.confined.compiler.compile import examine
said, on_card = {}, []
described = launches._describe_compile_error
launches._describe_compile_error = lambda function, error: (on_card.append(classify(error, str(file))), described(function, error))[1]
for name, text in json.load(sys.stdin).items():
    file = Path(tempfile.mkdtemp(dir=sys.argv[1])) / "candidate.py"
    file.write_text(text)
    on_card.clear()
    report = examine(file, "h200", {"init": [], "inputs": [((32, 64), "float32")], "overrides": {}})
    said[name] = [(one["status"], one["message"]) for one in (report, *on_card[:1])]
Path(sys.argv[1], "said.json").write_text(json.dumps(said))
"""


def compiled(names: Iterable[str], folder: Path) -> dict[str, list[Verdict]]:
    """What compiling each kernel for an H200 says, and what the same error says in a runner on a card; one process for all."""
    texts = {name: hint_kernels.COMPILED[name] for name in names}
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder / "cache")
    command = [sys.executable, "-P", "-c", COMPILE_ALL, str(folder)]
    done = subprocess.run(command, input=json.dumps(texts), env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads((folder / "said.json").read_text())
    return {name: [Verdict(status=Status(status), message=message) for status, message in each] for name, each in said.items()}


def explained(name: str, verdict: Verdict, source: str) -> str:
    """The first hint's text, which must be the one of that name."""
    found = hints_for(verdict, source, H200)
    assert next(iter(found), None) == hint_kernels.HINTS.get(name, name), (name, verdict.status, verdict.message[:400], list(found))
    text = next(iter(found.values()))
    assert "  " not in text and "{" not in text.replace("{own name", "") and "( " not in text, text
    return text


@pytest.mark.slow
def test_real_messages_get_their_hints_with_numbers(tmp_path: Path) -> None:
    """A sample of real messages gets its hints, with the numbers of each message."""
    texts = {name: explained(name, verdicts[0], hint_kernels.COMPILED[name]) for name, verdicts in compiled(SAMPLE, tmp_path).items()}
    assert "There is no tl.tanh" in texts["tanh"] and "t is int32 before the loop and fp32 in it" in texts["loop_carried_dtype"]
    assert re.search(r"take \d{6} bytes of shared memory; a program has 232448", texts["shared_memory"])
    assert "here fp32 and fp16" in texts["dot_dtypes"] and len(texts) == len(SAMPLE)


@pytest.mark.slow
def test_every_message_of_the_compiler_gets_its_hint(tmp_path: Path) -> None:
    seen_on_card = 0
    for name, verdicts in compiled(hint_kernels.COMPILED, tmp_path).items():
        for verdict in verdicts:
            assert verdict.status is not Status.OK, name
            if not verdict.message.endswith("^"):  # a runner does not tell the reason of an error in one of Triton's own helpers
                explained(name, verdict, hint_kernels.COMPILED[name])
        seen_on_card += len(verdicts) == 2
    assert seen_on_card > 30


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_verdict_gets_its_hint() -> None:
    assert asyncio.run(_judge(hint_kernels.JUDGED, hint_kernels.TASK)) == set(hint_kernels.JUDGED)
    assert asyncio.run(_judge(hint_kernels.JUDGED_PRODUCTS, hint_kernels.PRODUCT_TASK)) == set(hint_kernels.JUDGED_PRODUCTS)
    assert asyncio.run(_judge(hint_kernels.JUDGED_ROWS, hint_kernels.ROWS_TASK)) == set(hint_kernels.JUDGED_ROWS)
    assert asyncio.run(_judge(hint_kernels.JUDGED_HALVES, hint_kernels.HALF_TASK)) == set(hint_kernels.JUDGED_HALVES)
    assert asyncio.run(_judge(hint_kernels.STRICT, hint_kernels.TASK, profile="strict")) == set(hint_kernels.STRICT)
    assert asyncio.run(_judge(hint_kernels.LATE, hint_kernels.TASK, call_seconds=10.0)) == set(hint_kernels.LATE)


async def _judge(texts: dict[str, str], source: str, profile: str = "quick", **settings: Any) -> set[str]:
    task = Task(name="task", path="task.py", source=source)
    async with LocalEvaluator("h200", **settings) as evaluator:
        verdicts = await asyncio.gather(*(evaluator.evaluate(task, text, profile) for text in texts.values()))
    for (name, text), verdict in zip(texts.items(), verdicts, strict=True):
        assert verdict.status is not Status.OK, name
        explained(name, verdict, text)
    return set(texts)


def test_every_hint_has_a_kernel_and_every_kernel_a_hint() -> None:
    judged = (hint_kernels.JUDGED, hint_kernels.JUDGED_PRODUCTS, hint_kernels.JUDGED_ROWS, hint_kernels.JUDGED_HALVES)
    tables = (hint_kernels.COMPILED, *judged, hint_kernels.STRICT, hint_kernels.LATE)
    provoked = {hint_kernels.HINTS.get(name, name) for table in tables for name in table}
    names = [hint.name for hint in hint_table()]
    assert len(names) == len(set(names)) >= 30
    assert set(names) == provoked | CARD_ONLY


def test_hints_for_cards_match_what_triton_says() -> None:
    """Hints for errors that show on a card alone match what Triton says there."""
    from triton.runtime.errors import OutOfResources

    shared = str(OutOfResources(300000, 232448, "shared memory"))
    assert "take 300000 bytes of shared memory; a program has 232448" in _first(Status.LAUNCH_ERROR, shared, "shared_memory")
    assert "fewer warps" in _first(Status.LAUNCH_ERROR, str(OutOfResources(90000, 65536, "registers")), "registers")
    package = find_spec("triton")
    assert package is not None and package.origin is not None
    driver = (Path(package.origin).parent / "backends" / "nvidia" / "driver.c").read_text()
    literal = re.search(r'"(Pointer argument [^"]*)"\s*"([^"]*)"', driver)
    assert literal is not None
    _first(Status.RUNTIME_ERROR, f"line 3: ValueError: {literal[1]}{literal[2]}".replace("%d", "0"), "cpu_tensor")
    assert "at most 132 are safe on NVIDIA H200" in _first(
        Status.LAUNCH_ERROR, "RuntimeError: Triton Error [CUDA]: too many blocks in cooperative launch", "cooperative_refused"
    )
    _first(Status.RUNTIME_ERROR, "Triton Error [CUDA]: an illegal memory access was encountered", "out_of_bounds")


def _first(status: Status, message: str, name: str) -> str:
    return explained(name, Verdict(status=status, message=message), "")


def test_places_in_a_text_are_filled_by_what_the_pattern_names() -> None:
    known = {"card", "processors", "shared_limit"}
    for hint in hint_table():
        places = {name for _, name, _, _ in Formatter().parse(hint.text) if name}
        assert places <= known | set(hint.message.groupindex), hint.name
        assert hint.message.pattern or hint.statuses, hint.name


def test_a_failing_kernel_gets_three_hints_at_most() -> None:
    """A working kernel gets no hint, and a failing one three at most."""
    everything = "SyntaxError out-of-bounds illegal memory access num_warps must be a power of 2 does not import: ImportError tl.split("
    assert len(hints_for(Verdict(status=Status.COMPILE_ERROR, message=everything), "", H200)) == MOST_HINTS
    working = Verdict(status=Status.COMPILE_ERROR, message="nothing that is known")
    assert hints_for(working, "", H200) == {}


def test_the_size_of_an_error_tells_rounding_from_wrong() -> None:
    assert _hinted(4e-4, PRODUCT) == ["tf32"] and _hinted(0.4, PRODUCT) == ["plainly_wrong"]
    assert _hinted(4e-3, "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))") == ["half"]
    assert _hinted(1e-6, PRODUCT) == ["near_fp32"] and _hinted(1e-7, PRODUCT) == []


def test_an_error_is_blamed_on_16_bits_only_where_there_are_any() -> None:
    """What pads a row wrongly, or computes something a little different, is called that."""
    kernel = "v = tl.load(x + i, mask=i < N, other={other})\nr = {reduced}\n"
    assert _hinted(0.016, kernel.format(other="0.0", reduced="tl.max(v, axis=0)")) == ["padded_maximum", "another_formula"]
    assert _hinted(0.4, kernel.format(other="0", reduced="tl.min(v, axis=0)"))[0] == "padded_maximum"
    assert _hinted(0.016, kernel.format(other="-float('inf')", reduced="tl.max(v, axis=0)")) == ["another_formula"]
    assert _hinted(0.002, kernel.format(other="0.0", reduced="tl.sum((v - 1) * (v - 1), axis=0)"))[0] == "padded_sum"
    assert _hinted(0.002, kernel.format(other="0.0", reduced="tl.sum(tl.where(i < N, v - 1, 0.0), axis=0)")) == ["another_formula"]
    assert _hinted(0.002, kernel.format(other="0.0", reduced="v.to(tl.float16)")) == ["half"]


PRODUCT = "tl.dot(a, b)"


def _hinted(error: float, source: str) -> list[str]:
    found = Correctness(max_abs_err=error, mean_abs_err=error, err_vs_oracle=error, reference_err_vs_oracle=1e-7, precision_class=None)
    said = f"maximum error {error:.3g} at output 0 at index [0] (expected 1, got 2)"
    return list(hints_for(Verdict(status=Status.INACCURATE, message=said, correctness=found), source, H200))
