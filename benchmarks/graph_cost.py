"""What the graph itself costs: time per node and bytes of checkpoints, with an author and an evaluator that answer at once.

`python -m tritonsmith.benchmarks.graph_cost [--repeats 5] [--candidates 50,100,200] [--out FILE]`. A whole run (folder, tape, events,
kernels of 20 KB, verdicts as large as the H200's) is timed from its first event to its last and divided by the number of nodes that
were executed. The same is done without checkpoints, and with the processor time of our process, which other work on the machine hardly
changes. On a busy machine, run it under `chrt -f 10`. Two shapes: `wide`, ten candidates per seed branch (repaired, analysed, rewritten,
tuned), and `deep`, two branches of a hundred repairs each, which no default budget allows. Bytes are those of `checkpoints.sqlite` with
its journal: the most while the run went on, and at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Stage, Status, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.builder import build_graph, step_limit
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedDetector
from tritonsmith.prompts.analysis import Analysis, Category

PROMISED_MS = 10.0
"""Milliseconds per node that the graph may take."""
PROMISED_MB = 20.0
"""Megabytes that the checkpoints of a run may take."""
KERNEL_BYTES = 20_000
"""Length of every kernel text: that of a long real one."""
_HERE = Path(__file__).parent
_TASK = _HERE / "tasks" / "26_gelu_scale_bias.py"
_VERDICT = _HERE / "results" / "runs" / "39_gru.summary.json"
_MESSAGE = "at line 42: the shared memory that is needed exceeds what a program may have. " * 20
_PER_BRANCH = 9
"""Candidates of a wide branch; a tenth of all are variants of the tuning stages."""


@dataclass(frozen=True)
class World:
    """What is written and what is said of it."""

    shape: str
    candidates: int
    author: Callable[[], ScriptedAuthor]
    scores: dict[str, float | None]
    budget: Budget

    @property
    def policy(self) -> str:
        """Analyses every seed, so that a branch uses up its rounds."""
        return "rescue-all"


class InstantEvaluator(Evaluator):
    """Answers at once with a verdict as large as a real one."""

    def __init__(self, scores: dict[str, float | None]) -> None:
        """A score per text; None fails with a long message."""
        self.hardware = named_card("h200")
        self._scores = scores
        stored = json.loads(_VERDICT.read_text(encoding="utf-8"))["winner"]["verdict"]
        self._ok = Verdict.model_validate({**stored, "profile": "quick"})

    async def describe(self, task: Task) -> TaskFacts:
        """No facts."""
        del task
        return TaskFacts(returns="a tensor")

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The table's verdict."""
        del task
        score = self._scores[kernel.text]
        if score is None or self._ok.timing is None:
            return self._ok.model_copy(update={"status": Status.COMPILE_ERROR, "timing": None, "message": _MESSAGE, "profile": profile})
        return self._ok.model_copy(update={"timing": self._ok.timing.model_copy(update={"score": score}), "profile": profile})

    async def aclose(self) -> None:
        """Nothing is open."""


