"""Which layers work on this machine, verified by an attack on ourselves; run once at the start of each oracle.

`python -P -m tritonsmith.evaluator.sandbox.self_test [card]` prints the report as JSON, for `doctor`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.processes.lines import read_line
from tritonsmith.evaluator.processes.scrubbed import ALLOWED_ENVIRONMENT, SCRUBBED_ADDITIONS
from tritonsmith.evaluator.sandbox.card_loan import CardLoan
from tritonsmith.evaluator.sandbox.oneself import guard_self
from tritonsmith.evaluator.sandbox.policy import SandboxPolicy, use_policy
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.table import LAYERS, NOT_WITH_CUDA, RELAXATIONS
from tritonsmith.evaluator.sandbox.zygote import Zygote

MODES = ("auto", "strict", "off")
"""Values of `--sandbox`."""
_ACTIONS_BEHIND = {
    "environment without secrets": ("see_other_environment",),
    "no network": ("tcp_loopback", "udp_loopback", "abstract_socket"),
    "writes stay in the scratch folder": ("write_outside",),
    "the oracle's memory, files and environment are closed": (
        "read_oracle_environment", "read_oracle_memory", "list_oracle_files", "trace_oracle",
    ),
    "every process ends with its candidate": ("outlive_the_kill",),
}  # fmt: skip
"""What `strict` asks for, each with the actions of the self-test that must have been stopped."""
_NO_BUBBLEWRAP = "there is no bwrap on PATH"
_NO_BUBBLEWRAP_ON_A_CARD = "not used: on a card only its mount and network namespaces could be taken, and the launcher makes those itself"
_NO_NEED_OF_BUBBLEWRAP = "not used: the layers without it stop everything, and a zygote can start processes inside them"
_PROBE_SECONDS = 10.0
"""Longest wait for the hostile part."""
_PROBE_SECONDS_WITH_CUDA = 30.0
"""The same where it opens the card, too."""
_NAMES_OF_PYTHON = ("LC_CTYPE", "PWD")
"""Names that Python and the launcher add to an environment."""
_REASON_CHARACTERS = 300
"""Length of a reason in the report."""


def establish(mode: str, *, cuda: bool) -> dict[str, Any]:
    """Find the strongest policy that works here, verify it, and use it in this process. Returns the report.

    Raises:
        UsageError: `strict`, and a protection that it asks for is missing; or an unknown mode.
    """
    if mode not in MODES:
        raise UsageError(f"--sandbox {mode}: there is no such mode; the modes are {', '.join(MODES)}.")
    if mode == "off":
        report: dict[str, Any] = {"mode": "off", "layers": dict.fromkeys(LAYERS, "not used: --sandbox off"), "actions": {}}
        use_policy(None, report)
        return report
    started = time.monotonic()
    policy, report = _find_strongest(cuda)
    report |= {"mode": mode, "seconds": round(time.monotonic() - started, 3)}
    lacking = missing_protections(report)
    report["missing"] = lacking
    if mode == "strict" and lacking:
        raise UsageError(f"--sandbox strict: this machine does not give: {'; '.join(lacking)}; `tritonsmith doctor` shows the layers.")
    use_policy(policy, report)
    return report


def missing_protections(report: dict[str, Any]) -> list[str]:
    """Protections that `strict` asks for and the self-test did not see hold."""
    actions = report["actions"]
    return [name for name, behind in _ACTIONS_BEHIND.items() if any(actions.get(action) != "blocked" for action in behind)]


def _find_strongest(cuda: bool) -> tuple[SandboxPolicy | None, dict[str, Any]]:
    if not sys.platform.startswith("linux"):
        return None, {"layers": dict.fromkeys(LAYERS, "unavailable: needs Linux"), "actions": {}}
    policy, report = try_own_layers(cuda=cuda)
    if cuda:
        report["layers"]["bubblewrap"] = _NO_BUBBLEWRAP_ON_A_CARD
    elif set(report["actions"].values()) == {"blocked"}:
        report["layers"]["bubblewrap"] = _NO_NEED_OF_BUBBLEWRAP
    else:
        try:
            wrapped = try_bubblewrap()
        except InfrastructureError as error:
            report["layers"]["bubblewrap"] = f"unavailable: {error}"
        else:
            if _rate(wrapped[1]) >= _rate(report):
                return wrapped
            report["layers"]["bubblewrap"] = "not used: the layers without it stop more"
    return policy, report


def try_own_layers(*, cuda: bool) -> tuple[SandboxPolicy, dict[str, Any]]:
    """The strongest policy that works here without bubblewrap, and the self-test's report.

    Raises InfrastructureError where no process starts inside any.
    """
    left_out = {"bubblewrap": ""} | (NOT_WITH_CUDA if cuda else {})
    reasons: list[str] = []
    for given_up in RELAXATIONS:
        why = f"the self-test fails with it ({reasons[-1]})" if reasons else ""
        try:
            return _verify(dict.fromkeys(given_up, why) | left_out, cuda)
        except InfrastructureError as error:
            reasons.append(str(error))
    raise InfrastructureError(f"no process starts inside the sandbox, not even with limits alone: {reasons[-1]}")


def try_bubblewrap() -> tuple[SandboxPolicy, dict[str, Any]]:
    """All layers, the namespaces from bubblewrap, and the self-test's report. Raises InfrastructureError where it does not work here."""
    program = shutil.which("bwrap")
    if program is None:
        raise InfrastructureError(_NO_BUBBLEWRAP)
    try:
        return _verify({}, False, program)
    except InfrastructureError as error:
        raise InfrastructureError(f"the self-test fails with it ({error})") from None


