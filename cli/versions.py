"""Versions of what is installed, found without importing any of it."""

from importlib.metadata import PackageNotFoundError, version

_PARTS = ("tritonsmith", "torch", "triton")


def find_versions() -> dict[str, str]:
    """The versions of this package, torch and triton; what is not installed is left out."""
    found = {}
    for name in _PARTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
