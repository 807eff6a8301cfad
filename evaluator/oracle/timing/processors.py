"""Which processors of this host are quiet, and nobody else's: evaluators on one host keep out of each other's way. Standard library only.

A timed call is partly host work. Two evaluators that put their runners on one processor delay each other's launches, and so does any
other program there, or on the other thread of the same core.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from pathlib import Path

from tritonsmith.evaluator.processes.card_lock import lock_folder

_LEAST_SECONDS = 0.1
"""Between two looks at the kernel's counts, which move in steps of 10 ms."""
_QUIET = 0.15
"""A core that is busy for no larger share of the time is as good as an idle one."""
_IDLE_FIELDS = (3, 4)
"""Fields of a processor's line in `/proc/stat` that count idle time."""
_EVERYBODY = 0o666

Core = tuple[int, ...]
"""Processors that share one core."""


class HostLoad:
    """How busy each processor is between two looks.

    Args:
        stat: the kernel's counts of time.
        topology: the kernel's folders of processors.
    """

    def __init__(self, stat: Path = Path("/proc/stat"), topology: Path = Path("/sys/devices/system/cpu")) -> None:
        self._stat = stat
        self._topology = topology
        self._seen = self._read()
        self._when = time.monotonic()

    def rank(self, processors: set[int]) -> list[Core]:
        """The cores of these processors, quiet ones first and in random order; of each only the processors that are among them."""
        time.sleep(max(0.0, self._when + _LEAST_SECONDS - time.monotonic()))
        before, self._seen, self._when = self._seen, self._read(), time.monotonic()
        shares = {number: _busy_share(before.get(number), now) for number, now in self._seen.items()}
        cores = {self._siblings(number) for number in processors}
        ordered = sorted(cores)
        random.shuffle(ordered)
        ordered.sort(key=lambda core: max(_QUIET, *(shares.get(number, 0.0) for number in core)))
        return [tuple(number for number in core if number in processors) for core in ordered]

    def _read(self) -> dict[int, tuple[int, int]]:
        """Busy and whole time of each processor; empty where the kernel does not tell."""
        found = {}
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in self._stat.read_text().splitlines():
                name, *fields = line.split()
                if name.startswith("cpu") and name[3:].isdigit():
                    ticks = [int(field) for field in fields]
                    found[int(name[3:])] = (sum(ticks) - sum(ticks[place] for place in _IDLE_FIELDS), sum(ticks))
        return found

    def _siblings(self, number: int) -> Core:
        """All processors of one core; the processor alone where the kernel does not tell."""
        siblings = {number}
        with contextlib.suppress(OSError, ValueError):
            for part in (self._topology / f"cpu{number}" / "topology" / "thread_siblings_list").read_text().strip().split(","):
                first, _, last = part.partition("-")
                siblings |= set(range(int(first), int(last or first) + 1))
        return tuple(sorted(siblings))


def _busy_share(before: tuple[int, int] | None, now: tuple[int, int]) -> float:
    if before is None or now[1] <= before[1]:
        return 0.0
    return (now[0] - before[0]) / (now[1] - before[1])


class CoreLocks:
    """Cores that this evaluator's timed calls have for themselves among the evaluators of this host; they go with this process.

    Args:
        folder: where the locks lie; that of the machine when None.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: list[int] = []

    def choose(self, cores: list[Core], count: int) -> list[Core]:
        """The first of the cores that nobody has, to be kept until `release`; the first ones of all where too few are free."""
        self.release()
        free: list[Core] = []
        for core in cores:
            if len(free) < count and self._take(core):
                free.append(core)
        return [*free, *(core for core in cores if core not in free)][:count]

    def _take(self, core: Core) -> bool:
        """Whether a core could be had; also where locks cannot be made here."""
        try:
            path = (self._folder or lock_folder()) / f"core-{min(core)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _EVERYBODY) if not path.exists() else os.open(path, os.O_RDWR)
        except OSError:
            return True
        try:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, _EVERYBODY)  # whatever the umask is
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._held.append(descriptor)
        return True

    def release(self) -> None:
        """Let others have them."""
        while self._held:
            os.close(self._held.pop())
