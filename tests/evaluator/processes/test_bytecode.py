"""Libraries without bytecode: compiled by the first evaluator, and what `tritonsmith doctor` says where that cannot be."""

import compileall
import os
import shlex
import subprocess
import sys
import time
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from tritonsmith.cli.examining import check_bytecode
from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.processes import bytecode

FILES = ("torch/__init__.py", "torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py", "triton/compiler/compiler.py")
MANY = 2000
KILLED = """
import importlib.util, sys, time
from pathlib import Path
from tritonsmith.evaluator.processes import bytecode
importlib.util.find_spec = lambda name: importlib.util.spec_from_file_location(name, Path(sys.argv[1], name, "__init__.py"))
with bytecode.compile_missing_bytecode():
    print(flush=True)
    time.sleep(600)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages as a tool leaves them that compiles nothing."""
    for file in (*FILES, "triton/__init__.py", "torch/not_python.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("def f[T]: no" if "not" in file else "")  # torch has files for newer Pythons
    monkeypatch.setattr(
        bytecode.importlib.util, "find_spec", lambda name: spec_from_file_location(name, tmp_path / name / "__init__.py")
    )
    return tmp_path


@pytest.fixture
def much(installed: Path) -> Path:
    """The same with more than is compiled in a moment."""
    for number in range(MANY):
        (installed / "torch" / f"part{number}.py").write_text("x = [1]\n" * 300)
    return installed


@pytest.fixture
def unwritable(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As a system's packages are to its users."""
    monkeypatch.setattr(bytecode.os, "access", lambda path, mode: False)  # root may write whatever the mode says
    return installed


def compiled(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)).replace("__pycache__/", "").split(".")[0] + ".py" for one in folder.rglob("*.pyc")}


def children() -> set[int]:
    """Processes that this one has started and that have not ended."""
    listed = {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    return {pid for pid in listed if not Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].startswith(" Z")}


@pytest.mark.parametrize("unwilling", [pytest.param("", marks=pytest.mark.slow), "1"])
def test_an_evaluator_compiles_what_is_missing(installed: Path, monkeypatch: pytest.MonkeyPatch, unwilling: str) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", unwilling)
    monkeypatch.setattr(sys, "dont_write_bytecode", bool(unwilling))
    assert check_bytecode().works and "the first evaluator compiles it" in check_bytecode().detail
    mask = os.umask(0o077)
    try:
        with open_evaluator("h200"):
            assert compiled(installed) == {*FILES, "triton/__init__.py"}
    finally:
        os.umask(mask)
    assert check_bytecode().works and "without" not in check_bytecode().detail
    assert all(one.stat().st_mode & 0o004 for one in installed.rglob("*.pyc"))  # confined processes are another user


def test_nothing_is_compiled_where_that_is_not_allowed(unwritable: Path) -> None:
    with bytecode.compile_missing_bytecode():
        pass
    assert not compiled(unwritable)


def test_a_failed_start_leaves_no_compiler_behind(much: Path) -> None:
    """An evaluator that does not start leaves no compiler behind."""
    bytecode.life_line()  # the janitor is no compiler
    before = children()
    with pytest.raises(ZeroDivisionError), bytecode.compile_missing_bytecode():
        assert children() - before
        raise ZeroDivisionError
    assert children() <= before and len(compiled(much)) < MANY


def test_compilers_end_with_a_caller_that_is_killed(much: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(much)], stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None and caller.stdout.readline()
        caller.kill()
    time.sleep(1.0)
    reached = len(compiled(much))
    time.sleep(1.0)
    assert len(compiled(much)) == reached < MANY


def test_only_one_evaluator_compiles(installed: Path) -> None:
    bytecode.life_line()
    before = children()
    with bytecode.compile_missing_bytecode():
        first = children() - before
        with bytecode.compile_missing_bytecode():
            assert children() - before <= first
    assert first and "without" not in check_bytecode().detail


def test_what_lies_in_the_working_folder_is_not_run(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path_factory.mktemp("here")
    for name in ("compileall", "struct", "py_compile"):
        (here / f"{name}.py").write_text("open('was_run', 'w').close()")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")  # whose bytecode has another name
    with bytecode.compile_missing_bytecode():
        pass
    assert "without" not in check_bytecode().detail and not (here / "was_run").exists()


def test_bytecode_of_another_text_is_none(installed: Path) -> None:
    with bytecode.compile_missing_bytecode():
        pass
    assert "without" not in check_bytecode().detail
    changed = installed / "torch" / "_inductor" / "compile_fx.py"
    changed.write_text("x = 1")
    os.utime(changed, (changed.stat().st_atime, changed.stat().st_mtime + 5))  # compileall looks at the second only
    assert "torch without" in check_bytecode().detail
    with bytecode.compile_missing_bytecode():
        pass
    assert "without" not in check_bytecode().detail


def test_the_command_of_doctor_is_what_was_missing(unwritable: Path) -> None:
    before = check_bytecode()
    assert not before.works and "torch, triton" in before.detail
    subprocess.run(shlex.split(before.todo.removeprefix("once: ")), check=False)  # complains of the file for a newer Python
    assert check_bytecode().works


def test_the_part_that_only_torch_compile_imports_counts(unwritable: Path) -> None:
    compileall.compile_dir(unwritable / "triton", quiet=1)
    compileall.compile_file(unwritable / "torch" / "__init__.py", quiet=1)  # as an import of torch does it
    check = check_bytecode()
    assert not check.works and "triton" not in check.detail and str(unwritable / "torch") in check.todo


def test_confined_processes_do_not_see_bytecode_elsewhere(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytecode that is kept elsewhere is not seen by confined processes."""
    elsewhere = str(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setattr(sys, "pycache_prefix", elsewhere)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", elsewhere)
    assert not check_bytecode().works
    subprocess.run(shlex.split(check_bytecode().todo.removeprefix("once: ")), check=False)
    assert check_bytecode().works


def test_packages_that_are_not_there_are_another_lines_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode.importlib.util, "find_spec", lambda name: None)
    assert check_bytecode().works
