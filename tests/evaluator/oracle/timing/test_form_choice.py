"""Which form of a candidate is timed: decided by its first session alone, and for the graph only beyond noise."""

from typing import Any, cast

import pytest

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, CUDA_GRAPH, Command
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing.form_choice import FormChoice, choose_hold_ms, measure_host_ms, settle_form
from tritonsmith.evaluator.oracle.timing.pair_plan import PairPlan
from tritonsmith.evaluator.schema import Status


class Runner:
    """A runner whose forward can be captured, or not."""

    def __init__(self, problem: str = "") -> None:
        self.problem, self.captures = problem, 0
        self.done: list[Command] = []

    def capture(self, limit: float) -> str:
        self.captures += 1
        return self.problem

    def command(self, command: Command, *, timeout: float) -> float:
        self.done.append(command)
        return {Command.CALL: 0.45, Command.DELIVER: 3.0, Command.EMPTY: 0.06}[command]


def settle(forms: FormChoice, runner: Runner, called: float, replayed: float) -> tuple[dict[str, list[float]], list[tuple[str, bool]]]:
    made: list[tuple[str, bool]] = []

    def call(*, judged: bool) -> float:
        made.append((forms.running, judged))
        return replayed if forms.running == CUDA_GRAPH else called

    return settle_form(forms, cast(Any, runner), 1.0, call), made


@pytest.mark.parametrize(
    ("called", "replayed", "chosen"),
    [(0.4, 0.1, CUDA_GRAPH), (0.4, 0.392, AS_CALLED), (0.1, 0.3, AS_CALLED), (0.02, 0.0185, AS_CALLED), (0.02, 0.015, CUDA_GRAPH)],
)
def test_the_graph_is_taken_where_it_is_faster_by_more_than_noise(called: float, replayed: float, chosen: str) -> None:
    forms, runner = FormChoice(), Runner()
    samples, made = settle(forms, runner, called, replayed)
    assert forms.chosen == forms.running == chosen
    assert set(samples[AS_CALLED]) == {called} and set(samples[CUDA_GRAPH]) == {replayed}
    assert [made.index((form, True)) for form in (AS_CALLED, CUDA_GRAPH)] == [0, 5]  # the first call of each form is judged at any cost
    settle(forms, Runner(), replayed, called)  # a further session, whose times say the opposite
    assert forms.chosen == forms.running == chosen


@pytest.mark.parametrize(("replayed", "chosen"), [(0.41, CUDA_GRAPH), (0.42, AS_CALLED)])
def test_after_a_disturbed_take_of_calls_replays_are_timed_where_they_are_as_fast(replayed: float, chosen: str) -> None:
    forms = FormChoice()
    samples, _ = settle(forms, Runner(), 0.4, replayed)
    assert forms.chosen == AS_CALLED and forms.leave_calls(samples) is (chosen == CUDA_GRAPH)
    assert forms.chosen == forms.running == chosen and not forms.leave_calls(samples)


def test_as_called_nothing_is_captured() -> None:
    forms, runner = FormChoice("it waits for the card"), Runner()
    assert settle(forms, runner, 0.4, 0.1)[0] == {} and runner.captures == 0 and forms.running == AS_CALLED


def test_a_process_in_which_capturing_fails_is_not_called_any_more() -> None:
    forms = FormChoice()
    with pytest.raises(RunnerFault, match="captured in another process before: cudaError") as found:
        settle(forms, Runner("cudaErrorStreamCaptureInvalidated"), 0.4, 0.1)
    assert found.value.status is Status.RUNTIME_ERROR and forms.running == CUDA_GRAPH  # whose fault it is


def test_what_a_call_costs_the_host() -> None:
    runner = Runner()
    assert measure_host_ms(cast(Any, runner), 1.0) == pytest.approx(0.39)
    assert runner.done.count(Command.DELIVER) == runner.done.count(Command.CALL)  # its buffers are put back


def test_the_card_is_held_for_longer_where_the_host_needs_it() -> None:
    """A forward of many launches that cannot be captured leaves fewer gaps; a replay needs no more than usual."""
    called = FormChoice("it waits for the card")
    assert [choose_hold_ms(called, host_ms) for host_ms in (0.05, 0.5, 9.0)] == [0.5, pytest.approx(0.65), 0.9]
    graph = FormChoice()
    graph.choose({AS_CALLED: [0.4], CUDA_GRAPH: [0.1]})
    assert choose_hold_ms(graph, 9.0) == 0.5


def test_short_calls_have_thirty_pairs_that_count() -> None:
    """Where calls are left out because the clocks disagree, more are taken, up to three times as many as planned."""
    plan = PairPlan.make({"eager": 0.9, "cuda_graph": 0.3}, 12, "quick")
    assert plan.needed == 30 and plan.pairs == {"eager": 6, "cuda_graph": 12}
    assert plan.count_open(12, 12, far_slower=False) == 18
    assert plan.count_open(30, 30, far_slower=False) <= 0
    assert plan.count_open(30, 9, far_slower=False) == 22 and plan.count_open(90, 9, far_slower=False) <= 0
    assert plan.count_open(16, 16, far_slower=True) == 14
    long = PairPlan.make({"eager": 400.0}, 80, "quick")
    assert long.needed == 12 and long.count_open(12, 4, far_slower=False) == 8
