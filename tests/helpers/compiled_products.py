"""Texts of kernels as modules, and what shows in a compiled product that its left operand may be overwritten while it is read."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

AT_RISK = re.compile(r"warp_group_dot %[^\n]*: tensor<[^\n]*#ttg\.dot_op[^\n]*\n[^\n]*warp_group_dot_wait[^\n]*pendings = [1-9]")
"""In TTGIR of sm_90: a left operand in registers, of a product that still runs when these are written again."""


def import_file(file: Path) -> ModuleType:
    """The module of a file, under the name of the file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
