"""The recipes of GRU stacks: their settings, where they fit, what they should take, and how an analysis proposes them."""

from __future__ import annotations

from tritonsmith.evaluator.estimate import L2_BYTES_PER_CLOCK, ROUND, TRITON_CALL
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.recipes.kinds import Family
from tritonsmith.prompts.recipes.measured import Measured, describe_idle_processors, describe_launches, middle
from tritonsmith.prompts.recipes.plan import KernelPlan
from tritonsmith.prompts.recipes.recipe import Recipe, RecipeFamily, Settings
from tritonsmith.prompts.recipes.recurrent.example import EXAMPLE
from tritonsmith.prompts.recipes.recurrent.plan import RecurrentPlan, read_recurrent

_SHARED_SLACK = 8 << 10
"""Bytes of shared memory that a compiled kernel takes for layout changes, beyond its operand tiles."""


def _describe_bottleneck(found: Measured, brief: Brief) -> str:
    return describe_launches(found) if found.launch_bound else describe_idle_processors(found, brief)


PER_STEP = Recipe(
    name="recurrent_per_step",
    level=0,
    template="recurrent/per_step.py.j2",
    describes="launches one kernel per layer and time step, with the time loop in Python",
    defaults=lambda plan, hardware, precision: {"block_h": 32, "block_k": 64, "num_warps": 4},
    tunables={
        Stage.TUNE_GRID: {"block_h": (16, 32, 64)},
        Stage.TUNE_BLOCK: {"block_k": (32, 64, 128)},
        Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8)},
    },
    shrink={"block_k": 16, "block_h": 16},
)


