# mypy: disable-error-code="no-untyped-def,untyped-decorator,arg-type"
"""Child process: can this machine interpret, compile and launch a Triton kernel? Prints one JSON object on stdout.

Run as `python -P -m tritonsmith.evaluator.reference.self_check interpret|compile`; `interpret` expects TRITON_INTERPRET=1 in its
environment, because Triton reads it when a kernel is decorated.
"""

import json
import sys

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_SIZE = 64


@triton.jit
def _add_one(pointer, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(pointer + offsets, tl.load(pointer + offsets, inside) + 1.0, inside)


def _run(device: str) -> str:
    """Empty when the kernel computes what it should on that device, else what went wrong."""
    values = torch.zeros(_SIZE, device=device)
    _add_one[(1,)](values, _SIZE, BLOCK=_SIZE)
    return "" if bool((values == 1).all()) else "the kernel ran and its result is wrong"


def _compile() -> str:
    """Compile for sm_90 without a card; empty when a binary comes out."""
    source = ASTSource(_add_one, {"pointer": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": _SIZE})
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return "" if binary.asm.get("cubin") else "no binary came out"


def _attempt(check: str) -> str:
    try:
        if check == "interpreter":
            return _run("cpu")
        return _compile() if check == "compiler" else _run("cuda")
    except Exception as error:  # noqa: BLE001 - process boundary: any failure is the answer
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


def main() -> None:
    """Run the checks of one mode; each value is empty for success, else the reason."""
    answer = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda or ""}
    if sys.argv[1] == "interpret":
        answer["interpreter"] = _attempt("interpreter")
    else:
        answer["compiler"] = _attempt("compiler")
        if torch.cuda.is_available():
            answer["launch"] = _attempt("launch")
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
