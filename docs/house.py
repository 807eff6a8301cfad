"""Measures and draws the house from the real imports: `python docs/house.py [--root DIR] [--counts | --plain | --write]`.

Without an option it prints the two Mermaid drawings. `--counts` prints the figures of a checkout as a table. `--write` puts the drawings
between the marks of ARCHITECTURE.md, where a test compares them with the imports. A room is a folder with its own files; an arrow says
that a file of the upper room imports from the lower one. Arrows that follow from others are left out. `--plain` draws one room per folder
and every arrow, which suits a checkout whose folders import each other in circles.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cli", "benchmarks", "graph", "nodes", "author", "prompts", "evaluator")
"""Packages of the project, top floor first."""
DATA = (
    "benchmarks/hacks/cases", "benchmarks/hacks/kernels", "benchmarks/hacks/tasks", "benchmarks/tasks", "benchmarks/tasks/half",
    "benchmarks/timing/tasks", "benchmarks/kernelbench/half_kernels", "benchmarks/kernelbench/kernels", "benchmarks/kernelbench/tasks",
    "benchmarks/tuning/kernels", "benchmarks/tuning/tasks", "benchmarks/rounding/kernels", "benchmarks/rounding/tasks",
    "benchmarks/results",
)  # fmt: skip
"""Folders whose Python files are cases and tasks: material of the evaluator, imported by nobody."""
PAGES = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "docs")
BEGIN, END = "<!-- house: begin -->", "<!-- house: end -->"
STOREYS = {
    "graph": ("app run", "builder drawing", "context session steps", "state sites pool background searches"),
    "nodes": ("analyze confirm decide describe detect evaluate optimize repair seed select tune", "asking common foresee judging twins"),
    "cli": ("main app", "options judging kernels stopping examining working versions"),
    "cli/report": ("write", "forms charts"),
    "author": (
        "prompt_pages", "examples built_in space analyst book",
        "recipe measured cost plan builder reference constructor members operations writes",
    ),
    "prompts": ("author promises", "analysis kinds node_names"),
    "evaluator": ("schema protocol errors kernel_text",),
}
"""Folders whose own files stand on several floors, with other folders in between; each line of files is a room of its own."""


@dataclass(frozen=True)
class Module:
    """One file of the project."""

    path: Path
    """Relative to the root."""
    lines: int
    imports: frozenset[str]
    """Paths of the modules that it imports, relative to the root, without suffix."""
    longest_class: int
    longest_function: int

    @property
    def folder(self) -> str:
        """The folder that it lies in."""
        return self.path.parent.as_posix()

    @property
    def room(self) -> str:
        """Its folder; with the files that share its floor where the folder has several."""
        return room_of(self.path)


def room_of(path: Path) -> str:
    """The room of a file, by its path without or with suffix."""
    folder = path.parent.as_posix()
    storey = next((files for files in STOREYS.get(folder, ()) if path.stem in files.split()), "")
    return f"{folder}: {storey}" if storey else folder


def read_modules(root: Path) -> dict[str, Module]:
    """Every Python file of the packages below `root`, by its path without suffix."""
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py")) if not _is_data(file.relative_to(root))]
    names = {file.relative_to(root).with_suffix("").as_posix() for file in files}
    return {
        file.relative_to(root).with_suffix("").as_posix(): _read(file, root, names) for file in files if file.stem != "__init__"
    }  # an __init__ only says what its folder is for, and hands names on


def _is_data(path: Path) -> bool:
    flat_case = path.parts[:2] == ("benchmarks", "hacks") and path.stem[0].isupper()  # where older checkouts have them
    return flat_case or any(path.as_posix().startswith(f"{folder}/") for folder in DATA)


def _read(file: Path, root: Path, names: set[str]) -> Module:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    spans = {
        kind: [node.end_lineno - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, kind) and node.end_lineno]
        for kind in (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    }
    functions = spans[ast.FunctionDef] + spans[ast.AsyncFunctionDef]
    return Module(
        file.relative_to(root), len(text.splitlines()), frozenset(_imports(tree, names)), max(spans[ast.ClassDef], default=0),
        max(functions, default=0),
    )  # fmt: skip


def _imports(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Modules of the project that a file imports; a name that a package hands on counts as an import of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tritonsmith."):
            place = "/".join(str(node.module).split(".")[1:])
            for alias in node.names:
                if f"{place}/{alias.name}" in names:
                    yield f"{place}/{alias.name}"
                elif place in names or f"{place}/__init__" in names:
                    yield place if place in names else f"{place}/__init__"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                place = "/".join(alias.name.split(".")[1:])
                if alias.name.startswith("tritonsmith.") and place in names:
                    yield place


def arrows(modules: dict[str, Module]) -> Counter[tuple[str, str]]:
    """How many imports lead from each room to each other room."""
    found: Counter[tuple[str, str]] = Counter()
    for module in modules.values():
        for target in module.imports:
            room = room_of(Path(target))
            if room != module.room:
                found[module.room, room] += 1
    return found


def drop_implied(edges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows that do not follow from a longer way along others, in order."""
    known = sorted(set(edges))
    below: defaultdict[str, set[str]] = defaultdict(set)
    for upper, lower in known:
        below[upper].add(lower)

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        for room in below[start] - seen:
            seen.add(room)
            if room == goal or reaches(room, goal, seen):
                return True
        return False

    return [
        (upper, lower) for upper, lower in known if not any(reaches(room, lower, {upper}) for room in below[upper] - {lower})
    ]


