"""Kernels on small records: those that do the same are one, and numbers in which they differ become arguments."""

from __future__ import annotations

import pytest

from recipe_cases.parsed_texts import parse_function
from recipe_cases.records import read_module
from tritonsmith.author.compiler.ir.printer import print_function
from tritonsmith.author.compiler.module.equal_kernels import SharedKernels
from tritonsmith.author.compiler.module.merging import merge_kernels
from tritonsmith.author.compiler.module.record import ModuleText

SCALE = '''@triton.jit
def {name}({x}_ptr, y_ptr, BLOCK: tl.constexpr):
    """{name} of {size} elements."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {x} = tl.load({x}_ptr + i, mask=i < {size}, other=0.0)
    tl.store(y_ptr + i, {x} * {factor}, mask=i < {size})'''
HELPER = '''@triton.jit
def {name}_part(x_ptr, i):
    return tl.load(x_ptr + i * {size})'''
CALLER = '''@triton.jit
def {name}(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, {name}_part(x_ptr, i))'''
SPLIT = '''@triton.jit
def {name}(x_ptr, y_ptr):
    m = tl.arange(0, 16)
    k = tl.arange(0, 32)
    at = m * {product} + k
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=(m < {rows}) & (k // {columns} < 2)))'''


def scale(name: str = "scale", x: str = "x", size: int = 64, factor: str = "2.0") -> str:
    return SCALE.format(name=name, x=x, size=size, factor=factor)


def merge(kernels: list[str], forward: list[str]) -> ModuleText:
    return merge_kernels(read_module(forward, kernels=kernels)).as_text()


def launch(names: str, options: str = "BLOCK=64, num_warps=4") -> list[str]:
    return [f"{name}[(1,)](x, y, {options})" for name in names.split()]


@pytest.mark.parametrize(("other", "equal"), [
    (scale("twin", "v"), True),
    (scale("twin", "v", factor="3.0"), False),
    (scale("twin", "v").replace("y_ptr + i", "y_ptr + v"), False),
    (scale("twin").replace("BLOCK", "WIDTH"), False),  # launches name it
])  # fmt: skip
def test_kernels_with_other_names_are_one(other: str, equal: bool) -> None:
    kernels = SharedKernels()
    assert kernels.find([parse_function(scale())], "scale") == "scale"
    assert kernels.find([parse_function(other)], "twin") == ("scale" if equal else "twin")


def test_what_kernels_call_after_themselves_is_compared_too() -> None:
    kernels = SharedKernels()
    versions = [[parse_function(text.format(name=name, size=size)) for text in (HELPER, CALLER)] for name, size in
                (("first", 48), ("second", 48), ("third", 80))]  # fmt: skip
    assert [kernels.find(functions, functions[-1].name) for functions in versions] == ["first", "first", "third"]


def test_numbers_become_arguments() -> None:
    text = merge([scale("first", size=1000), scale("second", "v", size=500)], launch("first second"))
    (kernel,) = text.kernels
    assert "def first(x_ptr, y_ptr, BLOCK: tl.constexpr, LIMIT: tl.constexpr):" in kernel and kernel.count("i < LIMIT") == 2
    assert '"""first of LIMIT elements."""' in kernel
    assert text.forward == launch("first", "LIMIT=1000, BLOCK=64, num_warps=4") + launch("first", "LIMIT=500, BLOCK=64, num_warps=4")
    assert text.names == [("first",), ("first",)]


def test_a_product_of_sizes_is_no_argument() -> None:
    kernels = [SPLIT.format(name=f"split_{rows}", rows=rows, columns=columns, product=rows * columns)
               for rows, columns in ((24, 32), (48, 20), (96, 80))]  # fmt: skip
    text = merge(kernels, launch("split_24 split_48 split_96", "num_warps=4"))
    (kernel,) = text.kernels
    assert "def split_24(x_ptr, y_ptr, M: tl.constexpr, SIZE: tl.constexpr):" in kernel
    assert "at = m * (SIZE * M) + k" in kernel
    assert text.forward[1] == "split_24[(1,)](x, y, M=48, SIZE=20, num_warps=4)"


def test_a_merged_helper_gets_its_numbers_from_its_callers() -> None:
    kernels = [text.format(name=name, size=size) for name, size in (("first", 48), ("second", 80)) for text in (HELPER, CALLER)]
    text = merge(kernels, launch("first second"))
    assert len(text.kernels) == 2 and "def first_part(x_ptr, i, X_STRIDE: tl.constexpr):" in text.kernels[0]
    assert "first_part(x_ptr, i, X_STRIDE)" in text.kernels[1] and "X_STRIDE=48" in text.forward[0] and "X_STRIDE=80" in text.forward[1]


@pytest.mark.parametrize("other", [
    scale("second", size=500, factor="3.5"),  # a fraction
    scale("second", size=500).replace("other=0.0", "other=1.0"),
    scale("second", size=500).replace("program_id(0)", "program_id(1)"),  # an axis
    scale("second", size=500).replace("    i = ", "    # of a block\n    i = "),  # explained otherwise
])  # fmt: skip
def test_other_differences_keep_kernels_apart(other: str) -> None:
    kernels = [scale("first", size=1000), other]
    text = merge(kernels, launch("first second"))
    assert text.kernels == kernels and text.forward == launch("first second")


def test_a_merged_kernel_keeps_its_comments() -> None:
    plain = (scale("first", size=1000), scale("second", size=500))
    kernels = [kernel.replace("    i = ", "    # of a block\n    i = ") for kernel in plain]
    (kernel,) = merge(kernels, launch("first second")).kernels
    assert "    # of a block\n" in kernel and print_function(parse_function(kernel)) == kernel
