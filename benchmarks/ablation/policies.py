"""The policies of an experiment: which ones, how many seeds each has, and whose run each can be forked from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonsmith.benchmarks.ablation.difference import first_difference
from tritonsmith.benchmarks.ablation.schema import PlannedPolicy
from tritonsmith.benchmarks.ablation.suite import shown
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.view import Policy


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
        PlannedPolicy(key=_folder(keys[name]), given=_lasting(name), seeds=policy.seeds or seeds, sha=_sha(name))
        for name, policy in loaded.items()
    ]
    bases: dict[int, PlannedPolicy] = {}
    for number in sorted({one.seeds for one in planned}, reverse=True):
        group = [one for one in planned if one.seeds == number]
        bases[number] = next((one for one in group if one.given == "default"), group[0])
    first = next(iter(bases.values()))
    by_key = {one.key: loaded[name] for one, name in zip(planned, names, strict=True)}
    return tuple(_placed(one, bases[one.seeds], first, by_key) for one in planned)


def _placed(one: PlannedPolicy, base: PlannedPolicy, first: PlannedPolicy, policies: dict[str, Policy]) -> PlannedPolicy:
    if one is first:
        return one
    if one is base:
        return one.model_copy(update={"base": first.key, "shares": True})
    return one.model_copy(update={"base": base.key, "at": first_difference(policies[base.key], policies[one.key])})


def _folder(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "policy"


def _file(name: str) -> Path | None:
    path, colon, _ = name.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def _lasting(name: str) -> str:
    path = _file(name)
    return name if path is None else f"{shown(path)}:{name.rpartition(':')[2]}"


def _sha(name: str) -> str:
    path = _file(name)
    return "" if path is None else text_sha(path.read_text(encoding="utf-8"))
