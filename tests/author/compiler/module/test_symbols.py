"""Sizes in a module: the leading axis as a symbol in forward, kernels for several sizes, numbers that follow from sizes."""

from __future__ import annotations

import pytest

from recipe_cases.records import read_module
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.ir.code import Number
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.template import statements
from tritonsmith.author.compiler.kernels.kernel import Kernel
from tritonsmith.author.compiler.module import module
from tritonsmith.author.compiler.module.joining import SizedModule, join_modules
from tritonsmith.author.compiler.module.numbers import Column, Fitter, list_columns, put_in, write_steps, write_table
from tritonsmith.author.compiler.module.record import ModuleText
from tritonsmith.author.compiler.plan import PLAIN, read_regions
from tritonsmith.author.recipe import Settings
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task


def write(forward: str, inputs: str = "torch.randn(40, 30)", init: str = "") -> ModuleText:
    """The text of a forward's module."""
    task = Task(name="a_task", path="a_task.py", source=RegionCase("one", forward, inputs, init=init).source())
    return read_regions(task, probe(task)[0], FIRST).write(PLAIN)


def test_the_leading_axis_reaches_allocations_launches_and_views() -> None:
    text = write("return torch.softmax(x*2, -1).unsqueeze(1)", "torch.randn(40, 3, 20)")
    forward = "\n".join((*text.forward, text.returned))
    assert forward.startswith("batch = x.shape[0]\n")
    assert "torch.empty((batch, 3, 20)" in forward and "triton.cdiv(batch * 3, c['ROWS'])" in forward
    assert "(batch, 1, 3, 20)" in forward and "40" not in forward


def test_the_symbol_has_a_name_that_no_operator_has() -> None:
    text = write("batch = x.relu(); return torch.softmax(batch, -1)")
    assert any(line.startswith("batch = x.shape[0]") for line in text.forward)


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.relu(x) if x.shape[0] < 1000 else torch.softmax(x, -1)",
        "return torch.relu(x)[: 30 if x.shape[0] > 30 else 3]",
        "return torch.softmax(x, -1)/x.shape[0]",
        "return torch.relu(x[:-1])",
        "return torch.relu(x).view(20, 60)",
    ],
)
def test_a_forward_that_goes_by_the_axis_is_for_one_size(forward: str) -> None:
    assert "x.shape != (40, 30)" in write(forward).wrong


