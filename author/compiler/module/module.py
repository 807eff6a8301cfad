"""The code of a module: its kernels and its forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    CallRegion,
    PointwiseRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    ScatterRegion,
    StackRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.fusing.space import ACROSS, BATCH, COLUMN, LINE, TAP
from tritonsmith.author.compiler.fusing.windows import holds_windows
from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Assign, Attribute, Call, Evaluate, Expression, Function, Keyword, Name, Statement, number
from tritonsmith.author.compiler.ir.operators import Constant
from tritonsmith.author.compiler.ir.scatter import Scatter
from tritonsmith.author.compiler.ir.torch_calls import Clone, write_call, write_items, write_view
from tritonsmith.author.compiler.ir.values import Formula, Held, Item, Joined, Tensor, TensorView
from tritonsmith.author.compiler.ir.walk import iterate, names_in
from tritonsmith.author.compiler.kernels.accumulators import write_steps
from tritonsmith.author.compiler.kernels.attention.attention import write_attention
from tritonsmith.author.compiler.kernels.held import is_held, write_held
from tritonsmith.author.compiler.kernels.kernel import Buffer, KeptParts, Kernel, PackedWeights
from tritonsmith.author.compiler.kernels.names import Namer, list_operations
from tritonsmith.author.compiler.kernels.pointwise import write_pointwise, write_scatter
from tritonsmith.author.compiler.kernels.product_grid import SIZES
from tritonsmith.author.compiler.kernels.product_parts import FreshParts
from tritonsmith.author.compiler.kernels.product_tiles import number_products, pick_settings
from tritonsmith.author.compiler.kernels.products import write_product
from tritonsmith.author.compiler.kernels.rows import write_rows
from tritonsmith.author.compiler.kernels.split import write_split
from tritonsmith.author.compiler.kernels.windows import write_windows
from tritonsmith.author.compiler.module.equal_kernels import SharedKernels
from tritonsmith.author.compiler.module.launches import make_launch
from tritonsmith.author.compiler.module.record import ForwardCode, ModuleCode, ModuleFrame, read_expression
from tritonsmith.author.compiler.reading.complexes import ComplexPair
from tritonsmith.author.compiler.reading.reader import Forward, NamedValues, list_values
from tritonsmith.author.members import attribute
from tritonsmith.author.recipe import Settings

_HELPERS = ("sigmoid", "tanh", "softplus", "mish", "multiply", "larger", "smaller", "add_logs", "floor_quotient", "floor_remainder",
            "real_quotient", "real_remainder", "as_key", "from_key", "split_lines", "split_value", "split_alike", "leaves_range",
            "wait_until", "one_plus_erf")  # fmt: skip
_LIBDEVICE = ("libdevice", "tanh", "softplus", "add_logs", "real_quotient", "real_remainder")
"""Names that need `libdevice`."""


_DEVICE = 'next((one.device for one in (*self.parameters(), *self.buffers())), torch.device("cuda" if COMPILED else "cpu"))'
"""Expression of where a forward that is given no tensor computes: where its tensors lie, or else where its kernels run."""


def write_code(regions: Sequence[WorkRegion], forward: Forward, settings: Settings, taken: set[str]) -> ModuleCode:
    """The code of all regions."""
    return ModuleWriter(regions, forward, settings, taken).write()


class ModuleWriter:
    """Writes regions in the order of forward."""

    def __init__(self, regions: Sequence[WorkRegion], forward: Forward, settings: Settings, taken: set[str]) -> None:
        self.regions, self.forward, self.settings = regions, forward, settings
        self.kernel_names, self.locals = Namer(set()), Namer(taken)
        self.variables: dict[int, str] = {}
        """By value that is stored: its variable."""
        self.allocated = set[int]()
        """Values whose memory forward has made for kernels."""
        self.originals: dict[str, str] = {}
        """By argument that forward writes to: its variable."""
        self.numbers = number_products(regions)
        self.fresh: dict[tuple[int, int], FreshParts] = {}
        """By value and axis: parts of operands that forward has made."""
        self.kept: dict[tuple[Expression, ...], tuple[str, ...]] = {}
        """By what is asked for: the variables of a parameter's parts, or of a buffer of several."""
        self.shared = SharedKernels()
        self.frame = ModuleFrame()
        self.kernels: list[Function] = []
        self.statements: list[Statement] = []
        given = [one for one in forward.inputs if not one.number]
        self.device = Attribute(Name(given[0].source), "device") if given else read_expression(_DEVICE)

    def write(self) -> ModuleCode:
        """The code."""
        read = {key for region in self.regions if not isinstance(region, CallRegion) for key in region.reads}
        self._keep_given(read)
        for held in self.forward.inputs:
            if id(held) in read and not held.number:
                self._set(held.source, _call(Name(held.source), "contiguous"))
        for region in self.regions:
            if isinstance(region, CallRegion):
                self._write_call(region, read)
                self.frame.names.append(())
            else:
                before, name = len(self.kernels), self.kernel_names.name_kernel(region)
                self.frame.names.append(tuple(self._add(kernel, region) for kernel in self._write_kernels(region, name)))
                if len(self.kernels) == before:
                    self.kernel_names.release(name)
        returned = self._write_results()
        if self.frame.describes:
            self.statements.insert(0, Evaluate(read_expression("triton.set_allocator(allocate)")))
        names = set().union(*map(names_in, self.kernels))
        self.frame.helpers = tuple(name for name in _HELPERS if name in names)
        self.frame.libdevice = not names.isdisjoint(_LIBDEVICE) or any("libdevice." in text for text in self.frame.stacks)
        self.frame.functional = any("F" in names_in(statement) for statement in self.statements)
        return ModuleCode(tuple(self.kernels), (ForwardCode(tuple(self.statements), returned),), self.frame)

    def _set(self, name: str, value: Expression) -> None:
        """Have forward set a variable."""
        self.statements.append(Assign((Name(name),), value=value))

    def _keep_given(self, read: set[int]) -> None:
        """Keep an argument that forward writes to under a name of its own, where kernels may read a copy of it."""
        for held in self.forward.inputs:
            if held.source in self.forward.written and id(held) in read:
                self.originals[held.source] = self.locals.choose(f"given_{held.source}")
                self._set(self.originals[held.source], Name(held.source))

    def _write_results(self) -> Expression:
        """What forward returns, ahead of what it leaves in buffers and arguments."""
        returned = self._show(self.forward.results)
        if any(map(self._is_changed, list_values(self.forward.results))):
            name = self.locals.choose("results")
            self._set(name, returned)
            returned = Name(name)
        for path, value in self.forward.updates.items():
            self._copy(read_expression(attribute(path)), self.express(value))
        for source, value in self.forward.written.items():
            self._copy(Name(self.originals.get(source, source)), self._show(value))
        return returned

    def _copy(self, target: Expression, value: Expression) -> None:
        """Have forward write a value to the memory of a tensor."""
        self.statements.append(Evaluate(_call(_call(target, "detach"), "copy_", value)))

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
        if (windows := holds_windows(region)) is not None:
            return write_windows(region, windows, name)
        if is_held(region, self.settings):
            return write_held(region, name, self.settings)
        return write_split(region, name, self.settings) if region.split else write_rows(region, name, self.settings)

    def _write_call(self, region: CallRegion, read: set[int]) -> None:
        call = region.call
        value = write_call(call.record, [*map(self.express, call.inputs)], self.device)
        name = self.locals.choose(call.name)
        if isinstance(region, StackRegion) and region.call.stack.text not in self.frame.stacks:
            self.frame.stacks = (*self.frame.stacks, region.call.stack.text)
            self.frame.first = self.frame.first or region.call.stack.kernel
        self.variables[id(call)] = name
        self._set(name, _call(value, "contiguous") if id(call) in read and not call.several else value)

    def express(self, value: Tensor) -> Expression:
        """A value as forward has it."""
        if id(value) in self.variables:
            return Name(self.variables[id(value)])
        if isinstance(value, Held):
            return read_expression(value.source)
        if isinstance(value, Item):
            return write_items(value.places, self.express(value.call))
        assert isinstance(value, TensorView) and value.shown is not None, "the cut stores all others"
        return write_view(value.shown, self.express(value.source))

    def _show(self, results: Any) -> Expression:
        if isinstance(results, Tensor):
            shown = self.express(results)
            cloned = any(isinstance(node, Attribute) and node.name == "clone" for node in iterate(shown))
            return _call(shown, "clone") if self._is_changed(results) and not cloned else shown
        if isinstance(results, ComplexPair):
            return _call(Name("torch"), "view_as_complex", self.express(results.stored))
        if isinstance(results, NamedValues):
            self.frame.records[results.name] = tuple(results.fields)
            return Call(Name(results.name), keywords=tuple(Keyword(key, self._show(one)) for key, one in results.fields.items()))
        if isinstance(results, dict):
            return code.Dict(tuple(code.Entry(read_expression(repr(key)), self._show(one)) for key, one in results.items()))
        if isinstance(results, list | tuple):
            return code.Group(shown) if (shown := code.Tuple(tuple(map(self._show, results)))).items else shown
        return read_expression(repr(results))

    def _add(self, kernel: Kernel, region: WorkRegion) -> str:
        """Add a kernel's text where it is new, what it stores to, and its launch; returns the name that it is launched by."""
        for value in (one.holder for one in kernel.stores):
            if isinstance(value, Joined) and id(value) in self.variables:
                continue  # another part of it is there
            name = self.locals.choose(value.name or "result")
            self.variables[id(value)] = name
            self.allocated.add(id(value))
            base = self.express(value.base) if isinstance(value, Scatter) and not value.is_fresh else None
            self._set(name, _allocate(value, base, self.device))
        if kernel.parts is not None:
            self._keep(kernel.parts)
        if kernel.packed is not None:
            self._pack(kernel.packed)
        function = kernel.function(f"{', '.join(list_operations(region))} of {_describe(region)}.")
        launched = self._share(kernel.name, [*([kernel.ahead] if kernel.ahead else []), function])
        arguments = [self._pass(value, id(value) in kernel.described) for _, value in kernel.arguments]
        arguments += [given for _, given in kernel.sizes]
        self.statements.append(make_launch(launched, kernel.grid, tuple(arguments), _list_options(kernel)))
        self.frame.first = self.frame.first or launched
        return launched

    def _share(self, name: str, functions: list[Function]) -> str:
        """Add a kernel with what it calls, if none does the same yet; returns the name of the kernel that does."""
        shared = self.shared.find(functions, name)
        if shared == name:
            self.kernels += functions
        return shared

    def _keep(self, parts: KeptParts) -> None:
        """Add the kernel that splits a parameter, and the line that asks for its parts."""
        kernel = self._share(parts.function.name, [parts.function])
        self.frame.keeps = True
        path = code.String(f'"{parts.held.path}"')
        asked = (path, Name(kernel), self.express(parts.held), _show_shape(parts.parts))
        self._ask("keep", asked, (parts.parts, parts.exponents))

    def _pack(self, packed: PackedWeights) -> None:
        """Add the line that asks for a buffer of several parameters."""
        self.frame.packs = True
        paths = code.Group(code.Tuple(tuple(code.String(f'"{one.path}"') for one in packed.weights)))
        self._ask("pack", (paths, *map(self.express, packed.weights)), (packed.buffer,))
        self.allocated.add(id(packed.buffer))

    def _ask(self, method: str, asked: tuple[Expression, ...], made: tuple[Buffer, ...]) -> None:
        """Add the line that asks for what is made of parameters, unless forward has it already."""
        names = self.kept.get(asked)
        if names is None:
            names = self.kept[asked] = tuple(self.locals.choose(one.name) for one in made)
            targets = tuple(map(Name, names))
            target = code.Tuple(targets) if len(targets) > 1 else targets[0]
            self.statements.append(Assign((target,), value=_call(Name("self"), method, *asked)))
        self.variables |= {id(one): name for one, name in zip(made, names, strict=True)}

    def _pass(self, value: Tensor, described: bool = False) -> Expression:
        """A value as a kernel takes it; `described`: where its memory begins must be a multiple of 16 bytes."""
        shown = self.express(value)
        shown = _call(shown, "contiguous") if isinstance(value, Item | TensorView) else shown
        self.frame.describes |= described
        return Call(Name("align"), (shown,)) if described and id(value) not in self.allocated else shown


