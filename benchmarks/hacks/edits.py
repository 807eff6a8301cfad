"""Variants of a kernel text by replaced pieces."""

from __future__ import annotations

from tritonsmith.benchmarks.hacks.catalogue import FOLDER, Case

Edit = tuple[str, str]
TASK_OF = {
    "gelu": "26_gelu_scale_bias", "linear": "76_linear_bias_relu", "gru": "39_gru", "softmax": "softmax", "column": "column_sum",
    "matmul": "matmul_chain",
}  # fmt: skip


def read_kernel(name: str) -> str:
    """The text of a right kernel below `kernels/`."""
    return (FOLDER / "kernels" / f"{name}.py").read_text()


def edit_kernel(name: str, *edits: Edit) -> str:
    """The kernel with every edit made once. Raises ValueError for an edit that finds nothing or changes nothing."""
    return edit_text(f"kernels/{name}.py", read_kernel(name), *edits)


def edit_text(name: str, text: str, *edits: Edit) -> str:
    """A text with every edit made once; `name` stands in the error. Raises ValueError for an edit that finds nothing or changes nothing."""
    for old, new in edits:
        if old not in text or old == new:
            raise ValueError(f"{name}: {old!r} cannot be replaced")
        text = text.replace(old, new, 1)
    return text


def make_case(kind: str, title: str, base: str, *edits: Edit, precision: str = "ieee", expect: tuple[str, ...] = ()) -> Case:
    """A case from a kernel and edits; the task follows from the kernel's name."""
    task = TASK_OF[base.split("_")[0]]
    name = f"{base}-{title.replace(' ', '_')}"
    source = edit_kernel(base, *edits)
    return Case(name=name, kind=kind, task=task, source=source, family=kind, expect=expect, precision=precision, about=title)
