"""Complex tensors as pairs of real ones, so that kernels know real numbers only. Fourier transforms stay PyTorch calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tritonsmith.author.compiler.ir.indices import Shape, count
from tritonsmith.author.compiler.ir.operators import A, B, C, D, Tree
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import Held, Joined, Tensor
from tritonsmith.author.compiler.lowering.calls import NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.patches import put
from tritonsmith.author.compiler.lowering.pointwise import constant, formula, select_where
from tritonsmith.author.compiler.lowering.views import pick, reshape
from tritonsmith.author.writes import PICKED, RESHAPED, SPLIT, TURNED, name_call
from tritonsmith.evaluator.schema import TensorSpec

COMPLEX, REAL = "complex64", "float32"
_EACH = (*RESHAPED, *TURNED, *SPLIT, *PICKED, "index_select", "gather", "take_along_dim", "sum", "mean", "cumsum", "neg", "flip", "roll",
         "cat", "concat", "concatenate", "stack", "repeat", "repeat_interleave", "clone", "contiguous", "detach", "broadcast_to", "unfold",
         "zeros_like", "pad", "tril", "triu", "diff")  # fmt: skip
"""Calls that do the same with both parts."""
_PRODUCTS = ("einsum", "matmul", "mm", "bmm", "mv", "dot", "tensordot", "outer")
_NAMES = {"truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "iadd": "add", "imul": "mul",
          "isub": "sub", "itruediv": "div", "absolute": "abs", "arg": "angle", "conj_physical": "conj", "resolve_conj": "identity",
          "to": "identity", "type": "identity"}  # fmt: skip
Make = Callable[[NodeCall], Any]


@dataclass(frozen=True, eq=False)
class ComplexPair:
    """A complex tensor."""

    real: Tensor
    imag: Tensor
    whole: Tensor | None = None
    """[..., 2], where both parts lie beside each other in memory."""

    @property
    def shape(self) -> Shape:
        """Of both parts."""
        return self.real.shape

    @property
    def size(self) -> int:
        """Elements of each part."""
        return count(self.shape)

    @property
    def dtype(self) -> str:
        """Of the tensor."""
        return COMPLEX

    @cached_property
    def stored(self) -> Tensor:
        """Both parts beside each other, [..., 2]."""
        if self.whole is not None:
            return self.whole
        parts = tuple(reshape(one, (*self.shape, 1)) for one in (self.real, self.imag))
        return Joined(shape=(*self.shape, 2), dtype=REAL, name="complex", parts=parts, axis=len(self.shape))


def split(whole: Tensor) -> ComplexPair:
    """The complex tensor that lies in memory as [..., 2]."""
    last = len(whole.shape) - 1
    return ComplexPair(pick(whole, last, 0), pick(whole, last, 1), whole)


def hold_complex(spec: TensorSpec, source: str, name: str) -> ComplexPair:
    """A parameter or a table of complex numbers."""
    return split(Held(shape=(*spec.shape, 2), dtype=REAL, name=name, source=f"torch.view_as_real({source})", path=name))


def concerns_complex(call: NodeCall) -> bool:
    """Whether a call takes or gives complex numbers."""
    given = any(isinstance(one, ComplexPair) for one in _flatten((call.args, *call.kwargs.values())))
    return given or any(spec.dtype == COMPLEX for spec in call.node.outputs)


def put_complex(source: ComplexPair, keys: list[Any], value: Any) -> ComplexPair:
    """The tensor after `source[keys] = value`. Raises NotCovered."""
    real, imag = _parts(value)
    return ComplexPair(put(source.real, keys, real), put(source.imag, keys, imag))


def lower_complex(call: NodeCall, make: Make) -> Any:
    """The value of such a call. Raises NotCovered where only PyTorch can do it.

    make: gives the value of a call of real numbers.
    """
    name = name_call(call.node).rstrip("_")
    name = _NAMES.get(name, name)
    if name == "getattr" and call.args[1] in ("real", "imag"):
        name = call.args[1]
    first = call.args[0] if call.args else None
    makers = {"view_as_complex": _view, "complex": _combine, "polar": _turn, "view_as_real": _show, "real": _part, "imag": _part,
              "abs": _size, "angle": _angle, "conj": _mirror, "exp": _raise, "mul": _multiply, "div": _divide, "add": _add, "sub": _add,
              "square": _square, "reciprocal": _invert}  # fmt: skip
    if name == "identity" and isinstance(first, ComplexPair):
        return first
    if name in ("zeros", "ones", "full", "new_zeros", "empty"):
        return _fill(call, name)
    if name in makers:
        return makers[name](call)
    if name == "where":
        condition, yes, no = call.args
        parts = zip(_parts(yes), _parts(no), strict=True)
        return ComplexPair(*(select_where(condition, one, other, REAL, call.shape) for one, other in parts))
    if name in _PRODUCTS:
        return _contract(call, make)
    if name in _EACH:
        return _do_each(call, make)
    raise NotCovered(f"on {COMPLEX}")


def _flatten(value: Any) -> list[Any]:
    return [one for part in value for one in _flatten(part)] if isinstance(value, list | tuple) else [value]


def _parts(value: Any) -> tuple[Any, Any]:
    """Real and imaginary part of an operand. Raises NotCovered for one that is neither tensor nor number."""
    if isinstance(value, ComplexPair):
        return value.real, value.imag
    if isinstance(value, complex):
        return value.real, value.imag
    if isinstance(value, Tensor):
        return value, constant(0, REAL, value.shape)
    if not isinstance(value, int | float):
        raise NotCovered(f"with {value!r}")
    return value, 0


def _real(call: NodeCall, place: int) -> Tensor:
    value = call.args[place]
    if not isinstance(value, Tensor) or value.dtype != REAL:
        raise NotCovered("of other numbers")
    return value


def _pair(call: NodeCall) -> ComplexPair:
    value = call.args[0] if call.args else call.kwargs.get("input")
    if not isinstance(value, ComplexPair):
        raise NotCovered("of other numbers")
    return value


def _compute(tree: Tree, *operands: Any, shape: Shape) -> Tensor:
    return formula(tree, *operands, like=REAL, shape=shape)


def _view(call: NodeCall) -> ComplexPair:
    return split(_real(call, 0))


def _combine(call: NodeCall) -> ComplexPair:
    real, imag = (_compute(A, _real(call, place), shape=call.shape) for place in (0, 1))
    return ComplexPair(real, imag)


def _turn(call: NodeCall) -> ComplexPair:
    size, angle = _real(call, 0), _real(call, 1)
    return ComplexPair(*(_compute(A * turn(B), size, angle, shape=call.shape) for turn in (Op.COS, Op.SIN)))


def _show(call: NodeCall) -> Tensor:
    return _pair(call).stored


def _part(call: NodeCall) -> Tensor:
    pair = _pair(call)
    name = call.args[1] if name_call(call.node) == "getattr" else name_call(call.node)
    return pair.real if name == "real" else pair.imag


def _size(call: NodeCall) -> Tensor:
    pair = _pair(call)
    return _compute(Op.HYPOT(A, B), pair.real, pair.imag, shape=call.shape)


def _angle(call: NodeCall) -> Tensor:
    pair = _pair(call)
    return _compute(Op.ATAN2(B, A), pair.real, pair.imag, shape=call.shape)


def _mirror(call: NodeCall) -> ComplexPair:
    pair = _pair(call)
    return ComplexPair(pair.real, _compute(-A, pair.imag, shape=call.shape))


def _raise(call: NodeCall) -> ComplexPair:
    pair = _pair(call)
    return ComplexPair(*(_compute(Op.FAST_EXP(A) * turn(B), pair.real, pair.imag, shape=call.shape) for turn in (Op.COS, Op.SIN)))


def _multiply_parts(left: Any, right: Any, shape: Shape) -> ComplexPair:
    (a, b), (c, d) = _parts(left), _parts(right)
    if not isinstance(right, ComplexPair | complex):
        return ComplexPair(_compute(A * B, a, c, shape=shape), _compute(A * B, b, c, shape=shape))
    if not isinstance(left, ComplexPair | complex):
        return ComplexPair(_compute(A * B, a, c, shape=shape), _compute(A * B, a, d, shape=shape))
    trees = (A * C - B * D, A * D + B * C)
    return ComplexPair(*(_compute(tree, a, b, c, d, shape=shape) for tree in trees))


def _multiply(call: NodeCall) -> ComplexPair:
    return _multiply_parts(call.args[0], call.args[1], call.shape)


def _square(call: NodeCall) -> ComplexPair:
    return _multiply_parts(call.args[0], call.args[0], call.shape)


def _invert_parts(pair: ComplexPair) -> ComplexPair:
    trees = (A / (A * A + B * B), -B / (A * A + B * B))
    return ComplexPair(*(_compute(tree, pair.real, pair.imag, shape=pair.shape) for tree in trees))


def _invert(call: NodeCall) -> ComplexPair:
    return _invert_parts(_pair(call))


def _divide(call: NodeCall) -> ComplexPair:
    left, right = call.args[:2]
    if isinstance(right, ComplexPair):
        return _multiply_parts(left, _invert_parts(right), call.shape)
    return ComplexPair(*(_compute(A / B, one, right, shape=call.shape) for one in _parts(left)))


def _add(call: NodeCall) -> ComplexPair:
    tree = A - B if "sub" in name_call(call.node) else A + B
    if call.kwargs.get("alpha", 1) != 1:
        raise NotCovered("with alpha")
    parts = zip(_parts(call.args[0]), _parts(call.args[1]), strict=True)
    return ComplexPair(*(_compute(tree, one, other, shape=call.shape) for one, other in parts))


def _fill(call: NodeCall, name: str) -> ComplexPair:
    number = call.get(1, "fill_value") if name == "full" else int(name == "ones")
    real, imag = _parts(number)
    return ComplexPair(constant(real, REAL, call.shape), constant(imag, REAL, call.shape))


def _take(value: Any, imag: bool) -> Any:
    """An argument with one part in place of each complex tensor."""
    if isinstance(value, list | tuple):
        return [_take(one, imag) for one in value]
    return _parts(value)[imag] if isinstance(value, ComplexPair) else value


def _make_real(call: NodeCall, make: Make, args: tuple[Any, ...], ending: str, kwargs: dict[str, Any]) -> Any:
    outputs = tuple(spec.model_copy(update={"dtype": REAL}) if spec.dtype == COMPLEX else spec for spec in call.node.outputs)
    node = call.node.model_copy(update={"name": f"{call.node.name}_{ending}", "outputs": outputs})
    return make(replace(call, node=node, args=args, kwargs=kwargs))


def _do_each(call: NodeCall, make: Make) -> Any:
    """The same with both parts. Raises NotCovered where real tensors are among complex ones."""
    if any(isinstance(one, Tensor) and one.dtype == REAL for one in _flatten((call.args, *call.kwargs.values()))):
        raise NotCovered("of real and complex tensors")
    found = [
        _make_real(call, make, tuple(_take(call.args, imag)), ending, {key: _take(one, imag) for key, one in call.kwargs.items()})
        for imag, ending in ((False, "real"), (True, "imag"))
    ]
    if isinstance(found[0], tuple):
        return tuple(ComplexPair(one, other) for one, other in zip(*found, strict=True))
    return ComplexPair(*found)


def _contract(call: NodeCall, make: Make) -> ComplexPair:
    """A product of two complex tensors as four of real ones, or two where one is real."""
    places = [place for place, one in enumerate(call.args) if isinstance(one, ComplexPair | Tensor)]
    if len(places) != 2:
        raise NotCovered("of other than two tensors")
    parts = [_parts(call.args[place]) if isinstance(call.args[place], ComplexPair) else (call.args[place], None) for place in places]

    def multiply(left: int, right: int) -> Tensor | None:
        one, other = parts[0][left], parts[1][right]
        if one is None or other is None:
            return None
        args = list(call.args)
        args[places[0]], args[places[1]] = one, other
        made = _make_real(call, make, tuple(args), f"{'ri'[left]}{'ri'[right]}", dict(call.kwargs))
        assert isinstance(made, Tensor), "a product is one tensor"
        return made

    def combine(one: Tensor | None, other: Tensor | None, tree: Tree) -> Tensor:
        if one is None or other is None:
            found = one if one is not None else other
            assert found is not None, "one operand is complex"
            return found
        return _compute(tree, one, other, shape=call.shape)

    return ComplexPair(combine(multiply(0, 0), multiply(1, 1), A - B), combine(multiply(0, 1), multiply(1, 0), A + B))
