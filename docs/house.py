"""Measures and draws the house from the real imports: `python docs/house.py [--root DIR] [OPTION]`.

Without an option it prints the two Mermaid drawings. `--write` puts them between the marks of ARCHITECTURE.md, where a test compares
them with the imports. A room is a folder with its own files. A folder with other folders in between stands on several floors, and each is
a room: `--rooms` lists their files. An arrow says that a file of the upper room imports from the lower one. Arrows that follow from others
are left out. `--plain` draws one room per folder and every arrow, which suits a checkout whose folders import each other in circles.
`--counts` prints the figures of a checkout as a table. `--limits` lists what is larger than the limits in tests/house_limits.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cli", "benchmarks", "modules", "graph", "nodes", "author", "prompts", "evaluator")
"""Packages of the project, top floor first."""
PAGES = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "docs")
LIMITS = {"files": 400, "folders": 20, "classes": 200, "functions": 60}
"""Lines, and files of a folder, from which on somebody asks whether it is still one thing; the answer stands in LISTED."""
GROWTH = 1.1
"""How far what is listed may grow before it is asked again."""
LISTED = "tests/house_limits.json"
BEGIN, END = "<!-- house: begin -->", "<!-- house: end -->"


_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the project."""

    path: Path
    """Relative to the root."""
    lines: int
    imports: frozenset[str]
    """Paths of the modules that it imports, relative to the root, without suffix."""
    taken: dict[str, str]
    """The module that each name is imported from, by the name that it has here."""
    classes: dict[str, int]
    """Lines of each class, by its name with those of the classes and functions around it."""
    functions: dict[str, int]

    @property
    def folder(self) -> str:
        """The folder that it lies in."""
        return self.path.parent.as_posix()

    @property
    def longest_class(self) -> int:
        """Lines of its longest class."""
        return max(self.classes.values(), default=0)

    @property
    def longest_function(self) -> int:
        """Lines of its longest function."""
        return max(self.functions.values(), default=0)


def read_modules(root: Path) -> dict[str, Module]:
    """Every Python file of the packages below `root`, by its path without suffix; a folder without `__init__.py` holds cases and tasks."""
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py")) if is_code(file, root)]
    names = {file.relative_to(root).with_suffix("").as_posix() for file in files}
    return {
        file.relative_to(root).with_suffix("").as_posix(): _read(file, root, names) for file in files if file.stem != "__init__"
    }  # an __init__ only says what its folder is for, and hands names on


def is_code(file: Path, root: Path) -> bool:
    """Whether a file is part of a package of this checkout, and no case or task."""
    inside = file.relative_to(root)
    flat_case = inside.parts[:2] == ("benchmarks", "hacks") and inside.stem[0].isupper()  # where older checkouts have them
    return not flat_case and all((root / folder / "__init__.py").is_file() for folder in list(inside.parents)[:-1])


