"""What a run works with: author, evaluator, policy, limits and store. Never checkpointed, never traced."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType

from tritonsmith.evaluator.caller.questions.compiler_seed import Compiler
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Allow, Hardware, LaunchFacts, Task, TaskFacts, Timing
from tritonsmith.evaluator.texts.detect.detection import Detection, detect
from tritonsmith.graph.background import run_blocking
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.session import Keep, Session
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.store import Store
from tritonsmith.prompts.author import Author, Recalled

Recaller = Callable[[Task, TaskFacts, Hardware], Awaitable[Recalled]]
"""Finds what earlier runs tell of a task."""
Detector = Callable[[str, LaunchFacts, TaskFacts, Hardware, Timing | None], Detection]
"""Labels a kernel's text, given what was measured of it."""


class Sessions:
    """Sessions by run; branches of a run find the same one from any thread."""

    def __init__(self, earlier: float = 0.0, keep: Keep | None = None) -> None:
        """What every session begins with: the seconds of earlier processes, and who writes down what the state does not tell."""
        self._lock = threading.Lock()
        self._by_run: dict[str, Session] = {}
        self._earlier, self._keep = earlier, keep

    def of(self, run: str, parallel: int) -> Session:
        """The session of a run."""
        with self._lock:
            return self._by_run.setdefault(run, Session(parallel, self._earlier, self._keep))


@dataclass(frozen=True)
class Context:
    """The `context=` of every invocation. As a context manager (`with` or `async with`) it ends the evaluator's processes."""

    author: Author
    evaluator: Evaluator
    policy: Policy
    store: Store = field(default_factory=Store)
    budget: Budget = field(default_factory=Budget)
    seeds: int = 2
    """Seed branches, where the policy does not set their number."""
    allow: Allow = Allow.HYBRID
    """Which labels may win."""
    tuning: Tuning | None = None
    """Who finds the variants of a tuning stage; None: as the policy says."""
    claims_from: float | None = None
    """The measured score from which on a kernel is the run's result; None: as the policy says."""
    seed_from: Compiler | None = None
    """A compiler whose own kernels are the last seed; None: the author writes all of them."""
    detector: Detector = detect
    memory: Recaller | None = None
    """None: authors know nothing of earlier runs."""
    sessions: Sessions = field(default_factory=Sessions, repr=False)
    _closed: threading.Event = field(default_factory=threading.Event, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise UsageError for a number of seeds that makes no run."""
        if self.seeds < 1:
            raise UsageError(f"--seeds {self.seeds}: a run needs at least one seed")

    @property
    def branches(self) -> int:
        """Number of seed branches: the policy's wish, else the setting; never more than candidates."""
        wanted = self.policy.seeds or self.seeds
        return min(wanted, self.budget.candidates or wanted)

    @property
    def claims(self) -> float:
        """The measured score below which the module is best kept."""
        return float(getattr(self.policy, "claims_from", 1.0)) if self.claims_from is None else self.claims_from

    def session(self, run: str) -> Session:
        """Ledger and memo of a run."""
        return self.sessions.of(run, max(1, self.evaluator.parallel, self.evaluator.admits))

    def __enter__(self) -> Context:
        self.require_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        run_blocking(self.aclose())

    async def __aenter__(self) -> Context:
        self.require_open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def require_open(self) -> None:
        """Raise UsageError where the context was closed: its evaluator and its temporary store are gone."""
        if self._closed.is_set():
            raise UsageError("the context is closed; run the graph inside its `with` block, or make a new one with make_context(...)")

    async def aclose(self) -> None:
        """End the evaluator's processes and drop a temporary store; nothing can be run with the context afterwards."""
        self._closed.set()
        await self.evaluator.aclose()
        self.store.close()
