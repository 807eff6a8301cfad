"""The package map, the names it must not leak, and the wheel."""

import json
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from project import ROOT

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOT_FOLDER = "tritonsmith"
"""What is installed as `tritonsmith` itself."""
FOLDERS = {name.removeprefix("tritonsmith.") for name in CONFIG["tool"]["setuptools"]["package-dir"] if name != "tritonsmith"}
"""At the root, mapped by hand; what lies below them is found."""


def list_packages(root: Path) -> set[str]:
    """What setup.py gives setuptools for a checkout: dotted names without `tritonsmith`, which is left out itself."""
    code = (
        "import distutils.core as core, json\n"
        "print(json.dumps(core.run_setup('setup.py', stop_after='init').packages))"
    )  # fmt: skip
    command = [sys.executable, "-c", f"import setuptools\n{code}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.removeprefix("tritonsmith.") for name in json.loads(done.stdout) if name != "tritonsmith"}


PACKAGES = list_packages(ROOT)


def tracked(pattern: str) -> list[Path]:
    """Files below the package folders, relative to the root."""
    return sorted(path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob(pattern))


def test_packages_are_the_folders_with_an_init() -> None:
    hidden = {path for path in ROOT.iterdir() if path.name.startswith(".") or path.name in ("build", "dist", "runs")}
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in ROOT.rglob("__init__.py")
        if not any(parent in hidden for parent in path.parents)
    }
    assert found == PACKAGES | {ROOT_FOLDER}


def test_folders_at_the_root_are_mapped_by_their_names() -> None:
    folders = {f"tritonsmith.{name}": name for name in FOLDERS} | {"tritonsmith": ROOT_FOLDER}
    assert CONFIG["tool"]["setuptools"]["package-dir"] == folders


def test_the_version_stands_in_one_way() -> None:
    (line,) = (line for line in (ROOT / ROOT_FOLDER / "__init__.py").read_text().splitlines() if line.startswith("__version__"))
    assert line == f'__version__ = "{CONFIG["project"]["version"]}"'


def test_type_checkers_see_every_package() -> None:
    entries = (path for path in (ROOT / ".typecheck" / "tritonsmith").iterdir() if path.name != "__pycache__")
    links = {path.name: path.resolve() for path in entries}
    root = {name: ROOT / ROOT_FOLDER / name for name in ("__init__.py", "py.typed")}
    assert links == {name: ROOT / name for name in FOLDERS} | root
    assert all((ROOT / name / "py.typed").exists() for name in FOLDERS)


