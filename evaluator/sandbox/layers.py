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
# Flags of unshare, as in include/uapi/linux/sched.h.
NEW_MOUNTS = 0x20000
NEW_UTS = 0x4000000
NEW_IPC = 0x8000000
NEW_USER = 0x10000000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000
# Flags of mount, as in include/uapi/linux/mount.h.
_MS_RDONLY = 1
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_MS_REMOUNT = 32
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
# Options of prctl, as in include/uapi/linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPSET = {"x86_64": 126, "aarch64": 91}
"""Number of the system call by machine; libc has no function for it."""
_CAPABILITY_VERSION_3 = 0x20080522
"""Form of the arguments of capset."""
_LAST_CAPABILITY = 63
"""Highest number that a capability can have."""
RUN_UID = 0x70000000
"""Plus a process id: a user of one run alone, far from those that anybody has."""
_NOBODY = 65534
"""The user id `nobody`."""
_OTHERS_ENTER = 0o001
"""Bit of a folder's mode that lets everybody enter it."""
_SCRATCH_FILES = 65536
"""Files and folders that the scratch folder may hold."""


class suppress:
    """Continue after errors of these kinds; contextlib's takes too long to import."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


class HalfAppliedError(OSError):
    """A layer changed the process and then failed; the command must not run in that state."""


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int = 0, third: int = 0) -> None:
    """The system call. Raises OSError."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0), f"prctl {option}")


def name_process(name: str) -> None:
    """Show up under this name, cut to 15 bytes, in lists of processes. Raises OSError."""
    text = ctypes.create_string_buffer(name.encode())
    prctl(_PR_SET_NAME, ctypes.addressof(text))


def unshare(flags: int) -> None:
    """Leave the named namespaces for new ones. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount on {target}")


def enter_user_namespace() -> None:
    """Enter a user namespace that maps this user onto itself.

    It gives a process without privileges those that the other namespaces need.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_USER)
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise HalfAppliedError(error.errno, error.strerror) from error


def enter_network_namespace() -> None:
    """Enter a network namespace with nothing in it, not even a loopback that is up."""
    unshare(NEW_NETWORK)


def enter_ipc_namespace() -> None:
    """Enter namespaces with System V objects, POSIX message queues and a host name of their own."""
    unshare(NEW_IPC | NEW_UTS)


def mount_privately(needed: Iterable[str], scratch: str, owner: int | None, scratch_bytes: int) -> None:
    """Mount a scratch folder and a /dev/shm in memory with a cap. Folders closed to others show only what is needed.

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
    options = f"size={scratch_bytes},nr_inodes={_SCRATCH_FILES},mode=700{who}"
    _mount("tmpfs", scratch, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    if os.path.isdir("/dev/shm"):
        _mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
    os.chdir(scratch)


def find_closed_ancestor(path: str) -> str | None:
    """The topmost folder above `path` that other users may not enter; None when they can reach it."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        folder = "/".join(parts[:count]) or "/"
        if not _is_enterable(folder):
            return folder
    return None


_enterable: dict[str, bool] = {}
"""By folder: whether others may enter it, as it was when it was first asked."""


def _is_enterable(folder: str) -> bool:
    if folder not in _enterable:
        try:
            _enterable[folder] = bool(os.stat(folder).st_mode & _OTHERS_ENTER)
        except OSError:
            _enterable[folder] = True  # not there: nothing to open
    return _enterable[folder]


def _open_closed_folders(needed: list[str]) -> None:
    """Cover each closed folder above a needed path with an empty one that holds the needed paths alone."""
    closed: dict[str, dict[str, int]] = {}
    for path in needed:
        folder = find_closed_ancestor(path)
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
    _enterable.clear()


def mount_own_proc() -> None:
    """Mount the /proc of this process's own pid namespace over the old one; called as the first process in it."""
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except OSError as error:
        raise HalfAppliedError(error.errno, error.strerror) from error


def pick_user() -> int | None:
    """The user id that a process started by root takes. One of its own, `nobody` in a container with few ids, or None."""
    for user in (RUN_UID + os.getpid(), _NOBODY):
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
    """Set limits for every process that follows; those above the present hard limits are lowered to them."""
    wanted = {
        resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: file_bytes, resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_CPU: cpu_seconds, resource.RLIMIT_NPROC: processes + count_threads_of_user(),
    }  # fmt: skip
    if address_bytes is not None:
        wanted[resource.RLIMIT_AS] = address_bytes
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # a machine out of memory ends the candidate, not the oracle


def count_threads_of_user() -> int:
    """Number of threads that this user already runs; the limit on processes counts them all."""
    count = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def drop_capabilities() -> None:
    """Drop every capability; none comes back by executing a file."""
    for number in range(_LAST_CAPABILITY + 1):
        with suppress(OSError):  # above the last that this kernel knows, or not ours to drop
            prctl(_PR_CAPBSET_DROP, number)
    with suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header, data = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    _check(_libc.syscall(ctypes.c_long(_CAPSET[os.uname().machine]), ctypes.c_char_p(header), ctypes.c_char_p(data)), "capset")


# ---- Landlock: the numbers of the three calls and the access rights are in include/uapi/linux/landlock.h

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_EXECUTE = 1
_WRITE_FILE = 2
_READ_FILE = 4
_READ_DIR = 8
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15
_ALL_OF_ABI_1 = (1 << 13) - 1
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
"""Rights that a rule about a file, and not a folder, may name."""
_TCP = 3
"""Binding and connecting."""
_SCOPES = 3
"""Signals and abstract sockets."""


def _syscall(number: int, *arguments: object) -> int:
    packed = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *packed), "Landlock")


def apply_landlock(read: Iterable[str], write: Iterable[str]) -> int:
    """Allow only these paths to be read and executed, or changed. No TCP, no signal and no abstract socket leaves the domain.

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
