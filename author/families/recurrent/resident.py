"""The recipes of recurrent stacks whose programs wait for each other, so that all of them must be on the card at once.

The wavefront comes first. Where it cannot be had, the layers run one after another: in two directions a layer needs the whole sequence
below it, and a wide stack has too many programs. Where not even one layer's programs fit, neither recipe is offered.
"""

from __future__ import annotations

from tritonsmith.author.cost import time_launches, time_rounds
from tritonsmith.author.families.recurrent.plan import RecurrentPlan
from tritonsmith.author.measured import Measured, describe_idle_processors, describe_launches
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.recipe import Recipe, Settings
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief

_SHARED_SLACK = 8 << 10
"""Bytes of shared memory that a compiled kernel takes for layout changes, beyond its operand tiles."""


def describe_bottleneck(found: Measured, brief: Brief) -> str:
    """Launches or idle processors, whichever takes the time."""
    return describe_launches(found) if found.launch_bound else describe_idle_processors(found, brief)


def _list_slices(plan: RecurrentPlan, precision: PrecisionClass, **rest: int) -> list[Settings]:
    """Settings with slices from narrow to wide. Narrow ones need more programs, and each has a shorter product in every step.

    Slices whose tile has fewer rows than a tensor core's instruction are left out, and so are those that are narrower than a short
    product needs: they save nothing.
    """
    parts = 1 if precision.allows_tf32 else 2
    rows = {slice_: parts * plan.tile_gates * slice_ for slice_ in (8, 16, 32)}
    short = [slice_ for slice_, count in rows.items() if count * _power_of_two(plan.hidden_size) <= plan.card.fits.families.short_product]
    useful = [slice_ for slice_, count in rows.items() if count >= plan.card.instruction_rows and slice_ >= max(short, default=0)] or [32]
    first: Settings = {"parts": parts, **rest, "batch_block": 16}
    return [{"slice": slice_, **first, "num_warps": 8 if slice_ >= 32 else 4} for slice_ in useful]


def _wavefront_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """The narrowest slices with which one launch has all layers; where there are none, the widest that fit."""
    assert isinstance(plan, RecurrentPlan)
    completed = [_complete_wavefront(plan, settings, hardware) for settings in _list_slices(plan, precision, layers_per_launch=1)]
    fitting = [settings for settings in completed if _wavefront_fits(plan, settings, hardware)]
    whole = [settings for settings in fitting if int(settings["layers_per_launch"]) >= plan.num_layers]
    return next(iter([*whole, *reversed(fitting)]), None)


def _complete_wavefront(plan: KernelPlan, settings: Settings, hardware: Hardware) -> Settings:
    """As many layers in one launch as have all their programs resident, one per processor."""
    assert isinstance(plan, RecurrentPlan)
    layers = hardware.processors // (2 * _count_slices(plan, settings))
    return _limit_rows(plan, settings, hardware) | {"layers_per_launch": max(1, layers)}


def _limit_rows(plan: KernelPlan, settings: Settings, hardware: Hardware) -> Settings:
    """No room for more rows than there are."""
    assert isinstance(plan, RecurrentPlan)
    return settings | {"batch_block": min(int(settings["batch_block"]), max(16, _power_of_two(plan.batch)))}


def _wavefront_fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """One direction, all programs resident at once."""
    assert isinstance(plan, RecurrentPlan)
    shared = _count_shared_bytes(plan, settings, max(plan.hidden_size, plan.input_size))
    return plan.directions == 1 and _count_programs(plan, settings) <= hardware.processors and shared <= hardware.shared_per_block


