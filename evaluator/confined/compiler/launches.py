"""Compiles every Triton launch of a forward for a named card, runs none, and reports what each kernel needs.

Imports torch and Triton: for the compiler process (`confined/compiler`), without TRITON_INTERPRET.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton.backends.nvidia
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import CompiledKernel
from triton.compiler.errors import CompilationError
from triton.runtime import _allocation
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import get_jit_fn_file_line

from tritonsmith.evaluator.cards.cards import resident_programs
from tritonsmith.evaluator.channel.compiled_text import count_instructions, digest_code
from tritonsmith.evaluator.channel.ir_counts import TensorBytes, count_work
from tritonsmith.evaluator.confined.stand_ins.driver import FakeDriver
from tritonsmith.evaluator.confined.stand_ins.untyped import JITFunction
from tritonsmith.evaluator.errors import StatusFault
from tritonsmith.evaluator.records.work import KernelWork
from tritonsmith.evaluator.schema import Hardware, KernelFacts, Status

_OBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
"""The tool that reads resources from a compiled kernel; Triton brings it."""
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
"""Registers, and bytes of stack, per thread in what cuobjdump prints."""
_MMA = re.compile(r"\b(?:wgmma|mma\.sync|tcgen05\.mma)")
"""Instructions of tensor cores in PTX."""
_GRID_LIMITS = ((1 << 31) - 1, 65535, 65535)
"""Programs per axis that CUDA launches at the most."""

_ZERO = re.compile(r"(%[\w#]+) = arith\.constant (?:dense<)?(?:0|false)\b")
"""Names in Triton's IR that stand for zero."""
_READ_MODIFY = re.compile(r"tt\.atomic_rmw (?:add|or|xor|umax), \w+, \w+, %[\w#]+, (%[\w#]+)")
"""Atomics that read and leave memory as it is where their operand, the group, is zero."""
_COMPARE_SWAP = re.compile(r"tt\.atomic_cas \w+, \w+, %[\w#]+, (%[\w#]+), (%[\w#]+)")
"""Compare-and-swap; it only reads where both operands are the same."""
_VOLATILE = re.compile(r"tt\.load .*isVolatile = true")
"""A load that the compiler may not keep in a register."""
_ASM_LOAD = re.compile(r"tt\.elementwise_inline_asm .*ld\.(?:acquire|volatile|relaxed)")
"""A load that reads memory anew, by inline assembly."""


class LaunchRefused(StatusFault):
    """A launch that cannot be compiled or made."""


