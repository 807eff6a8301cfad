"""Times what triton.autotune needs for one kernel: `python -m tritonsmith.benchmarks.tuning.autotune TASK KERNEL`. Needs a CUDA card.

TASK is a file with the task's record. The kernels are this study's own, so they run unconfined in this process. It prints one JSON
object: the seconds of the first forward, which tries every configuration, and the one that was chosen.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.schema import Task


def _load(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(path))
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(words: list[str]) -> int:
    """Tune once, and print what came of it."""
    reference = load_reference(Task.model_validate_json(Path(words[0]).read_text(encoding="utf-8")))
    candidate = _load(words[1], "candidate")
    weights = reference.build(0)
    model = candidate.ModelNew(*reference.init_inputs())
    model.load_state_dict(weights.state_dict())
    dtype = next((value.dtype for value in weights.parameters()), None)
    model = model.to("cuda", dtype) if dtype is not None else model.cuda()
    inputs = reference.draw_inputs(0, "cuda")
    torch.cuda.synchronize()
    started = time.perf_counter()
    with torch.no_grad():
        model(*inputs)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    tuners: list[Any] = [value for value in vars(candidate).values() if hasattr(value, "best_config")]
    chosen = {**tuners[0].best_config.kwargs, "num_warps": tuners[0].best_config.num_warps, "num_stages": tuners[0].best_config.num_stages}
    sys.stdout.write(json.dumps({"seconds": seconds, "chosen": chosen, "configurations": len(tuners[0].configs)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
