"""What the Triton interpreter cannot run by itself: libdevice functions, a few lines of inline assembly, CUDA-only intrinsics.

Imports torch and Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton._C.libtriton import ir
from triton.language.extra import cuda as cuda_extra
from triton.language.extra import libdevice as generic_libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

from tritonsmith.evaluator.confined.interpreter.assembly import run_instruction
from tritonsmith.evaluator.confined.interpreter.numerics import (
    Array,
    Builder,
    TensorHandle,
    handle_like,
    is_bfloat16,
    values_of,
    wrap_torch_function,
)
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl

_UNARY: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh, "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10, x), "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "sqrt_rn": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "rsqrt_rn": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": wrap_torch_function(torch.erf), "erfc": wrap_torch_function(torch.erfc), "erfinv": wrap_torch_function(torch.erfinv),
    "lgamma": wrap_torch_function(torch.lgamma), "j0": wrap_torch_function(torch.special.bessel_j0),
    "j1": wrap_torch_function(torch.special.bessel_j1), "y0": wrap_torch_function(torch.special.bessel_y0),
    "y1": wrap_torch_function(torch.special.bessel_y1), "cyl_bessel_i0": wrap_torch_function(torch.special.i0),
    "cyl_bessel_i1": wrap_torch_function(torch.special.i1), "erfcx": wrap_torch_function(torch.special.erfcx),
    "normcdfinv": wrap_torch_function(torch.special.ndtri),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), "abs": np.abs, "fabs": np.abs,
    "fast_expf": np.exp, "fast_exp10f": lambda x: np.power(10, x), "fast_tanhf": np.tanh, "fast_logf": np.log, "fast_log2f": np.log2,
    "fast_log10f": np.log10, "fast_sinf": np.sin, "fast_cosf": np.cos, "fast_tanf": np.tan,
    "rcp_rn": lambda x: 1 / x, "normcdf": wrap_torch_function(torch.special.ndtr), "saturatef": lambda x: np.clip(x, 0, 1),
}  # fmt: skip
"""Functions of one argument."""
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power, "fast_powf": np.power, "atan2": np.arctan2, "fmod": np.fmod, "hypot": np.hypot, "copysign": np.copysign,
    "div_rn": np.divide, "fast_dividef": np.divide, "add_rn": np.add, "mul_rn": np.multiply, "sub_rn": np.subtract,
    "fdim": lambda x, y: np.maximum(x - y, 0), "nextafter": np.nextafter, "remainder": lambda x, y: x - np.rint(x / y) * y,
}  # fmt: skip
"""Functions of two arguments."""
_FMA = ("fma", "fma_rn")
"""Functions of three arguments: a product and a sum."""
_PREDICATES: dict[str, Callable[[Array], Array]] = {"isnan": np.isnan, "isinf": np.isinf, "isfinited": np.isfinite, "finitef": np.isfinite,
                                                      "signbit": np.signbit}
"""Functions that answer 0 or 1 as int32."""

_ASM_COMMENT = re.compile(r"//.*|/\*.*?\*/")
_ACQUIRE_LOAD = re.compile(r"ld\.acquire\.(?:gpu|sys)(?:\.global)?\.[bsu]32\s+\$0\s*,\s*\[\s*\$1(?:\s*\+\s*0)?\s*\]$")


def split_instructions(text: str) -> list[str]:
    """The instructions of an inline assembly text, comments and braces removed."""
    bare = _ASM_COMMENT.sub("", text)
    return [line.strip(" \n\t{}") for line in bare.split(";") if line.strip(" \n\t{}")]


def is_acquire_load(text: str) -> bool:
    """Whether inline assembly is one 32-bit load with acquire semantics and nothing else."""
    instructions = split_instructions(text)
    return len(instructions) == 1 and _ACQUIRE_LOAD.match(instructions[0]) is not None


class AsmResult:
    """What the front end expects back from inline assembly: one handle per output."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def get_result(self, _index: int) -> Any:
        """The handle of the only output."""
        return self._handle


