"""One folder per process that asks for verdicts, for everything temporary; it goes with that process, also after a kill.

A lock on the folder lasts as long as the process. A janitor waits for the end of the process and removes the folder. Where the janitor was
killed too, the next process that needs a folder removes those whose lock is free. Processes that take the life line
(`processes/lifeline.py`) end together with their caller. Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_PREFIX = "tritonsmith-run-"
"""Begins the name of each folder, by which abandoned ones are found."""
_UNLOCKED_PREFIX = ".tritonsmith-"
"""Begins the name of a folder that is not locked yet."""
_JANITOR_SECONDS = 20
"""Longest time that the janitor tries to remove a folder, and that its end is waited for."""
# Runs as long as the process whose end it waits for: so it loads as little as it can until then.
_JANITOR = f"""
import os, select, sys
select.select([int(sys.argv[1])], [], [])
import shutil, time
def open_and_retry(action, path, error):
    try:
        if path != sys.argv[2]:  # the folder that holds ours is everybody's
            os.chmod(os.path.dirname(path), 0o700)
        if not os.path.islink(path):
            os.chmod(path, 0o700)
        action(path)
    except Exception:
        pass
for _ in range({_JANITOR_SECONDS} * 10):
    shutil.rmtree(sys.argv[2], onerror=open_and_retry)
    if not os.path.lexists(sys.argv[2]):
        break
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class _OpenFolder:
    """What one process keeps open: the locked folder, both ends of the life line, and the janitor."""

    owner: int
    folder: Path
    lock: int
    life: int
    hold: int
    janitor: subprocess.Popen[bytes]

    def close(self) -> None:
        """Remove the folder and let the janitor go; the work of a process that ends in order."""
        if os.getpid() != self.owner:  # a forked copy: the folder is its parent's
            return
        remove_tree(self.folder)
        os.close(self.hold)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.janitor.wait(_JANITOR_SECONDS)
        for descriptor in (self.life, self.lock):
            os.close(descriptor)


_open_folders: list[_OpenFolder] = []
"""That of this process, and nothing before the first call."""
_opening = threading.Lock()


def _open_once() -> _OpenFolder:
    with _opening:
        if not _open_folders or _open_folders[0].owner != os.getpid():
            sweep()
            _open_folders[:] = [_open()]
            atexit.register(_open_folders[0].close)
        return _open_folders[0]


def _open() -> _OpenFolder:
    made = tempfile.mkdtemp(prefix=_UNLOCKED_PREFIX)
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.chmod(made, 0o711)  # candidates run as another user and have their files below it
    folder = Path(made).with_name(_PREFIX + Path(made).name.removeprefix(_UNLOCKED_PREFIX))
    Path(made).rename(folder)  # it has its name, by which others look for abandoned ones, only after it was locked
    life, hold = os.pipe()
    janitor = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _JANITOR, str(life), str(folder)], pass_fds=[life], start_new_session=True, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return _OpenFolder(os.getpid(), folder, lock, life, hold, janitor)


def run_folder() -> Path:
    """The folder for everything temporary of this process; made at the first call."""
    return _open_once().folder


def life_line() -> int:
    """A descriptor that reads as closed once this process has ended, to be passed on to children."""
    return _open_once().life


def sweep() -> None:
    """Remove the folders that killed processes of this user left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder)
            finally:
                os.close(lock)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, also folders that were closed to their owner; the rest stays."""

    def open_and_retry(action: Any, path: str, _error: tuple[type[BaseException], BaseException, TracebackType]) -> None:
        with contextlib.suppress(OSError):
            if path != str(folder):  # the folder that holds ours is everybody's: its mode stays as it is
                os.chmod(os.path.dirname(path), 0o700)
            if not os.path.islink(path):  # chmod would follow it out of the folder
                os.chmod(path, 0o700)
            if action in (os.open, os.scandir, os.lstat):
                shutil.rmtree(path, ignore_errors=True)
            else:
                action(path)

    shutil.rmtree(str(folder), onerror=open_and_retry)