def _read(file: Path, root: Path, names: set[str]) -> Module:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    statements = list(_walk(tree))
    classes = {name: _span(node) for name, node in statements if isinstance(node, ast.ClassDef)}
    functions = {name: _span(node) for name, node in statements if isinstance(node, _FUNCTIONS)}
    imports = [node for _, node in statements if isinstance(node, ast.ImportFrom | ast.Import)]
    taken = {
        alias.asname or alias.name: "/".join(node.module.split(".")[1:])
        for node in imports if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tritonsmith.")
        for alias in node.names
    }  # fmt: skip
    return Module(file.relative_to(root), len(text.splitlines()), frozenset(_imports(imports, names)), taken, classes, functions)


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _walk(node: ast.AST, around: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each statement, with its dotted name if it is a class or a function, else that of what is around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            name = f"{around}.{child.name}".lstrip(".") if isinstance(child, ast.ClassDef | _FUNCTIONS) else around
            yield name, child
            yield from _walk(child, name)


def _imports(statements: Iterable[ast.AST], names: set[str]) -> Iterator[str]:
    """Modules of the project that a file imports; a name that a package hands on counts as an import of the package."""
    for node in statements:
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


def find_rooms(modules: dict[str, Module]) -> dict[str, str]:
    """The room of each module: its folder, or its floor of a folder with others in between.

    The house is built from the ground up. A folder goes up whole once all that its files import stands. Where no folder can, one of
    those that import each other in a circle gets a floor of the files that can stand: the one that frees most of the others. So rooms
    import each other in one direction only.
    """
    waiting: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
    for name, module in modules.items():
        waiting[module.folder][name] = {target for target in module.imports if target in modules}
    floors: defaultdict[str, list[list[str]]] = defaultdict(list)
    standing: set[str] = set()
    while waiting:
        ready = {folder: _settle(files, standing) for folder, files in sorted(waiting.items())}
        whole = [folder for folder, names in ready.items() if len(names) == len(waiting[folder])]
        circle = [] if whole else _find_circle({folder: set().union(*files.values()) for folder, files in waiting.items()}, modules)
        for folder in whole or [max(circle, key=lambda folder: (_count_freed(waiting, standing.union(ready[folder])), len(ready[folder])))]:
            built = ready[folder] or list(waiting[folder])  # files that import each other in a circle across folders stand in one room
            floors[folder].append(built)
            standing.update(built)
            waiting[folder] = {name: needs for name, needs in waiting[folder].items() if name not in standing}
        waiting = defaultdict(dict, {folder: files for folder, files in waiting.items() if files})
    return {
        name: folder if len(levels) == 1 else f"{folder}: floor {number}"
        for folder, levels in floors.items() for number, names in enumerate(levels, 1) for name in names
    }  # fmt: skip


def _settle(files: dict[str, set[str]], standing: set[str]) -> list[str]:
    """The files of a folder whose imports stand already or stand up together with them."""
    rising = set(files)
    while falling := {name for name in rising if not files[name] <= standing | rising}:
        rising -= falling
    return [name for name in files if name in rising]


def _count_freed(waiting: dict[str, dict[str, set[str]]], standing: set[str]) -> int:
    """How many files could stand with their whole folder upon these."""
    rest = ({name: needs for name, needs in files.items() if name not in standing} for files in waiting.values())
    return sum(len(files) for files in rest if len(_settle(files, standing)) == len(files))


def _find_circle(needs: dict[str, set[str]], modules: dict[str, Module]) -> list[str]:
    """Folders that import each other, of those that wait, and import no further folder that waits."""
    below = {folder: {modules[name].folder for name in names} & needs.keys() for folder, names in needs.items()}
    for _ in below:  # all that can be reached
        below = {folder: lower.union(*(below[name] for name in lower)) for folder, lower in below.items()}
    lowest = min(below, key=lambda folder: (len(below[folder]), folder))
    return sorted(below[lowest])


def arrows(modules: dict[str, Module]) -> Counter[tuple[str, str]]:
    """How many imports lead from each room to each other room."""
    rooms = find_rooms(modules)
    pairs = ((name, target) for name, module in modules.items() for target in module.imports)
    between = ((rooms[name], rooms.get(target, Path(target).parent.as_posix())) for name, target in pairs)
    return Counter((upper, lower) for upper, lower in between if upper != lower)


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


def draw(edges: Iterable[tuple[str, str]], rooms: Iterable[str], zones: dict[str, list[str]]) -> str:
    """A Mermaid flowchart of these rooms; a zone is a frame around some of them."""
    names = {room: f"r{number}" for number, room in enumerate(sorted(rooms))}

    def box(room: str) -> str:
        folder, _, storey = room.partition(": ")
        return f'{names[room]}["<b>{folder}</b>{f"<br>{storey}" if storey else ""}"]'

    framed = {room for inside in zones.values() for room in inside}
    drawn = ["flowchart TD"]
    for number, (zone, inside) in enumerate(zones.items()):
        drawn += [f'    subgraph z{number}["{zone}"]', *(f"        {box(room)}" for room in inside if room in names), "    end"]
    drawn += [f"    {box(room)}" for room in names if room not in framed]
    drawn += [f"    {names[upper]} --> {names[lower]}" for upper, lower in drop_implied(edges) if upper in names and lower in names]
    return "\n".join(drawn) + "\n"


def draw_project(modules: dict[str, Module]) -> str:
    """The rooms of everything above the evaluator, which is one room here."""
    found = ((upper, "evaluator" if lower.startswith("evaluator") else lower) for upper, lower in arrows(modules))
    edges = {(upper, lower) for upper, lower in found if not upper.startswith("evaluator")}
    rooms = {room for room in find_rooms(modules).values() if not room.startswith("evaluator")} | {"evaluator"}
    zones = {folder: sorted(room for room in rooms if re.split("[/:]", room)[0] == folder) for folder in FOLDERS[:-1]}
    return draw(edges, rooms, zones)


ZONES = {
    "caller: loads no torch": ("evaluator/caller",),
    "oracle: seeds, reference, clock, verdict": ("evaluator/oracle",),
    "confined: runs next to candidate code": ("evaluator/confined",),
    "shared": ("evaluator",),
}
"""Frames of the evaluator's drawing: the rooms that begin so, each room in the first frame that takes it."""


def draw_evaluator(modules: dict[str, Module]) -> str:
    """The rooms of the evaluator, framed by who trusts them."""
    inside = {name: module for name, module in modules.items() if module.folder.startswith("evaluator")}
    rooms = set(find_rooms(inside).values())
    zones: dict[str, list[str]] = {zone: [] for zone in ZONES}
    for room in sorted(rooms):
        zones[next(zone for zone, starts in ZONES.items() if room.startswith(starts))].append(room)
    return draw(arrows(inside), rooms, zones)


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
    tests = Counter(file.parent for file in list_tests(root))
    pages = [file for page in PAGES for file in ([root / page] if (root / page).is_file() else sorted((root / page).glob("*.md")))]
    words = [count for page in pages for count in sentences_of(page.read_text(encoding="utf-8"))]
    chain = find_longest_chain(modules)
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
        ("longest chain of imports", f"{len(chain)} files (`{chain[0]}` to `{chain[-1]}`)"),
        *(
            (f"`{folder}/`", f"{len(sizes)} files, {sum(sizes):,} lines")
            for folder in FOLDERS if (sizes := [module.lines for module in modules.values() if module.path.parts[0] == folder])
        ),
        *count_author(root, modules),
        ("most files in a folder of tests", f"{max(tests.values())}"),
        ("pages of README, ARCHITECTURE, SECURITY, CONTRIBUTING, docs/", f"{len(pages)}"),
        ("their mean sentence", f"{sum(words) / len(words):.1f} words"),
        ("their longest sentence", f"{max(words)} words"),
        ("their sentences of more than 25 words", f"{sum(count > 25 for count in words)} of {len(words)}"),
    ]


