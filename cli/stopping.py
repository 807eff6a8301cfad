"""SIGINT and SIGTERM: the first one lets the runs of this process stop at a safe point, a second one stops at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tritonsmith.cli.options import err
from tritonsmith.graph.runs.active import active_runs
from tritonsmith.graph.storage.folder import MANIFEST

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopper:
    """What was asked for so far."""

    def __init__(self) -> None:
        self.signal: int = signal.SIGINT
        """The signal that ends the process, once there was one."""
        self._asked = False
        self._folders: list[Path] = []

    @property
    def code(self) -> int:
        """The exit code: 130 or 143."""
        return 128 + self.signal

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. Raises KeyboardInterrupt where there is nothing to wait for, or somebody does not want to wait."""
        self.signal = number
        runs = active_runs()
        self._folders += [run.folder for run in runs if run.folder not in self._folders]
        if self._asked or not runs:
            raise KeyboardInterrupt
        self._asked = True
        for run in runs:
            run.stop(signal.Signals(number).name)
        several = f" ({len(runs)} runs)" if len(runs) > 1 else ""
        notice = f"Stops at the next safe point{several}: what is asked or judged now is finished first. A second signal stops at once."
        if err.is_terminal:
            err.print(notice)  # above the live table, which would paint over anything else
        else:
            os.write(2, f"{notice}\n".encode())  # the signal may have come in the middle of a print()

    @property
    def resumable(self) -> list[Path]:
        """Folders of runs that were stopped and can go on."""
        return [folder for folder in self._folders if (folder / MANIFEST).is_file()]


@contextmanager
def handle_signals() -> Iterator[Stopper]:
    """Handle signals until the block ends; in another thread than the main one nothing is changed."""
    stopper = Stopper()
    if threading.current_thread() is not threading.main_thread():
        yield stopper
        return
    before: dict[int, Any] = {number: signal.signal(number, stopper) for number in _SIGNALS}
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
