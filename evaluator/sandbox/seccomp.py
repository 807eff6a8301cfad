"""The system-call filter of a confined process, written as BPF by hand so that it needs no library. Standard library only.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of the Linux kernel.
"""

from __future__ import annotations

import ctypes
import os
import struct

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""By machine: what the kernel calls its table of system calls."""
# Looking into or steering other processes, new views of the system, kernel interfaces with a long record of holes, and kernel modules.
_DENIED = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "pidfd_getfd": 438, "kcmp": 312,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308, "open_tree": 428,
        "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
        "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "keyctl": 250, "add_key": 248, "request_key": 249, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175,
        "finit_module": 313, "delete_module": 176, "open_by_handle_at": 304, "personality": 135, "syslog": 103, "swapon": 167,
        "swapoff": 168, "reboot": 169, "acct": 163, "quotactl": 179, "settimeofday": 164, "clock_settime": 227, "sethostname": 170,
        # a process that stands still must not be woken by a timer of its own, nor choose the oracle's processor
        "timer_create": 222, "mq_notify": 244, "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setattr": 314,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "process_madvise": 440, "pidfd_getfd": 438, "kcmp": 272,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268, "open_tree": 428,
        "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
        "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "keyctl": 219, "add_key": 217, "request_key": 218, "kexec_load": 104, "kexec_file_load": 294, "init_module": 105,
        "finit_module": 273, "delete_module": 106, "open_by_handle_at": 265, "personality": 92, "syslog": 116, "swapon": 224,
        "swapoff": 225, "reboot": 142, "acct": 89, "quotactl": 60, "settimeofday": 170, "clock_settime": 112, "sethostname": 161,
        "timer_create": 107, "mq_notify": 184, "sched_setaffinity": 122, "sched_setscheduler": 119, "sched_setattr": 274,
    },
}  # fmt: skip
_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE3 = 435
_FCNTL = {"x86_64": 72, "aarch64": 25}
_F_SETSIG = 10
_NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW... flag that clone takes."""
_X32 = 0x40000000
"""Bit in the numbers of the x32 table."""
_AF_UNIX = 1
_EPERM = 1
_EACCES = 13
_ENOSYS = 38
# Instructions of the filter's machine.
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
# What a filter returns.
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
# Offsets in struct seccomp_data.
_NUMBER = 0
_ARCH = 4
_ARGUMENT_0 = 16
_ARGUMENT_1 = 24
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2


def _write_program(machine: str, unix_sockets: bool) -> list[tuple[int, int, int, int]]:
    """Instructions (code, jump if true, jump if false, constant)."""
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]  # the x32 table has numbers of its own
    for number in _DENIED[machine].values():
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    # clone3 passes its flags through memory, which a filter cannot read; libc then takes clone, whose flags it can.
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    code += [  # a descriptor may not send SIGCONT either
        (_EQUAL, 0, 4, _FCNTL[machine]), (_LOAD, 0, 0, _ARGUMENT_1), (_EQUAL, 0, 1, _F_SETSIG),
        (_RETURN, 0, 0, _ERRNO | _EPERM), (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    code += [
        (_EQUAL, 0, 4, _CLONE[machine]), (_LOAD, 0, 0, _ARGUMENT_0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | _EPERM), (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if unix_sockets:
        code += [(_EQUAL, 0, 3, _SOCKET[machine]), (_LOAD, 0, 0, _ARGUMENT_0), (_EQUAL, 1, 0, _AF_UNIX)]
    else:
        code += [(_EQUAL, 0, 1, _SOCKET[machine])]
    return [*code, (_RETURN, 0, 0, _ERRNO | _EACCES), (_RETURN, 0, 0, _ALLOW)]


def install_filter(*, unix_sockets: bool) -> None:
    """Filter the system calls of this process from now on; needs no_new_privs. Raises OSError.

    Args:
        unix_sockets: whether sockets of the unix family may be made; all others are refused.
    """
    machine = os.uname().machine
    if machine not in _AUDIT_ARCH:
        raise OSError(f"no table of system calls for {machine}")
    program = _write_program(machine, unix_sockets)
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(packed))
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header), 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, "the kernel takes no filter")
