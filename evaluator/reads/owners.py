"""Whose code runs: the task's own, an installed package's, or the standard library's."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

_PACKAGES = ("site-packages", "dist-packages")
"""Folders with installed packages, by name: an environment may lie beside the task, or on PYTHONPATH."""
_EVALUATOR = str(Path(__file__).resolve().parents[1])
_OWN = str(Path(__file__).resolve().parent)
"""This folder, whose wrappers stand between a caller and what it calls."""


_IMPORTLIB = os.path.dirname(importlib.__file__) + os.sep


class CodeKind(Enum):
    """Whose file it is."""

    LIBRARY = "standard library"
    PACKAGE = "installed package"
    EVALUATOR = "what calls the task"
    LOCAL = "anything else"


@dataclass(frozen=True)
class Owner:
    """Who asked for something: whether the task's code did, and whether a package was between."""

    local: bool = False
    """A file of the task is under way."""
    through_package: bool = False
    """Its nearest caller besides the standard library is an installed package."""
    importing: bool = False
    """An installed package is being imported: its version stands for what it reads then."""


_NOBODY = Owner()
task_files: set[str] = set()
"""Names under which tasks were compiled; they may be relative."""


@lru_cache(maxsize=4096)
def kind_of(path: str) -> CodeKind:
    """Whose file lies at a path."""
    if path in task_files:
        return CodeKind.LOCAL
    if path.startswith("<"):  # compiled from a text, by somebody whose frame is further out
        return CodeKind.LIBRARY
    whole = os.path.abspath(path)
    found = _kind_of_whole(whole)
    return _kind_of_whole(os.path.realpath(whole)) if found is CodeKind.LOCAL else found


def _kind_of_whole(path: str) -> CodeKind:
    if _is_below(path, _EVALUATOR):
        return CodeKind.LIBRARY if _is_below(path, _OWN) else CodeKind.EVALUATOR
    if any(f"{os.sep}{name}{os.sep}" in f"{path}{os.sep}" for name in _PACKAGES):
        return CodeKind.PACKAGE
    return CodeKind.LIBRARY if any(_is_below(path, root) for root in _library_roots()) else CodeKind.LOCAL


@lru_cache(maxsize=1)
def _library_roots() -> tuple[str, ...]:
    found = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(os.__file__)]
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    found += [entry for entry in sys.path if entry.endswith(zipped)]
    return tuple({os.path.realpath(root) for root in found} | set(found))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def add_task_file(name: str) -> None:
    """Know the name under which a task's text is compiled."""
    if name not in task_files:
        task_files.add(name)
        kind_of.cache_clear()


def package_of(path: str) -> str:
    """The first folder or file below a folder with installed packages; empty for other paths."""
    parts = Path(path).parts
    places = [place for place, part in enumerate(parts[:-1]) if part in _PACKAGES]
    return parts[places[-1] + 1].split(".")[0] if places else ""


def find_importer(frame: FrameType | None) -> CodeKind:
    """Whose import statement, or call of `importlib.import_module`, is under way."""
    while frame is not None and frame.f_code.co_filename.startswith(("<frozen importlib", _IMPORTLIB)):
        frame = frame.f_back
    return CodeKind.LIBRARY if frame is None else kind_of(frame.f_code.co_filename)


def find_owner(frame: FrameType | None) -> Owner:
    """Who stands behind a call, from the innermost frame outwards."""
    through_package = importing = False
    while frame is not None:
        code: CodeType = frame.f_code
        kind = kind_of(code.co_filename)
        if kind is CodeKind.LOCAL:
            return Owner(True, through_package, importing)
        if kind is CodeKind.EVALUATOR:  # the task's code runs inside of ours
            return _NOBODY
        if kind is CodeKind.PACKAGE:
            through_package, importing = True, importing or code.co_name == "<module>"
        frame = frame.f_back
    return _NOBODY