def _call(value: Expression, method: str, *arguments: Expression) -> Expression:
    return Call(Attribute(value, method), arguments)


def _list_options(kernel: Kernel) -> dict[str, Expression]:
    """What a launch says by name: constants, and how the kernel is compiled."""
    options: dict[str, Expression] = {name: number(value) for name, value in kernel.constants} | {"num_warps": number(kernel.warps)}
    options |= {"num_stages": number(kernel.stages)} if kernel.stages else {}
    options |= {"maxnreg": number(kernel.registers)} if kernel.registers else {}
    options |= {"launch_cooperative_grid": code.Word("True")} if kernel.cooperative else {}
    return options


def _allocate(value: Tensor, copied: Expression | None, device: Expression) -> Expression:
    """The memory of a value, with what it holds ahead of the kernel; `copied`: a tensor that it begins as a copy of."""
    if copied is not None:
        return write_view(Clone(contiguous=True), copied)
    base = value.base if isinstance(value, Scatter) and isinstance(value.base, Formula) else None
    zeroed = base is not None and base.expression in (Constant(0), Constant(0.0)) or isinstance(value, Buffer) and value.zeroed
    filled = () if base is None or zeroed else (base.fill(()),)
    options = (Keyword("dtype", Attribute(Name("torch"), value.dtype)), Keyword("device", device))
    make = Attribute(Name("torch"), "full" if filled else "zeros" if zeroed else "empty")
    return Call(make, (_show_shape(value), *filled), options)


def _show_shape(value: Tensor) -> Expression:
    return code.Tuple(tuple(map(number, value.shape)))


def _describe(region: WorkRegion) -> str:
    if isinstance(region, RowRegion) and (windows := holds_windows(region)) is not None:
        shape = region.anchors[0].source.shape[1 : len(windows.window) + 2]
        return f"windows of {' x '.join(map(str, windows.window))}, {region.stores[0].dtype}[{', '.join(['...', *map(str, shape)])}]"
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
