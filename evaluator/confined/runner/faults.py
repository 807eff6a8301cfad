"""What candidate code raised, as a status and a message."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from tritonsmith.evaluator.schema import Status


class CandidateFault(Exception):
    """The candidate breaks its contract; carries the status of the verdict."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


_COMPILE_ERRORS = {"CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure", "PTXASError", "SyntaxError"}


_LAUNCH_PATTERNS = ("out of resource", "too many resources", "cooperative", "invalid configuration", "CUDA]: invalid argument")


def _mro_names(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    while cause is not None:
        yield from (kind.__name__ for kind in type(cause).__mro__)
        cause = cause.__cause__ or cause.__context__


def classify(error: BaseException, source: str) -> dict[str, Any]:
    """Status and message for whatever candidate code raised; the line is that of the innermost frame in the candidate's file."""
    names = set(_mro_names(error))
    text = str(error).strip() or type(error).__name__
    if isinstance(error, CandidateFault):
        return {"status": error.status.value, "message": text}
    status = Status.RUNTIME_ERROR
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    if isinstance(error, SystemExit):
        status, text = Status.CRASHED, "the candidate asked the process to exit"
    elif "DeadlockError" in names:
        status = Status.TIMEOUT
    elif "KernelFault" in names:
        status = Status.RUNTIME_ERROR
    elif "OutOfResources" in names or any(pattern in text for pattern in _LAUNCH_PATTERNS):
        status = Status.LAUNCH_ERROR
    elif names & _COMPILE_ERRORS or (frames and frames[-1].name == "<module>"):
        status = Status.COMPILE_ERROR
    text = _with_reason(error, text)
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    name = type(error).__name__
    with contextlib.suppress(ValueError):
        text = text[: text.index("\n\nThe above exception")]
    return {"status": status.value, "message": f"{where}{name}: {_keep_ends(text)}"}


def _with_reason(error: BaseException, text: str) -> str:
    """Triton hangs the reason of an error in a helper below the call in the kernel, whose own text ends with a caret."""
    cause = error.__cause__
    while cause is not None and text.rstrip().endswith("^"):
        text, cause = f"{text.rstrip()}\n{getattr(cause, 'error_message', None) or cause}", cause.__cause__
    return text


def _keep_ends(text: str, limit: int = 3500) -> str:
    """Compilers print the whole program: what matters stands at the start and at the end."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n...\n{text[-limit // 2 :]}"
