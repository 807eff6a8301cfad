"""One task inside the oracle: the reference in its precision and in float64, secret seeds, inputs, slots. Imports torch."""

from __future__ import annotations

import contextlib
import copy
import pickle
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.channel.own_call import write_call
from tritonsmith.evaluator.channel.slots import Layout, SharedBlock, fill_slots, input_spec, list_results, spec_of
from tritonsmith.evaluator.channel.strides import distinct, read_order
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.arithmetic import Arithmetic
from tritonsmith.evaluator.oracle.checks.batch import Batch
from tritonsmith.evaluator.oracle.checks.domains import find_domains
from tritonsmith.evaluator.oracle.checks.inputs import map_to_unit_range
from tritonsmith.evaluator.oracle.checks.judged_call import JudgedCall
from tritonsmith.evaluator.oracle.checks.measure import equal_bits
from tritonsmith.evaluator.oracle.checks.memory import ROOMY, MemoryPlan, OraclePlace
from tritonsmith.evaluator.oracle.checks.written import find_written, name_inputs
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.runner import RunnerHandle, RunnerSetup
from tritonsmith.evaluator.reference.draws import DrawWatch
from tritonsmith.evaluator.reference.float64 import InFloat64, widen_module
from tritonsmith.evaluator.reference.given import inputs_fit, read_inputs
from tritonsmith.evaluator.reference.gradients import load_judged
from tritonsmith.evaluator.reference.number_types import stand_for
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.reference.updates import run_forward
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Task, TensorSpec
from tritonsmith.evaluator.tasks.files import in_found_class

UNDEFINED = (RuntimeError, ValueError, ArithmeticError, LookupError, AssertionError)
"""What a reference raises on inputs that mean nothing to it."""
_TF32_ROUND = 0x1000
"""Half of the last bit that TF32 keeps, as an int32."""
_TF32_MASK = -0x2000
"""The bits of a float32 that TF32 keeps."""
_CHECKS_A_RANGE = re.compile(r"\bbinary_cross_entropy\b|\bBCELoss\b")
"""Operators that stop the whole card when a value is no share: there nothing can be tried out."""
_MOVE = 0.2
"""Standard deviation of the change to constant weights, as a share of their value."""
_MOST_BATCHES = 100
"""Batches that a norm in training mode has seen at most."""
MOVED_WEIGHTS = 1
"""The first draw of weights that leaves nothing as every module of the task begins: see `move_constants`."""
_FARTHEST = 3.0
"""The largest such change, in standard deviations."""


def fresh_seed() -> int:
    """A seed from the operating system; it never leaves this process."""
    return secrets.randbits(62)


def round_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """float32 rounded to TF32's 10 mantissa bits (nearest, ties away), as tensor cores read it."""
    if tensor.dtype != torch.float32:
        return tensor
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + _TF32_ROUND) & _TF32_MASK).view(torch.float32)


