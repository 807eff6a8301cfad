"""Finds the packages below the folders that `package-dir` of pyproject.toml maps to `tritonsmith`; all else stands there."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def list_packages(root: Path) -> list[str]:
    """Dotted names of the mapped folders and of every folder with an `__init__.py` below them."""
    mapped: dict[str, str] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    below = (f"{name}.{inner}" for name, folder in mapped.items() for inner in find_packages(str(root / folder)))
    return [*mapped, *below]


if __name__ == "__main__":
    setup(packages=list_packages(ROOT))
