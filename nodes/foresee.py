"""What a verdict without a card would tell of a tuning variant, seen before it is judged.

An estimate counts launches, bytes and operations. Most of what tuning changes is none of these, and of equal estimates the first wins.
So a variant that cannot get a lower estimate than the best kernel is not worth its seconds in the interpreter. On a card nothing is
foreseen: there a variant is measured.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeGuard

from tritonsmith.evaluator.estimate import estimate_launches
from tritonsmith.evaluator.schema import LaunchFacts, TimingKind, Verdict
from tritonsmith.evaluator.source.variants import Reach, compare_texts
from tritonsmith.prompts.author import Draft

_UNSEEN = ("num_warps", "num_stages", "loop_stages", "maxnreg", "hint_")
"""How the names of parameters begin that an estimate does not see unless registers are spilled."""
_ROUNDING = 1 + 1e-9
_ONE_LAUNCH = LaunchFacts(launches_per_forward=1, triton_launches=1)


def foresee_stage(base: str, verdict: Verdict | None) -> str:
    """Why no variant at all can get a lower estimate than the candidate `base`, as a sentence; empty where one may."""
    if not _is_estimated(verdict) or not _costs(verdict, _ONE_LAUNCH):
        return ""
    return f"no variants are asked for: the estimate of {base} is the cost of one launch, and that of no kernel is lower"


def foresee_text(base: str, source: str, verdict: Verdict | None, variant: str) -> str:
    """Why the text of a variant of `base` cannot get a lower estimate, as a sentence; empty where it may."""
    return _foresee(base, source, verdict, variant) if _is_estimated(verdict) else ""


def is_blind_to(verdict: Verdict | None, parameter: str) -> bool:
    """Whether an estimate cannot tell the values of a parameter apart: it is an option of the compiler, and nothing is spilled."""
    return _is_estimated(verdict) and parameter.startswith(_UNSEEN) and not any(kernel.spills for kernel in verdict.facts.kernels)


def sort_out(base: str, source: str, verdict: Verdict | None, drafts: Sequence[Draft]) -> tuple[list[Draft], str]:
    """The variants of `base` that may get a lower estimate, and a sentence about the others; empty where there are none."""
    if not _is_estimated(verdict):
        return list(drafts), ""
    reasons = [_foresee(base, source, verdict, draft.source) for draft in drafts]
    kept = [draft for draft, reason in zip(drafts, reasons, strict=True) if not reason]
    counts = Counter(reason for reason in reasons if reason)
    return kept, "; ".join(f"{count} of {len(drafts)} variants are not judged: {reason}" for reason, count in counts.items())


def _foresee(base: str, source: str, verdict: Verdict, variant: str) -> str:
    """Why a variant cannot get a lower estimate; empty where it may."""
    reach = compare_texts(source, variant)
    if reach is Reach.OPTIONS and all(kernel.spills == 0 for kernel in verdict.facts.kernels):
        return "the estimate cannot tell compiler options such as num_warps apart"
    if reach is not Reach.ANYTHING and _costs(verdict, verdict.facts):
        launches = verdict.facts.launches_per_forward
        return f"the estimate of {base} is the cost of its {launches} launches, and they make as many"
    return ""


def _is_estimated(verdict: Verdict | None) -> TypeGuard[Verdict]:
    return verdict is not None and verdict.timing is not None and verdict.timing.kind is TimingKind.ESTIMATED


def _costs(verdict: Verdict, launches: LaunchFacts) -> bool:
    """Whether an estimate is not above the host time of these launches."""
    return verdict.timing is not None and verdict.timing.median_ms <= estimate_launches(launches) * _ROUNDING
