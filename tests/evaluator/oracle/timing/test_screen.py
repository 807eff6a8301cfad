"""Every timed output is compared: with the baseline's on the same inputs, and by the oracle where that is unusual."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing import session as timing
from tritonsmith.evaluator.oracle.timing.form_choice import FormChoice
from tritonsmith.evaluator.oracle.timing.paired import Sample, abba
from tritonsmith.evaluator.oracle.timing.screen import Distance, Screen, measure_distances
from tritonsmith.evaluator.oracle.timing.session import TimingSession, _Pairs
from tritonsmith.evaluator.schema import Status

INF = float("inf")


def test_distance_is_a_share_of_the_baselines_root_mean_square() -> None:
    theirs = [torch.full((100,), 2.0)]
    mine = [theirs[0].clone()]
    mine[0][7] += 0.5
    (found,) = measure_distances(mine, theirs)
    assert abs(found.worst - 0.25) < 1e-6 and abs(found.mean - 0.025) < 1e-6
    assert measure_distances(theirs, theirs) == [(0.0, 0.0)]
    huge = [torch.tensor([1e30, 1.0, 2.0])]
    assert measure_distances([torch.tensor([1e30, 0.0, 0.0])], huge)[0].worst > 0.0  # no overflow on the way


UNITS = {
    torch.float32: (1e-35, 1e-25, 1e-13, 1.0, 1e15, 1e30), torch.float64: (1e-140, 1.0, 1e30, 1e200), torch.bfloat16: (1e-30, 1.0, 1e30),
    torch.float16: (1e-2, 1.0, 1e3),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "unit"), [(dtype, unit) for dtype, units in UNITS.items() for unit in units])
def test_a_distance_is_the_same_in_any_unit(dtype: torch.dtype, unit: float) -> None:
    theirs = torch.linspace(-1.0, 1.0, 4096, dtype=torch.float64)
    mine = theirs + 0.1 * torch.linspace(-1.0, 1.0, 4096, dtype=torch.float64) ** 3
    (found,) = measure_distances([(mine * unit).to(dtype)], [(theirs * unit).to(dtype)])
    assert found == ((INF, INF) if unit == 1e200 else pytest.approx((3**0.5 * 0.1, (3 / 7) ** 0.5 * 0.1), rel=0.05))


def test_one_value_whose_square_is_too_large_hides_no_other() -> None:
    theirs = [torch.ones(4096)]
    mine = [theirs[0].clone()]
    theirs[0][0] = mine[0][0] = 1e25
    (near,) = measure_distances(mine, theirs)
    mine[0][1] = 2.0
    (far,) = measure_distances(mine, theirs)
    assert near == (0.0, 0.0) and far.worst > 0.0 and far.mean > 0.0


@pytest.mark.parametrize("value", [float("nan"), INF, -INF])
def test_values_that_are_not_finite_must_be_the_same(value: float) -> None:
    theirs, mine = [torch.ones(4)], [torch.ones(4)]
    mine[0][1] = value
    assert measure_distances(mine, theirs) == measure_distances(theirs, mine) == [(INF, INF)]
    theirs[0][1] = value
    assert measure_distances(mine, theirs) == [(0.0, 0.0)]
    theirs[0][1] = -INF if value == INF else INF
    assert measure_distances(mine, theirs) == [(INF, INF)]


def test_whole_numbers_lie_apart_by_the_largest_difference_and_the_share_that_differs() -> None:
    assert measure_distances([torch.tensor([1, 2, 5, 5])], [torch.tensor([1, 4, 5, 5])]) == [(2.0, 0.5)]
    never_written = torch.full((4,), 200, dtype=torch.uint8).view(torch.bool)
    assert measure_distances([never_written], [torch.tensor([True] * 4)]) == [(199.0, 1.0)]
    assert measure_distances([torch.tensor([True]), torch.empty(0)], [torch.tensor([True]), torch.empty(0)]) == [(0.0, 0.0)] * 2


def test_nothing_is_usual_before_the_oracle_accepted_a_call() -> None:
    screen = Screen()
    assert not screen.is_usual([Distance(0.0, 0.0)])
    screen.accept([Distance(1e-6, 1e-7)])
    assert screen.is_usual([Distance(1.4e-6, 1.4e-7)])
    assert not screen.is_usual([Distance(2e-6, 1e-7)]) and not screen.is_usual([Distance(1e-6, 2e-7)])
    screen.accept([Distance(INF, INF)])  # the place of one of two equal values, say
    assert not screen.is_usual([Distance(INF, INF)]) and not screen.is_usual([Distance(2e-6, 1e-7)])
    screen.accept([Distance(1e-7, 3e-7)])
    assert screen.is_usual([Distance(1.4e-6, 4e-7)])


def test_an_output_that_is_all_noise_hides_no_other() -> None:
    screen, noise, right = Screen(), Distance(1.4, 1.0), Distance(1e-6, 1e-7)
    screen.accept([right, noise])
    assert screen.is_usual([right, noise]) and not screen.is_usual([Distance(1.0, 1.0), noise])


class Timer:
    """A candidate and a baseline that double their inputs; `wrong` says in which of its calls the candidate does not."""

    def __init__(self, wrong: Iterable[int], void: Iterable[int]) -> None:
        self.wrong, self.void = set(wrong), set(void)
        self.baselines = SimpleNamespace(results=[])
        self.results: list[torch.Tensor] = []
        self.calls = 0
        self.seen: list[float] = []
        self.session = cast(Any, None)

    def time_call(self, runner: Any, draw: Any, limit: float, mode: int, delivered: Any) -> Sample:
        self.calls += 1
        for _ in range(2 if self.calls in self.void else 1):
            tensors = draw()
            self.seen.append(float(tensors[0][0]))
        self.results = [tensors[0] * (1.999 if self.calls in self.wrong else 2.0)]
        delivered()
        return Sample(1.0, 1.0)

    def time_baseline(self, name: str, draw: Any, limit: float) -> Sample:
        self.baselines.results = [draw()[0] * 2.0 + 1e-6]
        return Sample(1.0, 1.0)


def session(monkeypatch: pytest.MonkeyPatch, wrong: Iterable[int] = (), void: Iterable[int] = ()) -> tuple[TimingSession, Timer, list[int]]:
    """A session whose oracle refuses wrong calls; the numbers of those that it was asked about."""
    made, timer = object.__new__(TimingSession), Timer(wrong, void)
    made.outputs_per_oracle, made.forms = 6, FormChoice("none here")
    made.timer, made.runner, made.limit, made._calls = cast(Any, timer), cast(Any, timer), 1.0, 0
    made._screens, made._outputs = {"eager": Screen()}, [torch.empty(64)]
    made._inputs = cast(Any, type("Inputs", (), {"next": staticmethod(lambda: [torch.randn(64)])}))
    asked: list[int] = []

    def judge(took: Sample, tensors: list[torch.Tensor], got: list[torch.Tensor]) -> None:
        asked.append(made._calls)
        if not torch.allclose(got[0], tensors[0] * 2, rtol=1e-5):
            raise RunnerFault(Status.CHEATING, "wrong")

    monkeypatch.setattr(made, "_judge", judge)
    monkeypatch.setattr(timing, "require_unchanged", lambda session, tensors: None)
    monkeypatch.setattr(timing.secrets, "randbelow", lambda part: 1)  # nobody is asked by chance
    return made, timer, asked


def take(made: TimingSession, pairs: int) -> None:
    both = _Pairs(made, "eager")
    abba(lambda: both.time_candidate().card, lambda: both.time_baseline().card, pairs)


def test_right_calls_need_the_oracle_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, timer, asked = session(monkeypatch)
    take(made, 20)
    assert asked[:1] == [1] and len(asked) < 4 and len(set(timer.seen)) == len(timer.seen) == 20


@pytest.mark.parametrize("number", [2, 3, 8, 19, 20])
def test_one_wrong_call_in_twenty_is_refused_in_either_order(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    made, _, asked = session(monkeypatch, wrong={number})
    with pytest.raises(RunnerFault, match="wrong"):
        take(made, 20)
    assert asked[-1] == number


def test_a_call_that_is_taken_again_has_inputs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made, timer, asked = session(monkeypatch, void={5, 6})
    take(made, 20)
    assert len(set(timer.seen)) == 22 and 6 in asked  # the sixth follows the baseline's call, whose inputs were lost
    made, _, _ = session(monkeypatch, wrong={6}, void={6})
    with pytest.raises(RunnerFault, match="wrong"):
        take(made, 20)
