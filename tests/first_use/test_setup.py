"""What is installed for what: `make` with a stand-in for Python that writes down what it is asked to do, and the tasks that come along."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT

PYTHON = """#!/bin/sh
echo "$*" >> "$LOG"
case "$*" in
  --version) echo "Python 3.11.0" ;;
  "-m venv "*)
    for venv in "$@"; do :; done
    mkdir -p "$venv/bin"
    cp "$0" "$venv/bin/python"
    printf '#!/bin/sh\\necho "tritonsmith $*" >> "$LOG"\\nexit 1\\n' > "$venv/bin/tritonsmith"
    chmod +x "$venv/bin/tritonsmith" ;;
esac
"""
BROWSER = '#!/bin/sh\necho browser >> "$LOG"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make` reads of a fresh clone, with a Python that installs nothing."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for name, text in ((".ci/browser", BROWSER), ("python", PYTHON)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def make(checkout: Path, target: str) -> tuple[str, list[str]]:
    """What `make` prints, and what it had done."""
    log = checkout / "log"
    log.write_text("")
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")} | {"LOG": str(log)}
    command = ["make", target, f"PYTHON={checkout / 'python'}"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout, [line for line in log.read_text().splitlines() if " -c " not in f" {line}" and line != "--version"]


def test_the_demo_installs_what_running_needs_and_says_where_the_time_went(checkout: Path) -> None:
    said, done = make(checkout, "demo")
    assert [line.split()[-1] for line in done if "--editable" in line] == ["."]
    assert done[-1].startswith("tritonsmith optimize") and "browser" not in done
    assert [line.split()[0] for line in said.split("Where the time went:\n")[1].splitlines()] == ["environment", "packages", "run"]
    said, done = make(checkout, "demo")
    assert [line.split()[0] for line in done] == ["tritonsmith"] and "environment     0 s" in said


def test_tests_and_checks_add_the_tools_once(checkout: Path) -> None:
    make(checkout, "demo")
    said, done = make(checkout, "test")
    assert [line.split()[-1] for line in done if "--editable" in line] == [".[dev]"]
    assert "browser" in done and "-m venv" not in "".join(done) and "Adding to .venv what dev needs" in said
    for target in ("test", "check", "studio"):
        assert not any("pip" in line for line in make(checkout, target)[1]), target


def test_a_checkout_that_moved_or_changed_is_set_up_again(checkout: Path) -> None:
    make(checkout, "test")
    stamp = checkout / ".venv" / ".ready"
    os.utime(checkout / "pyproject.toml", (stamp.stat().st_mtime + 5,) * 2)
    assert "bringing .venv up to date" in make(checkout, "demo")[0]
    stamp.write_text("/elsewhere\n")
    assert any(line.startswith("-m venv --clear") for line in make(checkout, "demo")[1])


def type_elsewhere(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """One command, typed in a folder that holds none of the project's files."""
    command = [str(Path(sys.executable).with_name("tritonsmith")), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_task_that_comes_along_goes_by_its_number_everywhere(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("print(1)\n")  # refused without a process
    done = type_elsewhere(tmp_path, "evaluate", "39", "kernel.py")
    assert done.returncode == 1 and "status" in done.stdout, done.stderr
    done = type_elsewhere(tmp_path, "lint", "99")
    assert done.returncode == 2 and done.stderr == (
        "error: 99: no such task file; check the path, or give the number of a task that comes along, such as 39\n"
    )


def test_the_version_can_be_asked_for(tmp_path: Path) -> None:
    done = type_elsewhere(tmp_path, "--version")
    code = "import tritonsmith, tritonsmith.cli; print(tritonsmith.__version__)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".typecheck")}
    asked = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith(f"tritonsmith {asked.stdout.strip()}, torch ")
