"""The process behind `zygote.Zygote`: it imports modules, runs no candidate code, and forks one confined process per request.

`python -P -m tritonsmith.evaluator.sandbox.zygote_process FD MODULE ...`. Requests and answers are records in marshal's format on the
socket FD, with descriptors attached; the end of the socket ends the process. It has one thread, because only that one survives a fork.

Between the zygote and the keeper of a launch is a process that ends at once. So the keeper becomes a child of the oracle, which is the
subreaper above both. Oracles wait for keepers and end them, as they do with those that they start themselves.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import marshal
import os
import runpy
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

from tritonsmith.evaluator.sandbox import launcher, layers
from tritonsmith.evaluator.sandbox.family import threads_of

MESSAGE_BYTES = 1 << 17
"""Most bytes of one message; a policy with its paths takes a few thousand."""
_MOST_DESCRIPTORS = 64
"""Descriptors of one message."""
_PID_BYTES = 8
"""Of a process id in the pipe from the process in between."""


def main() -> None:
    """Entry point."""
    layers.prctl(layers.PR_SET_DUMPABLE, 0)  # confined processes may have the same user
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    _serve(control, sys.argv[2:])


def _serve(control: socket.socket, modules: Sequence[str]) -> None:
    """Import, then answer requests until the socket ends. A branch goes on in here, with a socket of its own."""
    _load(modules, control)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not data:
            os._exit(0)
        request = marshal.loads(data)
        if request["op"] == "start":
            pid = _start(request, descriptors)
        elif (pid := os.fork()) == 0:
            control.close()
            control = socket.socket(fileno=descriptors[0])
            os.environ.update(request["environment"])
            _load(request["modules"], control)
            continue
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(marshal.dumps(pid))


def _load(modules: Sequence[str], control: socket.socket) -> None:
    """Import the modules and send the number of threads."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page with an object of ours
    control.send(marshal.dumps(len(threads_of(os.getpid()))))


def _start(request: dict[str, Any], descriptors: list[int]) -> int:
    """The keeper of a new launch, by its process id."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        keeper = os.fork()
        if keeper == 0:
            _keep(request, descriptors)
        os.write(writer, keeper.to_bytes(_PID_BYTES, "little"))
        os._exit(0)
    os.close(writer)
    os.waitpid(between, 0)
    keeper = int.from_bytes(os.read(reader, _PID_BYTES), "little")
    os.close(reader)
    return keeper


def _keep(request: dict[str, Any], descriptors: list[int]) -> None:
    """Become the keeper, with the descriptors of the request and no others."""
    try:
        layers.prctl(layers.PR_SET_DUMPABLE, 1)  # as after the start of a program; a user namespace could not be set up otherwise
        os.setsid()
        _place(descriptors, request["numbers"])
        os.chdir(request["policy"]["scratch"])
        launcher.keep(request["policy"], lambda: _run(request["module"], request["arguments"], request["environment"]))
    except BaseException:  # noqa: BLE001 - the zygote's own frames are below this one
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(launcher.REFUSED)


def _place(descriptors: list[int], numbers: list[int]) -> None:
    """Give each descriptor its number, and close every other one."""
    above = max(numbers) + 1
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
    kept = sorted(numbers)
    for before, after in zip([-1, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
        if before + 1 < after:  # closerange takes an empty range for one without end
            os.closerange(before + 1, after)


def _run(module: str, arguments: list[str], environment: dict[str, str]) -> None:
    """Do what `python -m MODULE` does in a process of its own, and end the process."""
    layers.prctl(layers.PR_SET_DUMPABLE, 1)  # as after the start of a program; the candidate may look at itself
    layers.name_process(module.rpartition(".")[2])
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # from the system's entropy: else each child would draw the same numbers
    sys.argv = [module, *arguments]
    code: object = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - the process boundary
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with layers.suppress(Exception):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main()
