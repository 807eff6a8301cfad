"""A timed race from the caller's side: compile all entrants in parallel, drop what cannot fit, race the rest or rank them by estimate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tritonsmith.evaluator.caller.compiling.counted import Leasing
from tritonsmith.evaluator.caller.compiling.outlook import drop_twins, look_ahead, rank_by_estimate
from tritonsmith.evaluator.caller.compiling.reports import CompileReports
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.requests import JudgingTerms, Race
from tritonsmith.evaluator.protocol import Fate, RaceReport, RaceRow
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Status, Task, TimingKind

Ask = Callable[[Sequence[KernelText]], tuple[list[RaceRow], str]]
"""Races texts on the card; their rows, or why there are none."""


def race(
    reports: CompileReports, ask: Ask | None, hardware: Hardware, task: Task, incumbent: KernelText, entrants: Sequence[KernelText],
    facts: LaunchFacts, keep: int,
) -> RaceReport:  # fmt: skip
    """The report of a race; `ask` is None without a card, and then estimates rank. Raises InfrastructureError.

    Texts that refuse to compile are pruned. Where the incumbent itself does not compile without the card, nothing is pruned or ranked:
    the report then says so, and all entrants are untimed.
    """
    started = time.monotonic()
    kind = TimingKind.MEASURED if ask else TimingKind.ESTIMATED
    for text in (incumbent, *entrants):
        reports.start(task, text)
    found = {text.sha: reports.wait_for(task, text, again=False) for text in (incumbent, *entrants)}
    own = found[incumbent.sha]
    note = ""
    if Status(own["status"]) is not Status.OK:
        note = f"the best kernel so far cannot be compiled ahead ({own['status']}: {str(own.get('message', ''))[:200]})"
        rows = [RaceRow(sha=text.sha, fate=Fate.UNTIMED) for text in entrants]
    else:
        rows = [look_ahead(text.sha, found[text.sha], own) for text in entrants]
        if ask is not None:
            rows = drop_twins(rows, found, incumbent.sha)
    fit = [text for text, row in zip(entrants, rows, strict=True) if row.fate is Fate.UNTIMED]
    if ask is not None and fit:
        timed, note = ask(fit)
        by_sha = {row.sha: row for row in timed}
        rows = [_join(row, by_sha.get(row.sha)) for row in rows]
    elif ask is None and not note:
        rows = rank_by_estimate(rows, found, own, facts, hardware, keep)
    return RaceReport(incumbent=incumbent.sha, kind=kind, rows=tuple(rows), seconds=time.monotonic() - started, note=note)


class Races:
    """Races of one card's evaluator.

    Args:
        reports: of its compilers; None where nobody can compile for the card.
        oracles: those of the card.
        hardware: the card; one that is not here has races by estimate.
    """

    def __init__(self, reports: CompileReports | None, oracles: Leasing, hardware: Hardware) -> None:
        self._reports, self._oracles, self._hardware = reports, oracles, hardware

    def run(
        self, terms: JudgingTerms, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int,
        seconds: float,
    ) -> RaceReport | None:  # fmt: skip
        """The report of a race, `terms` being what the oracle is told besides; None without compilers. Raises InfrastructureError."""
        if self._reports is None:
            return None

        def ask(fit: Sequence[KernelText]) -> tuple[list[RaceRow], str]:
            request = Race(task=task, incumbent=incumbent, entrants=tuple(fit), keep=keep, seconds=seconds, **dict(terms))
            with self._oracles.lease() as oracle:
                answer = self._oracles.ask(oracle, request)
            return list(answer.rows), answer.note

        return race(self._reports, ask if self._hardware.present else None, self._hardware, task, incumbent, entrants, facts, keep)


def _join(looked: RaceRow, timed: RaceRow | None) -> RaceRow:
    """A row with what compiling and timing say."""
    if timed is None:
        return looked
    return timed.model_copy(update={name: getattr(looked, name) for name in ("registers", "spills", "shared_memory")})


