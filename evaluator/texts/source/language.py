"""What calls of Triton's language give back, and which of them touch memory."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from tritonsmith.evaluator.texts.source.forms import ZERO, Polynomial, make_opaque, make_symbol
from tritonsmith.evaluator.texts.source.places import Places, find_wide_axes, read_column_or_row
from tritonsmith.evaluator.texts.source.values import NOTHING, AccessSite, Env, Use, Value, put_to_use, turn, union

if TYPE_CHECKING:
    from tritonsmith.evaluator.texts.source.walk import Walker

_KEEP_ADDRESS = {"multiple_of", "max_contiguous", "max_constancy", "cast", "where", "advance", "make_block_ptr", "broadcast_to"}
"""Functions of the language that give back an address in the same buffer."""
_SAME = {"multiple_of", "max_contiguous", "max_constancy", "cast", "to", "broadcast_to", "reshape", "view", "trans", "permute", "ravel"}
"""Functions whose result is the same numbers."""
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"}
"""Functions of the language that take an axis away, or all of them."""
_FOLDS = {"sum", "max", "min", "reduce"}
"""Reductions whose result is a number made of the elements, not their place."""
_SCANS = {"cumsum", "cumprod", "associative_scan", "sort", "topk", "histogram"}
"""Functions of the language that combine elements along an axis and keep it."""
_ORDERED = {"cumsum", "cumprod", "associative_scan", "sort"}
"""Functions whose result has at each place what many elements amount to."""
_SHAPED = {"zeros", "full", "reshape", "view", "broadcast_to"}
"""Functions of the language whose result has the shape that they are given."""
_MILD = {"maximum", "minimum", "where", "broadcast", "zeros_like", "cat", "join", "split", "abs", "min", "max", "sum", "cumsum", "argmax",
         "argmin", "associative_scan", "reduce", "float"}  # fmt: skip
"""Functions that an associative reduction or scan is made of."""
_COMPILER_HELPERS = ("torch._inductor.runtime.triton_helpers.", "torch._inductor.triton_helpers.")
"""Helpers of torch's compiler for its reductions: maxima, and means and variances by Welford's method."""
_ASSEMBLY = "inline_asm_elementwise"
"""Inline assembly, which may read memory."""
_LOADS = {"load", "load_tensor_descriptor", "_experimental_descriptor_load"}
_STORES = {"store", "store_tensor_descriptor", "_experimental_descriptor_store"}
_DESCRIPTORS = {"make_tensor_descriptor", "_experimental_make_tensor_descriptor"}


class Language:
    """Evaluates calls for a walker.

    Args:
        walker: gives values of arguments, takes notes, and enters helpers.
    """

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._index = walker.index
        self._facts = walker.facts
        self._notes = walker.notes
        self.places = Places(walker.facts, walker.evaluate)

    def evaluate_call(self, node: ast.Call, env: Env) -> Value:
        """What is known about the result of a call; accesses, products of tiles and polls are noted."""
        evaluate = self._walker.evaluate
        name = self._index.resolve_language_name(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("program_id", "num_programs"):
            name = node.func.attr  # also from an extension of the language
        if name in ("program_id", "num_programs"):
            return self._evaluate_program(name, node)
        if isinstance(node.func, ast.Name) and node.func.id in self._index.jit:
            return self._walker.enter_helper(self._index.jit[node.func.id], node, env)
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not name else ""
        receiver = [evaluate(node.func.value, env)] if isinstance(node.func, ast.Attribute) and not name else []
        arguments = receiver + [evaluate(argument, env) for argument in node.args]
        named = {keyword.arg or "": evaluate(keyword.value, env) for keyword in node.keywords}
        values = [*arguments, *named.values()]
        place = ast.dump(node.args[0]) if method and node.args else ""
        signature = hash((name or ast.dump(node.func), *(value.signature for value in values), place))
        if (access := self._evaluate_memory(name or method, bool(method), node, arguments, named, env)) is not None:
            return replace(access, signature=signature)
        if name == "arange":
            return self._evaluate_arange(arguments, signature)
        if name in ("make_block_ptr", *_DESCRIPTORS):
            return self.places.evaluate_block(node, env, signature)
        if name == "advance" and len(node.args) > 1:
            return self.places.evaluate_advance(arguments[0], node.args[1], env, signature)
        self._note_call(name, node, env)
        if name == "where" and any(value.carried or value.reads for value in values[1:]):  # else a step function
            values = [_choose_by(values[0]), *values[1:]]
        result = union(*values, signature=signature, roots=False)
        self._notes.note_softmax("maximum" if name == "where" and _picks_larger(arguments) else name, node, env, result)
        result = self._use(name or method or getattr(node.func, "id", ""), node, arguments, named, result, env)
        keeps = _KEEP_ADDRESS | {"to"}
        if arguments and ((name or method) in keeps or receiver):
            pointers = [*arguments, named.get("base", NOTHING)] if name == "where" or not receiver else receiver
            result = replace(result, roots=frozenset().union(*(pointer.roots for pointer in pointers)))
        return replace(result, rank=_rank_of(name or method, node, arguments, result.rank))

    def _note_call(self, name: str, node: ast.Call, env: Env) -> None:
        short = name.rpartition(".")[2]
        if short in ("dot", "dot_scaled"):
            self._notes.note_dot()
        self._facts.reduces |= short in _REDUCTIONS | _SCANS
        foreign = not name and isinstance(node.func, ast.Name) and node.func.id in self._index.aliases
        if foreign:  # a function of another file may read memory too, and wait
            self._facts.foreign |= {0, *self._notes.loops}

    def _use(self, name: str, node: ast.Call, arguments: list[Value], named: dict[str, Value], result: Value, env: Env) -> Value:
        """The result with what the function does to earlier values, and with its polynomial where it has one."""
        short = name.rpartition(".")[2]
        if short in ("dot", "dot_scaled"):
            total = arguments[2] if short == "dot" and len(arguments) > 2 else named.get("acc", NOTHING)
            factors = union(*arguments[:2], *(arguments[3:] if short == "dot" else arguments[2:]), signature=result.signature)
            both = union(put_to_use(factors, Use.FULL), put_to_use(total, Use.SUM), signature=result.signature)
            form = make_opaque("dot", *(value.form for value in arguments))
            return replace(both, form=form, rank=2, roots=frozenset(), mixed=True, dotted=True)
        if short in ("zeros", "zeros_like"):
            return replace(result, form=ZERO)
        if short == "full" and len(arguments) > 1:
            return replace(result, form=arguments[1].form)
        if short in ("reshape", "view") and arguments and arguments[0].rank == 1 and (kept := read_column_or_row(node)) is not None:
            return replace(result, form=self.places.mark_axis(arguments[0].form, kept), axes=frozenset({kept}))
        if short in _SAME and arguments or short == "int" and len(arguments) == 1:
            same = replace(result, form=arguments[0].form, block=arguments[0].block)
            return turn(same) if short == "trans" else same
        if short == "expand_dims" and arguments:
            axis = node.args[1] if len(node.args) > 1 else None
            place = axis.value if isinstance(axis, ast.Constant) else None
            kept = 1 - place if isinstance(place, int) and place in (0, 1) else None
            axes = frozenset({kept}) if kept is not None and arguments[0].rank == 1 else arguments[0].axes
            return replace(result, form=self.places.mark_axis(arguments[0].form, kept), axes=axes)
        form = make_opaque(short, *(value.form for value in arguments)) if arguments else ZERO
        if short in ("exp", "exp2"):
            return replace(put_to_use(result, Use.EXPONENT), form=form)
        if short in ("log", "log2", "log1p") and all(use <= Use.EXPONENT for *_, use in result.carried):
            mild = frozenset((loop, name, min(use, Use.SUM)) for loop, name, use in result.carried)
            return replace(result, carried=mild, form=form)
        if short == "fma" and len(arguments) == 3:
            self._notes.note_gates(arguments[0], arguments[1])
            factors = put_to_use(union(*arguments[:2]), Use.LINEAR)  # and a summand
            return replace(union(factors, put_to_use(arguments[2], Use.SUM), signature=result.signature, roots=False), form=form)
        if short == "range":
            return replace(result, form=form)
        if self._index.resolve_name(node.func).startswith(_COMPILER_HELPERS):
            return replace(put_to_use(result, Use.SUM), form=form)
        mixed = result.mixed or short in _REDUCTIONS
        result = put_to_use(result, Use.SUM if short in _MILD or short == "gather" else Use.FULL)
        elementwise = short in ("max", "min") and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
        if short in _FOLDS | _ORDERED and arguments and not elementwise:
            keys = self._note_mixing(arguments[0], env)
            full = frozenset((loop, name, Use.FULL if (loop, name) in keys else use) for loop, name, use in result.carried)
            result = replace(result, carried=full)
        elif short == "gather" and arguments:
            for loop, name in self._note_mixing(arguments[0], env):  # elements change places, which alone is what a sort does
                self._facts.loops[loop].moved.add(name)
        return replace(result, form=form, mixed=mixed)

    def _note_mixing(self, folded: Value, env: Env) -> set[tuple[int, str]]:
        """Tiles that a loop carries of which elements are combined: each new element rests on many old ones, as in a product of tiles."""
        loops = self._facts.loops
        before = {item: (env.get(item[1], NOTHING), loops[item[0]].entries.get(item[1], NOTHING)) for item in folded.carried}
        held = {item[:2] for item, values in before.items() if any(value.rank > 0 for value in values)}  # a helper knows other names
        for loop, name in held:
            loops[loop].mixed.add(name)
        return held

    def _evaluate_program(self, name: str, node: ast.Call) -> Value:
        axis = node.args[0] if node.args else next((keyword.value for keyword in node.keywords if keyword.arg == "axis"), None)
        text = str(axis.value) if isinstance(axis, ast.Constant) else "?"
        if name == "num_programs":
            return Value(hash(("programs", text)), form=make_symbol("programs", text))
        self._facts.program_axes.add(text)
        return Value(hash(("program", text)), pids=frozenset({text}), form=make_symbol("program", text))

    def _evaluate_arange(self, arguments: list[Value], signature: int) -> Value:
        first, last = (arguments[0].form, arguments[1].form) if len(arguments) > 1 else (ZERO, arguments[0].form if arguments else ZERO)
        extent = last - first
        return Value(signature, rank=1, form=first + self.places.make_range(extent), axes=frozenset())

    def _evaluate_memory(
        self, name: str, method: bool, node: ast.Call, arguments: list[Value], named: dict[str, Value], env: Env
    ) -> Value | None:
        """The result of a load, a store or an atomic; None for other calls."""
        described = method and name in ("load", "store", "gather", "scatter", "atomic_add") and bool(arguments and arguments[0].roots)
        atomic = name.startswith("atomic_")
        if not (described or not method and (name in _LOADS | _STORES or atomic or name == _ASSEMBLY)):
            return None
        if name == _ASSEMBLY:
            return self._evaluate_assembly(node, arguments, named, env)
        address = arguments[0] if arguments else named.get("pointer", named.get("desc", NOTHING))
        rest = arguments[1:]
        if described or "descriptor" in name:
            places = node.args if described else node.args[1:]
            tuples = [place for place in places if isinstance(place, ast.Tuple | ast.List)] + [
                keyword.value for keyword in node.keywords if keyword.arg == "offsets"
            ]
            offsets = self.places.evaluate_elements(tuples[0] if tuples else None, env)
            rest = [value for value, place in zip(rest, places, strict=False) if place not in tuples]
            block = address.block or tuple(make_symbol("parameter", f"block{axis}") for axis in range(len(offsets)))
            form = self.places.place(address.form, offsets, address.strides, block)
            address = replace(union(address, *offsets), form=form, roots=address.roots, rank=len(offsets), axes=find_wide_axes(block))
        value = rest[0] if rest and name not in _LOADS else named.get("value", named.get("val", NOTHING))
        kind = "atomic" if atomic else "store" if name in _STORES else "load"
        swaps = (arguments[1].form, arguments[2].form) if name == "atomic_cas" and len(arguments) > 2 else None
        if name == "atomic_add" and value.form == ZERO and value.signature == hash(("constant", "0")):
            kind = "load"  # adds nothing: a way to read
        masked = named.get("mask", next(iter(rest[0 if kind == "load" else 1 :]), NOTHING))
        self._note_access(kind, node.lineno, address, value, swaps, masked)
        loaded = self._make_loaded(address, kind, masked)
        if kind == "store" and address.roots:
            self._notes.stored[address.form] = value
        elif kind == "load" and (before := self._notes.stored.get(address.form)) is not None:
            return replace(loaded, carried=loaded.carried | before.carried, mixed=before.mixed)  # what the iteration has stored itself
        return loaded

    def _evaluate_assembly(self, node: ast.Call, arguments: list[Value], named: dict[str, Value], env: Env) -> Value:
        text = ast.unparse(node)
        operands = next((keyword.value for keyword in node.keywords if keyword.arg == "args"), node.args[2] if len(node.args) > 2 else None)
        values = self.places.evaluate_elements(operands, env)
        pointers = [value for value in values if value.roots] or values
        if not pointers or not any(word in text for word in ("ld.", "atom.", "red.", "st.")):
            form = make_opaque("asm", *(value.form for value in values))
            return replace(put_to_use(union(*arguments, *named.values(), roots=False), Use.FULL), form=form)
        stores = "st." in text and "ld." not in text
        kind = "store" if stores else "atomic" if "atom." in text or "red." in text else "load"
        self._note_access(kind, node.lineno, pointers[0], union(*values[1:]), None, NOTHING)
        return self._make_loaded(pointers[0], kind, NOTHING)

    def _make_loaded(self, address: Value, kind: str, masked: Value) -> Value:
        """A value from memory. An address that rests on loaded values makes it rest on those too."""
        chased = frozenset((loop, name, Use.FULL) for loop, name, _ in address.carried) if address.reads else frozenset()
        form = make_opaque("loaded", address.form)
        reads = frozenset((root, Use.COPY) for root in address.roots) | frozenset((root, Use.FULL) for root, _ in address.reads)
        return Value(
            0, pids=address.pids, loops=address.loops, rank=address.rank, form=form, reads=reads, origins=frozenset({address.form}),
            axes=address.axes, carried=chased, atomic=kind == "atomic" or masked.atomic,
        )  # fmt: skip

    def _note_access(
        self, kind: str, line: int, address: Value, value: Value, swaps: tuple[Polynomial, Polynomial] | None, masked: Value
    ) -> None:
        around, mask = self._notes.around, masked.form if masked != NOTHING else None
        guards = around.guards | ({abs(masked.signature) + 1} if masked.pids and masked.rank == 0 else set())
        self._facts.conditions.update({number: (masked, True) for number in guards - around.guards})
        arrived, elected = around.after_arrival or masked.atomic, around.elected or masked.atomic
        site = AccessSite(kind, line, address, value, self._notes.loops, frozenset(guards), around.sides, swaps, arrived, elected, mask)
        self._notes.note_access(site)


def _choose_by(condition: Value) -> Value:
    """A condition as far as it selects between two values: a maximum is made of such."""
    carried = frozenset((loop, name, min(use, Use.SUM)) for loop, name, use in condition.carried)
    return replace(condition, carried=carried, reads=frozenset((root, min(use, Use.SUM)) for root, use in condition.reads))


def _picks_larger(arguments: list[Value]) -> bool:
    """Whether `where` gets a comparison of its two values: it gives the larger one, or the smaller one."""
    if len(arguments) != 3:
        return False
    condition, *sides = (value.signature for value in arguments)
    return any(condition == hash((f"Compare{op}", *pair)) for op in ("Gt", "GtE", "Lt", "LtE") for pair in permutations(sides))


def get_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """All parameters but the starred ones."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _rank_of(name: str, node: ast.Call, arguments: list[Value], rank: int) -> int:
    if name in _REDUCTIONS:
        has_axis = len(node.args) > 1 or any(keyword.arg in ("axis", "dim") for keyword in node.keywords)
        own = arguments[0].rank if arguments else 0
        return max(0, own - 1) if has_axis else 0
    if name in _SHAPED:
        shape = node.args[-1] if name not in ("zeros", "full") or len(node.args) == 1 else node.args[0]
        return len(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else max(1, rank)
    return rank + 1 if name == "expand_dims" else rank
