"""The built-in analyst: what a kernel's measured facts say about why it is slow, and which recipe removes that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tritonsmith.evaluator.estimate import L2_BYTES_PER_CLOCK, ROUND, TRITON_CALL, Band
from tritonsmith.evaluator.schema import Hardware, KernelFacts, PrecisionClass, TaskFacts, Verdict
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.recipes.book import BOOK, Match, Recipe
from tritonsmith.prompts.recipes.plans import GruPlan

Evidence = dict[str, float | int | str]
WORTH = 1.10
"""A gain below 10 % is not worth a new kernel."""
_SPLIT_PRODUCTS = 3
"""fp16 products that one product at fp32 accuracy takes on tensor cores."""


def middle(band: Band) -> float:
    """Geometric middle of a constant's band."""
    return math.sqrt(band.low * band.high)


@dataclass(frozen=True)
class Measured:
    """What one forward took, and the least it could take; milliseconds."""

    median_ms: float
    launches: int
    programs: int
    """Grid of the kernel that takes most of the time."""
    launch_ms: float
    """Launches times the cost of one, or the time that no kernel ran where device times are known."""
    memory_ms: float
    compute_ms: float
    chain_ms: float
    """Steps that depend on each other times the cheapest exchange between programs."""
    chain: int

    @property
    def floor_ms(self) -> float:
        """The largest of the three lower bounds."""
        return max(self.memory_ms, self.compute_ms, self.chain_ms)

    @property
    def launch_bound(self) -> bool:
        """Whether launches take a third of the time or more."""
        return self.launch_ms >= self.median_ms / 3

    @property
    def limit(self) -> str:
        """Which bound is the floor."""
        bounds = {"memory": self.memory_ms, "arithmetic": self.compute_ms, "the chain of steps": self.chain_ms}
        return max(bounds, key=lambda name: bounds[name])


def chain_steps(match: Match, facts: TaskFacts) -> int:
    """Steps of the shortest schedule: time steps plus layers minus one for a stack run as a wavefront."""
    plan = match.plan
    return plan.steps + plan.num_layers - 1 if isinstance(plan, GruPlan) else facts.serial_steps


def measure(verdict: Verdict, facts: TaskFacts, hardware: Hardware, precision: PrecisionClass, chain: int) -> Measured | None:
    """Numbers of a working candidate; None when the verdict has no timing."""
    if verdict.timing is None:
        return None
    kernels = verdict.facts.kernels
    median = verdict.timing.median_ms
    launches = verdict.facts.launches_per_forward or sum(kernel.launches for kernel in kernels)
    launch_ms = launches * middle(TRITON_CALL) * 1e3
    device = [kernel.device_ms for kernel in kernels if kernel.device_ms is not None]
    if kernels and len(device) == len(kernels) and sum(device) < median:
        launch_ms = median - sum(device)
    rate = max(hardware.fp32, hardware.fp16 / _SPLIT_PRODUCTS) if precision is PrecisionClass.IEEE else hardware.tf32
    return Measured(
        median_ms=median,
        launches=launches,
        programs=_programs_of_dominant(kernels, hardware),
        launch_ms=min(launch_ms, median),
        memory_ms=facts.min_bytes / hardware.bandwidth * 1e3,
        compute_ms=facts.flops / rate * 1e3,
        chain_ms=chain * ROUND.low * 1e3 if chain > 1 else 0.0,
        chain=chain,
    )


def _programs_of_dominant(kernels: Sequence[KernelFacts], hardware: Hardware) -> int:
    """Programs of the kernel that takes most of the time: by device time where it is known, else by what its programs have to do."""

    def weight(kernel: KernelFacts) -> float:
        if kernel.device_ms is not None:
            return kernel.device_ms
        busy = min(math.prod(kernel.grid), hardware.processors)
        moved = ((kernel.bytes_loaded or 0.0) + (kernel.bytes_stored or 0.0)) / (middle(L2_BYTES_PER_CLOCK) * hardware.clock_hz * busy)
        return kernel.launches * (moved + (kernel.flops or 0.0) * hardware.processors / (hardware.fp32 * busy))

    return math.prod(max(kernels, key=weight).grid) if kernels else 0


