"""The processes of one run: finding, pausing, resuming and killing all of them, also those that left their group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

_PAUSE_ROUNDS = 20
"""Searches for processes that start others while they are being stopped."""
_REAP_SECONDS = 2.0
"""Longest wait for orphans that were killed."""
_REAP_POLL_SECONDS = 0.01
"""Time between two looks at an orphan."""


def threads_of(pid: int) -> list[int]:
    """Numbers of a process's threads; none when it is gone."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def _children_of(pid: int) -> list[int]:
    children: list[int] = []
    for thread in threads_of(pid):  # twice for every timed call of a baseline, hence no Path
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
            children += [int(word) for word in file.read().split()]
    return children


def _descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    pending = _children_of(pid)
    while pending:
        child = pending.pop()
        if child not in found:
            found.append(child)
            pending += _children_of(child)
    return found


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class ProcessFamily:
    """The process that was started and its descendants.

    Args:
        first: number of the process that was started.
        has_keeper: whether that process is the sandbox's keeper, which stays outside the run.
    """

    def __init__(self, first: int, *, has_keeper: bool) -> None:
        self._first = first
        self._has_keeper = has_keeper
        self._paused: list[int] = []
        self.ended = False
        """Set when the end begins; the numbers may belong to other processes soon."""

    def members(self) -> list[int]:
        """Every process of the run but the keeper; without a keeper only the one that was started."""
        if self.ended:
            return []
        return _descendants_of(self._first) if self._has_keeper else [self._first]

    def pause(self) -> None:
        """Stop every process of the run but the keeper. Those that start meanwhile too, as far as they can be followed."""
        self._paused = []
        for _ in range(_PAUSE_ROUNDS):
            fresh = [pid for pid in self.members() if pid not in self._paused]
            if not fresh:
                return
            self._paused += fresh
            _signal_all(fresh, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the processes that `pause` stopped. Uses the remembered list; a new search can take a millisecond."""
        _signal_all(self._paused, signal.SIGCONT)
        self._paused = []

    def kill(self, *, first_lives: bool) -> set[int]:
        """Kill the process that was started, its group and every descendant that left the group.

        Args:
            first_lives: whether that process lives; where it does not, its number is followed no more.
        Returns:
            Descendants, which may come back as orphans and are then to be reaped.
        """
        # Collected before the kill: an orphan's link to its parent is gone afterwards.
        killed = {self._first, *_descendants_of(self._first)} if first_lives else set[int]()
        with contextlib.suppress(OSError):
            os.killpg(self._first, signal.SIGKILL)
        _signal_all(killed, signal.SIGKILL)
        return killed - {self._first}


def reap(orphans: Iterable[int]) -> None:
    """Wait for killed orphans that came back to this process as their subreaper; other children are left alone."""
    deadline = time.monotonic() + _REAP_SECONDS
    for pid in orphans:
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    time.sleep(_REAP_POLL_SECONDS)
                    continue
            break
