"""The self-test's hostile part: it runs inside the layers and tries what candidate code must not be able to do.

`python -P -m tritonsmith.evaluator.sandbox.attack REQUEST` prints {"actions": {name: true when it was possible}, "names": [names of the
environment], "card": byte read from the loan or a reason} as one JSON line, leaves an escaped process behind that holds the descriptor
`held`, and waits to be killed. Standard library only. It attacks nothing but what its request names.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.sandbox.card_loan import read_loan

_PTRACE_SEIZE = 0x4206
_PTRACE_DETACH = 17
_CLONE_NEWUSER = 0x10000000
_CONNECT_SECONDS = 1.0
"""Longest wait for a connection."""
_DAEMON_SECONDS = 60
"""How long the escaped process lives where nobody ends it."""


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(_PTRACE_SEIZE, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    libc.ptrace(_PTRACE_DETACH, pid, 0, 0)


def _connect(family: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(address)


def _send(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", port))


def _enter_user_namespace() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0 else 1)
    if os.waitpid(child, 0)[1]:
        raise OSError("unshare")


def list_actions(request: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Every action by name; one that raises OSError was stopped. Those on the oracle are tried on its zygote, too."""
    trusted = request["trusted"]

    def for_any(action: Callable[[int], object]) -> Callable[[], None]:
        def act() -> None:
            if not any(_is_possible(functools.partial(action, pid)) for pid in trusted):
                raise OSError

        return act

    return {
        "read_oracle_environment": for_any(lambda pid: Path(f"/proc/{pid}/environ").read_bytes()),
        "read_oracle_memory": for_any(lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))),
        "list_oracle_files": for_any(lambda pid: os.listdir(f"/proc/{pid}/fd")),
        "trace_oracle": for_any(_trace),
        "signal_oracle": for_any(lambda pid: os.kill(pid, 0)),
        "tcp_loopback": lambda: _connect(socket.AF_INET, ("127.0.0.1", request["tcp"])),
        "udp_loopback": lambda: _send(request["udp"]),
        "abstract_socket": lambda: _connect(socket.AF_UNIX, "\0" + request["abstract"]),
        "read_foreign_file": lambda: Path(request["secret"]).read_bytes(),
        "write_outside": lambda: (Path(request["open_folder"]) / "escaped").touch(),
        "new_user_namespace": _enter_user_namespace,
    }


def _is_possible(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return False
    return True


def _leave_a_daemon(held: int) -> None:
    """Leave an orphan in a session of its own that keeps `held` open for as long as it lives."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
            time.sleep(_DAEMON_SECONDS)
        os._exit(0)
    os.waitpid(child, 0)
    os.fstat(held)


def main() -> None:
    """Entry point."""
    request = json.loads(sys.argv[1])
    found = {name: _is_possible(action) for name, action in list_actions(request).items()}
    card: int | str = ""
    if request["loan"]:
        try:
            card = read_loan(request["loan"])
        except OSError as error:
            card = str(error)
    _leave_a_daemon(request["held"])
    Path("scratch-is-writable").touch()
    sys.stdout.write(json.dumps({"actions": found, "names": sorted(os.environ), "card": card}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
