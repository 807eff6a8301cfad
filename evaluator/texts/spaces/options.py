"""Options of launches, pipeline stages of loops, and autotuners that are taken out."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.source.kernel_file import calls_of
from tritonsmith.evaluator.texts.spaces.autotune import OPTIONS, Autotuner, Unreadable, find_autotuner
from tritonsmith.evaluator.texts.spaces.collect import Collected
from tritonsmith.evaluator.texts.spaces.space import Edit, Parameter, Value
from tritonsmith.evaluator.texts.spaces.usage import KernelUses

DEFAULTS: dict[str, Value] = {"num_warps": 4, "num_stages": 3, "maxnreg": None}
"""What Triton takes where a launch names no such option (triton.backends.nvidia.compiler.CUDAOptions)."""
_CHOICES: dict[str, tuple[Value, ...]] = {
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (1, 2, 3, 4, 5),
    "maxnreg": (None, 64, 96, 128, 168),
}
"""Values of the options of a launch; a thread has 255 registers at most."""


def read_options(found: Collected, kernel: str, calls: list[ast.Call], uses: KernelUses, tuned: set[str], *, alone: bool) -> None:
    """Options that every launch of a kernel names, or none does; `alone` says that the file launches no other kernel."""
    for option in OPTIONS:
        if option in tuned or (option == "num_stages" and not uses.has_loop):
            continue
        name = option if alone else f"{option}_{kernel}"
        places: list[Edit] = []
        current, line = DEFAULTS[option], 0
        for call in calls:
            given = found.given(found.index.jit[kernel], call).get(option)
            unknown = [word for word in call.keywords if word.arg is None and not found.definitions.find_entries(word.value, call)]
            if given is None and unknown:
                break
            definition = found.definitions.find(given, call) if given is not None else None
            if given is not None and (definition is None or type(definition.node.value) is not int):
                break
            line = line or call.lineno
            if definition is None:
                places.append(found.insertion(call, option))
            else:
                current = definition.node.value if isinstance(definition.node.value, int) else current
                places.append(Edit(*found.offsets.span(definition.node)))
        else:
            same = [place for place in places if place.start < place.end]
            if same and len(same) < len(places):
                continue  # some launches name it and some do not
            values = tuple(dict.fromkeys((*_CHOICES[option], current)))
            values = tuple(sorted(values, key=lambda value: (value is not None, value or 0)))
            origin = f"{option} of {kernel}, line {line}"
            found.add(Parameter(name, Stage.TUNE_MEMORY, values, current, origin, kernels=(kernel,)), tuple(dict.fromkeys(places)))


def read_loop_stages(found: Collected, kernels: Iterable[str]) -> None:
    """Pipeline stages that a loop of a kernel names."""
    for kernel in kernels:
        for call in calls_of(found.index.jit[kernel]):
            if found.index.resolve_language_name(call.func) != "range":
                continue
            value = next((word.value for word in call.keywords if word.arg == "num_stages"), None)
            if isinstance(value, ast.Constant) and type(value.value) is int:
                values = tuple(sorted({*range(1, 6), value.value}))
                found.put("loop_stages", Stage.TUNE_MEMORY, values, value, [value], f"num_stages of the loop in line {call.lineno}")


def read_tuner(found: Collected, kernel: ast.FunctionDef) -> Autotuner | None:
    """The autotuner of a kernel; None where it has none, or one that cannot be read."""
    try:
        return find_autotuner(found.index, kernel)
    except Unreadable as error:
        found.unread.append(f"line {kernel.lineno}: the autotuner of {kernel.name} stays, for {error}")
        return None


def take_out(found: Collected, kernel: ast.FunctionDef, tuner: Autotuner, calls: list[ast.Call], uses: KernelUses) -> None:
    """Remove an autotuner; what it chose is written into each launch."""
    start, end = found.offsets.span(tuner.decorator)
    line_start = found.text.rfind("\n", 0, start) + 1
    line_end = found.text.find("\n", end)
    found.always.append((line_start, line_end + 1 if line_end >= 0 else len(found.text), ""))
    names = list(tuned_names(tuner))
    for name in names:
        listed = [configuration[name] for configuration in tuner.configurations if name in configuration]
        default = DEFAULTS.get(name)
        values: tuple[Value, ...] = tuple(dict.fromkeys([*listed, *([default] if len(listed) < len(tuner.configurations) else [])]))
        if all(type(value) is int for value in values):
            values = tuple(sorted(values, key=lambda value: value or 0))
        usage = uses.of(name)
        stage = Stage.TUNE_MEMORY if name in OPTIONS or usage.pipeline else Stage.TUNE_BLOCK if usage.extent else Stage.TUNE_GRID
        first = tuner.configurations[0].get(name, default)
        key = name if name not in found.found else f"{name}_{kernel.name}"
        places = tuple(found.insertion(call, name) for call in calls)
        origin = f"autotuner of {kernel.name}, line {tuner.decorator.lineno}"
        # a single value has to be written too
        found.found.setdefault(key, (Parameter(key, stage, values, first, origin, True, (kernel.name,)), places))
    for configuration in tuner.configurations:
        found.starts.append({name: configuration.get(name, DEFAULTS.get(name)) for name in names})


def tuned_names(tuner: Autotuner | None) -> dict[str, None]:
    """What an autotuner chooses."""
    return dict.fromkeys(name for configuration in tuner.configurations for name in configuration) if tuner else {}
