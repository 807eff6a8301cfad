"""One card, several commands: a lock per card that its holder's death releases, and that goes round among those who wait.

Two files stand for a card. Who wants it takes the first (the queue) and keeps it until it has the second (the card). So a command that
has just measured queues behind the one that waits, and two commands take turns. Standard library only.
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
    """The right to measure on one card of this machine.

    Args:
        card: what tells the card from others, such as its UUID.
        folder: where the lock's files lie; that of the machine when None.
    """

    def __init__(self, card: str, folder: Path | None = None) -> None:
        self._files = (folder or lock_folder()) / re.sub(r"[^\w.-]", "_", card)
        self._ended = threading.Event()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Have the card alone until the block ends; waits while another process has it. Raises InfrastructureError once it is closed."""
        queue = self._open(".queue")
        card = -1
        try:
            self._wait_for(queue)
            card = self._open(".card")
            self._wait_for(card)
            os.close(queue)
            queue = -1
            yield
        finally:
            for descriptor in (queue, card):
                if descriptor >= 0:
                    os.close(descriptor)  # the lock goes with it, as when the process dies

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._ended.set()

    def _wait_for(self, descriptor: int) -> None:
        while not self._ended.is_set():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
