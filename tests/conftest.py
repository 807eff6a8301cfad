"""Fixtures shared by the tests: a scripted run of the graph, and a task that needs no file."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interpreted import Interpreted
from measuring.cpu_seconds import CpuSeconds
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.caller.questions.describe import TaskDescriptions
from tritonsmith.evaluator.schema import Allow, Task, Verdict
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedDetector, ScriptedEvaluator, scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category, Promise

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: tests run beside each other, and its threads would wait in turns
os.environ["TRITONSMITH_ANSWERS"] = "off"  # a test that is run again measures again

FIRST = ("whole", "test_packaging.py")
"""Folders and files with the longest tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests say where their processor time goes."""
    parser.addoption("--cpu-seconds", type=Path, metavar="FILE", help="write the processor seconds of each test, with its processes")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where that was asked for; with several workers the first process writes the file."""
    if out := config.getoption("--cpu-seconds"):
        config.pluginmanager.register(CpuSeconds(None if hasattr(config, "workerinput") else out))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: begun last, one worker would be at them long after the others are done."""
    items.sort(key=lambda item: not {item.path.name, item.path.parent.name} & {*FIRST})


@pytest.fixture(scope="session")
def evaluator() -> Iterator[LocalEvaluator]:
    """The evaluator without a card, one for all tests of a worker, since each start takes seconds.

    It describes tasks in this process, as the probe does in one of its own, which would import torch for each.
    """
    from tritonsmith.evaluator.reference.probe import probe  # imports torch, which most tests do without

    with LocalEvaluator("h200", call_seconds=60, descriptions=TaskDescriptions(probe)) as opened:
        yield opened


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Interpreted]:
    """Runs scripts under Triton's interpreter; one process of a worker imports torch and Triton for all of them."""
    with Interpreted() as opened:
        yield opened


class Script:
    """One scripted run: tables in, the graph's answer out."""

    def __init__(
        self,
        scores: dict[str, float | None | Verdict | Exception],
        *,
        strict: dict[str, float | None | Verdict | Exception] | None = None,
        labels: dict[str, tuple[str, ...]] | None = None,
        policy: Any = "default",
        budget: Budget | None = None,
        allow: Allow = Allow.HYBRID,
        **author: Any,
    ) -> None:
        self.author = ScriptedAuthor(**author)
        self.evaluator = ScriptedEvaluator(_verdicts(scores), _verdicts(strict or {}))
        self.context = Context(
            author=self.author,
            evaluator=self.evaluator,
            policy=load_policy(policy) if isinstance(policy, str) else policy,
            budget=budget or Budget(),
            seeds=len(self.author.seeds) or 1,
            allow=allow,
            detector=ScriptedDetector(labels or {}),
        )
        self.task = Task(name="task", path="task.py", source="")
        self.result: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        self.result = build_graph().compile().invoke({"task": self.task}, context=self.context)
        return self.result

    def path(self, branch: str) -> list[tuple[str, str]]:
        """Sites and choices of one branch, in order."""
        return [(decision.site, decision.choice) for decision in self.result["decisions"].values() if decision.branch == branch]

    def text(self, candidate: str | None) -> str:
        """The kernel text of a candidate."""
        return self.context.store.get(self.result["candidates"][candidate].sha)

    def asked(self, kind: str) -> list[str]:
        """The texts that the author was asked about."""
        return [brief.current.source for what, brief in self.author.briefs if what == kind and brief.current]


def _verdicts(table: dict[str, Any]) -> dict[str, Verdict | Exception]:
    return {text: entry if isinstance(entry, Verdict | Exception) else scripted_verdict(entry) for text, entry in table.items()}


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    """Makes scripted runs; temporary stores go with the test."""
    made: list[Script] = []

    def make(*args: Any, **kwargs: Any) -> Script:
        made.append(Script(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.context.store.close()


@pytest.fixture
def analysis() -> Callable[..., Analysis]:
    """Makes analyses that promise fewer launches."""

    def make(bound: float = 2, **fields: Any) -> Analysis:
        promise = Promise(metric="launches_per_forward", before=3000, bound=bound)
        return Analysis(
            bottleneck="launches", optimisation_method="one launch", modification_plan="move the time loop into the kernel",
            category=Category.LAUNCHES, **{"expected_speedup": 3.0, "promise": promise, **fields},
        )  # fmt: skip

    return make
