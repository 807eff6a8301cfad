"""What a run leaves behind: `summary.json` and `best.py`, written from the state alone."""

from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Any

from pydantic import Field, ValidationError, computed_field

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import PrecisionClass, Record, Task, Verdict
from tritonsmith.graph.pool import refusal
from tritonsmith.graph.searches import Search
from tritonsmith.graph.state import Decision, State, Usage, allow_of, total, usage_by
from tritonsmith.graph.storage.drop_in import write_drop_in
from tritonsmith.graph.storage.files import fault_of, put_text
from tritonsmith.graph.storage.header import describe_form, describe_proof, describe_scores, describe_use
from tritonsmith.graph.storage.kept import Kept, keep_module
from tritonsmith.graph.storage.outcome import (
    RunOutcome,
    describe_best,
    describe_comparison,
    describe_search,
    describe_waiting,
    digits,
    judge_outcome,
    kind_of_win,
    precision_of,
)
from tritonsmith.graph.storage.sizes import SizeRow, list_sizes
from tritonsmith.graph.storage.store import Store
from tritonsmith.prompts.regions import RegionRow, time_library_calls

SUMMARY = "summary.json"
"""Name of the file in a run's folder that says that it is over."""


_LONGEST_REASON = 300
"""Characters of a refusal that the answer repeats; the whole message stands in the candidate's verdict."""


class Winner(Record):
    """The confirmed candidate; its verdict is the strict one."""

    id: str
    stage: str
    verdict: Verdict
    confirmed: bool = True
    """False when the run ended before the winner could be measured again."""
    search_score: float | None = None
    """What the search said before the confirmation; never the result."""
    sha: str = ""
    rationale: str = ""
    author: str = ""
    """Who wrote it, where that was not the author of the run: one of several, or a compiler."""
    recipe: str = ""

    @property
    def result(self) -> str:
        """The result in one line: `4.55x: FASTER than cuda_graph (kernel win, ieee); search said 4.61x, confirmed 4.55x`.

        Any measured one other than FASTER begins with `NOT FASTER`.
        """
        if self.verdict.timing is None:
            return ""
        named = ", ".join(filter(None, (kind_of_win(self.verdict), precision_of(self.verdict))))
        line = f"{describe_comparison(self.verdict.timing)} ({named})"
        if judge_outcome(self.verdict.timing, confirmed=True) is RunOutcome.NOT_FASTER:
            line = f"NOT FASTER, {line}"
        if not self.confirmed:
            return f"{line}, as the search said; NOT confirmed"
        search = describe_search(self.search_score, self.verdict.score)
        return f"{line}; {search}" if search else line


class CandidateRow(Record):
    """One candidate of the run in the table."""

    id: str
    parent: str | None = None
    stage: str
    status: str
    """The verdict's status; `not evaluated` when the run stopped before."""
    score: float | None = None
    """The latest verdict's: the strict one's, once there is one."""
    search_score: float | None = None
    """The search's, where a confirmation replaced it."""
    comparison: str | None = None
    """`faster`, `same`, `slower` or `ambiguous` against the strongest baseline."""
    label: str | None = None
    precision: str = ""
    """The strictest precision class whose rule it meets."""
    not_allowed: str = ""
    """Why it may not win although it works."""
    branch: int | None = None
    sha: str = ""
    median_ms: float | None = None
    kind: str | None = None
    """`measured` or `estimated`."""
    interval: tuple[float, float] | None = None
    """95 % interval of the score; None for an estimate."""
    floor_share: float | None = None
    """Floor over time, both of the same kind."""
    floor_limit: str | None = None
    """What sets the floor: `bytes`, `operations`, `launches` or `serial chain`."""
    launches_per_forward: int | None = None
    tokens: int = 0
    """Read and written by the model for this text. Analyses and requests for several variants count only in the run's usage."""
    profile: str = ""
    message: str = ""
    advice: tuple[str, ...] = ()
    rationale: str = ""
    author: str = ""
    """Who wrote it, in a run of several authors, or the compiler that did."""
    recipe: str = ""
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict)


