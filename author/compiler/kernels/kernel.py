"""A kernel, and how forward launches it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tritonsmith.author.compiler.ir.code import (
    Binary,
    Call,
    Decorator,
    Evaluate,
    Expression,
    Function,
    Name,
    Node,
    Number,
    Parameter,
    Statement,
    String,
)  # fmt: skip
from tritonsmith.author.compiler.ir.template import expression
from tritonsmith.author.compiler.ir.values import Held, Tensor
from tritonsmith.author.compiler.ir.walk import iterate, names_in, replace
from tritonsmith.author.compiler.kernels.pieces import reads, stores

_JIT, _CALLED = Decorator(expression("triton.jit")), Decorator(expression("triton.jit(noinline=True)"))
_CONSTANT = expression("tl.constexpr")


@dataclass
class Kernel:
    """A kernel, and how forward launches it."""

    name: str
    does: str
    """One line for its docstring."""
    arguments: list[tuple[str, Tensor]]
    sizes: list[tuple[str, Expression]]
    """Numbers that it takes: names, and what forward gives for them."""
    constants: list[tuple[str, int]]
    """Its constexpr arguments with their values."""
    body: Sequence[Statement]
    grid: Expression
    stores: list[Tensor] = field(default_factory=list)
    """What forward allocates for it."""
    warps: int = 4
    stages: int = 0
    registers: int = 0
    """Of a thread, at most; 0 where the compiler decides."""
    cooperative: bool = False
    """Whether all programs must be on the card at once."""
    ahead: Function | None = None
    """A function that it calls."""
    parts: KeptParts | None = None
    """A parameter that is split ahead of it."""
    packed: PackedWeights | None = None
    """Weights that it reads out of one buffer."""
    described: frozenset[int] = frozenset()
    """Values, by identity, of which it makes tensor descriptors: their memory begins at a multiple of 16 bytes."""

    def function(self, does: str = "") -> Function:
        """The record of its function. `does`: what its docstring says where the kernel has none."""
        names = [*(name for name, _ in self.arguments), *(name for name, _ in self.sizes)]
        return make_function(self.name, names, [name for name, _ in self.constants], self.does or does, self.body)


def make_function(
    name: str, names: Iterable[str], constants: Iterable[str], does: str, body: Iterable[Statement], inlined: bool = True
) -> Function:
    """The record of a function for the device.

    Args:
        name: of the function.
        names: of what it takes.
        constants: what it takes besides, known when it is compiled.
        does: what its docstring says.
        body: its statements.
        inlined: whether it may be put into the kernel that calls it, where its registers count.
    """
    parameters = [*map(Parameter, names), *(Parameter(constant, _CONSTANT) for constant in constants)]
    docstring = Evaluate(String(f'"""{does}"""'))
    return Function((_JIT if inlined else _CALLED,), name, tuple(parameters), None, (docstring, *body))


@dataclass(eq=False, kw_only=True)
class Buffer(Tensor):
    """Memory between two kernels of one region, or between the programs of one."""

    zeroed: bool = False


@dataclass
class KeptParts:
    """Parts of a parameter, and the kernel that makes them."""

    function: Function
    """The kernel."""
    held: Held
    parts: Buffer
    """[high and low, and maybe high times 2^11, batch, lines, places]: taps one behind the other, each with zeros up to whole blocks."""
    exponents: Buffer
    """[batch, lines]: the powers of two."""

    @property
    def apart(self) -> int:
        """Elements between the high part of a value and its low part."""
        return self.parts.size // self.parts.shape[0]


@dataclass
class PackedWeights:
    """Parameters of one shape in one buffer, one behind the other: a kernel reads them as one tensor."""

    weights: tuple[Held, ...]
    buffer: Buffer
    """[weights, *their shape]."""


def share_quotients(lines: Iterable[Statement], place: str, first: str, block: int) -> list[Statement]:
    """Lines with `first // n` for `place // n` where no block crosses a multiple of n: computed once, and what they read is read once.

    place: the variable of the elements' places, `block` of them from `first`, a multiple of `block`, on.
    """

    def share(part: Node) -> Node:
        match part:
            case Binary(left=Name(name=name), operator="//", right=Number(value=int() as size)) if name == place and size % block == 0:
                return Binary(Name(first), "//", part.right)
        return part

    varying = {place, "inside", "valid"}
    return [line if stores(line) or _is_one_under_many(line, changed, varying) else changed
            for line in lines for changed in [replace(line, share)]]  # fmt: skip


def _is_one_under_many(line: Statement, changed: Statement, varying: set[str]) -> bool:
    """Whether a load would have one pointer and a mask for many, which Triton does not take."""
    loads = [call for part in iterate(changed) if isinstance(part, Call) and (call := reads(part)) is part]
    return changed is not line and any(
        call.keywords and varying & names_in(call.keywords[0]) and not varying & names_in(call.arguments[0]) for call in loads
    )
