"""What detection answers: traits with their evidence, and the kernels of the file."""

from enum import StrEnum

from tritonsmith.evaluator.schema import Record


class Trait(StrEnum):
    """What a kernel file can be said to be; scripts rely on these names.

    They are called labels in output; `schema.Label` is another thing, which says who did the work.
    """

    PERSISTENT = "persistent"
    """A kernel keeps state over a loop of its own (time steps, tiles), or waits for other programs."""
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
    """Winograd or an attention kernel with online softmax."""
    LAUNCH_BOUND = "launch_bound"
    MEMORY_BOUND = "memory_bound"
    COMPUTE_BOUND = "compute_bound"
    LATENCY_BOUND = "latency_bound"


class TraitHit(Record):
    """One trait with the line that shows it; None where figures of the verdict alone show it."""

    name: Trait
    line: int | None = None
    evidence: str = ""


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
