"""The process that compares a kernel's result with its reference's and times both by CUDA events. Imports torch and Triton."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from tritonsmith.benchmarks.direct.loading import answer_lines, list_launches, load_module, make_model

_SECONDS = 0.08
"""Of one series of calls."""
_FEWEST, _MOST = 3, 30
_GRAPH_BELOW_MS = 15.0
"""References that are faster are timed in a CUDA graph as well."""
_MOST_KERNELS = 12


class Timer:
    """Keeps the reference of the last task, which several kernels may share."""

    def __init__(self) -> None:
        self.task = ""
        self.held: dict[str, Any] = {}
        self.launches: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] | None = None
        self._watch()

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        """The row of a job."""
        if job["task"] != self.task:
            self._load(job["task"])
        held = self.held
        model = make_model(load_module(job["text"], "text_module").ModelNew, held["init"]).cuda()
        model.load_state_dict(held["model"].state_dict())
        began = time.monotonic()
        got = list_tensors(model(*held["inputs"]))
        torch.cuda.synchronize()
        row = {"kernel": job["name"], "card": torch.cuda.get_device_name(), **held["row"]}
        row["first_call_s"] = round(time.monotonic() - began, 2)
        row["error"] = max(measure_distance(one, wanted) for one, wanted in zip(got, held["wanted"], strict=True))
        del got
        row["ms"] = time_calls(lambda: model(*held["inputs"]))
        row["kernels"] = self._time_kernels(list_launches(model, held["inputs"]))
        return row

    def _load(self, path: str) -> None:
        self.task, self.held = "", {}
        gc.collect()
        torch.cuda.empty_cache()
        torch.manual_seed(1)
        with torch.device("cuda"):
            task = load_module(path, "task_module")
            inputs = [one.cuda() if isinstance(one, torch.Tensor) else one for one in task.get_inputs()]
            init = task.get_init_inputs()
            model = make_model(task.Model, init).cuda()
        row: dict[str, Any] = {"ref_ms": time_calls(lambda: model(*inputs))}
        if row["ref_ms"] < _GRAPH_BELOW_MS:
            row["graph_ms"] = time_in_graph(lambda: model(*inputs))
        self.held = {"inputs": inputs, "init": init, "model": model, "wanted": list_tensors(model(*inputs)), "row": row}
        self.task = path

    def _watch(self) -> None:
        stock = JITFunction.run

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            if self.launches is None:
                return stock(function, *args, grid=grid, warmup=warmup, **options)
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            made = stock(function, *args, grid=grid, warmup=warmup, **options)
            last.record()
            self.launches.append((function.__name__, first, last))
            return made

        JITFunction.run = run

    def _time_kernels(self, call: Callable[[], Any]) -> dict[str, float]:
        """Milliseconds of one forward by kernel, the longest first; short ones hold the time of their launches."""
        self.launches = []
        try:
            call()
            torch.cuda.synchronize()
            found: dict[str, float] = {}
            for name, first, last in self.launches:
                found[name] = found.get(name, 0.0) + first.elapsed_time(last)
        finally:
            self.launches = None
        return {name: round(ms, 4) for name, ms in sorted(found.items(), key=lambda one: -one[1])[:_MOST_KERNELS]}


def list_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [one for part in parts for one in list_tensors(part)]


def measure_distance(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of the reference's own result; of whole numbers the share that differs."""
    if not got.is_floating_point():
        return float((got != wanted).float().mean())
    return float((got.float() - wanted.float()).norm() / wanted.float().norm().clamp_min(1e-20))


def time_calls(call: Callable[[], Any]) -> float:
    """Milliseconds of a call, the median of a series."""
    call()
    torch.cuda.synchronize()
    began = time.monotonic()
    call()
    torch.cuda.synchronize()
    number = max(_FEWEST, min(_MOST, int(_SECONDS / max(time.monotonic() - began, 1e-5))))
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(number)]
    for first, last in pairs:
        first.record()
        call()
        last.record()
    torch.cuda.synchronize()
    return statistics.median([float(first.elapsed_time(last)) for first, last in pairs])


def time_in_graph(call: Callable[[], Any]) -> float | None:
    """Milliseconds of a call's work as a CUDA graph; None where it cannot be recorded."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        return None
    return time_calls(graph.replay)


def main() -> None:
    """Serve until stdin closes."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    answer_lines(Timer().answer)


if __name__ == "__main__":
    main()
