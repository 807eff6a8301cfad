"""Right kernels in the idioms of Triton's tutorials, of libraries and of language models, each with a task.

Each stands for something that people write and that an evaluator without a card could stumble over. All must be accepted.
"""

from __future__ import annotations

from tritonsmith.benchmarks.hacks.catalogue import Case
from tritonsmith.benchmarks.hacks.edits import read_kernel

NAMES = (
    "descriptor_matmul", "device_descriptor", "block_pointer", "linear_recurrence", "top_and_sorted", "histogram", "largest_and_place",
    "welford", "last_program", "split_k_lock", "look_back", "stream_k", "causal_attention", "warmed_softmax", "grouped_matmul",
    "residual_rms", "label_loss", "implicit_gemm", "strided_running_sum", "int8_weights", "booleans", "assembly", "made_by_factory",
    "named_arguments", "on_constants", "packed_weights", "pool_with_places",
)  # fmt: skip
"""A kernel below `kernels/` and a task of that name below `tasks/`, or one that several have."""
_TASKS = dict.fromkeys(("made_by_factory", "named_arguments", "on_constants"), "leaky_relu_plus_one")


def idioms() -> list[Case]:
    """All of them."""
    return [_case(name, read_kernel(name)) for name in NAMES]


def _case(name: str, text: str) -> Case:
    about = text.split('"""')[1].splitlines()[0]
    task = _TASKS.get(name, name)
    return Case(name=f"idiom-{name}", kind="legitimate", task=task, source=text, family="legitimate", expect=("ok",), about=about)
