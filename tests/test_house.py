"""The house is as its documents say: the drawing is current, rooms stay small, arrows run one way, and named files exist."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from project import ROOT

LOADS_TORCH = ("channel", "confined", "inductor", "oracle", "reference")
"""Zones of the evaluator whose processes load torch and Triton.
All else above and beside them starts fast and holds no CUDA context. `modules/` runs in the process of a user who has torch."""
MOST_UNDRAWN = 0.1
"""Share of the folders that the drawing may leave out, so that a new one need not touch it."""
LONGEST_SENTENCE = 35
"""Words; a table cell or a list item counts as a sentence."""
MOST_README_WORDS = 1500
MOST_CELL = 300
"""Characters; what is longer stands below its table."""


def load_house() -> ModuleType:
    """The script docs/house.py as a module."""
    spec = importlib.util.spec_from_file_location("house", ROOT / "docs" / "house.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


house = load_house()


@pytest.fixture(scope="module")
def modules() -> dict[str, Any]:
    """Every file of the project, with its size and its imports."""
    found: dict[str, Any] = house.read_modules(ROOT)
    return found


def tracked(pattern: str) -> list[Path]:
    """Files that git knows, relative to the root; a source archive without git has them all."""
    done = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.split() if done.returncode == 0 else [path.relative_to(ROOT).as_posix() for path in ROOT.rglob(pattern)]
    return [Path(name) for name in names if (ROOT / name).is_file()]


def check_drawing(modules: dict[str, Any]) -> None:
    """Fails where ARCHITECTURE.md draws what is not so, or leaves out too much."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = page[page.index(house.BEGIN) : page.index(house.END) + len(house.END)]
    undrawn = house.find_undrawn(page, modules)
    shown = {name: module for name, module in modules.items() if module.folder not in undrawn}
    assert drawn == house.drawings(shown), "run: python docs/house.py --write"
    assert len(undrawn) <= MOST_UNDRAWN * len({module.folder for module in modules.values()}), "run: python docs/house.py --write"


_LOADERS = """import grimp, json
graph = grimp.build_graph("tritonsmith", include_external_packages=True, cache_dir=None, exclude_type_checking_imports=True)
graph.remove_import(importer="tritonsmith.evaluator.cards.machine", imported="torch")
print(json.dumps(sorted(graph.find_downstream_modules("torch") | graph.find_downstream_modules("triton"))))
"""
"""Prints what imports torch or Triton, directly or not. `present_card` may, which only the oracle and doctor's child call."""

_PACKAGES = "import setuptools, distutils.core as core; print(core.run_setup('setup.py', stop_after='init').packages)"
"""Prints what a build would install."""


def call_in(root: Path, *words: str | Path, place: str = ".typecheck") -> str:
    """What a program prints that finds the packages of this checkout as import-linter does.

    It runs in `place`: in the root itself, the folder of the public names would be taken for the whole package.
    """
    environment = os.environ | {"PYTHONPATH": str(root / ".typecheck")}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=root / place, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def find_loaders(root: Path) -> set[str]:
    """Modules that load torch or Triton and may not."""
    admitted = ("tritonsmith.benchmarks.", "tritonsmith.modules.", *(f"tritonsmith.evaluator.{zone}." for zone in LOADS_TORCH))
    loading = json.loads(call_in(root, "-c", _LOADERS))
    assert len(loading) > 50
    return {name for name in loading if not name.startswith(admitted)}


def test_only_processes_of_the_evaluator_load_torch() -> None:
    assert find_loaders(ROOT) == set()


def test_the_drawing_in_the_documents_is_true(modules: dict[str, Any]) -> None:
    check_drawing(modules)


