"""The labelled kernels of the text files in this folder: how they are written down, and how their names are made strange."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from detected_kernels import make_module

FOLDER = Path(__file__).parent
_IMPORTS = """import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


"""


@dataclass(frozen=True)
class Labelled:
    """One kernel file with the labels that an expert gives it.

    In a text file a kernel is `=== name | labels`, its text, `---` and the body of forward. `=== name | labels < base` is another one
    with pieces replaced: each line says `old ==> new`, and `\\n` is a line's end. In the folder `outside` it is
    `=== name | labels | reason` and a whole file; a label with a question mark is left open, since experts would not agree.
    """

    name: str
    labels: frozenset[str]
    kernel: str
    forward: str
    undecided: frozenset[str] = frozenset()
    """Labels that count neither for nor against detection."""

    @property
    def source(self) -> str:
        """The whole file."""
        return make_module(self.kernel, self.forward) if self.forward else self.kernel


@cache
def read_labelled() -> dict[str, Labelled]:
    """All labelled kernels by name."""
    found: dict[str, Labelled] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for block in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
            head, _, body = block.partition("\n")
            names, _, base = head.partition(" < ")
            name, _, labels = names.partition(" | ")
            text, _, forward = body.partition("---\n")
            if base:
                origin = found[base.strip()]
                text, forward = _replace(origin, text, forward, name)
            forward = forward or _launch(text)
            assert name not in found, name
            found[name] = Labelled(name, frozenset(labels.replace(",", " ").split()) - {"-"}, text, forward)
    for case in _read_outside():
        assert case.name not in found, case.name
        found[case.name] = case
    return found


def _read_outside() -> Iterator[Labelled]:
    """Kernels that were labelled by the definitions before detection saw them."""
    for path in sorted((FOLDER / "outside").glob("*.txt")):
        for block in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
            head, _, text = block.partition("\n")
            name, words, _ = head.split(" | ")
            labels = set(words.split()) - {"-"}
            undecided = {label for label in labels if label.startswith("?")}
            whole = text if re.search(r"^(import|from) ", text, flags=re.MULTILINE) else _IMPORTS + text
            yield Labelled(f"outside/{name}", frozenset(labels - undecided), whole, "", frozenset(label[1:] for label in undecided))


def _replace(origin: Labelled, changes: str, forward: str, name: str) -> tuple[str, str]:
    text, launch = origin.kernel, forward or origin.forward
    for line in changes.splitlines():
        old, _, new = line.partition(" ==> ")
        old, new = old.replace("\\n", "\n"), new.replace("\\n", "\n")
        assert old in text or old in launch, f"{name}: {old!r} is not in {origin.name}"
        text, launch = text.replace(old, new), launch.replace(old, new)
    ast.parse(text)
    return text, launch


def _launch(text: str) -> str:
    kernel = re.findall(r"^def (\w+)", text, flags=re.MULTILINE)[-1]
    return f"{kernel}[(64, 4)](x, self.weight, out)\n"


def rename_everything(case: Labelled) -> str:
    """The file with names of kernels' variables, parameters and of kernels themselves replaced by ones that say the opposite."""
    tree = ast.parse(case.source)
    attributes = {  # of classes of the file, by which a function may be called as well
        part.id
        for node in tree.body if isinstance(node, ast.ClassDef)
        for line in node.body if isinstance(line, ast.Assign)
        for part in line.targets if isinstance(part, ast.Name)
    }  # fmt: skip
    kernels = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name not in attributes]
    stranger = {node.name: f"persistent_winograd_{number}" for number, node in enumerate(kernels)}
    keywords: dict[str, str] = {}
    for node in (node for node in kernels if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)):
        own = {arg.arg for arg in [*node.args.args, *node.args.kwonlyargs]}
        own |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        names = {name: f"step_{chr(97 + number % 26)}{number}" for number, name in enumerate(sorted(own))}
        keywords |= {arg.arg: names[arg.arg] for arg in node.args.args}
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                part.id = names.get(part.id, part.id)
            elif isinstance(part, ast.arg):
                part.arg = names.get(part.arg, part.arg)
            elif isinstance(part, ast.Dict):  # what an autotuner gives
                part.keys = [ast.Constant(names.get(key.value, key.value)) if isinstance(key, ast.Constant) else key for key in part.keys]
    for part in ast.walk(tree):
        if isinstance(part, ast.Name):
            part.id = stranger.get(part.id, part.id)
        elif isinstance(part, ast.FunctionDef):
            part.name = stranger.get(part.name, part.name)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Subscript):
            for keyword in part.keywords:
                keyword.arg = keywords.get(keyword.arg or "", keyword.arg)
    return ast.unparse(tree)
