"""The evaluator of this machine: oracle processes behind the Evaluator protocol. Imports no torch; safe from any event loop or thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.cards import CARDS, named_card
from tritonsmith.evaluator.describe import run_probe
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.sandbox import scrubbed_environment
from tritonsmith.evaluator.schema import Hardware, Status, Task, TaskFacts, Verdict, text_sha
from tritonsmith.evaluator.tasks import load_task
from tritonsmith.evaluator.trace_records import OperatorCost
from tritonsmith.evaluator.wire_text import read_line

HELLO_SECONDS = 120.0
CALL_SECONDS = 120.0
_GOODBYE_SECONDS = 3.0
EVALUATE_SECONDS = 1200.0
"""A whole verdict; every step inside has a shorter limit of its own, so this only catches a stuck oracle."""


class OracleProcess:
    """One oracle over pipes; started at the first request and again after it died."""

    def __init__(self, target: str, *, use_card: bool = True, sandbox: str = "auto") -> None:
        self._hello = {"op": "hello", "target": target, "use_card": use_card, "sandbox": sandbox}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-home-", ignore_cleanup_errors=True)
        Path(self._folder.name).chmod(0o711)  # candidates run as another user and have their files below it
        self.hardware: Hardware | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            folder = Path(self._folder.name)
            with (folder / "oracle.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.oracle"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=scrubbed_environment(folder), cwd=folder,
                    start_new_session=True,
                )  # fmt: skip
            try:
                answer = _without_error(self._exchange(self._process, self._hello, HELLO_SECONDS))
            except UsageError:
                self.close()
                raise
            self.hardware = Hardware.model_validate(answer["hardware"])
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], request: dict[str, Any], timeout: float) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = read_line(process.stdout.fileno(), timeout)
        except OSError as error:
            answer = None
            reason = str(error)
        else:
            reason = f"no answer within {timeout:.0f} s" if process.poll() is None else f"exit code {process.returncode}"
        if answer is None:
            self.close()
            raise InfrastructureError(f"the oracle process failed ({reason}){self._log_tail()}")
        return answer

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = (Path(self._folder.name) / "oracle.log").read_text(errors="replace").strip().splitlines()
            return f": {lines[-1][:300]}" if lines else ""
        return ""

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Answer to one request. Raises TaskError, or InfrastructureError when the oracle died, hung or reported its own fault."""
        return _without_error(self._exchange(self._start(), request, timeout))

    def hello(self) -> Hardware:
        """The card that this oracle judges for."""
        self._start()
        assert self.hardware is not None
        return self.hardware

    def close(self) -> None:
        """End the process (it gives its memory back when its input ends); runners die with it in any case."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
        process.stdout.close()

    def remove(self) -> None:
        """End the process and remove its folder."""
        self.close()
        self._folder.cleanup()


def _without_error(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise {"task": TaskError, "usage": UsageError}.get(answer["kind"], InfrastructureError)(answer["error"])
    return answer


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
