"""The records of kernels: rows, elements, scatters, recurrent layers, attention and products."""

from __future__ import annotations

import pytest

from recipe_cases.reading import plan_of
from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    PointwiseRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    ScatterRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.ir.code import Call, Evaluate, For, If, Name, Statement
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.printer import print_statements
from tritonsmith.author.compiler.ir.template import statements
from tritonsmith.author.compiler.ir.walk import iterate, names_in, rename, substitute
from tritonsmith.author.compiler.kernels.accumulators import write_steps
from tritonsmith.author.compiler.kernels.attention.attention import write_attention
from tritonsmith.author.compiler.kernels.kernel import Kernel, share_quotients
from tritonsmith.author.compiler.kernels.pieces import add
from tritonsmith.author.compiler.kernels.pointwise import write_pointwise, write_scatter
from tritonsmith.author.compiler.kernels.products import write_product
from tritonsmith.author.compiler.kernels.rows import write_rows
from tritonsmith.author.compiler.kernels.schemes import SPLIT, SumText, accumulate
from tritonsmith.author.compiler.kernels.split import write_split
from tritonsmith.author.compiler.plan import PLAIN

SETTINGS = {"block": 1024, "num_warps": 4, "tile": 4096, "per_thread": 16, "whole_row": 16384, "parts": 2}
_STORE = parse_expression("tl.store")


def _cut(kind: type[WorkRegion], forward: str, inputs: str, **rest: str) -> WorkRegion:
    return next(region for region in plan_of(forward, inputs, **rest).regions if isinstance(region, kind))


def _write_rows(forward: str, inputs: str, **settings: int) -> Kernel:
    region = _cut(RowRegion, forward, inputs)
    assert isinstance(region, RowRegion)
    (kernel,) = write_rows(region, "rows", SETTINGS | settings)
    return kernel


def _list_loads(function: Statement) -> list[Call]:
    return [part for part in iterate(function) if isinstance(part, Call) and part.function == parse_expression("tl.load")]


def test_a_row_that_a_program_holds_is_read_once() -> None:
    kernel = _write_rows("return x.softmax(-1)", "torch.randn(64, 3000)")
    function = kernel.function("softmax")
    (load,) = _list_loads(function)
    assert dict(kernel.constants) == {"BLOCK": 4096} and "valid" in names_in(load)
    assert [parameter.name for parameter in function.parameters][-1] == "BLOCK" and function.docstring is not None
    assert not any(isinstance(line, For) for line in function.body)


def test_a_long_row_is_gone_through_in_blocks() -> None:
    kernel = _write_rows("return x.softmax(-1)", "torch.randn(2000, 4096)", whole_row=1024, tile=512)
    loops = [line for line in kernel.body if isinstance(line, For)]
    assert [line.source for line in loops] == [parse_expression("range(0, 4096, BLOCK)")] * 2
    hints = [keyword.name for load in _list_loads(kernel.function()) for keyword in load.keywords]
    assert hints == ["eviction_policy"] * 2 and "valid" not in {name for line in loops for name in names_in(line)}


def test_several_programs_share_a_row_and_a_second_kernel_joins_it() -> None:
    region = _cut(RowRegion, "return x.sum(-1)", "torch.randn(2, 1000000)")
    assert isinstance(region, RowRegion) and region.split
    first, join = write_split(region, "total", SETTINGS)
    assert first.body[0] == statements("row = tl.program_id(0) // PARTS")[0]
    assert {"begin", "end"} <= names_in(first.function()) and first.grid != join.grid
    assert statements("sum = tl.sum(sum_parts, 0)")[0] in join.body


def test_elements_have_a_bound_only_where_the_last_block_is_not_full() -> None:
    written = {}
    for size in (4096, 4097):
        region = _cut(PointwiseRegion, "return x * 2 + 1", f"torch.randn({size})")
        assert isinstance(region, PointwiseRegion)
        region.free = False
        (kernel,) = write_pointwise(region, "double", SETTINGS, lambda value, reads=region.reads: id(value) in reads)
        written[size] = kernel
    assert written[4096].grid == parse_expression("(4,)") and written[4097].grid == parse_expression("(5,)")
    assert "inside" not in names_in(written[4096].function()) and "inside" in names_in(written[4097].function())


def test_elements_that_meet_at_a_place_are_added_there() -> None:
    region = _cut(ScatterRegion, "return x.index_add(0, y, x)", "torch.randn(64, 8), torch.arange(64)", arguments="x, y")
    assert isinstance(region, ScatterRegion)
    (kernel,) = write_scatter(region, "meet", SETTINGS, lambda value: id(value) in region.reads)
    add = parse_expression("tl.atomic_add")
    (added,) = [part for part in iterate(kernel.function()) if isinstance(part, Call) and part.function == add]
    assert [keyword.name for keyword in added.keywords] == ["mask", "sem"]


def test_a_recurrent_layer_is_one_loop_over_steps() -> None:
    region = _cut(RecurrentRegion, "return self.g(x)[0]", "torch.randn(5, 3, 20)", init="self.g = nn.GRU(20, 24)")
    assert isinstance(region, RecurrentRegion)
    (kernel,) = write_steps(region, "steps")
    steps = kernel.body[-1]
    assert isinstance(steps, For) and steps.source == parse_expression("range(5)")
    assert {"reset", "update", "new"} <= names_in(steps) and "forget" not in names_in(steps)
    assert steps.body[-2].comment and steps.body[-1] == statements("previous = here")[0]


def _write_attention(forward: str, keys: int, **settings: int | str) -> list[Kernel]:
    heads = ", ".join([f"torch.randn(2, 3, {keys}, 160)"] * 3)
    region = _cut(AttentionRegion, forward, heads, arguments="q, k, v")
    assert isinstance(region, AttentionRegion)
    return write_attention(region, "attend", PLAIN | settings)


