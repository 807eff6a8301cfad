"""Where two policies can first give different answers: their methods compared, and what those use."""

from types import CodeType
from typing import Any

from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.sites import QUESTIONS


def find_first_difference(policy: Policy, other: Policy) -> str:
    """The first site in the graph's order where the answers may differ; the last one for policies that are the same.

    Two policies agree at a site where they share the method, everything of the policy that the method uses, and all that that uses.
    Anything that cannot be compared counts as different, so the answer is never too late.
    """
    for question in QUESTIONS:
        names = _find_used(policy, question) | _find_used(other, question)
        if any(not _is_same(policy, other, name) for name in names):
            return question
    return QUESTIONS[-1]


def _find_used(policy: Policy, question: str) -> set[str]:
    """The attribute and all others of the policy that it may use, from the names in its code."""
    found: set[str] = set()
    waiting = [question]
    while waiting:
        name = waiting.pop()
        if name in found or not hasattr(policy, name):
            continue
        found.add(name)
        for owner in type(policy).__mro__:  # a method may call the one that it overrides
            code = getattr(vars(owner).get(name), "__code__", None)
            waiting += _find_names(code) if isinstance(code, CodeType) else []
        code = getattr(getattr(policy, name), "__code__", None)
        waiting += _find_names(code) if isinstance(code, CodeType) else []
    return found


def _find_names(code: CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _find_names(const)]
    return [name for name in code.co_names if not name.startswith("__")] + inner


def _is_same(left: Policy, right: Policy, name: str) -> bool:
    if name in ("name", "seeds"):
        return True  # for messages, and for how many branches there are, which the plan compares by itself
    missing = object()
    first, second = (_value_of(policy, name, missing) for policy in (left, right))
    return first is second or (type(first) is type(second) and isinstance(first, int | float | str | bool | tuple) and first == second)


def _value_of(policy: Policy, name: str, missing: object) -> Any:
    own = vars(policy).get(name, missing)
    return own if own is not missing else getattr(type(policy), name, missing)