class Summary(Record):
    """A run as `summary.json` tells it."""

    task: str
    policy: str
    model: str
    winner: Winner | None = None
    behind: Winner | None = None
    """The best right kernel, where a card measured it below what is claimed: it is no result, and stays on disk."""
    kept: Kept | None = None
    """The module's own fastest form, where no kernel is the result and a card measured the forms."""
    regions: tuple[RegionRow, ...] = ()
    """What each part of the best kernel takes, and what was left to the library."""
    library_ms: float | None = None
    """Milliseconds of the card in all calls that were left to the library, together; None where nobody measured it."""
    unwritten: str = ""
    """Why the author writes no kernel of this task, where the module's forms were measured in place of that."""
    result: str = ""
    """The winner's confirmed figure in words; empty without a winner."""
    allow: str = ""
    """Which labels may win."""
    candidates: tuple[CandidateRow, ...] = ()
    decisions: tuple[Decision, ...] = ()
    searches: tuple[Search, ...] = ()
    """Tuning searches in their order, with every configuration that was tried."""
    usage: Usage = Field(default_factory=Usage)
    """What asking models cost in all; `usage.csv` has every try."""
    usage_by_stage: dict[str, Usage] = Field(default_factory=dict)
    usage_by_role: dict[str, Usage] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    """Version and digest of the prompts; empty for the built-in author, who reads none."""
    stopped_because: str = ""
    waits_for: tuple[str, ...] = ()
    """Files with replies or verdicts that the run needs to go on; only where a person is the model, or a worker the evaluator."""
    size: str = ""
    sized: str = ""
    """What was done about the size of a task that declares no small one; empty where nothing had to be."""
    sizes: tuple[SizeRow, ...] = ()
    """The task's own size and those that it declares, where it declares some and there is a kernel."""
    precision: str = ""
    mode: str = "eval"
    backward: bool = False
    """Whether gradients were judged too, and forward and backward timed together."""
    """What the module was put into: evaluation or training."""
    target: str = ""
    """Name of the card that the figures are for."""
    kind: str | None = None
    """`measured` or `estimated`; None without a winner."""
    seconds: float = 0.0
    date: str = ""
    out: str = ""
    analyses: dict[str, Any] = Field(default_factory=dict)
    findings: dict[str, Any] = Field(default_factory=dict)
    task_facts: dict[str, Any] = Field(default_factory=dict)
    parent: dict[str, str] | None = None
    """`run` and `at` where this run was forked from another one."""

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def outcome(self) -> RunOutcome:
        """How the run has ended."""
        if self.waits_for:
            return RunOutcome.WAITING
        if self.kept is not None and (self.behind is not None or self.unwritten):
            return RunOutcome.KEPT
        timing = self.winner.verdict.timing if self.winner else None
        return judge_outcome(timing, confirmed=self.winner.confirmed) if self.winner and timing else RunOutcome.NO_KERNEL

    @property
    def best(self) -> Winner | None:
        """The best right kernel, whether it is the result or was measured below what is claimed."""
        return self.winner or self.behind

    @computed_field  # type: ignore[prop-decorator]
    @property
    def answer(self) -> str:
        """The first words about the run: FASTER, NOT FASTER, `keep your module`, right, NOT CONFIRMED, NO KERNEL or WAITING, and what
        that rests on."""
        if self.waits_for:
            return describe_waiting(self.waits_for).replace("waiting", "WAITING", 1)
        if self.outcome is RunOutcome.KEPT and self.kept is not None:
            score = self.behind.verdict.score if self.behind else None
            beside = "the author writes no kernel for it" if score is None else f"the best kernel is {digits(score)}x, measured"
            return f"{self.kept.sentence}; {beside}"
        if self.winner is None or self.winner.verdict.timing is None:
            keep = f"; {self.kept.sentence}" if self.kept else ""
            return f"NO KERNEL: no candidate was accepted{self._tell_refusal()}{keep}"
        words, precision = describe_best(self.winner.verdict.timing, confirmed=self.winner.confirmed), precision_of(self.winner.verdict)
        return words if precision in ("", PrecisionClass.IEEE) else f"{words}, precision {precision}"

    def _tell_refusal(self) -> str:
        """What became of the latest candidate that has a verdict: `; the latest, seed0-02, is runtime_error: line 13: ...`."""
        told = next((row for row in reversed(self.candidates) if row.profile), None)
        if told is None:
            return ""
        reason = shorten(told.not_allowed or told.message, _LONGEST_REASON, placeholder=" ...")
        fate = "may not win" if told.not_allowed else f"is {told.status}"
        return f"; the latest, {told.id}, {fate}{f': {reason}' if reason else ''}"

    def write(self, folder: Path) -> None:
        """Write `summary.json`; a run that has one is over, or waits. Raises OSError."""
        put_text(folder / SUMMARY, self.model_dump_json(indent=1) + "\n")


def summarize(state: State, *, policy: str, model: str, target: str, seconds: float, out: str) -> Summary:
    """The summary of a finished run from its last state."""
    task, candidates = state["task"], state.get("candidates", {})
    winner, behind = winner_of(state), winner_of({**state, "winner": state.get("behind")})
    facts = state.get("facts")
    told_facts = {
        "inputs", "init_inputs", "returns", "flops", "min_bytes", "reference_launches", "serial_steps", "updates", "by_mode", "buffers",
        "tied", "frozen",
    }  # fmt: skip
    told = facts.model_dump(mode="json", include=told_facts) if facts else {}
    seen = behind.verdict.timing if behind else None if winner else state.get("forms")
    best = winner or behind
    return Summary(
        task=task.name,
        policy=policy,
        model=model,
        winner=winner,
        behind=behind,
        kept=keep_module(seen, told, backward=task.backward) if seen is not None else None,
        unwritten=state.get("unwritten", ""),
        regions=state.get("regions", ()),
        library_ms=time_library_calls(state.get("regions", ()), best.verdict if best else None),
        result=winner.result if winner else "",
        allow=allow_of(state).value,
        candidates=tuple(_row(state, cid) for cid in candidates),
        decisions=tuple(state.get("decisions", {}).values()),
        searches=tuple(state.get("searches", {}).values()),
        usage=total(state.get("usage")),
        usage_by_stage=usage_by(state.get("usage"), "stage"),
        usage_by_role=usage_by(state.get("usage"), "role"),
        stopped_because=state.get("stopped_because", ""),
        size=task.size,
        sized=task.sized,
        sizes=list_sizes(task, winner.verdict if winner else None),
        precision=task.precision.value,
        mode=task.mode,
        backward=task.backward,
        target=target,
        kind=best.verdict.timing.kind.value if best and best.verdict.timing else None,
        seconds=round(seconds, 3),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        out=out,
        analyses={key: value.model_dump(mode="json") for key, value in state.get("analyses", {}).items()},
        findings={key: value.model_dump(mode="json")["labels"] for key, value in state.get("findings", {}).items()},
        task_facts=told,
    )


