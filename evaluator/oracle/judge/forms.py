"""In which form a candidate is timed in one verdict: as called, or in a CUDA graph that the runner captures. Pure Python.

A process of its own, the witness, shows beforehand whether a graph counts: it must hold the kernels of a call, each as often, and give
right results on inputs that it was not captured on. The first session then takes the faster form, and further sessions keep it.
"""

from __future__ import annotations

from typing import Any, Protocol

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, CUDA_GRAPH
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing.baselines import Blamed
from tritonsmith.evaluator.oracle.timing.form_choice import FormChoice
from tritonsmith.evaluator.schema import Status

TIGHT = "a graph keeps memory of its own, and this task leaves little"
"""Why no graph is tried where the memory plan is tight."""
FEWEST_LAUNCHES = 3
"""A forward of fewer launches leaves no gaps: it is timed as called."""
_FREE = ("Memcpy", "Memset")
"""How names of device work begin that is no kernel: a graph may copy by other means."""
_MOST_NAMES = 60
"""A report of so many kinds of kernels may be cut."""
_OF_THE_FORM = (Status.INACCURATE, Status.CHEATING, Status.RACY, Status.RUNTIME_ERROR)
"""What a fault of a replay may be called, where the same forward may be right as called."""
_LONGEST = 200
"""Characters of a fault that a note repeats."""


class GraphWitness(Protocol):
    """Who can say whether a candidate's graph counts."""

    def look_at_graph(self, called: dict[str, Any], limit: float) -> tuple[str, dict[str, Any]]:
        """Why a replay must not be timed, else empty; and what of its report takes the place of a call's."""
        ...


class Attempts:
    """Whether a verdict is begun again after a fault, and in which form.

    Args:
        problem: why the graph of a candidate is not to be tried from the outset; empty where it may be.
    """

    def __init__(self, problem: str = "") -> None:
        self.form = FormChoice(problem)
        self.notes: list[str] = []
        self._blamed = False

    @property
    def all_notes(self) -> list[str]:
        """What is noted about them in a verdict."""
        graph = [f"timed as called, not in a CUDA graph: {self.form.problem}"] if self.form.problem else []
        return [*self.notes, *graph]

    def look_at_graph(self, witness: GraphWitness | None, report: dict[str, Any] | None, limit: float) -> None:
        """Leave the graph out where it must not count, or where it can gain nothing; `report` is of the forward as called."""
        if self.form.chosen:
            return
        if witness is None or report is None:
            self.form.leave_graph_out("there is no second process that shows what it launches")
        elif count_launches(report) < FEWEST_LAUNCHES:
            self.form.leave_graph_out()
        else:
            problem, self.form.of_replay = witness.look_at_graph(report, limit)
            if problem:
                self.form.leave_graph_out(problem)

    def conclude(self, in_graphs: set[str], sha: str) -> None:
        """All sessions are done: keep which texts run in a graph. What is found from now on is no fault of a form."""
        if self.form.running == CUDA_GRAPH:
            in_graphs.add(sha)
        else:
            in_graphs.discard(sha)
        self.form.running = AS_CALLED

    def try_again(self, fault: RunnerFault) -> bool:
        """Whether a fault is no verdict yet.

        A candidate that is blamed for calls which cannot be timed is measured once more, in fresh processes: a host's bad moment does not
        come twice in a row. A fault of a replay leaves the graph out: as called the candidate may be right.
        """
        if isinstance(fault, Blamed):
            first, self._blamed = not self._blamed, True
            if first:
                self.notes.append(f"measured again in fresh processes: {str(fault)[:_LONGEST]}")
            self.form = FormChoice(self.form.problem)
            return first
        if self.form.running == CUDA_GRAPH and fault.status in _OF_THE_FORM:
            self.form = FormChoice(f"a timed call in a CUDA graph failed: {str(fault)[:_LONGEST]}")
            return True
        return False


def read_card_work(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says of the card's work. A replay launches nothing through Triton's JIT, so the rest is known of a call alone."""
    return {name: report[name] for name in ("device", "busy_ms") if name in report}


def count_launches(report: dict[str, Any]) -> int:
    """Kernels of one forward in a witness's report."""
    return sum(_count_kernels(report).values())


def find_other_work(called: dict[str, Any], replayed: dict[str, Any]) -> str:
    """How the kernels of a replay differ from those of a call, in words; empty where they are the same.

    Work that a candidate does only while it is captured, or leaves out then, is no form of what it does when it is called.
    """
    one, other = _count_kernels(called), _count_kernels(replayed)
    if max(len(one), len(other)) >= _MOST_NAMES:
        return "it has more kinds of kernels than are compared with those of a call"
    for name in sorted({*one, *other}, key=lambda name: (name in one, name)):
        if one.get(name, 0) != other.get(name, 0):
            alone, in_row = (f"{found.get(name, 0)} time{'s' * (found.get(name, 0) != 1)}" for found in (one, other))
            return f"it launches {name[:80]} {in_row}, a call {alone}"
    return ""


def _count_kernels(report: dict[str, Any]) -> dict[str, int]:
    """Kernels of a report, by name; what is no report of ours has none."""
    device = report.get("device")
    if not isinstance(device, dict):
        return {}
    try:
        return {str(name): int(seen[0]) for name, seen in device.items() if not str(name).startswith(_FREE)}
    except (TypeError, ValueError, IndexError, KeyError):
        return {}

