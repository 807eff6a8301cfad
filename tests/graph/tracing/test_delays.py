"""A trace server that is dead, silent, slow or broken holds a run up by less than five seconds in all, the process's end included."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

import capture_server as capture
from project import HELPERS

PROMISED = 5.0
TRIES = 3
"""A busy machine adds time of its own; a bound that holds in one of a few tries is kept by the code."""
MODES = ("silent", "500", "slow", "die", "drip", "401")


def measure():
    """What each kind of server added to a run and to the end of its process, and what was written to stderr."""
    with ExitStack() as stack:
        servers = {mode: stack.enter_context(capture.CaptureServer(mode, zstd=mode != "die")) for mode in MODES}
        addresses = {mode: server.url for mode, server in servers.items()}
        addresses |= {f"otlp {mode}": f"otlp:{stack.enter_context(capture.CaptureServer(mode)).url}" for mode in ("silent", "500")}
        addresses |= {"refused": capture.closed_port(), "otlp refused": f"otlp:{capture.closed_port()}", "no name": "http://trace.invalid"}
        command = [sys.executable, str(HELPERS / "trace_delays.py"), json.dumps(addresses)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        ended = time.monotonic()
    told = json.loads(done.stdout)
    assert told["winners"] == ["block-01"]
    return {name: seconds + ended - told["over"] for name, seconds in told["added"].items()}, done.stderr.splitlines(), servers


@pytest.mark.slow
def test_no_server_holds_a_run_up():
    best: dict[str, float] = {}
    for _ in range(TRIES):
        added, said, servers = measure()
        best = {name: min(seconds, best.get(name, seconds)) for name, seconds in added.items()}
        if max(best.values()) < PROMISED:
            break
    assert max(best.values()) < PROMISED, best
    assert len(said) == len(added) and all("; the run goes on, its trace is not complete: see " in line for line in said), said
    for words in ("cannot be reached", "answers 500", "refuses the key (401)", "did not take the whole trace within 2.5 s"):
        assert any(words in line for line in said), words
    assert servers["die"].runs and len(servers["die"].runs) < 30, "it was there at first"
