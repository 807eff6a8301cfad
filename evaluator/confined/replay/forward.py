"""Does again what a forward wrote down, where no code of the candidate but its kernels runs.

A replay starts from the inputs and from tensors whose content was fixed before those inputs were known. It computes what the written
launches and operators compute, so their races, order and counts cannot be hidden. Imports torch and Triton.
"""

from __future__ import annotations

import collections
import pickle
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tritonsmith.evaluator.channel import slots
from tritonsmith.evaluator.channel.report import ForwardReport, fold_launches
from tritonsmith.evaluator.channel.slots import Layout, dtype_of
from tritonsmith.evaluator.channel.trace import INPUTS, ForwardTrace, Unreplayable, digest, read_trace
from tritonsmith.evaluator.confined.interpreter import patches, schedule
from tritonsmith.evaluator.confined.replay.kernels import Kernels
from tritonsmith.evaluator.confined.stand_ins.operators import RECURRENT, UNWRITTEN, TorchOpCounter, poison, tensors_in
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl
from tritonsmith.evaluator.schema import Hardware, Status

FILE = "candidate.py"
"""File name in frames of a candidate's kernels."""
_READING = ("_local_scalar_dense", "nonzero", "masked_select", "item", "_unique2", "unique_dim", "equal")
"""Operators after which Python knows values of the inputs."""
_NUMBERS_PER_READ = 4
"""Numbers made from one value that was read."""
_FREE_READING = ("_local_scalar_dense", "item")
"""Operators that read one value and count as no work."""
_MOST_FREE = 12
"""Numbers that may be made from all that _FREE_READING reads in one forward."""
_REFUSED = ("set_", "from_file", "resize_", "record_stream")
"""Operators that would give a tensor other memory."""
_SHAPE_ONLY = frozenset((*UNWRITTEN, *"lift_fresh detach alias view _unsafe_view reshape expand t transpose permute".split()))
"""Operators that read no value: what they make of a tensor of unknown origin is as unknown, and no reason to refuse."""
_SMALL_INTEGER = 1 << 16
"""Largest size of a whole number that may be a counter."""
_CHANGING_INTEGERS = 4
"""So many different whole numbers up to _SMALL_INTEGER may change from call to call: counters of calls."""
_REPORTED_KINDS = 100
"""Kinds of torch operators that a report names."""


class Refused(Exception):
    """The trace holds work that nobody can have counted."""


