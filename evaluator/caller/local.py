"""The evaluator of this machine: oracle processes behind the Evaluator protocol. Safe from any event loop or thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

from tritonsmith.evaluator.caller.audits.examine import audit_beside_card, examine
from tritonsmith.evaluator.caller.audits.findings import AuditFinding
from tritonsmith.evaluator.caller.audits.other_sizes import audit_other_sizes
from tritonsmith.evaluator.caller.audits.own_size import audit_own_size
from tritonsmith.evaluator.caller.audits.second_opinion import add_second_opinion, find_refusal
from tritonsmith.evaluator.caller.compiling.counted import CountedKernels
from tritonsmith.evaluator.caller.compiling.outlook import digest_report
from tritonsmith.evaluator.caller.compiling.pool import CompilePool, CompileReport
from tritonsmith.evaluator.caller.compiling.racing import Races
from tritonsmith.evaluator.caller.compiling.reports import CompileReports, CompileRequests, OwnCalls
from tritonsmith.evaluator.caller.questions.describe import Description, TaskDescriptions
from tritonsmith.evaluator.cards.cards import CARDS, named_card
from tritonsmith.evaluator.cards.floors import add_floor
from tritonsmith.evaluator.channel.compiled_code import locate_code
from tritonsmith.evaluator.channel.doorbell import BASELINES, QUICK_BASELINES
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.bytecode import compile_missing_bytecode
from tritonsmith.evaluator.processes.card_lock import CardLock
from tritonsmith.evaluator.processes.requests import Evaluate, JudgingTerms, Prepare, RaceRegions, Sanitize, ServerRequest, WriteCall
from tritonsmith.evaluator.processes.run_folder import run_folder
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.protocol import Evaluator, RaceReport
from tritonsmith.evaluator.records.contest import NO_CARD, Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.reference.interpreter_time import require_reach
from tritonsmith.evaluator.schema import CORRECTNESS_ONLY, LaunchFacts, Record, Status, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks.files import at_small_size
from tritonsmith.evaluator.texts.advice.advise import advice_lines
from tritonsmith.evaluator.texts.source.refuse import refuse_text

A = TypeVar("A", bound=Record)
"""What answers a request."""
CALL_SECONDS = 120.0
"""The longest that one call of a candidate may take, where nothing else is asked for."""
_SANITIZER_SECONDS = 45.0
"""The longest that compute-sanitizer may take: it delays a verdict whose numbers are right already, and says so where it did not end."""
EVALUATE_SECONDS = 2700.0
"""A whole verdict; every step inside has a shorter limit of its own, so this only catches a stuck oracle."""
BaselineSet = Literal["four", "six", "four-only"]
"""Baselines: four in quick verdicts and six in strict ones; six in all; four in all."""
_MOST_ORACLES = 2
"""Oracles at work at once where there is no card."""


class OracleLease:
    """Oracle processes that are leased one by one.

    Args:
        servers: the processes; the first is leased first.
        mark: a file that an oracle makes while it times something.
        card: the lock of the card that they share with other commands; None where they use none.
    """

    def __init__(self, servers: list[ServerProcess], mark: Path, card: CardLock | None = None) -> None:
        self._servers = servers
        self._mark = mark
        self._card = card
        self._starter: threading.Thread | None = None
        self._prepared = ""  # the task that was prepared ahead
        self._free: queue.LifoQueue[ServerProcess] = queue.LifoQueue()  # the one that judged last is warm
        for server in reversed(servers):
            self._free.put(server)

    @contextlib.contextmanager
    def lease(self) -> Iterator[ServerProcess]:
        """An oracle for one caller alone, and its card; waits until both are free."""
        server = self._free.get()
        try:
            with self._card.hold() if self._card is not None else contextlib.nullcontext():
                yield server
        finally:
            self._free.put(server)

    def prepare_ahead(self, name: str, load: Callable[[], Task | None]) -> None:
        """Let a free process start, and prepare a task, beside what goes on; once for each name. What fails is told when it is asked."""
        if name == self._prepared or (self._starter is not None and self._starter.is_alive()):
            return
        self._prepared = name

        def prepare() -> None:
            with contextlib.suppress(InfrastructureError, TaskError), self.lease() as server:
                server.hello()
                if task := load():
                    server.ask(Prepare(task=task), EVALUATE_SECONDS)

        self._starter = threading.Thread(target=prepare, daemon=True)
        self._starter.start()

    def ask(self, server: ServerProcess, request: ServerRequest[A]) -> A:
        """The answer of a leased oracle; one that fails is started again and asked once more."""
        try:
            return server.ask(request, EVALUATE_SECONDS)
        except InfrastructureError:
            server.close()
            self._mark.unlink(missing_ok=True)
            return server.ask(request, EVALUATE_SECONDS)

    def close(self) -> None:
        """End the processes and remove their folders."""
        if self._starter is not None:
            self._starter.join()
        if self._card is not None:
            self._card.close()
        for server in self._servers:
            server.remove()


class LocalEvaluator(Evaluator):
    """Evaluator of this machine: one oracle on a card, up to two without.

    Args:
        target: `auto` (the card that is here, else estimates for the default card) or a card's name.
        raw_dir: where raw samples go; a temporary folder when None.
        call_seconds: the longest that one call of a candidate may take, compilation included.
        sandbox: `auto` (the layers that work here), `strict` (refuse where a needed one is missing) or `off`.
        device: the card, as CUDA_VISIBLE_DEVICES names it; None: the first that this process may see.
        descriptions: who describes tasks; closed with this evaluator.
        baselines: how many baselines quick verdicts have on a card; strict ones have all, except with `four-only`.
    """

    def __init__(
        self, target: str = "auto", raw_dir: Path | None = None, call_seconds: float = CALL_SECONDS, sandbox: str = "auto",
        device: str | None = None, descriptions: TaskDescriptions | None = None, baselines: BaselineSet = "four",
    ) -> None:  # fmt: skip
        if target != "auto":
            named_card(target)  # a wrong name is the user's sentence, not an oracle's fault
        self._temporary = tempfile.TemporaryDirectory(prefix="raw-", ignore_cleanup_errors=True, dir=run_folder())
        folder = Path(self._temporary.name)
        folder.chmod(0o711)  # confined processes read requests below it
        self.raw_dir = raw_dir or folder
        self.raw_dir.mkdir(parents=True, exist_ok=True)
        self._call_seconds = call_seconds
        # of every verdict; none: the profile names them
        self.baselines: tuple[str, ...] = {"six": BASELINES, "four-only": QUICK_BASELINES}.get(baselines, ())
        shown = None if device is None else {"CUDA_VISIBLE_DEVICES": device}
        first = ServerProcess(target, sandbox=sandbox, environment=shown)
        self._descriptions = descriptions or TaskDescriptions()  # its probe imports what it needs while the oracle does
        try:
            with compile_missing_bytecode():  # while these start
                self.hardware = first.hello()
        except BaseException:
            self._descriptions.close()
            first.remove()
            self._temporary.cleanup()
            raise
        self.parallel = 1 if self.hardware.present else min(_MOST_ORACLES, os.cpu_count() or 1)
        self.admits = self.parallel + self.hardware.present  # on a card one more is compiled while the other is measured
        self._mark, self._code = folder / "measuring", folder / "code"  # exists while something is timed; what texts compile to
        others = [ServerProcess(target, sandbox=sandbox, environment=shown) for _ in range(self.parallel - 1)]
        self._oracles = OracleLease([first, *others], self._mark, _open_lock(device) if self.hardware.present else None)
        self._requests = CompileRequests(folder, self._oracles.lease, partial(self._prepare, Prepare))
        self._calls = OwnCalls(folder, partial(self._prepare, WriteCall))
        self._auditors: OracleLease | None = None  # an oracle without a card, for the interpreter's view of what the card measured
        self._compiling: CompileReports | None = None
        if self.hardware.present and self.hardware.key in CARDS:
            self._auditors = OracleLease([ServerProcess(self.hardware.key, use_card=False, sandbox=sandbox)], self._mark)
            self._compiling = self._open_compilers(sandbox)
        # compilers that look ahead; without a card they serve races alone. Each starts when it is first needed
        self._racing = self._compiling or (self._open_compilers(sandbox) if self.hardware.key in CARDS else None)
        self._numbers, self._counted = itertools.count(), CountedKernels(self._oracles, self._calls, call_seconds)
        self._races = Races(self._racing, self._oracles, self.hardware)

    def _open_compilers(self, sandbox: str) -> CompileReports:
        compilers, kept = CompilePool(self.hardware.key, sandbox, self._mark), self._code if self.hardware.present else None
        return CompileReports(compilers, self._requests.path, self._call_seconds, kept)

    def evaluate_now(self, task: Task, kernel: KernelText | str, profile: str = "quick") -> Verdict:
        """As `evaluate`, blocking; an oracle that fails is started again and asked once more."""
        text = kernel if isinstance(kernel, KernelText) else KernelText.of(kernel)
        if refused := refuse_text(text, profile):
            return refused
        verdict = examine(
            profile, lambda name: self._judge(task, text, name), lambda ended: self._audit(task, text, ended), at_once=self.parallel > 1
        )
        if verdict.timing is not None:
            verdict = add_floor(verdict, self._descriptions.describe(task)[0], self.hardware, task.precision)
        environment = verdict.environment | ({"size": task.sized} if task.sized else {})
        return verdict.model_copy(update={"advice": advice_lines(text.text, task.precision), "environment": environment})

    def _judge(self, task: Task, kernel: KernelText, profile: str) -> Verdict:
        """The verdict of one profile. On a card the candidate is compiled at the same time, for a second opinion about its label."""
        if self._compiling is None:
            return self._ask(task, kernel, profile, self._oracles)
        self._descriptions.start(task)  # while the oracle prepares the task
        if self._auditors is not None:
            self._auditors.prepare_ahead(task.sha, lambda: at_small_size(task))
        compiling = self._compiling.start(task, kernel)
        ask_compiler = self._compiling.wait_for
        try:
            verdict = self._ask(task, kernel, profile, self._oracles, compiling)
            return add_second_opinion(
                verdict, lambda again: ask_compiler(task, kernel, again=again), lambda: self._descriptions.describe(task)[0]
            )
        finally:
            if not compiling.cancel():
                wait([compiling])  # a verdict leaves no compiler at work behind it

    def _ask(
        self, task: Task, kernel: KernelText, profile: str, oracles: OracleLease, compiling: Future[CompileReport] | None = None, *,
        timed: bool = False,
    ) -> Verdict:  # fmt: skip
        with oracles.lease() as oracle:
            if compiling is not None and (refusal := _refusal_of(compiling)):
                where = {"target": self.hardware.key, "stage": "compiled without the card"}
                return Verdict(status=refusal[0], message=refusal[1], sha=kernel.sha, profile=profile, environment=where)
            raw = self.raw_dir / f"{kernel.sha}-{profile}-{next(self._numbers)}.json"
            trace = tuple(self._descriptions.describe(task)[1]) if profile != CORRECTNESS_ONLY else ()
            request = Evaluate(
                task=task, kernel=kernel, profile=profile, raw=raw.resolve(), trace=trace, timed=timed, **dict(self._terms())
            )
            return oracles.ask(oracle, request).verdict

    def race_now(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """As `race`, blocking."""
        return self._races.run(self._terms(), task, incumbent, entrants, facts, keep, seconds)

    def race_regions_now(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """As `race_regions`, blocking."""
        del task  # a contest has all that it is about
        if not self.hardware.present:
            return ContestReport(note=NO_CARD)
        started = time.monotonic()
        with self._oracles.lease() as oracle:
            request = RaceRegions(contests=tuple(contests), seconds=seconds, measuring=self._mark)
            report = self._oracles.ask(oracle, request)
        return report.model_copy(update={"seconds": time.monotonic() - started})

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What each way to write some regions takes; a note without a card. Raises InfrastructureError."""
        return await asyncio.to_thread(self.race_regions_now, task, contests, seconds)

    def _terms(self) -> JudgingTerms:
        """What an oracle is told besides the question."""
        return JudgingTerms(measuring=self._mark, code=self._code, baselines=self.baselines, call_seconds=self._call_seconds)

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """A race, without a card by estimate; None where nobody can compile for it. Raises TaskError or InfrastructureError."""
        return await asyncio.to_thread(self.race_now, task, incumbent, entrants, facts, keep, seconds)

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """A digest of what a text compiles to; empty where it does not compile, or where nobody can compile for the card."""
        if self._racing is None or refuse_text(kernel, "quick"):
            return ""
        return digest_report(await asyncio.to_thread(self._racing.wait_for, task, kernel, again=False))

    def _audit(self, task: Task, kernel: KernelText, ended: Callable[[], bool]) -> list[AuditFinding]:
        """What is examined besides the strict profile, for kernels that are about to win; nothing more once it is `ended`."""
        ask = partial(self._ask, kernel=kernel, profile=CORRECTNESS_ONLY, oracles=self._oracles)
        findings = audit_other_sizes(task, partial(ask, timed=self.hardware.present), ended)
        if not self.hardware.present and not any(finding.status for finding in findings):
            describe = self._descriptions.describe
            findings += audit_own_size(task, describe(task)[0], ask, lambda sized: describe(sized)[0], ended)
        auditors = self._auditors
        if auditors is None or any(finding.status for finding in findings):
            return findings
        # The card's oracle is leased for both: the interpreter would be noise while another candidate is timed.
        with self._oracles.lease() as oracle:
            return findings + audit_beside_card(
                task, lambda small: self._ask(small, kernel, "quick", auditors), lambda: self._sanitize(task, kernel, oracle)
            )

    def _sanitize(self, task: Task, kernel: KernelText, oracle: ServerProcess) -> tuple[bool, str]:
        """Whether compute-sanitizer found memory errors, and what it says."""
        request = Sanitize(
            kernel=kernel, request=self._calls.path_from(oracle, task), code=locate_code(self._code, task.sha, kernel.sha),
            seconds=min(self._call_seconds, _SANITIZER_SECONDS),
        )  # fmt: skip
        answer = self._oracles.ask(oracle, request)
        return answer.found, answer.text

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """What Nsight Compute counts of a working kernel, off the clock; the reason where it cannot. None without a card."""
        return await asyncio.to_thread(self._counted.count, task, kernel) if self.hardware.present else None

    def _prepare(self, kind: type[Prepare | WriteCall], oracle: ServerProcess, task: Task) -> Path:
        return self._oracles.ask(oracle, kind(task=task, baselines=self.baselines)).request

    async def describe(self, task: Task) -> TaskFacts:
        """Run and trace the reference once (cached); on a card it runs there too, as the first verdict needs. Raises TaskError."""
        if not self.hardware.present:
            return _take_facts(task, await asyncio.to_thread(self._descriptions.describe, task))
        read, run = asyncio.to_thread(self._descriptions.describe, task), asyncio.to_thread(self._run_reference, task)
        return (await asyncio.gather(read, run))[0][0]

    def _run_reference(self, task: Task) -> None:
        """Have the oracle run the reference, before anybody is asked for a kernel of it. Raises TaskError."""
        with self._oracles.lease() as oracle:
            self._prepare(Prepare, oracle, task)

    def describe_ahead(self, task: Task) -> None:
        """Have the reference traced beside what goes on, for a `describe` to come."""
        self._descriptions.start(task)

    async def evaluate(self, task: Task, kernel: KernelText | str, profile: str = "quick") -> Verdict:
        """One verdict about a candidate's text. Raises TaskError or InfrastructureError."""
        return await asyncio.to_thread(self.evaluate_now, task, kernel, profile)

    def close(self) -> None:
        """End every process; safe to call twice."""
        self._oracles.close()
        if self._auditors is not None:
            self._auditors.close()
        if self._racing is not None:
            self._racing.close()
        self._descriptions.close()
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


def _take_facts(task: Task, described: Description) -> TaskFacts:
    """The facts of a task that the interpreter can judge. Raises TaskError."""
    facts, costs = described
    require_reach(task, costs)
    return facts


def _open_lock(device: str | None) -> CardLock:
    from tritonsmith.evaluator.cards.machine import name_card  # noqa: PLC0415 - the management library is loaded only where there is a card

    return CardLock(name_card(device))


def _refusal_of(compiling: Future[CompileReport]) -> tuple[Status, str] | None:
    """Why the card need not be asked, where the compilation has ended and says so."""
    if not compiling.done() or compiling.cancelled() or compiling.exception():
        return None
    return find_refusal(compiling.result())


def open_evaluator(
    target: str = "auto", raw_dir: Path | None = None, call_seconds: float = CALL_SECONDS, sandbox: str = "auto",
    baselines: BaselineSet = "four",
) -> LocalEvaluator:  # fmt: skip
    """The evaluator for a target.

    Raises UsageError for an unknown card and for `strict` on a machine that lacks a protection, InfrastructureError when the oracle
    does not start.
    """
    return LocalEvaluator(target, raw_dir, call_seconds, sandbox, baselines=baselines)