def _create_inline_asm(
    self: Any, asm: str, _constraints: str, values: list[Any], types: list[Any], _is_pure: bool, _pack: int
) -> AsmResult:
    if is_acquire_load(asm) and len(values) == 1:
        pointers = values[0]
        as_words = TensorHandle(pointers.data, tl.pointer_type(types[0].scalar))
        mask = TensorHandle(np.ones(pointers.data.shape, dtype=bool), tl.int1)
        return AsmResult(self.create_acquire_load(as_words, mask))
    result = run_instruction(split_instructions(asm), [values_of(value) for value in values], interpreter._get_np_dtype(types[0]))
    if result is None or len(types) != 1 or any(is_bfloat16(value) for value in values):
        raise NotImplementedError(f"this inline assembly cannot be interpreted without a card: {asm.strip()!r}")
    counted = self.unary_op(values[0], lambda _: result)  # as any other arithmetic
    return AsmResult(TensorHandle(counted.data, types[0].scalar))


def _create_acquire_load(self: Any, pointers: Any, mask: Any) -> Any:
    """A load with acquire semantics; the concurrent schedule replaces it with one that is a switch point."""
    return self.create_masked_load(pointers, mask, None, None, None, True)


def _create_descriptor_reduce(self: Any, kind: Any, descriptor: Any, value: Any, indices: list[Any]) -> Any:
    """An atomic operation through a tensor descriptor; it orders nothing between programs."""
    pointers, mask = descriptor.materialize_pointers(indices)
    name, scalar = str(kind).rsplit(".", 1)[-1], value.dtype.scalar
    if name == "ADD" and scalar.is_floating():
        name = "FADD"
    elif name in ("MIN", "MAX") and not scalar.is_int_signed():
        name = f"U{name}"
    return self.create_atomic_rmw(getattr(ir.ATOMIC_OP, name), pointers, value, mask, ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU)


def _broadcast_operands(arguments: tuple[Any, ...]) -> list[Any]:
    semantic = interpreter.interpreter_semantic
    tensors = [semantic.to_tensor(argument) for argument in arguments]
    for index in range(1, len(tensors)):
        tensors[0], tensors[index] = semantic.broadcast_impl_value(tensors[0], tensors[index])
    return [tensors[0], *(semantic.broadcast_impl_value(tensors[0], tensor)[1] for tensor in tensors[1:])]


def _wrap_elementwise(function: Callable[..., Array], kind: Any = None) -> Callable[..., Any]:
    def call(*arguments: Any, _semantic: Any = None, **_options: Any) -> Any:
        tensors = _broadcast_operands(arguments)
        result = function(*(values_of(tensor.handle) for tensor in tensors))
        first = tensors[0]
        if kind is None:
            return tl.core.tensor(handle_like(result, first.handle.dtype), first.type)
        shape = list(first.shape)
        return tl.core.tensor(TensorHandle(result.astype(np.int32), kind), tl.block_type(kind, shape) if shape else kind)

    return call


def _install_functions() -> None:
    tables: list[tuple[dict[str, Any], Any]] = [(dict(_UNARY), None), (dict(_BINARY), None), (dict(_PREDICATES), tl.int32)]
    tables.append((dict.fromkeys(_FMA, lambda x, y, z: x * y + z), None))
    for module in (generic_libdevice, cuda_libdevice):
        for functions, kind in tables:
            for name, function in functions.items():
                if hasattr(module, name):
                    setattr(module, name, _wrap_elementwise(function, kind))


def _make_scalar(value: int, dtype: Any) -> Any:
    return tl.core.tensor(TensorHandle(np.array([value], interpreter._get_np_dtype(dtype)), dtype), dtype)


def _install_intrinsics() -> None:
    replacements: dict[str, Callable[..., Any]] = {
        "gdc_wait": lambda *_a, **_k: None,
        "gdc_launch_dependents": lambda *_a, **_k: None,
        "smid": lambda *_a, **_k: _make_scalar(0, tl.int32),
        "globaltimer": lambda *_a, **_k: _make_scalar(time.perf_counter_ns(), tl.int64),
    }
    for name, function in replacements.items():
        if hasattr(cuda_extra, name):
            setattr(cuda_extra, name, function)


def install_libdevice() -> None:
    """Give the interpreter libdevice, the known inline assembly and harmless stand-ins for CUDA intrinsics."""
    Builder.create_inline_asm = _create_inline_asm
    Builder.create_acquire_load = _create_acquire_load
    Builder.create_descriptor_reduce = _create_descriptor_reduce
    _install_functions()
    _install_intrinsics()
