"""Launches of Triton kernels that were made before, without what Triton works out for each of them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_KNOWN_VERSIONS = ((3, 4), (3, 7))
"""First and last version of Triton whose compiled kernels are launched as below. Others launch by themselves."""
_MOST_SIGNATURES = 4096
"""Signatures of one kernel that are kept; with more of them it begins anew."""
_VALUES = (int, float, bool, str, type(None), torch.dtype)
"""Kinds of arguments beside tensors that a kept launch may have, and types of Triton's language."""

_OWN_NAMES = frozenset({
    "MISSING", "AttributeError", "TypeError", "type", "dict", "len", "callable", "card", "stream", "runtime", "compilation", "hooks",
    "enter", "leave", "learn", "signatures", "sign", "launch", "is_watched", "pass_on", "rest", "others", "grid", "warmup", "device",
    "known", "axes", "run", "function", "metadata", "compiled",
})  # fmt: skip
"""Words of the text that launches; Triton launches a kernel that takes an argument of such a name by keyword."""


def hold_launches(module: types.ModuleType) -> None:
    """Have the Triton kernels of a module keep what they compiled, by the signature of a call.

    For each launch Triton works out which of its compiled kernels fits. That takes ten times as long as the launch.

    Args:
        module: the text of the kernels. Its own kernels are changed, and no others.
    """
    triton: Any = sys.modules.get("triton")
    if triton is None or torch.version.hip is not None:
        return
    first, last = _KNOWN_VERSIONS
    if not first <= tuple(map(int, triton.__version__.split(".")[:2])) <= last:
        return
    for value in list(vars(module).values()):
        kernel = value
        while isinstance(kernel, triton.runtime.Autotuner | triton.runtime.Heuristics):
            kernel = kernel.fn
        if type(kernel) is not triton.JITFunction or kernel.fn.__module__ != module.__name__ or "run" in vars(kernel):
            continue
        if hasattr(kernel, "arg_names") and hasattr(kernel, "pre_run_hooks") and hasattr(triton, "knobs"):
            kernel.run = HeldLaunches(kernel, triton).run


