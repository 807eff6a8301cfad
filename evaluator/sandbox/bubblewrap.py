"""bubblewrap as the outermost layer: it makes the namespaces and a view of the file system that holds what a process may read, no more.

It can do so where Python may not: as a setuid program, or by the profile that lets it have user namespaces which others are refused.
The launcher then goes on inside it. Standard library only; the options are those of bubblewrap 0.6 and later.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in sandbox_layers
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

NAMESPACES = ("mount_ns", "net_ns", "ipc_ns", "pid_ns")
"""Layers of the launcher that bubblewrap takes over."""
_COARSE = "/etc"  # a mount for each of its files would take longer than all the rest; what of it can be read, Landlock says
_WHOLE_MAP = 4294967295
_SIGNALLED = 128


def command(program: str, policy: dict[str, Any], inner: list[str]) -> list[str]:
    """The command line that runs `inner` with the namespaces and the files of a policy.

    Args:
        program: path of bwrap.
        policy: as `sandbox.Policy.text` writes it; its devices are bubblewrap's own.
        inner: what runs inside.
    """
    scratch, size = policy["scratch"], str(policy["scratch_bytes"])
    line = [program, "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    line += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]
    readable = _outermost(policy["read"])
    for folder in _folders_above([*readable, scratch], readable):
        line += ["--perms", "0755", "--dir", folder]  # bubblewrap itself would close those above a closed file to others
    for path in readable:
        line += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    line += ["--perms", "0700", "--size", size, "--tmpfs", scratch, "--chdir", scratch, "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*line, "--", *inner]


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those that lie below another one, links with what they lead to; /proc and /dev are made anew."""
    wanted = {_COARSE if path.startswith(f"{_COARSE}/") else path for path in paths if os.path.lexists(path)}
    wanted |= {target for path in wanted if os.path.islink(path) and os.path.exists(target := os.path.realpath(path))}
    kept: list[str] = []
    for path in sorted(one.rstrip("/") for one in wanted):
        above = kept[-1] if kept else "/proc"
        if not any(_below(path, folder) for folder in (above, "/proc", "/dev")):
            kept.append(path)
    return kept


def _folders_above(paths: Iterable[str], bound: list[str]) -> list[str]:
    """Every folder that must be made so that the paths can be reached, from the top down."""
    folders: set[str] = set()
    for path in paths:
        parts = path.split("/")
        folders |= {"/".join(parts[:count]) for count in range(2, len(parts))}
    return sorted(folder for folder in folders if not any(_below(folder, one) for one in bound))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def maps_every_user() -> bool:
    """Whether the present user namespace is the machine's own: a setuid bubblewrap, or root's, makes none."""
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", str(_WHOLE_MAP)]


def signal_behind(code: int) -> int:
    """The signal that bubblewrap reports as an exit code; 0 for none."""
    return code - _SIGNALLED if _SIGNALLED < code <= _SIGNALLED + 64 else 0
