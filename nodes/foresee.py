"""What a verdict without a card would tell of a tuning variant, seen before it is judged.

Two estimates are ranked only where they can be told apart, and else the kernel that was made first goes first. So where the best kernel
costs hardly more than starting it, no variant with as many launches is worth its seconds in the interpreter. On a card nothing is foreseen:
there a variant is measured.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeGuard

from tritonsmith.evaluator.cards.estimate import estimate_launches
from tritonsmith.evaluator.schema import LaunchFacts, TimingKind, Verdict
from tritonsmith.evaluator.texts.source.variants import Reach, compare_texts
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.prompts.author import Draft

_UNSEEN = ("num_warps", "num_stages", "loop_stages", "maxnreg", "hint_")
"""How the names of parameters begin that are options of the compiler: they change no launch."""
_ROUNDING = 1 + 1e-9
_ONE_LAUNCH = LaunchFacts(launches_per_forward=1, triton_launches=1)


def foresee_stage(base: str, verdict: Verdict | None) -> str:
    """Why no variant at all can be told from the candidate `base` by a lower estimate, as a sentence; empty where one may."""
    if not _is_estimated(verdict) or not _costs(verdict, _ONE_LAUNCH):
        return ""
    return f"no variants are asked for: the estimate of {base} cannot be told from the cost of one launch"


def foresee_text(base: str, source: str, verdict: Verdict | None, variant: str) -> str:
    """Why the text of a variant of `base` cannot be told from it, as a sentence; empty where it may."""
    return _foresee(base, source, verdict, variant) if _is_estimated(verdict) else ""


def is_blind_to(verdict: Verdict | None, parameter: str) -> bool:
    """Whether an estimate cannot tell the values of a parameter apart: an option of the compiler, where launches are all that is seen."""
    return _is_estimated(verdict) and parameter.startswith(_UNSEEN) and _costs(verdict, verdict.facts)


def sort_out(base: str, source: str, verdict: Verdict | None, drafts: Sequence[Draft]) -> tuple[list[Draft], str]:
    """The variants of `base` that may be told from it, and a sentence about the others; empty where there are none."""
    if not _is_estimated(verdict):
        return list(drafts), ""
    reasons = [_foresee(base, source, verdict, draft.source) for draft in drafts]
    kept = [draft for draft, reason in zip(drafts, reasons, strict=True) if not reason]
    counts = Counter(reason for reason in reasons if reason)
    return kept, "; ".join(f"{count} of {count_words(len(drafts), 'variant')} not judged: {reason}" for reason, count in counts.items())


def _foresee(base: str, source: str, verdict: Verdict, variant: str) -> str:
    """Why a variant cannot be told from it; empty where it may."""
    if compare_texts(source, variant) is not Reach.ANYTHING and _costs(verdict, verdict.facts):
        launches = verdict.facts.launches_per_forward
        made = count_words(launches, "launch", "launches")
        return f"the estimate of {base} cannot be told from the cost of its {made}, and they make as many"
    return ""


def _is_estimated(verdict: Verdict | None) -> TypeGuard[Verdict]:
    return verdict is not None and verdict.timing is not None and verdict.timing.kind is TimingKind.ESTIMATED


def _costs(verdict: Verdict, launches: LaunchFacts) -> bool:
    """Whether an estimate cannot be told from that of launches which do nothing."""
    timing = verdict.timing
    return timing is not None and timing.median_ms < estimate_launches(launches) * max(timing.apart or 1.0, _ROUNDING)