def make_kernel(name: str) -> str:
    """A text of 20 KB that is like no other."""
    line = f"# {name}: what a kernel says here is of no matter to the graph, only how much there is of it\n"
    return (line * (KERNEL_BYTES // len(line) + 1))[:KERNEL_BYTES]


def make_deep(candidates: int) -> World:
    """Two branches in which every candidate fails and is repaired, to the end."""
    half = candidates // 2
    lines = [[make_kernel(f"deep {branch}-{number}") for number in range(half)] for branch in range(2)]
    repairs = {text: after for line in lines for text, after in zip(line, line[1:], strict=False)}
    scores: dict[str, float | None] = {text: None for line in lines for text in line}
    scores |= {line[-1]: 1.5 for line in lines}
    return World(
        "deep", candidates, lambda: ScriptedAuthor(seeds=tuple(line[0] for line in lines), repairs=repairs), scores,
        Budget(candidates=candidates + 1, repairs=half, rounds=0),
    )  # fmt: skip


def make_wide(candidates: int) -> World:
    """Branches of nine (a seed, three repairs, two rewrites with theirs), then three stages of tuning."""
    branches = candidates // (_PER_BRANCH + 1)
    analysis = Analysis(
        bottleneck="launches", optimisation_method="one launch", modification_plan="move the loop into the kernel " * 20,
        category=Category.LAUNCHES, expected_speedup=2.0,
    )  # fmt: skip
    seeds: list[str] = []
    repairs: dict[str, str] = {}
    scores: dict[str, float | None] = {}
    analyses: dict[str, Analysis] = {}
    optimized: dict[str, tuple[str, ...]] = {}
    for branch in range(branches):
        line = [make_kernel(f"wide {branch}-{number}") for number in range(_PER_BRANCH)]
        seeds.append(line[0])
        repairs |= {line[0]: line[1], line[1]: line[2], line[2]: line[3], line[4]: line[5], line[6]: line[7], line[7]: line[8]}
        scores |= dict.fromkeys(line) | {line[3]: 0.3, line[5]: 0.5, line[8]: 0.7 + branch / 1000}
        analyses |= {line[3]: analysis, line[5]: analysis}
        optimized |= {line[3]: (line[4],), line[5]: (line[6],)}
    best = make_kernel(f"wide {branches - 1}-{_PER_BRANCH - 1}")
    rest, variants = candidates - branches * _PER_BRANCH, {}
    for part, stage in enumerate((Stage.TUNE_GRID, Stage.TUNE_BLOCK, Stage.TUNE_MEMORY)):
        texts = tuple(make_kernel(f"{stage.value} {number}") for number in range(part, rest, 3))
        variants[stage, best] = texts
        scores |= dict.fromkeys(texts, 0.2)
    return World(
        "wide", candidates,
        lambda: ScriptedAuthor(seeds=tuple(seeds), repairs=repairs, analyses=analyses, optimized=optimized, variants=variants),
        scores, Budget(candidates=candidates + 1),
    )  # fmt: skip


async def count_nodes(world: World) -> int:
    """How many nodes a run of this world executes; subgraphs count by the nodes in them."""
    context = Context(
        author=world.author(), evaluator=InstantEvaluator(world.scores), policy=load_policy(world.policy), budget=world.budget,
        seeds=len(world.author().seeds), detector=ScriptedDetector({}),
    )  # fmt: skip
    steps = build_graph().compile().astream(
        {"task": load_task(_TASK, "small")}, {"recursion_limit": step_limit(world.budget)}, context=context, stream_mode="updates",
        subgraphs=True,
    )  # fmt: skip
    count = 0
    async with context:
        async for _, update in steps:
            count += len(set(update) - {"branch", "improve"})
    return count


async def time_run(world: World, folder: Path, checkpoints: str) -> dict[str, Any]:
    """Seconds of one whole run, and the bytes of its checkpoints: the most while it went on, and at its end."""
    config = RunConfig(
        task=str(_TASK), size="small", policy=world.policy, seeds=len(world.author().seeds), budget=world.budget, checkpoints=checkpoints,
        out=str(folder),
    )  # fmt: skip
    run = Run(config, evaluator=InstantEvaluator(world.scores), author=world.author())
    most, began, worked = 0, time.perf_counter(), time.process_time()
    async with aclosing(run.stream()) as events:
        async for event in events:
            if event["event"] == "decision":
                most = max(most, checkpoint_bytes(folder))
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    if run.summary is None or len(run.summary.candidates) != world.candidates:
        raise SystemExit(f"the scripted run went another way than it should: {run.summary.stopped_because if run.summary else run.stopped}")
    end = checkpoint_bytes(folder)
    return {"seconds": seconds, "cpu_seconds": cpu, "most_bytes": max(most, end), "end_bytes": end}


def checkpoint_bytes(folder: Path) -> int:
    """Size of the checkpoints of the run in a folder, with their journal."""
    return sum(path.stat().st_size for path in folder.glob("checkpoints.sqlite*"))


def measure(world: World, repeats: int) -> dict[str, Any]:
    """Repeats with and without checkpoints in turn, after one of each that warms up."""
    nodes = asyncio.run(count_nodes(world))
    runs: dict[str, list[dict[str, Any]]] = {"sqlite": [], "none": []}
    for number in range(repeats + 1):
        for checkpoints, taken in runs.items():
            with tempfile.TemporaryDirectory(prefix="tritonsmith-") as folder:
                run = asyncio.run(time_run(world, Path(folder) / "run", checkpoints))
            if number:
                taken.append(run)
    wall, cpu = (
        {name: [round(run[clock] / nodes * 1e3, 3) for run in taken] for name, taken in runs.items()}
        for clock in ("seconds", "cpu_seconds")
    )
    return {
        "shape": world.shape, "candidates": world.candidates, "nodes": nodes,
        "ms_per_node": {name: statistics.median(samples) for name, samples in wall.items()},
        "cpu_ms_per_node": {name: statistics.median(samples) for name, samples in cpu.items()},
        "samples_ms_per_node": wall, "samples_cpu_ms_per_node": cpu,
        "most_bytes": max(run["most_bytes"] for run in runs["sqlite"]), "end_bytes": max(run["end_bytes"] for run in runs["sqlite"]),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="What the graph itself costs.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--candidates", default="50,100,200")
    parser.add_argument("--out", type=Path, default=_HERE / "results" / "graph_cost.json")
    options = parser.parse_args(arguments)
    sizes = [int(part) for part in options.candidates.split(",")]
    if min(sizes) <= _PER_BRANCH:
        parser.error(f"--candidates {options.candidates}: a branch has {_PER_BRANCH}, so name more than that")
    rows = []
    head = begin_record("graph_cost", arguments)
    print_line(f"medians of {options.repeats}; `without` checkpoints, `cpu` with them")
    print_line(f"{'shape':<6} {'candidates':>10} {'nodes':>6} {'ms/node':>8} {'without':>8} {'cpu':>8} {'most MB':>8} {'end MB':>7}")
    for make in (make_wide, make_deep):
        for size in sizes:
            row = measure(make(size), options.repeats)
            rows.append(row)
            ms = row["ms_per_node"]
            print_line(
                f"{row['shape']:<6} {row['candidates']:>10} {row['nodes']:>6} {ms['sqlite']:>8.2f} {ms['none']:>8.2f} "
                f"{row['cpu_ms_per_node']['sqlite']:>8.2f} "
                f"{row['most_bytes'] / 1e6:>8.2f} {row['end_bytes'] / 1e6:>7.2f}"
            )
    record = head | {
        "versions": {name: version(name) for name in ("tritonsmith", "langgraph", "langgraph-checkpoint-sqlite", "langchain-core")},
        "load_average": [head["load_average"], os.getloadavg()[0]],
        "promised": {"ms_per_node": PROMISED_MS, "megabytes": PROMISED_MB},
        "kernel_bytes": KERNEL_BYTES, "repeats": options.repeats, "rows": rows,
    }  # fmt: skip
    write_record(record, options.out)


if __name__ == "__main__":
    main()