class Replay:
    """One forward from its trace.

    Args:
        source: the candidate's text.
        inputs: the block of input slots.
        layout: where each input lies in it.
        earlier: an earlier call's trace, written before these inputs were known.
        trace: the call to do again.
    """

    def __init__(self, source: str, inputs: torch.Tensor, layout: Layout, earlier: ForwardTrace, trace: ForwardTrace) -> None:
        self._kernels = Kernels(source, FILE)
        self._trace = trace
        self._fixed = earlier.digests
        self._numbers = set(_list_numbers(earlier.events))
        self._numbers_read = self._numbers_free = 0
        self._counters: set[int] = set()
        # each input in memory of its own: what reads past its end shows
        self._inputs = [(start, inputs[start : start + size].clone().untyped_storage()) for start, size in layout.input_places]
        self._storages: dict[int, Any] = {}
        self._unknown: set[int] = set()
        self.results: list[torch.Tensor] = []

    def run(self, order: Any, seed: int, patience: int) -> tuple[Any, TorchOpCounter]:
        """Every event in turn. Raises Refused, Unreplayable, KernelFault. Returns the run of the launches and the operators' count."""
        counter = TorchOpCounter(spare=False)
        with torch.no_grad(), schedule.session(order, seed, patience=patience) as interpreted:
            for event in self._trace.events:
                kind = event["kind"]
                if kind == "found":
                    self._add_found(event)
                elif kind == "operator":
                    self._run_operator(event, counter)
                elif kind == "launch":
                    self._run_launch(event)
                elif kind == "return":
                    self.results = [self._decode_tensor(spec, f"output {n}") for n, spec in enumerate(event["results"])]
        return interpreted, counter

    def write_inputs(self, block: torch.Tensor) -> None:
        """Put the inputs, as the forward leaves them, back into the block of input slots."""
        for start, storage in self._inputs:
            block[start : start + storage.nbytes()] = torch.empty(0, dtype=torch.uint8).set_(storage)

    def list_fixed_kernels(self) -> list[str]:
        """Names of launched kernels whose constants no tuner chooses: they must be compiled with the constants that they ran with."""
        names = {str(event["name"]) for event in self._trace.events if event["kind"] == "launch"}
        return sorted(name for name in names if not self._kernels.is_tuned(name))

    def _add_found(self, event: dict[str, Any]) -> None:
        """Add a tensor that the forward did not make; it is known if the earlier call, before these inputs, had its content."""
        content = bytearray(self._trace.blobs[event["at"] : event["at"] + event["size"]])
        if digest(bytes(content)) not in self._fixed:
            self._unknown.add(event["number"])
        # its own allocation: kernels see addresses, and Triton wants them aligned
        self._storages[event["number"]] = torch.frombuffer(content, dtype=torch.uint8).clone().untyped_storage()

    def _run_operator(self, event: dict[str, Any], counter: TorchOpCounter) -> None:
        name = str(event["name"])
        base = name.split(".")[1] if name.startswith("aten.") else name
        context = "" if base in _SHAPE_ONLY else f"an operand of {base}"
        arguments = [self._decode(part, context) for part in event["arguments"]]
        named = {key: self._decode(part, context) for key, part in event["named"].items()}
        function = _look_up_operator(name)
        with counter:
            result = function(*arguments, **named)
        if base in _READING:
            self._note_read(base, result)
        made = list(tensors_in(result))
        if len(made) != len(event["results"]):
            raise Refused(f"{name} gave {len(made)} tensor{'s' * (len(made) != 1)} where forward saw {len(event['results'])}")
        for tensor, (number, dtype, shape, stride, _) in zip(made, event["results"], strict=True):
            if tensor.numel() and (tensor.dtype, tuple(tensor.shape), tensor.stride()) != (_read_dtype(dtype), tuple(shape), tuple(stride)):
                raise Refused(f"{name} gave another tensor than forward saw")
            if number not in self._storages and number != INPUTS:
                self._storages[number] = tensor.untyped_storage()
                if base in UNWRITTEN:
                    poison(tensor)

    def _note_read(self, base: str, result: Any) -> None:
        """Python knows a value now: itself, and a few numbers that may be made from it."""
        if isinstance(result, int | float) and not isinstance(result, bool):
            self._numbers.add(repr(result))
        allowed = _NUMBERS_PER_READ
        if base in _FREE_READING:
            allowed = min(allowed, _MOST_FREE - self._numbers_free)
            self._numbers_free += allowed
        self._numbers_read += allowed

    def _run_launch(self, event: dict[str, Any]) -> None:
        name = str(event["name"])
        self._bind(event, name)
        kernel = self._kernels.find_function(name, int(event["line"]))
        arguments = {key: self._decode(part, f"argument {key} of kernel {name}") for key, part in event["arguments"].items()}
        grid = tuple(int(extent) for extent in event["grid"])
        interpreter.GridExecutor(kernel.rewrite(), kernel.arg_names, grid)(**arguments)

    def _bind(self, event: dict[str, Any], name: str) -> None:
        scalars = {key: self._decode(part, f"{key} in kernel {name}") for key, part in event["scalars"].items()}
        self._kernels.bind(scalars, event["functions"])

    def _decode(self, value: Any, context: str) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._require_known(value, context)
            return value
        if isinstance(value, list):
            raise Refused(f"{context} is not readable")
        if not isinstance(value, dict):
            return value
        kind, content = next(iter(value.items()))
        if kind == "tensor":
            return self._decode_tensor(content, context)
        if kind in ("tuple", "list"):
            parts = [self._decode(part, context) for part in content]
            return tuple(parts) if kind == "tuple" else parts
        if kind in ("dtype", "layout", "format"):
            return getattr(torch, str(content))
        if kind == "device":
            return torch.device("cpu")
        return self._decode_triton(kind, value, context)

    def _decode_triton(self, kind: str, value: dict[str, Any], context: str) -> Any:
        content = value[kind]
        if kind == "named":
            fields = collections.namedtuple("Fields", value["fields"])  # type: ignore[misc]  # raises where a field is no plain name
            return fields(*(self._decode(part, context) for part in content))
        if kind == "constexpr":
            return tl.constexpr(self._decode(content, context))
        if kind == "scalar":
            return tl.dtype(content)
        if kind == "function":
            self._bind(value, content)
            return self._kernels.find_function(content, value["functions"][content][1])
        if kind == "descriptor":
            base, shape, strides, block, padding = content
            return TensorDescriptor(self._decode(base, context), shape, strides, block, padding)
        raise Refused(f"{context} is not readable")

    def _require_known(self, number: float, context: str) -> None:
        """A number that depends on the inputs could be the answer itself."""
        if repr(number) in self._numbers:
            return
        if isinstance(number, int) and abs(number) <= _SMALL_INTEGER and len(self._counters | {number}) <= _CHANGING_INTEGERS:
            self._counters.add(number)
            return
        self._numbers.add(repr(number))
        self._numbers_read -= 1
        if self._numbers_read < 0:
            raise Refused(f"{context} is the number {number!r}, which is not the same in every call and was not read from a tensor")

    def _decode_tensor(self, spec: Any, context: str) -> torch.Tensor:
        number, name, shape, stride, offset = spec
        dtype, conjugated, negated = _read_dtype(name), " conj" in name, " neg" in name
        if number == -1:
            return torch.empty_strided(shape, stride, dtype=dtype)
        if number in self._unknown and context:
            raise Refused(
                f"{context} holds values of unknown origin: no Triton kernel and no torch operator of this forward wrote the tensor, "
                "and it did not exist before the call"
            )
        storage = self._storages.get(number)
        if number == INPUTS:
            start, storage = max((place for place in self._inputs if place[0] <= offset * dtype.itemsize), key=lambda place: place[0])
            offset -= start // dtype.itemsize
        if storage is None:
            raise Refused(f"{context} is a tensor that nothing made")
        last = offset + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))
        if min([0, offset, *stride]) < 0 or (0 not in shape and (last + 1) * dtype.itemsize > storage.nbytes()):
            raise Refused(f"{context} lies outside its memory")
        tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
        tensor = torch._conj(tensor) if conjugated else tensor
        return torch._neg_view(tensor) if negated else tensor


