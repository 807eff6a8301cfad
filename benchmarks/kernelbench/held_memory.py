"""A card with less memory: an idle process holds the rest, so that verdicts are made with the room of a smaller card.

`python -m tritonsmith.benchmarks.kernelbench.held_memory BYTES` leaves so many bytes of the first card free until its input ends.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tritonsmith.evaluator.errors import UsageError

_MODULE = "tritonsmith.benchmarks.kernelbench.held_memory"
_HELD = "held"
"""What the process says when it holds the memory."""


def count_held(free: int, wanted: int) -> int:
    """Bytes to hold so that `wanted` of the `free` ones stay. Raises UsageError where fewer are free."""
    if wanted > free:
        raise UsageError(f"--card-gb {wanted / 1e9:g}: only {free / 1e9:.1f} GB of the card are free; name a smaller number")
    return free - wanted


@contextlib.contextmanager
def leave_free(gigabytes: float | None, devices: Sequence[str]) -> Iterator[None]:
    """Leave so much memory (10^9 bytes) of each card free while the block runs; all of it for None. Raises UsageError."""
    if gigabytes is None:
        yield
        return
    if not gigabytes > 0:
        raise UsageError(f"--card-gb {gigabytes:g}: is no size; name the GB that stay free, such as 80")
    with contextlib.ExitStack() as holders:
        for device in devices or [""]:
            holders.enter_context(_hold(int(gigabytes * 1e9), device))
        yield


@contextlib.contextmanager
def _hold(wanted: int, device: str) -> Iterator[None]:
    """A process that holds the rest of one card."""
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": device} if device else {})
    command = [sys.executable, "-P", "-m", _MODULE, str(wanted)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            said = process.stdout.readline().strip()
            if said != _HELD:
                raise UsageError(said or f"--card-gb {wanted / 1e9:g}: the process that holds the rest of the card's memory ended at once")
            yield
        finally:
            process.stdin.close()


def main() -> int:
    """Hold, say so, and wait for the end of stdin; a sentence instead where that cannot be."""
    torch = importlib.import_module("torch")
    wanted = int(sys.argv[1])
    if not torch.cuda.is_available():
        sys.stdout.write(f"--card-gb {wanted / 1e9:g}: there is no CUDA card here whose memory could be held\n")
        return 2
    torch.cuda.init()
    try:
        count = count_held(torch.cuda.mem_get_info()[0], wanted)
    except UsageError as error:
        sys.stdout.write(f"{error}\n")
        return 2
    held = torch.empty(count, dtype=torch.uint8, device="cuda")
    sys.stdout.write(f"{_HELD}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del held
    return 0


if __name__ == "__main__":
    sys.exit(main())
