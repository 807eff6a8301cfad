"""The presets: routing policies, each a set of rules with its reason.

A policy never changes the drawing, only the path through it. `notes` has the rules of the analysis notes that this project began with,
and `default` refines three of them. Every other preset changes one thing of `default`, for ablations; `to-the-floor` and `beam` go further.
The second paragraph of a preset's docstring names the mechanism of the notes that it stands for; `tritonsmith policies` and
docs/policies.md repeat it.
"""

import math

from tritonsmith.graph.policies.default import GOOD_SCORE, Default, score_words
from tritonsmith.graph.policies.view import Answer, View
from tritonsmith.graph.policies.wider import Beam, ToTheFloor
from tritonsmith.graph.searches import Tuning

__all__ = ["GOOD_SCORE", "PRESETS", "Beam", "Default", "ToTheFloor"]


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
        return "kept", f"{score_words(view.score)}: optimized once, as the notes do"

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
        return "accept", f"{score_words(view.score)}; this policy never analyses"


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
            return "tune", f"persistent ({score_words(view.score)}), and this policy tunes such kernels too"
        return super().after_detect(view)


class NoRace(Default):
    """`default` with a cut by predicted costs alone: no region is raced against the library.

    The notes, 3: a seed below 1.0 is analysed at the level of its algorithm. On a card the analysis rests on a race of its regions. What
    the race gives, and what its seconds cost, is the difference to `default`.
    """

    name = "no-race"
    race_below = 0.0
    encodes = (3,)


class RescueAll(Default):
    """`default` with a wider rescue: every working seed is analysed, at any score.

    The notes, 3: a seed that scores 1.0 or more skips the analysis. What the threshold loses, or saves, is the difference to `default`.
    """

    name = "rescue-all"
    encodes = (3,)
    race_below = math.inf

    def seed_works(self, view: View) -> Answer:
        """Analyse while a round is left."""
        if view.rounds_left:
            return "rescue", f"{score_words(view.score)}; this policy analyses every seed"
        return "accept", f"{score_words(view.score)}, and no analysis is left"


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
            return "rescue", f"all seeds are below {GOOD_SCORE} (best {score_words(view.best_score)}): analyse {view.best.id}"
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
        return ("accept", f"{score_words(view.score)}; seeds only") if view.works else ("give_up", f"{view.status}; seeds only")

    def refused(self, view: View) -> Answer:
        """The next best."""
        return self.pass_over(view)


PRESETS: dict[str, type[Default]] = {
    preset.name: preset
    for preset in (
        Default, Notes, NoAnalysis, SingleSeed, NoRepair, NoDetect, NoTune, TuneByAuthor, TuneByBoth, TuneJointly, TunePersistent,
        NoRace, RescueAll, RescueBest, BestOfN, ToTheFloor, Beam,
    )
}  # fmt: skip