@pytest.mark.slow  # a copy of the tree, which import-linter reads once more
def test_a_new_file_or_folder_is_found_without_being_named(tmp_path: Path) -> None:
    """In a copy of the tree with one file and one folder more; a new folder that loads torch is found out as well."""
    files = (file for folder in (*house.FOLDERS, "tritonsmith") for file in (ROOT / folder).rglob("*.py") if house.is_code(file, ROOT))
    for path in (*(file.relative_to(ROOT) for file in files), Path("pyproject.toml"), Path("setup.py"), Path("README.md"), Path("LICENSE")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    (tmp_path / ".typecheck" / "tritonsmith").mkdir(parents=True)
    for folder in house.FOLDERS:
        (tmp_path / ".typecheck" / "tritonsmith" / folder).symlink_to(tmp_path / folder)
    (tmp_path / ".typecheck" / "tritonsmith" / "__init__.py").symlink_to(tmp_path / "tritonsmith" / "__init__.py")
    (tmp_path / "prompts/more.py").write_text("from tritonsmith.evaluator.schema import Task\n")
    (tmp_path / "evaluator/more").mkdir()
    (tmp_path / "evaluator/more/__init__.py").write_text("")
    (tmp_path / "evaluator/more/more.py").write_text("import torch\n\nfrom tritonsmith.evaluator.schema import Status\n")
    modules = house.read_modules(tmp_path)
    assert {"prompts/more", "evaluator/more/more"} <= modules.keys()
    check_drawing(modules)
    assert find_loaders(tmp_path) == {"tritonsmith.evaluator.more.more"}
    assert "tritonsmith.evaluator.more" in call_in(tmp_path, "-c", _PACKAGES, place=".")
    lint = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache', '--config', '../pyproject.toml'])"
    assert "0 broken" in call_in(tmp_path, "-c", lint)


def test_arrows_between_rooms_make_no_circle(modules: dict[str, Any]) -> None:
    arrows = house.arrows(modules)
    below = {upper: {lower for start, lower in arrows if start == upper} for upper, _ in arrows}
    while leaves := [room for room, lower in below.items() if not lower & below.keys()]:
        for room in leaves:
            del below[room]
    assert below == {}


def test_implied_arrows_are_left_out_and_others_are_not() -> None:
    assert house.drop_implied([("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]) == [("a", "b"), ("a", "d"), ("b", "c")]


def test_what_is_large_has_a_reason_and_does_not_grow(modules: dict[str, Any]) -> None:
    """The limits are where a question is asked; `python docs/house.py --limits` writes the sizes anew and keeps the reasons."""
    listed = json.loads((ROOT / house.LISTED).read_text())
    assert listed.keys() == house.LIMITS.keys()
    assert list(house.compare_limits(listed, house.find_large(ROOT, modules))) == []


def test_limits_ask_about_growth_and_forget_what_shrank() -> None:
    large = {"files": {"a.py": 500, "b.py": 551, "c.py": 401}, "folders": {}, "classes": {}, "functions": {}}
    entry = {"size": 500, "reason": "one table"}
    listed = {"files": {"a.py": entry, "b.py": entry, "d.py": entry}, "classes": {}, "functions": {}}
    assert [said.partition(":")[0] for said in house.compare_limits(listed, large)] == ["b.py", "c.py", "d.py"]
    listed = {"files": {"a.py": {"size": 455, "reason": ""}, "b.py": entry | {"size": 510}, "c.py": entry | {"size": 800}}}
    assert list(house.compare_limits(listed, large)) == [f"a.py: its entry in {house.LISTED} has no reason"]


def test_a_class_name_means_one_thing_within_a_folder(modules: dict[str, Any]) -> None:
    """Whether a file defines the class or imports it; folders that share none may each have a `Line`."""
    meant: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, module in modules.items():
        for word in (word for word in module.classes if "." not in word):
            meant[module.folder, word].add(name)
        for word, source in module.taken.items():
            if source in modules and word in modules[source].classes:
                meant[module.folder, word].add(source)
    assert len(meant) > 1000
    assert {place: names for place, names in meant.items() if len(names) > 1 and not place[1].startswith("_")} == {}


_TOP = "benchmarks|cli|docs|evaluator|examples|graph|modules|nodes|prompts|tests"
NAMED = re.compile(rf"(?<![\w/.-])(?:(?:{_TOP})/[\w./-]*[\w]|[A-Z]+\.md)(?![\w*{{<-])")


@pytest.mark.parametrize("page", [str(path) for path in tracked("*.md") if "results" not in path.parts and "prompts" not in path.parts])
def test_files_that_a_document_names_exist(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    wanted = {name.rstrip(".") for name in NAMED.findall(text)}
    folder = (ROOT / page).parent
    assert {name for name in wanted if not ((ROOT / name).exists() or (folder / name).exists())} == set()


def test_links_between_documents_lead_somewhere() -> None:
    prompts = (("tests", "prompts"), ("docs", "prompts"))  # kernels in them have brackets like links
    for page in (path for path in tracked("*.md") if path.parts[:2] not in prompts):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            assert "://" in target or ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_sentences_stay_short() -> None:
    pages = [path for name in house.PAGES for path in ([ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).glob("*.md")))]
    assert len(pages) >= 15
    assert {path.name: longest for path in pages if (longest := max(house.sentences_of(path.read_text()))) > LONGEST_SENTENCE} == {}


def test_readme_can_be_read_in_minutes() -> None:
    """Its words, as `wc -w` counts them; its first commands are what a newcomer types."""
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= MOST_README_WORDS
    assert "    make demo " in text and "    make test " in text and text.index("make test") < text.index("## Results")


def list_cells(text: str) -> list[str]:
    """The cells of all tables of a page; blocks of code have none."""
    lines = re.sub(r"(?ms)^```.*?^```", "", text).splitlines()
    return [cell.strip() for line in lines if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]


def test_cells_of_tables_stay_short() -> None:
    assert list_cells("| a | b \\| c |\n```\n| code |\n```\n") == ["", "a", "b \\| c", ""]
    pages = [path for path in tracked("*.md") if "prompts" not in path.parts]
    assert len(pages) >= 40
    longest = {str(path): max(map(len, list_cells((ROOT / path).read_text())), default=0) for path in pages}
    assert {page: count for page, count in longest.items() if count > MOST_CELL} == {}, "a note below the table has room"
