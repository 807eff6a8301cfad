"""The kinds of operation that a task can be made of."""

from enum import StrEnum


class Family(StrEnum):
    """Kinds of operation, the one that shapes a kernel most first."""

    RECURRENT = "recurrent"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    GEMM = "gemm"
    REDUCTION = "reduction"
    POINTWISE = "pointwise"
