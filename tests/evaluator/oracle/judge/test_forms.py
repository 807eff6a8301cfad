"""Whether a candidate's CUDA graph counts, and what comes of a fault of one: no card is needed to decide that."""

from typing import Any

import pytest

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, CUDA_GRAPH
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge.forms import Attempts, find_other_work
from tritonsmith.evaluator.oracle.timing.baselines import Blamed
from tritonsmith.evaluator.schema import Status

CALLED = {"device": {"norm": (2, 0.01), "gelu": (1, 0.01), "sgemm": (4, 0.2), "Memcpy DtoD": (1, 0.001)}}


class Witness:
    """Says what a test says of the graph, and counts how often it is asked."""

    def __init__(self, problem: str = "") -> None:
        self.problem, self.asked = problem, 0

    def look_at_graph(self, called: dict[str, Any], limit: float) -> tuple[str, dict[str, Any]]:
        self.asked += 1
        return self.problem, {"device": {"in the graph": (1, 0.5)}, "busy_ms": 0.5}


def test_a_graph_counts_only_with_the_kernels_of_a_call() -> None:
    """Names and counts are compared; copies, which a graph may make by other means, are not."""
    assert find_other_work(CALLED, {"device": {"norm": (2, 0.02), "gelu": (1, 0.01), "sgemm": (4, 0.3)}}) == ""
    assert "sgemm 5 times, a call 4 times" in find_other_work(CALLED, {"device": {"norm": (2, 0.0), "gelu": (1, 0.0), "sgemm": (5, 0.0)}})
    assert "library 1 time, a call 0 times" in find_other_work(CALLED, {"device": {"library": (1, 0.1)}})
    assert "norm 0 times" in find_other_work(CALLED, {"device": {"gelu": (1, 0.0), "sgemm": (4, 0.0)}})
    assert find_other_work(CALLED, {}) and find_other_work(CALLED, {"device": {"norm": "many"}})  # no report of ours
    many = {"device": {str(number): (1, 0.1) for number in range(60)}}
    assert "more kinds" in find_other_work(many, many)


@pytest.mark.parametrize(
    ("report", "witness", "chosen", "noted"),
    [
        (CALLED, Witness(), "", ""),  # both forms are timed
        (CALLED, Witness("it cannot be captured"), AS_CALLED, "it cannot be captured"),
        (None, Witness(), AS_CALLED, "no second process"),
        (CALLED, None, AS_CALLED, "no second process"),
        ({"device": {"one": (1, 0.1), "two": (1, 0.1), "Memset": (9, 0.1)}}, Witness("not asked"), AS_CALLED, ""),
    ],
)
def test_when_the_graph_is_tried(report: dict[str, Any] | None, witness: Witness | None, chosen: str, noted: str) -> None:
    attempts = Attempts()
    attempts.look_at_graph(witness, report, 1.0)
    assert attempts.form.chosen == chosen and noted in " ".join(attempts.all_notes) and bool(attempts.all_notes) is bool(noted)


def test_a_fault_of_a_replay_leaves_the_graph_out_and_one_as_called_stands() -> None:
    attempts = Attempts()
    assert not attempts.try_again(RunnerFault(Status.CHEATING, "a timed call gave a wrong result"))
    attempts.form.running = CUDA_GRAPH
    assert not attempts.try_again(RunnerFault(Status.TIMEOUT, "too slow"))
    assert attempts.try_again(RunnerFault(Status.CHEATING, "a timed call gave a wrong result"))
    assert attempts.form.chosen == attempts.form.running == AS_CALLED and "gave a wrong result" in attempts.all_notes[0]
    witness = Witness()
    attempts.look_at_graph(witness, CALLED, 1.0)
    assert witness.asked == 0 and attempts.form.chosen == AS_CALLED
    assert not attempts.try_again(RunnerFault(Status.CHEATING, "a timed call gave a wrong result"))


def test_nobody_is_blamed_for_calls_that_cannot_be_timed_once() -> None:
    """A host's bad moment does not come twice in fresh processes."""
    attempts = Attempts()
    blamed = Blamed(Status.CHEATING, "the candidate answers while the card belongs to another process")
    assert attempts.try_again(blamed) and not attempts.try_again(blamed)
    assert "measured again in fresh processes" in attempts.all_notes[0] and attempts.form.chosen == ""


def test_texts_that_ran_in_a_graph_are_kept_for_races() -> None:
    attempts, kept = Attempts(), {"other"}
    attempts.form.running = CUDA_GRAPH
    attempts.conclude(kept, "this")
    assert kept == {"other", "this"} and not attempts.try_again(RunnerFault(Status.CHEATING, "below the floor"))
    attempts.conclude(kept, "this")
    assert kept == {"other"}


def test_the_label_rests_on_what_is_timed() -> None:
    """Kernels of the same names may share the work in another way in a replay: it counts where a replay is timed."""
    attempts = Attempts()
    attempts.look_at_graph(Witness(), CALLED, 1.0)
    report = CALLED | {"kernels": [], "busy_ms": 0.1}
    attempts.form.choose({AS_CALLED: [0.4], CUDA_GRAPH: [0.1]})
    assert attempts.form.facts_of(report) == {"device": {"in the graph": (1, 0.5)}, "busy_ms": 0.5, "kernels": []}
    attempts.form.choose({AS_CALLED: [0.4], CUDA_GRAPH: [0.4]})
    assert attempts.form.facts_of(report) == report
