"""A task loaded on a card under a memory plan, taken apart along its batch where that is proven. Imports torch.

Rows are independent of each other where parts and whole agree in float64 on a sample of rows, and where, at full size, the reference's
error against the parts is that of the parts themselves. Other kinds of tasks have their float64 reference whole, or on the host.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tritonsmith.evaluator.channel.slots import spec_bytes
from tritonsmith.evaluator.oracle.checks.batch import Batch, cut_outputs
from tritonsmith.evaluator.oracle.checks.loaded_task import UNDEFINED, LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import ErrorMeter
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan, Needs, OraclePlace, choose_plan, list_plans, refuse
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Task, TensorSpec

_SAMPLE = 4
"""Rows on which parts and whole are compared."""
_MOST_SPLIT = 4
"""Inputs that may be split, at the most."""
_AGREE = 1e-9
"""Share of the result by which parts and whole may differ in float64."""
_MOST_APART = 16.0
"""The reference's error over all rows, in units of that of the parts: library kernels differ with the batch, mixed rows do far more."""
_HOST_SHARE = 0.5
"""Share of the host's free memory that the float64 reference may take."""

Tensors = list[torch.Tensor]


def load_on_card(
    task: Task, hardware: Hardware, pool: RunnerPool | None = None, *, timed: bool = True, after: MemoryPlan | None = None
) -> LoadedTask:
    """The task with the first memory plan that fits; with the leanest one where none does and nothing will be timed.

    Where memory ran out under the plan `after`, only leaner ones count. Raises TaskError.
    """
    loaded = LoadedTask(task, hardware, "cuda", pool)
    try:
        _make_plan(loaded, after, timed=timed)
    except BaseException:
        loaded.close()
        raise
    return loaded


def _make_plan(loaded: LoadedTask, after: MemoryPlan | None, *, timed: bool) -> None:
    """Choose the plan from what the reference needs, and prove that the task can be taken apart where the plan wants that."""
    tensors = loaded.draw("own")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    outputs = loaded.reference_outputs(tensors, loaded.task.precision)
    peak = float(torch.cuda.max_memory_allocated() - before - loaded.layout.input_bytes)  # forward has a copy of its inputs there
    needs = _count_needs(loaded, max(peak, 0.0))
    room, host_room = _measure_room(loaded), _HOST_SHARE * _read_host_memory()
    plan = choose_plan(needs, room, host_room, after)
    if plan is None or plan.oracle is not OraclePlace.WHOLE or not plan.together:  # in parts, baselines may fit together
        batch = find_batch(loaded, tensors, outputs)
        if batch is not None:
            needs = replace(needs, rows=batch.rows)
            plan = choose_plan(needs, room, host_room, after)
            if plan is not None and plan.oracle is OraclePlace.PARTS:
                batch = calibrate(loaded, batch, plan.rows, tensors, outputs, loaded.task.precision)
                if batch is None:
                    needs = replace(needs, rows=0)
                    plan = choose_plan(needs, room, host_room, after)
        loaded.batch = batch
    del tensors, outputs
    torch.cuda.empty_cache()
    if plan is None and timed:
        raise refuse(loaded.task.path, *_describe_largest(loaded), needs, room, host_room)
    if plan is None:
        *_, plan = list_plans(needs, host_room)
    loaded.take_plan(plan)


def _count_needs(loaded: LoadedTask, peak: float) -> Needs:
    layout = loaded.layout
    floating = [spec.dtype for spec in (*layout.inputs, *layout.outputs) if getattr(torch, spec.dtype).is_floating_point]
    written = sum(map(spec_bytes, loaded.results[len(layout.outputs) :]))  # inputs that are results as well
    narrowest = min((getattr(torch, name).itemsize for name in floating), default=8)
    return Needs(
        inputs=float(layout.input_bytes), outputs=float(layout.output_bytes + written), weights=float(loaded.weight_bytes), peak=peak,
        wide=8.0 / narrowest, classes=len(loaded.arithmetic.classes),
    )  # fmt: skip


def _measure_room(loaded: LoadedTask) -> float:
    """Bytes of the card for this task: what is free, and what this process holds for it already."""
    free, _ = torch.cuda.mem_get_info()
    return float(free + torch.cuda.memory_reserved() + loaded.block.nbytes)


