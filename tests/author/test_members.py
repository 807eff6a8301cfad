"""The lines of a constructor: what they make carries the reference's names, each bare module is made once."""

from typing import Any

import torch
from torch import nn

from tritonsmith.author.members import Block, Member, attribute, list_parents, settle_members


def build(lines: tuple[str, ...], **names: Any) -> nn.Module:
    """The module that the lines make."""
    module = nn.Module()
    exec("\n".join(lines), {"self": module, "nn": nn, "torch": torch, **names})  # noqa: S102 - the text under test
    return module


def test_names_are_the_references_whatever_stands_below_a_module() -> None:
    names = ("a.0.weight", "a.scale", "a.10.b.1.bias", "c.0", "c.1", "d")
    lines = settle_members([part for name in names for part in (*list_parents(name), Member(name, "nn.Parameter(torch.ones(2))"))])
    assert set(build(lines).state_dict()) == set(names) and lines.count("self.a = nn.ModuleDict()") == 1
    assert attribute("a.10.b.1.bias") == 'self.a["10"].b["1"].bias'


def test_each_block_has_all_of_its_own_lines() -> None:
    """Constructors of two sizes may make equal members; what comes behind them finds these."""
    made = (Member("a", "nn.Module()"), Member("a.w", "nn.Parameter(torch.ones(3))"))
    blocks = [Block(f"{'elif' if number else 'if'} made == {number}:", made) for number in (0, 1)]
    lines = settle_members([*blocks, Member("a", "nn.Module()"), 'self.a.register_buffer("t", torch.zeros(1))'])
    for number in (0, 1):
        assert set(build(lines, made=number).state_dict()) == {"a.w", "a.t"}
