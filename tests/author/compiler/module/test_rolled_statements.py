"""Statements on small records: what repeats with even growth is a loop, and one argument that differs prevents it."""

from __future__ import annotations

import pytest

from recipe_cases.records import read_module
from tritonsmith.author.compiler.ir.code import number
from tritonsmith.author.compiler.ir.parser import parse_statements
from tritonsmith.author.compiler.ir.printer import print_statements
from tritonsmith.author.compiler.module.launches import read_launch
from tritonsmith.author.compiler.module.rolling import roll_steps
from tritonsmith.author.compiler.module.statements import SlotKind, read_statement

LAYER = [
    'w_{n}, e_{n} = self.keep("layers.{n}.weight", split, self.layers[{n}].weight, (2, 1, 64, 64), M=64)',
    "y_{n} = torch.empty((4, 64), dtype=torch.float32, device=x.device)",
    "dense[(8,)](y_{before}, w_{n}, e_{n}, y_{n}, {offset}, START=64, num_warps=4)",
]


def repeat(count: int = 6) -> list[str]:
    return [line.format(n=n, before=n - 1, offset=128 * n) for n in range(1, count + 1) for line in LAYER]


def roll(lines: list[str], returned: str) -> tuple[list[str], str]:
    text = roll_steps(read_module(lines, returned)).as_text()
    return text.forward, text.returned


def test_steps_that_differ_in_names_and_numbers_are_a_loop() -> None:
    lines, returned = roll(repeat(), "y_6")
    assert lines == [
        "last_y = y_0",
        "for step in range(1, 7):",
        '    w, e = self.keep(f"layers.{step}.weight", split, self.layers[step].weight, (2, 1, 64, 64), M=64)',
        "    y = torch.empty((4, 64), dtype=torch.float32, device=x.device)",
        "    dense[(8,)](last_y, w, e, y, 128 * step, START=64, num_warps=4)",
        "    last_y = y",
    ]
    assert returned == "y"


@pytest.mark.parametrize(("old", "new"), [
    ("dense[(8,)](y_2, w_3", "sparse[(8,)](y_2, w_3"),
    ("y_3, 384, START=64", "y_3, 385, START=64"),
    ("y_3, 384, START=64", "y_3, 384, STOP=64"),
    ("y_3, 384, START=64", "y_3, 384.0, START=64"),
    ("dense[(8,)](y_2, w_3", "dense[(8,)](y_1, w_3"),
    ('"layers.3.weight"', '"layers.three.weight"'),
    ("w_3, e_3, y_3", "w_2, e_3, y_3"),
])  # fmt: skip
def test_one_argument_that_differs_prevents_the_loop(old: str, new: str) -> None:
    lines = [line.replace(old, new) for line in repeat()]
    assert lines != repeat() and roll(lines, "y_6") == (lines, "y_6")


def test_what_all_steps_made_is_kept_where_it_is_read_behind() -> None:
    lines, returned = roll([f"y_{n} = f(x, {n})" for n in range(9)] + ["g([y_0, y_1], z)"], "torch.stack([y_8, y_0])")
    assert lines == ["y_by_step = []", "for step in range(9):", "    y = f(x, step)", "    y_by_step.append(y)",
                     "g([y_by_step[0], y_by_step[1]], z)"]  # fmt: skip
    assert returned == "torch.stack([y_by_step[8], y_by_step[0]])"
    row = ", ".join(f"y_{n}" for n in range(9))
    assert roll([f"y_{n} = f(x, {n})" for n in range(9)], f"({row})")[1] == "(*y_by_step,)", "a tuple of one that has a star"
    row = ", ".join(f"y_{n}" for n in reversed(range(9)))
    assert roll([f"y_{n} = f(x, {n})" for n in range(9)], f"torch.stack([{row}, x])")[1] == "torch.stack([*y_by_step[::-1], x])"


def test_a_statement_has_slots_for_what_may_differ() -> None:
    (statement,) = parse_statements('y_3 = self.f(x_2, "layers.3", -7, True, 2.5)')
    slots = [(slot.kind, slot.value) for slot in read_statement(statement).slots]
    assert slots == [(SlotKind.STORE, "y_3"), (SlotKind.LOAD, "x_2"), (SlotKind.STRING, "layers.3"), (SlotKind.NUMBER, 7)]
    (launched,) = parse_statements("dense[(grid_3,)](x_2)")
    assert [slot.value for slot in read_statement(launched).slots] == ["grid_3", "x_2"], "a kernel is what it is"


@pytest.mark.parametrize(("text", "kernel", "taken"), [
    ("dense[(8,)](x, y, num_warps=4)", "dense", "wide[(8,)](x, y, M=64, num_warps=4)"),
    ('w, e = self.keep("a", dense, self.a, (2, 3))', "dense", 'w, e = self.keep("a", wide, self.a, (2, 3), M=64)'),
    ("y = torch.empty((2, 3))", None, ""),
    ("self.f(x)", None, ""),
])  # fmt: skip
def test_a_launch_takes_another_kernel_and_its_numbers(text: str, kernel: str | None, taken: str) -> None:
    launch = read_launch(parse_statements(text)[0])
    assert (launch.kernel if launch is not None else None) == kernel
    assert launch is None or print_statements([launch.take("wide", {"M": number(64)})]) == taken
