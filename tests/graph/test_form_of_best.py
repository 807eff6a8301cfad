"""What the header of `best.py` says of a kernel that was measured in a CUDA graph."""

import textwrap

import pytest

from tritonsmith.evaluator.schema import Timing, TimingKind
from tritonsmith.graph.storage.header import describe_form

TIMING = Timing(kind=TimingKind.MEASURED, median_ms=0.06, baselines_ms={"eager": 0.3}, baseline="eager", score=5.0, score_eager=5.0)
SPEC = {"shape": [4, 8], "dtype": "float32"}


@pytest.mark.parametrize(("inputs", "call"), [([SPEC], "model(x)"), ([SPEC, SPEC], "model(x0, x1)"), ([], "model(*inputs)")])
def test_the_header_says_how_to_have_the_graph(inputs: list[object], call: str) -> None:
    """It says what a call costs without one, and its lines are Python."""
    assert describe_form(TIMING, {"inputs": inputs}) == []
    timing = TIMING.model_copy(update={"form": "cuda_graph", "forms_ms": {"as_called": 0.21, "cuda_graph": 0.06}, "host_ms": 0.394})
    first, *lines = describe_form(timing, {"inputs": inputs})
    assert first.startswith("measured in a CUDA graph; as called 0.21 ms on the card, 0.394 ms of host time. ")
    assert sum(call in line for line in lines) == 2 and lines[-1].count(".copy_(") == len(inputs)
    if inputs:
        compile(textwrap.dedent("\n".join(lines)), "header", "exec")
