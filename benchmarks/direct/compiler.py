"""A process that compiles what a forward launches into Triton's cache, on tensors without memory. Imports torch and Triton."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from triton.runtime.jit import JITFunction

from tritonsmith.benchmarks.direct.loading import answer_lines, list_launches, load_module, make_model


def compile_ahead(job: dict[str, Any]) -> dict[str, Any]:
    """Compile the kernels of one job."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        task = load_module(job["task"], "task_module")
        inputs = task.get_inputs()
        model = make_model(load_module(job["text"], "text_module").ModelNew, task.get_init_inputs())
        list_launches(model, inputs)()
    return {"kernel": job["name"]}


def main() -> None:
    """Serve until stdin closes."""
    stock = JITFunction.run

    def run(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        return stock(function, *args, grid=grid, warmup=True, **options)

    JITFunction.run = run
    setattr(FakeTensor, "data_ptr", lambda tensor: 0)  # noqa: B010 - aligned like any allocation; a method's type is another one
    answer_lines(compile_ahead)


if __name__ == "__main__":
    main()
