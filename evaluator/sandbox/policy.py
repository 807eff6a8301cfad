"""The policy of confined processes: their layers, what they may read and write, and which policy is in force."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import InfrastructureError

FILE_BYTES = 1 << 28
"""Largest file that confined code may write."""
SCRATCH_BYTES = 1 << 30
"""Size of the scratch folder, and of /dev/shm, where they are mounts of the process's own."""
_MOST_PROCESSES = 256
"""Processes and threads of one candidate without a card."""
_MOST_PROCESSES_WITH_CUDA = 1024
"""The same on a card: compilers of torch start many."""
_CPU_SECONDS_PER_CORE = 1800
"""Processor time of one process, times the number of cores."""
_OPEN_FILES = 4096
"""Descriptors of one process."""
_LEAST_ADDRESS_BYTES = 8 << 30
"""Address space that a process without a card always gets; half of the machine's memory where that is more."""
_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/sys")
"""Folders of the system that confined code may read."""
_PATHS_IN_ENVIRONMENT = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH")
"""Variables whose folders confined code may read."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that confined code may use with and without a card."""
_OTHERS_READ = 0o004
"""Bit of a file's mode that lets everybody read it."""


@dataclass(frozen=True)
class SandboxPolicy:
    """Which layers confined processes get, and what is known about them here."""

    layers: tuple[str, ...]
    left_out: dict[str, str]
    """Layers that are not tried, with the reason."""
    required: tuple[str, ...]
    """Layers without which a process is not started; those that the self-test found applied."""
    cuda: bool
    bubblewrap: str = ""
    """Path of bwrap, for policies with that layer."""

    @property
    def can_fork(self) -> bool:
        """Whether a zygote may start processes under it; bubblewrap starts programs only."""
        return "bubblewrap" not in self.layers

    def describe_launch(
        self, scratch: Path, read: Sequence[Path], status: int, *, command: Sequence[str] = (), proc: bool = False
    ) -> dict[str, Any]:
        """What the launcher is told about one process."""
        write = [str(scratch), *_DEVICES, "/proc/self/task", "/dev/shm"]  # noqa: S108 - /dev/shm is private where mounts are
        if "mount_ns" not in self.required:
            write.remove("/dev/shm")
        if self.cuda:
            write += [str(node) for node in Path("/dev").glob("nvidia*")] + ["/dev/dxg"]
        if proc:
            read, write = [*read, Path("/proc")], [*write, "/proc"]
        return {
            "command": list(command), "scratch": str(scratch), "scratch_bytes": SCRATCH_BYTES, "status": status, "parent": os.getpid(),
            "layers": self.layers, "left_out": self.left_out, "required": self.required, "cuda": self.cuda, "limits": self._limits(),
            "bubblewrap": self.bubblewrap, "inside": False, "user": None,
            "read": [*readable_paths(), *map(str, read)], "write": write,
        }  # fmt: skip

    def _limits(self) -> dict[str, int | None]:
        """Arguments of `layers.limit`; CUDA maps more address space than any bound allows."""
        return {
            "processes": _MOST_PROCESSES_WITH_CUDA if self.cuda else _MOST_PROCESSES, "file_bytes": FILE_BYTES, "open_files": _OPEN_FILES,
            "address_bytes": None if self.cuda else max(_LEAST_ADDRESS_BYTES, _memory_bytes() // 2),
            "cpu_seconds": _CPU_SECONDS_PER_CORE * (os.cpu_count() or 1),
        }  # fmt: skip


@dataclass
class _InForce:
    """What this process decided at its start; None as policy: confined processes run as plain children (`off`)."""

    policy: SandboxPolicy | None = None
    report: dict[str, Any] | None = None


_in_force = _InForce()


def use_policy(policy: SandboxPolicy | None, report: dict[str, Any]) -> None:
    """Use this policy for every confined process from now on, and show this report with every verdict."""
    _in_force.policy, _in_force.report = policy, report


def policy_in_force() -> SandboxPolicy | None:
    """The policy of confined processes; None where they are plain children.

    Raises InfrastructureError before `use_policy`: nothing may run by mistake without one.
    """
    if _in_force.policy is None and _in_force.report is None:
        raise InfrastructureError("candidate code was to run before the sandbox was established")
    return _in_force.policy


def sandbox_report() -> dict[str, Any]:
    """What the self-test of this process found. Mode, layers with their states, and attacks with what became of them."""
    return _in_force.report or {"mode": "not established", "layers": {}, "actions": {}}


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def readable_paths() -> list[str]:
    """What confined processes may read: the system, the interpreter, this package, and nothing of the user's."""
    wanted = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *(folder for folder in sys.path if folder)]
    root = importlib.util.find_spec(__name__.partition(".")[0])  # in a checkout its file lies apart from its packages
    wanted += [str(Path(__file__).parents[1]), *((root and root.submodule_search_locations) or ()), *_links_to(sys.executable)]
    for name in _PATHS_IN_ENVIRONMENT:
        wanted += [path for path in os.environ.get(name, "").split(os.pathsep) if path]
    found = [*_SYSTEM_FOLDERS, *(form for path in wanted for form in (os.path.abspath(path), os.path.realpath(path)))]
    for folder in ("/etc", "/run"):  # not what only some may read, and of /run only what belongs to the card
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found += [
                entry.path for entry in entries if (folder == "/etc" or entry.name.startswith("nvidia")) and _everybody_may_read(entry)
            ]
    return [path for path in dict.fromkeys(found) if path != "/" and os.path.exists(path)]


def _everybody_may_read(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return bool(entry.stat().st_mode & _OTHERS_READ)
    return False


def _links_to(program: str) -> list[str]:
    """The folders that a chain of links to a program passes through."""
    folders = []
    while os.path.islink(program):
        program = os.path.join(os.path.dirname(program), os.readlink(program))
        folders.append(os.path.dirname(os.path.abspath(program)))
    return folders
