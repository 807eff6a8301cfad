"""The recipes of recurrent stacks; here those whose programs never wait for each other."""

from __future__ import annotations

from tritonsmith.author.cost import count_l2_rate, time_launches
from tritonsmith.author.families.recurrent.example import EXAMPLE
from tritonsmith.author.families.recurrent.plan import RecurrentPlan, read_recurrent
from tritonsmith.author.families.recurrent.resident import LAYERS, WAVEFRONT, describe_bottleneck
from tritonsmith.author.measured import Measured
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.recipe import Recipe, RecipeFamily, Settings
from tritonsmith.author.types import MATRICES
from tritonsmith.evaluator.schema import Hardware, Stage
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family

PER_STEP = Recipe(
    name="recurrent_per_step",
    level=0,
    template="families/recurrent/per_step.py.j2",
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
    step = plan.gates * plan.hidden_size**2 * 4 / count_l2_rate(plan.card)
    waves = -(-plan.batch // brief.hardware.processors)
    layers = plan.directions * plan.num_layers
    return (plan.steps * layers * step * waves + time_launches(2 * layers)) * 1e3


def _propose_rows(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    assert isinstance(plan, RecurrentPlan)
    return Analysis(
        bottleneck=describe_bottleneck(found, brief),
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
    template="families/recurrent/persistent_batch.py.j2",
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


RECURRENT = RecipeFamily(
    name="recurrent",
    writes=f"one `nn.GRU`, `nn.LSTM` or `nn.RNN` (tanh or ReLU; {', '.join(MATRICES)}) of any number of layers, in one direction or "
    "two, with or without biases. Initial states are given or zero. Forward returns all states, a slice of them, or the last states and "
    "cells, as they are or through `nn.Linear`",
    read=read_recurrent,
    recipes=(PER_STEP, PERSISTENT_BATCH, LAYERS, WAVEFRONT),
    example=EXAMPLE,
    kind=Family.RECURRENT,
)