def list_tests(root: Path) -> list[Path]:
    """Python files of tests and of what helps them; kernels that they judge are material."""
    return [file for file in sorted((root / "tests").rglob("*.py")) if file.parent.name != "kernels" or file.stem.startswith("test_")]


def find_large(root: Path, modules: dict[str, Module]) -> dict[str, dict[str, int]]:
    """What is larger than LIMITS, by kind: files and folders, those of tests too, classes and functions."""
    tests = [file.relative_to(root) for file in list_tests(root)]
    sizes: dict[str, Counter[str]] = {kind: Counter() for kind in LIMITS}
    for path in (*(module.path for module in modules.values()), *tests):
        sizes["folders"][path.parent.as_posix()] += 1
        sizes["files"][path.as_posix()] = len((root / path).read_text(encoding="utf-8").splitlines())
    for module in modules.values():
        sizes["classes"].update({f"{module.path.as_posix()}: {name}": lines for name, lines in module.classes.items()})
        sizes["functions"].update({f"{module.path.as_posix()}: {name}": lines for name, lines in module.functions.items()})
    return {kind: {name: size for name, size in sorted(sizes[kind].items()) if size > limit} for kind, limit in LIMITS.items()}


def compare_limits(listed: dict[str, dict[str, dict[str, Any]]], large: dict[str, dict[str, int]]) -> Iterator[str]:
    """One sentence for each thing that passed its limit, grew, needs no entry, or has no reason."""
    for kind, limit in LIMITS.items():
        entries = listed.get(kind, {})
        for name, size in large[kind].items():
            if name not in entries:
                yield f"{name}: {size} is over {limit}; is there more than one purpose? If not: --limits, and a reason"
            elif size > entries[name]["size"] * GROWTH:
                yield f"{name}: {size} where {entries[name]['size']} is listed; is it still one thing? If so: --limits"
        yield from (f"{name}: no longer over {limit}; --limits drops its entry" for name in entries.keys() - large[kind].keys())
        yield from (f"{name}: its entry in {LISTED} has no reason" for name, entry in entries.items() if not entry["reason"])