def draw_plain(modules: dict[str, Module]) -> str:
    """One room per folder and every arrow between two of them, with the number of imports."""
    found = count_imports(modules)
    names = {folder: f"r{number}" for number, folder in enumerate(sorted({module.folder for module in modules.values()}))}
    files = Counter(module.folder for module in modules.values())
    boxes = [f'    {name}["<b>{folder}</b><br>{files[folder]} files"]' for folder, name in names.items()]
    lines = [f"    {names[upper]} -->|{number}| {names[lower]}" for (upper, lower), number in sorted(found.items()) if upper != lower]
    return "\n".join(["flowchart TD", *boxes, *lines]) + "\n"


def count_imports(modules: dict[str, Module]) -> Counter[tuple[str, str]]:
    """How many imports lead from each folder to each folder, itself included."""
    return Counter((module.folder, Path(target).parent.as_posix()) for module in modules.values() for target in module.imports)


def draw(modules: dict[str, Module], edges: Iterable[tuple[str, str]], rooms: Iterable[str], zones: dict[str, list[str]]) -> str:
    """A Mermaid flowchart of these rooms; a zone is a frame around some of them."""
    names = {room: f"r{number}" for number, room in enumerate(sorted(rooms))}
    files = Counter(module.room for module in modules.values())

    def box(room: str) -> str:
        folder, _, storey = room.partition(": ")
        return f'{names[room]}["<b>{folder}</b><br>{storey or f"{files[room]} files"}"]'

    framed = {room for inside in zones.values() for room in inside}
    drawn = ["flowchart TD"]
    for number, (zone, inside) in enumerate(zones.items()):
        drawn += [f'    subgraph z{number}["{zone}"]', *(f"        {box(room)}" for room in inside if room in names), "    end"]
    drawn += [f"    {box(room)}" for room in names if room not in framed]
    drawn += [f"    {names[upper]} --> {names[lower]}" for upper, lower in drop_implied(edges) if upper in names and lower in names]
    return "\n".join(drawn) + "\n"


def draw_project(modules: dict[str, Module]) -> str:
    """The rooms of everything above the evaluator, which is one room here."""
    above = {name: module for name, module in modules.items() if not module.room.startswith("evaluator")}
    found = ((upper, "evaluator" if lower.startswith("evaluator") else lower) for upper, lower in arrows(modules))
    edges = {(upper, lower) for upper, lower in found if not upper.startswith("evaluator")}
    rooms = {module.room for module in above.values()} | {"evaluator"}
    zones = {folder: sorted(room for room in rooms if re.split("[/:]", room)[0] == folder) for folder in FOLDERS[:-1]}
    inside = {name: module for name, module in modules.items() if name not in above}
    whole = Module(Path("evaluator/_"), 0, frozenset(), 0, 0)
    return draw(above | dict.fromkeys(inside, whole), edges, rooms, zones)


ZONES = {
    "caller: loads no torch": ("evaluator/caller",),
    "oracle: seeds, reference, clock, verdict": ("evaluator/oracle",),
    "confined: runs next to candidate code": ("evaluator/confined",),
    "shared": ("evaluator",),
}
"""Frames of the evaluator's drawing: the rooms that begin so, each room in the first frame that takes it."""


