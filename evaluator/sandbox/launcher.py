"""The launcher of confined processes, started by `process.SandboxedProcess` with a policy as argument. Standard library only.

A zygote calls `keep` instead (`zygote_process`): then the confined process runs a module in place of a command.

It becomes two processes. The keeper stays outside the confinement, waits for the confined one, and kills all that it left behind:
at its end, at SIGTERM, and when the process that started the keeper dies. The confined one applies the layers and becomes the command.
With bubblewrap, the keeper starts that instead of making namespaces. This launcher then runs a second time inside, as the confined one.

The argument is what `SandboxPolicy.describe_launch` gives, in marshal's format: importing json would double the launcher's own time.
What became of each layer goes to the descriptor `status` before the command runs, as lines `name<tab>state`. A line that begins with a
tab says why the command is not run.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import sys
import time

from tritonsmith.evaluator.sandbox import bubblewrap, layers
from tritonsmith.evaluator.sandbox.layers import suppress
from tritonsmith.evaluator.sandbox.seccomp import install_filter
from tritonsmith.evaluator.sandbox.table import FROM_BUBBLEWRAP, NEEDS

TYPE_CHECKING = False  # as in layers.py
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any
else:
    import _signal as signal  # what signal wraps into enumerations, whose import takes as long as all of this file's others

REFUSED = 125
"""Exit code when a layer that must be there could not be applied, so the command was not run."""

_WAKING_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGIO}
"""What the keeper waits for: an ended child, a wish to end it, and the end of the process that asked for the launch."""
_SWEEP_SECONDS = 8.0
"""Longest time for killing what is left of a run."""
_SWEEP_POLL_SECONDS = 0.001
"""Time between two rounds of kills."""


class SandboxLaunch:
    """One launch under one policy."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.policy = policy
        self.states: dict[str, str] = {}
        self.root = os.geteuid() == 0
        self.user: int | None = policy["user"] if policy["inside"] else self._own_user()
        self.why_no_user = "no other user id is mapped here" if self.root else "only root can take another user"

    def _own_user(self) -> int | None:
        return layers.pick_user() if self.root and "uid" in self.policy["layers"] else None

    def attempt(self, name: str, action: Callable[[], object], why_not: str = "") -> None:
        """Apply one layer and note what became of it."""
        why_not = why_not or self._find_unmet_need(name)
        if name not in self.policy["layers"]:
            why = self.policy["left_out"].get(name, "the policy leaves it out")
            self.states[name] = why if why.startswith("unavailable: ") else f"not used: {why}"
        elif why_not:
            self.states[name] = "unavailable: " + why_not
        else:
            try:
                action()
            except layers.HalfAppliedError as error:
                self.states[name] = f"failed: {error.strerror}"
            except OSError as error:
                self.states[name] = f"unavailable: {error.strerror or error}"
            else:
                self.states[name] = "applied"

    def _find_unmet_need(self, name: str) -> str:
        """What the layer lacks of the needs in the table; empty when it lacks nothing."""
        for alternatives, reason in NEEDS[name]:
            if not any(self.root if need == "root" else self.is_applied(need) for need in alternatives):
                return reason
        return ""

    def is_applied(self, name: str) -> bool:
        """Whether the layer holds."""
        return self.states.get(name) == "applied"

    def enter_namespaces(self) -> None:
        """Let the keeper enter the namespaces in which it starts the confined process."""
        policy = self.policy
        self.attempt("bubblewrap", lambda: None)
        self.attempt("user_ns", layers.enter_user_namespace, "root needs none" if self.root else "")
        needed = [*policy["read"], *policy["write"]]
        mounts = lambda: layers.mount_privately(needed, policy["scratch"], self.user, policy["scratch_bytes"])  # noqa: E731
        self.attempt("mount_ns", mounts)
        self.attempt("net_ns", layers.enter_network_namespace)
        self.attempt("ipc_ns", layers.enter_ipc_namespace)
        self.attempt("pid_ns", lambda: layers.unshare(layers.NEW_PIDS))
        if self.user is not None and not self.is_applied("mount_ns"):
            closed = next((path for path in policy["read"] if os.path.exists(path) and layers.find_closed_ancestor(path)), None)
            if closed:
                self.user, self.why_no_user = None, f"{closed} is closed to other users"
            else:
                os.chown(policy["scratch"], self.user, self.user)

    def note_bubblewrap(self) -> None:
        """Note what bubblewrap made before it started this process; it starts nothing when it cannot."""
        self.states |= dict.fromkeys(("bubblewrap", *FROM_BUBBLEWRAP), "applied")
        none = "root needs none" if self.root else "this bubblewrap is setuid and needs none"
        self.attempt("user_ns", lambda: None, none if bubblewrap.maps_every_user() else "")
        if self.user is not None:
            os.chown(self.policy["scratch"], self.user, self.user)

    def confine(self) -> None:
        """Let the confined process confine itself, in an order in which later steps need fewer privileges."""
        policy = self.policy
        if self.is_applied("pid_ns") and not policy["inside"]:
            self.attempt("pid_ns", layers.mount_own_proc)
        self.attempt("uid", self._become, self.why_no_user if self.user is None else "")
        self.attempt("limits", lambda: layers.limit(**policy["limits"]))
        self.attempt("capabilities", layers.drop_capabilities)
        self.attempt("no_new_privs", lambda: layers.prctl(layers.PR_SET_NO_NEW_PRIVS, 1))
        self.attempt("landlock", lambda: layers.apply_landlock(self._readable(), policy["write"]))
        self.attempt("own_proc", lambda: None)
        self.attempt("seccomp", lambda: install_filter(unix_sockets=policy["cuda"]))

    def _become(self) -> None:
        if self.user is not None:
            layers.become(self.user)

    def _readable(self) -> list[str]:
        """The policy's paths, and the part of /proc that is this process's own or the machine's."""
        if self.is_applied("pid_ns") or "own_proc" not in self.policy["layers"]:
            return [*self.policy["read"], "/proc"]
        general = [f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit()]
        return [*self.policy["read"], *general, f"/proc/{os.getpid()}"]

    @property
    def report(self) -> str:
        """The report to the process that asked for the launch."""
        return "".join(f"{name}\t{state}\n" for name, state in self.states.items()) + f"\t{self.refusal}\n"

    @property
    def refusal(self) -> str:
        """Why the command must not run; empty when it may."""
        half = {name for name, state in self.states.items() if state.startswith("failed")}
        missing = half | {name for name in self.policy["required"] if not self.is_applied(name)}
        return "; ".join(f"{name} {self.states.get(name)}" for name in sorted(missing))


