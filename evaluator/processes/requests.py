"""What a trusted server process can be asked: a record for each kind of request, with the record that answers it.

A request travels as one JSON line, `{"op": name of the kind, ...its fields}`; its answer as the fields of the answer. A fault travels as
`{"error": sentence, "kind": "task" | "usage" | "infrastructure"}`. Paths name files that the process may read or write.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import ValidationError

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import RaceRow
from tritonsmith.evaluator.records.contest import Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Hardware, Record, Task, Verdict

A = TypeVar("A", bound=Record)
"""What answers a kind of request."""


class ServerRequest(Record, Generic[A]):
    """One question to a server process. A kind derives from `ServerRequest[its answer]`, and names itself and its answer."""

    op: ClassVar[str]
    """Names the kind on the wire."""
    answered_by: ClassVar[type[Record]]
    """The record that answers it; the same as the type argument."""

    def write(self) -> dict[str, Any]:
        """The JSON object that stands for the request."""
        return {"op": self.op, **self.model_dump(mode="json")}

    def read_answer(self, message: dict[str, Any]) -> A:
        """The answer in a JSON object."""
        return cast(A, self.answered_by.model_validate(message))


def read_request(message: object, kinds: Sequence[type[ServerRequest[Any]]]) -> ServerRequest[Any]:
    """The request in a JSON object, as one of the kinds. Raises InfrastructureError, in one sentence, for anything else."""
    op = message.get("op") if isinstance(message, dict) else None
    kind = next((kind for kind in kinds if kind.op == op), None)
    if kind is None:
        raise InfrastructureError(f"there is no request {op!r} here; ask {', '.join(kind.op for kind in kinds)}")
    try:
        return kind.model_validate(message)
    except ValidationError as error:
        wrong = dict.fromkeys(".".join(map(str, fault["loc"])) for fault in error.errors(include_url=False))
        raise InfrastructureError(f"the request {op!r} cannot be read: see {', '.join(wrong)}") from error


class HelloAnswer(Record):
    """Which card a process judges for."""

    hardware: Hardware


class Hello(ServerRequest[HelloAnswer]):
    """The first request of every process: what it judges for, and in which sandbox."""

    op = "hello"
    answered_by = HelloAnswer
    target: str
    """`auto` or a card's key."""
    use_card: bool
    """Whether it may use the card of this machine."""
    sandbox: str
    """Mode of the sandbox."""


class JudgingTerms(Record):
    """What an oracle is told besides a question that it times something for."""

    measuring: Path
    """A file that exists while something is timed."""
    code: Path
    """Folder for what texts compile to."""
    baselines: tuple[str, ...]
    """Names; none: the profile names them."""
    call_seconds: float
    """The longest that one call of a candidate may take."""


class EvaluateAnswer(Record):
    """The verdict about a candidate."""

    verdict: Verdict


class Evaluate(JudgingTerms, ServerRequest[EvaluateAnswer]):
    """Judge a candidate by one profile."""

    op = "evaluate"
    answered_by = EvaluateAnswer
    task: Task
    kernel: KernelText
    profile: str
    raw: Path
    """Where raw samples are written."""
    trace: tuple[OperatorCost, ...]
    """What each operator of the reference costs; empty where nothing is judged but correctness."""
    timed: bool = False
    """Whether a question about correctness alone, at another size, is followed by a short timing where there is a card."""


class FileAnswer(Record):
    """A file that the process has written."""

    request: Path


class Prepare(ServerRequest[FileAnswer]):
    """Run a task's reference, and write the file that compilers read."""

    op = "prepare"
    answered_by = FileAnswer
    task: Task
    baselines: tuple[str, ...] = ()


class WriteCall(ServerRequest[FileAnswer]):
    """Write a file with the arguments and weights of one call of a task."""

    op = "own_call"
    answered_by = FileAnswer
    task: Task
    baselines: tuple[str, ...] = ()


class RaceAnswer(Record):
    """What became of each entrant, or why nothing was timed."""

    rows: tuple[RaceRow, ...] = ()
    note: str = ""


class Race(JudgingTerms, ServerRequest[RaceAnswer]):
    """Time texts against the best so far."""

    op = "race"
    answered_by = RaceAnswer
    task: Task
    incumbent: KernelText
    entrants: tuple[KernelText, ...]
    keep: int
    """How many are to be left over."""
    seconds: float
    """After so many nothing more is timed."""


class RaceRegions(ServerRequest[ContestReport]):
    """Time the ways to write some regions."""

    op = "race_regions"
    answered_by = ContestReport
    contests: tuple[Contest, ...]
    seconds: float
    """After so many no further contest begins."""
    measuring: Path
    """A file that exists meanwhile."""


class SanitizeAnswer(Record):
    """Whether compute-sanitizer found memory errors, and what it says."""

    found: bool
    text: str


class Sanitize(ServerRequest[SanitizeAnswer]):
    """Run a kernel under compute-sanitizer."""

    op = "sanitize"
    answered_by = SanitizeAnswer
    kernel: KernelText
    request: Path
    """The file that `WriteCall` gave."""
    code: Path
    """What the kernel was compiled to."""
    seconds: float


class CountAnswer(Record):
    """What Nsight Compute counted, or why it did not; `final`: so it is for every kernel here."""

    counters: Counters
    final: bool


class Count(ServerRequest[CountAnswer]):
    """Run a kernel under Nsight Compute."""

    op = "count"
    answered_by = CountAnswer
    kernel: KernelText
    request: Path
    """The file that `WriteCall` gave."""
    seconds: float


class CompileAnswer(Record):
    """What `confined/compiler` reports: a status, and kernels with their facts or a message."""

    report: dict[str, Any]


class Compile(ServerRequest[CompileAnswer]):
    """Compile a candidate without the card; only compilers are asked this."""

    op = "compile"
    answered_by = CompileAnswer
    kernel: KernelText
    request: Path
    """The file that `Prepare` gave."""
    seconds: float
    mark: Path
    """A file that exists while something is timed."""
    keep: Path | None = None
    """A file for what was compiled."""


ORACLE_KINDS: tuple[type[ServerRequest[Any]], ...] = (Hello, Evaluate, Prepare, WriteCall, Race, RaceRegions, Sanitize, Count)
"""What an oracle answers."""
COMPILER_KINDS: tuple[type[ServerRequest[Any]], ...] = (Hello, Compile)
"""What a compiler answers."""
