"""Which operators take most of a reference's forward, in words for a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.evaluator.schema import OpNode, TaskFacts
from tritonsmith.prompts.node_names import name_node

_MOST = 8
"""Operators that are named one by one."""


@dataclass(frozen=True)
class _Share:
    """Equal operators of one line, and their part of the whole forward."""

    name: str
    flops: float
    bytes: float
    launches: int

    def say(self) -> str:
        """One line of a list."""
        launches = f"{self.launches} launch{'es' * (self.launches != 1)}"
        flops = f"{self.flops:.0%}"
        operations = "" if flops == "0%" else f"{flops} of the operations, "
        return f"{self.name}: {operations}{self.bytes:.0%} of the bytes, {launches}"


def costly_operators(facts: TaskFacts) -> tuple[str, ...]:
    """The operators with the largest parts of operations and bytes, largest first, then the others together; none where one does all."""
    groups: dict[tuple[str, int], list[OpNode]] = {}
    for node in facts.ops:
        if node.launches:
            groups.setdefault((name_node(node), node.line), []).append(node)
    if len(groups) < 2:
        return ()
    totals = (sum(node.flops for node in facts.ops) or 1.0, sum(node.bytes for node in facts.ops) or 1.0)
    shares = sorted((_add_up(_write_name(*key, nodes), nodes, totals) for key, nodes in groups.items()), key=_sort_key)
    rest = shares[_MOST:]
    others = _Share("the rest", *(sum(getattr(one, part) for one in rest) for part in ("flops", "bytes", "launches")))
    return tuple(one.say() for one in (*shares[:_MOST], *([others] if rest else [])))


def _add_up(name: str, nodes: list[OpNode], totals: tuple[float, float]) -> _Share:
    flops, moved = (sum(getattr(node, part) for node in nodes) / total for part, total in zip(("flops", "bytes"), totals, strict=True))
    return _Share(name, flops, moved, sum(node.launches for node in nodes))


def _sort_key(share: _Share) -> float:
    return -max(share.flops, share.bytes)


def _write_name(name: str, line: int, nodes: list[OpNode]) -> str:
    where = f" (line {line})" if line else ""
    return f"{name}{where}{f', {len(nodes)} times' if len(nodes) > 1 else ''}"
