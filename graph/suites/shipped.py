"""The tasks that come along, named as KernelBench numbers them; an installed package has them too."""

from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[2] / "benchmarks" / "tasks"
"""Their folder."""


def number_tasks() -> dict[str, Path]:
    """The files of these tasks by number."""
    return {path.name.split("_")[0]: path for path in sorted(SHIPPED.glob("[0-9]*_*.py"))}


def find_task_file(word: str) -> str:
    """The path of the task with this number that comes along; any other word, and one that names a file here, as it is."""
    found = number_tasks().get(word) if word.isdigit() and not Path(word).exists() else None
    return word if found is None else str(found)
