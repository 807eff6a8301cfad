"""What a suite of many runs costs our own process: memory, time per node, disk, with an evaluator that answers from a distribution.

`python -m tritonsmith.benchmarks.suite_cost [--runs 1000] [--candidates 6] [--parallel 4] [--out FILE]`. The suite's runner, the graph, the
checkpoints, tapes and events are the real ones. Author and evaluator answer at once: whether a kernel works and how fast it is are drawn
per text, so each run takes a way of its own. Nothing is measured on a card, and no figure here is about kernels. A window is a hundred
finished runs; its time per node is the processor time of this process over the nodes that were executed. Other work on a machine slows
processors down, so a fixed piece of work (the yardstick) is timed after each run, and the time per node is told in yardsticks too. The
last window is compared so with the first one after `--warm` runs, which load modules and fill caches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Status, Task, TaskFacts, Verdict
from tritonsmith.graph.storage.folder import Event
from tritonsmith.graph.suites.records import SuiteRow
from tritonsmith.graph.suites.run import optimize_suite, plan_suite
from tritonsmith.graph.suites.tasks import PlannedTask
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import Brief, Draft

WORKS = 0.6
"""Share of texts that work at once."""
SPREAD = 0.5
"""Standard deviation of the logarithm of a working text's score, whose median is 1."""
KERNEL_BYTES = 8_000
"""Length of every text."""
WINDOW = 100
"""Runs in a window."""
_HERE = Path(__file__).parent
_TASK = """
import torch
from torch import nn

N = {number}
SMALL = {{"N": 16}}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""


class DrawnEvaluator(Evaluator):
    """Answers at once: a text's status and score are drawn from its content, the same in every repetition."""

    def __init__(self) -> None:
        """Estimates for one named card."""
        self.hardware = named_card("h200")
        self.asked = 0

    async def describe(self, task: Task) -> TaskFacts:
        """No facts."""
        del task
        return TaskFacts(returns="a tensor")

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """A failing verdict, or a score with the spread of the search."""
        self.asked += 1
        drawn = random.Random(f"{task.sha}{kernel.sha}")
        if drawn.random() > WORKS:
            return scripted_verdict(None, status=Status.COMPILE_ERROR, message="drawn: it does not compile " * 20)
        score = math.exp(drawn.gauss(0.0, SPREAD))
        return scripted_verdict(score * (1.0 if profile == "quick" else 0.99)).model_copy(update={"profile": profile})

    async def aclose(self) -> None:
        """Nothing is open."""


