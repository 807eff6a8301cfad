"""Who does the work of a candidate."""

import pytest

from tritonsmith.evaluator.oracle.judge.label import choose_label
from tritonsmith.evaluator.schema import Label, LaunchFacts


@pytest.mark.parametrize(
    ("launches", "share", "backward", "label"),
    [
        (2, 0.95, False, Label.KERNEL),
        (2, 0.5, False, Label.HYBRID),
        (2, 0.02, False, Label.LIBRARY),
        (2, 0.02, True, Label.HYBRID),
        (2, 0.01, True, Label.LIBRARY),
        (2, 0.95, True, Label.KERNEL),
        (0, 0.0, True, Label.LIBRARY),
    ],
)
def test_a_backward_of_the_library_leaves_a_hybrid(launches: int, share: float, backward: bool, label: Label) -> None:
    facts = LaunchFacts(triton_launches=launches, launches_per_forward=launches + 5, own_time_share=share)
    assert choose_label(facts, backward=backward) is label
