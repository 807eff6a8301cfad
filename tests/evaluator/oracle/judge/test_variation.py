"""Results that vary on the same inputs: by atomic adds, like the reference's own operators, or by a race."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge.variation import Variation
from tritonsmith.evaluator.schema import LaunchFacts, Status

PLAIN, ADDING = "tl.store(y, x)  # atomic_add", "tl.atomic_add(y, x)"
OWN = LaunchFacts(triton_launches=1, own_time_share=1.0)
LIBRARY = LaunchFacts(triton_launches=1, library_calls={"dgrad_engine": 1}, own_time_share=0.3)
FILLING = LaunchFacts(triton_launches=1, library_calls={"vectorized_elementwise_kernel": 1}, own_time_share=0.97)


def variation(*, varies: bool) -> tuple[Variation, list[int]]:
    """Of a task whose reference gives other bits now and then, or never; and the calls of the reference."""
    calls: list[int] = []

    def compute(tensors: list[torch.Tensor], precision: object) -> list[torch.Tensor]:
        calls.append(1)
        return [tensors[0] + 1e-6 * (varies and len(calls) % 3 == 0)]

    session = SimpleNamespace(draw=lambda kind: [torch.zeros(4)], reference_outputs=compute, task=SimpleNamespace(precision=None))
    return Variation(cast(Any, session)), calls


def test_the_same_bits_need_no_explanation() -> None:
    made, calls = variation(varies=False)
    assert made.look(0, 20, PLAIN) is False
    made.require_explained(OWN)
    assert not calls


def test_atomic_adds_explain_other_bits() -> None:
    made, calls = variation(varies=False)
    assert made.look(3, 20, ADDING) is True
    made.require_explained(OWN)
    assert not calls


def test_other_bits_are_a_race_where_the_reference_never_varies() -> None:
    made, calls = variation(varies=False)
    for _ in range(2):
        with pytest.raises(RunnerFault, match="20 of 20 calls on the same inputs gave other bits, and no atomic add explains it") as caught:
            made.look(20, 20, PLAIN)
        assert caught.value.status is Status.RACY
    assert len(calls) == 21  # asked once for all candidates


def test_a_candidate_may_vary_like_the_reference_where_a_library_does_the_work() -> None:
    made, _ = variation(varies=True)
    assert made.look(20, 20, PLAIN) is True
    made.require_explained(LIBRARY)
    for facts in (OWN, FILLING):
        with pytest.raises(RunnerFault, match="by operators whose work this candidate does itself") as caught:
            made.require_explained(facts)
        assert caught.value.status is Status.RACY
    assert made.look(0, 20, PLAIN) is False
    made.require_explained(OWN)  # the next candidate has nothing to explain
