"""What the measuring scripts need of their host: the processor's name, and lines that are seen at once."""

import platform
import sys
from pathlib import Path


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