def _read_host_memory() -> float:
    """Bytes of the host's memory that are available."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024.0
    return 0.0


def _describe_largest(loaded: LoadedTask) -> tuple[str, int]:
    """The two largest tensors in words, and the length of the first axis of the largest."""
    arguments = [*inspect.signature(loaded.model.forward).parameters, *map("argument {}".format, range(len(loaded.is_tensor)))]
    names = [name for name, is_tensor in zip(arguments, loaded.is_tensor, strict=False) if is_tensor]
    named = [*zip(names, loaded.layout.inputs, strict=True)]
    named += [(f"output {number}", spec) for number, spec in enumerate(loaded.layout.outputs)]
    largest = sorted(named, key=lambda one: -spec_bytes(one[1]))[:2]
    return " and ".join(f"{name} {_say(spec)}" for name, spec in largest), (*largest[0][1].shape, 1)[0]


def _say(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)} ({spec_bytes(spec) / 1e9:.1f} GB)"


def find_batch(loaded: LoadedTask, tensors: Tensors, outputs: Tensors) -> Batch | None:
    """How the task can be taken apart, proven on a sample of rows; None where it cannot."""
    rows = outputs[0].shape[0] if outputs[0].ndim else 0
    if rows < 2 or any(not output.ndim or output.shape[0] != rows for output in outputs):
        return None
    candidates = [number for number, tensor in enumerate(tensors) if tensor.ndim and tensor.shape[0] == rows][:_MOST_SPLIT]
    for count in range(len(candidates), 0, -1):
        for split in itertools.combinations(candidates, count):
            batch = Batch(rows, split)
            if _is_separable(loaded, batch, tensors):
                return batch
    return None


def _is_separable(loaded: LoadedTask, batch: Batch, tensors: Tensors) -> bool:
    """Whether some rows give the same results one by one and together."""
    count = min(_SAMPLE, batch.rows)
    try:
        together = loaded.oracle(batch.cut(tensors, 0, count))
        alone = [loaded.oracle(batch.cut(tensors, first, 1)) for first in range(count)]
    except (*UNDEFINED, TypeError):
        return False
    return all(_agree(parts, whole, count) for *parts, whole in zip(*alone, together, strict=True))


def _agree(parts: Sequence[torch.Tensor], whole: torch.Tensor, count: int) -> bool:
    """Whether results of single rows, one after the other, are those of `count` rows together."""
    if not whole.ndim or whole.shape[0] != count or any(not part.ndim or part.shape[0] != 1 for part in parts):
        return False
    joined = torch.cat(list(parts))
    if joined.shape != whole.shape:
        return False
    if not whole.is_floating_point():
        return torch.equal(joined, whole)
    return torch.allclose(joined, whole, rtol=_AGREE, atol=_AGREE * float(whole.abs().max()) if whole.numel() else 0.0, equal_nan=True)


def calibrate(loaded: LoadedTask, batch: Batch, rows: int, tensors: Tensors, outputs: Tensors, precision: PrecisionClass) -> Batch | None:
    """The batch with its factors, from all rows at full size; None where the whole is not what its parts are.

    Args:
        loaded: the task.
        batch: what the sample showed.
        rows: how many at a time.
        tensors: inputs.
        outputs: what the reference returned for them, all rows at once.
        precision: the class in which it did.
    """
    full, parts = ErrorMeter(outputs), ErrorMeter(outputs)
    for first in range(0, batch.rows, rows):
        part = batch.cut(tensors, first, rows)
        oracle = loaded.oracle(part)
        full.add(cut_outputs(outputs, first, oracle), oracle, first)
        parts.add(loaded.reference_outputs(part, precision), oracle, first)
    whole, own = full.finish(), parts.finish()
    floor = own.epsilon / 4
    rms = whole.rms / max(own.rms, floor * own.oracle_rms, 1e-300)
    largest = whole.max_abs / max(own.max_abs, floor * own.oracle_max, 1e-300)
    if not whole.exact or not own.exact or max(rms, largest) > _MOST_APART:
        return None
    return replace(batch, rms_factor=max(1.0, rms), max_factor=max(1.0, largest))