class HeldLaunches:
    """Stands for `run` of one kernel.

    A signature is the card, for each tensor its type and whether its address divides by 16, and each other argument by kind and value.
    Triton specializes a kernel by less: whole numbers by being 1 and by dividing by 16. So equal signatures have one compiled kernel.
    What is new is launched by Triton itself, which gives the compiled kernel to keep.

    Args:
        kernel: a `triton.JITFunction`.
        triton: the module.
    """

    def __init__(self, kernel: Any, triton: Any) -> None:
        self.kernel = kernel
        self.plain: Callable[..., Any] = kernel.run
        """Triton's own launch."""
        self._triton = triton
        self._layouts: dict[Any, Callable[..., Any] | None] = {}
        """By how many arguments are given by position, and the names of the others: what launches such calls."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch the kernel, and give what was compiled; as `JITFunction.run`."""
        layout = (len(args), *kwargs)
        if warmup:
            return self.plain(*args, grid=grid, warmup=True, **kwargs)
        if layout not in self._layouts:
            launch = self._layouts[layout] = self._lay_out(args, kwargs)
            if launch is not None and self.kernel.run == self.run:
                self.kernel.run = launch  # nearly always there is one layout, which needs no search
        launch = self._layouts[layout] or self.plain
        return launch(*args, grid=grid, warmup=False, **kwargs)

    def _lay_out(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What launches calls with these names of arguments; None where Triton has to."""
        parameters = list(self.kernel.arg_names)
        names = [*parameters[: len(args)], *kwargs]
        layout, kinds = (len(args), *kwargs), self._list_kinds(args, kwargs)
        if "?" in kinds or len(args) > len(parameters) or len(set(names)) != len(names) or not set(parameters) <= set(names):
            return None
        if any(name in _OWN_NAMES or name.startswith("_") for name in kwargs):
            return None
        signatures: dict[Any, Any] = {}

        def learn(*args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            """Launch by Triton, and keep what was compiled."""
            if warmup or is_watched():
                return self.plain(*args, grid=grid, warmup=warmup, **kwargs)
            if (len(args), *kwargs) != layout:
                return self.run(*args, grid=grid, warmup=False, **kwargs)
            compiled = self.plain(*args, grid=grid, warmup=False, **kwargs)
            if hasattr(compiled, "packed_metadata") and self._list_kinds(args, kwargs) == kinds:
                if len(signatures) >= _MOST_SIGNATURES:
                    signatures.clear()
                signatures[sign(*args, **kwargs)] = compiled.run, compiled.function, compiled.packed_metadata, compiled
            return compiled

        text = _write_text(names, parameters, len(args), kinds, self._write_watch())
        found: dict[str, Any] = self._list_constants() | {"learn": learn, "signatures": signatures}
        exec(compile(text, "<a launch of a drop-in>", "exec"), found)  # noqa: S102 - names of parameters and fixed words alone
        sign, is_watched = found["sign"], found["is_watched"]
        launch: Callable[..., Any] = found["launch"]
        return launch

    def _list_kinds(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """For each argument `t` for a tensor, `v` for a plain value, `?` for what no signature can hold."""
        dtype = self._triton.language.dtype
        return "".join(
            "t" if isinstance(value, torch.Tensor) else "v" if type(value) in _VALUES or isinstance(value, dtype) else "?"
            for value in (*args, *kwargs.values())
        )

    def _list_constants(self) -> dict[str, Any]:
        """What the text uses, by name."""
        active, knobs = self._triton.runtime.driver.active, self._triton.knobs
        card = active.get_current_device
        return {
            "card": torch._C._cuda_getDevice if card is torch.cuda.current_device else card,  # tensors are there, so CUDA has begun
            "stream": active.get_current_stream, "runtime": knobs.runtime, "compilation": knobs.compilation,
            "hooks": self.kernel.pre_run_hooks, "enter": knobs.runtime.launch_enter_hook, "leave": knobs.runtime.launch_exit_hook,
        }  # fmt: skip

    def _write_watch(self) -> str:
        """Whether something follows launches, or has kernels compiled in another way: profilers, debugging, hooks."""
        runtime, tests = self._triton.knobs.runtime, ["hooks", "runtime.debug"]
        for name, own in (("launch_enter_hook", "enter"), ("launch_exit_hook", "leave")):
            tests.append(f"runtime.{name} is not {own}")
            if getattr(runtime, name) is not None:
                tests.append(f"{own}.calls" if hasattr(getattr(runtime, name), "calls") else "True")
        if hasattr(runtime, "add_stages_inspection_hook"):
            tests.append("runtime.add_stages_inspection_hook is not None")
        if hasattr(self._triton.knobs.compilation, "instrumentation_mode"):
            tests.append("compilation.instrumentation_mode")
        return " or ".join(tests)


def _write_text(names: Sequence[str], parameters: Sequence[str], count: int, kinds: str, watch: str) -> str:
    """Functions for calls with arguments of these names, the first of them given by position.

    `sign` gives the signature of a call. `launch` launches a call whose signature is known, and has `learn` do all others.
    """
    own = {name: f"_{place}" if place < count else name for place, name in enumerate(names)}
    facts = "".join(
        f"{own[name]}.dtype, {own[name]}.data_ptr() % 16 == 0, " if kind == "t" else f"type({own[name]}), {own[name]}, "
        for name, kind in zip(names, kinds, strict=True)
    )
    positional, named = [own[name] for name in names[:count]], list(names[count:])
    taken = "".join(f"{name}, " for name in positional) + ("/, " if positional else "")
    defaults = "".join(f"{name}=MISSING, " for name in positional) + ("/, " if positional else "")
    again = "".join(f"{name}={name}, " for name in named)
    return f"""
MISSING = object()

def is_watched():
    return {watch}

def sign({taken}{"*, " if named else ""}{", ".join(named)}):
    return card(), {facts}

def pass_on(given, named, rest, others, grid, warmup):
    given = [value for value in given if value is not MISSING]
    named = {{name: value for name, value in named.items() if value is not MISSING}}
    return learn(*given, *rest, grid=grid, warmup=warmup, **named, **others)

def launch({defaults}*rest, grid, warmup, {"".join(f"{name}=MISSING, " for name in named)}**others):
    try:
        device = card()
        known = signatures.get((device, {facts}))
    except (AttributeError, TypeError):
        known = None
    if known is None or rest or others or warmup or {watch}:
        return pass_on([{", ".join(positional)}], dict({again}), rest, others, grid, warmup)
    if callable(grid):
        grid = grid({{{", ".join(f"{name!r}: {own[name]}" for name in parameters)}}})
    axes = len(grid)
    run, function, metadata, compiled = known
    run(
        grid[0], grid[1] if axes > 1 else 1, grid[2] if axes > 2 else 1, stream(device), function, metadata, None, None, None,
        {", ".join(own[name] for name in parameters)},
    )
    return compiled
"""
