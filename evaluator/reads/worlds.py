"""What belongs to one task file in the process that runs it: its helper modules, its import path, and the notes of its reads."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import packages_distributions
from pathlib import Path
from types import CodeType, ModuleType

from tritonsmith.evaluator.reads.natives import announce_native_reads
from tritonsmith.evaluator.reads.owners import CodeKind, add_task_file, find_importer, find_owner, kind_of
from tritonsmith.evaluator.reads.record import ABSENT, TaskReads, digest_bytes, find_state, find_version
from tritonsmith.evaluator.reads.recorder import RECORDER, ReadNotes


class TaskWorld:
    """One task file's.

    Args:
        folder: the task's folder, which modules are looked for in first; empty where nobody knows it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notes = ReadNotes()
        self.sources: dict[str, str] = {}
        """Texts of helper modules by whole path."""
        self.modules: dict[str, ModuleType] = {}
        """Helper modules while another task is under way."""
        self.names: set[str] = set()
        """Names of the helper modules."""
        self.sys_path: list[str] = [*_SYS_PATH]

    def is_stale(self) -> bool:
        """Whether something that was read is not as it was."""
        return any(find_state(path, names=state.startswith("names:")) != state for path, state in self.notes.find_states().items())


_OURS = __name__.partition(".")[0]
"""This project, whose modules no task takes along."""
_SYS_PATH: list[str] = []
"""The import path before any task changed it."""
_worlds: dict[str, TaskWorld] = {}
_now: list[TaskWorld] = []
"""The world of the task that was loaded last, alone."""


@RECORDER.unheard
def enter_world(path: str, folder: str, source: str, variables: frozenset[str]) -> TaskWorld:
    """The world of a task file that is about to be loaded; a new one where what it read has changed.

    Args:
        path: the name under which its text is compiled.
        folder: where it lies; empty where nobody knows.
        source: its text.
        variables: environment variables that our caller's environment decides.
    """
    _set_up(variables)
    if not _now:
        _SYS_PATH[:] = sys.path  # as it is now: whoever loads a task may have changed it since the last one
    add_task_file(path)
    key = os.path.join(folder, os.path.basename(path))
    if (known := _worlds.get(key)) is not None and known.is_stale():
        _forget(known)
        del _worlds[key]
    world = _worlds.setdefault(key, TaskWorld(folder))
    if _now and _now[0] is not world:
        _leave(_now.pop())
    if not _now:
        _now.append(world)
        sys.modules.update(world.modules)
        sys.path[:] = world.sys_path
    importlib.invalidate_caches()
    world.sources[path] = source
    RECORDER.notes = world.notes
    return world


def _set_up(variables: frozenset[str]) -> None:
    if not _SYS_PATH:
        _SYS_PATH.extend(sys.path)
        finders = sys.meta_path
        finders.insert(finders.index(PathFinder) if PathFinder in finders else len(finders), LocalFinder())
        RECORDER.install(variables)
    announce_native_reads()


def _leave(world: TaskWorld) -> None:
    read = world.notes.states.keys() | world.notes.opened.keys()
    found = {name for name, module in [*sys.modules.items()] if getattr(module, "__file__", None) in read}
    names = {name for name in world.names | found if name.partition(".")[0] != _OURS}  # a script's own process may have tasks in it too
    world.modules = {name: module for name in names if (module := sys.modules.pop(name, None)) is not None}
    world.sys_path = [*sys.path]
    sys.path[:] = _SYS_PATH


@contextlib.contextmanager
def visit_worlds() -> Iterator[None]:
    """While it is open a program of somebody else may load tasks. Afterwards its import path and its modules are as before."""
    path, modules = [*sys.path], dict(sys.modules)
    _SYS_PATH[:] = path
    try:
        yield
    finally:
        if _now:
            _leave(_now.pop())
        RECORDER.notes = None
        sys.path[:] = path
        sys.modules.update({name: module for name, module in modules.items() if name not in sys.modules})


def _forget(world: TaskWorld) -> None:
    """Drop the helper modules of a world, so that they are imported anew."""
    if _now and _now[0] is world:
        _leave(_now.pop())


