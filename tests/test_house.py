"""The house is as its documents say: the drawing is current, rooms stay small, arrows run one way, and named files exist."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from project import ROOT

MOST_FILES, MOST_LINES, MOST_CLASS_LINES, MOST_FUNCTION_LINES = 21, 520, 240, 60
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


def test_the_drawing_in_the_documents_is_current(modules: dict[str, Any]) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = page[page.index(house.BEGIN) : page.index(house.END) + len(house.END)]
    assert drawn == house.drawings(modules), "run: python docs/house.py --write"


def test_every_file_of_a_layered_folder_has_its_floor(modules: dict[str, Any]) -> None:
    """Every file of a folder with several floors has its floor."""
    for folder, storeys in house.STOREYS.items():
        files = {module.path.stem for module in modules.values() if module.folder == folder}
        assert files == {name for storey in storeys for name in storey.split()}, folder


def test_arrows_between_rooms_make_no_circle(modules: dict[str, Any]) -> None:
    arrows = house.arrows(modules)
    below = {upper: {lower for start, lower in arrows if start == upper} for upper, _ in arrows}
    while leaves := [room for room, lower in below.items() if not lower & below.keys()]:
        for room in leaves:
            del below[room]
    assert below == {}


def test_implied_arrows_are_left_out_and_others_are_not() -> None:
    assert house.drop_implied([("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]) == [("a", "b"), ("a", "d"), ("b", "c")]


def test_rooms_files_classes_and_functions_stay_small(modules: dict[str, Any]) -> None:
    files = Counter(module.folder for module in modules.values())
    assert {room: count for room, count in files.items() if count > MOST_FILES} == {}
    assert {str(module.path): module.lines for module in modules.values() if module.lines > MOST_LINES} == {}
    assert {str(module.path): module.longest_class for module in modules.values() if module.longest_class > MOST_CLASS_LINES} == {}
    functions = {str(module.path): module.longest_function for module in modules.values()}
    assert {path: lines for path, lines in functions.items() if lines > MOST_FUNCTION_LINES} == {}
    tests = [path for path in tracked("tests/*.py") if "kernels" not in path.parts]
    assert {folder: count for folder, count in Counter(path.parent for path in tests).items() if count > MOST_FILES} == {}
    assert {path: lines for path in tests if (lines := len((ROOT / path).read_text().splitlines())) > MOST_LINES} == {}


def test_every_class_name_stands_once(modules: dict[str, Any]) -> None:
    names: Counter[str] = Counter()
    for module in modules.values():
        if str(module.path) == "author/compiler/ir/code.py":
            continue  # its records have the names of Python's own syntax
        names.update(node.name for node in ast.parse((ROOT / module.path).read_text()).body if isinstance(node, ast.ClassDef))
    assert sorted(name for name, count in names.items() if count > 1 and not name.startswith("_")) == []


_TOP = "benchmarks|cli|docs|evaluator|examples|graph|nodes|prompts|tests"
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
