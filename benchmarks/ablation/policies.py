"""The policies of an experiment: which ones, how many seeds each has, and whose run each can be forked from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonsmith.benchmarks.ablation.difference import find_first_difference
from tritonsmith.benchmarks.ablation.schema import PlannedPolicy
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.suites.tasks import shorten_path


@dataclass(frozen=True)
class Experiment:
    """A comparison that the notes ask for."""

    asks: str
    policies: tuple[str, ...]
    repeats: int = 3
    seeds: int = 2
    """Seed branches of policies that insist on no number."""


EXPERIMENTS: dict[str, Experiment] = {
    "abc": Experiment(
        "A: one seed and analysis; B: three seeds, the best, analysis only if all are bad; C: one seed, no analysis",
        ("single-seed", "rescue-best", "no-analysis"),
        seeds=1,
    ),
    "leave-one-out": Experiment(
        "the whole, and the whole without one part: analysis, repair, detection, tuning, the second seed",
        ("default", "no-analysis", "no-repair", "no-detect", "no-tune", "single-seed"),
    ),
    "seeds": Experiment("ten runs of seeds alone: how much does the first kernel vary?", ("best-of-n",), repeats=10, seeds=1),
}

PARTS = {
    "no-analysis": "analysis",
    "no-repair": "repair",
    "no-detect": "detection",
    "no-tune": "tuning",
    "single-seed": "seeds",
}
"""What each policy leaves out of `default`."""


def plan_policies(given: Sequence[str], seeds: int) -> tuple[PlannedPolicy, ...]:
    """The policies with their seeds and bases. Raises UsageError that names the policy.

    Of those with the same number of seeds one is the base (`default`, else the first), and the others fork from its runs. The base
    with the most seeds comes first of all; the bases with fewer are given what it asked, so that equal questions have equal answers.
    """
    names = [name.strip() for name in given if name.strip()]
    if not names:
        raise UsageError("--policies: name at least one, such as default,no-analysis (`tritonsmith policies` lists them)")
    loaded = {name: load_policy(name, "--policies") for name in names}
    keys = {name: policy.name for name, policy in loaded.items()}
    twice = sorted({key for key in keys.values() if [*keys.values()].count(key) > 1} | {name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--policies: {', '.join(twice)} is there twice; each policy needs a name of its own")
    planned = [
        PlannedPolicy(key=_folder_name(keys[name]), given=_lasting_name(name), seeds=policy.seeds or seeds, sha=_file_sha(name))
        for name, policy in loaded.items()
    ]
    bases: dict[int, PlannedPolicy] = {}
    for number in sorted({policy.seeds for policy in planned}, reverse=True):
        group = [policy for policy in planned if policy.seeds == number]
        bases[number] = next((policy for policy in group if policy.given == "default"), group[0])
    first = next(iter(bases.values()))
    by_key = {policy.key: loaded[name] for policy, name in zip(planned, names, strict=True)}
    return tuple(_choose_base(policy, bases[policy.seeds], first, by_key) for policy in planned)


def _choose_base(policy: PlannedPolicy, base: PlannedPolicy, first: PlannedPolicy, policies: dict[str, Policy]) -> PlannedPolicy:
    if policy is first:
        return policy
    if policy is base:
        return policy.model_copy(update={"base": first.key, "shares": True})
    return policy.model_copy(update={"base": base.key, "at": find_first_difference(policies[base.key], policies[policy.key])})


def _folder_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "policy"


def _find_file(name: str) -> Path | None:
    path, colon, _ = name.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def _lasting_name(name: str) -> str:
    path = _find_file(name)
    return name if path is None else f"{shorten_path(path)}:{name.rpartition(':')[2]}"


def _file_sha(name: str) -> str:
    path = _find_file(name)
    return "" if path is None else text_sha(path.read_text(encoding="utf-8"))