def analyze(brief: Brief, match: Match) -> Analysis:
    """Name the bottleneck of `brief.current` and the one recipe, of those not tried, that should be fastest."""
    attempt = brief.current
    verdict = attempt.verdict if attempt else None
    chain = chain_steps(match, brief.facts)
    found = measure(verdict, brief.facts, brief.hardware, brief.task.precision, chain) if verdict else None
    if attempt is None or found is None:
        return _no(brief, "there is no timing of this kernel", "nothing is known about its speed", {})
    evidence = _evidence(found, brief)
    if found.median_ms <= WORTH * found.floor_ms:
        text = f"{found.median_ms:.3g} ms is within 10 % of the card's limit, {found.floor_ms:.3g} ms by {found.limit}"
        return _no(brief, text, text, evidence)
    tried = {attempt.candidate.recipe, *(earlier.candidate.recipe for earlier in brief.history)}
    level = BOOK[attempt.candidate.recipe].level if attempt.candidate.recipe in BOOK else -1
    left = [recipe for recipe in match.recipes if recipe.level > level and recipe.name not in tried]
    if not left:
        bound = f"{found.median_ms:.3g} ms against a floor of {found.floor_ms:.3g} ms by {found.limit}"
        return _no(brief, bound, f"no other algorithm is in the recipe book; what remains is tuning ({bound})", evidence)
    predicted = {recipe.name: _predicted(recipe, match, found, brief) for recipe in left}
    evidence |= {f"predicted_ms_{name}": round(value, 4) for name, value in predicted.items()}
    target = min(left, key=lambda recipe: predicted[recipe.name])
    return _proposal(target, found, match, brief, found.median_ms / predicted[target.name], evidence)


