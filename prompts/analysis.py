"""The analysis of a kernel that works but is slow: exactly one change, with a promise that can be checked."""

from enum import StrEnum

from pydantic import Field

from tritonsmith.evaluator.schema import Record


class Category(StrEnum):
    """The four kinds of high-level change; an analysis proposes exactly one."""

    FUSION = "fusion"
    ALGORITHM = "algorithm_replacement"
    LAUNCHES = "launch_reduction"
    MEMORY = "memory_layout"


class Complexity(StrEnum):
    """What kind of kernel the change makes; `high` and `persistent` kernels are kept as they are by the notes' rules."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    PERSISTENT = "persistent"


class Promise(Record):
    """A measurable effect: after the change `metric` must be at most (or at least) `bound`."""

    metric: str
    """`launches_per_forward`, `programs` (largest grid), `bytes_per_forward` (of all kernels), `score`, or in percent
    `percent_of_floor` or a counter (`dram_throughput`, `sm_throughput`, `active_warps`, `l2_hit_rate`, `memory_stalls`)."""
    before: float
    bound: float
    at_most: bool = True


class Analysis(Record):
    """Why the kernel is slow, and the one change that should help."""

    bottleneck: str
    optimisation_method: str
    modification_plan: str
    category: Category
    expected_speedup: float = 1.0
    worth_optimizing: bool = True
    reason: str = ""
    implementation_complexity: Complexity = Complexity.MEDIUM
    kernel_type: str = ""
    fallback_strategy: str = ""
    returns: str = ""
    """What forward returns, restated."""
    promise: Promise | None = None
    evidence: dict[str, float | int | str] = Field(default_factory=dict)
    """The measured facts that the statement rests on."""
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict)
    """Settings of a recipe that the change sets; only the built-in author knows any."""
