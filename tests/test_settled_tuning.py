"""torch.compile's choice of a configuration on a card that wakes up or is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from tritonsmith.evaluator.settled_tuning import settle_tuning, settled


class Clocked:
    """A card whose calls take longer until it is awake, or while somebody disturbs it; a bench takes 25 ms."""

    def __init__(self, factor: Callable[[float], float]) -> None:
        self.now, self.calls, self._factor = 0.0, 0, factor

    def bench(self, launcher: float) -> float:
        self.now += 0.025
        self.calls += 1
        return launcher * self._factor(self.now)


@pytest.mark.parametrize("awake_after", [0.03, 0.1, 0.3])
def test_the_first_configuration_does_not_pay_for_a_card_that_wakes_up(awake_after: float) -> None:
    plain, card = Clocked(lambda now: 1.5 if now < awake_after else 1.0), Clocked(lambda now: 1.5 if now < awake_after else 1.0)
    assert plain.bench(0.070) > 0.084  # timed once, the faster one looks slower
    bench = settled(card.bench, lambda: card.now)
    assert [bench(0.070), bench(0.084)] == [0.070, 0.084]


def test_a_slow_rise_is_waited_for() -> None:
    card = Clocked(lambda now: max(1.0, 1.8 - now))
    bench = settled(card.bench, lambda: card.now)
    assert bench(1.0) == pytest.approx(1.0)


def test_a_disturbance_of_several_benches_decides_nothing() -> None:
    card = Clocked(lambda now: 1.3 if 0.6 < now < 0.7 else 1.0)
    bench = settled(card.bench, lambda: card.now)
    bench(0.084)
    card.now = 0.6
    assert bench(0.070) == 0.070


def test_one_that_cannot_run_is_not_asked_again_and_none_is_timed_for_ever() -> None:
    card = Clocked(lambda now: 1.0)
    assert settled(card.bench, lambda: card.now)(float("inf")) == float("inf") and card.calls == 1
    falling = Clocked(lambda now: 0.9 ** (now / 0.025))
    settled(falling.bench, lambda: falling.now)(1.0)
    assert falling.calls < 100


@pytest.fixture
def restored() -> Iterator[None]:
    bench = CachingAutotuner.bench
    yield
    CachingAutotuner.bench = bench


def test_the_torch_that_is_asked_for_has_the_place(restored: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(CachingAutotuner, "bench", lambda self, launcher: asked.append(launcher) or 1.0)
    settle_tuning()
    settle_tuning()  # a second model in the process
    tuner = object.__new__(CachingAutotuner)
    assert tuner.bench("configuration") == 1.0
    assert len(asked) > 3 and set(asked) == {"configuration"}
