"""What a wrong result says of a candidate whose checked calls were right: the same call is made again, both ways. Imports torch.

A call that is timed or profiled and gives a wrong result may be the work of another code path. It may also be a race, or inputs that the
checks did not have. So the same inputs are given again some times in that way, and as often in a plain call. Only where one way is always
wrong and the other always right does the candidate tell them apart, and no honest kernel does. Where both are always wrong, calls on new
inputs follow: a candidate that was right for a while, and is always wrong from some call on, counts its calls.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tritonsmith.evaluator.oracle.checks.trials import Expected, describe_error
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.schema import PrecisionClass, Status

TIMES = 6
"""Calls of each kind: a race that shows in half of them has one chance in 4,096 to look like intent."""

Call = Callable[[], list[torch.Tensor]]
"""Gives the results of one call on the inputs."""


def explain_wrong(
    what: str, expected: Expected, got: list[torch.Tensor], asked: PrecisionClass, same: Call, plain: Call,
    fresh: Callable[[], bool] | None = None,
) -> RunnerFault:  # fmt: skip
    """Why a call was wrong: `inaccurate`, `racy` or `cheating`.

    Args:
        what: the call in words, such as "a timed call (number 7)".
        expected: what is right on its inputs.
        got: its wrong results.
        asked: the class that they had to reach.
        same: makes the call again in the same way.
        plain: makes it as the checked calls are made.
        fresh: whether a plain call on new inputs of the same kind is right; None where fewer than TIMES calls on such were right before.
    Raises:
        RunnerFault: a repeated call fails.
    """
    trial = expected.trial(got)
    error = describe_error([trial], asked, expected.answers.name_result)
    if trial.is_near(asked):  # other inputs than those of the checked calls, and an accuracy that just does for these
        return RunnerFault(Status.INACCURATE, f"{what} is not accurate enough, though the checked calls are: {error}")
    wrong, plain_wrong = (sum(not expected.trial(call()).meets(asked) for _ in range(TIMES)) for call in (same, plain))
    seen = f"the same inputs again: {wrong} of {TIMES} such calls are wrong, {plain_wrong} of {TIMES} plain ones"
    if wrong == TIMES and not plain_wrong:
        return RunnerFault(Status.CHEATING, f"{what} gave a wrong result, plain calls do not: forward tells them apart ({seen}): {error}")
    if wrong == plain_wrong == TIMES:
        if fresh is not None and not any(fresh() for _ in range(TIMES)):
            late = f"earlier calls were right, and {TIMES} of {TIMES} on new inputs are wrong too"
            return RunnerFault(Status.CHEATING, f"{what} gave a wrong result: forward changes after some calls ({late}): {error}")
        return RunnerFault(Status.INACCURATE, f"{what} gave a wrong result, the checked calls on other inputs did not ({seen}): {error}")
    return RunnerFault(Status.RACY, f"{what} gave a wrong result, and not every time ({seen}): {error}")