def write_limits(root: Path, modules: dict[str, Module]) -> None:
    """Lists what is larger than LIMITS with its present size; reasons are kept, and those of new entries are left to write."""
    page = root / LISTED
    before = json.loads(page.read_text(encoding="utf-8")) if page.is_file() else {}
    listed = {
        kind: {name: {"size": size, "reason": before.get(kind, {}).get(name, {}).get("reason", "")} for name, size in large.items()}
        for kind, large in find_large(root, modules).items()
    }
    text = json.dumps(listed, indent=2)
    text = re.sub(r'\{\s+("size": \d+),\s+("reason": .*)\s+\}', r"{\1, \2}", text)  # a line for each entry, which merges well
    page.write_text(text + "\n", encoding="utf-8")


def find_longest_chain(modules: dict[str, Module]) -> list[str]:
    """Modules of which each imports the next, as many as there are; those of a circle of imports count once."""
    known: dict[str, list[str]] = {}

    def follow(name: str, above: frozenset[str]) -> list[str]:
        if name not in known:
            lower = (follow(target, above | {name}) for target in sorted(modules[name].imports & modules.keys()) if target not in above)
            known[name] = [name, *max(lower, key=len, default=[])]
        return known[name]

    return max((follow(name, frozenset({name})) for name in sorted(modules)), key=len)


def count_author(root: Path, modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    """How the built-in author works: text that it reads, attributes that it probes for, and the tests of each stage of its compiler."""
    calls: Counter[str] = Counter()
    for module in modules.values():
        for node in ast.walk(ast.parse((root / module.path).read_text(encoding="utf-8"))) if module.path.parts[0] == "author" else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                calls["re"] += node.value.id == "re" and node.attr.islower()  # flags are in capitals
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
                calls["probe"] += isinstance(node.args[1], ast.Constant)
    yield "regular expressions in `author/`: calls of `re`", f"{calls['re']}"
    yield "attributes that `author/` probes for: `getattr` or `hasattr` with a name in quotes", f"{calls['probe']}"
    stages = {module.folder: module.folder.removeprefix("author/compiler/") for module in modules.values()}
    for folder in sorted(folder for folder in stages if re.fullmatch("author/compiler/[a-z_]+", folder)):
        files = [ast.parse(file.read_text(encoding="utf-8")) for file in (root / "tests" / folder).rglob("test_*.py")]
        tests = sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for tree in files for node in tree.body)
        yield f"unit tests of `{folder}`", f"{tests} in {len(files)} files of `tests/{folder}`"


def find_undrawn(page: str, modules: dict[str, Module]) -> set[str]:
    """Folders with code that the drawings of a page do not show."""
    shown = set(re.findall(r"<b>([^<]+)</b>", page[page.index(BEGIN) : page.index(END)]))
    return {module.folder for module in modules.values()} - shown


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
    parser.add_argument("--rooms", action="store_true", help="list the rooms with their files")
    parser.add_argument("--limits", action="store_true", help=f"write what is larger than the limits into {LISTED}")
    options = parser.parse_args(words)
    modules = read_modules(options.root)
    if options.write or options.limits:
        if options.limits:
            write_limits(options.root, modules)
        if options.write:
            page = options.root / "ARCHITECTURE.md"
            text = page.read_text(encoding="utf-8")
            before, after = text.partition(BEGIN)[0], text.partition(END)[2]
            page.write_text(before + drawings(modules) + after, encoding="utf-8")
    elif options.counts:
        sys.stdout.write("".join(f"| {what} | {figure} |\n" for what, figure in counts(options.root, modules)))
    elif options.rooms:
        rooms = find_rooms(modules)
        inside = {room: [Path(name).name for name in rooms if rooms[name] == room] for room in sorted(set(rooms.values()))}
        sys.stdout.write("".join(f"{room}: {' '.join(names)}\n" for room, names in inside.items()))
    elif options.plain:
        sys.stdout.write(f"```mermaid\n{draw_plain(modules)}```\n")
    else:
        sys.stdout.write(drawings(modules) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
