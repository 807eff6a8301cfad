"""The process that compiles a candidate: `python -P -m tritonsmith.evaluator.confined.compiler`. Needs TRITON_INTERPRET unset.

Writes an empty line to the stdout it was started with once it is ready; the caller's deadline runs from there. Reads one JSON line on
stdin, {"candidate": path, "target": card key, "init_pickle": path, "keep": bool}, where the pickle holds {"init": list, "inputs": list
of (shape, dtype), TensorSpec or plain values, "overrides": {name: value}}. Answers with one JSON object: {"status", "message",
"kernels": [KernelFacts], "torch_ops", "torch_launches", "torch_flops", "torch_bytes"}, counted over the second of two forwards. With
"keep" there is also "compiled": files of Triton's cache, as `channel.compiled_code` packs them.
What the candidate prints goes to stderr. Anything but one JSON object counts as a crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from pathlib import Path

from tritonsmith.evaluator.channel.compiled_code import pack_cache
from tritonsmith.evaluator.confined.compiler.compile import examine
from tritonsmith.evaluator.confined.stand_ins.untyped import knobs


def main() -> None:
    """Serve one request."""
    answer = os.dup(1)
    os.dup2(2, 1)  # prints of the candidate and of ptxas
    if knobs.runtime.interpret:
        raise RuntimeError("the compile-only process needs TRITON_INTERPRET unset")
    import torch._dynamo  # noqa: F401, PLC0415 - seconds, which operators under a mode cost once; here nobody waits for it
    import triton.compiler  # noqa: F401, PLC0415 - likewise

    os.write(answer, b"\n")  # the time that a candidate has begins now
    line = json.loads(sys.stdin.readline())
    request = pickle.loads(Path(line["init_pickle"]).read_bytes())  # written by the caller, not by the candidate
    result = examine(Path(line["candidate"]), line["target"], {"init": [], "inputs": [], "overrides": {}, **request})
    if line["keep"]:
        with contextlib.suppress(Exception):  # candidate code may have patched anything; a report without it is one
            result["compiled"] = pack_cache(Path(os.environ["TRITON_CACHE_DIR"]))
    with os.fdopen(answer, "w") as stream:
        json.dump(result, stream)
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of the candidate have no say


if __name__ == "__main__":
    main()
