"""Errors that reach a user, and the ones that stay inside.

    TritonsmithError
    ├── UsageError            one sentence that names the file, line or option and the way out; exit code 2
    │   ├── TaskError         the task file
    │   └── KernelFileError   the candidate's file
    ├── InfrastructureError   the machinery failed, not the candidate; never shown to an author as its fault
    │   ├── CardMemoryError   the card's memory ran out under the plan; a leaner one is tried
    │   └── BaselineError     a baseline failed by itself; it is left out where it does so again without a candidate
    └── RunError              a run cannot go on now, and can be resumed; exit code 1
        └── RunStopped        it was asked to stop

A StatusFault is none of these: the fault is a candidate's, and becomes the status of its verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritonsmith.evaluator.schema import Status


class TritonsmithError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(TritonsmithError):
    """Wrong usage or input; the message is one sentence for the user. The command line exits with 2."""


class TaskError(UsageError):
    """The task file cannot be used; the message names file, line where known, and the cure."""


class KernelFileError(UsageError):
    """The candidate's file cannot be read."""


class InfrastructureError(TritonsmithError):
    """The oracle, the card or the sandbox failed. A verdict is never made from this."""


class CardMemoryError(InfrastructureError):
    """The card's memory ran out under the memory plan, and not in the candidate."""


class BaselineError(InfrastructureError):
    """A baseline's own code failed in a timed call.

    Args:
        name: the baseline.
        message: what failed.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class RunError(TritonsmithError):
    """A run cannot go on now; the message says why and how to resume it. The command line exits with 1."""


class RunStopped(RunError):
    """A run has stopped at a safe point because it was asked to; the message says how to resume it."""


class StatusFault(Exception):
    """What a candidate did wrong, with the status that its verdict gets."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