class LocalFinder(MetaPathFinder):
    """Finds helper modules beside the task as Python does for a script, and has every module of the task's own read from its source.

    Compiled files beside a source are not used: Python trusts those by whole seconds and length, and two texts may share both.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where a module lies; None where Python's own search is to go on."""
        if not _now:
            return None
        world, frame = _now[0], sys._getframe(1)
        owner = find_owner(frame)
        if not owner.local:
            return None
        with RECORDER.pause():
            return self._find(world, name, path, target, asked=find_importer(frame) is CodeKind.LOCAL, may_fall_back=not owner.importing)

    def _find(
        self, world: TaskWorld, name: str, path: Sequence[str] | None, target: ModuleType | None, *, asked: bool, may_fall_back: bool
    ) -> ModuleSpec | None:
        """Where a module lies. `asked`: the task's own code imports it; others get the task's folder last, as torch.load may need."""
        beside = [world.folder] if world.folder and path is None else []
        rest = sys.path if path is None else [*path]
        search = [*beside, *rest] if asked else [*rest, *(beside if may_fall_back else [])]
        spec = PathFinder.find_spec(name, search, target)
        if asked:
            world.notes.imported.add(name.partition(".")[0])
            _note_where_nothing_lies(world, name.rpartition(".")[2], search, spec)
        return self._own(world, spec)

    @staticmethod
    def _own(world: TaskWorld, spec: ModuleSpec | None) -> ModuleSpec | None:
        places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
        if spec is None or not any(place and kind_of(os.path.abspath(place)) is CodeKind.LOCAL for place in places):
            return spec
        world.names.add(spec.name)
        if type(spec.loader) is SourceFileLoader and spec.origin is not None:
            spec.loader, spec.cached = SourceLoader(spec.name, os.path.abspath(spec.origin)), None
        return spec


class SourceLoader(SourceFileLoader):
    """Runs the text that lies in the file now, and notes it."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code, compiled of its source."""
        data = self.get_data(self.path)
        if _now:
            world = _now[0]
            world.notes.states[self.path] = digest_bytes(hashlib.sha256(data).digest())
            world.sources[self.path] = importlib.util.decode_source(data)
        code: CodeType = self.source_to_code(data, self.path)
        return code


def _note_where_nothing_lies(world: TaskWorld, name: str, search: Sequence[str], spec: ModuleSpec | None) -> None:
    """A module that appears later in a folder that comes first would be another one."""
    origin = "" if spec is None else os.path.abspath(spec.origin or "")
    for entry in search:
        folder = os.path.abspath(entry)
        if origin.startswith(folder + os.sep):
            return
        if kind_of(folder) is CodeKind.LOCAL and os.path.isdir(folder):
            for place in (f"{name}.py", os.path.join(name, "__init__.py")):
                world.notes.states.setdefault(os.path.join(folder, place), ABSENT)


@RECORDER.unheard
def report_reads(world: TaskWorld | None = None) -> TaskReads:
    """What the code of a task has read so far; of the task that was loaded last where no other is named."""
    world = world or _now[0]
    states, notes = world.notes.find_states(), world.notes
    for name in {*world.names} & sys.modules.keys():
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and os.path.abspath(origin) not in states:
            notes.note_path(os.path.abspath(origin))
    states = notes.find_states()
    names = {_name_inside(path, world.folder): state for path, state in sorted(states.items())}
    imported = notes.imported.union(*map(_list_imports, world.sources.values()))
    packages = {package: find_version(package) for name in sorted(imported) for package in _packages_of(name)}
    return TaskReads(files=names, variables=dict(sorted(notes.variables.items())), packages=packages, unknown=notes.unknown)


def _name_inside(path: str, folder: str) -> str:
    inside = folder and path.startswith(folder.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, folder) if inside else path


def _list_imports(source: str) -> Iterator[str]:
    """Top-level names of the modules that a text imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@cache
def _packages_of(name: str) -> tuple[str, ...]:
    """The installed packages that hold a module."""
    if name in sys.stdlib_module_names or name == "__future__":
        return ()
    if name in ("torch", "triton", "numpy"):  # reading what is installed takes longer than all the rest
        return (name,)
    return tuple(sorted(set(_distributions().get(name, ()))))


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: [*packages] for name, packages in packages_distributions().items()}


def _list_mapped() -> set[str]:
    """Files that are mapped into this process's memory: what is written to them changes what was read."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {f"/{path}" for line in lines if (path := line.partition("/")[2])}


def find_contradictions(world: TaskWorld, told: TaskReads | None) -> Iterator[str]:
    """Files that are not as they were when the task was described."""
    now = {} if told is None else report_reads(world).files
    yield from (str(Path(world.folder) / name) for name, state in now.items() if told is not None and told.files.get(name, state) != state)


@RECORDER.unheard
def find_doubt(world: TaskWorld, told: TaskReads | None) -> str:
    """Why a verdict does not count for another run, as half a sentence; empty where it does."""
    now = report_reads(world)
    if now.unknown:
        return now.unknown
    for path in _list_mapped() & world.notes.states.keys():
        if find_state(path) != world.notes.states[path]:
            return f"{path} is mapped into memory, and has changed since"
    more = [name for name in now.files if told is not None and name not in told.files]
    return f"it read {Path(world.folder) / more[0]} only while it was judged" if more else ""
