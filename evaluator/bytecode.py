"""Bytecode of the libraries that evaluator processes import. Imports no torch.

Confined processes cannot write to the installation, so what an installer left out (uv compiles nothing unless it is asked to, and an
image may be built without) is compiled by each of them again, every time: on a host with an H200 the imports for torch.compile took 10.3
to 11.8 s in place of 4.6, and an evaluator's first verdict 22.8 s in place of 10.8 to 11.9 (2026-11-22, torch 2.11;
benchmarks/results/timing_study/1530_cold.txt). So the first evaluator has it compiled, beside the start of its other processes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_DEEP = {
    "torch": ("__init__", "_dynamo/convert_frame", "_inductor/compile_fx", "xpu/__init__"),
    "triton": ("compiler/compiler", "runtime/jit"),
    "sympy": ("core/numbers", "utilities/iterables"),
    "networkx": ("classes/graph", "utils/misc"),
    "numpy": ("_core/numeric", "version"),
    "mpmath": ("ctx_mp", "usertools"),
    "jinja2": ("environment", "visitor"),
}
"""By package: modules that tell whether it is compiled, what only torch.compile imports and what a compilation reaches last among them."""
_LONGEST_SECONDS = 120.0
_MOST_PROCESSES = 16


def without_bytecode() -> list[Path]:
    """Folders of installed libraries that lack it."""
    missing = []
    for package, modules in _DEEP.items():
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            continue
        folder = Path(found.origin).parent
        sources = [folder / f"{module}.py" for module in modules]
        if not all(_compiled(source).is_file() for source in sources if source.is_file()):
            missing.append(folder)
    return missing


def _compiled(source: Path) -> Path:
    """Where a confined process looks: it knows nothing of PYTHONPYCACHEPREFIX."""
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def can_be_written(folders: list[Path]) -> bool:
    """Whether this process may write there, and bytecode is not kept elsewhere.

    PYTHONDONTWRITEBYTECODE, which many images set, is about imports: pip compiles what it installs all the same.
    """
    return not sys.pycache_prefix and all(os.access(folder, os.W_OK) for folder in folders)


def compile_command(folders: list[Path]) -> list[str]:
    """Compiles what is missing there and leaves the rest."""
    processes = max(2, min(os.cpu_count() or 1, _MOST_PROCESSES))
    return [sys.executable, "-m", "compileall", "-qq", "-j", str(processes), *map(str, folders)]


def shell_line(folders: list[Path]) -> str:
    """`compile_command` as a user types it."""
    nowhere_else = ["env", "PYTHONPYCACHEPREFIX="] if sys.pycache_prefix else []
    return shlex.join([*nowhere_else, *compile_command(folders)])


@contextlib.contextmanager
def supplied() -> Iterator[None]:
    """Meanwhile what is missing is compiled, where that is allowed; the end waits for it. What fails is left as it was."""
    folders = without_bytecode()
    if not folders or not can_be_written(folders):
        yield
        return
    no = subprocess.DEVNULL
    compiling = subprocess.Popen(compile_command(folders), stdin=no, stdout=no, stderr=no, start_new_session=True)
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            compiling.wait(_LONGEST_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its workers too, which would wait for ever
            os.killpg(compiling.pid, signal.SIGKILL)
        compiling.wait()
