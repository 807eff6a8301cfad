"""A test for any policy: asks it in every situation, drives it through whole runs, and lists the rules that it breaks.

The rules: a policy answers (choice, reason) and does not raise. The site offers the choice, and the graph can follow it. The same view
always gets the same answer and stays unchanged. Runs end within their budget, keep the best and draw the same picture.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonsmith.evaluator.schema import Allow, Record, Status
from tritonsmith.graph.background import run_blocking
from tritonsmith.graph.builder import Graph, build_graph
from tritonsmith.graph.conformance.situations import Situation, situations
from tritonsmith.graph.conformance.trial_runs import TrialOutcome, drive, trials
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.pool import is_proven, refusal
from tritonsmith.graph.sites import QUESTIONS, SITES
from tritonsmith.graph.state import Decision
from tritonsmith.graph.storage.outcome import count_words

_ORDERS: tuple[Callable[[Sequence[Situation]], Iterable[Situation]], ...] = (iter, reversed, iter)
"""A policy is asked everything three times; in between it has seen something else."""


class Violation(Record):
    """One rule that a policy breaks."""

    rule: str
    """interface, raises, answer, choice, allowance, reason, repeatable, read-only, run, budget, keep-best or drawing."""
    site: str = ""
    """The policy's method; empty for whole runs."""
    where: str
    """The first situation or run that shows it."""
    message: str
    times: int = 1
    """In how many situations or runs it was seen."""

    def __str__(self) -> str:
        more = f" (and {self.times - 1} more)" if self.times > 1 else ""
        return f"{self.rule}: {f'{self.site}: ' if self.site else ''}{self.message}; seen in: {self.where}{more}"


@dataclass(frozen=True)
class ConformanceReport:
    """The policy that was tested, and what was found; nothing, where it conforms."""

    policy: Policy
    violations: tuple[Violation, ...]
    situations: int
    runs: int


def check_named(name: str, option: str = "--policy") -> ConformanceReport:
    """Load a policy as `--policy` does, and check it. Raises UsageError, which names the option, for one that cannot be loaded."""
    drawing = _draw(build_graph())  # before its file is imported
    policy = load_policy(name, option)
    return ConformanceReport(policy, check_policy(policy, drawing=drawing), len(situations()), len(trials()))


def check_policy(policy: Policy, *, runs: bool = True, drawing: str | None = None) -> tuple[Violation, ...]:
    """What a policy does that it may not; each rule once per site, with the first place that shows it.

    Without `runs` it is only asked, which takes a fifth of the time. `drawing` is the graph's Mermaid text from before the policy was
    made, where that is known.
    """
    known = drawing or _draw(build_graph())
    found = _check_interface(policy)
    if not found:
        found = _check_answers(policy)
        if runs and not {"raises", "answer"} & {violation.rule for violation in found}:  # a run would only stop where that happens
            found += run_blocking(_check_runs(policy))
        if _draw(build_graph()) != known:
            found.append(Violation(rule="drawing", where="all runs", message="the graph is drawn differently after the policy was at work"))
    return _group(found)


def _check_interface(policy: Policy) -> list[Violation]:
    found = []
    missing = [question for question in QUESTIONS if not callable(getattr(policy, question, None))]
    if missing:
        found.append(Violation(rule="interface", where="the class", message=f"it lacks {', '.join(missing)}"))
    name, seeds = getattr(policy, "name", None), getattr(policy, "seeds", None)
    if not isinstance(name, str) or not name.strip():
        found.append(Violation(rule="interface", where="the class", message=f"name must be a string with something in it, not {name!r}"))
    if seeds is not None and (not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1):
        found.append(Violation(rule="interface", where="the class", message=f"seeds must be None or at least 1, not {seeds!r}"))
    return found


def _check_answers(policy: Policy) -> list[Violation]:
    found: list[Violation] = []
    first: dict[str, Any] = {}
    for order in _ORDERS:
        for situation in order(situations()):
            before = repr(situation.view)
            try:
                answer = getattr(policy, situation.site)(situation.view)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a foreign class may raise anything, and that is the finding
                answer = error
                message = f"it raises {type(error).__name__}: {error}"
                found.append(Violation(rule="raises", site=situation.site, where=situation.name, message=message))
            else:
                found += _check_answer(situation, answer)
            if repr(situation.view) != before:
                found.append(_violation_in(situation, "read-only", "it changes the view that it is shown"))
            words = repr(answer)
            if inspect.iscoroutine(answer):
                answer.close()  # said above; it would only warn
            elif first.setdefault(situation.name, words) != words:
                found.append(_violation_in(situation, "repeatable", f"the same view is answered {first[situation.name]} and then {words}"))
    if any(situation.rule == "read-only" for situation in found):
        situations.cache_clear()  # the next policy is shown what they were
    return found