def move_constants(model: nn.Module, seed: int) -> None:
    """Other values for parameters that hold one value everywhere, and for statistics of normalisation.

    With a scale of 1, a shift of 0 and a variance of 1, as they are drawn, a kernel that never reads them would be right.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]  # the only base that they share
    for norm in norms:
        if norm.training and norm.num_batches_tracked is not None:  # else a kernel that stores 1 would count
            norm.num_batches_tracked.random_(1, _MOST_BATCHES, generator=generator)
    statistics = [statistic for norm in norms for statistic in (norm.running_mean, norm.running_var) if statistic is not None]
    with torch.no_grad():
        for values in (*model.parameters(), *statistics):
            if not values.is_floating_point() or values.numel() == 0 or not bool((values == values.reshape(-1)[0]).all()):
                continue
            noise = torch.randn(values.shape, generator=generator).clamp(-_FARTHEST, _FARTHEST).to(values)
            first = float(values.reshape(-1)[0])
            values.copy_(values * (1.0 + _MOVE * noise) if first else _MOVE * noise)  # what is positive stays so


class LoadedTask:
    """Reference, weights and slots of one task on one device.

    Args:
        task: what to judge against.
        hardware: the card, present or named.
        device: `cuda` or `cpu`.
        pool: where runners on a card come from; without one each starts when it is needed.
    Raises:
        TaskError: the task file cannot be used.
    """

    def __init__(self, task: Task, hardware: Hardware, device: str, pool: RunnerPool | None = None) -> None:
        self.task = task
        self.hardware = hardware
        self.device = device
        self.reference = load_judged(task)
        self.pool = pool
        self.plan: MemoryPlan = ROOMY
        self.batch: Batch | None = None  # how the task is taken apart, where its plan wants that
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-oracle-", dir=pool.sessions if pool else None)
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        with DrawWatch() as draws:
            arguments = self.reference.draw_inputs(fresh_seed(), device)
        self.call = JudgedCall.of(self.reference, device, arguments)
        self._given = read_inputs(task)
        self.has_real = inputs_fit(self._given, [one for one in arguments if isinstance(one, torch.Tensor)][: self.call.own_inputs])
        self.is_tensor = [isinstance(argument, torch.Tensor) for argument in arguments]
        self.plain = [None if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        self.weights_path = folder / "weights.pt"
        self._weight_files: list[Path] = []
        """Every draw of weights, by its number."""
        self.weights_number = 0
        """The draw that is in use."""
        self.in_float64 = InFloat64(on_card=device == "cuda")  # around a forward of `model64`
        self._draw_weights()
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        before, versions = [tensor.clone() for tensor in tensors], [tensor._version for tensor in tensors]
        self.domains, shown = find_domains(self.reference, self.model, arguments, draws)
        self.updates = shown.updates  # names of the buffers whose values after a call are its last outputs
        self.structure, self.lent, self.decides = shown.structure, shown.lent, shown.decides  # see `WatchedForward`
        self.written = find_written(tensors, before, versions)  # numbers of inputs whose values after a call are results too
        self.input_names = name_inputs(self.model, self.is_tensor, self.call.plan)
        self.task = task = in_found_class(task, shown.precision)
        self.arithmetic = Arithmetic.of(task.precision, shown.precision, (*tensors, *self.model.state_dict().values(), *shown.outputs))
        self.in_unit_range = _refuses_other_ranges(self, before)  # what floating inputs are brought into
        self.layout = Layout(tuple(map(input_spec, tensors)), tuple(map(spec_of, shown.outputs)))
        self.results = tuple(map(spec_of, list_results(shown.outputs, tensors, self.written)))
        self.block = SharedBlock(self.layout.input_bytes, device)
        self.block.tensor.fill_(0xFF)  # what lies between elements and between tensors belongs to no input
        self.slots = self.layout.views(self.block.tensor, self.layout.inputs)
        init_path, arguments_path = folder / "init.pkl", folder / "arguments.pkl"
        init_path.write_bytes(pickle.dumps(self.reference.init_inputs()))
        arguments_path.write_bytes(pickle.dumps(list(zip(self.plain, self.is_tensor, strict=True))))
        for path in (init_path, arguments_path, self.weights_path):
            path.chmod(0o644)  # runners of the pool, which are another user, find them in the folder
        self.setup = RunnerSetup(
            device, self.layout, init_path, arguments_path, self.weights_path, hardware, self.block, self.arithmetic.tf32,
            train=task.mode == "train", updates=self.updates, written=self.written, orders=tuple(map(read_order, shown.outputs)),
            gradients=self.call.plan,
        )  # fmt: skip
        self.mark: Path | None = None  # a file that exists while something is measured
        self.code: Callable[[str], Path | None] = lambda sha: None  # a file with what the text of that digest compiles to
        self.compile_request = folder / "compile.pkl"
        self.compile_request.write_bytes(pickle.dumps(_list_compile_arguments(self)))

    def _draw_weights(self, *, moved: bool = False) -> None:
        self.model: nn.Module = self.reference.build(fresh_seed())
        if not self._weight_files:  # the first draw is the one that the task brings along
            self.reference.load_weights(self.model)
        if moved:
            move_constants(self.model, fresh_seed())
        self.model = self.model.to(self.device)
        self.weights_number = len(self._weight_files)
        self._weight_files.append(self.weights_path.with_name(f"weights{self.weights_number}.pt"))
        torch.save({name: tensor.cpu() for name, tensor in self.model.state_dict().items()}, self._weight_files[-1])
        self._publish_weights()

    def _publish_weights(self) -> None:
        """Let runners read the weights in use, and the float64 reference have them."""
        shutil.copyfile(self._weight_files[self.weights_number], self.weights_path)
        self.model64: nn.Module = widen_module(self.model).to(self.oracle_device)

    @property
    def oracle_device(self) -> str:
        """Where the float64 reference is computed."""
        return "cpu" if self.plan.oracle is OraclePlace.HOST else self.device

    def take_plan(self, plan: MemoryPlan) -> None:
        """Judge under this plan from now on."""
        self.plan = plan
        self.setup = replace(self.setup, memory=plan.granted)
        self.model64 = self.model64.to(self.oracle_device)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the reference's parameters and buffers."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.model.parameters(), *self.model.buffers()))

    def new_weights(self, *, moved: bool = True) -> None:
        """Draw the weights again and move those that every draw leaves constant; runners must then read the file."""
        self._draw_weights(moved=moved)

    def use_weights(self, number: int) -> None:
        """Take an earlier draw, or the next one, as `new_weights` makes it; runners must then read the file."""
        if number == len(self._weight_files):
            self._draw_weights(moved=True)
        elif number != self.weights_number:
            self.weights_number = number
            self.model.load_state_dict(torch.load(self._weight_files[number], weights_only=True))
            self._publish_weights()

    def copy_weights(self, path: Path | None = None) -> Path:
        """The weights as they are now in a file that stays as it is: in `path`, else in a new one."""
        return Path(shutil.copy(self.weights_path, path or self.weights_path.with_name(f"copy-{secrets.token_hex(8)}.pt")))

    def draw(self, kind: str) -> list[torch.Tensor]:
        """Fresh tensors for the slots: `own` by the task's get_inputs, other kinds as `inputs.KINDS` has them, in the same shapes."""
        own = [argument for argument in self.reference.draw_inputs(fresh_seed(), self.device) if isinstance(argument, torch.Tensor)]
        if kind == "real" and self._given is not None:
            return self.call.fit_given(self._given, own)
        drawn = self.domains.redraw(kind, own, fresh_seed())
        return map_to_unit_range(drawn, own) if self.in_unit_range and kind != "own" else drawn

    def place(self, tensors: list[torch.Tensor]) -> None:
        """Copy tensors into the input slots that runners see."""
        fill_slots(self.slots, tensors)
        self.sync()

    def find_changed(self, tensors: list[torch.Tensor]) -> int | None:
        """Number of the first input slot that forward should leave alone and whose content differs from `tensors`; None for none."""
        for number, (slot, tensor) in enumerate(zip(self.slots, tensors, strict=True)):
            if number not in self.written and not equal_bits(distinct(slot), distinct(tensor, slot)):
                return number
        return None

    def sync(self) -> None:
        """Wait for the card."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def fill_arguments(self, tensors: Sequence[Any]) -> list[Any]:
        """Forward's arguments: these tensors, and the others as they are."""
        left = iter(tensors)
        return [next(left) if is_tensor else plain for plain, is_tensor in zip(self.plain, self.is_tensor, strict=True)]

    def oracle(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The reference in float64, where the plan has it computed."""
        with self.in_float64(self.model64):
            return run_forward(self.model64, self.fill_arguments(self.widen(tensors)), self.updates, self.written)

    def widen(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies in float64 where the plan has the oracle computed; whole numbers stay such."""
        return [_widen(tensor, spec, self.oracle_device) for tensor, spec in zip(tensors, self.layout.inputs, strict=True)]

    def output_shapes(self, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        """Tensors without values in the shapes of the results; `dtype` stands for that of floating ones."""
        own = [(spec.shape, getattr(torch, spec.dtype)) for spec in self.results]
        return [torch.empty(shape, dtype=(dtype if kind.is_floating_point else None) or kind, device="meta") for shape, kind in own]

    def reference_outputs(self, tensors: list[torch.Tensor], precision: PrecisionClass) -> list[torch.Tensor]:
        """What the reference itself leaves when it computes in the given class, in the results' own types."""
        set_tf32(precision is PrecisionClass.TF32)
        model, inputs = self.model, [tensor.clone() for tensor in tensors]
        if precision is PrecisionClass.HALF and not self.arithmetic.half:
            model = copy.deepcopy(self.model).bfloat16()
            inputs = [tensor.bfloat16() if tensor.is_floating_point() else tensor for tensor in inputs]
        elif precision is PrecisionClass.TF32 and self.device == "cpu":
            model = copy.deepcopy(self.model)
            for parameter in model.parameters():
                parameter.data = round_to_tf32(parameter.data)
            inputs = [round_to_tf32(tensor) for tensor in inputs]
        outputs = run_forward(model, self.fill_arguments(inputs), self.updates, self.written)
        set_tf32(False)
        return [output.to(getattr(torch, spec.dtype)) for output, spec in zip(outputs, self.results, strict=True)]

    def runner(self, kernel: KernelText, environment: dict[str, str] | None = None) -> RunnerHandle:
        """A runner for this candidate: the one that has waited longest, where one does."""
        runner = self.new_runner("candidate", self.setup, environment)
        runner.begin(kernel, self.code(kernel.sha))
        return runner

    def new_runner(self, role: str, setup: RunnerSetup, environment: dict[str, str] | None = None) -> RunnerHandle:
        """A runner that does not know yet what to run."""
        return RunnerHandle(setup, role, environment, self.pool.take(role) if self.pool else None)

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """While it is open nothing of ours uses the processor: waiting runners stand still, and compilers see the mark and do so too."""
        if self.mark is not None:
            self.mark.touch()
        if self.pool is not None:
            self.pool.pause()
        try:
            yield
        finally:
            if self.pool is not None:
                self.pool.resume()
            if self.mark is not None:
                self.mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Give slots and files back."""
        self.slots = []
        self.block.close()
        self._folder.cleanup()


def _widen(tensor: torch.Tensor, spec: TensorSpec, device: str) -> torch.Tensor:
    """A copy in float64 that stands for the input's type, also where moved values are in float64 already."""
    wide = tensor.to(device, torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
    return stand_for(wide, getattr(torch, spec.dtype))


def write_own_call(loaded: LoadedTask) -> Path:
    """A file with one call as it comes, for processes in which a candidate runs by itself; drawn anew each time."""
    path = loaded.weights_path.with_name("call.pt")
    settings = {"init": loaded.reference.init_inputs(), "train": loaded.task.mode == "train", "tf32": loaded.arithmetic.tf32}
    settings["gradients"] = loaded.call.as_plain()
    write_call(path, loaded.fill_arguments(loaded.draw("own")), loaded.model.state_dict(), **settings)
    return path


def _list_compile_arguments(loaded: LoadedTask) -> dict[str, Any]:
    specs = [spec if spec.strides or spec.offset else (spec.shape, spec.dtype) for spec in loaded.layout.inputs]
    asked = {"overrides": {}, "train": loaded.task.mode == "train", "tf32": loaded.arithmetic.tf32}
    asked["gradients"] = loaded.call.as_plain()
    return asked | {"init": loaded.reference.init_inputs(), "inputs": loaded.fill_arguments(specs)}


def _refuses_other_ranges(loaded: LoadedTask, tensors: list[torch.Tensor]) -> bool:
    """Whether the reference raises on standard normal inputs, as one of probabilities does."""
    if loaded.device == "cuda":
        return bool(_CHECKS_A_RANGE.search(loaded.task.source))
    try:
        inputs = [tensor.clone() for tensor in loaded.domains.redraw("signed", tensors, fresh_seed())]
        run_forward(loaded.model, loaded.fill_arguments(inputs), loaded.updates)
    except UNDEFINED:
        return True
    return False