class DrawnAuthor:
    """Writes texts that are like no other, at once."""

    name = "drawn"

    def __init__(self, task: str) -> None:
        """`task` goes into every text."""
        self._task, self._count = task, 0

    async def seed(self, brief: Brief) -> Draft:
        """A first text."""
        return self._write(f"seed {brief.branch}")

    async def repair(self, brief: Brief) -> Draft | None:
        """Another text."""
        del brief
        return self._write("repair")

    async def analyze(self, brief: Brief) -> Analysis:
        """An analysis that always sees a way on."""
        del brief
        return Analysis(
            bottleneck="launches", optimisation_method="one launch", modification_plan="move the loop into the kernel " * 10,
            category=Category.LAUNCHES, expected_speedup=2.0,
        )  # fmt: skip

    async def optimize(self, brief: Brief) -> Draft | None:
        """Another text."""
        del brief
        return self._write("optimize")

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """Two variants."""
        return tuple(self._write(f"{brief.stage.value} {number}") for number in range(2))

    def _write(self, what: str) -> Draft:
        self._count += 1
        line = f"# {self._task} {what} {self._count} {hashlib.sha256(f'{self._task}{self._count}'.encode()).hexdigest()}\n"
        return Draft(source=(line * (KERNEL_BYTES // len(line) + 1))[:KERNEL_BYTES], rationale=what)


@dataclass
class SuiteMeter:
    """Counts nodes, and takes a sample at the end of every run."""

    nodes: int = 0
    samples: list[dict[str, float]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    yardstick: float = 0.0
    spent_on_yardstick: float = 0.0

    def on_event(self, task: PlannedTask, event: Event) -> None:
        """A node announces itself as a stage, and a gate as a decision."""
        del task
        self.nodes += event.get("event") in ("stage", "decision")

    def on_row(self, row: SuiteRow) -> None:
        """Note where the process stands."""
        del row
        now, cpu = time.perf_counter() - self.began, time.process_time()
        self.yardstick += time_yardstick()
        self.spent_on_yardstick += time.process_time() - cpu
        about = {"cpu": cpu - self.spent_on_yardstick, "yardstick": self.yardstick, "megabytes": read_memory()}
        self.samples.append({"nodes": self.nodes, "seconds": now, **about})

    def windows(self, warm: int) -> list[dict[str, float]]:
        """Each window of a hundred runs: milliseconds of processor time and of wall time per node, and memory at its end."""
        found = []
        for start in range(warm, len(self.samples) - WINDOW + 1, WINDOW):
            first, last = self.samples[max(0, start - 1)], self.samples[start + WINDOW - 1]
            nodes = last["nodes"] - first["nodes"]
            found.append(
                {
                    "runs": start + WINDOW, "nodes": nodes, "cpu_ms_per_node": (last["cpu"] - first["cpu"]) / nodes * 1e3,
                    "yardstick_ms": (last["yardstick"] - first["yardstick"]) / WINDOW * 1e3,
                    "wall_ms_per_node": (last["seconds"] - first["seconds"]) / nodes * 1e3, "megabytes": last["megabytes"],
                }
            )  # fmt: skip
        return found


def time_yardstick() -> float:
    """Processor seconds of this thread for a fixed piece of Python work: how fast the machine is just now."""
    began = time.thread_time()
    text = json.dumps([{"number": number, "text": "x" * (number % 50)} for number in range(2000)])
    hashlib.sha256(repr(json.loads(text)).encode()).hexdigest()
    return time.thread_time() - began


def read_memory() -> float:
    """Resident megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_disk(folder: Path) -> dict[str, float]:
    """Mean bytes of a run's folder, by the file's or folder's name."""
    total: Counter[str] = Counter()
    runs = [path for path in (folder / "tasks").iterdir() if path.is_dir()]
    for run in runs:
        for path in run.rglob("*"):
            if path.is_file():
                total[path.relative_to(run).parts[0]] += path.stat().st_size
    return {name: round(size / len(runs), 1) for name, size in total.most_common()}


def simulate(runs: int, candidates: int, parallel: int, warm: int) -> dict[str, Any]:
    """One suite of so many runs; figures of its windows."""
    meter, evaluator = SuiteMeter(), DrawnEvaluator()
    with tempfile.TemporaryDirectory(prefix="tritonsmith-suite-") as name:
        folder = Path(name)
        (folder / "tasks").mkdir()
        for number in range(runs):
            (folder / "tasks" / f"t{number:05}.py").write_text(_TASK.format(number=1024 + number), encoding="utf-8")
        plan = plan_suite([str(folder / "tasks")], size="small", parallel=parallel, settings={"budget": {"candidates": candidates}})
        results = optimize_suite(
            plan, folder / "out", evaluator=evaluator, author=lambda task: DrawnAuthor(task.key), on_event=meter.on_event,
            on_row=meter.on_row,
        )  # fmt: skip
        disk = measure_disk(folder / "out")
    windows = meter.windows(warm)
    first, last = (window["cpu_ms_per_node"] / window["yardstick_ms"] for window in (windows[0], windows[-1]))
    return {
        "runs": runs, "candidates": sum(row.candidates for row in results.rows), "verdicts": evaluator.asked, "counts": results.counts,
        "nodes": meter.nodes, "seconds": round(meter.samples[-1]["seconds"], 1), "cpu_seconds": round(meter.samples[-1]["cpu"], 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
        "yardsticks_per_node": {"first": round(first, 4), "last": round(last, 4), "ratio": round(last / first, 3)},
        "median_cpu_ms_per_node": round(statistics.median(window["cpu_ms_per_node"] for window in windows), 3),
        "bytes_per_run": disk, "windows": [{key: round(value, 3) for key, value in window.items()} for window in windows],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; 1 where memory or time per node are not what they should be."""
    parser = argparse.ArgumentParser(description="What a suite of many runs costs our own process.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--warm", type=int, default=20, help="runs before the first window")
    parser.add_argument("--out", type=Path, default=_HERE / "results" / "suite_cost.json")
    options = parser.parse_args(arguments)
    if options.runs < WINDOW + options.warm:
        parser.error(f"--runs {options.runs}: a window has {WINDOW} runs after {options.warm} that warm up")
    head = begin_record("suite_cost", arguments)
    told = simulate(options.runs, options.candidates, options.parallel, options.warm)
    for window in told["windows"]:
        speed = f"{window['cpu_ms_per_node']:>7.2f} ms/node (cpu), yardstick {window['yardstick_ms']:.2f} ms"
        print_line(f"{window['runs']:>6.0f} runs {speed} {window['megabytes']:>7.0f} MB")
    ratio, peak = told["yardsticks_per_node"]["ratio"], told["peak_megabytes"]
    print_line(f"last over first: {ratio}; peak {peak:.0f} MB; {told['seconds']} s for {told['nodes']} nodes")
    write_record(head | {"load_average": [head["load_average"], os.getloadavg()[0]], **told}, options.out)
    return 0 if peak < 2000 and ratio < 1.1 else 1


if __name__ == "__main__":
    sys.exit(main())
