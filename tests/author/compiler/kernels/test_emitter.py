"""The emitter: elements of values as records, each once, as far out as it can be."""

from __future__ import annotations

from tritonsmith.author.compiler.ir.code import Assign, Call, Expression, For, Keyword, Name
from tritonsmith.author.compiler.ir.indices import Guard, Index, variable
from tritonsmith.author.compiler.ir.operators import A, B, Constant, Operator, Tree
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.template import statements
from tritonsmith.author.compiler.ir.values import Formula, Held, Joined, Tensor, TensorView
from tritonsmith.author.compiler.ir.walk import iterate
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.pieces import loop

ROW, PLACE = variable("row", 8), variable("k", 100)
INSIDE = parse_expression("inside")


def _open(bounds: dict[str, Expression | None] | None = None) -> Emitter:
    return Emitter(Arguments(), lambda value: isinstance(value, Held), bounds or {}, frozenset(("row",)))


def _hold(*shape: int, name: str = "x", dtype: str = "float32") -> Held:
    return Held(shape=shape, dtype=dtype, name=name, source=name)


def _compute(expression: Tree, *inputs: Tensor, name: str = "") -> Formula:
    return Formula(shape=inputs[0].shape if inputs else (), dtype="float32", expression=expression, inputs=inputs, name=name)


def test_an_element_is_read_once() -> None:
    emitter, x = _open(), _hold(8, 100)
    total = emitter.read(_compute(A * A + B, x, x), (ROW, PLACE))
    assert tuple(emitter.scopes[0].lines) == statements("x = tl.load(x_ptr + row * 100 + k)\nt = x * x + x")
    assert total == Name("t") and emitter.depends(total) == {"row", "k"}


def test_what_a_loop_does_not_change_is_read_ahead_of_it() -> None:
    emitter = _open()
    emitter.open(frozenset(("k",)))
    emitter.read(_compute(A * Operator.FAST_EXP(B), _hold(8, 100), _hold(8, 1, name="scale")), (ROW, PLACE))
    emitter.close(loop("k", 100))
    scale, head = emitter.scopes[0].lines
    assert (scale,) == statements("scale = tl.load(scale_ptr + row)")
    assert isinstance(head, For) and head.body == statements("x = tl.load(x_ptr + row * 100 + k)\nt = x * tl.exp(scale)")


def test_a_read_has_the_bounds_of_its_own_variables() -> None:
    emitter = _open({"row": INSIDE, "k": parse_expression("(k < 100)")})
    emitter.read(_hold(100), (PLACE,))
    emitter.read(_hold(8, 100, name="y"), (ROW, PLACE))
    masks = [part.value for line in emitter.scopes[0].lines for part in iterate(line) if isinstance(part, Keyword) and part.name == "mask"]
    assert masks == [parse_expression("(k < 100)"), parse_expression("inside & (k < 100)")]


def test_guards_are_masks_in_memory_and_choices_elsewhere() -> None:
    def view(source: Tensor) -> TensorView:
        return TensorView(
            shape=(100,), dtype="float32", source=source, move=lambda at: (at[0] - 2,), guard=lambda at: (Guard(at[0] - 2, 0, 90),),
            fill=Constant(float("-inf")),
        )  # fmt: skip

    emitter = _open()
    emitter.read(view(_hold(90)), (PLACE,))
    emitter.read(view(_compute(Operator.FAST_EXP(A), _hold(90, name="y"))), (PLACE,))
    assert tuple(emitter.scopes[0].lines) == statements("""
t = tl.load(x_ptr + k - 2, mask=(k - 2 >= 0) & (k - 2 < 90), other=float("-inf"))
y = tl.load(y_ptr + k - 2, mask=(k - 2 >= 0) & (k - 2 < 90), other=0.0)
t_1 = tl.exp(y)
t_2 = tl.where((k - 2 >= 0) & (k - 2 < 90), t_1, float("-inf"))
""")


def test_parts_behind_each_other_are_chosen_by_place() -> None:
    emitter = _open()
    parts = (_hold(60), _hold(40, name="y"))
    emitter.read(Joined(shape=(100,), dtype="float32", parts=parts, axis=0), (PLACE,))
    chosen = emitter.scopes[0].lines[-1]
    assert (chosen,) == statements("t = tl.where(k < 60, x, y)")


def test_halves_are_read_in_fp32_and_numbers_get_methods() -> None:
    emitter = _open()
    emitter.read(_hold(100, dtype="float16"), (PLACE,))
    two = Formula(shape=(), dtype="float32", expression=Constant(2.0))
    emitter.read(_compute(A.to("int32") + B, two, two), ())
    assert tuple(emitter.scopes[0].lines) == statements("""
x = tl.load(x_ptr + k).to(tl.float32)
t = tl.full((), 2.0, tl.float32).to(tl.int32) + 2.0
""")


def test_an_address_is_one_sum_from_the_left() -> None:
    emitter, x = _open(), _hold(8, 100)
    index = PLACE * 3 + ROW // 4 * 5 - 7
    assert emitter.address(x, index) == parse_expression("x_ptr + (row // 4) * 5 + k * 3 - 7")
    assert emitter.address(x, Index()) == Name("x_ptr")


def test_a_store_says_its_mask_and_options() -> None:
    emitter = _open({"k": INSIDE})
    emitter.store(_hold(100), PLACE, Name("total"), frozenset(("k",)))
    (line,) = emitter.scopes[0].lines
    call = next(part for part in iterate(line) if isinstance(part, Call))
    assert not isinstance(line, Assign) and call == parse_expression("tl.store(x_ptr + k, total, mask=inside)")