def _run_confined(launch: SandboxLaunch, status: int, keeper: int, run: Callable[[], None]) -> None:
    """Apply the layers and run the command, or exit."""
    launch.confine()
    layers.prctl(layers.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (keeper, 0):  # 0: the keeper is outside this pid namespace
        os._exit(REFUSED)
    os.write(status, launch.report.encode())
    if launch.refusal:
        os._exit(REFUSED)
    os.close(status)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAKING_SIGNALS)
    run()


def _become(command: list[str]) -> None:
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run inside the sandbox: {error.strerror}\n".encode())
    os._exit(REFUSED)


def _become_bubblewrap(launch: SandboxLaunch) -> None:
    """Become bubblewrap, which runs this launcher again with the rest of the policy."""
    policy = launch.policy | {"inside": True, "user": launch.user}
    again = [*sys.orig_argv[:-2], marshal.dumps(policy).hex(), sys.orig_argv[-1]]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAKING_SIGNALS)
    _become(bubblewrap.build_command(policy["bubblewrap"], policy, again))


def _watch(status: int) -> None:
    """Report the end of the process that reads `status` as SIGIO. A death signal would already come when its thread ends."""
    fcntl.fcntl(status, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(status, fcntl.F_SETFL, fcntl.fcntl(status, fcntl.F_GETFL) | os.O_ASYNC)


def _is_abandoned(status: int) -> bool:
    line = select.poll()
    line.register(status, 0)
    return bool(line.poll(0))


def _wait(child: int, status: int) -> int | None:
    """The confined process's wait status; None when the keeper is to end it, or nobody waits for it any more."""
    while not _is_abandoned(status):
        number = signal.sigwait(_WAKING_SIGNALS)
        if number == signal.SIGIO:
            continue
        if number != signal.SIGCHLD:
            return None
        while True:
            pid, state = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return state
            if pid == 0:
                break
    return None


def _children() -> list[int]:
    with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]
    return []


def _kill_all_of(user: int) -> int:
    """Every process of a user at once, through a helper that is one of them; a swarm cannot outrun it. Returns the helper."""
    helper = os.fork()
    if helper == 0:
        with suppress(OSError):
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    return helper


def _sweep(child: int | None, launch: SandboxLaunch) -> None:
    """Kill and collect until no descendant is left; orphans come back to the keeper, which is their subreaper."""
    deadline, helper = time.monotonic() + _SWEEP_SECONDS, 0
    own_user = launch.user if launch.user is not None and launch.user >= layers.RUN_UID and not launch.is_applied("pid_ns") else None
    while time.monotonic() < deadline:
        try:
            while gone := os.waitpid(-1, os.WNOHANG)[0]:
                helper = 0 if gone == helper else helper
        except ChildProcessError:
            return
        others = {*([child] if child else []), *([] if launch.is_applied("pid_ns") else _children())} - {helper}
        if own_user is not None and not helper:
            helper = _kill_all_of(own_user)
        for pid in others or {helper} - {0}:  # a helper that is the last one has done its work, or was stopped
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SWEEP_POLL_SECONDS)


def main() -> None:
    """Entry point of the keeper, and of the confined process inside bubblewrap."""
    policy = marshal.loads(bytes.fromhex(sys.argv[1]))
    command = policy["command"]
    if policy["inside"]:
        launch = SandboxLaunch(policy)
        launch.note_bubblewrap()
        _run_confined(launch, policy["status"], os.getppid(), lambda: _become(command))
    if os.getppid() != policy["parent"]:
        os._exit(REFUSED)
    keep(policy, lambda: _become(command))


def keep(policy: dict[str, Any], run: Callable[[], None]) -> None:
    """Be the keeper of one launch from here to the end of this process.

    Args:
        policy: what `SandboxPolicy.describe_launch` gave.
        run: what the confined process does once its layers hold; it does not return.
    """
    status = policy["status"]
    launch = SandboxLaunch(policy)
    layers.prctl(layers.PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING_SIGNALS)
    _watch(status)
    wrapped = "bubblewrap" in policy["layers"]
    if not wrapped:
        launch.enter_namespaces()
    layers.prctl(layers.PR_SET_DUMPABLE, 0)  # the confined process may have the same user
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        os.setsid()
        if wrapped:
            _become_bubblewrap(launch)
        _run_confined(launch, status, keeper, run)
    state = _wait(child, status)
    _sweep(child if state is None else None, launch)
    _leave_as(state, wrapped)


def _leave_as(state: int | None, wrapped: bool) -> None:
    """End the way the confined process ended."""
    if state is None:
        os._exit(REFUSED)
    code = os.waitstatus_to_exitcode(state)
    number = -code if code < 0 else bubblewrap.signal_behind(code) if wrapped else 0
    if number:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAKING_SIGNALS)
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code & 0xFF)
