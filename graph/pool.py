"""The pool of candidates: which of them work, which of those may win, and which is best."""

from collections.abc import Mapping, Sequence

from tritonsmith.evaluator.cards.estimate import tell_apart
from tritonsmith.evaluator.schema import Allow, Candidate, Comparison, Label, Status, TimingKind, Verdict

_NEARLY = 0.97
"""Share of an autotuned kernel's score at which the same kernel with plain constants takes its place."""


def rank_working(candidates: Mapping[str, Candidate], verdicts: Mapping[str, Verdict], allow: Allow) -> list[Candidate]:
    """Working candidates that may win, best first.

    Of equal candidates the one that was made first wins. A text counts once, and a text that failed anywhere does not count. A proven gain
    goes before an unproven one: a `same` or `ambiguous` score above 1 is luck. Estimates that cannot be told apart do not rank: of these
    candidates the one with the fewest launches goes first, then the one that was made first. A measured one goes before an estimated one.
    The table is in the order of making, seed branches by their numbers, so the ranking is the same in every repetition.
    """
    out = {
        candidates[cid].sha
        for cid, verdict in verdicts.items()
        if cid in candidates and (verdict.status is not Status.OK or refusal(verdict, allow))
    }
    ranked = sorted(
        (candidate for cid, candidate in candidates.items() if _score(verdicts, cid) is not None and candidate.sha not in out),
        key=lambda candidate: (
            _is_estimated(verdicts[candidate.id]), not is_proven(verdicts[candidate.id]), -(_score(verdicts, candidate.id) or 0.0)
        ),
    )  # fmt: skip
    once: dict[str, Candidate] = {}
    ordered = [candidate for group in _group_alike(ranked, verdicts, list(candidates)) for candidate in group]
    for candidate in _prefer_plain(ordered, verdicts):
        once.setdefault(candidate.sha, candidate)
    return list(once.values())


def describe_choice(candidates: Mapping[str, Candidate], verdicts: Mapping[str, Verdict], allow: Allow) -> str:
    """Why the best one is the best where estimates do not say so, as a sentence; empty where they do, and of measurements."""
    ranked = rank_working(candidates, verdicts, allow)
    alike = [one.id for one in ranked if ranked and _are_alike(verdicts[ranked[0].id], verdicts[one.id])]
    if len(alike) < 2:
        return ""
    return (
        f"the estimate cannot tell {', '.join(alike[:-1])} and {alike[-1]} apart: {alike[0]} goes first by the rule for such candidates "
        "(fewest launches, then made first)"
    )


def _group_alike(ranked: Sequence[Candidate], verdicts: Mapping[str, Verdict], made: Sequence[str]) -> list[list[Candidate]]:
    """Candidates in their order, those together that cannot be told from the best of their group; in a group by the rule.

    `made` has all candidates in the order of making.
    """
    groups: list[list[Candidate]] = []
    for candidate in ranked:
        if groups and _are_alike(verdicts[groups[-1][0].id], verdicts[candidate.id]):
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
    return [sorted(group, key=lambda one: (verdicts[one.id].facts.launches_per_forward, made.index(one.id))) for group in groups]


def _are_alike(one: Verdict, other: Verdict) -> bool:
    """Whether two estimates cannot be told apart; measurements always can, by their figures."""
    if not _is_estimated(one) or not _is_estimated(other) or is_proven(one) != is_proven(other):
        return False
    assert one.timing is not None and other.timing is not None
    if one.timing.apart is None or other.timing.apart is None:  # older records
        return False
    return not tell_apart(one.timing.median_ms, one.timing.apart, other.timing.median_ms, other.timing.apart)


def _is_estimated(verdict: Verdict) -> bool:
    return verdict.timing is not None and verdict.timing.kind is TimingKind.ESTIMATED


def _prefer_plain(ranked: Sequence[Candidate], verdicts: Mapping[str, Verdict]) -> list[Candidate]:
    """The ranking with plain constants ahead of the autotuner that they replace, unless they are slower by more than noise."""
    ordered = list(ranked)
    for plain in ranked:
        place = next((number for number, other in enumerate(ordered) if other.id == plain.replaces), None)
        if place is None or ordered.index(plain) < place:
            continue
        if (_score(verdicts, plain.id) or 0.0) >= _NEARLY * (_score(verdicts, str(plain.replaces)) or 0.0):
            ordered.remove(plain)
            ordered.insert(place, plain)
    return ordered


def best(candidates: Mapping[str, Candidate], verdicts: Mapping[str, Verdict], allow: Allow) -> Candidate | None:
    """The first of `rank_working`; None when nothing works that may win."""
    ranked = rank_working(candidates, verdicts, allow)
    return ranked[0] if ranked else None


def is_proven(verdict: Verdict) -> bool:
    """Whether a working candidate is faster beyond the noise of its measurement, or beyond the band of its estimate."""
    return verdict.timing is not None and verdict.timing.said is Comparison.FASTER


def is_behind(verdict: Verdict, claims_from: float) -> bool:
    """Whether a card measured a working candidate below the score from which on a kernel is claimed. No estimate says so."""
    timing = verdict.timing
    return timing is not None and timing.kind is TimingKind.MEASURED and timing.score < claims_from


def refusal(verdict: Verdict, allow: Allow) -> str:
    """Why a working candidate may not win, as a sentence that helps its author; else empty.

    A quarantine counts only in a strict verdict: its audits can lift it.
    """
    if verdict.status is not Status.OK:
        return ""
    if not allow.admits(verdict.label):
        if verdict.label is None:
            return "who does the work was not found out; write Triton kernels for all of it"
        calls = ", ".join(f"{name} x{count}" for name, count in verdict.facts.library_calls.items())
        named = f"label {verdict.label.value}{f': {calls}' if calls else ''}"
        if verdict.label is Label.LIBRARY:
            return f"the library does the work ({named}); write Triton kernels that do it"
        return f"a library does part of the work ({named}); write Triton kernels for that part too"
    if verdict.profile == "strict" and verdict.quarantine:
        return f"quarantined: {verdict.quarantine}"
    return ""


def lineage(candidates: Mapping[str, Candidate], candidate_id: str) -> list[Candidate]:
    """A candidate and its ancestors, oldest first."""
    chain: dict[str, Candidate] = {}
    step: str | None = candidate_id
    while step is not None and step in candidates and step not in chain:
        chain[step] = candidates[step]
        step = candidates[step].parent
    return list(chain.values())[::-1]


def _score(verdicts: Mapping[str, Verdict], candidate_id: str) -> float | None:
    verdict = verdicts.get(candidate_id)
    return verdict.score if verdict else None
