"""Which kernel files words of a command line name."""

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.cli.options import err, read_kernel
from tritonsmith.evaluator.errors import KernelFileError

_PATTERN = re.compile(r"[*?\[]")
_CLASS = "ModelNew"
"""What each kernel file defines."""


def find_kernels(words: Sequence[str], task: str) -> dict[str, str]:
    """The texts of the kernel files that words name, by path: files, folders and patterns (`kernels/*.py`); each file once.

    Of a folder or a pattern only files with a ModelNew count, and never the task itself; a line tells how many were left out.
    Raises KernelFileError where a word names none.
    """
    found: dict[Path, tuple[str, str]] = {}
    for word in words:
        paths = _list_files(word)
        texts = {path: read_kernel(path) for path in ([word] if paths is None else paths)}
        kernels = texts if paths is None else {path: text for path, text in texts.items() if _is_kernel(path, text, task)}
        if not kernels:
            raise KernelFileError(f"{word}: no Python file there has a class {_CLASS}; name a file, a folder or a pattern with kernels.")
        if len(kernels) < len(texts):
            err.print(f"{word}: left out {', '.join(Path(path).name for path in texts if path not in kernels)} (no {_CLASS})")
        for path, text in kernels.items():
            found.setdefault(Path(path).resolve(), (path, text))
    return dict(found.values())


def _list_files(word: str) -> list[str] | None:
    """The Python files of a folder or pattern, sorted; None for a word that names one file."""
    if Path(word).is_dir():
        return sorted(str(path) for path in Path(word).glob("*.py") if not path.name.startswith("_"))
    if _PATTERN.search(word) and not Path(word).exists():
        return sorted(path for path in glob.glob(word, recursive=True) if path.endswith(".py"))
    return None


def _is_kernel(path: str, text: str, task: str) -> bool:
    return _CLASS in text and Path(path).resolve() != Path(task).resolve()
