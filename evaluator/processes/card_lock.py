"""One card, several oracles: a lock per card that its holder's death releases, and that goes round among those who wait.

Who loads, compiles or checks on a card shares it with others that do so. Who measures has it alone. Two files stand for a card. Who wants
it takes the first (the queue) and keeps it until it has the second (the card). So whoever has just measured queues behind the one that
waits, and nobody begins to share a card that somebody waits to have alone. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tritonsmith.evaluator.errors import InfrastructureError

_LOOK_SECONDS = 0.02
"""Between two tries; a blocking call could not be ended when the caller closes."""
_EVERYBODY = 0o666


_LOCKS = Path("/tmp/tritonsmith-cards")  # noqa: S108 - a name that all processes of the machine know; TMPDIR is each process's own


def lock_folder() -> Path:
    """Where the locks of this machine's cards and processors lie, for all users and whatever their folder for temporary files is."""
    with contextlib.suppress(FileExistsError):
        _LOCKS.mkdir()
        _LOCKS.chmod(0o1777)  # as the folder for temporary files itself: everybody's, and nobody removes what another made
    return _LOCKS


class CardLock:
    """The right to use one card of this machine, alone or beside others.

    Args:
        card: what tells the card from others, such as its UUID.
        folder: where the lock's files lie; that of the machine when None.
    """

    def __init__(self, card: str, folder: Path | None = None) -> None:
        self._files = (folder or lock_folder()) / re.sub(r"[^\w.-]", "_", card)
        self._ended = threading.Event()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Have the card alone until the block ends; waits while others use it. Raises InfrastructureError once it is closed."""
        card = self._take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(card)  # the lock goes with it, as when the process dies

    @contextlib.contextmanager
    def share(self) -> Iterator[None]:
        """Use the card beside others until the block ends; waits while one has it alone. Raises InfrastructureError once it is closed."""
        card = self._take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.close(card)

    def _take(self, kind: int) -> int:
        """The descriptor that holds the lock; the place in the queue is given up once it is there."""
        queue = self._open(".queue")
        card = -1
        try:
            self._wait_for(queue, fcntl.LOCK_EX)
            card = self._open(".card")
            self._wait_for(card, kind)
        except BaseException:
            if card >= 0:
                os.close(card)
            raise
        finally:
            os.close(queue)
        return card

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._ended.set()

    def _wait_for(self, descriptor: int, kind: int) -> None:
        while not self._ended.is_set():
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOOK_SECONDS)
            except OSError as error:
                raise InfrastructureError(f"{self._files}: the card's lock cannot be taken ({error.strerror})") from error
            else:
                return
        raise InfrastructureError("the evaluator was closed while it waited for the card")

    def _open(self, suffix: str) -> int:
        path = self._files.with_name(self._files.name + suffix)
        try:
            try:
                return os.open(path, os.O_RDWR)  # where another user made it, asking to make it would be refused
            except FileNotFoundError:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _EVERYBODY)
                with contextlib.suppress(OSError):
                    os.fchmod(descriptor, _EVERYBODY)  # whatever the umask is
                return descriptor
        except OSError as error:
            raise InfrastructureError(f"{path}: the card's lock cannot be opened ({error.strerror})") from error


class Pausing(Protocol):
    """Processes that can stand still."""

    def pause(self) -> None:
        """Let them stand still."""

    def resume(self) -> None:
        """Let them go on."""


class CardUse:
    """How one process uses a card: beside others while it answers a question, and alone while it measures. For one thread.

    Args:
        lock: the card's; None where there is no card, and nothing is waited for.
        waiting: processes that start ahead of their use. They stand still while this one has no part of the card: another one may
            measure then, and a process that starts uses the card too. None: they go on.
    """

    def __init__(self, lock: CardLock | None = None, waiting: Pausing | None = None) -> None:
        self._lock = lock
        self._waiting = waiting
        self._held = contextlib.ExitStack()
        self._is_alone = False
        self._is_shared = False
        self.waited = 0.0
        """Seconds that it has waited for others."""

    @contextlib.contextmanager
    def share(self) -> Iterator[None]:
        """Use the card beside others until the block ends. Raises InfrastructureError."""
        if self._lock is None or self._is_shared or self._is_alone:
            yield
            return
        self._is_shared = True
        try:
            self._enter(self._lock.share())
            yield
        finally:
            self._is_shared = False
            self._release()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Have the card alone until the block ends, then share it again where it was shared. Raises InfrastructureError."""
        if self._lock is None or self._is_alone:
            yield
            return
        self._release()  # first: two that share a card and both want it alone would wait for each other
        self._is_alone = True
        try:
            self._enter(self._lock.hold())
            yield
        finally:
            self._is_alone = False
            self._release()
            if self._is_shared:
                self._enter(self._lock.share())

    def _enter(self, lock: contextlib.AbstractContextManager[None]) -> None:
        started = time.monotonic()
        self._held.enter_context(lock)
        self.waited += time.monotonic() - started
        if self._waiting is not None:
            self._waiting.resume()

    def _release(self) -> None:
        if self._waiting is not None:
            self._waiting.pause()
        self._held.close()