def _rows_fit(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    return int(settings["block_h"]) * int(settings["block_k"]) <= 1024 * int(settings["num_warps"])


def _predict_rows(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """Every program reads the recurrent weights from L2 at every step."""
    assert isinstance(plan, RecurrentPlan)
    per_clock = middle(L2_BYTES_PER_CLOCK)
    step = plan.gates * plan.hidden_size**2 * 4 / (per_clock * brief.hardware.clock_hz)
    waves = -(-plan.batch // brief.hardware.processors)
    layers = plan.directions * plan.num_layers
    return (plan.steps * layers * step * waves + 2 * layers * middle(TRITON_CALL)) * 1e3


def _propose_rows(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    assert isinstance(plan, RecurrentPlan)
    return Analysis(
        bottleneck=_describe_bottleneck(found, brief),
        optimisation_method="put the time loop inside the kernel: one recurrent launch per layer",
        modification_plan=f"Compute the input side of all {plan.steps} steps of a layer in one product; run the {plan.steps} steps of the "
        "recurrent side in one kernel, one program per batch row, which reads back only what it stored itself.",
        category=Category.LAUNCHES,
        implementation_complexity=Complexity.PERSISTENT,
        promise=Promise(metric="launches_per_forward", before=found.launches, bound=4 * plan.directions * plan.num_layers),
    )


PERSISTENT_BATCH = Recipe(
    name="recurrent_persistent_batch",
    level=1,
    template="recurrent/persistent_batch.py.j2",
    describes="keeps the time loop in the kernel, one launch per layer, with one program per batch row",
    defaults=lambda plan, hardware, precision: {"block_h": 64, "block_k": 128, "num_warps": 16},
    tunables={Stage.TUNE_BLOCK: {"block_h": (16, 32, 64), "block_k": (64, 128, 256)}, Stage.TUNE_MEMORY: {"num_warps": (8, 16)}},
    fits=_rows_fit,
    shrink={"block_k": 16, "block_h": 16},
    predict=_predict_rows,
    propose=_propose_rows,
    lesson="One program per batch row: it reads back only what it stored itself, so no barrier between programs is needed, but only as "
    "many processors work as there are rows. The input side of all steps is one product outside.",
)


def _wavefront_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """The widest slices that fit; narrow ones need more programs. None in two directions: a layer needs the whole sequence below it."""
    assert isinstance(plan, RecurrentPlan)
    if plan.directions == 2:
        return None
    for slice_ in (32, 16, 8):
        parts = 1 if precision.allows_tf32 else 2
        warps = 8 if slice_ >= 32 else 4
        settings: Settings = {"slice": slice_, "parts": parts, "layers_per_launch": 1, "batch_block": 16, "num_warps": warps}
        settings = _complete_wavefront(plan, settings, hardware)
        if _wavefront_fits(plan, settings, hardware):
            return settings
    return None


def _complete_wavefront(plan: KernelPlan, settings: Settings, hardware: Hardware) -> Settings:
    """As many layers in one launch as have all their programs resident, one per processor; no room for more rows than there are."""
    assert isinstance(plan, RecurrentPlan)
    layers = hardware.processors // (2 * _count_slices(plan, settings))
    rows = min(int(settings["batch_block"]), max(16, _power_of_two(plan.batch)))
    return settings | {"layers_per_launch": max(1, layers), "batch_block": rows}


def _wavefront_fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    assert isinstance(plan, RecurrentPlan)
    return _count_programs(plan, settings) <= hardware.processors and _count_shared_bytes(plan, settings) <= hardware.shared_per_block


def _count_slices(plan: RecurrentPlan, settings: Settings) -> int:
    return -(-plan.hidden_size // int(settings["slice"]))


def _count_programs(plan: RecurrentPlan, settings: Settings) -> int:
    """Programs of one launch: two for each slice of each layer, for its input side and its recurrent side."""
    return 2 * _count_slices(plan, settings) * min(plan.num_layers, int(settings["layers_per_launch"]))


def _count_launches(plan: RecurrentPlan, settings: Settings) -> int:
    """Launches one after another that a stack takes: groups of layers times blocks of batch rows."""
    return -(-plan.num_layers // int(settings["layers_per_launch"])) * -(-plan.batch // int(settings["batch_block"]))


def _count_shared_bytes(plan: RecurrentPlan, settings: Settings) -> int:
    """Bytes of shared memory of a wavefront program: its weight tile and the h (or x) it multiplies."""
    inner = max(32, _power_of_two(max(plan.hidden_size, plan.input_size)))
    parts = int(settings["parts"])
    batch = max(16, _power_of_two(min(plan.batch, int(settings["batch_block"]))))
    return plan.part_bytes * parts * inner * (plan.tile_gates * int(settings["slice"]) + batch) + _SHARED_SLACK


def _power_of_two(size: int) -> int:
    """The next power of two."""
    return 1 << max(0, size - 1).bit_length()


def _predict_wavefront(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """One exchange between programs for each step of the shortest chain, in every launch."""
    assert isinstance(plan, RecurrentPlan)
    rounds = _count_launches(plan, _settings_for(plan, brief)) * found.chain
    return max(rounds * middle(ROUND) * 1e3, found.memory_ms, found.compute_ms)


def _propose_wavefront(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    assert isinstance(plan, RecurrentPlan)
    settings = _settings_for(plan, brief)
    programs = _count_programs(plan, settings)
    if found.launch_bound:  # one launch and one fill of the counters per group
        promise = Promise(metric="launches_per_forward", before=found.launches, bound=4 * _count_launches(plan, settings))
    else:
        promise = Promise(metric="programs", before=found.programs, bound=programs, at_most=False)
    return Analysis(
        bottleneck=_describe_bottleneck(found, brief),
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
    level=2,
    template="recurrent/wavefront.py.j2",
    describes="runs all layers as a wavefront in one cooperative launch, with the hidden units spread over the processors",
    defaults=_wavefront_defaults,
    tunables={
        Stage.TUNE_GRID: {"slice": (8, 16, 32)},
        Stage.TUNE_BLOCK: {"batch_block": (16, 32)},
        Stage.TUNE_MEMORY: {"num_warps": (4, 8)},
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


RECURRENT = RecipeFamily(
    name="recurrent",
    writes="one `nn.GRU` in one direction, of any number of layers. Forward returns all states, the last step or the last states, "
    "as they are or through `nn.Linear`",
    read=read_recurrent,
    recipes=(PER_STEP, PERSISTENT_BATCH, WAVEFRONT),
    example=EXAMPLE,
    kind=Family.RECURRENT,
)