def draw_evaluator(modules: dict[str, Module]) -> str:
    """The rooms of the evaluator, framed by who trusts them."""
    inside = {name: module for name, module in modules.items() if module.room.startswith("evaluator")}
    rooms = {module.room for module in inside.values()}
    zones: dict[str, list[str]] = {zone: [] for zone in ZONES}
    for room in sorted(rooms):
        zones[next(zone for zone, starts in ZONES.items() if room.startswith(starts))].append(room)
    return draw(inside, arrows(inside), rooms, zones)


def sentences_of(text: str) -> list[int]:
    """Words of each sentence of a Markdown text; items of lists and cells of tables count as sentences, code does not."""
    for pattern in (r"```.*?```", r"<!--.*?-->", r"^(?: {4}|\t).*$", r"^#+ .*$"):
        text = re.sub(pattern, "\n\n", text, flags=re.DOTALL | re.MULTILINE if "`" in pattern or "<" in pattern else re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text.replace("|", "\n\n"))
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    parts = (part for block in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.:;!?])[*_)\"]*\s", " ".join(block.split())))
    found = [sum(any(letter.isalnum() for letter in word) for word in part.split()) for part in parts]
    return [words for words in found if words >= 3]


def counts(root: Path, modules: dict[str, Module]) -> list[tuple[str, str]]:
    """Figures of a checkout, in words and numbers."""
    files = Counter(module.folder for module in modules.values())
    largest = max(files, key=lambda room: files[room])
    longest = max(modules.values(), key=lambda module: module.lines)
    largest_class = max(modules.values(), key=lambda module: module.longest_class)
    function = max(modules.values(), key=lambda module: module.longest_function)
    imports = count_imports(modules)
    inside = imports["evaluator", "evaluator"]
    between = {pair: number for pair, number in imports.items() if pair[0] != pair[1]}
    tests = Counter(file.parent for file in (root / "tests").rglob("*.py") if "kernels" not in file.parts)
    pages = [file for page in PAGES for file in ([root / page] if (root / page).is_file() else sorted((root / page).glob("*.md")))]
    words = [count for page in pages for count in sentences_of(page.read_text(encoding="utf-8"))]
    return [
        ("files of code", f"{len(modules)}"),
        ("folders with code", f"{len(files)}"),
        ("most files in a folder", f"{files[largest]} (`{largest}`)"),
        ("longest file", f"{longest.lines} lines (`{longest.path}`)"),
        ("longest class", f"{largest_class.longest_class} lines (`{largest_class.path}`)"),
        ("longest function", f"{function.longest_function} lines (`{function.path}`)"),
        ("imports between files of `evaluator/` itself", f"{inside}"),
        ("imports between folders", f"{sum(between.values())}"),
        ("arrows between folders", f"{len(between)}"),
        ("most files in a folder of tests", f"{max(tests.values())}"),
        ("pages of README, ARCHITECTURE, SECURITY, CONTRIBUTING, docs/", f"{len(pages)}"),
        ("their mean sentence", f"{sum(words) / len(words):.1f} words"),
        ("their longest sentence", f"{max(words)} words"),
        ("their sentences of more than 25 words", f"{sum(count > 25 for count in words)} of {len(words)}"),
    ]


def drawings(modules: dict[str, Module]) -> str:
    """What stands between the marks of ARCHITECTURE.md."""
    return f"""{BEGIN}

Above the evaluator:

```mermaid
{draw_project(modules)}```

Inside the evaluator:

```mermaid
{draw_evaluator(modules)}```

{END}"""


def main(words: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python docs/house.py", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    parser.add_argument("--counts", action="store_true", help="print figures instead of drawings")
    parser.add_argument("--plain", action="store_true", help="draw one room per folder, with every arrow")
    parser.add_argument("--write", action="store_true", help="put the drawings into ARCHITECTURE.md")
    options = parser.parse_args(words)
    modules = read_modules(options.root)
    if options.counts:
        sys.stdout.write("".join(f"| {what} | {figure} |\n" for what, figure in counts(options.root, modules)))
        return 0
    if options.plain:
        sys.stdout.write(f"```mermaid\n{draw_plain(modules)}```\n")
        return 0
    page = options.root / "ARCHITECTURE.md"
    if options.write:
        text = page.read_text(encoding="utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        page.write_text(before + drawings(modules) + after, encoding="utf-8")
        return 0
    sys.stdout.write(drawings(modules) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
