"""What the measuring scripts share: the head of a record with its host, how it is written, and lines that are seen at once."""

import datetime
import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table


def begin_record(script: str, words: Sequence[str] | None) -> dict[str, Any]:
    """The head of a record: what was called (`words`, or this process's own arguments), when, and on what host.

    The load is that of the beginning, before the measurement adds its own.
    """
    return {
        "command": spell_command(script, sys.argv[1:] if words is None else words),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "load_average": os.getloadavg()[0],
        "real_time": os.sched_getscheduler(0) == os.SCHED_FIFO,
    }


def spell_command(script: str, words: Sequence[str]) -> str:
    """A script's command line without absolute paths: only their last part means something on another machine."""
    return shlex.join(["python", "-m", f"tritonsmith.benchmarks.{script}", *map(_shorten_path, words)])


def _shorten_path(word: str) -> str:
    """The word with the last part of its path, if it is an absolute path or gives one after an equals sign."""
    name, sign, value = word.rpartition("=")
    return f"{name}{sign}{Path(value).name}" if Path(value).is_absolute() else word


def shorten_paths(text: str) -> str:
    """A text with paths cut to their last part: reports are published, and folders of a machine mean nothing elsewhere."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+([\w.+-]+)", r"\1", text)


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record as JSON and print where it is."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print_line(f"samples: {path}")


def cpu_name() -> str:
    """The processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def print_line(line: str) -> None:
    """Print one line and flush it, also where the output is a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def append_row(out: TextIO, row: dict[str, Any]) -> None:
    """Write one line of JSON, so that a call that is cut off keeps what it has."""
    out.write(json.dumps(row) + "\n")
    out.flush()


def print_end(table: Table, lines: Iterable[str], started: float) -> None:
    """Print a study's table, its last lines and how long it took; `started` is of `time.monotonic`."""
    Console().print(table)
    for line in lines:
        print_line(line)
    print_line(f"{(time.monotonic() - started) / 60:.1f} minutes")
