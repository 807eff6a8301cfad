"""Routing policies: the presets, each a set of rules with its reason, and loading one by name or from a user's file.

A policy never changes the drawing, only the way through it. `notes` holds the rules of the analysis notes this project
began with; `default` refines two of them; every other preset changes exactly one thing of `default`, for ablations.
"""

import importlib.util
from pathlib import Path
from typing import cast

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.sites import QUESTIONS
from tritonsmith.graph.view import Answer, Policy, View

GOOD_SCORE = 1.0
"""Where a kernel is as fast as its baseline: below it is analysed, from it on it is kept."""
WORTH_SPEEDUP = 1.10
"""The notes' gate: a promised gain below 10 % is not worth a rewrite."""


def _why(view: View) -> str:
    return f" ({view.refusal.partition(';')[0]})" if view.refusal else ""


def _x(score: float | None) -> str:
    return "no score" if score is None else f"score {score:.3f}"


class Default:
    """Repair failures, analyse what scores below 1.0, check each promise, tune all but fast persistent and highly complex kernels."""

    name = "default"
    seeds: int | None = None

    def after_evaluate(self, view: View) -> Answer:
        """Repair up to the limit; rescue a working seed below 1.0 by analysis; an optimized kernel goes to the promise check."""
        if not view.works:
            return self.failing(view)
        if view.exhausted:
            return "accept", f"the author has no further kernel for this branch; it keeps {view.best.id if view.best else 'nothing'}"
        if view.optimized:
            return "check", f"works ({_x(view.score)}); does it keep what the analysis promised?"
        return self.seed_works(view)

    def failing(self, view: View) -> Answer:
        """What to do with a candidate that does not work."""
        if view.repairs_left and not view.exhausted:
            return "repair", f"{view.status}{_why(view)}: repair {view.repairs + 1} of {view.budget.repairs}"
        spent = "the author has nothing further to try" if view.exhausted else f"{view.repairs} repairs did not help"
        if view.optimized and view.best:
            return "check", f"{view.status} and {spent}; the branch keeps {view.best.id}"
        return "give_up", f"{view.status} and {spent}"

    def seed_works(self, view: View) -> Answer:
        """What to do with a seed that works."""
        if (view.score or 0.0) >= GOOD_SCORE:
            return "accept", f"{_x(view.score)} >= {GOOD_SCORE}: no analysis needed"
        if not view.rounds_left:
            return "accept", f"{_x(view.score)} < {GOOD_SCORE}, but no analysis is left"
        return "rescue", f"{_x(view.score)} < {GOOD_SCORE}: analyse the algorithm"

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
                return "again", f"promise kept and best {_x(view.best_score)}, but its grid covers one axis only: another round"
            return "kept", f"promise kept and best {_x(view.best_score)} >= {GOOD_SCORE}"
        if view.rounds_left:
            return "again", f"promise kept, but best {_x(view.best_score)} < {GOOD_SCORE}: another round"
        return "kept", f"promise kept; best {_x(view.best_score)} and no round is left"

    def after_select(self, view: View) -> Answer:
        """The best working candidate goes on to detection."""
        if view.best is None:
            also = f", {view.not_allowed} not allowed to win" if view.not_allowed else ""
            return "finish", f"no candidate works ({view.failed} failed{also})"
        return "detect", f"{view.best.id} is the best of {len(view.scores)} working candidates ({_x(view.best_score)})"

    def after_detect(self, view: View) -> Answer:
        """Skip tuning for persistent kernels that score at least 1.0 and for kernels of high complexity."""
        if "high_complexity" in view.labels:
            return "skip", "high complexity: tuning would break what the algorithm fixes"
        if "persistent" in view.labels and (view.score or 0.0) >= GOOD_SCORE:
            return "skip", f"persistent and {_x(view.score)} >= {GOOD_SCORE}"
        if "persistent" in view.labels:
            few = ", and its grid covers one axis only" if "one_axis_grid" in view.labels else ""
            return "tune", f"persistent but {_x(view.score)} < {GOOD_SCORE}{few}: still worth work"
        return "tune", "neither persistent nor of high complexity"

    def after_stage(self, view: View) -> Answer:
        """All three stages, each from the best working candidate."""
        return "next", f"best so far: {view.best.id if view.best else 'none'} ({_x(view.best_score)})"

    def after_confirm(self, view: View) -> Answer:
        """Only a strict verdict counts; a winner that fails it, or whose gain was noise, makes room for the next best."""
        if view.verdict is None or view.verdict.profile != "strict":
            return "give_up", "no strict verdict could be had" if view.current else "there is no working candidate to confirm"
        if view.works and view.proven_rival and view.best:
            return "next_best", f"confirmed at {_x(view.score)}, which is no proven gain; {view.best.id} may be one"
        if view.works:
            return "accept", f"confirmed: {_x(view.score)}"
        if view.best is not None and view.lacks("next_best"):
            return "accept", f"rejected on confirmation ({view.status}{_why(view)}); {view.best.id} was confirmed before"
        if view.best is not None:
            return "next_best", f"rejected on confirmation ({view.status}{_why(view)}); next best is {view.best.id}"
        return "give_up", f"rejected on confirmation ({view.status}{_why(view)}); nothing else works"


