"""The rules that every preset begins with: those of the analysis notes that this project began with, three of them refined."""

from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.graph.policies.view import Answer, View
from tritonsmith.graph.pool import is_behind
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.storage.outcome import count_words

GOOD_SCORE = 1.0
"""The score of a kernel that is as fast as its baseline: a slower one is analysed, any other is kept."""
WORTH_SPEEDUP = 1.10
"""The notes' gate: a promised gain below 10 % is not worth a rewrite."""
TUNING_REACH = {"after_detect": 2.5, "after_grid": 2.5, "after_block": 1.1}
"""By gate, what the stages behind it may make of the candidate's own kernels, times as fast. The searches of docs/tuning.md gained 2.44
times at the most in all stages, and 1.07 times in that of memory."""


def _refusal_words(view: View) -> str:
    return f" ({view.refusal.partition(';')[0]})" if view.refusal else ""


def promise_of_tuning(view: View, gate: str) -> float:
    """How many times as fast the best kernel may become by the stages behind this gate; 1 behind the last one.

    Only the time in its own kernels becomes less, and no kernel falls below its floor.
    """
    reach = TUNING_REACH.get(gate, 1.0)
    verdict = view.best_verdict
    share = verdict.facts.own_time_share if verdict else None
    gained = 1.0 / (1.0 - share + share / reach) if share is not None else reach
    floor = view.best_floor.share if view.best_floor else 0.0
    return min(gained, max(1.0, 1.0 / floor)) if floor > 0 else gained


def _find_hopeless(view: View, gate: str) -> str:
    """Why no setting can bring the best kernel to what is claimed, by a measurement; empty where one may, or nobody measured."""
    timing, score = (view.best_verdict.timing if view.best_verdict else None), view.best_score or 0.0
    if timing is None or timing.kind is not TimingKind.MEASURED or score >= view.claims_from:
        return ""
    reach = promise_of_tuning(view, gate)
    return f"{score_words(score)}, and tuning makes it {reach:.2f} times as fast at the best" if score * reach < view.claims_from else ""


def score_words(score: float | None) -> str:
    """A score for a reason."""
    return "no score" if score is None else f"score {score:.3f}"


def _explain_unconfirmed(view: View) -> str:
    """Why the best kernel has no strict verdict."""
    if view.current is None:
        return "there is no working candidate to confirm"
    if view.works and view.verdict is not None and is_behind(view.verdict, view.claims_from):
        return f"measured at {score_words(view.score)}: nothing to confirm, the module is best kept"
    return "no strict verdict could be had"


