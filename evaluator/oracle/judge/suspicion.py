"""What cannot be true of a measurement on a card, and what is hard to believe. Imports torch.

Functions answer with a sentence about what is wrong; it is empty when nothing is.
"""

from __future__ import annotations

from tritonsmith.evaluator.channel.doorbell import AS_CALLED
from tritonsmith.evaluator.channel.slots import spec_bytes
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import equal_bits
from tritonsmith.evaluator.oracle.checks.memory import OraclePlace
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing.ceilings import measure_ceilings
from tritonsmith.evaluator.oracle.timing.paired import CLOCK_MS, clocks_apart
from tritonsmith.evaluator.oracle.timing.session import TimingSession
from tritonsmith.evaluator.reference.reads import ReadWatch
from tritonsmith.evaluator.reference.updates import run_forward
from tritonsmith.evaluator.schema import LaunchFacts, Status, Timing

_OVERLAPPING = 2.0
"""Kernels on several streams take longer one after the other than the call that overlaps them: by up to this factor."""
_DELAY_MS = 0.02
"""Milliseconds by which a busy host may delay each launch (0.15 ms were seen for 40 launches). The slower clock counts in any case."""
_INCREDIBLE = 10.0
"""Times the strongest baseline: possible, but to be audited before it is believed."""
_PROBED_PARTS = 16
"""Parts of each input that are changed one after the other to see whether the outputs depend on them."""

Clocks = tuple[float, float]
"""(oracle's, card's) milliseconds of the candidate's forward."""


class Floor:
    """The floor of physics: milliseconds that the card needs at the least to move a task's bytes.

    Args:
        session: the task on the card.
    """

    def __init__(self, session: LoadedTask) -> None:
        self.flops = 0.0
        """Floating-point operations of the reference."""
        self._session = session
        self._ms: float | None = None
        self._read: float | None = None

    @property
    def ms(self) -> float:
        """The floor as far as it is known now."""
        if self._ms is None:
            self._ms = self._compute(1.0)
        return self._ms

    @property
    def operations_ms(self) -> float:
        """What a kernel takes at the least that does the reference's operations; another algorithm may do fewer."""
        return measure_ceilings().operations_floor_ms(self.flops, self._session.task.precision)

    def _compute(self, needed: float) -> float:
        """The floor of a task that needs this share of what its reference reads."""
        session = self._session
        if self._read is None:
            self._read = self._count_read()
        outputs = sum(map(spec_bytes, session.layout.outputs))
        return measure_ceilings().bytes_floor_ms(needed * self._read, outputs, session.hardware.l2_bytes)

    def _count_read(self) -> float:
        """Bytes of inputs and weights that the reference reads: of a table the rows that are looked up, of a slice what it holds.

        All of them where the forward cannot be watched.
        """
        session = self._session
        given = [tensor.clone() for tensor in session.draw("own")]
        watch = ReadWatch([*given, *session.model.parameters(), *session.model.buffers()])
        try:
            with watch:
                run_forward(session.model, session.fill_arguments(given), session.updates, session.written)
        except NotImplementedError:  # operators of higher order refuse to be watched
            return float(sum(map(spec_bytes, session.layout.inputs)) + session.weight_bytes)
        return watch.count(unseen=False)

    def require_possible(self, timed: TimingSession, facts: LaunchFacts, *, strict: bool) -> None:
        """Raises RunnerFault(cheating) where a session's times cannot be; in `strict` also where two views of it disagree.

        Work on a stream that nobody waits for is `racy`: an honest author may forget to join it.
        """
        paired = timed.paired[timed.strongest]
        self.require_above(paired.candidate_ms)
        if problem := find_unlaunched(timed.clocks[1], paired.baseline_ms, facts, measure_ceilings().launch_floor_ms):
            raise RunnerFault(Status.RACY, problem)
        form = timed.forms.chosen
        if strict and (problem := find_contradiction(timed.clocks, facts, slower=timed.far_slower, form=form)):
            raise RunnerFault(Status.CHEATING, problem)

    def require_above(self, ms: float) -> None:
        """Raises RunnerFault(cheating) below the floor; a task that needs only part of its inputs has a lower one."""
        if ms >= self.ms:
            return
        self._ms = self._compute(self._needed_share())
        if ms < self._ms:
            raise RunnerFault(
                Status.CHEATING,
                f"{ms:.4g} ms is below what this card needs to read the inputs ({self._ms:.4g} ms)",
            )

    def _needed_share(self) -> float:
        """Share of the inputs that the outputs depend on, by changing one sixteenth of each after the other."""
        session, precision = self._session, self._session.task.precision
        roomy = session.plan.oracle is OraclePlace.WHOLE  # else in the task's own precision, which shows a part that counts as well
        compute = session.oracle if roomy else lambda inputs: session.reference_outputs(inputs, precision)
        count = len(session.layout.outputs)  # an input that forward writes to depends on itself, though nobody needs to read it
        tensors = [tensor.contiguous() for tensor in session.draw("own")]
        before = compute(tensors)[:count]
        needed = total = 0
        for tensor in tensors:
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            for part in tensor.view(-1).chunk(_PROBED_PARTS):
                kept = part.clone()
                part.neg_().add_(0.5)
                needed += not all(map(equal_bits, before, compute(tensors)[:count]))
                part.copy_(kept)
                total += 1
        return needed / total if total else 1.0


