"""The layers that confine a process, each through a few system calls: namespaces, private mounts, identity, limits, Landlock.

Standard library only, and called in processes with one thread. Every function raises OSError where its layer cannot be applied.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

TYPE_CHECKING = False  # typing, collections and contextlib would double the start of the launcher
if TYPE_CHECKING:
    from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
RUN_UID = 0x70000000
"""Plus a process id: a user of one run alone, far from those that anybody has."""
_NOBODY = 65534
_OTHERS_ENTER = 0o001


class suppress:
    """Goes on after errors of these kinds."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


class HalfAppliedError(OSError):
    """A layer changed the process and then failed; going on would run in a state that nobody asked for."""


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int = 0, third: int = 0) -> None:
    """The system call. Raises OSError."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    """Leave the named namespaces for new ones. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount on {target}")


def own_user_namespace() -> None:
    """A user namespace that maps this user onto itself; gives a process without privileges those that the other namespaces need."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_USER)
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise HalfAppliedError(error.errno, error.strerror) from error


def own_network() -> None:
    """A network namespace with nothing in it, not even a loopback that is up."""
    unshare(NEW_NETWORK)


def own_ipc() -> None:
    """System V objects and POSIX message queues, and a host name, of its own."""
    unshare(NEW_IPC | NEW_UTS)


def own_mounts(needed: Iterable[str], scratch: str, owner: int | None, scratch_bytes: int) -> None:
    """Private mounts: a scratch folder and a /dev/shm in memory with a cap; folders closed to others show only what is needed.

    Args:
        needed: files and folders that the process must reach under another identity.
        scratch: the folder that is replaced by a capped file system in memory.
        owner: the user that the process will run as; None when it stays who it is.
        scratch_bytes: the cap.
    """
    unshare(NEW_MOUNTS)
    try:
        _private_mounts([*needed, scratch], scratch, owner, scratch_bytes)
    except OSError as error:
        raise HalfAppliedError(error.errno, error.strerror) from error


def _private_mounts(needed: list[str], scratch: str, owner: int | None, scratch_bytes: int) -> None:
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    if owner is not None:
        _open_closed_folders(needed)
    os.makedirs(scratch, exist_ok=True)
    who = f",uid={owner},gid={owner}" if owner is not None else ""
    options = f"size={scratch_bytes},nr_inodes=65536,mode=700{who}"
    _mount("tmpfs", scratch, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    if os.path.isdir("/dev/shm"):
        _mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
    os.chdir(scratch)


def closed_ancestor(path: str) -> str | None:
    """The topmost folder above `path` that other users may not enter; None when they can reach it."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        folder = "/".join(parts[:count]) or "/"
        if not _enterable(folder):
            return folder
    return None


_known: dict[str, bool] = {}


def _enterable(folder: str) -> bool:
    if folder not in _known:
        try:
            _known[folder] = bool(os.stat(folder).st_mode & _OTHERS_ENTER)
        except OSError:
            _known[folder] = True  # not there: nothing to open
    return _known[folder]


def _open_closed_folders(needed: list[str]) -> None:
    """Cover each closed folder above a needed path with an empty one that holds the needed paths alone."""
    closed: dict[str, dict[str, int]] = {}
    for path in needed:
        folder = closed_ancestor(path)
        if folder is not None and os.path.exists(path):
            closed.setdefault(folder, {})[path] = os.open(path, os.O_PATH)
    for folder, paths in closed.items():
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
        for path, descriptor in sorted(paths.items()):
            if os.path.exists(path):  # below one that is there already
                continue
            source = f"/proc/self/fd/{descriptor}"
            if os.path.isdir(source):
                os.makedirs(path, mode=0o755)
            else:
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            _mount(source, path, None, _MS_BIND | _MS_REC)
            _mount("none", path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID)
        for descriptor in paths.values():
            os.close(descriptor)
    _known.clear()


def own_proc() -> None:
    """Mount the /proc of this process's own pid namespace over the old one; called as the first process in it."""
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except OSError as error:
        raise HalfAppliedError(error.errno, error.strerror) from error


def run_user() -> int | None:
    """The user id that a process started by root takes: one of its own, `nobody` in a container with few ids, or None."""
    own = RUN_UID + os.getpid()
    for user in (own, _NOBODY):
        with open("/proc/self/uid_map") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
        if any(first <= user < first + count for first, _, count in ranges):
            return user
    return None


def become(user: int) -> None:
    """Give root up for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def limit(processes: int, file_bytes: int, open_files: int, cpu_seconds: int, address_bytes: int | None) -> None:
    """Limits that hold for every process that follows; those above the present hard limits are lowered to them."""
    wanted = {
        resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: file_bytes, resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_CPU: cpu_seconds, resource.RLIMIT_NPROC: processes + threads_of_user(),
    }  # fmt: skip
    if address_bytes is not None:
        wanted[resource.RLIMIT_AS] = address_bytes
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # a machine out of memory ends the candidate, not the oracle


def threads_of_user() -> int:
    """Threads that this user already runs, because the limit on processes counts them all."""
    count = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def drop_capabilities() -> None:
    """No capability is left, and none comes back by executing a file."""
    for number in range(_LAST_CAPABILITY + 1):
        with suppress(OSError):  # above the last that this kernel knows, or not ours to drop
            prctl(_PR_CAPBSET_DROP, number)
    with suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header, data = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    _check(_libc.syscall(ctypes.c_long(_CAPSET[os.uname().machine]), ctypes.c_char_p(header), ctypes.c_char_p(data)), "capset")


# ---- Landlock: the numbers of the three calls and the access rights are in include/uapi/linux/landlock.h

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_ALL_OF_ABI_1 = (1 << 13) - 1
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP, _SCOPES = 3, 3


def _syscall(number: int, *arguments: object) -> int:
    packed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *packed), "Landlock")


def landlock(read: Iterable[str], write: Iterable[str]) -> int:
    """From now on only these paths can be read and executed, or changed; no TCP, no signal and no abstract socket leaves the domain.

    Needs no_new_privs. Returns the kernel's version of the interface: TCP needs 4, device control 5, signals and sockets 6.
    """
    abi = _syscall(_CREATE_RULESET, None, 0, 1)
    rights = _ALL_OF_ABI_1 | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL_DEVICE if abi >= 5 else 0)
    attributes = struct.pack("QQQ", rights, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    attributes = attributes[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _syscall(_CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    for paths, granted in ((read, _EXECUTE | _READ_FILE | _READ_DIR), (write, rights)):
        for path in paths:
            with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                descriptor = os.open(path, os.O_PATH)
                access = granted if os.path.isdir(path) else granted & _FOR_FILES & rights
                _syscall(_ADD_RULE, ruleset, 1, ctypes.c_char_p(struct.pack("=Qi", access, descriptor)), 0)
                os.close(descriptor)
    _syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return abi
