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
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.advice.advise import advice_lines
from tritonsmith.evaluator.audits.findings import Finding, of_interpreter, of_sanitizer, settled
from tritonsmith.evaluator.audits.other_sizes import at_other_sizes
from tritonsmith.evaluator.audits.second_opinion import refusal, second_opinion
from tritonsmith.evaluator.cards import CARDS, named_card
from tritonsmith.evaluator.compiling.pool import CompilePool, Report
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, TritonsmithError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.bytecode import supplied
from tritonsmith.evaluator.processes.run_folder import run_folder
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.questions.describe import run_probe, start_probe
from tritonsmith.evaluator.questions.process import TaskProcess
from tritonsmith.evaluator.schema import CORRECTNESS_ONLY, OperatorCost, Status, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks import load_task

CALL_SECONDS = 120.0
EVALUATE_SECONDS = 2700.0
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
        self._temporary = tempfile.TemporaryDirectory(prefix="raw-", ignore_cleanup_errors=True, dir=run_folder())
        Path(self._temporary.name).chmod(0o711)  # confined processes read requests below it
        self.raw_dir = raw_dir or Path(self._temporary.name)
        self._call_seconds = call_seconds
        first = ServerProcess(target, sandbox=sandbox)
        self._next_probe: TaskProcess | None = start_probe()  # beside the oracle, which takes as long to import what it needs
        try:
            with supplied():  # while these start
                self.hardware = first.hello()
        except BaseException:
            self._next_probe.close()
            first.remove()
            self._temporary.cleanup()
            raise
        self.parallel = 1 if self.hardware.present else min(2, os.cpu_count() or 1)
        self._oracles: queue.Queue[ServerProcess] = queue.Queue()
        audited = self.hardware.present and self.hardware.key in CARDS
        self._auditor = ServerProcess(self.hardware.key, use_card=False, sandbox=sandbox) if audited else None
        self._audit_lock = threading.Lock()
        self._mark = Path(self._temporary.name) / "measuring"
        """Exists while something is timed."""
        self._compilers = CompilePool(self.hardware.key, sandbox, self._mark) if audited else None
        self._requests: dict[str, Path] = {}
        self._request_lock = threading.Lock()
        self._compiled: dict[tuple[str, str], Future[Report]] = {}
        """Reports by task and text: a confirmation asks about a text that was compiled before."""
        self._all = [first, *(ServerProcess(target, sandbox=sandbox) for _ in range(self.parallel - 1))]
        for oracle in reversed(self._all):
            self._oracles.put(oracle)
        self._probes: dict[str, tuple[TaskFacts, list[OperatorCost]]] = {}
        self._probe_lock = threading.Lock()
        self._numbers = itertools.count()

    def _probe(self, task: Task) -> tuple[TaskFacts, list[OperatorCost]]:
        with self._probe_lock:
            if task.sha not in self._probes:
                started, self._next_probe = self._next_probe, None
                self._probes[task.sha] = run_probe(task, started=started)
            return self._probes[task.sha]

    def _probe_beside(self, task: Task) -> None:
        with contextlib.suppress(TritonsmithError):  # asked again where the answer is needed
            self._probe(task)

    @contextlib.contextmanager
    def _leased(self, auditor: ServerProcess | None) -> Iterator[ServerProcess]:
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
        return self._examined(task, KernelText.of(source), profile).model_copy(update={"advice": advice})

    def _examined(self, task: Task, kernel: KernelText, profile: str) -> Verdict:
        """Compiled beside the card, judged, and audited where that is due; a suspicious kernel must pass the strict profile at once."""
        if self._compilers is not None and task.sha not in self._probes:
            threading.Thread(target=self._probe_beside, args=(task,), daemon=True).start()  # while the oracle prepares the task
        compiling = self._start_compiling(task, kernel)
        try:
            verdict = self._ask(task, kernel, profile, compiling=compiling)
            if compiling is not None:
                verdict = self._with_second_opinion(task, kernel, verdict)
        finally:
            if compiling is not None and not compiling.cancel():
                wait([compiling])  # a verdict leaves no compiler at work behind it
        if verdict.quarantine and profile != "strict":
            audited = self._examined(task, kernel, "strict")
            return audited.model_copy(update={"environment": audited.environment | {"quarantined": verdict.quarantine}})
        if profile == "strict" and verdict.status is Status.OK:
            findings = at_other_sizes(lambda variant: self._ask(variant, kernel, CORRECTNESS_ONLY), task)
            if not any(one.status for one in findings):
                findings += self._audits(task, kernel)
            return settled(verdict, findings)
        return verdict

    def _ask(
        self, task: Task, kernel: KernelText, profile: str, auditor: ServerProcess | None = None,
        compiling: Future[Report] | None = None,
    ) -> Verdict:  # fmt: skip
        with self._leased(auditor) as oracle:
            if compiling is not None and compiling.done() and (refused := _refused(compiling)):
                where = {"target": self.hardware.key, "stage": "compiled without the card"}
                return Verdict(status=refused[0], message=refused[1], sha=kernel.sha, profile=profile, environment=where)
            raw = self.raw_dir / f"{kernel.sha}-{profile}-{next(self._numbers)}.json"
            request = {"op": "evaluate", "kernel": kernel.as_message(), "profile": profile, "raw": str(raw.resolve())}
            about = self._about(task, traced=profile != CORRECTNESS_ONLY) | {"measuring": str(self._mark)}
            answer = self._answer(oracle, request | about | {"call_seconds": self._call_seconds})
        return Verdict.model_validate(answer["verdict"])

    def _about(self, task: Task, *, traced: bool = True) -> dict[str, Any]:
        return {"task": task.model_dump(mode="json"), "trace": [asdict(one) for one in self._probe(task)[1]] if traced else []}

    def _answer(self, oracle: ServerProcess, request: dict[str, Any]) -> dict[str, Any]:
        """The oracle's answer; one that fails is started again and asked once more."""
        try:
            return oracle.ask(request, EVALUATE_SECONDS)
        except InfrastructureError:
            oracle.close()
            self._mark.unlink(missing_ok=True)
            return oracle.ask(request, EVALUATE_SECONDS)

    # ---- compilers beside the card

    def _start_compiling(self, task: Task, kernel: KernelText, *, again: bool = False) -> Future[Report] | None:
        if self._compilers is None:
            return None
        key = (task.sha, kernel.sha)
        known = self._compiled.get(key)
        if again or known is None or known.cancelled() or (known.done() and known.exception() is not None):
            self._compiled[key] = self._compilers.submit(kernel, self._compile_request(task), self._call_seconds)
        return self._compiled[key]

    def _compile_request(self, task: Task) -> Path:
        """The file with init arguments and shapes that compilers read; the oracle writes it, because only it runs the task."""
        with self._request_lock:
            if task.sha in self._requests:
                return self._requests[task.sha]
            with self._leased(None) as oracle:
                return self._request_at(task, oracle)

    def _request_at(self, task: Task, oracle: ServerProcess) -> Path:
        if task.sha not in self._requests:
            said = self._answer(oracle, {"op": "prepare", "task": task.model_dump(mode="json")})  # before the probe: baselines start here
            kept = Path(self._temporary.name) / f"{task.sha}.pkl"
            kept.write_bytes(Path(said["request"]).read_bytes())
            kept.chmod(0o644)
            self._requests[task.sha] = kept
        return self._requests[task.sha]

    def _with_second_opinion(self, task: Task, kernel: KernelText, verdict: Verdict) -> Verdict:
        return second_opinion(verdict, lambda again: self._compiled_report(task, kernel, again), lambda: self._probe(task)[0])

    def _compiled_report(self, task: Task, kernel: KernelText, again: bool) -> Report:
        """What was compiled beside the card, or `again`, when it is there. Raises InfrastructureError."""
        compiling = self._start_compiling(task, kernel, again=again)
        assert compiling is not None
        try:
            return compiling.result()
        except CancelledError as error:
            raise InfrastructureError("the compilation was called off") from error

    # ---- audits

    def _audits(self, task: Task, kernel: KernelText) -> list[Finding]:
        """What is examined beside the profile itself, for kernels that are about to win."""
        if self._auditor is None:
            return []
        try:
            small = load_task(task.path, size="small", precision=task.precision)
        except TaskError:
            small = None
        # The card's oracle is leased for both: the interpreter would be noise beside another candidate's timing.
        with self._leased(None) as oracle, ThreadPoolExecutor(1) as beside:
            if small is None:
                interpreter = beside.submit(Finding, "interpreter", "not done: the task declares no small size")
            else:
                interpreter = beside.submit(lambda: of_interpreter(self._ask(small, kernel, "quick", self._auditor)))
            # At the task's own size: a kernel may be written for that size alone, and would read past the end of smaller inputs.
            request = {"op": "sanitize", "kernel": kernel.as_message(), "request": str(self._request_at(task, oracle))}
            answer = self._answer(oracle, request | {"seconds": self._call_seconds})
            return [interpreter.result(), of_sanitizer(bool(answer["found"]), str(answer["text"]))]

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
        if self._compilers is not None:
            self._compilers.close()
        if self._next_probe is not None:
            self._next_probe.close()
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


def _refused(compiling: Future[Report]) -> tuple[Status, str] | None:
    return None if compiling.cancelled() or compiling.exception() else refusal(compiling.result())


def open_evaluator(
    target: str = "auto", raw_dir: Path | None = None, call_seconds: float = CALL_SECONDS, sandbox: str = "auto"
) -> LocalEvaluator:
    """The evaluator for a target.

    Raises UsageError for an unknown card and for `strict` on a machine that lacks a protection, InfrastructureError when the oracle
    does not start.
    """
    return LocalEvaluator(target, raw_dir, call_seconds, sandbox)
