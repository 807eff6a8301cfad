"""What candidate code raised, as a status and a message."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from tritonsmith.evaluator.errors import StatusFault
from tritonsmith.evaluator.schema import Status


class CandidateFault(StatusFault):
    """The candidate breaks its contract."""


_COMPILE_ERRORS = {"CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure", "PTXASError", "SyntaxError"}
"""Names of exceptions by which Triton refuses a kernel."""
_LAUNCH_PATTERNS = ("out of resource", "too many resources", "cooperative", "invalid configuration", "CUDA]: invalid argument")
"""Parts of messages by which Triton and CUDA refuse a launch."""
_LONGEST_TEXT = 3500
"""Characters of an exception's text in a report."""


def _list_type_names(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    while cause is not None:
        yield from (kind.__name__ for kind in type(cause).__mro__)
        cause = cause.__cause__ or cause.__context__


def classify(error: BaseException, source: str) -> dict[str, Any]:
    """Status and message for an exception of candidate code; the line is that of the innermost frame in the candidate's file."""
    names = set(_list_type_names(error))
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
    text = _append_reason(error, text)
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    name = type(error).__name__
    with contextlib.suppress(ValueError):
        text = text[: text.index("\n\nThe above exception")]
    return {"status": status.value, "message": f"{where}{name}: {keep_ends(text, _LONGEST_TEXT, _LONGEST_TEXT // 2)}"}


def _append_reason(error: BaseException, text: str) -> str:
    """An error's text with the reason that stands in its causes.

    Triton puts the reason of an error in a helper there; the text of the call in the kernel ends with a caret.
    """
    cause = error.__cause__
    while cause is not None and text.rstrip().endswith("^"):
        text, cause = f"{text.rstrip()}\n{getattr(cause, 'error_message', None) or cause}", cause.__cause__
    return text


def keep_ends(text: str, longest: int, end: int) -> str:
    """A text of at most `longest` characters; of a longer one the first and last `end` characters.

    Compilers print whole programs; what matters stands at the start and at the end.
    """
    return text if len(text) <= longest else f"{text[:end]}\n...\n{text[-end:]}"