def _predicted(recipe: Recipe, match: Match, found: Measured, brief: Brief) -> float:
    """Milliseconds that the recipe should take, by the constants of the estimate."""
    plan, hardware = match.plan, brief.hardware
    if recipe.name == "gru_persistent_batch" and isinstance(plan, GruPlan):
        per_clock = middle(L2_BYTES_PER_CLOCK)
        step = 3 * plan.hidden_size**2 * 4 / (per_clock * hardware.clock_hz)
        waves = -(-plan.batch // hardware.processors)
        return (plan.steps * plan.num_layers * step * waves + 2 * plan.num_layers * middle(TRITON_CALL)) * 1e3
    if recipe.name == "gru_wavefront":
        settings = recipe.defaults(plan, hardware, brief.task.precision) or {}
        rounds = _groups(plan, settings) * found.chain
        return max(rounds * middle(ROUND) * 1e3, found.memory_ms, found.compute_ms)
    return max(found.floor_ms, middle(TRITON_CALL) * 1e3)


def _groups(plan: object, settings: dict[str, int | float | bool | str]) -> int:
    """Launches one after another that a stack takes: groups of layers times blocks of batch rows."""
    if not isinstance(plan, GruPlan) or not settings:
        return 1
    return -(-plan.num_layers // int(settings["layers_per_launch"])) * -(-plan.batch // int(settings["batch_block"]))


def _evidence(found: Measured, brief: Brief) -> Evidence:
    return {
        "median_ms": round(found.median_ms, 4),
        "launches_per_forward": found.launches,
        "launch_ms": round(found.launch_ms, 4),
        "launch_share": round(found.launch_ms / found.median_ms, 3),
        "programs": found.programs,
        "processors": brief.hardware.processors,
        "flops": brief.facts.flops,
        "min_bytes": brief.facts.min_bytes,
        "compute_ms": round(found.compute_ms, 4),
        "memory_ms": round(found.memory_ms, 4),
        "serial_steps": brief.facts.serial_steps,
        "shortest_chain": found.chain,
        "chain_ms": round(found.chain_ms, 4),
        "floor_ms": round(found.floor_ms, 4),
        "limit": found.limit,
    }


def _proposal(target: Recipe, found: Measured, match: Match, brief: Brief, expected: float, evidence: Evidence) -> Analysis:
    plan = match.plan
    if target.name == "gru_persistent_batch" and isinstance(plan, GruPlan):
        change = _time_loop_inside(plan, found, brief)
    elif target.name == "gru_wavefront" and isinstance(plan, GruPlan):
        change = _wavefront(target, plan, found, brief)
    else:
        change = _fusion(found)
    worth = expected >= WORTH
    reason = f"{expected:.2f}x expected; the floor is {found.floor_ms:.3g} ms by {found.limit}"
    return change.model_copy(
        update={
            "expected_speedup": round(expected, 2),
            "worth_optimizing": worth,
            "reason": reason if worth else f"{reason}: less than 10 %",
            "kernel_type": target.name,
            "fallback_strategy": "keep the current kernel",
            "returns": brief.facts.returns,
            "evidence": evidence,
        }
    )


def _launches(found: Measured) -> str:
    share = found.launch_ms / found.median_ms
    return f"launch-bound: {found.launches} launches cost {found.launch_ms:.3g} of {found.median_ms:.3g} ms ({share:.0%})"


def _grid(found: Measured, brief: Brief) -> str:
    processors, steps = brief.hardware.processors, max(1, brief.facts.serial_steps)
    each, idle = found.median_ms * 1e3 / steps, max(0, processors - found.programs)
    return (
        f"the kernel that takes most of the time has {found.programs} programs, so {idle} of {processors} processors stand idle, "
        f"and {steps} steps run one after another ({each:.3g} microseconds each)"
    )


def _time_loop_inside(plan: GruPlan, found: Measured, brief: Brief) -> Analysis:
    return Analysis(
        bottleneck=_launches(found) if found.launch_bound else _grid(found, brief),
        optimisation_method="put the time loop inside the kernel: one recurrent launch per layer",
        modification_plan=f"Compute the input side of all {plan.steps} steps of a layer in one product; run the {plan.steps} steps of the "
        "recurrent side in one kernel, one program per batch row, which reads back only what it stored itself.",
        category=Category.LAUNCHES,
        implementation_complexity=Complexity.PERSISTENT,
        promise=Promise(metric="launches_per_forward", before=found.launches, bound=4 * plan.num_layers),
    )


def _wavefront(target: Recipe, plan: GruPlan, found: Measured, brief: Brief) -> Analysis:
    settings = target.defaults(plan, brief.hardware, brief.task.precision) or {}
    slices = -(-plan.hidden_size // int(settings["slice"]))
    programs = 2 * slices * min(plan.num_layers, int(settings["layers_per_launch"]))
    if found.launch_bound:  # one launch and one fill of the counters per group
        promise = Promise(metric="launches_per_forward", before=found.launches, bound=4 * _groups(plan, settings))
    else:
        promise = Promise(metric="programs", before=found.programs, bound=programs, at_most=False)
    return Analysis(
        bottleneck=_launches(found) if found.launch_bound else _grid(found, brief),
        optimisation_method="time loop inside the kernel, all layers as a wavefront in one launch, hidden units spread over the processors",
        modification_plan=f"{programs} co-resident programs, each with {settings['slice']} hidden units of one layer whose weights stay on "
        "the chip; they exchange h through fresh slots with release and acquire; "
        f"the chain shrinks from {brief.facts.serial_steps} to {found.chain} steps.",
        category=Category.LAUNCHES if found.launch_bound else Category.ALGORITHM,
        implementation_complexity=Complexity.PERSISTENT,
        promise=promise,
    )


def _fusion(found: Measured) -> Analysis:
    return Analysis(
        bottleneck=f"{found.launches} launches pass intermediate results through memory: {found.median_ms:.3g} ms, where reading every "
        f"operand and writing the result once takes {found.memory_ms:.3g} ms",
        optimisation_method="fuse the chain into one kernel",
        modification_plan="Read every operand once, keep intermediate values in registers, write the result once.",
        category=Category.FUSION,
        implementation_complexity=Complexity.LOW,
        promise=Promise(metric="launches_per_forward", before=found.launches, bound=1),
    )


def _no(brief: Brief, bottleneck: str, reason: str, evidence: Evidence) -> Analysis:
    limit = str(evidence.get("limit", ""))
    return Analysis(
        bottleneck=bottleneck,
        optimisation_method="none",
        modification_plan="keep the kernel",
        category=Category.MEMORY if limit == "memory" else Category.ALGORITHM,
        expected_speedup=1.0,
        worth_optimizing=False,
        reason=reason,
        implementation_complexity=Complexity.LOW,
        kernel_type=brief.current.candidate.recipe if brief.current else "",
        returns=brief.facts.returns,
        evidence=evidence,
    )
