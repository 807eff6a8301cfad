"""What limits a kernel, from its verdict: launches, memory, arithmetic, or waiting. Every figure used stands in the evidence."""

from __future__ import annotations

from tritonsmith.evaluator.cards.floors import Rates, choose_rate, count_bytes
from tritonsmith.evaluator.cards.launch_cost import count_host_seconds, count_launch_seconds
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, TaskFacts, Timing, TimingKind
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit

_HALF = 0.5
"""From this share of the time on, launches are what a kernel waits for."""
_BOUND_SHARE = 0.4
"""From this share of a card's limit on, the limit is what bounds the kernel."""


def find_bound(facts: LaunchFacts, task: TaskFacts, hardware: Hardware, timing: Timing) -> TraitHit | None:
    """The one limit that explains the latency; None for a latency of zero."""
    seconds = timing.median_ms / 1e3
    if seconds <= 0:
        return None
    kind = "" if timing.kind is TimingKind.MEASURED else " (estimated)"
    took = f"{timing.median_ms:.4g} ms{kind}" + (" in a CUDA graph" if timing.form_words else "")
    if hit := _find_launch_bound(facts, timing, took):
        return hit
    moved, rate = count_bytes(facts, task), choose_rate(facts, task, Rates.of(hardware))
    memory, compute = moved / hardware.bandwidth / seconds, task.flops / rate / seconds
    dram, counted = _read_counters(facts)
    if dram is not None and dram / 100.0 > max(memory, compute, _BOUND_SHARE):
        return TraitHit(name=Trait.MEMORY_BOUND, evidence=f"{dram:.0f} % of {hardware.name}'s memory throughput in {took}; {counted}")
    if max(memory, compute) < _BOUND_SHARE:
        return TraitHit(name=Trait.LATENCY_BOUND, evidence=_describe_waiting(facts, task, seconds, took, memory, compute) + _also(counted))
    if memory >= compute:
        text = f"at least {moved / 1e6:.4g} MB in {took}: {memory:.0%} of {hardware.name}'s {hardware.bandwidth / 1e12:.3g} TB/s"
        return TraitHit(name=Trait.MEMORY_BOUND, evidence=text + _also(counted))
    text = f"{task.flops / 1e9:.4g} GFLOP in {took}: {compute:.0%} of {hardware.name}'s {rate / 1e12:.3g} TFLOP/s"
    return TraitHit(name=Trait.COMPUTE_BOUND, evidence=text + _also(counted))


def _read_counters(facts: LaunchFacts) -> tuple[float | None, str]:
    """The memory throughput that Nsight Compute counted, in percent, and all that it counted of the longest kernel; nothing without it."""
    counters = facts.counters
    if counters is None or counters.source != "ncu" or not counters.kernels:
        return None, ""
    longest = max(counters.kernels, key=lambda kernel: kernel.ms or 0.0)
    return counters.mean("dram_throughput"), f"Nsight Compute counted for {longest.name}: {longest.words}"


def _also(counted: str) -> str:
    return f"; {counted}" if counted else ""


def _find_launch_bound(facts: LaunchFacts, timing: Timing, took: str) -> TraitHit | None:
    launches, seconds = facts.launches_per_forward, timing.median_ms / 1e3
    if launches < 2:
        return None
    measured = [kernel.device_ms for kernel in facts.kernels if kernel.device_ms is not None]
    share = facts.own_time_share
    busy_ms = facts.device_ms or (sum(measured) / share if measured and share else 0.0)  # a kernel compiled several times has no time
    if busy_ms:
        busy = min(1.0, busy_ms / 1e3 / seconds)
        if busy < _HALF:
            text = f"{launches} launch{'es' * (launches != 1)} in {took}; the card is busy for {busy:.0%} of it"
            return TraitHit(name=Trait.LAUNCH_BOUND, evidence=text)
        return None
    own = facts.triton_launches or sum(kernel.launches for kernel in facts.kernels)
    library, in_graph = max(0, launches - own), bool(timing.form_words)
    alone = count_launch_seconds(own, library, in_graph=in_graph)
    host = 0.0 if in_graph else count_host_seconds(own, library)
    if alone < _HALF * seconds and host < seconds:  # a timed forward is queued while the card is held
        return None
    each, empty = seconds / launches * 1e6, max(alone, host) / launches * 1e6
    cost = f"and the host takes {empty:.3g} to start one" if host > alone else f"{empty:.3g} if they did nothing"
    text = f"{launches} launch{'es' * (launches != 1)} in {took}: {each:.3g} microseconds each, {cost}"
    return TraitHit(name=Trait.LAUNCH_BOUND, evidence=text)


def _describe_waiting(facts: LaunchFacts, task: TaskFacts, seconds: float, took: str, memory: float, compute: float) -> str:
    shares = f"{memory:.0%} of the memory limit and {compute:.0%} of the arithmetic limit in {took}"
    rounds = max((kernel.sync_rounds or 0 for kernel in facts.kernels), default=0)
    if rounds > 1:
        return f"{shares}; programs wait for each other {rounds} times, {seconds / rounds * 1e6:.3g} microseconds a round"
    if task.serial_steps > 1:
        return f"{shares}; {task.serial_steps} steps follow each other, {seconds / task.serial_steps * 1e6:.3g} microseconds each at most"
    return f"{shares}; {facts.launches_per_forward} launch{'es' * (facts.launches_per_forward != 1)}"