class LaunchRecorder:
    """What the launches of a forward would be.

    Args:
        hardware: the card to compile for.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.refused: list[LaunchRefused] = []
        """Every refusal, also those that the candidate's own code caught."""
        self._counts: Counter[tuple[str, tuple[int, int, int]]] = Counter()
        self._work: dict[tuple[str, tuple[int, int, int]], KernelWork] = {}
        self._facts: dict[str, KernelFacts] = {}
        self._spins: dict[str, bool] = {}
        self._trying = False
        self._launching = ""
        """Name of the kernel that is compiled for a launch; empty where it is compiled for later, or for no program."""
        self.driver = FakeDriver(hardware, self._benchmark)

    def list_kernels(self) -> list[KernelFacts]:
        """One record per compiled kernel and grid, in order of first launch."""
        return [
            self._facts[key].model_copy(update={"launches": count, "grid": grid, "work": self._work.get((key, grid))})
            for (key, grid), count in self._counts.items()
        ]  # fmt: skip

    def forget_launches(self) -> None:
        """Count launches from here on; what was compiled stays known."""
        self._counts.clear()

    def _benchmark(self, call: Callable[[], object], **_options: object) -> list[float]:
        """The autotuner tries a configuration: compile it, and keep the first that fits."""
        self._trying = True
        try:
            call()
        finally:
            self._trying = False
        return [1.0, 1.0, 1.0]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Launches inside are compiled and recorded instead of made, also those of a kernel that `warmup` returned."""
        stock = JITFunction.run

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            if warmup:
                return self._compile(stock, function, args, grid, options)
            extent = _read_extent(function, args, grid, options)
            self._launching = function.fn.__name__ if 0 not in extent else ""
            try:
                compiled = self._compile(stock, function, args, grid, options)
            finally:
                self._launching = ""
            self._record(function, compiled, extent, (args, options))
            return compiled

        def make_ptx(backend: Any, source: Any, metadata: dict[str, Any], options: Any, capability: int) -> Any:
            if self._launching:  # the bytes are known by now, and the rest of a large kernel takes many seconds
                self._require_shared(self._launching, metadata["shared"], options.num_stages)
            return stock_ptx(backend, source, metadata, options, capability)

        def launcher(compiled: Any, grid: Any) -> Callable[..., None]:
            x, y, z = (tuple(int(extent) for extent in grid) + (1, 1, 1))[:3]
            return lambda *_arguments, stream=None: self._record(compiled.src.fn, compiled, (x, y, z))

        def launch(compiled: Any) -> Callable[..., None]:
            return lambda x, y, z, *_given: self._record(compiled.src.fn, compiled, (int(x), int(y), int(z)))

        names = ("_init_handles", "__getitem__", "run")
        outer, stock_ptx = {name: vars(CompiledKernel)[name] for name in names}, CUDABackend.make_ptx
        JITFunction.run, CUDABackend.make_ptx = run, make_ptx
        for name, mine in zip(names, (_take_numbers, launcher, property(launch)), strict=True):
            setattr(CompiledKernel, name, mine)
        try:
            yield
        finally:
            JITFunction.run, CUDABackend.make_ptx = stock, stock_ptx
            for name, theirs in outer.items():
                setattr(CompiledKernel, name, theirs)

    def _refuse(self, status: Status, message: str) -> LaunchRefused:
        refusal = LaunchRefused(status, message)
        self.refused.append(refusal)
        return refusal

    def _compile(self, stock: Any, function: Any, args: Any, grid: Any, options: dict[str, Any]) -> Any:
        try:
            return stock(function, *args, grid=grid, warmup=True, **options)
        except (CompilationError, PTXASError) as error:
            if self._trying:  # the autotuner drops this configuration by itself
                raise
            raise self._refuse(Status.COMPILE_ERROR, _describe_compile_error(function, error)) from error
        except KeyError as error:
            if "Keyword argument" in str(error):
                raise self._refuse(Status.COMPILE_ERROR, f"kernel {function.fn.__name__}: {error.args[0]}") from error
            raise

    def _record(
        self, function: Any, compiled: Any, extent: tuple[int, int, int], given: tuple[Any, dict[str, Any]] | None = None
    ) -> None:
        if 0 in extent:  # Triton launches nothing
            return
        if compiled.hash not in self._facts:
            self._facts[compiled.hash] = self._examine(function, compiled)
            self._spins[compiled.hash] = spins(compiled.asm["ttir"])
        facts = self._facts[compiled.hash]
        self._check(facts, compiled, extent)
        if not self._trying:
            key = (compiled.hash, extent)
            self._counts[key] += 1
            if given is not None and key not in self._work:  # of equal launches the first stands for all
                self._work[key] = count_work(compiled.asm["ttir"], _read_arguments(function, compiled, *given), extent)

    def _examine(self, function: Any, compiled: Any) -> KernelFacts:
        meta = compiled.metadata
        registers, spills = _read_resource_usage(compiled.asm["cubin"])
        return KernelFacts(
            name=function.fn.__name__,
            launches=0,
            num_warps=meta.num_warps,
            num_stages=meta.num_stages,
            constexprs=_read_constants(function, compiled),
            registers=registers,
            spills=spills,
            shared_memory=meta.shared,
            resident=resident_programs(self.hardware, registers=registers, shared=meta.shared, warps=meta.num_warps),
            cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
            tensor_cores=_MMA.search(compiled.asm["ptx"]) is not None,
            code=digest_code(compiled.asm["ptx"]),
            instructions=count_instructions(compiled.asm["ptx"]),
        )

    def _require_shared(self, kernel: str, shared: int, stages: int | None) -> None:
        """Refuse a launch that needs more shared memory than the card has."""
        card = self.hardware
        if shared <= card.shared_per_block:
            return
        if self._trying:
            raise OutOfResources(shared, card.shared_per_block, "shared memory")
        raise self._refuse(
            Status.LAUNCH_ERROR,
            f"kernel {kernel} needs {shared} bytes of shared memory, {card.name} has {card.shared_per_block} per program: "
            f"use smaller blocks or fewer stages than num_stages={stages}",
        )

    def _check(self, facts: KernelFacts, compiled: Any, extent: tuple[int, int, int]) -> None:
        """Refuse what the card would refuse or hang on."""
        card, shared = self.hardware, facts.shared_memory or 0
        self._require_shared(facts.name, shared, facts.num_stages)
        if any(size > limit for size, limit in zip(extent, _GRID_LIMITS, strict=True)):
            raise self._refuse(Status.LAUNCH_ERROR, f"kernel {facts.name}: grid {extent} is beyond the limits {_GRID_LIMITS}")
        programs, resident = extent[0] * extent[1] * extent[2], facts.resident or 0
        waits = facts.cooperative or self._spins[compiled.hash]
        if waits and programs > resident and not self._trying:
            why = "asks for a cooperative launch" if facts.cooperative else "waits in a loop for other programs"
            raise self._refuse(
                Status.LAUNCH_ERROR,
                f"kernel {facts.name} {why}, but only {resident} of its {programs} programs fit on {card.name} "
                f"at once ({facts.registers} registers x {facts.num_warps} warps, {shared} bytes of shared memory): "
                "it would not start or would hang",
            )
        needs_scratch = getattr(compiled.metadata, "global_scratch_size", 0) > 0
        if needs_scratch and type(_allocation._allocator.get()).__name__ == "NullAllocator":
            message = f"kernel {facts.name} makes tensor descriptors: call triton.set_allocator before the launch"
            raise self._refuse(Status.LAUNCH_ERROR, message)


def _bind(function: Any, args: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a launch by name, with defaults."""
    names = [parameter.name for parameter in function.params]
    bound = {parameter.name: parameter.default for parameter in function.params if parameter.has_default}
    return bound | dict(zip(names, args, strict=False)) | {name: value for name, value in options.items() if name in names}


