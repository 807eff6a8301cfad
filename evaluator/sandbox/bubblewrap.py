"""bubblewrap as the outermost layer: namespaces, and a view of the files that holds what a process may read.

It can do so where Python may not: as a setuid program, or by a profile that grants it the user namespaces that others are refused.
The launcher then goes on inside it. Standard library only. The options are those of bubblewrap 0.6 and later.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in layers.py
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_SHOWN_WHOLE = "/etc"
"""Folder that is bound as a whole: a mount for each of its files would take longer than all the rest. Landlock says what can be read."""
_ALL_USERS = 4294967295
"""Length of the map of user ids in a namespace that maps every user."""
_SIGNALLED = 128
"""What bubblewrap adds to the number of a signal that ended the process inside."""
_MOST_SIGNALS = 64
"""Highest number of a signal."""


def build_command(program: str, policy: dict[str, Any], inner: list[str]) -> list[str]:
    """The command line that runs `inner` with the namespaces and the files of a policy.

    Args:
        program: path of bwrap.
        policy: as `SandboxPolicy.encode_launch` writes it; its devices are bubblewrap's own.
        inner: what runs inside.
    """
    scratch, size = policy["scratch"], str(policy["scratch_bytes"])
    line = [program, "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    line += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]
    readable = _drop_nested(policy["read"])
    for folder in _folders_above([*readable, scratch], readable):
        line += ["--perms", "0755", "--dir", folder]  # bubblewrap itself would close those above a closed file to others
    for path in readable:
        line += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    line += ["--perms", "0700", "--size", size, "--tmpfs", scratch, "--chdir", scratch, "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*line, "--", *inner]


def _drop_nested(paths: Iterable[str]) -> list[str]:
    """The paths without those that lie below another one. Targets of links are added; /proc and /dev are made anew."""
    wanted = {_SHOWN_WHOLE if path.startswith(f"{_SHOWN_WHOLE}/") else path for path in paths if os.path.lexists(path)}
    wanted |= {target for path in wanted if os.path.islink(path) and os.path.exists(target := os.path.realpath(path))}
    kept: list[str] = []
    for path in sorted(path.rstrip("/") for path in wanted):
        above = kept[-1] if kept else "/proc"
        if not any(_is_below(path, folder) for folder in (above, "/proc", "/dev")):
            kept.append(path)
    return kept


def _folders_above(paths: Iterable[str], bound: list[str]) -> list[str]:
    """Every folder that must be made so that the paths can be reached, from the top down."""
    folders: set[str] = set()
    for path in paths:
        parts = path.split("/")
        folders |= {"/".join(parts[:count]) for count in range(2, len(parts))}
    return sorted(folder for folder in folders if not any(_is_below(folder, path) for path in bound))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def maps_every_user() -> bool:
    """Whether the present user namespace is the machine's own: a setuid bubblewrap, or root's, makes none."""
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", str(_ALL_USERS)]


def signal_behind(code: int) -> int:
    """The signal that bubblewrap reports as an exit code; 0 for none."""
    return code - _SIGNALLED if _SIGNALLED < code <= _SIGNALLED + _MOST_SIGNALS else 0
