"""The script that measures how the command line begins."""

import json
import shlex
import sys

from tritonsmith.benchmarks.startup import PROMISED, main


def test_the_script_times_any_command(tmp_path, capsys):
    busy = [sys.executable, "-c", "import time; end = time.process_time() + 0.05\nwhile time.process_time() < end: pass"]
    main(["--repeats", "1", "--command", shlex.join(busy), "--out", str(tmp_path / "startup.json")])
    lines = capsys.readouterr().out.splitlines()
    told = json.loads((tmp_path / "startup.json").read_text(encoding="utf-8"))
    assert set(told["calls"]) == set(PROMISED) and all(any(line.startswith(call) for line in lines) for call in PROMISED)
    for call in told["calls"].values():
        assert len(call["samples_wall_s"]) == len(call["samples_cpu_s"]) == 1
        assert call["cpu_s"] >= 0.05 and call["wall_s"] >= 0.05, "what the process used is counted"