def _read_arguments(function: Any, compiled: Any, args: Any, options: dict[str, Any]) -> dict[str, object]:
    """Arguments that the compiled kernel takes, in its order: numbers, and bytes of tensors."""
    bound = _bind(function, args, options)
    taken = [str(name) for name, kind in compiled.src.signature.items() if kind != "constexpr"]
    values = {name: getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value for name, value in bound.items()}
    return {
        name: TensorBytes(float(value.numel() * value.element_size())) if isinstance(value, torch.Tensor) else value
        for name in taken
        for value in (values.get(name),)
    }


def _read_extent(function: Any, args: Any, grid: Any, options: dict[str, Any]) -> tuple[int, int, int]:
    bound = _bind(function, args, options)
    x, y, z = (tuple(int(extent) for extent in (grid(bound) if callable(grid) else grid)) + (1, 1, 1))[:3]
    return x, y, z


def _read_constants(function: Any, compiled: Any) -> dict[str, Any]:
    """Values of the parameters declared tl.constexpr (not those Triton specialised on by itself)."""
    declared = {parameter.name for parameter in function.params if parameter.is_constexpr}
    constants = {}
    for key, value in compiled.src.constants.items():
        name = function.arg_names[key[0]] if isinstance(key, tuple) else str(key)
        if name in declared:
            constants[name] = value if isinstance(value, int | float | bool | str | None) else str(value)
    return constants


def _read_resource_usage(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack per thread (spills live on the stack)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([_OBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=False).stdout
    found = _USAGE.search(text)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing about registers: {text[:200]!r}")
    return int(found.group(1)), int(found.group(2))


def _take_numbers(compiled: Any) -> None:
    """Give a compiled kernel the numbers that loading it on the card would give: hosts ask how many programs fit there."""
    if compiled.module is None:
        registers, stack = _read_resource_usage(compiled.asm["cubin"])
        compiled.module, compiled.n_regs, compiled.n_spills, compiled.n_max_threads = True, registers, stack // 4, 1024


def _describe_compile_error(function: Any, error: CompilationError | PTXASError) -> str:
    name = function.fn.__name__
    node = getattr(error, "node", None)
    line = getattr(node, "lineno", None)
    if line is None:
        return f"kernel {name}: {error}"
    first_line = int(get_jit_fn_file_line(function)[1])
    reason, source = type(error).__name__, ""
    cause: BaseException | None = error
    while isinstance(cause, CompilationError):  # a helper's error hangs below the call in the kernel
        reason = cause.error_message or reason
        if cause.src and hasattr(cause.node, "lineno"):
            lines = cause.src.split("\n")  # of the helper, where the line may be counted from the caller's text
            source = lines[cause.node.lineno - 1].strip() if cause.node.lineno <= len(lines) else ""
        cause = cause.__cause__
    if cause is not None:
        reason = str(cause)
    return f"kernel {name}, line {first_line + line - 1}: {reason.strip()}\n    {source}"


def spins(ttir: str) -> bool:
    """Whether a kernel waits in a loop for other programs: a while loop that reads memory atomically without changing it.

    A spin lock (compare-and-swap that changes the word) and a work queue (atomic addition of a number) do not need all programs at once.
    """
    zeros = set(_ZERO.findall(ttir))
    depth, loops = 0, []
    for text in ttir.splitlines():
        line = text.strip()
        if "scf.while" in line:
            loops.append(depth)
        if loops and _is_poll(line, zeros):
            return True
        depth += line.count("{") - line.count("}")
        # `} do {` closes the condition and opens the body at the same depth: the loop ends when both are closed
        while loops and depth <= loops[-1] and not line.endswith("{"):
            loops.pop()
    return False


def _is_poll(line: str, zeros: set[str]) -> bool:
    if _VOLATILE.search(line) or _ASM_LOAD.search(line):
        return True
    if (change := _READ_MODIFY.search(line)) is not None:
        return change.group(1) in zeros
    if (swap := _COMPARE_SWAP.search(line)) is not None:
        return swap.group(1) == swap.group(2)
    return False
