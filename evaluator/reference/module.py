"""The reference of a task, executed: module, weights, inputs, outputs. Imports torch; for trusted processes.

Any error inside the task file becomes a TaskError with one sentence: file, line in that file, what happened, the cure.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.processes.scrubbed import ALLOWED_ENVIRONMENT
from tritonsmith.evaluator.reads.owners import CodeKind, kind_of
from tritonsmith.evaluator.reads.worlds import TaskWorld, enter_world, find_contradictions
from tritonsmith.evaluator.reference.given import list_given, load_weights
from tritonsmith.evaluator.reference.structure import Differentiated
from tritonsmith.evaluator.schema import SizeValue, Task
from tritonsmith.evaluator.tasks.declarations import assigned_names

_MESSAGE_CHARACTERS = 300
_VARIABLES = frozenset(ALLOWED_ENVIRONMENT)
_ABOUT_A_CARD = re.compile("cuda|nvidia", re.IGNORECASE)
_NO_CARD = "there is no CUDA card here: name no device (inside forward x.device), since the judge moves the module and its inputs itself"
"""The cure where a file asks for one."""
_EVERY_MODULE_HAS = frozenset(vars(nn.Module()))


def flatten(output: Any) -> list[torch.Tensor]:
    """Tensors of a nested output in a stable order, as they are compared: complex ones as pairs of real numbers."""
    found = list_tensors(output)
    return [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in found]


def list_tensors(value: Any) -> list[torch.Tensor]:
    """Tensors of a nested value (tuples, lists, dicts by sorted key, dataclasses), in a stable order; other values are left out."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Differentiated):
        return [*value.tensors, *value.gradients]
    if isinstance(value, Mapping):
        parts: Sequence[Any] = [value[key] for key in sorted(value, key=str)]
    elif isinstance(value, tuple | list):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        parts = []
    return [tensor for part in parts for tensor in list_tensors(part)]