def find_unlaunched(card_ms: float, baseline_ms: float, facts: LaunchFacts, floor_ms: float) -> str:
    """Whether what forward launches cannot be between the card's events, as when another stream has it.

    Microseconds only: work that takes longer is seen by the oracle's clock. A reference that launches nothing has no such floor.
    """
    if not (facts.device_ms or facts.triton_launches) or card_ms >= floor_ms or baseline_ms < floor_ms:
        return ""
    return (
        f"the card's events around forward are {card_ms * 1e3:.3g} us apart, less than one launch takes ({floor_ms * 1e3:.3g} us), "
        "and it launches something: its work is not where it is timed; queue it on the current stream"
    )


def find_clock_conflict(clocks: Clocks, launches: int = 0) -> str:
    """How far the two clocks disagree, beyond what a disturbed host makes for.

    `launches` are those that a timed call leaves to the host one by one: a busy host delays each.
    """
    wall, card = clocks
    if not clocks_apart(wall, card) or abs(wall - card) <= CLOCK_MS + _DELAY_MS * launches:
        return ""
    return f"the two clocks disagree: {wall:.4g} ms by the oracle's, {card:.4g} ms by the card's events in the candidate's process"


def find_other_forward(facts: LaunchFacts, clocks: Clocks) -> str:
    """Whether what was profiled cannot be what was timed, and so does not show whose work that is."""
    profiled, card = facts.device_ms or 0.0, clocks[1]
    if profiled <= _OVERLAPPING * card + CLOCK_MS:
        return ""
    return f"the kernels of the profiled forward take {profiled:.4g} ms, the timed calls {card:.4g} ms: another forward was profiled"


def find_contradiction(clocks: Clocks, facts: LaunchFacts, *, slower: bool = False, form: str = AS_CALLED) -> str:
    """What two ways to look at the same forward disagree about.

    `slower`: by its own word the candidate is far slower, so a clock that lies gains it nothing; the oracle's counts.
    """
    launches = facts.launches_per_forward if form == AS_CALLED else 0  # one replay is one launch
    return ("" if slower else find_clock_conflict(clocks, launches)) or find_other_forward(facts, clocks)


def find_suspicion(timing: Timing, clocks: Clocks, facts: LaunchFacts, operations_ms: float, *, slower: bool = False) -> str:
    """Why a verdict is to be audited.

    Args:
        timing: of the verdict.
        clocks: the candidate's milliseconds by both clocks.
        facts: its launches.
        operations_ms: what the reference's operations take at the least.
        slower: as in `find_contradiction`.
    """
    if timing.median_ms < operations_ms:
        return f"{timing.median_ms:.4g} ms is below what the reference's operations take on this card ({operations_ms:.4g} ms)"
    if timing.score > _INCREDIBLE:
        return f"{timing.score:.3g}x the strongest baseline is hard to believe"
    return find_contradiction(clocks, facts, slower=slower, form=timing.form)