class Default:
    """Repair failures, analyse what scores below 1.0, check each promise, tune all but fast persistent and highly complex kernels.

    The notes, 1 to 12: write several seeds, because kernels from one prompt differ 6.5-fold in speed. Show a failing kernel its error and
    repair it up to five times; one that only the strict profile refuses is failing too. Analyse the algorithm of a seed below 1.0, and
    rewrite it if at least 10 % is to be gained. Keep every working kernel in a pool and continue with the best; no stage replaces it by a
    worse one. Tune it in three stages unless it is persistent or of high complexity. Three rules go further than the notes. A persistent
    kernel skips tuning only once it scores 1.0 (8). Every promise of an analysis is compared with what was measured (11). A persistent
    kernel whose grid covers only the batch gets another round (12).
    """

    name = "default"
    seeds: int | None = None
    tuning: Tuning = Tuning.SEARCH
    joint: bool = False
    width: int = 1
    drop_twins: bool = False
    race_below: float = GOOD_SCORE
    claims_from: float = GOOD_SCORE
    encodes: tuple[int, ...] = tuple(range(1, 13))
    """Numbers of the notes' mechanisms that the policy stands for."""

    def after_evaluate(self, view: View) -> Answer:
        """Repair up to the limit. Analyse a working seed below 1.0. Send an optimized kernel to the promise check."""
        if view.twin:
            dropped = f"its compiled code is that of {view.twin}: dropped before it is measured"
            return ("check" if view.optimized and view.analysis else "give_up"), dropped
        if not view.works:
            return self.failing(view)
        if view.exhausted:
            return "accept", f"the author has no further kernel for this branch; it keeps {view.best.id if view.best else 'nothing'}"
        if view.optimized:
            return "check", f"works ({score_words(view.score)}); does it keep what the analysis promised?"
        if view.returns:
            return "accept", f"works again ({score_words(view.score)}); the strict profile judges it next"
        return self.seed_works(view)

    def failing(self, view: View) -> Answer:
        """What to do with a candidate that does not work."""
        if view.repairs_left and not view.exhausted:
            return "repair", f"{view.status}{_refusal_words(view)}: repair {view.repairs + 1} of {view.budget.repairs}"
        spent = "the author has nothing further to try" if view.exhausted else f"{count_words(view.repairs, 'repair')} did not help"
        if view.optimized and view.best:
            return "check", f"{view.status} and {spent}; the branch keeps {view.best.id}"
        return "give_up", f"{view.status} and {spent}"

    def seed_works(self, view: View) -> Answer:
        """What to do with a seed that works."""
        if (view.score or 0.0) >= GOOD_SCORE:
            return "accept", f"{score_words(view.score)} >= {GOOD_SCORE}: no analysis needed"
        if not view.rounds_left:
            return "accept", f"{score_words(view.score)} < {GOOD_SCORE}, but no analysis is left"
        return "rescue", f"{score_words(view.score)} < {GOOD_SCORE}: analyse the algorithm"

    def worth_optimizing(self, view: View) -> Answer:
        """The analyst's yes or no, and at least 10 % promised."""
        analysis = view.analysis
        if analysis is None:
            return "stop", "there is no analysis"
        if not analysis.worth_optimizing:
            return "stop", f"the analyst says no: {analysis.reason or analysis.bottleneck}"
        if analysis.expected_speedup < WORTH_SPEEDUP:
            return "stop", f"only {analysis.expected_speedup:.2f}x is promised, less than {WORTH_SPEEDUP:.2f}x"
        return "optimize", f"{analysis.optimisation_method}: {analysis.expected_speedup:.2f}x promised"

    def after_optimize(self, view: View) -> Answer:
        """A broken promise goes back to the analyst. A kept one ends the branch when no round is left, or when the best reaches 1.0 and
        the kernel does not carry the notes' warning about a grid that covers one axis and leaves most of the card empty."""
        if not view.works or (view.promise is not None and not view.promise.kept):
            failed = f"its compiled code is that of {view.twin}" if view.twin else f"the optimized kernel does not work ({view.status})"
            why = view.promise.reason if view.works and view.promise else failed
            if view.rounds_left:
                return "broken", f"{why}; back to the analysis"
            return "stop", f"{why}; no round is left, the branch keeps {view.best.id if view.best else 'nothing'}"
        if (view.best_score or 0.0) >= GOOD_SCORE:
            if view.rounds_left and {"persistent", "one_axis_grid"} <= view.labels:
                return "again", f"promise kept and best {score_words(view.best_score)}, but its grid covers one axis only: another round"
            return "kept", f"promise kept and best {score_words(view.best_score)} >= {GOOD_SCORE}"
        if view.rounds_left:
            return "again", f"promise kept, but best {score_words(view.best_score)} < {GOOD_SCORE}: another round"
        return "kept", f"promise kept; best {score_words(view.best_score)} and no round is left"

    def after_select(self, view: View) -> Answer:
        """The best working candidate goes on to detection."""
        if view.best is None:
            also = f", {view.not_allowed} not allowed to win" if view.not_allowed else ""
            return "finish", f"no candidate works ({view.failed} failed{also})"
        chosen = f"{view.best.id} is the best of {count_words(len(view.scores), 'working candidate')} ({score_words(view.best_score)})"
        if view.returns:
            return "finish", f"{chosen}: judged by the strict profile next"
        return "detect", chosen

    def after_detect(self, view: View) -> Answer:
        """Skip tuning for persistent kernels that score at least 1.0, for kernels of high complexity, and where it cannot lead to 1.0."""
        if self.tuning is Tuning.NONE:
            return "skip", "this policy never tunes"
        if hopeless := _find_hopeless(view, "after_detect"):
            return "skip", hopeless
        if "high_complexity" in view.labels:
            return "skip", "high complexity: tuning would break what the algorithm fixes"
        if "persistent" in view.labels and (view.score or 0.0) >= GOOD_SCORE:
            return "skip", f"persistent and {score_words(view.score)} >= {GOOD_SCORE}"
        if "persistent" in view.labels:
            few = ", and its grid covers one axis only" if "one_axis_grid" in view.labels else ""
            return "tune", f"persistent but {score_words(view.score)} < {GOOD_SCORE}{few}: still worth work"
        return "tune", "neither persistent nor of high complexity"

    def after_stage(self, view: View) -> Answer:
        """All three stages, each from the best working candidate; one search over all of them is the only one."""
        unjudged = f"; {view.unjudged}" if view.unjudged else ""
        searched = f"; {view.search.sentence()}" if view.search else ""
        best = f"best so far: {view.best.id if view.best else 'none'} ({score_words(view.best_score)}){searched}{unjudged}"
        if view.gate in TUNING_REACH and (hopeless := _find_hopeless(view, view.gate)):
            return "stop", f"{best}; {hopeless}"
        return ("stop", f"{best}; one search covers all three stages") if view.search and view.search.joint else ("next", best)

    def after_confirm(self, view: View) -> Answer:
        """Accept only a strict verdict. A kernel that fails goes back to repair. One whose gain was noise makes room for the next best."""
        if view.verdict is None or view.verdict.profile != "strict":
            return "give_up", _explain_unconfirmed(view)
        if view.works and view.proven_rival and view.best:
            return "next_best", f"confirmed at {score_words(view.score)}, which is no proven gain; {view.best.id} may be one"
        if view.works:
            return "accept", f"confirmed: {score_words(view.score)}"
        return self.refused(view)

    def refused(self, view: View) -> Answer:
        """What to do with a kernel that only the strict profile refuses."""
        if view.repairs_left:
            what = f"rejected on confirmation ({view.status}{_refusal_words(view)})"
            return "repair", f"{what}: repair {view.repairs + 1} of {view.budget.repairs}"
        return self.pass_over(view)

    def pass_over(self, view: View) -> Answer:
        """The next best in place of a refused kernel."""
        if view.best is not None and view.lacks("next_best"):
            return "accept", f"rejected on confirmation ({view.status}{_refusal_words(view)}); {view.best.id} was confirmed before"
        if view.best is not None:
            return "next_best", f"rejected on confirmation ({view.status}{_refusal_words(view)}); next best is {view.best.id}"
        return "give_up", f"rejected on confirmation ({view.status}{_refusal_words(view)}); nothing else works"
