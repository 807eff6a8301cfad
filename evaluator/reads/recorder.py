"""ReadNotes what the code of a task reads, in the process that runs it: an audit hook, and wrappers where Python raises no audit event."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source, source_from_cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tritonsmith.evaluator.reads.owners import CodeKind, Owner, find_owner, kind_of, package_of
from tritonsmith.evaluator.reads.record import ABSENT, FOLDER, Signature, find_state, sign_file

Given = ParamSpec("Given")
Result = TypeVar("Result")
_OPENS_THROUGH_PYTHON = frozenset({"torch", "triton", "numpy", "scipy", "markupsafe", "gmpy2", "yaml", "_yaml", "psutil"})
"""Packages whose native code opens no file that a caller names, or is wrapped here."""
_DEVICES = ("/proc", "/sys", "/dev")
"""What lies below is made by the kernel when it is read."""
_HARMLESS = frozenset({"/dev/null", "/dev/zero"})
_BEGINS_PROCESS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"})
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"})
_EVENTS = _BEGINS_PROCESS | _NETWORK | {"open", "os.listdir", "os.scandir", "import", "ctypes.dlopen", "sqlite3.connect"}
_IMPORTS = "<frozen importlib"
"""How the names of the import system's own files begin."""


class ReadNotes:
    """What the code of one task has read so far."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        """States that are known, by whole path."""
        self.opened: dict[str, Signature | None] = {}
        """Files that were opened or looked for, with what told their contents then; None where none was there."""
        self.listed: set[str] = set()
        """Folders whose names were read."""
        self.written: set[str] = set()
        """Files that the task made itself."""
        self.variables: dict[str, str] = {}
        self.imported: set[str] = set()
        """Top-level names that the task's code imported."""
        self.unknown = ""

    def doubt(self, why: str) -> None:
        """Remember why it cannot be known what is read; the first reason stays."""
        self.unknown = self.unknown or why

    def note_path(self, path: str) -> None:
        """A path that was opened or looked for."""
        if path in self.opened or path in self.states or path in self.written:
            return
        try:
            kind = os.stat(path).st_mode
        except (OSError, ValueError):
            self.opened[path] = None
            return
        if stat.S_ISREG(kind):
            self.opened[path] = sign_file(path)
        elif stat.S_ISDIR(kind):
            self.states[path] = FOLDER
        else:
            self.doubt(f"it reads {path}, which is no ordinary file")

    def find_states(self) -> dict[str, str]:
        """The state of everything that was read, by whole path, as it was then."""
        for path, signature in {**self.opened}.items():
            if path in self.states:
                continue
            state = find_state(path)
            now = sign_file(path) if state.startswith("sha256:") else None
            if now != signature or (signature is None and state != ABSENT and not os.path.isdir(path)):
                self.doubt(f"{path} changed while it was read")
            self.states[path] = state if signature is not None else ABSENT
        return self.states | {path: find_state(path, names=True) for path in {*self.listed}}


