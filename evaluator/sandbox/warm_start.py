"""The zygotes of one oracle or compiler: started ahead, attacked by the self-test from one of their children, and then put in use."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox.policy import policy_in_force, sandbox_report
from tritonsmith.evaluator.sandbox.self_test import attack
from tritonsmith.evaluator.sandbox.zygote import Zygote, forget_zygotes, use_zygote

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Additions to the scrubbed environment that all kinds have in common: a zygote has one thread, and libraries read these when they load."""
_COMMON = ("torch", "torch.fx.experimental.symbolic_shapes")
"""What the first zygote imports, from which the others are forked. None of it loads Triton, which reads its switches when it loads."""


@dataclass(frozen=True)
class Branch:
    """A kind of confined process.

    Args:
        environment: the additions to the scrubbed environment by which such processes are known.
        modules: what they import.
    """

    environment: Mapping[str, str]
    modules: Sequence[str]


@dataclass
class _WarmStart:
    """Zygotes that were started; `branches` until they are in use."""

    zygotes: list[Zygote] = field(default_factory=list)
    branches: Sequence[Branch] = ()


_state = _WarmStart()


def begin_warm_start(*branches: Branch) -> None:
    """Start the first zygote for these kinds of processes, under the policy in force; it does its imports meanwhile."""
    end_warm_start()
    policy = policy_in_force()
    if policy is not None and policy.can_fork:
        _state.zygotes, _state.branches = [Zygote(_COMMON, ONE_THREAD)], branches


def is_warm_start_begun() -> bool:
    """Whether zygotes were started."""
    return bool(_state.zygotes)


def finish_warm_start() -> None:
    """Wait for the imports, let the self-test attack from a child of each branch, and put the branches in use.

    What was blocked for a program must be blocked for these children, and what was applied must be applied. Otherwise, and where the
    zygotes fail, processes are started as programs. The report of the sandbox says under `warm_start` what became of it.
    """
    branches, _state.branches = _state.branches, ()
    if not branches:
        return
    report = sandbox_report()
    try:
        for branch in branches:
            _state.zygotes.append(_state.zygotes[0].branch(branch.modules, branch.environment))
        for zygote in _state.zygotes[1:]:
            zygote.wait_ready()
            _require_as_strong(zygote)
    except (InfrastructureError, OSError) as error:
        end_warm_start()
        report["warm_start"] = f"not used: {error}"
        return
    for branch, zygote in zip(branches, _state.zygotes[1:], strict=True):
        use_zygote(zygote, branch.environment)
    report["warm_start"] = "applied"


def _require_as_strong(zygote: Zygote) -> None:
    """Raises InfrastructureError where a child of the zygote can do more than the self-test's program."""
    policy, report = policy_in_force(), sandbox_report()
    assert policy is not None
    found = attack(policy, zygote)
    weaker = [name for name, state in found["actions"].items() if state == "allowed" and report["actions"].get(name) == "blocked"]
    weaker += [name for name in policy.required if found["layers"].get(name) != "applied"]
    if weaker:
        raise InfrastructureError(f"a child of the zygote lacks {', '.join(weaker)}")


def end_warm_start() -> None:
    """End the zygotes."""
    forget_zygotes()
    for zygote in _state.zygotes:
        with contextlib.suppress(OSError):
            zygote.close()
    _state.zygotes, _state.branches = [], ()
