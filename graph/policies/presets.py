"""The presets: routing policies, each a set of rules with its reason.

A policy never changes the drawing, only the path through it. `notes` has the rules of the analysis notes that this project began with,
and `default` refines three of them. Every other preset changes one thing of `default`, for ablations. The second paragraph of a preset's
docstring names the mechanism of the notes that it stands for; `tritonsmith policies` and docs/policies.md repeat it.
"""

from tritonsmith.graph.policies.view import Answer, View
from tritonsmith.graph.searches import Tuning

GOOD_SCORE = 1.0
"""The score of a kernel that is as fast as its baseline: a slower one is analysed, any other is kept."""
WORTH_SPEEDUP = 1.10
"""The notes' gate: a promised gain below 10 % is not worth a rewrite."""


def _refusal_words(view: View) -> str:
    return f" ({view.refusal.partition(';')[0]})" if view.refusal else ""


def _score_words(score: float | None) -> str:
    return "no score" if score is None else f"score {score:.3f}"


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
    encodes: tuple[int, ...] = tuple(range(1, 13))
    """Numbers of the notes' mechanisms that the policy stands for."""

    def after_evaluate(self, view: View) -> Answer:
        """Repair up to the limit. Analyse a working seed below 1.0. Send an optimized kernel to the promise check."""
        if not view.works:
            return self.failing(view)
        if view.exhausted:
            return "accept", f"the author has no further kernel for this branch; it keeps {view.best.id if view.best else 'nothing'}"
        if view.optimized:
            return "check", f"works ({_score_words(view.score)}); does it keep what the analysis promised?"
        if view.returns:
            return "accept", f"works again ({_score_words(view.score)}); the strict profile judges it next"
        return self.seed_works(view)

    def failing(self, view: View) -> Answer:
        """What to do with a candidate that does not work."""
        if view.repairs_left and not view.exhausted:
            return "repair", f"{view.status}{_refusal_words(view)}: repair {view.repairs + 1} of {view.budget.repairs}"
        spent = "the author has nothing further to try" if view.exhausted else f"{view.repairs} repairs did not help"
        if view.optimized and view.best:
            return "check", f"{view.status} and {spent}; the branch keeps {view.best.id}"
        return "give_up", f"{view.status} and {spent}"

    def seed_works(self, view: View) -> Answer:
        """What to do with a seed that works."""
        if (view.score or 0.0) >= GOOD_SCORE:
            return "accept", f"{_score_words(view.score)} >= {GOOD_SCORE}: no analysis needed"
        if not view.rounds_left:
            return "accept", f"{_score_words(view.score)} < {GOOD_SCORE}, but no analysis is left"
        return "rescue", f"{_score_words(view.score)} < {GOOD_SCORE}: analyse the algorithm"

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
            why = view.promise.reason if view.works and view.promise else f"the optimized kernel does not work ({view.status})"
            if view.rounds_left:
                return "broken", f"{why}; back to the analysis"
            return "stop", f"{why}; no round is left, the branch keeps {view.best.id if view.best else 'nothing'}"
        if (view.best_score or 0.0) >= GOOD_SCORE:
            if view.rounds_left and {"persistent", "one_axis_grid"} <= view.labels:
                return "again", f"promise kept and best {_score_words(view.best_score)}, but its grid covers one axis only: another round"
            return "kept", f"promise kept and best {_score_words(view.best_score)} >= {GOOD_SCORE}"
        if view.rounds_left:
            return "again", f"promise kept, but best {_score_words(view.best_score)} < {GOOD_SCORE}: another round"
        return "kept", f"promise kept; best {_score_words(view.best_score)} and no round is left"

    def after_select(self, view: View) -> Answer:
        """The best working candidate goes on to detection."""
        if view.best is None:
            also = f", {view.not_allowed} not allowed to win" if view.not_allowed else ""
            return "finish", f"no candidate works ({view.failed} failed{also})"
        chosen = f"{view.best.id} is the best of {len(view.scores)} working candidates ({_score_words(view.best_score)})"
        if view.returns:
            return "finish", f"{chosen}: judged by the strict profile next"
        return "detect", chosen

    def after_detect(self, view: View) -> Answer:
        """Skip tuning for persistent kernels that score at least 1.0 and for kernels of high complexity."""
        if self.tuning is Tuning.NONE:
            return "skip", "this policy never tunes"
        if "high_complexity" in view.labels:
            return "skip", "high complexity: tuning would break what the algorithm fixes"
        if "persistent" in view.labels and (view.score or 0.0) >= GOOD_SCORE:
            return "skip", f"persistent and {_score_words(view.score)} >= {GOOD_SCORE}"
        if "persistent" in view.labels:
            few = ", and its grid covers one axis only" if "one_axis_grid" in view.labels else ""
            return "tune", f"persistent but {_score_words(view.score)} < {GOOD_SCORE}{few}: still worth work"
        return "tune", "neither persistent nor of high complexity"

    def after_stage(self, view: View) -> Answer:
        """All three stages, each from the best working candidate; one search over all of them is the only one."""
        unjudged = f"; {view.unjudged}" if view.unjudged else ""
        searched = f"; {view.search.sentence()}" if view.search else ""
        best = f"best so far: {view.best.id if view.best else 'none'} ({_score_words(view.best_score)}){searched}{unjudged}"
        return ("stop", f"{best}; one search covers all three stages") if view.search and view.search.joint else ("next", best)

    def after_confirm(self, view: View) -> Answer:
        """Accept only a strict verdict. A kernel that fails goes back to repair. One whose gain was noise makes room for the next best."""
        if view.verdict is None or view.verdict.profile != "strict":
            return "give_up", "no strict verdict could be had" if view.current else "there is no working candidate to confirm"
        if view.works and view.proven_rival and view.best:
            return "next_best", f"confirmed at {_score_words(view.score)}, which is no proven gain; {view.best.id} may be one"
        if view.works:
            return "accept", f"confirmed: {_score_words(view.score)}"
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


