"""What a run keeps next to its state: the ledger that all branches share, and verdicts already paid for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from tritonsmith.evaluator.schema import Verdict
from tritonsmith.graph.state import BranchState, Budget, State, Usage, total
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.prompts.author import AuthorError

MemoKey = tuple[str, str, str]
"""Task sha, kernel sha, profile."""
Keep = Callable[[dict[str, Any]], None]
"""Writes one line of what a run keeps for itself."""


class Session:
    """One run's ledger and memo. Everything in it can be rebuilt from the state, so a resumed run goes on counting."""

    def __init__(self, parallel: int = 1, earlier: float = 0.0, keep: Keep | None = None) -> None:
        """Start the clock at `earlier` seconds; at most `parallel` evaluations run at once. `keep` hears what the state does not tell."""
        self.halt_reason = ""
        self._parallel = parallel
        self._keep = keep
        self._candidates: set[str] = set()
        self._usage: dict[str, Usage] = {}
        self._faults: dict[str, AuthorError] = {}
        self._waiting: dict[str, AuthorError] = {}
        self._started = time.monotonic() - earlier
        self._verdicts: dict[MemoKey, Verdict] = {}
        # asyncio primitives belong to one event loop, and a context may be used from several
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[MemoKey, asyncio.Lock]] = WeakKeyDictionary()

    @property
    def elapsed(self) -> float:
        """Wall seconds of the run, earlier processes included."""
        return time.monotonic() - self._started

    def absorb(self, state: State | BranchState) -> None:
        """Count what a state knows; counting twice changes nothing."""
        self._candidates.update(state.get("candidates", {}))
        self._usage.update(state.get("usage", {}))
        self._started -= max(0.0, state.get("elapsed", 0.0) - self.elapsed)
        self.halt_reason = self.halt_reason or state.get("stopped_because", "")

    def note_candidate(self, candidate_id: str) -> None:
        """Count a new candidate at once, so that parallel branches see it."""
        self._candidates.add(candidate_id)

    def note_usage(self, request: str, usage: Usage) -> None:
        """Count a request to the author at once."""
        self._usage[request] = usage

    @property
    def total_usage(self) -> Usage:
        """What the author has cost so far, all branches together."""
        return total(dict(self._usage))  # a copy: calls are noted from other threads

    def halt(self, reason: str) -> None:
        """Let every branch stop at its next decision."""
        self.halt_reason = self.halt_reason or reason

    def fail(self, branch: str, error: AuthorError, *, fatal: bool) -> None:
        """The author failed a branch; a fatal failure would fail every other one too, and ends the run."""
        if self._keep is not None:
            self._keep({"kind": "fault", "branch": branch, "error": str(error), "fatal": fatal})
        self.remember_fault(branch, error, fatal=fatal)

    def remember_fault(self, branch: str, error: AuthorError, *, fatal: bool) -> None:
        """A failure that an earlier process of the run has kept."""
        self._faults[branch] = error
        if fatal:
            self.halt(str(error))

    def fault(self, branch: str) -> str:
        """Why the author failed this branch last; empty when it did not."""
        return str(self._faults.get(branch, ""))

    def wait(self, branch: str, wait: AuthorError) -> None:
        """A branch waits for a reply that comes in a later run; the other branches go on."""
        self._waiting[branch] = wait

    def waits(self, branch: str) -> str:
        """What a branch waits for; empty when it does not."""
        return str(self._waiting.get(branch, ""))

    def raise_if_over(self, candidates: int) -> None:
        """Where branches join: raise what one waits for, or, where none has written anything, why the author failed."""
        stops = [*self._waiting.values(), *([] if candidates else self._faults.values())]
        if stops:
            raise stops[0]

    def room(self, budget: Budget) -> int | None:
        """Candidates that may still be written; None without a limit."""
        return None if budget.candidates is None else max(0, budget.candidates - len(self._candidates))

    def stop_reason(self, budget: Budget, *, candidates: bool = True) -> str | None:
        """Why the run has to stop now, as a sentence; None while it may go on. Seed branches count `candidates` by themselves."""
        used = self.total_usage
        if self.halt_reason:
            return self.halt_reason
        if candidates and budget.candidates is not None and len(self._candidates) >= budget.candidates:
            return f"budget: {len(self._candidates)} of {count_words(budget.candidates, 'candidate')} written"
        if budget.seconds is not None and self.elapsed >= budget.seconds:
            return f"budget: {self.elapsed:.0f} of {count_words(round(budget.seconds), 'second')} gone"
        if budget.tokens is not None and used.tokens >= budget.tokens:
            return f"budget: {used.tokens} of {budget.tokens} tokens are used"
        if budget.money is not None and used.money >= budget.money:
            return f"budget: {used.money:.2f} of {budget.money:.2f} dollars are spent"
        return None

    async def get_or_make(self, key: MemoKey, make: Callable[[], Awaitable[Verdict]]) -> Verdict:
        """The verdict for a key: from memory, else made, however many branches ask at the same time."""
        loop = asyncio.get_running_loop()
        lock = self._locks.setdefault(loop, {}).setdefault(key, asyncio.Lock())
        slot = self._slots.setdefault(loop, asyncio.Semaphore(self._parallel))
        async with lock:
            if key not in self._verdicts:
                async with slot:
                    self._verdicts[key] = await make()
            return self._verdicts[key]
