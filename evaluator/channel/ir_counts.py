"""Counts the work of one launch from Triton's IR (TTIR): bytes, operations, trips of loops. No code runs.

The text is walked once per launch with the values of its integer arguments. Bounds of loops are computed where constants, arguments
and the program's place decide them; the program in the middle of the grid stands for all. A loop that only polls memory is a wait for
other programs. Where bounds depend on loaded values, the counts are unknown, and the answer says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tritonsmith.evaluator.records.work import KernelWork

_LOCATION = re.compile(r"\s+loc\((?:[^()]|\([^()]*\))*\)")
_ARGUMENT = re.compile(r"(%[\w.$-]+): (!?[\w.]+(?:<[^>]*>+)?)")
_RESULT = re.compile(r"^(%[\w.$-]+)(?::\d+)? = (.*)$")
_NAME = re.compile(r"%[\w.$-]+(?:#\d+)?")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(?:!tt\.ptr<)?((?:bf|f|i)\d\w*)")
_FOR = re.compile(r"scf\.for (?:unsigned )?(%[\w.$-]+) = (%[\w.$#-]+) to (%[\w.$#-]+) step (%[\w.$#-]+)")
_CARRIED = re.compile(r"(%[\w.$-]+) = (%[\w.$#-]+)")
_CONSTANT = re.compile(r"arith\.constant (-?\d+|true|false) ?")
_DOT_SHAPES = re.compile(r": \S*?tensor<([\dx]+?)x((?:bf|f|i)\w+)> \* \S*?tensor<([\dx]+?)x((?:bf|f|i)\w+)>")
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_SPECIAL = re.compile(r"math\.(?:exp|log|sqrt|rsqrt|sin|cos|tanh|pow)|arith\.divf|tt\.precise_sqrt|tt\.precise_divf")
_POLLS = re.compile(r"tt\.atomic|isVolatile = true|tt\.elementwise_inline_asm|tt\.atomic_poll")
_WEIGHTS = ((re.compile(r"math\.erf|math\.tanh|math\.pow|extern_elementwise"), 20.0), (re.compile(r"arith\.(?:div|rem)[su]i"), 12.0))
"""Threads' operations that some of the IR's operations become; every other one is 1."""
_CODES = re.compile(r"^(?:arith|math|tt\.extern_elementwise|tt\.clampf|tt\.mulhiui|tt\.precise)")
_FREE = re.compile(r"^arith\.(?:constant|extsi|extui|bitcast|index_cast)")
_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1, "i1": 1}

Number = float | None


class _UnknownError(Exception):
    """The text alone does not tell the counts."""


@dataclass
class _Counts:
    """What one program does."""

    by_operand: dict[str, list[float]] = field(default_factory=dict)
    """Bytes loaded and stored, by the pointer argument."""
    products: dict[str, float] = field(default_factory=dict)
    operations: float = 0.0
    special: float = 0.0
    rounds: float = 0.0
    reductions: float = 0.0
    waits: float = 0.0
    loads: bool = False
    repeated: float = 0.0
    """Bytes loaded once more in a later loop: by then the first loop has passed over the rest."""
    inner: dict[str, float] = field(default_factory=dict)
    """Most bytes that one loop of this block loaded, by operand."""

    @property
    def weight(self) -> float:
        """By which the heavier branch of a condition is chosen."""
        return sum(map(sum, self.by_operand.values())) + sum(self.products.values()) / 64 + self.operations + 1e3 * self.waits

    def add(self, other: _Counts, times: float) -> None:
        """Add what a block does, so many times."""
        for name, (loaded, stored) in other.by_operand.items():
            own = self.by_operand.setdefault(name, [0.0, 0.0])
            own[0], own[1] = own[0] + times * loaded, own[1] + times * stored
        for name, flops in other.products.items():
            self.products[name] = self.products.get(name, 0.0) + times * flops
        self.loads = self.loads or other.loads
        for name in ("repeated", "operations", "special", "rounds", "reductions", "waits"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))


def count_work(ir: str, arguments: Mapping[str, object], grid: tuple[int, int, int]) -> KernelWork:
    """Counts of one launch.

    Args:
        ir: TTIR of the compiled kernel, with its function inlined.
        arguments: by name, in the order of the signature and without constants: a number, or the bytes of a tensor as `TensorBytes`.
        grid: programs per axis.
    """
    lines = [_LOCATION.sub("", line).strip() for line in ir.splitlines()]
    begin = next((number for number, line in enumerate(lines) if line.startswith("tt.func public")), None)
    if begin is None or any(line.startswith("tt.func private") for line in lines):
        return KernelWork(unknown="the compiled text has functions of its own", arguments=len(arguments))
    walk = _Walk(lines, begin + 1, grid)
    names = _ARGUMENT.findall(lines[begin])
    for (name, _), (key, value) in zip(names, arguments.items(), strict=False):
        if isinstance(value, TensorBytes):
            walk.bases[name], walk.sizes[key] = key, value.bytes
        elif isinstance(value, bool | int | float):
            walk.values[name] = float(value)
    try:
        one = walk.block()
    except _UnknownError as error:
        return KernelWork(unknown=str(error), arguments=len(arguments))
    return _total(one, walk.sizes, math.prod(grid), len(arguments))


@dataclass(frozen=True)
class TensorBytes:
    """A tensor argument: bytes of what it can touch."""

    bytes: float


def _total(one: _Counts, sizes: Mapping[str, float], programs: int, arguments: int) -> KernelWork:
    loaded, stored = (sum(moved[side] for moved in one.by_operand.values()) * programs for side in (0, 1))
    unique = sum(
        min(part * programs, sizes.get(name, math.inf)) for name, moved in one.by_operand.items() for part in moved
    )  # fmt: skip
    products = {name: flops * programs for name, flops in one.products.items()}
    return KernelWork(
        bytes_loaded=loaded, bytes_stored=stored, unique_bytes=unique, repeated_bytes=one.repeated * programs,
        product_flops=sum(products.values()), product=max(products, key=lambda name: products[name], default=""),
        operations=one.operations * programs, special=one.special * programs, load_rounds=one.rounds, reductions=one.reductions,
        waits=one.waits, arguments=arguments,
        by_operand={name: sum(moved) * programs for name, moved in one.by_operand.items()},
    )  # fmt: skip


def _elements(kind: str) -> tuple[float, str]:
    """Elements and element type of the first tensor in a type; one of a scalar."""
    if found := _TENSOR.search(kind):
        return float(math.prod(int(size) for size in found[1].split("x") if size)), found[2]
    scalar = re.search(r"!tt\.ptr<(\w+)|\b(f64|f32|f16|bf16|i64|i32|i16|i8|i1)\b", kind)
    return 1.0, (scalar[1] or scalar[2]) if scalar else "i32"


class _Walk:
    """One pass over the body of a function."""

    def __init__(self, lines: list[str], at: int, grid: tuple[int, int, int]) -> None:
        self._lines, self._at, self._grid = lines, at, grid
        self.values: dict[str, Number] = {}
        """Numbers that are known."""
        self.bases: dict[str, str] = {}
        """The operand that a pointer points into."""
        self.sizes: dict[str, float] = {}
        self._rough: set[str] = set()
        """Numbers that depend on the program or on a loop: the middle stands for all."""

    def block(self) -> _Counts:
        """Counts of the lines up to the end of this block, which is consumed."""
        counts = _Counts()
        straight = False
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if line.startswith("}"):
                break
            before = counts.loads
            self._line(line, counts)
            straight = straight or (counts.loads and not before)
        counts.rounds += 1.0 if straight and not counts.rounds else 0.0
        return counts

    def _line(self, line: str, counts: _Counts) -> None:
        if not line or line.startswith(("^", "//", "#")):
            return
        found = _RESULT.match(line)
        name, code = (found[1], found[2]) if found else ("", line)
        if code.startswith("scf.for"):
            self._loop(code, name, counts)
        elif code.startswith("scf.while"):
            self._wait(counts)
        elif code.startswith("scf.if"):
            self._branch(code, counts)
        elif code.startswith('"tt.reduce"') or code.startswith('"tt.scan"') or code.endswith("({"):
            self._reduce(counts)
        elif code.startswith("tt.call"):
            raise _UnknownError("it calls a function that is not inlined")
        else:
            self._operation(name, code, counts)

    def _loop(self, code: str, result: str, counts: _Counts) -> None:
        head = _FOR.match(code)
        if head is None:
            raise _UnknownError("a loop has an unknown form")
        bounds = [self.values.get(name) for name in head.groups()[1:]]
        low, high, step = bounds
        if low is None or high is None or not step:
            raise _UnknownError("trips of a loop depend on values that only a run knows")
        rough = any(name in self._rough for name in head.groups()[1:])
        trips = max(0.0, (high - low) / step + (step - 1) / (2 * step)) if rough else max(0, math.ceil((high - low) / step))
        self.values[head[1]] = (low + max(low, high - step)) / 2
        self._rough.add(head[1])
        carried = _CARRIED.findall(code[head.end() :])
        for number, (inner, outer) in enumerate(carried):
            for known in (inner, f"{result}#{number}" if len(carried) > 1 else result):
                if outer in self.bases:
                    self.bases[known] = self.bases[outer]
        body = self.block()
        rounds = body.rounds or float(body.loads)
        body.rounds = rounds
        for base, (loaded, _) in body.by_operand.items():
            again = trips * loaded
            counts.repeated += min(again, counts.inner.get(base, 0.0))
            counts.inner[base] = max(again, counts.inner.get(base, 0.0))
        counts.add(body, trips)
        counts.loads = counts.loads or body.loads

    def _wait(self, counts: _Counts) -> None:
        """A loop without a known end: it polls, or nothing is known."""
        begin = self._at
        body = self.block()
        if self._lines[self._at - 1].startswith("} do"):
            body.add(self.block(), 1.0)
        text = self._lines[begin : self._at]
        if body.products or not any(_POLLS.search(line) for line in text):
            raise _UnknownError("a loop ends by values that only a run knows")
        counts.waits += 1.0

    def _branch(self, code: str, counts: _Counts) -> None:
        names = _NAME.findall(code)
        known = self.values.get(names[0]) if names and names[0] not in self._rough else None
        first = self.block()
        second = self.block() if self._lines[self._at - 1].startswith("} else") else _Counts()
        chosen = (first if known else second) if known is not None else max(first, second, key=lambda counts: counts.weight)
        counts.add(chosen, 1.0)

    def _reduce(self, counts: _Counts) -> None:
        body = self.block()
        end = self._lines[self._at - 1]
        elements, _ = _elements(end)
        counts.operations += elements * max(1.0, body.operations)
        counts.reductions += 1.0

    def _operation(self, name: str, code: str, counts: _Counts) -> None:
        kind = code.rsplit(" : ", 1)[-1]
        used = _NAME.findall(code)
        if "!tt.ptr" in kind or "tensordesc" in code:
            base = next((self.bases[one] for one in used if one in self.bases), "")
            if name and base:
                self.bases[name] = base
            self._memory(code, kind, base, counts)
        elif code.startswith("tt.dot"):
            self._product(code, counts)
        elif _CODES.match(code) and not _FREE.match(code):
            elements, element = _elements(kind)
            weight = next((weight for form, weight in _WEIGHTS if form.search(code)), 1.0)
            double = 2.0 if element in ("i64", "f64") and "tensor" in kind else 1.0
            counts.operations += elements * weight * double
            counts.special += elements if _SPECIAL.match(code) else 0.0
        if name and "tensor" not in kind:
            self._evaluate(name, code, used)

    def _memory(self, code: str, kind: str, base: str, counts: _Counts) -> None:
        loads = code.startswith(("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic"))
        stores = code.startswith(("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.atomic"))
        if not loads and not stores:
            return
        elements, element = _elements(kind)
        moved = elements * _BYTES.get(element, 1)
        own = counts.by_operand.setdefault(base, [0.0, 0.0])
        own[0] += moved if loads else 0.0
        own[1] += moved if stores else 0.0
        counts.loads = counts.loads or loads

    def _product(self, code: str, counts: _Counts) -> None:
        shapes = _DOT_SHAPES.search(code)
        if shapes is None:
            raise _UnknownError("a product has an unknown form")
        left, right = ([int(size) for size in shapes[group].split("x")] for group in (1, 3))
        flops = 2.0 * math.prod(left) * right[-1]
        precision = _PRECISION.search(code)
        kind = {"f16": "fp16", "bf16": "bf16"}.get(shapes[2], precision[1].lower() if precision and shapes[2] == "f32" else "ieee")
        kind = "fp8" if shapes[2].startswith("f8") else kind
        counts.products[kind] = counts.products.get(kind, 0.0) + flops * (3.0 if kind in ("tf32x3", "bf16x3") else 1.0)

    def _evaluate(self, name: str, code: str, used: list[str]) -> None:
        """Compute a whole number where what it is made of is known."""
        if constant := _CONSTANT.match(code):
            self.values[name] = {"true": 1.0, "false": 0.0}.get(constant[1]) if constant[1].isalpha() else float(constant[1])
            return
        if code.startswith(("tt.get_program_id", "tt.get_num_programs")):
            extent = self._grid["xyz".index(code.split()[1])]
            program = code.startswith("tt.get_program_id")
            self.values[name] = (extent - 1) / 2 if program else float(extent)
            if program and extent > 1:
                self._rough.add(name)
            return
        operation = code.split(" ", 1)[0]
        known = [self.values.get(one) for one in used]
        if operation == "arith.cmpi":
            operation = " ".join(code.split(" ", 2)[:2]).rstrip(",")
        compute = _COMPUTE.get(operation)
        if compute is None or any(value is None for value in known):
            return
        if any(one in self._rough for one in used):
            self._rough.add(name)
        try:
            self.values[name] = compute(*[value for value in known if value is not None], rough=name in self._rough)
        except (ZeroDivisionError, TypeError):
            self.values.pop(name, None)


def _divide(left: float, right: float, *, rough: bool) -> float:
    return left / right if rough else float(int(left / right))


def _take_remainder(left: float, right: float, *, rough: bool) -> float:
    """The remainder; of a middle that stands for all numbers up to its double, the middle of the remainders where these are all there."""
    return (right - 1.0) / 2.0 if rough and 2.0 * left >= right - 1.0 > 0.0 else math.fmod(left, right)


def _plain(function: Callable[..., float]) -> Callable[..., float]:
    return lambda *values, rough: float(function(*values))


_COMPUTE: dict[str, Callable[..., float]] = {
    "arith.addi": _plain(lambda a, b: a + b), "arith.subi": _plain(lambda a, b: a - b), "arith.muli": _plain(lambda a, b: a * b),
    "arith.divsi": _divide, "arith.divui": _divide, "arith.remsi": _take_remainder, "arith.remui": _take_remainder,
    "arith.ceildivsi": lambda a, b, rough: a / b if rough else float(math.ceil(a / b)),
    "arith.minsi": _plain(min), "arith.maxsi": _plain(max), "arith.minui": _plain(min), "arith.maxui": _plain(max),
    "arith.extsi": _plain(lambda a: a), "arith.extui": _plain(lambda a: a), "arith.trunci": _plain(lambda a: a),
    "arith.index_cast": _plain(lambda a: a), "arith.select": _plain(lambda c, a, b: a if c else b),
    "arith.andi": _plain(lambda a, b: float(int(a) & int(b))), "arith.ori": _plain(lambda a, b: float(int(a) | int(b))),
    "arith.cmpi slt": _plain(lambda a, b: a < b), "arith.cmpi sle": _plain(lambda a, b: a <= b),
    "arith.cmpi sgt": _plain(lambda a, b: a > b), "arith.cmpi sge": _plain(lambda a, b: a >= b),
    "arith.cmpi eq": _plain(lambda a, b: a == b), "arith.cmpi ne": _plain(lambda a, b: a != b),
}  # fmt: skip
