"""Precision and recall of each label on a labelled set, next to what two regular expressions reach."""

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from labelled.reader import Labelled, read_labelled, rename_everything
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts, PrecisionClass, TaskFacts, Timing, TimingKind
from tritonsmith.evaluator.texts.detect.detection import Trait, detect
from tritonsmith.evaluator.texts.detect.records import ROUTING

BOUNDS = {Trait.LAUNCH_BOUND, Trait.MEMORY_BOUND, Trait.COMPUTE_BOUND, Trait.LATENCY_BOUND}
FROM_TEXT = [trait for trait in Trait if trait not in BOUNDS]
LEAST = 0.95
"""The precision and the recall that each label must have."""
PERSISTENT = re.compile(r"for\s+(t|step|time\w*)\s+in\s+(tl\.)?(static_)?range\(|while\s|persistent", re.IGNORECASE)
COMPLEX = re.compile(r"winograd|flash|online[ _]softmax|fft", re.IGNORECASE)
"""What a script of regular expressions takes for persistent, and for an algorithm of high complexity.

The notes name the two expressions and do not print them, so these are written after their description.
"""


def by_expressions(case: Labelled) -> frozenset[str]:
    """The labels that the two expressions give."""
    found = {"persistent"} if PERSISTENT.search(case.kernel) else set()
    return frozenset(found | ({"high_complexity"} if COMPLEX.search(case.kernel) else set()))


def measure(label: str, given: dict[str, frozenset[str]]) -> tuple[float, float]:
    """Precision and recall of one label on the kernels of `given`."""
    cases = {name: case for name, case in read_labelled().items() if name in given and label not in case.undecided}
    right = sum(label in given[name] and label in case.labels for name, case in cases.items())
    said = sum(label in given[name] for name in cases)
    true = sum(label in case.labels for case in cases.values())
    return right / said if said else 1.0, right / true if true else 1.0


@cache
def detect_names(name: str) -> frozenset[str]:
    """What detection says of a kernel of the set."""
    return detect(read_labelled()[name].source).names


def collect(answer: Callable[[Labelled], frozenset[str]], step: int = 1) -> dict[str, frozenset[str]]:
    """The answer for each kernel of the set, or for one in so many."""
    return {name: answer(case) for name, case in list(read_labelled().items())[::step]}


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_precision_and_recall(step: int) -> None:
    """Every label stands in at least twelve kernels, of the whole set and of a third."""
    ours = collect(lambda case: detect_names(case.name), step)
    expressions = collect(by_expressions, step)
    cases = {name: case for name, case in read_labelled().items() if name in ours}
    assert len(cases) >= 150
    for trait in FROM_TEXT:
        count = sum(trait.value in case.labels for case in cases.values())
        precision, recall = measure(trait.value, ours)
        beside = ""
        if trait in (Trait.PERSISTENT, Trait.HIGH_COMPLEXITY):
            beside = " (expressions: {:.2f}, {:.2f})".format(*measure(trait.value, expressions))
        sys.stdout.write(f"{trait.value:<24} {count:>3} kernels: precision {precision:.2f}, recall {recall:.2f}{beside}\n")
        decided = {name: case for name, case in cases.items() if trait.value not in case.undecided}
        wrong = [name for name, case in decided.items() if (trait.value in case.labels) != (trait.value in ours[name])]
        assert count >= 12 and precision >= LEAST and recall >= LEAST, f"{trait.value}: {wrong}"


@pytest.mark.parametrize(("part", "step"), [(0, 24), *(pytest.param(part, 6, marks=pytest.mark.slow) for part in range(6))])
def test_names_never_decide(part: int, step: int) -> None:
    """With every variable, parameter and kernel named for something else, the labels are the same."""
    changed = {
        name: (sorted(case.labels), sorted(found))
        for name, case in list(read_labelled().items())[part::step]
        if (found := detect(rename_everything(case)).names) != detect_names(name)
    }
    assert changed == {}


def figures() -> Iterator[tuple[str, int, float, float, float, int, bool]]:
    """Label, launches, milliseconds, bytes, operations, serial steps, tensor cores: on an H200."""
    for scale in (0.5, 1.0, 2.0, 4.0):
        yield "launch_bound", int(800 * scale), 5.0 * scale, 1e7, 1e9, 1, False
        yield "launch_bound", int(30 * scale), 0.2 * scale, 1e6, 1e7, 1, False
        yield "launch_bound", int(3000 * scale), 18.0 * scale, 1e7, 2e10, 512, True
        yield "memory_bound", 1, 0.08 * scale, 268e6 * scale, 1e8, 1, False
        yield "memory_bound", 4, 1.5 * scale, 3e9 * scale, 1e9, 1, False
        yield "memory_bound", 1, 2.0 * scale, 6e9 * scale, 4e10 * scale, 1, False
        yield "compute_bound", 1, 1.0 * scale, 1e8 * scale, 4e10 * scale, 1, False
        yield "compute_bound", 2, 3.0 * scale, 1e9 * scale, 1e12 * scale, 1, True
        yield "compute_bound", 1, 0.5 * scale, 2e7 * scale, 1.4e11 * scale, 1, True
        yield "latency_bound", 1, 2.5 * scale, 1.7e7, 2e9, 3072, False
        yield "latency_bound", 1, 0.3 * scale, 1e7, 1e8, 1, False
        yield "latency_bound", 3, 6.0 * scale, 1e9, 1e10, 512, True


@pytest.mark.parametrize(("label", "launches", "took", "moved", "flops", "steps", "tensor_cores"), list(figures()))
def test_limits(label: str, launches: int, took: float, moved: float, flops: float, steps: int, tensor_cores: bool) -> None:
    facts = LaunchFacts(launches_per_forward=launches, kernels=(KernelFacts(name="step", launches=launches, tensor_cores=tensor_cores),))
    task = TaskFacts(min_bytes=moved, flops=flops, serial_steps=steps, precision=PrecisionClass.IEEE)
    timing = Timing(kind=TimingKind.MEASURED, median_ms=took, baselines_ms={"eager": 1.0}, baseline="eager", score=1.0, score_eager=1.0)
    case = read_labelled()["step_over_shape"]
    hits = [hit for hit in detect(case.source, facts, task, CARDS["h200"], timing).labels if hit.name in BOUNDS]
    assert [hit.name.value for hit in hits] == [label]
    assert "%" in hits[0].evidence or "microseconds" in hits[0].evidence


def test_each_label_says_what_it_means() -> None:
    assert set(ROUTING) == set(Trait) and len(set(ROUTING.values())) == len(Trait)
    found = detect(read_labelled()["linear_scan"].source)
    (hit,) = found.labels
    assert hit.nearest.startswith("a row loop") and "1.0" in hit.routing and hit.line
