"""The text of a module: its kernels, its members and its forward."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    CallRegion,
    PointwiseRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    ScatterRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.fusing.space import ACROSS, BATCH, COLUMN, LINE, TAP
from tritonsmith.author.compiler.ir.operators import Constant
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.scatter import Scatter
from tritonsmith.author.compiler.ir.values import Formula, Held, Item, Joined, Tensor, TensorView
from tritonsmith.author.compiler.kernels.accumulators import write_steps
from tritonsmith.author.compiler.kernels.attention.attention import write_attention
from tritonsmith.author.compiler.kernels.held import is_held, write_held
from tritonsmith.author.compiler.kernels.kernel import Buffer, KeptParts, Kernel, fold, wrap
from tritonsmith.author.compiler.kernels.names import Namer, list_operations
from tritonsmith.author.compiler.kernels.pointwise import write_pointwise, write_scatter
from tritonsmith.author.compiler.kernels.product_kernels import write_product
from tritonsmith.author.compiler.kernels.product_parts import FreshParts
from tritonsmith.author.compiler.kernels.product_tiles import SIZES, number_products, pick_settings
from tritonsmith.author.compiler.kernels.rows import write_rows
from tritonsmith.author.compiler.kernels.split import write_split
from tritonsmith.author.compiler.module.equal_kernels import SharedTexts
from tritonsmith.author.compiler.reading.complexes import ComplexPair
from tritonsmith.author.compiler.reading.reader import Forward, NamedValues, list_values
from tritonsmith.author.members import attribute
from tritonsmith.author.recipe import Settings
from tritonsmith.evaluator.schema import TensorSpec

_HELPERS = ("sigmoid", "tanh", "softplus", "mish", "multiply", "larger", "smaller", "add_logs", "floor_quotient", "floor_remainder",
            "real_quotient", "real_remainder", "as_key", "from_key", "split_lines", "split_value", "split_alike", "leaves_range",
            "wait_until")  # fmt: skip


@dataclass
class SizedForward:
    """A forward for some sizes of the inputs."""

    lines: list[str]
    returned: str
    right: str
    """Whether inputs have such sizes."""
    wrong: str
    """Whether they have others."""
    made_for: str
    """The sizes in words."""


@dataclass
class ModuleText:
    """The parts of a module's text."""

    kernels: list[str] = field(default_factory=list)
    """The text of each kernel."""
    forward: list[str] = field(default_factory=list)
    returned: str = ""
    helpers: tuple[str, ...] = ()
    libdevice: bool = False
    functional: bool = False
    names: list[tuple[str, ...]] = field(default_factory=list)
    """For each region: the names of its kernels. Regions that differ in their tensors alone share kernels."""
    keeps: bool = False
    """Whether parts of parameters are kept."""
    keeps_numbers: bool = False
    """Whether kernels that make such parts take numbers besides."""
    records: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Named tuples that forward returns, with their fields."""
    first: str = ""
    """A kernel, to be asked whether it is compiled."""
    wrong: str = ""
    """Whether forward got something that the kernels are not made for."""
    made_for: str = ""
    """What they are made for, in words."""
    sized: list[SizedForward] = field(default_factory=list)
    """The forwards for other sizes each, where one does not do for all."""
    missed: list[int] = field(default_factory=list)
    """Long spans of sizes, by their number, that it is not for."""


_DEVICE = 'next((one.device for one in (*self.parameters(), *self.buffers())), torch.device("cuda" if COMPILED else "cpu"))'
"""Expression of where a forward that is given no tensor computes: where its tensors lie, or else where its kernels run."""


def write_regions(regions: Sequence[WorkRegion], forward: Forward, settings: Settings, taken: set[str]) -> ModuleText:
    """The text of all regions."""
    return ModuleWriter(regions, forward, settings, taken).write()


class ModuleWriter:
    """Writes regions in the order of forward."""

    def __init__(self, regions: Sequence[WorkRegion], forward: Forward, settings: Settings, taken: set[str]) -> None:
        self.regions, self.forward, self.settings = regions, forward, settings
        self.kernel_names, self.locals = Namer(set()), Namer(taken)
        self.variables: dict[int, str] = {}
        """By value that is stored: its variable."""
        self.originals: dict[str, str] = {}
        """By argument that forward writes to: its variable."""
        self.numbers = number_products(regions)
        self.fresh: dict[tuple[int, int], FreshParts] = {}
        """By value and axis: parts of operands that forward has made."""
        self.kept: dict[tuple[str, ...], tuple[str, ...]] = {}
        """By what is asked for: the variables of a parameter's parts."""
        self.shared = SharedTexts()
        self.text = ModuleText()
        given = [one for one in forward.inputs if not one.number]
        self.device = f"{given[0].source}.device" if given else _DEVICE

    def write(self) -> ModuleText:
        """The text."""
        read = {key for region in self.regions if not isinstance(region, CallRegion) for key in region.reads}
        self._keep_given(read)
        for held in self.forward.inputs:
            if id(held) in read and not held.number:
                self.text.forward.append(f"{held.source} = {held.source}.contiguous()")
        for region in self.regions:
            if isinstance(region, CallRegion):
                self._write_call(region, read)
                self.text.names.append(())
            else:
                before, name = len(self.text.kernels), self.kernel_names.name_kernel(region)
                self.text.names.append(tuple(self._add(kernel, region) for kernel in self._write_kernels(region, name)))
                if len(self.text.kernels) == before:
                    self.kernel_names.release(name)
        self._write_results()
        everything = "\n".join(self.text.kernels)
        self.text.helpers = tuple(name for name in _HELPERS if re.search(rf"\b{name}\b(?!-)", everything))
        self.text.libdevice = any(word in everything for word in ("libdevice.", "softplus", "add_logs", "real_"))
        self.text.functional = any("F." in line for line in self.text.forward)
        return self.text

    def _keep_given(self, read: set[int]) -> None:
        """Keep an argument that forward writes to under a name of its own, where kernels may read a copy of it."""
        for held in self.forward.inputs:
            if held.source in self.forward.written and id(held) in read:
                self.originals[held.source] = self.locals.choose(f"given_{held.source}")
                self.text.forward.append(f"{self.originals[held.source]} = {held.source}")

    def _write_results(self) -> None:
        """What forward returns, ahead of what it leaves in buffers and arguments."""
        self.text.returned = self._show(self.forward.results)
        if any(map(self._is_changed, list_values(self.forward.results))):
            name = self.locals.choose("results")
            self.text.forward.append(f"{name} = {self.text.returned}")
            self.text.returned = name
        for path, value in self.forward.updates.items():
            self.text.forward.append(f"{attribute(path)}.detach().copy_({self.express(value)})")
        for source, value in self.forward.written.items():
            self.text.forward.append(f"{self.originals.get(source, source)}.detach().copy_({self._show(value)})")

    def _is_changed(self, value: Tensor) -> bool:
        """Whether a result shows the memory of a buffer or an argument that forward changes behind it."""
        while isinstance(value, TensorView) and id(value) not in self.variables:
            value = value.source
        if not isinstance(value, Held) or id(value) in self.variables:
            return False
        return value.path in self.forward.updates or value.source in self.forward.written

    def _write_kernels(self, region: WorkRegion, name: str) -> list[Kernel]:
        if isinstance(region, PointwiseRegion):
            return write_pointwise(region, name, self.settings, lambda one: id(one) in region.reads)
        if isinstance(region, ScatterRegion):
            return write_scatter(region, name, self.settings, lambda one: id(one) in region.reads)
        if isinstance(region, AttentionRegion):
            return write_attention(region, name, self.settings)
        if isinstance(region, RecurrentRegion):
            return write_steps(region, name)
        if isinstance(region, ProductRegion):
            return write_product(region, name, pick_settings(self.settings, self.numbers[id(region)]), self.fresh)
        assert isinstance(region, RowRegion)
        if is_held(region, self.settings):
            return write_held(region, name, self.settings)
        return write_split(region, name, self.settings) if region.split else write_rows(region, name, self.settings)

    def _write_call(self, region: CallRegion, read: set[int]) -> None:
        call = region.call
        text = call.text.format(*(self.express(one) for one in call.inputs), device=self.device)
        while "SELF[" in text:
            path = text[text.index("SELF[") + 5 : text.index("]")]
            text = text.replace(f"SELF[{path}]", attribute(path))
        name = self.locals.choose(call.name)
        self.variables[id(call)] = name
        self.text.forward.append(f"{name} = {text}{'.contiguous()' if id(call) in read and not call.several else ''}")

    def express(self, value: Tensor) -> str:
        """A value as forward writes it."""
        if id(value) in self.variables:
            return self.variables[id(value)]
        if isinstance(value, Held):
            return value.source
        if isinstance(value, Item):
            return f"{self.express(value.call)}{value.way}"
        assert isinstance(value, TensorView), "the cut stores all others"
        return value.python.format(self.express(value.source))

    def _show(self, results: Any) -> str:
        if isinstance(results, Tensor):
            text = self.express(results)
            return f"{text}.clone()" if self._is_changed(results) and ".clone(" not in text else text
        if isinstance(results, ComplexPair):
            return f"torch.view_as_complex({self.express(results.stored)})"
        if isinstance(results, NamedValues):
            self.text.records[results.name] = tuple(results.fields)
            inner = ", ".join(f"{key}={self._show(one)}" for key, one in results.fields.items())
            return f"{results.name}({inner})"
        if isinstance(results, dict):
            return "{" + ", ".join(f"{key!r}: {self._show(one)}" for key, one in results.items()) + "}"
        if isinstance(results, list | tuple):
            inner = ", ".join(self._show(one) for one in results)
            return f"({inner},)" if len(results) == 1 else f"({inner})" if results else "()"
        return repr(results)

    def _add(self, kernel: Kernel, region: WorkRegion) -> str:
        """Add a kernel's text where it is new, what it stores to, and its launch; returns the name that it is launched by."""
        for value in (one.holder for one in kernel.stores):
            if isinstance(value, Joined) and id(value) in self.variables:
                continue  # another part of it is there
            name = self.locals.choose(value.name or "result")
            self.variables[id(value)] = name
            self.text.forward.append(f"{name} = {self._allocate(value)}")
        if kernel.parts is not None:
            self._keep(kernel.parts)
        head = wrap(f"def {kernel.name}(", kernel.signature.split(", "), "):", "")
        does = kernel.does or f"{', '.join(list_operations(region))} of {_describe(region)}."
        lines = ["@triton.jit", *head, f'    """{does}"""', *(folded for line in kernel.lines for folded in fold(f"    {line}"))]
        launched = self._share(kernel.name, [*([kernel.ahead] if kernel.ahead else []), "\n".join(lines)])
        arguments = [self._pass(value) for _, value in kernel.arguments] + [given for _, given in kernel.sizes]
        arguments += [f"{name}={value}" for name, value in kernel.constants]
        options = [f"num_warps={kernel.warps}", *([f"num_stages={kernel.stages}"] if kernel.stages else [])]
        options += [f"maxnreg={kernel.registers}"] if kernel.registers else []
        options += ["launch_cooperative_grid=True"] if kernel.cooperative else []
        self.text.forward += wrap(f"{launched}[{kernel.grid}](", [*arguments, *options], ")", "")
        self.text.first = self.text.first or launched
        return launched

    def _allocate(self, value: Tensor) -> str:
        """What forward writes for the memory of a value, with what it holds ahead of the kernel."""
        if isinstance(value, Scatter) and not value.is_fresh:
            return f"{self.express(value.base)}.clone(memory_format=torch.contiguous_format)"
        base = value.base if isinstance(value, Scatter) and isinstance(value.base, Formula) else None
        zeroed = base is not None and base.expression in (Constant(0), Constant(0.0)) or isinstance(value, Buffer) and value.zeroed
        make, filled = "torch.zeros" if zeroed else "torch.empty", ""
        if base is not None and not zeroed:
            make, filled = "torch.full", f", {print_expression(base.fill(()))}"
        return f"{make}({value.shape}{filled}, dtype=torch.{value.dtype}, device={self.device})"

    def _share(self, name: str, texts: list[str]) -> str:
        """Add a kernel's texts, if no kernel has them yet; returns the name of the kernel that has them."""
        found = self.shared.find("\n\n\n".join(texts), name)
        if found == name:
            self.text.kernels += texts
        return found

    def _keep(self, parts: KeptParts) -> None:
        """Add the kernel that splits a parameter, and the line that asks for its parts, unless forward has them already."""
        kernel = self._share(parts.kernel, [parts.text])
        self.text.keeps = True
        asked = (f'"{parts.held.path}"', kernel, self.express(parts.held), str(parts.parts.shape))
        made, names = (parts.parts, parts.exponents), self.kept.get(asked)
        if names is None:
            names = self.kept[asked] = tuple(self.locals.choose(one.name) for one in made)
            self.text.forward += wrap(f"{', '.join(names)} = self.keep(", [*asked], ")", "")
        self.variables |= {id(one): name for one, name in zip(made, names, strict=True)}

    def _pass(self, value: Tensor) -> str:
        text = self.express(value)
        return f"{text}.contiguous()" if isinstance(value, Item | TensorView) else text


def _describe(region: WorkRegion) -> str:
    if isinstance(region, RowRegion):
        return f"{'' if region.free else f'{region.space.rows} '}rows of {region.space.length}"
    if isinstance(region, ProductRegion):
        batch, rows, columns, taps, depth = (
            SIZES[axis] if region.free_axis == axis else size
            for axis, size in zip((BATCH, LINE, COLUMN, TAP, ACROSS), region.product.sizes, strict=True)
        )
        return f"{f'{batch} times ' if batch != 1 else ''}{rows} x {columns}, each a sum over {f'{taps} x ' if taps != 1 else ''}{depth}"
    shown = region.stores[0]
    if region.free:
        return f"{shown.dtype}[{', '.join(['...', *map(str, shown.shape[1:])])}]"
    return f"{shown.dtype}{list(shown.shape)}"


def describe_tensor(name: str, spec: TensorSpec) -> str:
    """An argument in words."""
    return f"{name} {spec.dtype}{list(spec.shape)}"
