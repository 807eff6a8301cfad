"""What one launch of a kernel does, read from its compiled text and the arguments of the launch. Nothing was run for it."""

from __future__ import annotations

from pydantic import Field

from tritonsmith.evaluator.records.plain import Record


class KernelWork(Record):
    """Counts of one launch over all its programs; the text's loops are multiplied by their trips."""

    bytes_loaded: float = 0.0
    """Requested by all programs, masked lanes included: traffic between processors and the L2 cache at the most."""
    bytes_stored: float = 0.0
    unique_bytes: float = 0.0
    """Distinct bytes of the operands that loads and stores can touch: what device memory moves at the least."""
    repeated_bytes: float = 0.0
    """Of the bytes loaded, those that a program loads again in a later loop over the same operand."""
    product_flops: float = 0.0
    """Operations of matrix products."""
    product: str = ""
    """What most of them multiply: `ieee`, `tf32`, `fp16`, `bf16`, `fp8`."""
    operations: float = 0.0
    """Elementwise operations and index arithmetic, by one thread each."""
    special: float = 0.0
    """Operations of the special function units among them: exponentials, roots, quotients."""
    load_rounds: float = 0.0
    """Loads that one program waits for one after the other: one for straight code, one more per trip of a loop that loads."""
    reductions: float = 0.0
    """Reductions and scans of one program, which its warps do together."""
    waits: float = 0.0
    """Times that one program waits in a loop for other programs."""
    arguments: int = 0
    """Arguments of the launch, each of which costs the host time."""
    unknown: str = ""
    """Why the text does not tell the counts; empty where it does."""
    by_operand: dict[str, float] = Field(default_factory=dict)
    """Bytes requested by operand, for a person."""
