"""What a forward took and the least it could take, as numbers and as sentences of an analysis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tritonsmith.author.cards.model import model_card
from tritonsmith.author.cost import Way, count_l2_rate, time_product
from tritonsmith.evaluator.cards.floors import list_bounds, rates_for
from tritonsmith.evaluator.cards.launch_cost import count_launch_seconds
from tritonsmith.evaluator.records.limits import Limit
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts, PrecisionClass, TaskFacts, Verdict
from tritonsmith.prompts.author import Brief


@dataclass(frozen=True)
class Measured:
    """What one forward took, and the least it could take; milliseconds."""

    median_ms: float
    launches: int
    programs: int
    """Grid of the kernel that takes most of the time."""
    launch_ms: float
    """What launches alone take of a timed forward, or the time that no kernel ran where device times are known."""
    memory_ms: float
    compute_ms: float
    one_launch_ms: float
    """The least that any kernel takes."""
    chain_ms: float
    """Steps that depend on each other times the cheapest exchange between programs."""
    chain: int

    @property
    def bounds(self) -> dict[str, float]:
        """The lower bounds by the names that verdicts give them."""
        return {
            Limit.BYTES.value: self.memory_ms, Limit.OPERATIONS.value: self.compute_ms, Limit.LAUNCHES.value: self.one_launch_ms,
            Limit.CHAIN.value: self.chain_ms,
        }  # fmt: skip

    @property
    def floor_ms(self) -> float:
        """The largest of the lower bounds."""
        return max(self.bounds.values())

    @property
    def launch_bound(self) -> bool:
        """Whether launches take a third of the time or more."""
        return self.launch_ms >= self.median_ms / 3

    @property
    def limit(self) -> str:
        """Which bound is the floor."""
        return max(self.bounds, key=lambda name: self.bounds[name])


def measure(verdict: Verdict, facts: TaskFacts, hardware: Hardware, precision: PrecisionClass, chain: int) -> Measured | None:
    """Numbers of a working candidate; None when the verdict has no timing."""
    if verdict.timing is None:
        return None
    kernels = verdict.facts.kernels
    median = verdict.timing.median_ms
    launches = verdict.facts.launches_per_forward or sum(kernel.launches for kernel in kernels)
    launch_ms = count_launch_seconds(launches, in_graph=bool(verdict.timing.form_words)) * 1e3
    busy = _sum_times(verdict.facts)
    if busy is not None and busy < median:
        launch_ms = median - busy
    bounds = list_bounds(facts, rates_for(verdict, hardware), precision, chain)
    return Measured(
        median_ms=median,
        launches=launches,
        programs=_count_dominant_programs(kernels, hardware),
        launch_ms=min(launch_ms, median),
        memory_ms=bounds[Limit.BYTES.value],
        compute_ms=bounds[Limit.OPERATIONS.value],
        one_launch_ms=bounds[Limit.LAUNCHES.value],
        chain_ms=bounds[Limit.CHAIN.value],
        chain=chain,
    )


def _sum_times(facts: LaunchFacts) -> float | None:
    """Milliseconds of the candidate's kernels; None where nobody measured them. Those compiled several times have no time of their own."""
    times = [kernel.device_ms for kernel in facts.kernels]
    known = [one for one in times if one is not None]
    if times and len(known) == len(times):
        return sum(known)
    return facts.device_ms * facts.own_time_share if facts.device_ms and facts.own_time_share else None


def _count_dominant_programs(kernels: Sequence[KernelFacts], hardware: Hardware) -> int:
    """Programs of the kernel that takes most of the time.

    By device time where it is known, else by what its programs have to do.
    """

    timed = all(kernel.device_ms is not None for kernel in kernels)

    def weight(kernel: KernelFacts) -> float:
        if timed and kernel.device_ms is not None:
            return kernel.device_ms
        busy = min(math.prod(kernel.grid), hardware.processors)
        card, share = model_card(hardware), busy / hardware.processors
        moved = ((kernel.bytes_loaded or 0.0) + (kernel.bytes_stored or 0.0)) / (count_l2_rate(card) * busy)
        return kernel.launches * (moved + time_product(card, kernel.flops or 0.0, Way.THREADS, share))

    return math.prod(max(kernels, key=weight).grid) if kernels else 0


def describe_launches(found: Measured) -> str:
    """What share of the time launches take, as a sentence."""
    share = found.launch_ms / found.median_ms
    return f"launch-bound: {found.launches} launches cost {found.launch_ms:.3g} of {found.median_ms:.3g} ms ({share:.0%})"


def describe_idle_processors(found: Measured, brief: Brief) -> str:
    """How many processors stand idle and how long each dependent step takes, as a sentence."""
    processors, steps = brief.hardware.processors, max(1, brief.facts.serial_steps)
    each, idle = found.median_ms * 1e3 / steps, max(0, processors - found.programs)
    return (
        f"the kernel that takes most of the time has {found.programs} programs, so {idle} of {processors} processors stand idle, "
        f"and {steps} steps run one after another ({each:.3g} microseconds each)"
    )
