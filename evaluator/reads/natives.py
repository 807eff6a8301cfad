"""Functions of torch that open files in native code: Python raises no audit event for these, so they raise one here."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any


def announce_native_reads() -> None:
    """Have torch's native readers raise the event `open`. Does nothing where torch is not loaded; safe to call twice."""
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(torch, "_tritonsmith_announces", False):
        return
    torch._tritonsmith_announces = True
    torch.from_file = _announce(torch.from_file, 0, "filename")
    torch.UntypedStorage.from_file = staticmethod(_announce(torch.UntypedStorage.from_file, 0, "filename"))
    for name in ("import_ir_module", "_import_ir_module_package", "_load_for_lite_interpreter"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _announce(getattr(torch._C, name), 1, "filename"))
    reader = torch._C.PyTorchFileReader
    torch._C.PyTorchFileReader = type("PyTorchFileReader", (reader,), {"__init__": _announce(reader.__init__, 1, "name")})


def _announce(function: Callable[..., Any], place: int, name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        path = arguments[place] if len(arguments) > place else options.get(name)
        if isinstance(path, str | bytes | os.PathLike):
            sys.audit("open", os.fspath(path), "rb", 0)
        return function(*arguments, **options)

    return call
