"""Checked calls: fresh inputs, poisoned outputs, the reference computed only after the candidate answered. Imports torch."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.channel.slots import Layout
from tritonsmith.evaluator.oracle.checks.answers import Answers
from tritonsmith.evaluator.oracle.checks.correctness import (
    ErrorStats,
    Trial,
    accepted,
    reached_class,
    summarize,
    worst_trial,
)
from tritonsmith.evaluator.oracle.checks.inputs import KINDS, InputKind
from tritonsmith.evaluator.oracle.checks.loaded_task import MOVED_WEIGHTS, UNDEFINED, LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import equal_bits
from tritonsmith.evaluator.oracle.checks.structure import StructureCheck
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.schema import Correctness, PrecisionClass, Status, TensorSpec

_UNLIKE_FRESH = "; and weights that are not the ones and zeros of a fresh module"
_LATE_WRITE_SECONDS = 0.05
"""Between an answer and the look for outputs that still change."""
_BLURRED = 0.05
"""Where the reference's own error is this share of its result, a trial says nothing."""
_COARSE = 2.0**-12
"""Share of a result that the reference's error counts as where values that do not belong are looked for; rounding is judged elsewhere."""
_UNEVEN = 2.0**-18
"""Share of a result that its error may be where one term stands above the others. An operand that is split into two 16-bit halves, as for
fp32 on tensor cores, keeps 22 bits; errors of many such terms cancel and of one do not (2^-18.3 in a GRU of six layers on an H200). For an
edge it is a share of the whole output's scale: the large term may reach an edge whose own results are small."""
_MOVED = 4.0
"""On inputs that the task did not choose, what that many units of the last place do to the oracle: 22 bits instead of 24."""
_MOVES = 8
"""Moves that show how much the few largest errors of honest arithmetic may vary."""
_NEAR = 64.0
"""An error up to this many times its limit is looked at with them."""
_LEVEL = 2.0**-23
"""Share of an output's scale that the error of one edge may reach where inputs far below the others make that edge's results small."""
_EIGHTH = 2.0**-10
"""Share of a result that the reference's error counts as where operands have eight bits: tensor cores add their products with few bits."""
_TERMS = 256
"""Terms that one program usually adds up at least."""
_SUM = 0.3 * 2.0**-23
"""Error of one rounding to float32, as a share of the result."""


@dataclass
class TrialLog:
    """Trials of one candidate so far, and what they add up to."""

    loaded: LoadedTask
    trials: list[Trial] = field(default_factory=list)
    inputs: list[torch.Tensor] = field(default_factory=list)
    """Those of the last call, where the reference writes to some."""

    def __post_init__(self) -> None:
        self.structure = StructureCheck(self.loaded)

    @property
    def correctness(self) -> Correctness | None:
        """Figures of the worst trial; None before the first."""
        return summarize(self.trials, self.loaded.task.precision) if self.trials else None

    def require_accurate(self) -> None:
        """Raises RunnerFault(inaccurate) with the worst place when the class asked for is not reached."""
        if accepted(reached_class(self.trials), self.loaded.task.precision):
            return
        raise RunnerFault(Status.INACCURATE, describe_error(self.trials, self.loaded.task.precision, self.loaded.call.name_result))


def describe_error(trials: list[Trial], asked: PrecisionClass, name: Callable[[int], str] = "output {}".format) -> str:
    """What is wrong in words: where and how much; for hidden inputs only where. `name` gives what a result is called by its number."""
    return re.sub(r"\boutput (\d+)", lambda found: name(int(found[1])), _describe(trials, asked))