def _rate(report: dict[str, Any]) -> tuple[int, int]:
    """How strong a policy is: attacks that it stopped, then layers that were applied."""
    return list(report["actions"].values()).count("blocked"), list(report["layers"].values()).count("applied")


def _verify(left_out: dict[str, str], cuda: bool, bwrap: str = "") -> tuple[SandboxPolicy, dict[str, Any]]:
    """A policy without these layers, and the self-test's report. Raises InfrastructureError where it does not work here."""
    policy = SandboxPolicy(tuple(layer for layer in LAYERS if layer not in left_out), left_out, (), cuda, bwrap)
    report = attack(policy)
    applied = tuple(name for name, state in report["layers"].items() if state == "applied")
    return replace(policy, required=applied), report


def attack(policy: SandboxPolicy, zygote: Zygote | None = None) -> dict[str, Any]:
    """Run the self-test's hostile part under a policy, as a program or as a child of a zygote.

    Raises InfrastructureError when it could not even do its honest work.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tritonsmith-check-")))
        folder.chmod(0o755)
        (folder / "secret").write_text("not for candidates")
        (folder / "secret").chmod(0o644)
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        name = f"tritonsmith-{secrets.token_hex(8)}"
        abstract.bind("\0" + name)
        abstract.listen(1)
        watch, held = os.pipe()
        stack.callback(os.close, watch)
        fill = secrets.randbelow(255) + 1
        loan = stack.enter_context(CardLoan(fill)).handle if policy.cuda else ""
        request = {
            "trusted": [os.getpid(), *([zygote.pid] if zygote else [])],
            "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "abstract": name,
            "secret": str(folder / "secret"), "open_folder": str(folder / "open"), "held": held, "loan": loan,
        }  # fmt: skip
        try:
            answer, layers = _run_attack(policy, request, zygote)
        finally:
            os.close(held)
        if policy.cuda and answer["card"] != fill:
            raise InfrastructureError(f"CUDA: {answer['card'] if isinstance(answer['card'], str) else 'wrong byte on the card'}")
        possible = dict(answer["actions"])
        possible["see_other_environment"] = bool(set(answer["names"]) - {*ALLOWED_ENVIRONMENT, *SCRUBBED_ADDITIONS, *_NAMES_OF_PYTHON})
        possible["outlive_the_kill"] = not select.select([watch], [], [], 1.0)[0]
    return {"layers": layers, "actions": {action: "allowed" if could else "blocked" for action, could in sorted(possible.items())}}


def _run_attack(
    policy: SandboxPolicy, request: dict[str, Any], zygote: Zygote | None
) -> tuple[dict[str, Any], dict[str, str]]:
    with SandboxedProcess(
        "tritonsmith.evaluator.sandbox.attack", [json.dumps(request)], pass_fds=[request["held"]], policy=policy, zygote=zygote
    ) as process:
        assert process.process.stdout is not None
        answer = read_line(process.process.stdout.fileno(), _PROBE_SECONDS_WITH_CUDA if policy.cuda else _PROBE_SECONDS)
        layers = process.layer_states(0.0)
        if answer is None or layers.get("", "nothing"):
            tail = (process.stderr_tail().strip().splitlines() or ["no answer"])[-1]
            raise InfrastructureError((layers.get("") or tail)[:_REASON_CHARACTERS])
    return answer, {name: layers[name] for name in LAYERS}


def main() -> None:
    """Entry point."""
    guard_self()
    try:
        report = establish("auto", cuda="card" in sys.argv[1:])
    except (InfrastructureError, OSError) as error:
        report = {"mode": "auto", "layers": {}, "actions": {}, "missing": list(_ACTIONS_BEHIND), "error": str(error)}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
