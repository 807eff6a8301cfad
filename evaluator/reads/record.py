"""The record of what a task's process read, and whether it is still so."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

UNKEPT = "unkept"
"""The name in a verdict's environment of why it counts for its own run alone."""
ABSENT = "absent"
"""The state of a path where nothing lies."""
FOLDER = "folder"
"""The state of a folder of which only the existence was asked."""
_NAMES = "names:"
"""How the state of a folder begins whose names were listed."""
_SETTLED_SECONDS = 2.0
"""A file that was written less long ago may be written again within one tick of the file system's clock."""
_JUDGED_WITH = frozenset({"torch", "triton", "tritonsmith"})
"""Packages whose versions every kept answer holds already."""

Signature = tuple[int, ...]
"""What tells a file's contents apart without reading them."""
_digests: dict[str, tuple[Signature, str]] = {}


class TaskReads(BaseModel):
    """What a task's process read or imported from outside the standard library and the installed packages."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # as every record's, which stand above this folder

    files: dict[str, str] = Field(default_factory=dict)
    """The state of each path when it was read. Paths in the task's folder are relative to it."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables that the task's own code asked for."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of the installed packages that it imports."""
    unknown: str = ""
    """Why it cannot be known what the task reads, as half a sentence; empty where it is known."""

    @property
    def key(self) -> str:
        """What tells these reads from others; empty for a task that reads its own file and what judges it alone."""
        packages = {name: found for name, found in self.packages.items() if name not in _JUDGED_WITH}
        parts = [sorted(part.items()) for part in (self.files, self.variables, packages)]
        return repr(parts) if any(parts) else ""

    def join(self, other: TaskReads) -> TaskReads:
        """These reads and others of the same task; what both hold is as it is in the others."""
        return TaskReads(
            files={**self.files, **other.files}, variables={**self.variables, **other.variables},
            packages={**self.packages, **other.packages}, unknown=self.unknown or other.unknown,
        )  # fmt: skip

    def find_changes(self, folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
        """What is not as it was, each as half a sentence that `has changed` follows."""
        yield from self.find_changed_files(folder)
        for name, value in self.variables.items():
            if environ.get(name, ABSENT) != value:
                yield f"the environment variable {name}"
        for name, found in self.packages.items():
            if found != (now := find_version(name)):
                yield f"the package {name} ({found}, and {now} is installed)"

    def find_changed_files(self, folder: Path) -> Iterator[str]:
        """Files that are not as they were."""
        for name, state in self.files.items():
            if find_state(folder / name, names=state.startswith(_NAMES)) != state:
                yield str(folder / name)


def find_version(package: str) -> str:
    """The version of an installed package, or that it is absent."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ABSENT


def find_state(path: str | os.PathLike[str], *, names: bool = False) -> str:
    """The state of a path: a digest of a file's contents, or of a folder's names where these are asked for."""
    try:
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode):
            return digest_file(os.fspath(path))
        if stat.S_ISDIR(found.st_mode):
            return f"{_NAMES}{hashlib.sha256(repr(sorted(os.listdir(path))).encode()).hexdigest()}" if names else FOLDER
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except (OSError, ValueError) as error:
        return f"unreadable: {type(error).__name__}"
    return "special"


def digest_file(path: str) -> str:
    """The state of a regular file. It is read once; then its size and times tell whether it is the same. Raises OSError."""
    signature = sign_file(path)
    known = _digests.get(path)
    if known is not None and known[0] == signature:
        return known[1]
    with open(path, "rb") as stream:
        digest = digest_bytes(hashlib.file_digest(stream, "sha256").digest())
    if sign_file(path) == signature and time.time() - max(signature[-2:]) / 1e9 > _SETTLED_SECONDS:
        _digests[path] = signature, digest
    return digest


def digest_bytes(sha256: bytes) -> str:
    """The state of a file whose contents have a digest."""
    return f"sha256:{sha256.hex()}"


def sign_file(path: str) -> Signature:
    """What changes whenever a file is written in the ordinary ways. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
