"""The true ratios of the study's kernels by the card's clock: `python -P -m tritonsmith.benchmarks.timing.true_ratio`. Imports torch.

Reads a JSON list of [faster task, slower task] on stdin and prints a JSON list of time(slower) / time(faster): medians over pairs of
blocks of launches in the order A B B A, with events around each block. It runs trusted task files only and shares no code with the
evaluator's timing, so that the study has a second opinion.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

import torch

from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.schema import Task

_BLOCK_MS = 8.0
"""Milliseconds of a block of calls: long compared with the resolution of the events."""
_PAIRS = 60
_WARM_SECONDS = 0.3
"""Of calls before anything is timed."""


class TimedModel:
    """A task's model on the card with one set of inputs."""

    def __init__(self, task: Task) -> None:
        reference = load_reference(task)
        self._model = reference.build(0).cuda()
        self._inputs: list[Any] = reference.draw_inputs(0, "cuda")
        self.calls = 1
        warm = sum(self.time_block() for _ in range(5)) / 5  # the first one compiles
        self.calls = max(1, int(_BLOCK_MS / max(warm, 1e-3)))

    def time_block(self) -> float:
        """Milliseconds per call over one block of calls, queued without waiting in between."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.no_grad():
            self._model(*self._inputs)  # the queue is not empty when the clock starts
            start.record()
            for _ in range(self.calls):
                self._model(*self._inputs)
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / self.calls


def measure_ratio(faster: Task, slower: Task) -> float:
    """Time of the slower over time of the faster, median of paired blocks."""
    quick_model, slow_model = TimedModel(faster), TimedModel(slower)
    quick_model.calls = slow_model.calls = max(1, min(quick_model.calls, slow_model.calls))
    for _ in range(int(_WARM_SECONDS * 1e3 / _BLOCK_MS)):
        quick_model.time_block()
    ratios = []
    for number in range(_PAIRS):
        if number % 2 == 0:
            quick = quick_model.time_block()
            slow = slow_model.time_block()
        else:
            slow = slow_model.time_block()
            quick = quick_model.time_block()
        ratios.append(slow / quick)
    return statistics.median(ratios)


def main() -> None:
    """Entry point of the process."""
    pairs = [[Task.model_validate(task) for task in pair] for pair in json.loads(sys.stdin.readline())]
    sys.stdout.write(json.dumps([measure_ratio(faster, slower) for faster, slower in pairs]) + "\n")


if __name__ == "__main__":
    main()
