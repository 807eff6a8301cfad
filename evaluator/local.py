"""The evaluator of this machine: oracle processes behind the Evaluator protocol. Imports no torch; safe from any event loop or thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from tritonsmith.evaluator.advice import advice_lines
from tritonsmith.evaluator.cards import CARDS, named_card
from tritonsmith.evaluator.describe import run_probe
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.oracle_process import OracleProcess
from tritonsmith.evaluator.schema import Status, Task, TaskFacts, Verdict, text_sha
from tritonsmith.evaluator.tasks import load_task
from tritonsmith.evaluator.trace_records import OperatorCost

CALL_SECONDS = 120.0
EVALUATE_SECONDS = 1200.0
"""A whole verdict; every step inside has a shorter limit of its own, so this only catches a stuck oracle."""


class LocalEvaluator:
    """Evaluator of this machine: one oracle on a card, up to two without.

    Args:
        target: `auto` (the card that is here, else estimates for the default card) or a card's name.
        raw_dir: where raw samples go; a temporary folder when None.
        call_seconds: the longest that one call of a candidate may take, compilation included.
        sandbox: `auto` (the layers that work here), `strict` (refuse where a needed one is missing) or `off`.
    """

    def __init__(
        self, target: str = "auto", raw_dir: Path | None = None, call_seconds: float = CALL_SECONDS, sandbox: str = "auto"
    ) -> None:
        if target != "auto":
            named_card(target)  # a wrong name is the user's sentence, not an oracle's fault
        self._temporary = tempfile.TemporaryDirectory(prefix="tritonsmith-raw-", ignore_cleanup_errors=True)
        self.raw_dir = raw_dir or Path(self._temporary.name)
        self._call_seconds = call_seconds
        first = OracleProcess(target, sandbox=sandbox)
        try:
            self.hardware = first.hello()
        except BaseException:
            first.remove()
            self._temporary.cleanup()
            raise
        self.parallel = 1 if self.hardware.present else min(2, os.cpu_count() or 1)
        self._oracles: queue.Queue[OracleProcess] = queue.Queue()
        audited = self.hardware.present and self.hardware.key in CARDS
        self._auditor = OracleProcess(self.hardware.key, use_card=False, sandbox=sandbox) if audited else None
        self._audit_lock = threading.Lock()
        self._all = [first, *(OracleProcess(target, sandbox=sandbox) for _ in range(self.parallel - 1))]
        for oracle in reversed(self._all):
            self._oracles.put(oracle)
        self._probes: dict[str, tuple[TaskFacts, list[OperatorCost]]] = {}
        self._probe_lock = threading.Lock()
        self._numbers = itertools.count()

    def _probe(self, task: Task) -> tuple[TaskFacts, list[OperatorCost]]:
        with self._probe_lock:
            if task.sha not in self._probes:
                self._probes[task.sha] = run_probe(task)
            return self._probes[task.sha]

    @contextlib.contextmanager
    def _leased(self, auditor: OracleProcess | None) -> Iterator[OracleProcess]:
        if auditor is not None:
            with self._audit_lock:
                yield auditor
            return
        oracle = self._oracles.get()
        try:
            yield oracle
        finally:
            self._oracles.put(oracle)

    def evaluate_now(self, task: Task, source: str, profile: str = "quick") -> Verdict:
        """As `evaluate`, blocking; an oracle that fails is started again and asked once more."""
        advice = advice_lines(source, task.precision)  # beside the verdict, which never depends on it
        return self._judged(task, source, profile).model_copy(update={"advice": advice})

    def _judged(self, task: Task, source: str, profile: str) -> Verdict:
        verdict = self._ask(task, source, profile)
        if profile == "strict" and verdict.status is Status.OK and self._auditor is not None:
            return self._audited(task, source, verdict)
        return verdict

    def _ask(self, task: Task, source: str, profile: str, auditor: OracleProcess | None = None) -> Verdict:
        _, trace = self._probe(task)
        with tempfile.TemporaryDirectory(prefix="tritonsmith-kernel-") as folder, self._leased(auditor) as oracle:
            Path(folder).chmod(0o755)
            path = Path(folder) / "candidate.py"
            path.write_text(source)
            raw = self.raw_dir / f"{text_sha(source)}-{profile}-{next(self._numbers)}.json"
            request = {
                "op": "evaluate", "task": task.model_dump(mode="json"), "trace": [asdict(one) for one in trace], "source": str(path),
                "profile": profile, "raw": str(raw.resolve()), "call_seconds": self._call_seconds,
            }  # fmt: skip
            try:
                answer = oracle.ask(request, EVALUATE_SECONDS)
            except InfrastructureError:
                oracle.close()
                answer = oracle.ask(request, EVALUATE_SECONDS)
        return Verdict.model_validate(answer["verdict"])

    def _audited(self, task: Task, source: str, verdict: Verdict) -> Verdict:
        """The interpreter's view of a kernel that passed on the card: a race that this card did not show still refuses it."""
        try:
            small = load_task(task.path, size="small", precision=task.precision)
        except TaskError:
            return _with_audit(verdict, "not done: the task declares no small size")
        audit = self._ask(small, source, "quick", self._auditor)
        if audit.status is Status.RACY:
            message = f"correct on the card, but in the interpreter {audit.message}"
            return _with_audit(Verdict(status=Status.RACY, sha=verdict.sha, profile=verdict.profile, message=message), "racy")
        return _with_audit(verdict, "no race found" if audit.status is Status.OK else f"{audit.status.value}: {audit.message[:300]}")

    async def describe(self, task: Task) -> TaskFacts:
        """Run and trace the reference once (cached). Raises TaskError."""
        return (await asyncio.to_thread(self._probe, task))[0]

    async def evaluate(self, task: Task, source: str, profile: str = "quick") -> Verdict:
        """One verdict about a candidate's text. Raises TaskError or InfrastructureError."""
        return await asyncio.to_thread(self.evaluate_now, task, source, profile)

    def close(self) -> None:
        """End every process; safe to call twice."""
        for oracle in [*self._all, *([self._auditor] if self._auditor else [])]:
            oracle.remove()
        self._temporary.cleanup()

    async def aclose(self) -> None:
        """As `close`, from an event loop."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> LocalEvaluator:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def __enter__(self) -> LocalEvaluator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _with_audit(verdict: Verdict, outcome: str) -> Verdict:
    return verdict.model_copy(update={"environment": verdict.environment | {"interpreter_audit": outcome}})


def open_evaluator(
    target: str = "auto", raw_dir: Path | None = None, call_seconds: float = CALL_SECONDS, sandbox: str = "auto"
) -> LocalEvaluator:
    """The evaluator for a target.

    Raises UsageError for an unknown card and for `strict` on a machine that lacks a protection, InfrastructureError when the oracle
    does not start.
    """
    return LocalEvaluator(target, raw_dir, call_seconds, sandbox)