class Notes(Default):
    """The notes as they stand: one analysis below 1.0, only the time loop is checked afterwards, and any persistent kernel skips tuning."""

    name = "notes"

    def after_optimize(self, view: View) -> Answer:
        """Rule 11: warn and go back if the time loop is still in Python; nothing else is looked at."""
        if view.works and view.promise is not None and view.promise.time_loop_in_python:
            if view.rounds_left:
                return "broken", "the time loop is still in Python: back to the analysis"
            return "stop", "the time loop is still in Python, and no round is left"
        return "kept", f"{_x(view.score)}: optimized once, as the notes do"

    def after_detect(self, view: View) -> Answer:
        """High complexity or persistent: keep, do not tune."""
        for label in ("persistent", "high_complexity"):
            if label in view.labels:
                return "skip", f"{label.replace('_', ' ')}: keep, do not tune"
        return "tune", "low or medium complexity"


class NoAnalysis(Default):
    """`default` without rule 3: no seed is rescued by an analysis."""

    name = "no-analysis"

    def seed_works(self, view: View) -> Answer:
        """Accept every working seed."""
        return "accept", f"{_x(view.score)}; this policy never analyses"


class SingleSeed(Default):
    """`default` without the choice among seeds of rule 1: one seed, with everything else."""

    name = "single-seed"
    seeds = 1


class NoRepair(Default):
    """`default` without rule 2: a failing candidate is dropped at once."""

    name = "no-repair"

    def failing(self, view: View) -> Answer:
        """Give up, or keep the branch's best."""
        if view.optimized and view.best:
            return "check", f"{view.status}; this policy never repairs, the branch keeps {view.best.id}"
        return "give_up", f"{view.status}; this policy never repairs"


class NoDetect(Default):
    """`default` without rules 7 and 8: every kernel is tuned, persistent or not."""

    name = "no-detect"

    def after_detect(self, view: View) -> Answer:
        """Always tune."""
        return "tune", "this policy tunes whatever was detected"


class NoTune(Default):
    """`default` without rule 9: nothing is tuned."""

    name = "no-tune"

    def after_detect(self, view: View) -> Answer:
        """Never tune."""
        return "skip", "this policy never tunes"


class RescueAll(Default):
    """`default` with rule 3 widened: every working seed is analysed, whatever it scores."""

    name = "rescue-all"

    def seed_works(self, view: View) -> Answer:
        """Analyse while a round is left."""
        if view.rounds_left:
            return "rescue", f"{_x(view.score)}; this policy analyses every seed"
        return "accept", f"{_x(view.score)}, and no analysis is left"


class RescueBest(NoAnalysis):
    """Experiment B of the notes: three seeds, and an analysis of the best only if all of them score below 1.0."""

    name = "rescue-best"
    seeds = 3

    def after_select(self, view: View) -> Answer:
        """Analyse the best once when it is below 1.0."""
        if view.best is not None and (view.best_score or 0.0) < GOOD_SCORE and view.left("improvements"):
            return "rescue", f"all seeds are below {GOOD_SCORE} (best {_x(view.best_score)}): analyse {view.best.id}"
        return super().after_select(view)


class BestOfN(NoTune):
    """Rules 1 and 6 alone: write the seeds, measure them, keep the best; no repair, analysis or tuning."""

    name = "best-of-n"

    def after_evaluate(self, view: View) -> Answer:
        """Accept what works, drop what does not."""
        return ("accept", f"{_x(view.score)}; seeds only") if view.works else ("give_up", f"{view.status}; seeds only")


PRESETS: dict[str, type[Default]] = {
    preset.name: preset
    for preset in (Default, Notes, NoAnalysis, SingleSeed, NoRepair, NoDetect, NoTune, RescueAll, RescueBest, BestOfN)
}


def load_policy(name: str) -> Policy:
    """A preset by name, or `path/to/file.py:ClassName`. Raises UsageError with a sentence that lists what exists."""
    if name in PRESETS:
        return PRESETS[name]()
    path, colon, attribute = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise UsageError(f"--policy {name}: no such policy; choose one of {', '.join(PRESETS)}, or path/to/file.py:ClassName")
    return _from_file(name, Path(path), attribute)


def _from_file(name: str, path: Path, attribute: str) -> Policy:
    if not path.is_file():
        raise UsageError(f"--policy {name}: there is no file {path}; the presets are {', '.join(PRESETS)}")
    spec = importlib.util.spec_from_file_location(f"tritonsmith_policy_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--policy {name}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"--policy {name}: {path} does not import ({type(error).__name__}: {error}); mend the file") from error
    made = getattr(module, attribute, None)
    if made is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        raise UsageError(f"--policy {name}: {path} has no {attribute}; it defines {', '.join(classes) or 'no class'}")
    try:
        policy = made() if isinstance(made, type) else made
    except TypeError as error:
        raise UsageError(f"--policy {name}: {attribute}() cannot be made without arguments ({error})") from error
    missing = [question for question in QUESTIONS if not callable(getattr(policy, question, None))]
    if missing:
        raise UsageError(f"--policy {name}: {attribute} lacks {', '.join(missing)}; derive it from tritonsmith.graph.policies.Default")
    if not isinstance(getattr(policy, "name", None), str):
        policy.name = attribute
    elif isinstance(policy, Default) and "name" not in vars(type(policy)):
        policy.name = attribute  # an inherited name would be reported as the preset's
    if not hasattr(policy, "seeds"):
        policy.seeds = None
    return cast(Policy, policy)
