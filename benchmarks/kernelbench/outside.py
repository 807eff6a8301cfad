"""One evaluation by KernelBench itself, in this fresh process: `python -m tritonsmith.benchmarks.kernelbench.outside CHECKOUT`.

Reads a JSON object with `reference` and `kernel` from stdin and writes one with `compiled`, `correct`, `runtime_ms` and `reference_ms`.
CHECKOUT is a checkout of KernelBench; empty for an installed one. KernelBench's package also imports clients of model services and the
like, which no evaluation calls. Where they are not installed, empty modules stand for them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

CORRECT_TRIALS = 5
TIMED_TRIALS = 100
_UNUSED = {"dotenv": ("load_dotenv",), "litellm": ("completion",), "openai": ("OpenAI",), "requests": (), "tqdm": ("tqdm",)}
"""Modules that no evaluation uses, with the names that KernelBench imports from them."""


def load_evaluation(checkout: str) -> ModuleType:
    """KernelBench's module with `eval_kernel_against_ref`. Raises ImportError where it is not to be had."""
    if checkout:
        folder = Path(checkout)
        sys.path.insert(0, str(folder / "src" if (folder / "src" / "kernelbench").is_dir() else folder))
    for name, parts in _UNUSED.items():
        if importlib.util.find_spec(name) is None:
            stand_in = ModuleType(name)
            for part in parts:
                setattr(stand_in, part, lambda *_, **__: None)
            sys.modules[name] = stand_in
    return importlib.import_module("kernelbench.eval")


def evaluate(evaluation: ModuleType, reference: str, kernel: str) -> dict[str, Any]:
    """What KernelBench says of a kernel, on the first card."""
    torch = importlib.import_module("torch")
    result = evaluation.eval_kernel_against_ref(
        original_model_src=reference, custom_model_src=kernel, num_correct_trials=CORRECT_TRIALS, num_perf_trials=TIMED_TRIALS,
        measure_performance=True, device=torch.device("cuda:0"), backend="triton",
    )  # fmt: skip
    return {
        "compiled": bool(result and result.compiled), "correct": bool(result and result.correctness),
        "runtime_ms": result.runtime if result else None, "reference_ms": result.ref_runtime if result else None,
        "metadata": str(result.metadata if result else "")[:500],
    }  # fmt: skip


def main() -> None:
    """Entry point."""
    out = os.dup(1)
    os.dup2(2, 1)  # KernelBench prints
    request = json.loads(sys.stdin.read())
    answer = evaluate(load_evaluation(sys.argv[1] if len(sys.argv) > 1 else ""), request["reference"], request["kernel"])
    os.write(out, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
