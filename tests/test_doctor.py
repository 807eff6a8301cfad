"""What `tritonsmith doctor` says of an installation without bytecode."""

import compileall
import shlex
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tritonsmith.cli.doctor import bytecode_check


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages as a tool leaves them that compiles nothing."""
    for file in ("torch/__init__.py", "torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py", "triton/compiler/compiler.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    (tmp_path / "triton" / "__init__.py").write_text("")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / name / "__init__.py")))
    return tmp_path


def test_the_command_it_gives_is_what_was_missing(installed: Path) -> None:
    before = bytecode_check()
    assert not before.works and "torch and triton" in before.detail
    subprocess.run(shlex.split(before.todo.removeprefix("once: ")), check=True)
    assert bytecode_check().works


def test_the_part_that_only_torch_compile_imports_counts(installed: Path) -> None:
    compileall.compile_dir(installed / "triton", quiet=1)
    compileall.compile_file(installed / "torch" / "__init__.py", quiet=1)  # as an import of torch does it
    check = bytecode_check()
    assert not check.works and "triton" not in check.detail and str(installed / "torch") in check.todo


def test_packages_that_are_not_there_are_another_lines_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert bytecode_check().works
