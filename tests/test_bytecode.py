"""Libraries without bytecode: compiled by the first evaluator, and what `tritonsmith doctor` says where that cannot be."""

import compileall
import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tritonsmith.cli.doctor import bytecode_check
from tritonsmith.evaluator import bytecode
from tritonsmith.evaluator.local import open_evaluator

FILES = ("torch/__init__.py", "torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py", "triton/compiler/compiler.py")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages as a tool leaves them that compiles nothing."""
    for file in (*FILES, "triton/__init__.py", "torch/not_python.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("def f[T]: no" if "not" in file else "")  # torch has files for newer Pythons
    monkeypatch.setattr(
        bytecode.importlib.util, "find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / name / "__init__.py"))
    )
    return tmp_path


@pytest.fixture
def unwritable(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As a system's packages are to its users."""
    monkeypatch.setattr(bytecode.os, "access", lambda path, mode: False)  # root may write whatever the mode says
    return installed


def _compiled(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)).replace("__pycache__/", "").split(".")[0] + ".py" for one in folder.rglob("*.pyc")}


def _named(folder: Path) -> list[Path]:
    """Processes whose command line names the folder."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if str(folder).encode() in line.read_bytes():
                found.append(line)
    return found


def _until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("unwilling", ["", "1"])
def test_an_evaluator_compiles_what_is_missing(installed: Path, monkeypatch: pytest.MonkeyPatch, unwilling: str) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", unwilling)
    monkeypatch.setattr(sys, "dont_write_bytecode", bool(unwilling))
    assert bytecode_check().works and "the first evaluator compiles it" in bytecode_check().detail
    with open_evaluator("h200"):
        assert _compiled(installed) == {*FILES, "triton/__init__.py"}
    assert bytecode_check().works and "without" not in bytecode_check().detail


def test_nothing_is_compiled_where_that_is_not_allowed(unwritable: Path) -> None:
    with bytecode.supplied():
        pass
    assert not _compiled(unwritable)


def test_an_evaluator_that_does_not_start_leaves_no_compiler_behind(installed: Path) -> None:
    for number in range(3000):
        (installed / "torch" / f"part{number}.py").write_text("x = 1\n" * 300)
    with pytest.raises(ZeroDivisionError), bytecode.supplied():
        _until(lambda: len(_named(installed)) > 1)  # it has started processes of its own
        raise ZeroDivisionError
    _until(lambda: not _named(installed))


def test_the_command_of_doctor_is_what_was_missing(unwritable: Path) -> None:
    before = bytecode_check()
    assert not before.works and "torch, triton" in before.detail
    subprocess.run(shlex.split(before.todo.removeprefix("once: ")), check=False)  # complains of the file for a newer Python
    assert bytecode_check().works


def test_the_part_that_only_torch_compile_imports_counts(unwritable: Path) -> None:
    compileall.compile_dir(unwritable / "triton", quiet=1)
    compileall.compile_file(unwritable / "torch" / "__init__.py", quiet=1)  # as an import of torch does it
    check = bytecode_check()
    assert not check.works and "triton" not in check.detail and str(unwritable / "torch") in check.todo


def test_bytecode_kept_elsewhere_is_not_seen_by_confined_processes(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = str(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setattr(sys, "pycache_prefix", elsewhere)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", elsewhere)
    assert not bytecode_check().works
    subprocess.run(shlex.split(bytecode_check().todo.removeprefix("once: ")), check=False)
    assert bytecode_check().works


def test_packages_that_are_not_there_are_another_lines_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode.importlib.util, "find_spec", lambda name: None)
    assert bytecode_check().works
