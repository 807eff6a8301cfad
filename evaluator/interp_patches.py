"""Fixes of the stock Triton interpreter (3.6 to 3.7). Imports torch and Triton: for evaluator processes with TRITON_INTERPRET=1 only."""


def install() -> None:
    """Patch the interpreter once, before candidate code is imported; safe to call twice."""
    raise NotImplementedError
