"""torch.compile's choice of a configuration on a card that wakes up or is busy."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tritonsmith.evaluator.confined.runner import tuning
from tritonsmith.evaluator.confined.runner.tuning import settle_tuning, take_turns

FAST, SLOW = 0.070, 0.084


class Card:
    """One whose calls take longer now and then, by a factor that depends on the second; a bench takes 25 ms."""

    def __init__(self, factor: Callable[[float], float]) -> None:
        self.now, self.calls, self._factor = 0.0, 0, factor

    def bench(self, ms: float) -> float:
        self.now += 0.025
        self.calls += 1
        return ms * self._factor(self.now)

    def choice(self, *configs: float, at_least: float = 0.0) -> float:
        times = take_turns(configs, self.bench, at_least, clock=lambda: self.now)
        return min(configs, key=times.__getitem__)


@pytest.mark.parametrize(
    "factor",
    [
        pytest.param(lambda now: 1.5 if now < 0.03 else 1.0, id="awake after the first bench"),
        pytest.param(lambda now: max(1.0, 1.8 - 8 * now), id="a slow rise"),
        pytest.param(lambda now: 1.3 if now < 0.03 or 0.06 < now < 0.6 else 1.0, id="disturbed for half a second"),
        pytest.param(lambda now: 1.4 if int(now / 0.025) % 2 else 1.0, id="disturbed at every second bench"),
    ],
)
def test_the_faster_configuration_wins_in_either_order(factor: Callable[[float], float]) -> None:
    """The faster configuration is chosen, no matter which comes first."""
    wrong = 0
    for configs in [*itertools.permutations([FAST, SLOW]), *itertools.permutations([FAST, SLOW, 0.090])]:
        once = Card(factor)
        times = {config: once.bench(config) for config in configs}
        wrong += min(configs, key=times.__getitem__) != FAST
        assert Card(factor).choice(*configs, at_least=0.5) == FAST
    assert wrong, "where each is timed once, one of these orders ends with another one"


@pytest.mark.parametrize("seed", range(20))
def test_noise_that_does_not_end_changes_no_order(seed: int) -> None:
    noise = random.Random(seed)
    card = Card(lambda now: noise.uniform(1.0, 1.35))
    assert card.choice(FAST, SLOW) == FAST and card.now < 2.1


def test_a_model_of_many_kernels_is_not_held_up() -> None:
    card = Card(lambda now: 1.0 + 0.4 * now)  # nothing is ever settled
    assert take_turns([FAST, SLOW], card.bench, 0.5, 0.0, lambda: card.now).keys() == {FAST, SLOW} and card.calls == 2


def test_a_quiet_card_is_asked_three_times_each() -> None:
    card = Card(lambda now: 1.0)
    assert card.choice(SLOW, FAST) == FAST and card.calls == 6


def test_broken_configurations_are_not_asked_again() -> None:
    """A configuration that cannot run is not asked again, and none is timed for ever."""
    card = Card(lambda now: 1.0)
    assert take_turns([float("inf"), FAST], card.bench, clock=lambda: card.now) == {float("inf"): float("inf"), FAST: FAST}
    assert card.calls == 4
    falling = Card(lambda now: 0.9 ** (now / 0.025))
    falling.choice(FAST, SLOW)
    assert falling.calls < 100


@dataclass(frozen=True)
class Launcher:
    """What Inductor keeps of a configuration."""

    name: str
    ms: float

    @property
    def config(self) -> str:
        return self.name


@pytest.fixture
def tuner() -> Iterator[type]:
    """The class of the installed torch, put back afterwards."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # seconds, which no other test of this file needs

    kept = CachingAutotuner.benchmark_all_configs, CachingAutotuner.bench
    yield CachingAutotuner
    CachingAutotuner.benchmark_all_configs, CachingAutotuner.bench = kept


def one_with(tuner: Any, card: Card, closed: list[str]) -> Any:
    """One of the installed torch, with a fast and a slow configuration."""
    tuner.bench = lambda self, launcher, *args: time.sleep(0.01) or card.bench(launcher.ms)
    one = object.__new__(tuner)
    one.launchers = [Launcher("fast", FAST), Launcher("slow", SLOW)]
    one.compile_id, one.is_backward, one.inductor_meta = None, False, {}
    one.coordesc_tuner = SimpleNamespace(cache_benchmark_result=lambda config, ms: None)
    one._close_static_launcher = lambda launcher: closed.append(launcher.name)
    one.reset_to_zero_args = lambda *args: None
    return one


def test_the_torch_that_is_asked_for_chooses_so(tuner: Any) -> None:
    closed: list[str] = []
    settle_tuning()
    settle_tuning()  # a second model of the process
    one = one_with(tuner, Card(lambda now: 1.5 if now < 0.03 else 1.0), closed)
    times = {launcher.name: ms for launcher, ms in one.benchmark_all_configs("arguments").items()}
    assert times == {"fast": FAST, "slow": SLOW} and closed in (["slow"], [])  # a torch before 2.13 leaves both open
    assert "bench" not in vars(one)


def test_without_time_left_each_is_timed_once(tuner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time for all kernels is over, each is timed once."""
    monkeypatch.setattr(tuning, "_ALL_SECONDS", 0.0)
    settle_tuning()
    card = Card(lambda now: 1.0)
    one_with(tuner, card, []).benchmark_all_configs("arguments")
    assert card.calls == 2