def _read_dtype(name: str) -> torch.dtype:
    """The type in a tensor's description, which views that conjugate or negate follow."""
    return dtype_of(name.partition(" ")[0])


def _look_up_operator(name: str) -> Any:
    space, _, rest = name.partition(".")
    if space == "torch":
        if rest not in RECURRENT:
            raise Refused(f"the trace names {name}")
        return getattr(torch, rest)
    packet, _, overload = rest.partition(".")
    if space != "aten" or packet in _REFUSED:
        raise Unreplayable(f"forward calls the operator {name}")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _list_numbers(value: Any) -> Any:
    """Every number of a trace as text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _list_numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield repr(value)


class ReplayServer:
    """Answers requests of the oracle, one forward each.

    Args:
        config: descriptors of the blocks, and the layout of inputs and outputs.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._layout = Layout(**pickle.loads(bytes.fromhex(config["layout"])))
        self._inputs = slots.open_block(config["inputs"])
        self._outputs = self._layout.views(slots.open_block(config["outputs"]), self._layout.outputs)
        self._traces = [slots.open_block(handle) for handle in config["traces"]]
        patches.install(Hardware.model_validate(config["hardware"]))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Replay and report; raises nothing."""
        earlier, trace = (read_trace(block.numpy().data) for block in self._traces)
        replay = Replay(request["source"], self._inputs, self._layout, earlier, trace)
        try:
            interpreted, library = replay.run(request["order"], request["seed"], request["patience"])
            self._deliver(replay.results)
            replay.write_inputs(self._inputs)
        except Refused as refusal:
            return {"status": Status.CHEATING.value, "message": str(refusal)}
        except Unreplayable as problem:
            return {"status": Status.RUNTIME_ERROR.value, "message": f"cannot be judged without a card: {problem}"}
        return {
            "status": Status.OK.value, "fixed": replay.list_fixed_kernels(), "launches": fold_launches(interpreted.launches),
            "races": sorted({race for launch in interpreted.launches for race in launch.races})[:5],
            **ForwardReport.from_counter(library, _REPORTED_KINDS).as_dict(),
        }  # fmt: skip

    def _deliver(self, results: list[torch.Tensor]) -> None:
        if len(results) != len(self._outputs):
            raise Refused(f"the replayed forward returns {len(results)} tensor{'s' * (len(results) != 1)}")
        for number, (slot, result) in enumerate(zip(self._outputs, results, strict=True)):
            if slot.shape != result.shape or slot.dtype != result.dtype:
                raise Refused(f"output {number} of the replayed forward has another shape or type")
            slot.copy_(result)
