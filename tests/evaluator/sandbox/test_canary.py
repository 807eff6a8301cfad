"""A key in the orchestrator's environment is out of reach for candidate code, and in nothing that is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritonsmith.evaluator.sandbox.self_test import establish

pytestmark = [pytest.mark.skipif(not sys.platform.startswith("linux"), reason="searches /proc")]
TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(4, 33)]


def get_init_inputs():
    return []
"""
CANARY = "canary-8f27c1d05b"
# What looks for the key must not hold it itself, else it finds its own text.
SEARCH = f"""
import os

NEEDLE = bytes(reversed({CANARY[::-1]!r}.encode()))
LARGEST, FILES = 8 << 20, 1500


def places():
    for number in filter(str.isdigit, os.listdir("/proc")):
        yield f"/proc/{{number}}/environ"
        yield f"/proc/{{number}}/cmdline"
        if int(number) != os.getpid():
            yield f"/proc/{{number}}/mem"
            try:
                yield from [f"/proc/{{number}}/fd/{{one}}" for one in os.listdir(f"/proc/{{number}}/fd")]
            except OSError:
                pass
    seen = 0
    for top in ROOTS:
        for folder, _, names in os.walk(top):
            for name in names:
                seen += 1
                if seen > FILES:
                    return
                yield os.path.join(folder, name)


def pieces(path):
    if path.endswith("/mem"):
        with open(path, "rb", 0) as memory, open(path[:-3] + "maps") as maps:
            for line in maps:
                if "[heap]" in line or "[stack]" in line:
                    first, last = (int(one, 16) for one in line.split()[0].split("-"))
                    memory.seek(first)
                    yield memory.read(min(last - first, LARGEST))
    elif "/fd/" not in path or os.path.isfile(path):
        with open(path, "rb") as file:
            yield file.read(LARGEST)


def found():
    hits = [f"environment: {{name}}" for name, value in os.environ.items() if NEEDLE.decode() in value]
    for path in places():
        try:
            if any(NEEDLE in piece for piece in pieces(path)):
                hits.append(path)
        except (OSError, ValueError, OverflowError):
            pass
    return hits
"""
CANDIDATE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        raise RuntimeError(f"searched {sum(1 for _ in places())} places, found: {found()}")
"""
ORCHESTRATOR = """
import sys
from pathlib import Path
from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.processes.run_folder import run_folder
from tritonsmith.evaluator.tasks.files import load_task

folder = Path(sys.argv[1])
with open_evaluator("h200", raw_dir=folder / "raw", sandbox="auto") as evaluator:
    verdict = evaluator.evaluate_now(load_task(folder / "task.py"), (folder / "candidate.py").read_text())
    kept = [one for top in (run_folder(), folder / "raw") for one in top.rglob("*") if one.is_file()]
    for number, one in enumerate(kept):
        (folder / "kept").mkdir(exist_ok=True)
        (folder / "kept" / f"{number}-{one.name}").write_bytes(one.read_bytes())
print(verdict.model_dump_json())
"""


def with_key(**more: str) -> dict[str, str]:
    return os.environ | {"OPENAI_API_KEY": CANARY, "TRITONSMITH_CANARY": CANARY, **more}


@pytest.mark.slow
def test_without_the_sandbox_the_search_finds_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(CANARY)
    search = f"ROOTS = [{str(tmp_path)!r}]\n{SEARCH}\nprint('\\n'.join(found()))"
    shell = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], env={})", search]
    hits = subprocess.run(shell, env=with_key(), capture_output=True, text=True, check=True, timeout=100).stdout.splitlines()
    assert str(tmp_path / "notes.txt") in hits
    assert any(hit.endswith("/environ") for hit in hits)
    assert not any(hit.startswith("environment") for hit in hits)


@pytest.mark.slow  # test_process has a confined process look for a key in every run
@pytest.mark.timeout(300)
def test_a_candidate_does_not_find_it_and_nothing_keeps_it(tmp_path: Path) -> None:
    if establish("auto", cuda=False)["missing"]:
        pytest.skip("this machine lacks what containment needs")
    (tmp_path / "task.py").write_text(TASK)
    roots = [str(tmp_path), "/tmp", "/var/tmp", "/dev/shm", str(Path.home()), "/etc"]
    search = f"import os\nROOTS = [os.getcwd(), os.path.dirname(__file__), *{roots!r}]\n{SEARCH}"  # the nearest first: not all of a disk
    (tmp_path / "candidate.py").write_text(f"{search}\n{CANDIDATE}")
    (tmp_path / "settings.json").write_text(CANARY)  # what a run might keep beside its results
    done = subprocess.run(
        [sys.executable, "-c", ORCHESTRATOR, str(tmp_path)], env=with_key(), capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "runtime_error" and "found: []" in verdict["message"], verdict["message"]
    assert int(verdict["message"].split("searched ")[1].split()[0]) >= 3  # its own process and its own text at least
    assert CANARY not in done.stdout + done.stderr
    kept = list((tmp_path / "kept").iterdir())
    assert any(one.name.endswith("oracle.log") for one in kept)
    assert [one.name for one in kept if CANARY.encode() in one.read_bytes()] == []
