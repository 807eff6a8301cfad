"""Advice about the Python around the kernels.

It names what a kernel file has no need of, and what an evaluator has to defend itself against.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tritonsmith.evaluator.texts.advice.text import Remark, Text, is_endless, root_of

_FOREIGN = {
    "subprocess": "starts other programs", "socket": "opens connections", "ctypes": "reaches into memory",
    "threading": "works next to the call",
    "_thread": "works next to the call", "multiprocessing": "starts other processes", "concurrent": "works next to the call",
    "asyncio": "works next to the call", "importlib": "loads other code", "gc": "walks through other code's objects",
    "inspect": "looks into other code's frames", "traceback": "looks into other code's frames", "signal": "acts on the process",
    "mmap": "reaches into memory", "pickle": "runs code on reading", "marshal": "runs code on reading", "atexit": "acts after the verdict",
    "tempfile": "writes files", "shutil": "writes files", "pathlib": "reads or writes files", "glob": "reads the file system",
    "urllib": "opens connections", "http": "opens connections", "requests": "opens connections", "builtins": "changes Python itself",
    "resource": "changes limits of the process", "fcntl": "acts on open files", "tritonsmith": "belongs to the evaluator",
    "numpy": "computes outside of Triton", "cupy": "computes outside of Triton", "numba": "computes outside of Triton",
    "jax": "computes outside of Triton", "scipy": "computes outside of Triton",
}  # fmt: skip
"""Top-level modules with what they are for."""
_STREAM = "another stream: work there is not part of the call"
"""Why a candidate may have no stream of its own."""
_GRAPH = "a CUDA graph replays old addresses"
"""Why a candidate may not capture a graph."""
_INNER = {
    "torch.cuda.Stream": _STREAM, "torch.cuda.stream": _STREAM, "torch.cuda.ExternalStream": _STREAM,
    "torch.cuda.CUDAGraph": _GRAPH, "torch.cuda.graph": _GRAPH, "torch.cuda.make_graphed_callables": _GRAPH,
    "torch.profiler": "the profiler belongs to the evaluator", "torch.autograd.profiler": "the profiler belongs to the evaluator",
    "torch.overrides": "hooks into torch", "torch.utils._python_dispatch": "hooks into torch", "torch._C": "reaches into torch",
    "triton.runtime.interpreter": "reaches into Triton", "triton.knobs": "changes Triton for the whole process",
    "torch.load": "reads a file", "torch.save": "writes a file", "time.sleep": "a kernel has nothing to wait for",
    "sys.modules": "reaches into other modules", "sys._getframe": "looks into other code's frames", "sys.settrace": "traces other code",
    "sys.setprofile": "traces other code", "sys.exit": "ends the process", "sys.argv": "asks how it is being run",
    "sys.stdout": "writes to the evaluator's channel", "sys.stderr": "writes to the evaluator's channel",
}  # fmt: skip
"""Full names of modules and functions with what is against them."""
_WHOLE_PROCESS = (
    "manual_seed", "manual_seed_all", "seed", "set_rng_state", "use_deterministic_algorithms", "set_num_threads", "set_num_interop_threads",
    "set_default_dtype", "set_default_device", "set_float32_matmul_precision", "set_flush_denormal", "set_per_process_memory_fraction",
)  # fmt: skip
"""Functions that change a setting of the whole process."""
_FRAMES = frozenset(
    "f_back f_locals f_globals tb_frame gi_frame __subclasses__ __globals__ __code__ __closure__ __builtins__ __mro__".split()
)
"""Attributes that lead from an object to the code around it."""
_RANDOM = frozenset(f"torch.{name}" for name in ("rand", "randn", "randint", "rand_like", "randn_like", "randperm", "bernoulli"))
"""Functions that draw random numbers."""
_EARLIER = "a result must not depend on earlier calls"
"""End of every remark about something that is kept."""
_UNSEEN = frozenset("__torch_function__ __torch_dispatch__ __del__ __call__ __getattr__ __getattribute__ __setattr__ __reduce__".split())
"""Methods that run without being called by name."""
_BUILTIN_TYPES = frozenset(("list", "tuple", "dict", "str", "int", "float", "bytes"))
"""Built-in types whose subclasses hide code."""
_TO_HOST = frozenset(("item", "tolist", "numpy", "cpu"))
"""Methods of tensors that copy values to Python."""
_BUILTINS = {
    "open": "reads or writes a file", "exec": "runs text as code", "eval": "runs text as code", "__import__": "loads other code",
    "globals": "reaches into the module's names", "exit": "ends the process", "quit": "ends the process", "input": "waits for a user",
}  # fmt: skip
"""Builtin functions with what they do."""


def check_imports(text: Text) -> Iterator[Remark]:
    """Modules that a kernel file has no need of."""
    for node in (statement for statement in text.host if isinstance(statement, ast.Import | ast.ImportFrom)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            if why := _FOREIGN.get(name.split(".")[0]):
                yield Remark(node.lineno, f"import {name}: a kernel has no need of it ({why})")


def check_inner_names(text: Text) -> Iterator[Remark]:
    """Names of torch, triton, sys and os that reach beyond the call, frames, and builtins that do."""
    for node in text.host:
        if isinstance(node, ast.Attribute):
            name = text.resolve_name(node)
            if name in _INNER:
                yield Remark(node.lineno, f"{name}: {_INNER[name]}")
            elif name.startswith("os.") and name.count(".") == 1:
                yield Remark(node.lineno, f"{name}: a kernel depends on its inputs alone, not on the system")
            elif node.attr in _FRAMES:
                yield Remark(node.lineno, f"{node.attr} looks into other code")
            elif name.startswith(("torch.", "triton.")) and node.attr.startswith("_"):
                yield Remark(node.lineno, f"{name} is a private part of {name.partition('.')[0]}")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if why := _INNER.get(name) or _INNER.get(node.module or ""):
                    yield Remark(node.lineno, f"{name}: {why}")
        elif isinstance(node, ast.Name) and node.id == "__file__":
            yield Remark(node.lineno, "__file__: a kernel depends on its inputs alone, not on the system")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
            yield Remark(node.lineno, f"{node.func.id}() {_BUILTINS[node.func.id]}")


def check_patches(text: Text) -> Iterator[Remark]:
    """Names of imported modules that get another value, tensor subclasses, and methods replaced on objects."""
    local = {node.id for node in text.host if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} - _find_module_names(text)
    local.add("self")
    for node in text.host:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and text.is_imported(node):
            yield Remark(node.lineno, f"{text.resolve_name(node) or node.attr} gets another value for the whole process")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and not text.is_imported(target):
                    yield Remark(node.lineno, f".{target.attr} is replaced by a function on an object")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and node.args:
            if root_of(node.args[0]) not in local:
                yield Remark(node.lineno, f"{node.func.id} on something that is not the module's own")
        elif isinstance(node, ast.ClassDef) and any(text.resolve_name(base).startswith("torch.Tensor") for base in node.bases):
            yield Remark(node.lineno, f"{node.name} is a kind of tensor of its own; return plain tensors")
        elif isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id in _BUILTIN_TYPES for base in node.bases):
            yield Remark(node.lineno, f"{node.name} is a kind of container of its own; return plain tensors")
        elif isinstance(node, ast.FunctionDef) and node.name in _UNSEEN:
            yield Remark(node.lineno, f"{node.name} acts when other code touches the object")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_hook(node.func.attr):
            loading = "load_state_dict" in node.func.attr  # where weights are packed
            yield Remark(node.lineno, f"{node.func.attr}: work belongs in forward, not in hooks", note=loading)


def check_launch_hooks(text: Text) -> Iterator[Remark]:
    """Functions that run together with a launch."""
    for node in text.everything:
        if isinstance(node, ast.keyword) and node.arg in ("pre_hook", "post_hook"):
            yield Remark(node.value.lineno, f"{node.arg}: what a hook does is work next to the launch", note=True)


def check_settings(text: Text) -> Iterator[Remark]:
    """Seeds, thread counts and precisions of the whole process, and random numbers in forward."""
    for node in text.host:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and text.is_imported(node.func):
            if node.func.attr in _WHOLE_PROCESS:
                yield Remark(node.lineno, f"{text.resolve_name(node.func)} changes a setting of the whole process")
    for node in text.forward:
        if isinstance(node, ast.Call) and text.resolve_name(node.func) in _RANDOM:
            yield Remark(node.lineno, "random numbers in forward: the answer must follow from the inputs")


def check_fallbacks(text: Text) -> Iterator[Remark]:
    """`try` around the work with a handler that goes on."""
    for node in text.forward:
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                    yield Remark(node.lineno, "a failure is caught and another way taken; let it fail, its message helps to fix it")
                    break


def check_host_values(text: Text) -> Iterator[Remark]:
    """Values of tensors that are brought to Python, which waits for the card."""
    for node in text.forward:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TO_HOST and not node.args:
            yield Remark(node.lineno, f".{node.func.attr}() brings values to Python and waits for the card", note=True)


def check_memory(text: Text) -> Iterator[Remark]:
    """What is kept between calls: caches by address, content or shape, counters of calls, globals."""
    outside = _find_module_names(text) - set(text.index.aliases)
    for function in text.reached:
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield Remark(node.lineno, f"global {', '.join(node.names)}: {_EARLIER}")
            elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
                root = root_of(node)
                if root in outside:
                    yield Remark(node.lineno, f"{root} is kept between calls; {_EARLIER}")
                elif root == "self" and isinstance(node, ast.Subscript):
                    yield Remark(node.lineno, f"a container of the module is filled in forward; {_EARLIER}", note=True)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute) and root_of(node.target) == "self":
                yield Remark(node.lineno, f"self.{node.target.attr} counts calls; {_EARLIER}")
            yield from _check_keys(text, node, outside)


def _check_keys(text: Text, node: ast.AST, outside: frozenset[str]) -> Iterator[Remark]:
    """Caches by an input's address, identity or version, and methods that fill a container of the module.

    Other values can have the same address, identity or version.
    """
    if isinstance(node, ast.Attribute) and node.attr in ("data_ptr", "_version", "untyped_storage") and root_of(node) in text.inputs:
        if id(node) not in text.aligned:
            yield Remark(node.lineno, f"{node.attr} of an input: other values can stand at the same address")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id":
        yield Remark(node.lineno, "id() of an object: another one can have it in the next call")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and root_of(node.func) in outside:
        if node.func.attr in ("append", "setdefault", "update", "add", "extend", "insert", "pop"):
            yield Remark(node.lineno, f"{root_of(node.func)} is kept between calls; {_EARLIER}")


def check_endless_loops(text: Text) -> Iterator[Remark]:
    """Loops without a way out, on the host or in a kernel."""
    for node in text.everything:
        if isinstance(node, ast.While) and is_endless(node):
            yield Remark(node.lineno, "this loop never ends")


def _is_hook(name: str) -> bool:
    return name.startswith("register_") and name.endswith("_hook")


def _find_module_names(text: Text) -> frozenset[str]:
    """Names that the module itself binds: by assignment, class, or import."""
    found = set(text.index.classes)
    for node in text.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return frozenset(found | set(text.index.aliases))


RULES: tuple[Callable[[Text], Iterator[Remark]], ...] = (
    check_imports, check_inner_names, check_patches, check_launch_hooks, check_settings, check_fallbacks, check_host_values, check_memory,
    check_endless_loops,
)  # fmt: skip
"""The rules of this file."""
