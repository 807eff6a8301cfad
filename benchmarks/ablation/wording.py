"""Figures with their intervals in words, for pages and for terminals."""

from collections.abc import Callable
from dataclasses import dataclass

from tritonsmith.benchmarks.ablation.schema import IntervalEstimate
from tritonsmith.graph.storage.outcome import digits


@dataclass(frozen=True)
class Wording:
    """How one medium writes figures."""

    missing: str
    """Stands where there is no figure."""
    repeats_units: bool
    """Whether both ends of an interval have the unit of the figure."""

    def factor(self, figure: IntervalEstimate) -> str:
        """`2.10x (1.52 to 2.90)`."""
        return self.write(figure, lambda value: f"{digits(value)}x")

    def share(self, figure: IntervalEstimate) -> str:
        """`67 % (33 to 100)`."""
        return self.write(figure, lambda value: f"{100 * value:.0f} %")

    def write(self, figure: IntervalEstimate, form: Callable[[float], str]) -> str:
        """A figure and its interval; `form` writes one number with its unit."""
        if figure.value is None:
            return self.missing
        if figure.low is None or figure.high is None:
            return form(figure.value)
        low, high = form(figure.low), form(figure.high)
        if not self.repeats_units:
            low, high = low.rstrip("x% "), high.rstrip("x% ")
        return f"{form(figure.value)} ({low} to {high})"


ON_PAGE = Wording(missing="\N{EN DASH}", repeats_units=False)
ON_SCREEN = Wording(missing="-", repeats_units=True)