def _describe(trials: list[Trial], asked: PrecisionClass) -> str:
    trial = worst_trial(trials, asked)
    worst, own = trial.candidate, trial.own(asked)
    place = f"output {worst.worst_tensor} at index {list(worst.worst_index)}"
    if worst.worst_tensor in trial.left:
        return f"forward does not write to output {worst.worst_tensor}, the reference does"
    expected, actual = worst.worst_expected, worst.worst_actual
    if trial.hidden:
        return f"right on inputs like the task's own, wrong on others of the same shapes: the worst place is {place}"
    if worst.unwritten:
        several = "s" * (worst.unwritten != 1)
        first = f"{', the first' if several else ', the one'} at index {list(worst.worst_index)}"
        return f"{worst.unwritten} element{several} of output {worst.worst_tensor} {'were' if several else 'was'} never written{first}"
    if actual is not None and not math.isfinite(actual):
        return f"{place} is {actual} where {expected:.6g} is expected: not written, or computed from unwritten or overflowing values"
    if not worst.exact:
        return f"{place} is {actual} where {expected} is expected"
    scale = worst.oracle_rms or 1.0
    bound = trial.bound(asked) or own
    part = worst.wrong_part(bound) if worst.within_on_average(bound) else None
    if part is None and worst.within_on_average(bound) and (rows := worst.wrong_rows(bound)) is not None:
        return (
            f"output {rows}: every element of a row is off by one factor ({worst.row_scales[rows]:.3g} root mean square, "
            f"the reference's rows {own.row_scales[rows]:.3g}): a sum or a statistic of the row is wrong or rounded to 16 bits; use fp32"
        )
    if part is None and worst.within_on_average(bound) and (number := worst.wrong_factor(bound)) is not None:
        return (
            f"output {number}: all elements are off by one factor ({worst.factors[number][0]:.3g}, the reference's "
            f"{own.factors[number][0]:.3g}): a scale or a sum is wrong, or is rounded to 16 bits"
        )
    where = f"{part.words}: too far off by itself (root mean square error {part.rms:.3g}); over all outputs " if part else ""
    return (
        f"{where}maximum error {worst.max_abs:.3g} at {place} (expected {expected:.6g}, got {actual:.6g}); "
        f"against the oracle {worst.rms / scale:.3g}, the reference's own error {own.rms / scale:.3g}"
    )


def snapshot(runner: RunnerHandle) -> list[torch.Tensor]:
    """The outputs, and the inputs that the reference writes to, as they are now."""
    return [slot.clone() for slot in runner.results]


