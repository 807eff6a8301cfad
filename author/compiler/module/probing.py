"""What statements of a forward call, in their order: two texts with equal traces do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BUILTIN = {"range": range, "str": str}
"""What loops need."""


class _Probe:
    """Stands for any object. What is read of it has a path; calls of it are noted, and give new ones."""

    def __init__(self, path: str, calls: list[str]) -> None:
        self.__dict__.update(path=path, calls=calls)

    def __repr__(self) -> str:
        return str(self.__dict__["path"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Probe(f"{self!r}.{name}", self.__dict__["calls"])

    def __getitem__(self, key: Any) -> Any:
        return _Probe(f"{self!r}[{key!r}]", self.__dict__["calls"])

    def __call__(self, *given: Any, **named: Any) -> Any:
        calls = self.__dict__["calls"]
        made = f"#{len(calls)}"
        calls.append(f"{self!r}({given!r}, {named!r})")
        if repr(self) == "self.keep":
            return _Probe(f"{made}.0", calls), _Probe(f"{made}.1", calls)
        return _Probe(made, calls)


class _Names(dict[str, Any]):
    """Every name that a text does not define is an object of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __missing__(self, name: str) -> Any:
        if name in _BUILTIN:
            raise KeyError(name)
        return _Probe(name, self.calls)


def trace_calls(lines: Sequence[str]) -> list[str] | None:
    """The calls of some lines with their arguments, and what the last line returns; None where that cannot be told."""
    *body, last = lines
    names = _Names()
    try:
        text = "\n".join([*body, f"returned = {last.removeprefix('return ')}"])
        exec(compile(text, "forward", "exec"), {"__builtins__": _BUILTIN}, names)  # noqa: S102 - this package's text over names that do nothing
    except Exception:  # noqa: BLE001 - what a probe cannot follow is not told
        return None
    return [*names.calls, repr(names["returned"])]