class Notes(Default):
    """The notes as they stand: one analysis below 1.0, only the time loop is checked afterwards, and any persistent kernel skips tuning.

    The notes, 1 to 11, to the letter: after a rewrite the only check is whether the time loop is inside the kernel. If it is still in
    Python, the analysis is asked again (11). A kernel that is persistent or of high complexity is kept and not tuned, at any score (8).
    """

    name = "notes"
    tuning = Tuning.MODEL
    encodes = tuple(range(1, 12))

    def after_optimize(self, view: View) -> Answer:
        """Rule 11: warn and go back if the time loop is still in Python; nothing else is checked."""
        if view.works and view.promise is not None and view.promise.time_loop_in_python:
            if view.rounds_left:
                return "broken", "the time loop is still in Python: back to the analysis"
            return "stop", "the time loop is still in Python, and no round is left"
        return "kept", f"{_score_words(view.score)}: optimized once, as the notes do"

    def after_detect(self, view: View) -> Answer:
        """High complexity or persistent: keep, do not tune."""
        for label in ("persistent", "high_complexity"):
            if label in view.labels:
                return "skip", f"{label.replace('_', ' ')}: keep, do not tune"
        return "tune", "low or medium complexity"


class NoAnalysis(Default):
    """`default` without the rescue: no seed is analysed.

    The notes, 3: a seed that scores below 1.0 is analysed at the level of its algorithm. What that gives is the difference to `default`.
    With one seed this is C of the notes' three-way comparison.
    """

    name = "no-analysis"
    encodes: tuple[int, ...] = (3,)

    def seed_works(self, view: View) -> Answer:
        """Accept every working seed."""
        return "accept", f"{_score_words(view.score)}; this policy never analyses"


class SingleSeed(Default):
    """`default` without a choice among seeds: one seed, with everything else.

    The notes, 1: several seeds are written from one prompt, because they differ 6.5-fold in speed. What more than one gives is the
    difference to `default`. This is A of the notes' three-way comparison: one seed and its analysis.
    """

    name = "single-seed"
    seeds = 1
    encodes = (1,)


class NoRepair(Default):
    """`default` without repair: a failing candidate is dropped at once.

    The notes, 2: a failing kernel goes back to its author with the error text and the history of earlier tries, up to five times. What
    that saves is the difference to `default`.
    """

    name = "no-repair"
    encodes = (2,)

    def failing(self, view: View) -> Answer:
        """Give up, or keep the branch's best."""
        if view.optimized and view.best:
            return "check", f"{view.status}; this policy never repairs, the branch keeps {view.best.id}"
        return "give_up", f"{view.status}; this policy never repairs"

    def refused(self, view: View) -> Answer:
        """The next best."""
        return self.pass_over(view)


