"""Bytecode of the libraries that evaluator processes import. Imports no torch.

Confined processes cannot write to the installation, so what an installer left out (uv compiles nothing unless it is asked to, and an
image may be built without) is compiled by each of them again, every time: on a host with an H200 the imports for torch.compile took 10.3
to 11.8 s in place of 4.6 to 4.8, and an evaluator's first verdict 22.8 s in place of 10.8 to 11.9 (2026-11-22, torch 2.11;
benchmarks/results/timing_study/1530_cold.txt). So the first evaluator has it compiled, beside the start of its other processes.
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
        found = None
        with contextlib.suppress(ImportError, ValueError):  # a module without a specification, as tests put in place
            found = importlib.util.find_spec(package)
        if found is None or not found.has_location or found.origin is None:
            continue
        folder = Path(found.origin).parent
        sources = [folder / f"{module}.py" for module in modules]
        if not all(_compiled(source) for source in sources if source.is_file()):
            missing.append(folder)
    return missing


def _compiled(source: Path) -> bool:
    """Whether there is bytecode of this text where a confined process looks, which knows nothing of PYTHONPYCACHEPREFIX.

    Its first 16 bytes are the interpreter's number, flags, and the text's time and size (PEP 552), or its hash.
    """
    path = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    try:
        with path.open("rb") as file:
            number, flags, about = struct.unpack("<4sI8s", file.read(16))
        told = source.stat()
    except (OSError, struct.error):
        return False
    mask = 0xFFFFFFFF
    unchanged = bool(flags) or about == struct.pack("<II", int(told.st_mtime) & mask, told.st_size & mask)
    return unchanged and bool(number == importlib.util.MAGIC_NUMBER)


def can_be_written(folder: Path) -> bool:
    """Whether this process may write bytecode there, and it is not kept elsewhere.

    PYTHONDONTWRITEBYTECODE, which many images set, is about imports: pip compiles what it installs all the same.
    """
    cache = folder / "__pycache__"
    return not sys.pycache_prefix and os.access(cache if cache.exists() else folder, os.W_OK)


def shell_line(folders: list[Path]) -> str:
    """What a user types who may write there."""
    return shlex.join([sys.executable, "-I", "-m", "compileall", "-q", "-j", "0", *map(str, folders)])


@contextlib.contextmanager
def compile_missing_bytecode() -> Iterator[None]:
    """Meanwhile what is missing is compiled, where that is allowed; the end waits for it. What fails is left as it was."""
    with contextlib.ExitStack() as stack:
        compilers: list[subprocess.Popen[bytes]] = []
        with contextlib.suppress(OSError):
            _begin([one for one in without_bytecode() if can_be_written(one)], compilers, stack)
        try:
            yield
            deadline = time.monotonic() + _LONGEST_SECONDS
            for one in compilers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for one in compilers:
                one.kill()
                one.wait()


def _begin(folders: list[Path], compilers: list[subprocess.Popen[bytes]], stack: contextlib.ExitStack) -> None:
    """Start processes that compile what is not compiled there, unless another evaluator is doing that. Raises OSError."""
    if not folders:
        return
    lock = os.open(folders[0], os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    files = [str(file) for folder in folders for file in folder.rglob("*.py")]
    count = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    environment, life, no = scrubbed_environment(run_folder(), {"PYTHONUTF8": "1"}), life_line(), subprocess.DEVNULL
    command = lifeline.command(life, "compileall", "-qq", "-i", "-")
    for number in range(count):
        with tempfile.TemporaryFile() as names:
            names.write(os.fsencode("\n".join(files[number::count]) + "\n"))
            names.seek(0)
            compilers.append(
                subprocess.Popen(  # confined processes are other users as a rule: they must be able to read it
                    command, stdin=names, stdout=no, stderr=no, env=environment, pass_fds=[life], umask=0o022, start_new_session=True
                )
            )
