"""Would a degenerate answer pass as this task's solution? `python -P -m tritonsmith.evaluator.oracle.lint`. Imports torch.

Reads one JSON line, the Task record, and writes one JSON object on the original stdout: a LintReport, or {"error": sentence}.
A trusted process: it runs the user's own task file and no candidate. Every question goes to the acceptance rule of `checks/correctness.py`,
in the task's precision class, on the task's own inputs.
"""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from collections.abc import Iterator

import torch
from torch import nn

from tritonsmith.evaluator.caller.questions.lint import LintFinding, LintReport
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.oracle.checks.answers import Answers
from tritonsmith.evaluator.oracle.checks.correctness import Trial
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.oracle.checks.trials import reference_errors
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.reference.choose_size import choose_size
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.reference.updates import UpdatedBuffers, run_forward
from tritonsmith.evaluator.schema import FIT, SizeValue, Task
from tritonsmith.evaluator.tasks.files import at_chosen_size, at_shape, declared_shapes, ends_of

_FLAT = 0.01
"""Ratio of standard deviation to mean below which a report mentions that an output hardly varies."""
_NUDGE = 0.1

Tensors = list[torch.Tensor]


class TaskLinter:
    """One task, its reference, and two draws of inputs and weights.

    Raises:
        TaskError: the reference cannot be run in its own precision.
    """

    def __init__(self, task: Task) -> None:
        self.findings: list[LintFinding] = []
        self.notes: list[str] = []
        self.loaded = LoadedTask(task, next(iter(CARDS.values())), "cpu")
        self.task = self.loaded.task
        self.own_output = self._run_reference()
        self.inputs, self.other_inputs = self.loaded.draw("own"), self.loaded.draw("own")

    def _run_reference(self) -> Tensors:
        """The outputs in the reference's own types."""
        reference = self.loaded.reference
        return run_forward(reference.build(0), reference.draw_inputs(0), self.loaded.updates, self.loaded.written)

    def report(self) -> LintReport:
        """Every question asked; later ones are left out where the oracle itself gives no finite answer."""
        loaded = self.loaded
        self._check_other_sizes()
        if loaded.written:
            self._find("inputs changed", "forward changes a tensor that it was given; return new tensors, since calls share their inputs")
        try:
            self.oracle = loaded.oracle(self.inputs)
            self.others = loaded.oracle(self.other_inputs)
        except Exception as error:  # noqa: BLE001 - the task's own code; any exception means that it cannot run in float64
            text = " ".join(str(error).split())[:200]
            self._find("no float64 oracle", f"forward fails with float64 inputs and weights ({type(error).__name__}: {text})")
            return self._make_report()
        self._check_repetition()
        if self._check_finite():
            self.errors = reference_errors(loaded, Answers(loaded, self.inputs))
            self._check_degenerate_answers()
            self._check_inputs()
            self._check_weights()
            self._describe_outputs()
        return self._make_report()

    def _make_report(self) -> LintReport:
        self.loaded.close()
        return LintReport(task=self.task.name, size=self.task.size, findings=tuple(self.findings), notes=tuple(self.notes))

    def _find(self, name: str, reason: str) -> None:
        self.findings.append(LintFinding(name=name, reason=reason))

    # ---- the rule

    def _passes(self, answer: Tensors) -> bool:
        """Whether an answer to the first inputs would be accepted."""
        typed = [tensor.to(own.dtype) for tensor, own in zip(answer, self.own_output, strict=True)]
        return Trial(error_stats(typed, self.oracle), self.errors).meets(self.task.precision)

    def _say_distance(self, answer: Tensors) -> str:
        """How far an answer is off, for a reason."""
        stats = error_stats([tensor.to(own.dtype) for tensor, own in zip(answer, self.own_output, strict=True)], self.oracle)
        own = self.errors[self.task.precision.arithmetic]
        return f"its root mean square error is {stats.rms:.3g}, the reference's own {own.rms:.3g}, results are near {own.oracle_rms:.3g}"

    # ---- the questions

    def _check_other_sizes(self) -> None:
        """Every size that the task declares, both ends of a span, must load and run."""
        for shape in declared_shapes(self.task):
            for changes in ends_of(shape):
                try:
                    reference = load_reference(at_shape(self.task, changes))
                    outputs = flatten(reference.forward(reference.build(0), reference.draw_inputs(0)))
                except TaskError as error:
                    self._find("size", f"at {_describe_changes(changes)} the reference does not run ({error}); fix SHAPES")
                    continue
                if not all(bool(torch.isfinite(output).all()) for output in outputs if output.is_floating_point()):
                    self._find("size", f"at {_describe_changes(changes)} results are infinite or undefined; fix SHAPES")

    def _check_repetition(self) -> None:
        again = self.loaded.oracle(self.inputs)
        differing = [_measure_distance(first, second) for first, second in zip(self.oracle, again, strict=True)]
        if not all(_are_equal(first, second) for first, second in zip(self.oracle, again, strict=True)):
            self._find("random", f"two calls of forward on equal inputs and weights differ by up to {max(differing):.3g}; draw outside it")

    def _check_finite(self) -> bool:
        bad = [(~torch.isfinite(tensor)).sum().item() for tensor in (*self.oracle, *self.own_output) if tensor.is_floating_point()]
        total = sum(tensor.numel() for tensor in (*self.oracle, *self.own_output))
        if any(bad):
            self._find("not finite", f"{int(sum(bad))} of {total} result values are infinite or undefined; choose inputs that avoid it")
            return False
        if not total:
            self._find("empty", "forward returns no element; every answer of that shape would pass")
        return bool(total)

    def _check_degenerate_answers(self) -> None:
        for name, words, answer in self._degenerate_answers():
            if self._passes(answer):
                self._find(name, f"{words} would be accepted: {self._say_distance(answer)}")

    def _degenerate_answers(self) -> Iterator[tuple[str, str, Tensors]]:
        oracle = self.oracle
        yield "zeros", "zeros everywhere", [torch.zeros_like(output) for output in oracle]
        yield "constant", "one constant for each output", [_make_constant(output) for output in oracle]
        if not _all_equal(self.inputs, self.other_inputs):
            yield "other inputs", "the result for other inputs (kept from an earlier call)", self.others
        floating = [tensor for tensor in self.inputs if tensor.is_floating_point()]
        if len(oracle) == 1 and floating and floating[0].shape == oracle[0].shape:
            yield "first input", "the first input, unchanged", [floating[0]]
        rounded = [output.bfloat16().double() if output.is_floating_point() else output for output in oracle]
        strict = not self.task.precision.allows_tf32 and any(output.dtype == torch.float32 for output in self.own_output)
        if strict:
            yield "rounded", "the right result rounded to bfloat16", rounded

    def _check_inputs(self) -> None:
        if self.inputs and _all_equal(self.inputs, self.other_inputs):
            self._find("inputs do not vary", "get_inputs returns the same values under two seeds: a result kept from before would pass")
        for number, (drawn, other) in enumerate(zip(self.inputs, self.other_inputs, strict=True)):
            changed = list(self.inputs)
            changed[number] = other if not torch.equal(drawn, other) else _move(drawn)
            with_other = self._try_oracle(changed)
            if with_other is not None and not torch.equal(drawn, changed[number]) and self._passes(with_other):
                words = f"the result for another tensor {number} would be accepted: {self._say_distance(with_other)}"
                self._find("input unused", f"input tensor {number} of {len(self.inputs)} hardly matters; {words}")

    def _check_weights(self) -> None:
        parameters = dict(self.loaded.model64.named_parameters())
        if not parameters:
            return
        used = self._find_used(parameters)
        idle = [name for name in parameters if name not in used]
        if idle:
            self.notes.append(f"forward never reads {', '.join(idle)}; a candidate must own them all the same")
        before = copy.deepcopy(self.loaded.model64.state_dict())
        self.loaded.new_weights(moved=False)
        fresh = dict(self.loaded.model64.named_parameters())
        drawn = {name: value.detach().clone() for name, value in fresh.items()}
        others = self.loaded.oracle(self.inputs)
        if used and self._passes(others):
            self._find("other weights", f"the result with other weights would be accepted: {self._say_distance(others)}")
        for name in sorted(used):
            self.loaded.model64.load_state_dict(before)
            target = dict(self.loaded.model64.named_parameters())[name]
            with torch.no_grad():
                target.copy_(drawn[name] if not torch.equal(drawn[name], target) else _move(target))
            answer = self._try_oracle(self.inputs)
            if answer is not None and self._passes(answer):
                words = f"the result with another value would be accepted: {self._say_distance(answer)}"
                self._find("weight unused", f"{name} hardly matters; {words}")
        self.loaded.model64.load_state_dict(before)

    def _find_used(self, parameters: dict[str, nn.Parameter]) -> set[str]:
        """Parameters that forward reads, as the autograd graph shows; all where it shows nothing."""
        loaded = self.loaded
        tensors = iter([tensor.double() if tensor.is_floating_point() else tensor.clone() for tensor in self.inputs])
        values = [next(tensors) if is_tensor else plain for plain, is_tensor in zip(loaded.plain, loaded.is_tensor, strict=True)]
        buffers = UpdatedBuffers(loaded.model64, loaded.updates)
        try:
            with loaded.in_float64(loaded.model64):
                outputs = [output for output in flatten(loaded.model64(*values)) if output.requires_grad]
            wanted = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
            found = torch.autograd.grad([output.sum() for output in outputs], list(wanted.values()), allow_unused=True) if outputs else ()
        except RuntimeError:  # a forward that cannot be differentiated
            return set(parameters)
        finally:
            buffers.set_back()
        if not outputs:
            return set(parameters)
        read = {name for name, gradient in zip(wanted, found, strict=True) if gradient is not None}
        return read | (set(parameters) - set(wanted))

    def _try_oracle(self, inputs: Tensors) -> Tensors | None:
        """The outputs, or None where a made-up value is outside what forward takes (an index out of range, a length)."""
        try:
            outputs = self.loaded.oracle(inputs)
        except Exception:  # noqa: BLE001 - the task's own code on values that it did not choose
            return None
        same = all(output.shape == own.shape for output, own in zip(outputs, self.oracle, strict=True))
        return outputs if same else None

    def _describe_outputs(self) -> None:
        for number, output in enumerate(self.oracle):
            values = output.double()
            spread, mean = float(values.std(correction=0)), abs(float(values.mean()))
            ratio = spread / mean if mean else math.inf
            largest, flat = float(values.abs().max()), "; it hardly varies" if ratio < _FLAT else ""
            name = self.loaded.call.name_result(number)
            self.notes.append(f"{name}: up to {largest:.3g}, standard deviation {spread:.3g}, mean {values.mean():.3g}{flat}")


