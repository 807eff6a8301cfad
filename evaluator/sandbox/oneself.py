"""What a process does to itself: confine itself to run candidate code, or guard itself against such children."""

from __future__ import annotations

import contextlib
import resource
import signal

from tritonsmith.evaluator.sandbox.layers import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl


def _try_prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError):
        prctl(option, value)


def confine_self(*, file_bytes: int = 1 << 30) -> None:
    """Let this process die with its parent, write no core files and no file above `file_bytes`.

    Called first thing in a process that will run candidate code.
    """
    _try_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    bound = file_bytes if hard == resource.RLIM_INFINITY else min(file_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))


def guard_self() -> None:
    """Close this process's memory and environment to children of the same user, and let orphans come back to it.

    Called in trusted processes.
    """
    _try_prctl(PR_SET_DUMPABLE, 0)
    _try_prctl(PR_SET_CHILD_SUBREAPER, 1)