def _list_loops(kernel: Kernel) -> list[For]:
    return [node for node in kernel.body if isinstance(node, For)]


def test_a_causal_attention_masks_only_the_last_keys() -> None:
    causal = "return F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    (kernel,) = _write_attention(causal, 200, attention_products="tf32x3", key_rows=64)
    seen, masked = _list_loops(kernel)
    assert [part.source for part in (seen, masked)] == [
        parse_expression("range(0, clear, BLOCK_N)"), parse_expression("range(clear, last, BLOCK_N)"),
    ]  # fmt: skip
    assert parse_expression("tl.where") in iterate(masked) and parse_expression("tl.where") not in iterate(seen)


def test_parts_of_keys_and_values_are_read_where_they_are_stored() -> None:
    ahead, kernel = _write_attention("return (q@k.mT).softmax(-1)@v", 200, query_rows=32, key_rows=64)
    (loop,) = _list_loops(kernel)
    calls = [node.value for node in ahead.body if isinstance(node, Evaluate) and isinstance(node.value, Call)]
    stored = {substitute(call.arguments[0], {"block": parse_expression("start // BLOCK_N")}) for call in calls}
    as_stored = {"n": "n_down", "d0_down": "d0", "d1_down": "d1"}
    assert stored == {rename(load.arguments[0], as_stored) for load in _list_loads(loop)}
    assert len(stored) == 2 * 2 * 3, "of keys and of values two pieces, each with both parts and the factors"


def _write_product(forward: str, inputs: str, init: str = "pass", **settings: int | str) -> list[Kernel]:
    region = _cut(ProductRegion, forward, inputs, init=init)
    assert isinstance(region, ProductRegion)
    return write_product(region, "multiply", PLAIN | settings, {})


def test_a_product_in_parts_does_a_rough_tile_again_with_the_values_themselves() -> None:
    *_, kernel = _write_product("return x @ x.mT", "torch.randn(100, 300)")
    assert isinstance(kernel.body[-1], If) and kernel.ahead is not None
    (rough,) = kernel.body[-1].branches
    (call,) = [line.value for line in rough.body if isinstance(line, Evaluate) and names_in(line) & {kernel.ahead.name}]
    assert isinstance(call, Call) and [*map(Name, [parameter.name for parameter in kernel.ahead.parameters])][:-1] == [*call.arguments[:-1]]
    (exact,) = [line for line in kernel.ahead.body if isinstance(line, For)]
    assert exact.source == parse_expression("range(0, 300, STEP)") and "split_value" not in names_in(exact)


def test_a_parameter_of_a_product_is_split_once_and_kept() -> None:
    *_, kernel = _write_product("return self.f(x)", "torch.randn(500, 300)", init="self.f = nn.Linear(300, 70)")
    assert kernel.parts is not None and kernel.parts.parts.shape == (2, 1, 70, 320)
    stores = [node.arguments[0] for node in iterate(kernel.parts.function) if isinstance(node, Call) and node.function == _STORE]
    assert stores[:2] == [parse_expression("parts_ptr + m * 320 + across"), parse_expression("parts_ptr + 22400 + m * 320 + across")]
    (loop,) = _list_loops(kernel)
    assert {"right_high", "right_low"} <= names_in(loop) and "right" not in names_in(loop)


def test_a_short_convolution_goes_through_its_tiles_twice_where_parts_do_not_do() -> None:
    made = _write_product("return self.c(x).relu()", "torch.randn(16, 8, 64, 64)", init="self.c = nn.Conv2d(8, 64, 3)")
    tiles, again = made[-1].body[-2:]
    assert isinstance(tiles, For) and isinstance(again, If) and again.branches[0].comment
    (turns,) = [line for line in again.branches[0].body if isinstance(line, For)]
    assert turns.source == tiles.source and "GROUP" not in dict(made[-1].constants)
    dots = [node for node in iterate(tiles) if isinstance(node, Call) and node.function == parse_expression("tl.dot")]
    assert len(dots) == 3 * -(-72 // 16) and len(dots[0].arguments) == 2 and len(dots[1].arguments) == 3


@pytest.mark.parametrize(("scheme", "dots"), [("ieee", 1), ("tf32x3", 1), ("fp16", 1), ("fp16x3", 3)])
def test_schemes_multiply_as_often_as_they_say(scheme: str, dots: int) -> None:
    lines = accumulate(scheme, ("a", "b"), (False, True))
    assert sum(node == parse_expression("tl.dot") for line in lines for node in iterate(line)) == dots
    names = {name for line in lines for name in names_in(line)}
    assert ("a_high" in names) == ("b_high" in names) == (scheme in SPLIT) and ("b" in names) == (scheme not in SPLIT)
    assert SumText().accumulate(scheme, "a", "b") == print_statements(accumulate(scheme, ("a", "b"), (False, False)))


def test_a_sum_is_written_from_the_left_without_what_is_missing() -> None:
    inner = parse_expression("i * 4 + j")
    assert add(Name("p"), None, 0, inner, 8) == parse_expression("p + i * 4 + j + 8") and add(0, None) == parse_expression("0")


def test_a_quotient_that_a_block_does_not_change_is_shared() -> None:
    lines = statements("""
x = tl.load(x_ptr + k // 512)
y = tl.load(y_ptr + k // 512, mask=inside, other=0.0)
z = x + k // 100
tl.store(z_ptr + k // 512, z)
""")
    shared = share_quotients(lines, "k", "first", 256)
    assert shared[0] == statements("x = tl.load(x_ptr + first // 512)")[0]
    assert shared[1:] == list(lines[1:]) and Name("first") not in iterate(shared[2])