@pytest.mark.slow
def test_no_bare_name_is_ever_imported(tmp_path: Path) -> None:
    """Imports every module that may be imported without a card, away from the root, and looks for `graph`, `nodes`, ... among the names."""
    modules = [
        "tritonsmith." + ".".join(path.with_suffix("").parts)
        for path in tracked("*.py")
        if path.parts[0] not in ("evaluator", "modules")
        and ".".join(path.parts[:-1]) in PACKAGES and path.stem not in ("__init__", "__main__")
        and path.as_posix() not in ("benchmarks/timing/true_ratio.py", "benchmarks/tuning/autotune.py")  # they run kernels
        and path.as_posix() not in ("benchmarks/chain/child.py", "benchmarks/rounding/repeats.py")  # nor without torch these
        and not (path.parts[:2] == ("benchmarks", "direct") and path.stem in ("loading", "compiler", "timer"))  # and these
        and path.parts[:2] not in {("benchmarks", name) for name in ("accuracy", "operators", "dropin", "random_modules", "census")}
        and path.as_posix() != "benchmarks/module_census.py"  # builds modules
    ]  # fmt: skip
    assert modules
    code = (
        "import importlib, importlib.util, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"bare = {sorted(FOLDERS)!r}\n"
        "heavy = [name for name in ('torch', 'triton') if name in sys.modules]\n"
        "print(json.dumps([[n for n in bare if n in sys.modules], [n for n in bare if importlib.util.find_spec(n)], heavy]))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[], [], []]


@pytest.mark.slow
def test_editors_follow_every_import(tmp_path: Path) -> None:
    """Pyright, which many editors use, resolves each module and knows the type of what it holds, with the committed settings alone."""
    modules = [
        "tritonsmith." + ".".join(path.with_suffix("").parts)
        for path in tracked("*.py")
        if ".".join(path.parts[:-1]) in PACKAGES and path.stem not in ("__init__", "__main__")
    ]
    lines = [f"import {name}" for name in modules]
    lines += ["from tritonsmith.evaluator.tasks.files import load_task", "from tritonsmith.graph.policies import Default"]
    lines += ["from tritonsmith.evaluator.nothing import here", "reveal_type(load_task)", "reveal_type(Default)"]
    (tmp_path / "asks.py").write_text("\n".join(lines) + "\n")
    command = [Path(sys.executable).with_name("basedpyright"), "--project", ROOT / "pyproject.toml", "--outputjson", tmp_path / "asks.py"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    said = [one["message"] for one in json.loads(done.stdout)["generalDiagnostics"] if one.get("rule") != "reportUnusedImport"]
    missing = [message for message in said if "could not be resolved" in message]
    assert len(modules) > 250 and len(missing) == 1 and "tritonsmith.evaluator.nothing" in missing[0], missing
    assert any("(path: str | Path" in message and "-> Task" in message for message in said)
    assert any("type[Default]" in message for message in said)


def test_constraints_hold_names_and_versions_only() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and "/" not in line and " " not in line and "+" not in line for line in lines)
    assert {"torch==2.13.0", "triton==3.7.1"} <= set(lines)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that is built from a copy of the sources, without network."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    root = (Path(ROOT_FOLDER) / name for name in ("__init__.py", "py.typed"))
    for path in (*root, *tracked("*")):
        if (ROOT / path).is_file() and "__pycache__" not in path.parts:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes((ROOT / path).read_bytes())
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    """Names in that wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_an_installed_wheel_has_its_version_and_finds_the_tasks_that_come_along(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment that borrows the libraries of this one, from a folder that holds nothing of the project."""
    home, here = tmp_path / "venv", tmp_path / "here"
    here.mkdir()

    def call(*words: str | Path) -> str:
        done = subprocess.run([str(word) for word in words], cwd=here, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call(sys.executable, "-m", "venv", home)
    libraries = call(home / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(libraries) / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files are not read
    call(home / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    code = "import tritonsmith, tritonsmith.cli as cli; print(tritonsmith.__version__, cli.__file__)"
    said = call(home / "bin/python", "-c", code).split()
    assert said[0] == CONFIG["project"]["version"] and Path(said[1]).is_relative_to(home)
    assert call(home / "bin/tritonsmith", "--version").startswith(f"tritonsmith {said[0]}, torch ")
    sizes = [word for size in ("seq_len=2", "num_layers=2", "input_size=16", "hidden_size=16") for word in ("--set", size)]
    call(home / "bin/tritonsmith", "optimize", "39", "--target", "h200", "--policy", "best-of-n", "--seeds", "1", "--out", "run", *sizes)
    assert (here / "run" / "best.py").is_file()


@pytest.mark.slow
def test_wheel_holds_code_and_data(wheel_names: set[str]) -> None:
    wanted = {
        f"tritonsmith/{path.as_posix()}"
        for path in tracked("*")
        if path.suffix in (".py", ".j2", ".toml") or path.name == "py.typed"
    }
    assert any(name.startswith("tritonsmith/benchmarks/tasks/") for name in wanted)
    assert any(name.startswith("tritonsmith/author/") for name in wanted)
    assert wanted - wheel_names == set()


@pytest.mark.slow
def test_wheel_installs_nothing_beside_its_own_name(wheel_names: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel_names} == {"tritonsmith", f"tritonsmith-{CONFIG['project']['version']}.dist-info"}
