"""Verdicts on tasks in 16 bits, of several types, and in training mode, in the interpreter: right kernels pass, wrong ones do not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import half_kernels as texts
from tritonsmith.evaluator.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.evaluator.tasks import load_task

HALF = PrecisionClass.HALF


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with open_evaluator("h200") as found:
        yield found


def task_of(folder: Path, source: str) -> Task:
    path = folder / "task.py"
    path.write_text(source)
    return load_task(path)


def edit(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def reached(verdict: Verdict) -> PrecisionClass | None:
    assert verdict.correctness is not None, verdict.message
    return verdict.correctness.precision_class


def test_a_product_in_fp16_is_summed_in_fp32(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    task = task_of(tmp_path, texts.PRODUCT_TASK)
    right = evaluator.evaluate_now(task, texts.PRODUCT)
    assert (right.status, reached(right), right.environment["precision"]) == (Status.OK, HALF, "16-bit"), right.message
    assert {kernel.product for kernel in right.facts.kernels} == {"fp16"}
    narrow = edit(texts.PRODUCT, "tl.zeros((BM, BN), tl.float32)", "tl.zeros((BM, BN), tl.float16)")
    wrong = evaluator.evaluate_now(task, edit(narrow, "t += tl.dot(a, c)", "t += tl.dot(a, c).to(tl.float16)"))
    assert wrong.status is Status.INACCURATE and wrong.correctness is not None
    assert wrong.correctness.err_vs_oracle > 4 * wrong.correctness.reference_err_vs_oracle


def test_updated_statistics_are_compared(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    task = task_of(tmp_path, texts.CONV_TRAIN_TASK)
    right = evaluator.evaluate_now(task, texts.CONV_TRAIN)
    assert (right.status, right.environment["mode"]) == (Status.OK, "train"), right.message
    kept = evaluator.evaluate_now(task, edit(texts.CONV_TRAIN, "tl.load(mean + f) * (1 - momentum) + momentum * m", "tl.load(mean + f)"))
    assert kept.status is Status.INACCURATE and "buffer bn.running_mean after the call" in kept.message, kept.message


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("tl.load(count) + 1", "tl.load(count)"), ("s * n / (n - 1)", "s")])
def test_each_statistic_is_compared(tmp_path: Path, evaluator: LocalEvaluator, old: str, new: str) -> None:
    verdict = evaluator.evaluate_now(task_of(tmp_path, texts.CONV_TRAIN_TASK), edit(texts.CONV_TRAIN, old, new))
    assert verdict.status is Status.INACCURATE, verdict.message


@pytest.mark.slow
def test_right_kernels_in_16_bits(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    names = ("RMS", "ATTENTION", "MLP", "SEVERAL")
    for source, kernel in ((getattr(texts, f"{name}_TASK"), getattr(texts, name)) for name in names):
        verdict = evaluator.evaluate_now(task_of(tmp_path, source), kernel, "strict")
        assert (verdict.status, reached(verdict)) == (Status.OK, HALF), verdict.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tl.sum(f * f) / D", "(tl.sum(f * f) / D).to(tl.bfloat16)", "output 1: too far off by itself"),
        ("f > 0,", "f >= 0,", "output 3 at index"),
        ("c, B)).to", "c + 1, B)).to", "output 2 at index"),
    ],
)
def test_each_of_several_outputs_is_judged_in_its_type(tmp_path: Path, evaluator: LocalEvaluator, old: str, new: str, said: str) -> None:
    verdict = evaluator.evaluate_now(task_of(tmp_path, texts.SEVERAL_TASK), edit(texts.SEVERAL, old, new))
    assert verdict.status is Status.INACCURATE and said in verdict.message, verdict.message
