"""Checked calls on inputs of which only a part is new since the call before, at the same addresses. Imports torch.

Fresh inputs differ everywhere, so what a candidate keeps of an earlier call is never taken for them: a cache that looks at a window or a
sample of its input passes, and fails a caller who changes one row. So one line along the last axis of each input is exchanged, and then a
sixteenth of a line half of the input away: what looks at less than a half misses one of them.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import torch

from tritonsmith.evaluator.channel.strides import distinct
from tritonsmith.evaluator.oracle.checks.correctness import worst_trial
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import FreshQuestion, Question, TrialLog, ask, describe_error
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.schema import Status

_PART = 16
"""The second part is a line divided by this; so is the first one of a tensor that has few lines."""
_FEW = 4
"""Lines."""
_TRIES = 8
"""Places that are tried until one has other values."""
_KEPT = (
    "right on inputs that are new as a whole; where only a part of them is new, {} is as in the call before: something is kept from call "
    "to call, and neither an input's address nor a part of it says that it still holds; compute it in each call"
)


def checked_calls(log: TrialLog, runner: RunnerHandle, kind: str, mode: int, timeout: float) -> list[torch.Tensor]:
    """`ask_with_neighbours` on fresh inputs of a kind."""
    return ask_with_neighbours(log, runner, FreshQuestion(log.loaded, kind, log.loaded.draw(kind)), mode, timeout)


def ask_with_neighbours(log: TrialLog, runner: RunnerHandle, question: Question, mode: int, timeout: float) -> list[torch.Tensor]:
    """One call on a set of inputs as `ask` makes it, then two of which each has a part of each input new.

    Returns the outputs of the first one. Raises RunnerFault.
    """
    got = ask(log, runner, question, mode, timeout)
    log.require_accurate()  # what is wrong everywhere has words of its own
    before, place = got, secrets.randbelow(1 << 30) / (1 << 30)
    with contextlib.ExitStack() as changes:
        for first, whole in ((place, True), ((place + 0.5) % 1.0, False)):
            changes.enter_context(_exchange(log.loaded, question.tensors, first, whole=whole))
            judged = len(log.trials)
            now = ask(log, runner, FreshQuestion(log.loaded, question.kind, question.tensors), mode, timeout)
            _require_new(log, judged, before, now)
            before = now
    return got


def _require_new(log: TrialLog, judged: int, before: list[torch.Tensor], now: list[torch.Tensor]) -> None:
    """Raises RunnerFault(inaccurate) where a result is far off, in words of its own where the wrong place is as it was.

    How well a kernel rounds is judged by the other trials: a kernel at the edge of its accuracy must not fall here.
    """
    asked, found = log.loaded.task.precision, log.trials[judged:]
    del log.trials[judged:]
    wrong = [trial for trial in found if not trial.meets(asked) and not trial.is_near(asked)]
    if not wrong:
        return
    worst = worst_trial(wrong, asked).candidate
    number, index = worst.worst_tensor, worst.worst_index
    if bool((before[number][index] == now[number][index]).all()):
        raise RunnerFault(Status.INACCURATE, _KEPT.format(f"{log.loaded.call.name_result(number)} at index {list(index)}"))
    raise RunnerFault(Status.INACCURATE, describe_error(wrong, asked, log.loaded.call.name_result))


@contextlib.contextmanager
def _exchange(loaded: LoadedTask, tensors: list[torch.Tensor], place: float, *, whole: bool) -> Iterator[None]:
    """Meanwhile a part of each tensor has values of another part of it; in place, since a card may have no room for more.

    Args:
        loaded: the task, which says which whole numbers may stand anywhere.
        tensors: inputs.
        place: where, as a share of each tensor.
        whole: whether the part is a line.
    """
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        for number, tensor in enumerate(tensors):
            if not tensor.ndim or not (tensor.is_floating_point() or loaded.domains.are_free(number)):
                continue
            once = distinct(tensor)
            length = once.shape[-1] if whole and once.numel() >= _FEW * once.shape[-1] else max(1, once.shape[-1] // _PART)
            target = _cut(once, place, length)
            sources = (_cut(once, secrets.randbelow(1 << 30) / (1 << 30), length) for _ in range(_TRIES if once.numel() else 0))
            other = next((source for source in sources if not torch.equal(source, target)), None)
            if other is not None:
                kept.append((target, target.clone()))
                target.copy_(other.clone())
        yield
    finally:
        for target, values in reversed(kept):
            target.copy_(values)


def _cut(tensor: torch.Tensor, place: float, length: int) -> torch.Tensor:
    """So many elements of the line at a place, as a view."""
    line, first = divmod(int(place * tensor.numel()), max(1, tensor.shape[-1]))
    found = tensor
    for axis, extent in enumerate(tensor.shape[:-1]):
        below = 1
        for inner in tensor.shape[axis + 1 : -1]:
            below *= inner
        found = found[line // below % extent]
    return found.narrow(0, min(first, tensor.shape[-1] - length), length)
