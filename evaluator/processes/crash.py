"""How a task's file ended the process that ran it, in a sentence: what the process wrote last decides whose fault that is.

Python's fault handler writes the lines that ran when a process crashed. Standard library only.
"""

from __future__ import annotations

import re
import signal

from tritonsmith.evaluator.processes.steps import LAST_STEP

_OURS = "Traceback (most recent call last)"
"""In the log of a process that an exception ended: those of the task's own code have a sentence already, so the fault is ours."""
_STACK = "most recent call first"
"""In the log of one that crashed."""
_CURE = "run the file by itself, and change what ends it"


def describe_crash(path: str, code: int, log: str) -> str:
    """The user's sentence where a line of a task's file crashed a process; empty where nothing shows that.

    Args:
        path: the task's file.
        code: how the process ended: its exit code, or the negative number of a signal.
        log: what it wrote to stderr.
    """
    name = re.escape(path.encode("ascii", "backslashreplace").decode())
    frame = re.search(rf'^  File "{name}", line (\d+) in (.+)$', log, re.MULTILINE) if _STACK in log else None
    if frame is None:
        return ""
    what = "the file" if frame[2] == "<module>" else frame[2]
    return f"{path}, line {frame[1]}: {what} crashed the process that ran it ({_name_end(code)}); {_CURE}"


def describe_end(path: str, code: int, log: str) -> str:
    """As `describe_crash`, for a process that does nothing but run the task's file once it has noted a step: any end of it counts."""
    if _STACK in log or LAST_STEP not in log or _OURS in log:
        return describe_crash(path, code, log)
    if code == -signal.SIGKILL:
        return f"{path}: the process that ran the file was killed, as happens where memory runs out; use --size small or --set NAME=VALUE"
    return f"{path}: the process that ran the file ended in the middle of it ({_name_end(code)}); {_CURE}"


def _name_end(code: int) -> str:
    """`SIGSEGV` for -11, `exit code 3` for 3."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"
