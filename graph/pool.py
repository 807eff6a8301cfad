"""The pool of candidates: which of them work, and which is best."""

from collections.abc import Mapping

from tritonsmith.evaluator.schema import Candidate, Status, Verdict


def working(candidates: Mapping[str, Candidate], verdicts: Mapping[str, Verdict]) -> list[Candidate]:
    """Working candidates, best first; of equal ones the first made, one text counts once, and a text that failed anywhere counts nowhere.

    The table's order is the order of making, seed branches in the order of their numbers; so the ranking is the same in every repetition.
    """
    failed = {candidates[cid].sha for cid, verdict in verdicts.items() if cid in candidates and verdict.status is not Status.OK}
    ranked = sorted(
        (candidate for cid, candidate in candidates.items() if _score(verdicts, cid) is not None and candidate.sha not in failed),
        key=lambda candidate: -(_score(verdicts, candidate.id) or 0.0),
    )
    once: dict[str, Candidate] = {}
    for candidate in ranked:
        once.setdefault(candidate.sha, candidate)
    return list(once.values())


def best(candidates: Mapping[str, Candidate], verdicts: Mapping[str, Verdict]) -> Candidate | None:
    """The working candidate with the highest score; None when nothing works."""
    ranked = working(candidates, verdicts)
    return ranked[0] if ranked else None


def lineage(candidates: Mapping[str, Candidate], candidate_id: str) -> list[Candidate]:
    """A candidate and its ancestors, oldest first."""
    chain: list[Candidate] = []
    step: str | None = candidate_id
    while step is not None and step in candidates and candidates[step] not in chain:
        chain.append(candidates[step])
        step = candidates[step].parent
    return chain[::-1]


def _score(verdicts: Mapping[str, Verdict], candidate_id: str) -> float | None:
    verdict = verdicts.get(candidate_id)
    return verdict.score if verdict else None
