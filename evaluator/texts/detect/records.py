"""What detection answers: traits with their evidence, and the kernels of the file."""

from enum import StrEnum

from pydantic import computed_field

from tritonsmith.evaluator.schema import Record


class Trait(StrEnum):
    """What a kernel file can be said to be; scripts rely on these names.

    They are called labels in output; `schema.Label` is another thing, which says who did the work.
    """

    PERSISTENT = "persistent"
    """A loop in the kernel carries state over time steps, or takes work for which another design would launch programs, or waits."""
    ROW_LOOP = "row_loop"
    """A loop in the kernel is a reduction or scan inside a row."""
    TIME_LOOP_IN_PYTHON = "time_loop_in_python"
    """Host code launches once per time step."""
    ONE_AXIS_GRID = "one_axis_grid"
    """A persistent kernel's grid covers one axis and leaves most of the card idle."""
    SERIAL_HIDDEN_LOOP = "serial_hidden_loop"
    """A matrix product is done as scalar times vector, one hidden unit after another."""
    UNSYNCHRONISED_SHARING = "unsynchronised_sharing"
    """Programs read what other programs store in the same loop, and nothing makes them wait."""
    DIRECT_CONVOLUTION = "direct_convolution"
    """A convolution as loops over its taps, without tl.dot."""
    LIBRARY_PASS_THROUGH = "library_pass_through"
    """The work is done by library calls."""
    HIGH_COMPLEXITY = "high_complexity"
    """Winograd, an attention kernel with online softmax, or a fast Fourier transform."""
    LAUNCH_BOUND = "launch_bound"
    MEMORY_BOUND = "memory_bound"
    COMPUTE_BOUND = "compute_bound"
    LATENCY_BOUND = "latency_bound"


ROUTING = {
    Trait.PERSISTENT: "skip the three tuning stages once it scores at least 1.0",
    Trait.ROW_LOOP: "no reason to skip tuning",
    Trait.TIME_LOOP_IN_PYTHON: "breaks the promise of a rewrite: the loop belongs inside the kernel",
    Trait.ONE_AXIS_GRID: "worth another round: split the other axis among programs too",
    Trait.SERIAL_HIDDEN_LOOP: "rewrite the product with tl.dot before tuning",
    Trait.UNSYNCHRONISED_SHARING: "expect `racy`: repair it with a barrier or separate launches",
    Trait.DIRECT_CONVOLUTION: "rewrite as implicit GEMM, or leave it to the library",
    Trait.LIBRARY_PASS_THROUGH: "a win would be the library's: write a kernel for the work",
    Trait.HIGH_COMPLEXITY: "skip the three tuning stages: the algorithm fixes its shape",
    Trait.LAUNCH_BOUND: "fuse launches; block sizes will not help",
    Trait.MEMORY_BOUND: "move fewer bytes: fuse, or tune memory access",
    Trait.COMPUTE_BOUND: "tune blocks and warps, use tensor cores, or change the algorithm",
    Trait.LATENCY_BOUND: "expose more parallel work or shorten the chain of steps",
}
"""What each label means for the way of a run."""


class TraitHit(Record):
    """One trait with the line that shows it; None where figures of the verdict alone show it."""

    name: Trait
    line: int | None = None
    evidence: str = ""
    nearest: str = ""
    """The nearest other explanation, where the text alone does not decide."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def routing(self) -> str:
        """What the label means for the way of a run."""
        return ROUTING[self.name]


class KernelCode(Record):
    """One Triton kernel of the file."""

    name: str
    line: int
    launch_lines: tuple[int, ...] = ()
    program_axes: tuple[str, ...] = ()
    uses_dot: bool = False
    waits: bool = False
    """Its programs wait for each other."""
    persistent: bool = False


class Detection(Record):
    """All labels of a kernel file."""

    labels: tuple[TraitHit, ...] = ()
    kernels: tuple[KernelCode, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The labels' names alone."""
        return frozenset(hit.name.value for hit in self.labels)