def test_a_branch_of_planning_on_the_axis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that another size would not have: no expression shows the comparison, the second reading does."""
    write_rows = module.write_rows

    def write_by_size(region: RowRegion, name: str, settings: Settings) -> list[Kernel]:
        kernels = write_rows(region, name, settings)
        if region.space.rows > 1000:
            kernels[0].body = (*kernels[0].body, *statements("tl.debug_barrier()"))
        return kernels

    forward = "return torch.softmax(x*2, -1)"
    assert "x.shape[0] > " in write(forward).wrong
    monkeypatch.setattr(module, "write_rows", write_by_size)
    assert "x.shape != (40, 30)" in write(forward).wrong


KERNEL = '''@triton.jit
def scale_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """scale of rows of {n}."""
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + k, tl.load(x_ptr + k // {n} * {double}, mask=k < {n}) * {count}, mask=k < {n})'''


def sized(n: int, count: str, block: int = 16, warps: int = 4, tail: str = "") -> SizedModule:
    """A module with one kernel, for x of n elements."""
    kernel = KERNEL.format(n=n, double=2 * n, count=count) + tail
    forward = [f"y = torch.empty(({n}, 2), device=x.device)", f"scale_kernel[({-(-n // block)},)](x, y, BLOCK={block}, num_warps={warps})"]
    return SizedModule(read_module(forward, kernels=[kernel]), {"x": ((n,), "float32")})


def test_kernels_of_two_sizes_become_one_that_takes_the_size() -> None:
    text = join_modules([sized(20, "1.5"), sized(48, "2.5", 32, 8)], {"N": (20, 48)}, {"x"}).as_text()
    assert text.kernels == [
        "@triton.jit\ndef scale_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr, N: tl.constexpr, NUMBER: tl.constexpr):\n"
        '    """scale of rows of N."""\n'
        "    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + k, tl.load(x_ptr + k // N * (N * 2), mask=k < N) * NUMBER, mask=k < N)"
    ]
    assert text.forward == [
        "n = x.shape[0]", "y = torch.empty((n, 2), device=x.device)",
        "scale_kernel[(2,)](x, y, N=n, NUMBER={20: 1.5, 48: 2.5}[n], BLOCK={20: 16, 48: 32}[n], num_warps={20: 4, 48: 8}[n])",
    ]  # fmt: skip
    assert text.wrong == "x.dim() != 1 or x.shape[0] not in (20, 48)"


def test_programs_share_what_a_kernel_counts() -> None:
    text = join_modules([sized(20, "1"), sized(70, "1")], {"N": (20, 70)}, {"x"}).as_text()
    assert text.forward[-1] == "scale_kernel[(triton.cdiv(n, 16),)](x, y, N=n, BLOCK=16, num_warps=4)"


def test_kernels_that_differ_in_more_than_numbers_stay_two() -> None:
    text = join_modules([sized(20, "1"), sized(48, "1", tail="\n    tl.debug_barrier()")], {}, {"x"}).as_text()
    assert ["def scale_kernel(" in text.kernels[0], "def scale_kernel_2(" in text.kernels[1]] == [True, True]
    assert [one.lines[-1].partition("[")[0] for one in text.sized] == ["scale_kernel", "scale_kernel_2"]


def test_numbers_are_written_as_what_they_follow_from() -> None:
    fitter = Fitter({"h": (12, 9, 30), "w": (14, 14, 11)})

    def fit(*values: int) -> str | None:
        word = fitter.write(values)
        return print_expression(word) if word is not None else None

    wanted = {
        (12, 9, 30): "h", (48, 36, 120): "h * 4", (13, 10, 31): "h + 1", (6, 4, 15): "h // 2", (168, 126, 330): "h * w",
        (336, 224, 660): "w * (h // 2) * 4", (7, 7, 6): "(w + 1) // 2", (1, 2, 30): None, (5, 5, 5): "5",
    }  # fmt: skip
    assert {values: fit(*values) for values in wanted} == wanted
    for within, shown in ((False, "triton.next_power_of_2(h)"), (True, "max(triton.next_power_of_2(h), 16)")):
        assert (power := fitter.write_power((16, 16, 32), within)) is not None and print_expression(power) == shown
    power = fitter.write_power((64, 64, 128), within=False)
    assert power is not None and print_expression(power) == "max(triton.next_power_of_2(h * 3), 64)"


def test_numbers_that_follow_from_nothing_are_looked_up() -> None:
    values = [parse_expression(text) for text in ("2", "1", "2", "4")]
    steps = write_steps(values[:3], {"h": (12, 9, 30)})
    assert steps is not None and print_expression(steps) == "1 if h <= 9 else 2"
    table = write_table([values[0], values[1], values[3]], {"w": (14, 14, 11), "h": (12, 9, 12)})
    assert table is not None and print_expression(table) == "{(14, 12): 2, (14, 9): 1, (11, 12): 4}[w, h]"
    assert write_table(values[:2], {"h": (12, 12)}) is None


def test_expressions_stand_in_parentheses_beside_operators() -> None:
    first, second = (parse_expression(f"f(x // {n} + {n}, k < {n}, -{n})") for n in (12, 30))
    columns = list_columns([first, second])
    assert columns is not None and [spell(values) for values in columns.values()] == [("12", "30")] * 4
    written = put_in(first, dict.fromkeys(columns, parse_expression("h * 2")))
    assert print_expression(written) == "f(x // (h * 2) + (h * 2), k < h * 2, -(h * 2))"
    assert list_columns([first, parse_expression("f(x // 12 - 12, k < 12, -12)")]) is None
    assert list_columns([parse_expression("x + 1"), parse_expression("x + y")]) is None


def spell(values: Column) -> tuple[str, ...]:
    assert all(isinstance(one, Number) for one in values)
    return tuple(one.spelling for one in values)
