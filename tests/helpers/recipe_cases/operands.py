"""Which operands of a text's products tensor cores read from registers, as Triton compiles them for a card that is not there."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

_COMPILE = """
import importlib.util, json, sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

path, launches = sys.argv[1], json.loads(sys.argv[2])
spec = importlib.util.spec_from_file_location("text", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name, given in launches.items():
    kernel = getattr(module, name)
    options = {key: given.pop(key) for key in ("num_warps", "num_stages")}
    signature = {argument: "constexpr" if argument in given else "*fp16" for argument in kernel.arg_names}
    aligned = {(place,): [["tt.divisibility", 16]] for place, kind in enumerate(signature.values()) if kind == "*fp16"}
    source = ASTSource(kernel, signature, given, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(*(line for line in compiled.asm["ttgir"].splitlines() if "warp_group_dot " in line), sep="\\n")
"""


def list_left_operands(text: str, word: str, folder: Path) -> list[str]:
    """Where tensor cores of Hopper find the left operand of each product: `memdesc` (shared memory) or `tensor` (registers).

    Args:
        text: a module that the author wrote; its arguments are pointers to float16.
        word: what a kernel has in it that is compiled.
        folder: gets the text and what the compiler keeps.
    """
    path = folder / "text.py"
    path.write_text(text)
    bodies = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and word in ast.unparse(node)}
    launches = {
        node.func.value.id: {argument.arg: ast.literal_eval(argument.value) for argument in node.keywords if argument.arg}
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name)
        and node.func.value.id in bodies
    }  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder / "cache")
    given = [sys.executable, "-c", _COMPILE, str(path), json.dumps(launches)]
    ended = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return re.findall(r"\} : (?:!ttg\.)?(\w+)<", ended.stdout)
