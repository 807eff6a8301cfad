"""`python -P -m tritonsmith.evaluator.processes.lifeline FD MODULE` runs a module that ends at once with the other end of FD.

A parent's death signal would not do: it comes when the thread that started the process ends, and callers start theirs from short-lived
threads. Standard library only.
"""

from __future__ import annotations

import faulthandler
import os
import runpy
import select
import sys
import threading


def command(life: int, module: str, *arguments: str) -> list[str]:
    """The command line of a trusted module that ends with its caller; `life` must be passed on to it."""
    return [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.processes.lifeline", str(life), module, *arguments]


def _watch(life: int) -> None:
    watched = select.poll()
    watched.register(life, 0)  # only the end of the line is of interest, and that is always reported
    watched.poll()
    os._exit(1)  # at once, also while other threads are at work; what it started dies with it


def main() -> None:
    """Entry point."""
    life, module = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(life, False)
    faulthandler.enable()  # a task's file may crash its process: `crash.py` reads what was running then
    threading.Thread(target=_watch, args=(life,), daemon=True, name="lifeline").start()
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
