"""Measured kernels beside their estimates: how far off each is, and whether the order of pairs is right."""

from __future__ import annotations

import ast
import itertools
import math
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonsmith.benchmarks.estimates.samples import MeasuredText
from tritonsmith.evaluator.caller.compiling.pool import CompilePool, CompileReport
from tritonsmith.evaluator.caller.questions.describe import TaskDescriptions
from tritonsmith.evaluator.cards.device_time import Bound, time_launch
from tritonsmith.evaluator.cards.estimate import LatencyEstimate, estimate_candidate, estimate_trace, tell_apart
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Hardware, KernelFacts, Task, TaskFacts

_SECONDS = 180.0
"""Longest time of one compilation."""
_ALIKE = 1.02
"""Two measured times that differ by less are equal: no order of theirs is right or wrong."""
_BEYOND = 1.2
"""A band is by this factor wider than the worst error of those measured: other kernels are unlike these."""
_TRUSTED = 0.95
"""Share of ranked pairs whose order must be right."""


@dataclass(frozen=True)
class ComparedTime:
    """One measured time beside its estimate, in milliseconds."""

    group: str
    settings: str
    bound: str
    """What most of the estimated time is; of a baseline its name."""
    measured: float
    estimate: LatencyEstimate
    source: str

    @property
    def ratio(self) -> float:
        """The estimate over the measured time."""
        return self.estimate.ms / self.measured

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the band."""
        return self.estimate.low_ms <= self.measured <= self.estimate.high_ms


@dataclass(frozen=True)
class Pair:
    """Two measured kernels of one task at one size."""

    one: ComparedTime
    other: ComparedTime

    @property
    def estimated(self) -> float:
        """The larger estimate over the smaller one."""
        low, high = sorted((self.one.estimate.ms, self.other.estimate.ms))
        return high / low

    @property
    def equal(self) -> bool:
        """Whether the measured times are alike, so that no order of theirs is right."""
        return max(self.one.measured, self.other.measured) < _ALIKE * min(self.one.measured, self.other.measured)

    @property
    def right(self) -> bool:
        """Whether both orders are the same."""
        return (self.one.estimate.ms < self.other.estimate.ms) == (self.one.measured < self.other.measured)

    @property
    def ranked(self) -> bool:
        """Whether the estimate tells them apart."""
        one, other = self.one.estimate, self.other.estimate
        return tell_apart(one.ms, one.apart, other.ms, other.apart)


def estimate_samples(
    samples: Sequence[MeasuredText], hardware: Hardware, descriptions: TaskDescriptions
) -> tuple[list[ComparedTime], list[ComparedTime]]:
    """Rows of the kernels, and of the baselines that stand beside them. Equal compiled kernels of one task count once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        pool = CompilePool(hardware.key, "auto", folder / "mark")
        try:
            described = [descriptions.describe(sample.task) for sample in samples]
            paths = [write_request(folder, sample.task, facts) for sample, (facts, _) in zip(samples, described, strict=True)]
            reports = [
                pool.submit(KernelText.of(sample.text), path, _SECONDS) for sample, path in zip(samples, paths, strict=True)
            ]  # fmt: skip
            found = [report.result() for report in reports]
        finally:
            pool.close()
    kernels: dict[tuple[str, ...], ComparedTime] = {}
    baselines: dict[tuple[str, ...], ComparedTime] = {}
    for sample, report, (_, trace) in zip(samples, found, described, strict=True):
        if report["status"] != "ok":
            continue
        key = (sample.group, sample.task.precision.value, repr([(one["code"], one["grid"], one["num_warps"]) for one in report["kernels"]]))
        kernels.setdefault(key, _estimate_kernel(sample, report, hardware))
        for row in _estimate_baselines(sample, trace, hardware):
            baselines.setdefault((row.group, sample.task.precision.value, row.bound), row)
    return list(kernels.values()), list(baselines.values())


def list_pairs(rows: Sequence[ComparedTime]) -> Iterator[Pair]:
    """All pairs of kernels that do the same work."""
    for one, other in itertools.combinations(rows, 2):
        if one.group == other.group:
            yield Pair(one, other)


def needed_band(rows: Sequence[ComparedTime]) -> float:
    """The factor that a band must have: the worst error, and a fifth more."""
    return _BEYOND * max((math.exp(abs(math.log(row.ratio))) for row in rows), default=1.0)


def needed_ratio(pairs: Sequence[Pair]) -> float | None:
    """The ratio of estimates from which 95 % of the orders are right; None where too few pairs say so."""
    clear = sorted((pair.estimated, pair.right) for pair in pairs if not pair.equal)
    for number, (ratio, _) in enumerate(clear):
        rest = [right for _, right in clear[number:]]
        if len(rest) >= 10 and all(sum(rest[start:]) >= _TRUSTED * len(rest[start:]) for start in range(0, len(rest) - 9)):
            return ratio
    return None


def write_request(folder: Path, task: Task, facts: TaskFacts) -> Path:
    """What a compiler reads of a task: init arguments, and shapes and types of inputs. No value decides what is compiled."""
    path = folder / f"{task.sha}.pkl"
    if not path.exists():
        inputs = [(one.shape, one.dtype) for one in facts.inputs if one is not None]
        init = [ast.literal_eval(argument) for argument in facts.init_inputs or () if argument is not None]
        path.write_bytes(pickle.dumps({"init": init, "inputs": inputs, "overrides": {}, "train": task.mode == "train"}))
        path.chmod(0o644)
    return path


def _estimate_kernel(sample: MeasuredText, report: CompileReport, hardware: Hardware) -> ComparedTime:
    kernels = [KernelFacts.model_validate(values) for values in report["kernels"]]
    estimate = estimate_candidate(
        hardware, kernels, report["torch_ops"], report["torch_flops"], report["torch_bytes"], report["torch_launches"],
        sample.task.precision.value not in ("ieee", "split", "tf32"), torch_tf32=sample.task.precision.allows_tf32,
    )  # fmt: skip
    times = [(kernel.launches * (time := time_launch(hardware, kernel)).total, time.bound) for kernel in kernels]
    seconds, bound = max(times, default=(0.0, Bound.UNKNOWN))
    if estimate.ms > estimate.parts["device"]:
        bound = Bound.LAUNCH
    library = bound is not Bound.LAUNCH and sum(seconds for seconds, _ in times) * 1e3 < 0.5 * estimate.ms
    return ComparedTime(sample.group, sample.settings, "library" if library else bound.value, sample.ms, estimate, sample.source)


def _estimate_baselines(sample: MeasuredText, trace: Sequence[OperatorCost], hardware: Hardware) -> Iterator[ComparedTime]:
    for name, in_graph in (("eager", False), ("cuda_graph", True)):
        if name in sample.baselines:
            estimate = estimate_trace(hardware, trace, in_graph=in_graph, tf32=sample.task.precision.allows_tf32)
            yield ComparedTime(sample.group, sample.task.precision.value, name, sample.baselines[name], estimate, sample.source)
