"""A process that answers questions on lines of JSON, and is ended where it does not."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from typing import Any


class ChildDied(Exception):
    """The process ended, or gave no answer in time."""


class Child:
    """A Python module as a process: `{...}` in, `{...}` out, line by line; other lines of its output are passed over."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name=module).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer. Raises ChildDied."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            while True:
                line = self._lines.get(timeout=seconds)
                if not line:
                    raise ChildDied(f"its process ended with {self._process.wait(5)}")
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        except queue.Empty:
            raise ChildDied(f"no answer within {seconds:g} s") from None
        except OSError as error:
            raise ChildDied(f"its process ended ({error.strerror})") from None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