class NoDetect(Default):
    """`default` without the skip: every kernel is tuned, with any label.

    The notes, 7 and 8: the best kernel is classified first. A persistent one, or one of high complexity, is not tuned, because tuning made
    such a kernel ten times slower. Whether that holds for right kernels is the difference to `default`.
    """

    name = "no-detect"
    encodes = (7, 8)

    def after_detect(self, view: View) -> Answer:
        """Always tune."""
        return "tune", "this policy tunes every kernel"


class NoTune(Default):
    """`default` without tuning.

    The notes, 9: the selected kernel is tuned in three stages (grid and parallelism, block sizes, memory access). What they give is the
    difference to `default`.
    """

    name = "no-tune"
    tuning = Tuning.NONE
    encodes: tuple[int, ...] = (9,)


class TuneByAuthor(Default):
    """`default` with the author's variants in place of the search.

    The notes, 9: a model writes the variants of each stage. The built-in author lists neighbours of a recipe's settings. What a measured
    search gives beyond that is the difference to `default`.
    """

    name = "tune-model"
    tuning = Tuning.MODEL
    encodes = (9,)


class TuneByBoth(Default):
    """`default` with the author's variants next to the finalists of each search.

    The notes, 9: a model can write what no constant of the text expresses. What its variants add to a search is the difference to
    `default`.
    """

    name = "tune-both"
    tuning = Tuning.BOTH
    encodes = (9,)


class TuneJointly(Default):
    """`default` with one search over the tunables of all three stages.

    The notes, 9: they tune grid, blocks and memory one after the other. What is lost by keeping the three apart is the difference to
    `default`.
    """

    name = "tune-joint"
    joint = True
    encodes = (9,)


class TunePersistent(Default):
    """`default`, and persistent kernels are tuned at any score.

    The notes, 8: tuning made a persistent kernel ten times slower, so such kernels are left alone. A search never ends below what it began
    with. Whether it gains anything on a persistent kernel is the difference to `default`. Kernels of high complexity are skipped as in
    `default`.
    """

    name = "tune-persistent"
    encodes = (8,)

    def after_detect(self, view: View) -> Answer:
        """Skip only kernels of high complexity."""
        if "persistent" in view.labels and "high_complexity" not in view.labels:
            return "tune", f"persistent ({_score_words(view.score)}), and this policy tunes such kernels too"
        return super().after_detect(view)


class RescueAll(Default):
    """`default` with a wider rescue: every working seed is analysed, at any score.

    The notes, 3: a seed that scores 1.0 or more skips the analysis. What the threshold loses, or saves, is the difference to `default`.
    """

    name = "rescue-all"
    encodes = (3,)

    def seed_works(self, view: View) -> Answer:
        """Analyse while a round is left."""
        if view.rounds_left:
            return "rescue", f"{_score_words(view.score)}; this policy analyses every seed"
        return "accept", f"{_score_words(view.score)}, and no analysis is left"


class RescueBest(NoAnalysis):
    """Three seeds, and an analysis of the best only if all of them score below 1.0.

    The notes, 1, 3 and 6: B of their three-way comparison, and their proposal for VGG16. Write three seeds, keep the best of the pool, and
    pay for an analysis only if all of them are slow.
    """

    name = "rescue-best"
    seeds = 3
    encodes = (1, 3, 6)

    def after_select(self, view: View) -> Answer:
        """Analyse the best once when it is below 1.0."""
        if view.best is not None and (view.best_score or 0.0) < GOOD_SCORE and view.left("improvements"):
            return "rescue", f"all seeds are below {GOOD_SCORE} (best {_score_words(view.best_score)}): analyse {view.best.id}"
        return super().after_select(view)


class BestOfN(NoTune):
    """Write the seeds, measure them, keep the best; no repair, analysis or tuning.

    The notes, 1 and 6: several seeds from one prompt, all of them in a pool, and the best one wins. Every other mechanism has to beat
    this. With ten seeds it is also the notes' histogram of one prompt's scores.
    """

    name = "best-of-n"
    encodes = (1, 6)

    def after_evaluate(self, view: View) -> Answer:
        """Accept what works, drop what does not."""
        return ("accept", f"{_score_words(view.score)}; seeds only") if view.works else ("give_up", f"{view.status}; seeds only")

    def refused(self, view: View) -> Answer:
        """The next best."""
        return self.pass_over(view)


PRESETS: dict[str, type[Default]] = {
    preset.name: preset
    for preset in (
        Default, Notes, NoAnalysis, SingleSeed, NoRepair, NoDetect, NoTune, TuneByAuthor, TuneByBoth, TuneJointly, TunePersistent,
        RescueAll, RescueBest, BestOfN,
    )
}  # fmt: skip