def _check_answer(situation: Situation, answer: Any) -> list[Violation]:
    site = SITES[situation.gate]
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(part, str) for part in answer)):
        shown = "a coroutine (leave `async` out)" if inspect.iscoroutine(answer) else repr(answer)
        return [_violation_in(situation, "answer", f"it must answer (choice, reason), two strings, not {shown}")]
    choice, reason = answer
    found = []
    if choice not in site.choices:
        found.append(_violation_in(situation, "choice", f"it answers {choice!r}; it may answer {', '.join(site.choices)}"))
    elif lacking := situation.view.lacks(choice):
        found.append(_violation_in(situation, "choice", f"it answers {choice}, but {lacking}"))
    elif choice in site.spends and not situation.view.left(site.spends[choice]):
        found.append(_violation_in(situation, "allowance", f"it answers {choice}, but no {site.spends[choice]} are left"))
    if not reason.strip():
        found.append(_violation_in(situation, "reason", f"it gives no reason for {choice!r}"))
    return found


async def _check_runs(policy: Policy) -> list[Violation]:
    found: list[Violation] = []
    app = build_graph().compile(name="tritonsmith")
    for trial in trials():
        outcome = await drive(trial, app, policy)
        found += _check_run(outcome)
        if trial.twice:
            found += _compare_repetition(outcome, await drive(trial, app, policy))
    return found


def _check_run(ended: TrialOutcome) -> list[Violation]:
    where, budget = f"a run: {ended.trial.name}", ended.trial.budget
    found = []
    if ended.error:
        found.append(Violation(rule="budget" if ended.endless else "run", where=where, message=ended.error))
    decisions = _decisions(ended)
    for decision in decisions:
        asked = SITES[decision.gate].asks
        if decision.site in ("budget", "graph") and decision.reason.startswith("the policy answered"):
            rule = "allowance" if decision.site == "budget" else "choice"
            found.append(Violation(rule=rule, site=asked, where=where, message=decision.reason))
        elif not decision.reason.strip():
            found.append(Violation(rule="reason", site=asked, where=where, message=f"it gives no reason for {decision.choice!r}"))
    written = [event for event in ended.events if event["event"] == "candidate"]
    if budget.candidates is not None and len(written) > budget.candidates:
        message = f"{count_words(len(written), 'candidate')} written, {budget.candidates} allowed"
        found.append(Violation(rule="budget", where=where, message=message))
    return [*found, *_check_best_is_kept(ended, where)]


def _check_best_is_kept(ended: TrialOutcome, where: str) -> list[Violation]:
    """No stage goes on from a worse working candidate, and none wins over one that is confirmed to be better."""
    ranks: dict[str, tuple[bool, float]] = {}
    messages = []
    for event in ended.events:
        candidate, stage = str(event["candidate"]), str(event.get("stage", ""))
        if event["event"] == "verdict":
            ranks.pop(candidate, None)
            if event["status"] == "ok" and not event["not_allowed"]:
                ranks[candidate] = (event["comparison"] == "faster", float(event["score"]))
        elif event["event"] == "candidate" and stage.startswith("tune_"):
            parent = str(event["parent"])
            messages += [f"{stage} went on from {parent}, not from {name}" for name in _rank_above(ranks, parent)]
    winner, verdicts = ended.result.get("winner"), ended.result.get("verdicts", {})
    if winner is not None and verdicts[winner].profile == "strict":
        strict = {
            name: (is_proven(verdict), verdict.score or 0.0) for name, verdict in verdicts.items()
            if verdict.profile == "strict" and verdict.status is Status.OK and not refusal(verdict, Allow.HYBRID)
        }  # fmt: skip
        messages += [f"{winner} won, although {name} is confirmed to be better" for name in _rank_above(strict, winner)]
    return [Violation(rule="keep-best", where=where, message=message) for message in messages]


def _rank_above(ranks: dict[str, tuple[bool, float]], candidate: str) -> list[str]:
    return [name for name, rank in ranks.items() if candidate not in ranks or rank > ranks[candidate]]


def _compare_repetition(earlier: TrialOutcome, again: TrialOutcome) -> list[Violation]:
    """The same run twice: the same decisions and the same winner."""
    first, second = _decisions(earlier), _decisions(again)
    if first == second and earlier.result.get("winner") == again.result.get("winner"):
        return []
    pairs = enumerate(zip(first, second, strict=False))
    differs = next((number for number, (left, right) in pairs if left != right), min(len(first), len(second)))
    words = [f"{run[differs].id} {run[differs].choice}" if differs < len(run) else "nothing further" for run in (first, second)]
    message = f"the same run twice decides differently: {words[0]}, then {words[1]}"
    return [Violation(rule="repeatable", where=f"a run: {earlier.trial.name}", message=message)]


def _decisions(ended: TrialOutcome) -> list[Decision]:
    decisions: dict[str, Decision] = ended.result.get("decisions", {})
    return [decisions[key] for key in sorted(decisions)]


def _violation_in(situation: Situation, rule: str, message: str) -> Violation:
    return Violation(rule=rule, site=situation.site, where=situation.name, message=message)


def _group(found: Iterable[Violation]) -> tuple[Violation, ...]:
    """The first of each rule and site, with the number of places that show it."""
    places: dict[tuple[str, str], dict[str, Violation]] = {}
    for violation in found:
        places.setdefault((violation.rule, violation.site), {}).setdefault(violation.where, violation)
    return tuple(next(iter(seen.values())).model_copy(update={"times": len(seen)}) for seen in places.values())


def _draw(graph: Graph) -> str:
    return f"{graph.compile(name='tritonsmith').get_graph(xray=1).draw_mermaid()}{SITES}"  # one arrow may stand for several choices