def _describe_changes(changes: dict[str, SizeValue]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def _make_constant(tensor: torch.Tensor) -> torch.Tensor:
    """The mean everywhere, or the most frequent value of an output of whole numbers."""
    if tensor.is_floating_point():
        return torch.full_like(tensor, tensor.mean().item())
    return tensor.reshape(-1).long().mode().values.to(tensor.dtype).expand(tensor.shape)


def _move(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with other values of the same kind."""
    if tensor.is_floating_point():
        return tensor + _NUDGE * (1.0 + tensor.abs()) * torch.randn_like(tensor)
    return ~tensor if tensor.dtype == torch.bool else tensor.roll(1)


def _are_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)) if first.is_floating_point() else torch.equal(first, second)


def _all_equal(firsts: Tensors, seconds: Tensors) -> bool:
    return all(torch.equal(first, second) for first, second in zip(firsts, seconds, strict=True))


def _measure_distance(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first.double() - second.double()).abs().max()) if first.numel() else 0.0


def lint(task: Task) -> LintReport:
    """The report about a task, at a size of our choice where the task leaves that to us. Raises TaskError."""
    task = at_chosen_size(task, choose_size(task) if task.size == FIT else None)
    report = TaskLinter(task).report()
    return report.model_copy(update={"notes": (*((task.sized,) if task.sized else ()), *report.notes)})


def main() -> None:
    """Entry point of the process."""
    answer_to = os.dup(1)
    os.dup2(2, 1)  # what the task prints must not mix with the answer
    set_tf32(False)
    task = Task.model_validate_json(sys.stdin.readline())
    if task.size != "full":
        torch.set_num_threads(1)  # at small sizes threads cost more than they give
    STEPS.note("run the task")
    try:
        answer = lint(task).model_dump(mode="json")
    except TaskError as error:
        answer = {"error": str(error)}
    with os.fdopen(answer_to, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