class Recorder:
    """The hook of this process. It cannot be taken out again, so there is one, which does nothing before a task is loaded."""

    def __init__(self) -> None:
        self.notes: ReadNotes | None = None
        self._variables: frozenset[str] = frozenset()
        self._busy = threading.local()
        self._installed = False
        self._private = ""

    def install(self, variables: frozenset[str]) -> None:
        """Listen from now on; `variables` are those that our caller's environment decides."""
        if self._installed:
            return
        self._installed, self._variables = True, variables
        home = os.environ.get("HOME", "")
        if home and home == os.environ.get("TMPDIR"):  # a scrubbed environment: a folder of this process's own, empty at its start
            self._private = home.rstrip(os.sep) + os.sep
        sys.addaudithook(self._make_hook())
        os.stat = _wrap_look(os.stat, self._look)
        os.access = _wrap_look(os.access, self._look)
        watched = type("_Environ", (type(os.environ),), {"__getitem__": _wrap_item(type(os.environ).__getitem__, self._ask)})
        os.environ.__class__ = watched

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Hear nothing of what this thread does meanwhile."""
        before, self._busy.now = getattr(self._busy, "now", False), True
        try:
            yield
        finally:
            self._busy.now = before

    def unheard(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        """A function of ours that reads by itself, of which nothing is heard."""

        @functools.wraps(function)
        def call(*arguments: Given.args, **options: Given.kwargs) -> Result:
            with self.pause():
                return function(*arguments, **options)

        return call

    def _make_hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """The hook. Python calls it for every event, `id()` among them, so the first test is all that most of them cost."""
        events = _EVENTS

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in events or self.notes is None or getattr(self._busy, "now", False):
                return
            notes, frame = self.notes, sys._getframe(1)
            with self.pause():
                try:
                    self._take(notes, event, arguments, frame)
                except Exception as error:  # noqa: BLE001 - an error of ours must not become one of the task; it only keeps nothing
                    notes.doubt(f"what it reads cannot be followed ({type(error).__name__}: {error})")

        return hear

    def _take(self, notes: ReadNotes, event: str, arguments: tuple[Any, ...], frame: Any) -> None:
        path = _path_of(event, arguments)
        native = event in ("import", "ctypes.dlopen")
        if path is not None and not native and (kind_of(path) is not CodeKind.LOCAL or self._is_private(path)):
            return
        owner = find_owner(frame)
        if not owner.local:
            return
        if native:
            self._take_native(notes, event, arguments, path, owner)
        elif owner.importing:
            return
        elif event in _BEGINS_PROCESS:
            notes.doubt("it starts processes, and what these read is not seen")
        elif event in _NETWORK:
            notes.doubt("it uses the network")
        elif path is not None:
            self._take_path(notes, event, arguments, path, owner, frame)

    def _take_native(self, notes: ReadNotes, event: str, arguments: tuple[Any, ...], path: str | None, owner: Owner) -> None:
        if event == "import" and not owner.importing and not owner.through_package:
            notes.imported.add(str(arguments[0]).split(".")[0])
        if path is None or (event == "import" and not _is_native(path)) or kind_of(path) is CodeKind.LIBRARY:
            return
        package = package_of(path)
        if package in _OPENS_THROUGH_PYTHON or (owner.importing and not package and event == "ctypes.dlopen"):
            return
        if not package and os.path.isfile(path):
            notes.note_path(path)
        notes.doubt(f"the native code of {package or Path(path).name} may read files unseen")

    @staticmethod
    def _take_path(notes: ReadNotes, event: str, arguments: tuple[Any, ...], path: str, owner: Owner, frame: Any) -> None:
        if path.startswith(tuple(f"{folder}/" for folder in _DEVICES)):
            if not owner.through_package and path not in _HARMLESS:
                notes.doubt(f"it reads {path}")
        elif event in ("os.listdir", "os.scandir"):
            if not frame.f_code.co_filename.startswith(_IMPORTS):
                notes.listed.add(path)
        elif event == "open" and _only_writes(arguments):
            if path not in notes.opened and path not in notes.states:
                notes.written.add(path)
        elif path.endswith((".pyc", ".pyo")) and (source := _source_of(path)):
            notes.note_path(source)
        else:
            notes.note_path(path)

    def _is_private(self, path: str) -> bool:
        return bool(self._private) and path.startswith(self._private)

    def _look(self, path: Any, frame: Any) -> None:
        """A question whether something lies at a path."""
        if self.notes is None or getattr(self._busy, "now", False) or not isinstance(path, str | bytes | os.PathLike):
            return
        with self.pause():
            whole = os.path.abspath(os.fsdecode(path))
            if kind_of(whole) is not CodeKind.LOCAL or self._is_private(whole) or whole.startswith(_DEVICES):
                return
            owner = find_owner(frame)
            if owner.local and not owner.importing and not owner.through_package:
                self.notes.note_path(whole)

    def _ask(self, name: Any, value: str | None, frame: Any) -> None:
        """A question about an environment variable."""
        if self.notes is None or name not in self._variables or getattr(self._busy, "now", False):
            return
        owner = find_owner(frame)
        if owner.local and not owner.importing and not owner.through_package:
            self.notes.variables.setdefault(str(name), ABSENT if value is None else value)


def _path_of(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The whole path that an event is about; None where it is about none."""
    place = {"open": 0, "os.listdir": 0, "os.scandir": 0, "sqlite3.connect": 0, "ctypes.dlopen": 0, "import": 1}.get(event)
    value = arguments[place] if place is not None else None
    if value is None and event in ("os.listdir", "os.scandir"):
        value = os.curdir
    if not isinstance(value, str | bytes | os.PathLike) or (event == "sqlite3.connect" and value == ":memory:"):
        return None
    path = os.fsdecode(value)
    return path if event == "ctypes.dlopen" and os.sep not in path else os.path.abspath(path)


def _only_writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wxa")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_TRUNC))


def _is_native(path: str) -> bool:
    return path.endswith((".so", ".pyd", ".dylib"))


def _source_of(path: str) -> str:
    try:
        source = source_from_cache(path)
    except (ValueError, NotImplementedError):
        return ""
    return source if cache_from_source(source) == path and os.path.isfile(source) else ""


def _wrap_look(function: Callable[..., Any], tell: Callable[[Any, Any], None]) -> Callable[..., Any]:
    def look(path: Any, *arguments: Any, **options: Any) -> Any:
        tell(path, sys._getframe(1))
        return function(path, *arguments, **options)

    look.__name__, look.__doc__ = function.__name__, function.__doc__
    for able in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if function in able:  # callers ask whether the function is among them
            able.add(look)
    return look


def _wrap_item(function: Callable[..., str], tell: Callable[[Any, str | None, Any], None]) -> Callable[..., str]:
    def ask(self: Any, name: Any) -> str:
        value = None
        try:
            value = function(self, name)
            return value
        finally:
            tell(name, value, sys._getframe(1))

    return ask


RECORDER = Recorder()
"""The recorder of this process."""