def write_best(summary: Summary, store: Store, task: Task) -> Path | None:
    """Write `best.py`: the winner's module, complete in itself; None without a winner.

    A header says what was found. What lets the module stand in a larger program follows its text.
    """
    winner = summary.winner
    if winner is None or winner.verdict.timing is None:
        return None
    timing, text = winner.verdict.timing, store.get(winner.sha)
    interval = f", 95 % interval {timing.interval[0]:.3f} to {timing.interval[1]:.3f}" if timing.interval else ""
    baselines = ", ".join(f"{name} {value:.4g} ms" for name, value in timing.baselines_ms.items())
    lines = [
        f"{summary.task} ({summary.size} size, {summary.precision}), written by tritonsmith on {summary.date}",
        winner.result,
        f"score {timing.score:.3f} against {timing.baseline}{interval}: {timing.kind.value} on {summary.target}",
        f"latency {timing.median_ms:.4g} ms ({timing.kind.value}); baselines: {baselines}",
        *([f"it reaches {timing.floor.words}: {timing.kind.value}"] if timing.floor else []),
        "confirmed in fresh processes with the strict profile" if winner.confirmed else "NOT confirmed: the run ended before",
        f"candidate {winner.id} ({winner.stage}), author {winner.author or summary.model}, policy {summary.policy}",
        *describe_proof(
            winner.verdict, summary.task_facts, precision=summary.precision, mode=summary.mode, target=summary.target,
            backward=summary.backward,
        ),
        *describe_scores(summary.sizes),
        *describe_use(summary.task_facts, text, summary.mode),
        *describe_form(timing, summary.task_facts, backward=summary.backward),
    ]
    path = store.root / "best.py"
    put_text(path, "".join(f"# {line}\n" for line in lines) + "\n" + text + write_drop_in(task, summary.task_facts, text))
    return path


def winner_of(state: State) -> Winner | None:
    """The winner that a finished state names."""
    winner_id = state.get("winner")
    if not winner_id:
        return None
    candidate, verdict = state["candidates"][winner_id], state["verdicts"][winner_id]
    return Winner(
        id=winner_id,
        stage=candidate.stage.value,
        verdict=verdict,
        confirmed=verdict.profile == "strict",
        search_score=state.get("searched", {}).get(winner_id),
        sha=candidate.sha,
        rationale=candidate.rationale,
        author=candidate.author,
        recipe=candidate.recipe,
    )


def _row(state: State, candidate_id: str) -> CandidateRow:
    candidate, verdict = state["candidates"][candidate_id], state.get("verdicts", {}).get(candidate_id)
    timing, twin = verdict.timing if verdict else None, state.get("twins", {}).get(candidate_id)
    return CandidateRow(
        **candidate.model_dump(include={"id", "parent", "branch", "sha", "rationale", "author", "recipe", "settings"}),
        stage=candidate.stage.value,
        status=verdict.status.value if verdict else "not evaluated",
        score=verdict.score if verdict else None,
        search_score=state.get("searched", {}).get(candidate_id),
        comparison=timing.comparison.value if timing and timing.comparison else None,
        label=verdict.label.value if verdict and verdict.label else None,
        precision=precision_of(verdict) if verdict else "",
        not_allowed=refusal(verdict, allow_of(state)) if verdict else "",
        median_ms=timing.median_ms if timing else None,
        kind=timing.kind.value if timing else None,
        interval=timing.interval if timing else None,
        floor_share=timing.floor.share if timing and timing.floor else None,
        floor_limit=timing.floor.limit.value if timing and timing.floor else None,
        tokens=state.get("usage", {}).get(f"{candidate_id}-{candidate.stage.value}", Usage()).tokens,
        launches_per_forward=verdict.facts.launches_per_forward if verdict else None,
        profile=verdict.profile if verdict else "",
        message=verdict.message if verdict else f"compiles to the code of {twin}: dropped before it was measured" if twin else "",
        advice=verdict.advice if verdict else (),
    )


def read_summary(folder: Path) -> Summary | None:
    """The summary of a run that is over; None where there is none, or where it waits. Raises UsageError for one that cannot be read."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    try:
        found = Summary.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path}: cannot be read ({fault_of(error)}); remove it, and resume the run") from error
    return None if found.waits_for else found
