"""Serves one candidate, or the baselines, to the oracle: answers the doorbell until it is asked to exit or killed.

Nothing that this process says is believed without a check by the oracle. Results are bytes in poisoned slots, and times are bounded by
the oracle's clock.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.channel import cuda_memory, slots
from tritonsmith.evaluator.channel.compiled_code import unpack_cache
from tritonsmith.evaluator.channel.doorbell import Command, Doorbell
from tritonsmith.evaluator.channel.slots import Layout
from tritonsmith.evaluator.channel.strides import read_order
from tritonsmith.evaluator.confined.runner import candidate, quiet
from tritonsmith.evaluator.confined.runner.baselines import Baselines
from tritonsmith.evaluator.confined.runner.earlier import EarlierResult
from tritonsmith.evaluator.confined.runner.faults import CandidateFault, classify
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.reference.gradients import GradientPlan
from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.reference.structure import describe
from tritonsmith.evaluator.schema import Hardware, Status, Task

_LONGEST_PROBLEM = 200
"""Characters of the reason why a forward was not captured."""
_MOST_TOLD = 500
"""Tensors that a report names."""


class RunnerServer:
    """Holds the model, the slots and the doorbell of this process."""

    def __init__(self, config: dict[str, Any], control: int) -> None:
        self.control = control
        self.cuda = config["device"] == "cuda"
        self.config = config
        bell, wake = config["doorbell"]
        self.doorbell = Doorbell(bell, wake, config["device"])
        self.layout = Layout(**pickle.loads(bytes.fromhex(config["layout"])))
        # What the protocol itself uses is bound to torch's C functions before candidate code, which may patch names, is imported.
        self._sync: Callable[[], object] = torch._C._cuda_synchronize if self.cuda else (lambda: None)
        self._copy, self._contiguous = torch.Tensor.copy_, torch.Tensor.contiguous
        reference = config["role"] == "reference"
        self._reset_cache: Callable[[], None] = lambda: None
        self._copied: list[int] = []
        """Outputs of the last call in a memory layout of their own."""
        self._order: Callable[[Any], Any] = (lambda results: results) if reference else self._lay_out
        kind: type[candidate.Subject] = Baselines if reference else candidate.choose_candidate_class(cuda=self.cuda)
        self._facts = kind.facts
        self._type, self._plain = type, (torch.Tensor, torch.nn.Parameter)
        self._quiet = quiet.bind_quiet()
        if self.cuda:
            torch.cuda.init()
            if config["memory"] and not reference:  # a candidate that takes more fails alone, and not the oracle
                torch.cuda.set_per_process_memory_fraction(min(1.0, config["memory"] / torch.cuda.get_device_properties(0).total_memory))
            self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._record, self._stream = torch._C._CudaEventBase.record, torch.cuda.current_stream()
            self._elapsed = torch._C._CudaEventBase.elapsed_time
            self._reset_cache = cuda_memory.bind_cache_reset()
        self.inputs = self.layout.views(slots.open_block(config["inputs"]), self.layout.inputs)
        self.outputs = self.layout.views(slots.open_block(config["outputs"]), self.layout.outputs)
        self.arguments: list[Any] = []
        self._result: Any = None
        self._gradients = GradientPlan.from_plain(config["gradients"]) if config["gradients"] else None
        self._clocked = False
        self._earlier = EarlierResult()
        # Torch lets cuDNN use TF32 by default: a library call inside a candidate gets the class that the task asks for.
        set_tf32(config["tf32"])

    def _place_arguments(self) -> None:
        """Tensor arguments are the input slots themselves; the others come by value."""
        slots = iter(self.inputs)
        plain = pickle.loads(Path(self.config["arguments"]).read_bytes())
        self.arguments = [next(slots) if value is None and is_tensor else value for value, is_tensor in plain]

    def deliver(self, result: Any) -> None:
        """Copy every returned tensor into its slot. Raises CandidateFault for a wrong number, shape or dtype."""
        tensors = flatten(result)
        wanted = self.layout.outputs
        if len(tensors) != len(wanted):
            buffers = len(self.config["updates"]) + (len(self._gradients.names) if self._gradients else 0)
            given = len(tensors) - buffers
            wrong = f"forward returned {given} tensor{'s' * (given != 1)}, the reference returns {len(wanted) - buffers}"
            raise CandidateFault(Status.WRONG_SHAPE, wrong)
        for number, (tensor, slot, spec) in enumerate(zip(tensors, self.outputs, wanted, strict=True)):
            what = self._gradients.name_result(number) if self._gradients else f"output {number}"
            if not self._is_plain(tensor):
                name = self._type(tensor).__name__
                raise CandidateFault(Status.WRONG_SHAPE, f"{what} is a {name}, return a plain torch.Tensor")
            if tuple(tensor.shape) != spec.shape or tensor.dtype != slot.dtype:
                own = slots.spec_of(tensor)
                raise CandidateFault(
                    Status.WRONG_SHAPE,
                    f"{what} is {own.dtype}{list(own.shape)}, the reference returns {spec.dtype}{list(spec.shape)}",
                )
            self._copy(slot, tensor)

    def _lay_out(self, results: Any) -> Any:
        """A candidate's outputs, those in a memory layout of their own copied: neither contiguous nor in the reference's layout.

        On a card that is part of the timed call: the user of such an output pays for the copy. Else the delivery would take longer than
        the baselines', as where work is put off. What `deliver` refuses stays as it is.
        """
        self._copied = []
        if self._type(results) is not list or len(results) != len(self.config["orders"]):
            return results
        for number, (tensor, order) in enumerate(zip(results, self.config["orders"], strict=True)):
            if self._is_plain(tensor) and read_order(tensor) not in (None, order):
                self._copied.append(number)
                if self.cuda:
                    results[number] = self._contiguous(tensor)
        return results

    def _is_plain(self, tensor: Any) -> bool:
        """Whether it is a tensor of torch's own classes: a subclass could do its work while it is delivered."""
        return any(self._type(tensor) is kind for kind in self._plain)

    def report(self, message: dict[str, Any]) -> None:
        """One JSON line to the oracle; long text is cut so that the line stays within its limit."""
        if "message" in message:
            message["message"] = str(message["message"])[:4000]
        send_line(self.control, message)

    def start(self) -> None:
        """Import and build what this process runs, then say `ready`."""
        self._place_arguments()
        if self.config["role"] == "reference":
            task, config = Task.model_validate(self.config["task"]), self.config
            weights, build, updates, frugal = (config[name] for name in ("weights", "build", "updates", "frugal"))
            self.subject: candidate.Subject | Baselines = Baselines(
                task, weights, self.arguments, build, updates, frugal=frugal, gradients=self._gradients
            )
        else:
            if self.config["code"]:
                with contextlib.suppress(OSError, ValueError):  # then this process compiles
                    unpack_cache(Path(self.config["code"]), Path(os.environ["TRITON_CACHE_DIR"]))
            self.subject = candidate.open_candidate(
                Path(self.config["source"]), pickle.loads(Path(self.config["init"]).read_bytes()), Path(self.config["weights"]),
                Hardware.model_validate(self.config["hardware"]), cuda=self.cuda, trace=self.config["trace"],
                state=candidate.StateOfCalls(self.config["train"], tuple(self.config["updates"]), self._gradients),
            )  # fmt: skip
        gc.freeze()
        if self.cuda:
            gc.disable()  # no collection in the middle of a timed call; some hundred calls leave little behind
        self.report({"event": "ready"})

    def serve(self) -> None:
        """Answer the doorbell until EXIT."""
        last = 0
        self._quiet()
        while True:
            last, command, argument = self.doorbell.next(last)
            if command is Command.EXIT:
                return
            try:
                self._do(command, argument, last)
            except BaseException as error:  # noqa: BLE001 - the process boundary: what candidate code raises becomes a report
                self.report({"event": "failed", "nonce": last} | classify(error, self.config.get("source", "")))
                self.doorbell.answer(last, failed=True)
            else:
                self.doorbell.answer(last)
            self._quiet()

    def _do(self, command: Command, argument: int, nonce: int) -> None:
        if command is Command.CALL:
            self._result = None
            with torch.no_grad():
                self._result = self._order(self.subject.call(self.arguments, argument))
            self._sync()
        elif command is Command.DELIVER:
            if self._clocked:
                self.doorbell.note_device_ms(self._elapsed(self._start, self._stop))
                # results of no elements, or on the host, need not wait for the card: the answer would come while it is not ours
                self._record(self._start, self._stream)
                self._clocked = False
            with torch.no_grad():
                self.deliver(self._result)
                self.subject.set_back()  # now, so that no timed call does it
            self._result = self.subject.returned = None
            self._sync()
            self._reset_cache()
        elif command is Command.STRUCTURE:
            returned = self.subject.returned
            self._earlier = EarlierResult(flatten(returned), self.inputs)
            told = {"nested": describe(returned).as_plain(), "in_arguments": self._earlier.in_arguments[:_MOST_TOLD]}
            self.report({"event": "structure", "nonce": nonce, "structure": told})
        elif command is Command.EARLIER:
            with torch.no_grad():
                self._earlier.deliver(self.outputs, self._copy)
            self._sync()
        elif command is Command.EMPTY:
            self._record(self._start, self._stream)
            self._record(self._stop, self._stream)
            self._sync()
        elif command is Command.CLOCKED:
            self._record(self._start, self._stream)
            with torch.no_grad():
                self._result = self._order(self.subject.call(self.arguments, argument))
            self._record(self._stop, self._stream)
            self._sync()
            self._clocked = True
        elif command is Command.WEIGHTS:
            self.subject.load_weights(Path(self.config["weights"]))
            self._sync()
        elif command is Command.CAPTURE:
            self._capture(nonce)
        elif command is Command.FACTS:
            with torch.no_grad():
                facts, result = self._facts(self.subject, self.arguments, argument)
                self._result = result if result is None else self._order(result)
            self.report({"event": "facts", "nonce": nonce, "facts": facts | {"copied": self._copied}})

    def _capture(self, nonce: int) -> None:
        """Capture forward in a CUDA graph, and report why it cannot be had; nobody asks a process for more in which that failed."""
        problem = ""
        try:
            if not isinstance(self.subject, candidate.CardCandidate):
                raise CandidateFault(Status.UNSUPPORTED, "only a candidate on a card is captured")
            with torch.no_grad():
                self.subject.capture(self.arguments)
            self._sync()
        except BaseException as error:  # noqa: BLE001 - candidate code runs here
            said = str(error).strip().splitlines()
            problem = f"{type(error).__name__}: {said[0] if said else ''}"[:_LONGEST_PROBLEM]
        self.report({"event": "captured", "nonce": nonce, "captured": {"problem": problem}})