def same_bits(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Bitwise equality, NaN included."""
    return all(equal_bits(a, b) for a, b in zip(first, second, strict=True))


def run_and_deliver(
    runner: RunnerHandle, mode: int, timeout: float, called: Callable[[], object] = lambda: None, command: Command = Command.CALL
) -> None:
    """One call and its results in the slots; `called` is called in between. Raises RunnerFault."""
    runner.command(command, mode, timeout=timeout)
    called()
    runner.command(Command.DELIVER, timeout=timeout)


class Question(Protocol):
    """A set of inputs with what is right on it."""

    @property
    def kind(self) -> str:
        """See `inputs.KINDS`."""
        ...

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The inputs, which stay as they are."""
        ...

    def expect(self, before: Sequence[Trial]) -> Expected:
        """What is right, asked for after the candidate answered. Raises what the reference raises."""
        ...


@dataclass(frozen=True)
class FreshQuestion:
    """One that nobody else is asked."""

    loaded: LoadedTask
    kind: str
    tensors: list[torch.Tensor]

    def expect(self, before: Sequence[Trial]) -> Expected:
        """What is right."""
        return compute_expected(self.loaded, self.tensors, KINDS[self.kind], before)


def checked_call(log: TrialLog, runner: RunnerHandle, kind: str, mode: int, timeout: float) -> list[torch.Tensor]:
    """One call on fresh inputs of a kind; see `ask`."""
    return ask(log, runner, FreshQuestion(log.loaded, kind, log.loaded.draw(kind)), mode, timeout)


def ask(log: TrialLog, runner: RunnerHandle, question: Question, mode: int, timeout: float) -> list[torch.Tensor]:
    """One call on a set of inputs, judged; returns the outputs. Where its kind says nothing about this task they stay unjudged.

    Raises RunnerFault for a failed call or changed inputs; accuracy is judged over all trials by `require_accurate`.
    """
    loaded, kind = log.loaded, question.kind
    got = fresh_call(loaded, runner, question.tensors, mode, timeout, lambda: log.structure.look(runner, timeout))
    log.structure.keep(got)
    log.inputs = question.tensors if loaded.written else []
    try:
        expected = question.expect(log.trials)
    except UNDEFINED as error:
        if kind == "own" or not _has_no_answer(loaded, error):
            raise
        return got  # no answer is right or wrong where the reference has none
    trial = expected.trial(got)  # nothing that a candidate wrote may end in that exception
    if kind == "own" or _can_tell(log, trial, KINDS[kind]):
        log.trials.append(trial)
        require_undisturbed(trial, expected, got)
        if not KINDS[kind].ties:
            log.structure.finish(question.tensors)
    return got


def _has_no_answer(loaded: LoadedTask, error: Exception) -> bool:
    """Whether the reference refuses these inputs. A candidate that leaves too little memory for the oracle must not get out of a check.

    On a card any exception may be the card's trouble, and inputs that a reference refuses are avoided by the task's text.
    """
    return loaded.device == "cpu" and not re.search("memory|alloc", str(error))


def _can_tell(log: TrialLog, trial: Trial, kind: InputKind) -> bool:
    """Whether a trial of a kind that the task did not choose can tell right from wrong.

    An oracle that is infinite or undefined somewhere tells nothing, unless the task's own inputs give such results as well.
    """
    if not trial.finite and all(earlier.finite for earlier in log.trials):
        return False
    loaded = log.loaded
    own = trial.own(loaded.task.precision)
    if kind.natural:
        return own.exact  # a reference that overflows its 16-bit type here shows nothing
    indices = any(not getattr(torch, spec.dtype).is_floating_point for spec in loaded.layout.outputs)
    return own.exact and not (indices and kind.ties) and not trial.blurred


def fresh_call(
    loaded: LoadedTask, runner: RunnerHandle, tensors: list[torch.Tensor], mode: int, timeout: float,
    called: Callable[[], object] = lambda: None, command: Command = Command.CALL,
) -> list[torch.Tensor]:  # fmt: skip
    """Place the inputs, poison the outputs, call, deliver; `called` comes ahead of the delivery.

    Raises RunnerFault for a failed call or changed inputs.
    """
    loaded.place(tensors)
    runner.poison_secretly()
    loaded.sync()
    run_and_deliver(runner, mode, timeout, called, command)
    got = snapshot(runner)
    require_unchanged(loaded, tensors)
    return got


class Expected(NamedTuple):
    """What is right on some inputs, and how far off the reference is."""

    answers: Answers
    asked: PrecisionClass
    errors: dict[PrecisionClass, ErrorStats]
    finite: bool
    kind: InputKind
    blurred: bool
    about: str
    """What its inputs and weights were like, in words."""

    def trial(self, got: list[torch.Tensor]) -> Trial:
        """The trial that these outputs make.

        Where few elements make an error that is refused, and the reference's error there is a matter of luck, it counts as at least what
        several moves of inputs and weights by two units of the last place do to the oracle.
        """
        left = self.answers.list_left(got)
        error, kind = self.answers.measure(got), self.kind
        trial = Trial(error, self.errors, self.finite, hidden=kind.hidden, blurred=self.blurred, inputs=self.about, left=left)
        bound = trial.bound(self.asked)
        if bound is None or trial.meets(self.asked) or not trial.candidate.rests_on_few or not _is_near(trial.candidate, bound):
            return trial
        moved = self.answers.measure_moves(_MOVES)
        return replace(trial, reference={precision: error.widen(moved) for precision, error in self.errors.items()})


def _is_near(candidate: ErrorStats, bound: ErrorStats) -> bool:
    """Whether an error is refused by so little that the luck of a few roundings may be the cause."""
    return candidate.within(bound.scale_errors(_NEAR))


def judge_outputs(
    loaded: LoadedTask, tensors: list[torch.Tensor], got: list[torch.Tensor], kind: str = "own", before: Sequence[Trial] = ()
) -> Trial:
    """The trial that these outputs make; the oracle is computed here, after the candidate answered."""
    return compute_expected(loaded, tensors, KINDS[kind], before).trial(got)


def compute_expected(
    loaded: LoadedTask, tensors: list[torch.Tensor], kind: InputKind = KINDS["own"], before: Sequence[Trial] = ()
) -> Expected:
    """The oracle on inputs of a kind, and the reference's errors; asked for after the candidate answered. Raises what the reference raises.

    On inputs that the task did not choose, the reference may be right by luck (a row without variance, say). There its error counts as
    at least what moving each input by one unit of float32's last place does to the oracle: no algorithm promises to be better. So it does
    without a card, where PyTorch adds in float64 what a card adds in float32, and for deep sums (`_order_factor`). Whole numbers are exact
    in every class: there a reference in a coarser one errs by the share that it has elsewhere. Structural kinds excuse every rounding:
    a small share of the result, and the reference's error in the trials `before`; uneven ones excuse a far smaller share.
    """
    answers, depth = Answers(loaded, tensors), _order_factor(loaded.layout)
    moved = not kind.natural or depth > 1.0 or loaded.device == "cpu"
    errors, rounding, finite = answers.measure_reference(loaded.arithmetic.classes, moved=moved)
    blurred = False
    if rounding is not None:
        rounding = rounding.scale_errors(depth * (1.0 if kind.natural else _MOVED))
        share = _SUM * depth if depth > 1.0 else 0.0
        errors = {precision: error.widen(rounding).lift_to_share(share) for precision, error in errors.items()}
        own = errors[loaded.task.precision.arithmetic]
        if not kind.natural:
            errors = {precision: error.lift_edges_to_share(_LEVEL) for precision, error in errors.items()}
            own = errors[loaded.task.precision.arithmetic]
        blurred = not kind.natural and own.rms > _BLURRED * own.oracle_rms
    if kind.exact:
        for trial in before[:1]:
            errors = {
                precision: error if precision is PrecisionClass.IEEE else error.lift_to_share(trial.reference[precision].relative_rms)
                for precision, error in errors.items()
            }
    if kind.uneven:
        errors = {precision: error.lift_to_share(_UNEVEN).lift_edges_to_share(_UNEVEN) for precision, error in errors.items()}
    if kind.structural:
        errors = {precision: error.lift_to_share(_COARSE) for precision, error in errors.items()}
        for trial in before[:1]:
            errors = {precision: error.widen(trial.reference[precision]) for precision, error in errors.items()}
    if loaded.arithmetic.eighth:
        errors = {precision: error.lift_to_share(_EIGHTH) for precision, error in errors.items()}
    about = kind.about + (_UNLIKE_FRESH if loaded.weights_number >= MOVED_WEIGHTS and loaded.weight_bytes else "")
    return Expected(answers, loaded.task.precision, errors, finite, kind, blurred, about)


def _order_factor(layout: Layout) -> float:
    """How many times the rounding of a careful sum a plain sum may have: 1 unless a result needs very many inputs.

    A program adds up some hundred terms, then all programs add to one result, in turn: an error like the square root of their number.
    The reference's own order (pairwise) tells nothing about that.
    """
    results, terms = (_count_largest(specs) for specs in (layout.outputs, layout.inputs))
    return max(1.0, 0.5 * math.sqrt(terms / max(results, 1) / _TERMS))


def _count_largest(specs: Sequence[TensorSpec]) -> int:
    """Elements of the largest floating tensor."""
    return max((math.prod(spec.shape) for spec in specs if getattr(torch, spec.dtype).is_floating_point), default=0)


def require_unchanged(loaded: LoadedTask, tensors: list[torch.Tensor]) -> None:
    """Raises RunnerFault(cheating) when forward changed an input that the reference leaves alone."""
    changed = loaded.find_changed(tensors)
    if changed is not None:
        raise RunnerFault(Status.CHEATING, f"forward changed its {loaded.input_names[changed]}; the reference does not")


def require_undisturbed(trial: Trial, expected: Expected, got: list[torch.Tensor]) -> None:
    """Raises RunnerFault(inaccurate) when forward changed elements of an input that the reference writes to in other places only."""
    found = expected.answers.find_disturbed(got)
    if found is not None:
        where = "" if trial.hidden else f" at index {list(found[1])}"
        raise RunnerFault(Status.INACCURATE, f"forward changed output {found[0]}{where}, where the reference leaves it as it was")


def reference_errors(loaded: LoadedTask, answers: Answers) -> dict[PrecisionClass, ErrorStats]:
    """The reference's own error in every class that is looked at."""
    return answers.measure_reference(loaded.arithmetic.classes).by_class


def require_no_race(races: Iterable[object]) -> None:
    """Raises RunnerFault(racy) with the first of the races that a process reports."""
    if found := {str(race) for race in races}:
        raise RunnerFault(Status.RACY, "two programs touch one address without waiting for each other: " + min(found))


def require_settled(runner: RunnerHandle, got: list[torch.Tensor]) -> None:
    """Raises RunnerFault(cheating) when the outputs change after the call was answered."""
    time.sleep(_LATE_WRITE_SECONDS)
    if not same_bits(got, runner.results):
        raise RunnerFault(Status.CHEATING, "the outputs changed after forward had returned")


def repeat_bitwise(log: TrialLog, runner: RunnerHandle, got: list[torch.Tensor], calls: int, timeout: float) -> int:
    """How many of `calls` further launches on the inputs of the last call give other bits."""
    differing = 0
    for _ in range(calls):
        if log.inputs:
            log.loaded.place(log.inputs)
        runner.poison()
        torch.cuda.synchronize()
        run_and_deliver(runner, 0, timeout)
        differing += not same_bits(got, runner.results)
    return differing
