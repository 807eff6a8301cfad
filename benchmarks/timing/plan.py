"""What the timing study measures: kernels of known work against themselves, and kernels whose reported speedup is measured twice.

The tasks below `tasks/` run the candidate's own kernel as their reference, with work for 103 units. A candidate with 100 units is a
true gain of 3 %, one with 103 is equal, one with 106 is a true loss; all three give the same result. Their references refuse to be
captured or compiled, so that both sides are plain launches through the same Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tritonsmith.author.book import match_recipe
from tritonsmith.benchmarks.hacks.edits import Edit, edit_kernel
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Hardware, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import load_task

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
WORK = {"gain": 100, "equal": 103, "loss": 106}
"""Units of work of a candidate, by what it is; the reference has those of `equal`."""


@dataclass(frozen=True)
class StudyTask:
    """One task of known work at one size."""

    name: str
    file: str
    sizes: dict[str, int] = field(default_factory=dict)
    scalable: bool = False
    """Long enough that 3 % of its work are more than 2.5 % of its time on the card."""

    @property
    def path(self) -> Path:
        """The task file."""
        return HERE / "tasks" / f"{self.file}.py"

    def task(self, kind: str = "equal") -> Task:
        """The task with the work of a kind; verdicts use that of `equal`."""
        return load_task(self.path, overrides={**self.sizes, "work": WORK[kind]})

    def candidate(self, kind: str) -> str:
        """The task's own text as a candidate, its work changed."""
        text = self.path.read_text(encoding="utf-8")
        for name, value in {**self.sizes, "work": WORK[kind]}.items():
            text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        return text.replace("class Model(", "class ModelNew(")


TASKS = (
    StudyTask("chain 20 us", "chain", {"per_unit": 1}),
    StudyTask("stream 30 us", "stream", {"rows": 32}),
    StudyTask("softmax 60 us", "softmax_rows", {"rows": 64}),
    StudyTask("chain 0.5 ms", "chain", {"per_unit": 40}, scalable=True),
    StudyTask("product 0.4 ms", "product", scalable=True),
    StudyTask("stream 0.2 ms", "stream", {"rows": 256}, scalable=True),
    StudyTask("chain 2 ms", "chain", {"per_unit": 150}, scalable=True),
)


def split_evenly(total: int, parts: int) -> list[int]:
    """`total` split into `parts` whole numbers that differ by one at most: [3, 2, 2] for 7 in 3."""
    return [total // parts + (number < total % parts) for number in range(parts)]


def schedule(counts: dict[str, int], tasks: Sequence[StudyTask] = TASKS) -> Iterator[tuple[StudyTask, str]]:
    """Every verdict to ask for: task by task, and within a task equal, gain and loss in turns, so that drift falls on all three."""
    left: dict[str, dict[str, int]] = {task.name: {} for task in tasks}
    for kind in WORK:
        where = [task for task in tasks if task.scalable or kind == "equal"]
        for task, count in zip(where, split_evenly(counts.get(kind, 0), len(where)), strict=True):
            left[task.name][kind] = count
    for task in tasks:
        waiting = left[task.name]
        while any(waiting.values()):
            for kind in sorted(waiting):
                if waiting[kind]:
                    waiting[kind] -= 1
                    yield task, kind


@dataclass(frozen=True)
class RepeatedKernel:
    """A kernel whose speedup is measured twice: a task, and a recipe's name or an edited kernel of the corpus."""

    name: str
    file: str
    sizes: dict[str, int] = field(default_factory=dict)
    recipe: str = ""
    kernel: str = ""
    edits: tuple[Edit, ...] = ()

    def task(self) -> Task:
        """The task at its size."""
        return load_task(BENCHMARKS / self.file, overrides=dict(self.sizes))

    def text(self, task: Task, facts: Callable[[], TaskFacts], hardware: Hardware) -> str:
        """The candidate; facts are asked for where a recipe needs them. Raises UsageError where the recipe does not fit."""
        if self.kernel:
            return edit_kernel(self.kernel, *self.edits)
        found = match_recipe(self.recipe, task, facts(), hardware)
        recipe = found.recipe(self.recipe) if found else None
        settings = recipe.defaults(found.plan, hardware, task.precision) if found and recipe else None
        if found is None or recipe is None or settings is None:
            raise UsageError(f"the recipe {self.recipe} does not fit {task.name} on {hardware.name}")
        return recipe.render(found.plan, settings)


_CHAIN, _LINEAR, _GRU = "tasks/26_gelu_scale_bias.py", "tasks/76_linear_bias_relu.py", "tasks/39_gru.py"
_SOFTMAX, _SUM = "hacks/tasks/softmax.py", "hacks/tasks/column_sum.py"
_SHORT_GRU, _WIDE, _TALL = {"seq_len": 64}, {"rows": 16384, "columns": 4096}, {"rows": 8192, "columns": 8192}
_TILE: Edit = ("TILE = (16, 16, 32)", "TILE = (64, 64, 32)")

REPEATED = (
    RepeatedKernel("26 recipe", _CHAIN, recipe="pointwise"),
    RepeatedKernel("26 blocks of 1024", _CHAIN, kernel="gelu", edits=(("BLOCK = 256", "BLOCK = 1024"),)),
    RepeatedKernel(
        "26 persistent", _CHAIN, kernel="gelu_persistent", edits=(("PROGRAMS = 3", "PROGRAMS = 2112"), ("BLOCK = 128", "BLOCK = 1024"))
    ),
    RepeatedKernel("76 recipe", _LINEAR, recipe="product"),
    RepeatedKernel("76 tile of 64", _LINEAR, kernel="linear", edits=(_TILE,)),
    RepeatedKernel("39 wavefront", _GRU, _SHORT_GRU, recipe="recurrent_wavefront"),
    RepeatedKernel("39 batch rows", _GRU, _SHORT_GRU, recipe="recurrent_persistent_batch"),
    RepeatedKernel("softmax row", _SOFTMAX, _WIDE, kernel="softmax", edits=(("WARPS = 4", "WARPS = 8"),)),
    RepeatedKernel("softmax online", _SOFTMAX, _WIDE, kernel="softmax_online", edits=(("BLOCK = 64", "BLOCK = 1024"),)),
    RepeatedKernel("column sum", _SUM, _TALL, kernel="column_sum"),
    RepeatedKernel("column sum, 32 columns", _SUM, _TALL, kernel="column_sum", edits=(("BLOCK = 16", "BLOCK = 32"),)),
    RepeatedKernel("column sum, 64 columns", _SUM, _TALL, kernel="column_sum", edits=(("BLOCK = 16", "BLOCK = 64"),)),
)

COST = (
    (RepeatedKernel("26 blocks of 1024", _CHAIN, kernel="gelu", edits=(("BLOCK = 256", "BLOCK = 1024"),)),
     RepeatedKernel("26 blocks of 512", _CHAIN, kernel="gelu", edits=(("BLOCK = 256", "BLOCK = 512"),)),
     RepeatedKernel("26 two warps", _CHAIN, kernel="gelu", edits=(("WARPS = 4", "WARPS = 2"),))),
    (RepeatedKernel("softmax row", _SOFTMAX, _WIDE, kernel="softmax", edits=(("WARPS = 4", "WARPS = 8"),)),
     RepeatedKernel("softmax, 4 warps", _SOFTMAX, _WIDE, kernel="softmax"),
     RepeatedKernel("softmax, 16 warps", _SOFTMAX, _WIDE, kernel="softmax", edits=(("WARPS = 4", "WARPS = 16"),))),
)  # fmt: skip
"""Per task: the candidate that a new evaluator judges first, and those that it judges afterwards."""