def list_held(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a module holds besides its parameters, by attribute: `scale`, or `tables['a'][0]` in a list or dict."""
    for name, value in (vars(module) | module._buffers).items():
        if name not in _EVERY_MODULE_HAS:
            yield from _list_inside(name, value)


def _list_inside(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _list_inside(f"{path}[{place}]", part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if isinstance(key, int) or (isinstance(key, str) and key.isidentifier()):
                yield from _list_inside(f"{path}[{key!r}]", part)


@contextlib.contextmanager
def take_plain_layers() -> Iterator[None]:
    """While open, transformer layers of torch.nn compute what their Python says, in evaluation as in training.

    In evaluation PyTorch has an operator for a whole layer. On CUDA that one takes the tanh form of GELU where the layer says GELU, in
    every type: 390 times an fp32 layer's own error. It leaves zeros at padded places as well.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


class Reference:
    """The executed task file.

    Args:
        task: the task whose source was executed.
        module: the namespace it left.
        world: its helper modules, and what it read.
    """

    def __init__(self, task: Task, module: types.ModuleType, world: TaskWorld) -> None:
        self.task = task
        self.module = module
        self.world = world

    def init_inputs(self) -> list[Any]:
        """Arguments of Model's constructor. Raises TaskError."""
        with _blame_task(self.task, "get_init_inputs()", "it must return the list of Model's arguments"):
            values = self.module.get_init_inputs()
        return self._as_list("get_init_inputs", values)

    def build(self, seed: int) -> nn.Module:
        """The model in the task's mode with weights drawn under the seed; the caller's random state stays as it was. Raises TaskError.

        Buffers are those of its WEIGHTS, where it brings them along: a mask or a place is no weight to be drawn.
        """
        arguments = self.init_inputs()
        what = f"Model({', '.join(map(_shorten, arguments))})"
        with use_seed(seed), torch.no_grad(), _blame_task(self.task, what, "fix __init__ or get_init_inputs"):
            model = self.module.Model(*arguments)  # without a graph: only then can what is computed of weights be copied
        if not isinstance(model, nn.Module):
            raise TaskError(f"{self.task.path}: Model is not a torch.nn.Module; derive it from torch.nn.Module")
        if lazy := [name for name, value in model.named_parameters() if is_lazy(value)]:
            raise TaskError(f"{self.task.path}: {lazy[0]} has no size before the first call; give lazy modules their sizes (nn.Linear)")
        load_weights(self.task, model, buffers=True)
        return model.train(self.task.mode == "train")

    def load_weights(self, model: nn.Module) -> None:
        """Give a model the weights that the task brings along; without them it stays as it is. Raises TaskError."""
        load_weights(self.task, model)

    def draw_inputs(self, seed: int, device: str | torch.device = "cpu") -> list[Any]:
        """Forward's arguments drawn under the seed, tensors on the device; the caller's random state stays as it was. Raises TaskError."""
        with _blame_task(self.task, "get_inputs()", "it must return the list of forward's arguments"):
            values = self._call_get_inputs(seed, torch.device(device))
        values = self._as_list("get_inputs", values)
        for number, value in enumerate(values):
            if not isinstance(value, torch.Tensor) and list_tensors(value):  # drawn once, they would be the same in every trial
                raise TaskError(
                    f"{self._locate('get_inputs')}: argument {number + 1} that get_inputs() gives is a {type(value).__name__} that holds "
                    "tensors, which would not be drawn anew for each trial; give each tensor as an argument of its own "
                    "(def forward(self, *tensors) takes any number)"
                )
            self._require_plain([value] if isinstance(value, torch.Tensor) else [], f"{self._locate('get_inputs')}: get_inputs() gives")
        return [value.detach().to(device).resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value for value in values]

    def _call_get_inputs(self, seed: int, device: torch.device) -> Any:
        """Drawn on the device itself, since the largest tasks hold gigabytes; on the CPU where the file insists on it."""
        if device.type != "cpu":
            with contextlib.suppress(RuntimeError), use_seed(seed), device:
                return self.module.get_inputs()
        with use_seed(seed):
            return self.module.get_inputs()

    def forward(self, model: nn.Module, inputs: list[Any]) -> Any:
        """What the model returns, checked to hold a tensor. Raises TaskError."""
        return self.check_output(lambda: model(*inputs))

    def check_output(self, call: Callable[[], Any]) -> Any:
        """What a call of forward returns, checked to hold a tensor; its faults are the task's. Raises TaskError."""
        with torch.no_grad(), take_plain_layers(), _blame_task(self.task, "forward", "make Model.forward accept what get_inputs returns"):
            output = call()
        if not flatten(output):
            raise TaskError(f"{self._locate_forward()} returns {type(output).__name__}, which holds no tensor; return a tensor or several")
        self._require_plain(list_tensors(output), f"{self._locate_forward()} returns")
        return output

    def _require_plain(self, tensors: list[torch.Tensor], where: str) -> None:
        """Raises TaskError for a tensor whose elements do not lie in memory one by one."""
        for tensor in tensors:
            kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
            kind = "meta" if tensor.device.type == "meta" else kind
            if kind != "strided":
                raise TaskError(f"{where} a {kind} tensor, whose elements cannot be compared one by one; use a plain one (.to_dense())")

    def require_elements(self, tensors: list[torch.Tensor]) -> None:
        """Raises TaskError where no output has an element: at such a size every kernel would be right."""
        if not any(tensor.numel() for tensor in tensors):
            shape = list(tensors[0].shape)
            raise TaskError(f"{self._locate_forward()} returns no element ({shape}), for which every kernel is right; choose another size")

    def refuse_forward(self, why: str) -> TaskError:
        """The error that says what is wrong with forward; `why` follows its name."""
        return TaskError(f"{self._locate_forward()} {why}")

    def _locate_forward(self) -> str:
        """Where a fault of the reference's forward lies."""
        return f"{self._locate('forward')}: forward"

    def _locate(self, function: str) -> str:
        """File and line of a function of the task; only the file where it is not found."""
        line = _find_line(self.task.source, function)
        return f"{self.task.path}, line {line}" if line else self.task.path

    def _as_list(self, function: str, values: Any) -> list[Any]:
        if isinstance(values, list | tuple):
            return list(values)
        raise TaskError(f"{self._locate(function)}: {function}() returns {type(values).__name__}; return a list, one entry per argument")


def load_reference(task: Task) -> Reference:
    """Execute a task's source in a namespace of its own, its size applied. Raises TaskError.

    An overridden name gets its value right after each statement that sets it, so that names computed from it follow. Helper modules are
    looked for in the task's folder first, and what is read is noted.
    """
    name = f"_tritonsmith_task_{task.sha}"
    module = types.ModuleType(name)
    whole = os.path.join(task.folder, os.path.basename(task.path)) if task.folder else task.path
    module.__file__ = whole  # this process has another working folder than the user
    lines = task.source.splitlines(keepends=True)
    for place in (task.path, whole):
        linecache.cache[place] = (len(task.source), None, lines, place)  # tracebacks and inspect show what was executed
    world = enter_world(task.path, task.folder, task.source, _VARIABLES)
    sys.modules[name] = module
    try:
        with _blame_task(task, "the file", "fix the file so that it imports, or install what it needs"):
            exec(compile(_apply_overrides(task), task.path, "exec"), module.__dict__)  # noqa: S102 - the user's own task file
        for path in list_given(task):
            world.notes.note_path(str(path.absolute()))
        require_same_reads(task, world)
    except TaskError:
        del sys.modules[name]
        raise
    return Reference(task, module, world)


def require_same_reads(task: Task, world: TaskWorld) -> None:
    """Raises TaskError where a file that the task reads is not as it was when the task was described."""
    for path in find_contradictions(world, task.reads):
        raise TaskError(f"{path}: has changed since {task.path} was described; put the old file back, or begin anew with the new one")


def _apply_overrides(task: Task) -> ast.Module:
    tree = ast.parse(task.source, task.path)
    body: list[ast.stmt] = []
    for statement in tree.body:
        body.append(statement)
        for name in {*assigned_names(statement)} & task.overrides.keys():
            place = ast.Assign(targets=[ast.Name(name, ast.Store())], value=_write_value(name, task.overrides[name]))
            body.append(ast.fix_missing_locations(ast.copy_location(place, statement)))
    return ast.Module(body, tree.type_ignores)


def _write_value(name: str, value: SizeValue) -> ast.expr:
    """The expression of a value; several whole numbers are a list where the file's own value is one, else a tuple."""
    if not isinstance(value, tuple):
        return ast.Constant(value)
    kind = ast.Call(ast.Name("type", ast.Load()), [ast.Name(name, ast.Load())], [])
    return ast.Call(kind, [ast.Tuple([ast.Constant(one) for one in value], ast.Load())], [])


@contextlib.contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """While open, torch draws under the seed; its own random state stays as it was."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _blame_task(task: Task, what: str, cure: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:  # foreign code: anything may come out of it
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == task.path]
        line = f", line {frames[-1].lineno}" if frames else ""
        text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS] or "no message"
        raised = f"{type(error).__name__}{_find_helper_line(task, error)}"
        raise TaskError(f"{task.path}{line}: {what} raised {raised} ({text}); {_find_cure(task, error, text) or cure}") from error


def _find_helper_line(task: Task, error: BaseException) -> str:
    """File and line of a helper module of the task that raised an error; empty where none did."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if kind_of(frame.filename) is CodeKind.LOCAL]
    return f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames and frames[-1].filename != task.path else ""


def _find_cure(task: Task, error: BaseException, text: str) -> str:
    """What helps where a module, a file or a card is missing; empty for other errors."""
    folder = task.folder or "the task's folder"
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.split(".")[0]
        return f"looked in {folder}, on PYTHONPATH and among the installed packages; put {name}.py there, or install what it needs"
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str) and not os.path.isabs(error.filename):
        return f'a task runs in a folder of its own; write Path(__file__).parent / "{error.filename}" for a file in {folder}'
    return _NO_CARD if _ABOUT_A_CARD.search(text) and not torch.cuda.is_available() else ""


def _find_line(source: str, name: str) -> int | None:
    """Line of `def name` in the class Model, or at the top level."""
    for node in ast.parse(source).body:
        inner = node.body if isinstance(node, ast.ClassDef) and node.name == "Model" else [node]
        for statement in inner:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return statement.lineno
    return None


def _shorten(value: Any) -> str:
    text = repr(value) if not isinstance(value, torch.Tensor) else f"tensor{list(value.shape)}"
    return text if len(text) <= 40 else text[:37] + "..."