def _count_slices(plan: RecurrentPlan, settings: Settings) -> int:
    return -(-plan.hidden_size // int(settings["slice"]))


def _count_programs(plan: RecurrentPlan, settings: Settings) -> int:
    """Programs of one launch: two for each slice of each layer, for its input side and its recurrent side."""
    return 2 * _count_slices(plan, settings) * min(plan.num_layers, int(settings["layers_per_launch"]))


def _count_launches(plan: RecurrentPlan, settings: Settings) -> int:
    """Launches one after another that a stack takes: groups of layers times blocks of batch rows."""
    return -(-plan.num_layers // int(settings["layers_per_launch"])) * -(-plan.batch // int(settings["batch_block"]))


def _count_shared_bytes(plan: RecurrentPlan, settings: Settings, inner: int) -> int:
    """Bytes of shared memory of a program: its weight tile and the h (or x) it multiplies, with `inner` columns each."""
    columns, parts = max(32, _power_of_two(inner)), int(settings["parts"])
    batch = max(16, _power_of_two(min(plan.batch, int(settings["batch_block"]))))
    return plan.part_bytes * parts * columns * (plan.tile_gates * int(settings["slice"]) + batch) + _SHARED_SLACK


def _power_of_two(size: int) -> int:
    """The next power of two."""
    return 1 << max(0, size - 1).bit_length()


def _predict_wavefront(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """One exchange between programs for each step of the shortest chain, in every launch."""
    assert isinstance(plan, RecurrentPlan)
    rounds = _count_launches(plan, _settings_for(plan, brief)) * found.chain
    return max(time_rounds(rounds) * 1e3, found.memory_ms, found.compute_ms)


def _propose_wavefront(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    assert isinstance(plan, RecurrentPlan)
    settings = _settings_for(plan, brief)
    programs = _count_programs(plan, settings)
    if found.launch_bound:  # one launch and one fill of the counters per group
        promise = Promise(metric="launches_per_forward", before=found.launches, bound=4 * _count_launches(plan, settings))
    else:
        promise = Promise(metric="programs", before=found.programs, bound=programs, at_most=False)
    return Analysis(
        bottleneck=describe_bottleneck(found, brief),
        optimisation_method="time loop inside the kernel, all layers as a wavefront in one launch, hidden units spread over the processors",
        modification_plan=f"{programs} co-resident programs, each with {settings['slice']} hidden units of one layer whose weights stay on "
        "the chip; they exchange h through fresh slots with release and acquire; "
        f"the chain shrinks from {brief.facts.serial_steps} to {found.chain} steps.",
        category=Category.LAUNCHES if found.launch_bound else Category.ALGORITHM,
        implementation_complexity=Complexity.PERSISTENT,
        promise=promise,
    )


def _settings_for(plan: RecurrentPlan, brief: Brief) -> Settings:
    settings = _wavefront_defaults(plan, brief.hardware, brief.task.precision)
    assert settings is not None, "match() keeps only recipes that have settings"
    return settings


WAVEFRONT = Recipe(
    name="recurrent_wavefront",
    level=3,
    template="families/recurrent/wavefront.py.j2",
    describes="runs all layers as a wavefront in one cooperative launch, with the hidden units spread over the processors",
    defaults=_wavefront_defaults,
    tunables={
        Stage.TUNE_GRID: {"slice": (8, 16, 32)},
        Stage.TUNE_BLOCK: {"batch_block": (16, 32, 64)},
        Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8, 16)},
    },
    fits=_wavefront_fits,
    complete=_complete_wavefront,
    shrink={"slice": 8, "layers_per_launch": 1},
    sharpen=lambda settings: settings | {"parts": 2} if settings.get("parts") == 1 else None,
    predict=_predict_wavefront,
    propose=_propose_wavefront,
    lesson="The grid is split over hidden units, so every step ends in a barrier between co-resident programs; each step has a slot of "
    "its own; weights stay on the chip; layers run as a wavefront.",
)


def _layer_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """The narrowest slices that fit; None where the wavefront can be had."""
    assert isinstance(plan, RecurrentPlan)
    if _wavefront_defaults(plan, hardware, precision) is not None:
        return None
    limited = (_limit_rows(plan, settings, hardware) for settings in _list_slices(plan, precision, block_m=64))
    return next((settings for settings in limited if _layer_fits(plan, settings, hardware)), None)


def _layer_fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """One layer's programs of all directions resident at once."""
    assert isinstance(plan, RecurrentPlan)
    shared = _count_shared_bytes(plan, settings, plan.hidden_size)
    return plan.directions * _count_slices(plan, settings) <= hardware.processors and shared <= hardware.shared_per_block


def _count_blocks(plan: RecurrentPlan) -> int:
    """Launches that the rows of a layer take with the settings to begin with."""
    return -(-plan.batch // 16)


def _predict_layers(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """One exchange for each step of each layer; the input side comes before it and does not overlap."""
    assert isinstance(plan, RecurrentPlan)
    rounds, launches = _count_blocks(plan) * plan.num_layers * plan.steps, (1 + _count_blocks(plan)) * plan.num_layers
    chain = time_rounds(rounds) + time_launches(launches)
    return max(chain * 1e3 + found.compute_ms / 2, found.memory_ms)


def _propose_layers(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    assert isinstance(plan, RecurrentPlan)
    settings = _layer_defaults(plan, brief.hardware, brief.task.precision)
    assert settings is not None, "match() keeps only recipes that have settings"
    programs = plan.directions * _count_slices(plan, settings)
    if found.launch_bound:  # products and recurrent launches, and one fill of the counters
        promise = Promise(metric="launches_per_forward", before=found.launches, bound=4 * (1 + _count_blocks(plan)) * plan.num_layers)
    else:
        promise = Promise(metric="programs", before=found.programs, bound=programs, at_most=False)
    both = "both directions side by side, " if plan.directions == 2 else ""
    return Analysis(
        bottleneck=describe_bottleneck(found, brief),
        optimisation_method=f"time loop inside the kernel, one launch per layer, {both}hidden units spread over the processors",
        modification_plan=f"Compute the input side of all {plan.steps} steps of a layer in one product. Then run {programs} co-resident "
        f"programs, each with {settings['slice']} hidden units whose weights stay on the chip; they exchange h through fresh slots with "
        "release and acquire.",
        category=Category.LAUNCHES if found.launch_bound else Category.ALGORITHM,
        implementation_complexity=Complexity.PERSISTENT,
        promise=promise,
    )


LAYERS = Recipe(
    name="recurrent_layers",
    level=2,
    template="families/recurrent/layers.py.j2",
    describes="runs each layer in one cooperative launch, both directions side by side, behind one product for the input side of all "
    "steps; for two directions, and where a wavefront's programs do not fit on the card at once",
    defaults=_layer_defaults,
    tunables={
        Stage.TUNE_GRID: {"slice": (8, 16, 32)},
        Stage.TUNE_BLOCK: {"batch_block": (16, 32, 64), "block_m": (32, 64, 128)},
        Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8, 16)},
    },
    fits=_layer_fits,
    complete=_limit_rows,
    shrink={"block_m": 32, "slice": 8},
    sharpen=lambda settings: settings | {"parts": 2} if settings.get("parts") == 1 else None,
    predict=_predict_layers,
    propose=_propose_layers,
)
