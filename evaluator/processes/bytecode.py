"""Bytecode of the libraries that evaluator processes import: is it there, and compiling what is missing.

Confined processes cannot write to the installation. Each of them compiles again what an installer left out: uv compiles nothing unless it
is asked to, and an image may be built without. On a host with an H200 the imports for torch.compile then took 10.3 to 11.8 s instead of
4.6 to 4.8 s, and an evaluator's first verdict 22.8 s instead of 10.8 to 11.9 s (2026-11-22, torch 2.11;
benchmarks/results/timing_study/1530_cold.txt). So the first evaluator has it compiled, while its other processes start.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tritonsmith.evaluator.processes import lifeline
from tritonsmith.evaluator.processes.run_folder import life_line, run_folder
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment

_TELLING_MODULES = {
    "torch": ("__init__", "_dynamo/convert_frame", "_inductor/compile_fx", "xpu/__init__"),
    "triton": ("compiler/compiler", "runtime/jit"),
    "sympy": ("core/numbers", "utilities/iterables"),
    "networkx": ("classes/graph", "utils/misc"),
    "numpy": ("_core/numeric", "version"),
    "mpmath": ("ctx_mp", "usertools"),
    "jinja2": ("environment", "visitor"),
}
"""By package: modules that tell whether it is compiled.

Among them are modules that only torch.compile imports, and those that a compilation reaches last.
"""
_LONGEST_SECONDS = 120.0
"""Longest time that the compilation may take."""
_MOST_PROCESSES = 16
"""Processes that compile at once."""
_HEADER_BYTES = 16
"""Of a file with bytecode: the interpreter's number, flags, and the text's time and size, or its hash (PEP 552)."""
_WORD = 0xFFFFFFFF
"""Mask of the numbers in that header."""


def without_bytecode() -> list[Path]:
    """Folders of installed libraries that lack it."""
    missing = []
    for package, modules in _TELLING_MODULES.items():
        found = None
        with contextlib.suppress(ImportError, ValueError):  # a module without a specification, as tests put in place
            found = importlib.util.find_spec(package)
        if found is None or not found.has_location or found.origin is None:
            continue
        folder = Path(found.origin).parent
        sources = [folder / f"{module}.py" for module in modules]
        if not all(_is_compiled(source) for source in sources if source.is_file()):
            missing.append(folder)
    return missing


def _is_compiled(source: Path) -> bool:
    """Whether there is bytecode of this text where a confined process looks, which knows nothing of PYTHONPYCACHEPREFIX."""
    path = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    try:
        with path.open("rb") as file:
            number, flags, about = struct.unpack("<4sI8s", file.read(_HEADER_BYTES))
        text = source.stat()
    except (OSError, struct.error):
        return False
    unchanged = bool(flags) or about == struct.pack("<II", int(text.st_mtime) & _WORD, text.st_size & _WORD)
    return unchanged and bool(number == importlib.util.MAGIC_NUMBER)


def can_be_written(folder: Path) -> bool:
    """Whether this process may write bytecode there, and it is not kept elsewhere.

    PYTHONDONTWRITEBYTECODE, which many images set, is about imports: pip compiles what it installs all the same.
    """
    cache = folder / "__pycache__"
    return not sys.pycache_prefix and os.access(cache if cache.exists() else folder, os.W_OK)


def shell_line(folders: list[Path]) -> str:
    """The command by which a user who may write there compiles these folders."""
    return shlex.join([sys.executable, "-I", "-m", "compileall", "-q", "-j", "0", *map(str, folders)])


@contextlib.contextmanager
def compile_missing_bytecode() -> Iterator[None]:
    """Compile what is missing while the body runs, where that is allowed; the end waits for it.

    Files that cannot be compiled are left as they were.
    """
    with contextlib.ExitStack() as stack:
        compilers: list[subprocess.Popen[bytes]] = []
        with contextlib.suppress(OSError):
            _start_compilers([folder for folder in without_bytecode() if can_be_written(folder)], compilers, stack)
        try:
            yield
            deadline = time.monotonic() + _LONGEST_SECONDS
            for compiler in compilers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    compiler.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for compiler in compilers:
                compiler.kill()
                compiler.wait()


def _start_compilers(folders: list[Path], compilers: list[subprocess.Popen[bytes]], stack: contextlib.ExitStack) -> None:
    """Start processes that compile what is not compiled there, unless another evaluator is doing that. Raises OSError."""
    if not folders:
        return
    lock = os.open(folders[0], os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    files = [str(file) for folder in folders for file in folder.rglob("*.py")]
    count = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    environment, life, nothing = scrubbed_environment(run_folder(), {"PYTHONUTF8": "1"}), life_line(), subprocess.DEVNULL
    command = lifeline.command(life, "compileall", "-qq", "-i", "-")
    for number in range(count):
        with tempfile.TemporaryFile() as names:
            names.write(os.fsencode("\n".join(files[number::count]) + "\n"))
            names.seek(0)
            compilers.append(
                subprocess.Popen(
                    command, stdin=names, stdout=nothing, stderr=nothing, env=environment, pass_fds=[life],
                    umask=0o022,  # confined processes are usually other users, who must be able to read it
                    start_new_session=True,
                )  # fmt: skip
            )
