"""The records every room shares: task, candidate, facts, verdict. Frozen, JSON in and out, defaults for every later field."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.reads.record import TaskReads
from tritonsmith.evaluator.records.declarations import Declarations as Declarations
from tritonsmith.evaluator.records.declarations import SizeValue as SizeValue
from tritonsmith.evaluator.records.limits import Counters, FloorShare, LineFacts
from tritonsmith.evaluator.records.op_node import OpNode as OpNode
from tritonsmith.evaluator.records.op_node import TensorSpec as TensorSpec
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.records.plain import Plain
from tritonsmith.evaluator.records.plain import Record as Record
from tritonsmith.evaluator.records.work import KernelWork


class PrecisionClass(StrEnum):
    """What arithmetic a task asks for and a candidate reached; the order is from strict to loose."""

    IEEE = "ieee"
    SPLIT = "split"
    """Operands split into narrow parts whose products are summed: near fp32, far better than TF32. The reference computes in `ieee`."""
    TF32 = "tf32"
    HALF = "16-bit"

    @property
    def allows_tf32(self) -> bool:
        """Whether plain TF32 products are accurate enough, and a library may use them."""
        return self in (PrecisionClass.TF32, PrecisionClass.HALF)

    @property
    def arithmetic(self) -> PrecisionClass:
        """The class in which the reference computes."""
        return PrecisionClass.IEEE if self is PrecisionClass.SPLIT else self


CORRECTNESS_ONLY = "correctness"
"""The profile of a question about another size: a working candidate's verdict needs no timing."""


FIT = "fit"  # the size of a task for which an evaluator has still to choose one


class Task(Record):
    """One KernelBench-style file (`Model`, `get_inputs`, `get_init_inputs`) at one size."""

    name: str
    path: str
    folder: str = ""  # of the file, whole: helper modules and data are looked for there; empty where nobody knows it
    source: str
    size: str = "full"
    """`full` (the file as it stands), `small` (its `SMALL` dict applied, or shrunk), `custom`, or `fit` (an evaluator is to choose)."""
    overrides: dict[str, SizeValue] = Field(default_factory=dict)
    """Module-level names that are set after the file ran and before `get_inputs` is called."""
    precision: PrecisionClass = PrecisionClass.IEEE
    asked: bool = False  # whether a user chose the class; else `ieee` stands for the one that follows from its types
    mode: Literal["eval", "train"] = "eval"
    backward: bool = False  # whether gradients are judged too, and forward and backward are timed together
    reads: TaskReads | None = None  # what its process read besides the file; None before it was described
    sized: str = ""  # what was done about the size, in one line; empty at the file's own size
    meant: dict[str, SizeValue] | None = None  # overrides of the size that kernels are for, where this one is smaller
    declares: Declarations | None = None  # as its file was read; `tasks/files.py` reads the source where it is absent

    @property
    def sha(self) -> str:
        """Content address of source, size overrides, precision and, where there is any, another mode, gradients and what else is read."""
        key = self.reads.key if self.reads is not None else ""
        more = *([FIT] * (self.size == FIT)), *([self.mode] * (self.mode != "eval")), *(["backward"] * self.backward), *([key] * bool(key))
        return text_sha(repr((self.source, sorted(self.overrides.items()), self.precision.value, *more)))


class ChosenSize(Record):
    """The size that an evaluator chose: smaller values of module-level names (none for its own size), and what was done in one line."""

    overrides: dict[str, int | tuple[int, ...]] = Field(default_factory=dict)
    note: str = ""


class Bar(Record):
    """What a kernel has to beat, where the module itself was judged ahead of all kernels."""

    baseline: str
    """Name of the strongest baseline."""
    baselines_ms: dict[str, float]
    kernels: dict[str, float] = Field(default_factory=dict)
    """Milliseconds of a forward by the names of the kernels that eager execution launches, longest first."""


class TaskFacts(Record):
    """What running and tracing the reference once showed; the only view of the task that authors get next to its source."""

    inputs: tuple[TensorSpec | None, ...] = ()
    """One per argument of `forward`; None for an argument that is not a tensor."""
    values: tuple[str, ...] = ()  # one per argument too: as Python writes it; empty for a tensor, and for one that is no literal
    outputs: tuple[TensorSpec, ...] = ()  # flattened tensors that `forward` returns, in order
    returns: str = ""
    """What forward returns, in words: `a tensor float32[512, 10, 256]`."""
    parameters: dict[str, TensorSpec] = Field(default_factory=dict)
    """Parameters and persistent buffers by their `state_dict` name."""
    tables: dict[str, TensorSpec] = Field(default_factory=dict)
    """Tensors that the constructor makes alike for every seed and that no `state_dict` holds, by their dotted name."""
    updates: tuple[str, ...] = ()  # persistent buffers that forward updates; their values after the call are compared too
    by_mode: tuple[str, ...] = ()  # what of the module acts otherwise in the other mode, such as `nn.Dropout at drop`
    buffers: tuple[str, ...] = ()  # names among `parameters` that are buffers
    tied: dict[str, str] = Field(default_factory=dict)  # by name among them: the first name of the same tensor
    frozen: tuple[str, ...] = ()  # names among them of parameters that the module froze
    precision: PrecisionClass = PrecisionClass.IEEE  # the class that follows from the task's types
    init_inputs: tuple[str, ...] | None = None  # Model's arguments as Python writes them, empty for no literal; None where nobody looked
    ops: tuple[OpNode, ...] = ()
    """Traced forward; empty where no way works (`trace_error` says why)."""
    ops_left_out: int = 0  # nodes of a very long forward that `ops` does not hold; those before its last node
    traced_by: TraceWay | None = None
    trace_error: str = ""
    """Why torch.fx does not give `ops`; where they are empty, why nothing does."""
    size_lines: tuple[int, ...] = ()
    """Lines of the task where forward asks for sizes, in a recorded run: `ops` holds for these sizes only."""
    value_lines: tuple[int, ...] = ()
    """Lines of the task where forward turns tensors into Python values, in a recorded run: `ops` holds for these values only."""
    modules: dict[str, int] = Field(default_factory=dict)  # leaf module class names with their counts
    flops: float = 0.0
    """Floating-point operations per forward; recurrent cells are counted per step."""
    min_bytes: float = 0.0  # bytes that must move: what forward reads of inputs and parameters, and its outputs, each once
    reference_launches: int = 0
    """Device kernels the reference launches per forward (counted from its operator trace, recurrent cells per step)."""
    serial_steps: int = 1
    """Length of the longest chain of recurrent steps (layers x time in a stack; directions run side by side); 1 without recurrence."""
    shortest_chain: int | None = None  # the same for layers that run as a wavefront (time + layers - 1); None in older records
    chosen: ChosenSize | None = None
    """The size that all this is about, where the evaluator was asked to choose it."""
    sizes: dict[str, SizeValue] = Field(default_factory=dict)  # names that differ from the task's own size; empty for that
    other_shapes: tuple[TaskFacts, ...] = ()
    """The facts at sizes that SHAPES declares; `trace_error` says why one has none."""
    reads: TaskReads | None = None  # what the task's process read besides the file; None where nobody looked
    bar: Bar | None = None  # None where nobody timed the module ahead
    full: TaskFacts | None = None  # at the size that kernels are for, where this one is smaller; what prompts tell of it, no more


class Stage(StrEnum):
    """The graph stage that produced a candidate."""

    SEED = "seed"
    REPAIR = "repair"
    OPTIMIZE = "optimize"
    TUNE_GRID = "tune_grid"
    TUNE_BLOCK = "tune_block"
    TUNE_MEMORY = "tune_memory"


class Candidate(Record):
    """One kernel text in the store, with where it came from."""

    id: str
    sha: str
    stage: Stage
    parent: str | None = None
    branch: int | None = None
    """Index of the seed branch; None for candidates made after the branches joined."""
    rationale: str = ""
    author: str = ""  # who wrote it, in a run of several authors
    recipe: str = ""
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict)
    """Values of the recipe's tunables, where a recipe wrote it."""
    replaces: str | None = None  # an autotuned candidate whose place it takes with plain constants, unless it is clearly slower


FORWARD_AND_BACKWARD = "forward and backward"
"""What one call is in the environment of a verdict about a task with BACKWARD."""


class Status(StrEnum):
    """The outcome of an evaluation; drives the edges of the graph."""

    OK = "ok"
    INVALID_FILE = "invalid_file"
    """The text is no Python, or defines no class ModelNew; nothing was run."""
    COMPILE_ERROR = "compile_error"
    """The module does not import, or Triton rejects a kernel."""
    LAUNCH_ERROR = "launch_error"
    """The kernel compiles but cannot be launched: shared memory, grid, too many programs for a barrier."""
    RUNTIME_ERROR = "runtime_error"
    WRONG_SHAPE = "wrong_shape"
    """Number, shape or dtype of the returned tensors differs from the reference's, or how they are nested."""
    WRONG_WEIGHTS = "wrong_weights"
    """A parameter of the reference has no counterpart in the candidate, or its shape differs."""
    INACCURATE = "inaccurate"
    RACY = "racy"
    """The result depends on the order in which programs run."""
    CHEATING = "cheating"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The process that ran the candidate died."""
    UNSUPPORTED = "unsupported"
    """This evaluator cannot judge the candidate (and says why)."""


class Label(StrEnum):
    """Who does the work: the candidate's own Triton kernels, a library, or both."""

    KERNEL = "kernel"
    HYBRID = "hybrid"
    LIBRARY = "library"


class Allow(StrEnum):
    """Which labels may win a run: kernels alone, kernels and hybrids, or all; the winner keeps its label."""

    KERNEL = "kernel"
    HYBRID = "hybrid"
    LIBRARY = "library"

    def admits(self, label: Label | None) -> bool:
        """Whether a candidate of this label may win; one without a label (nobody knows who does the work) counts as a hybrid."""
        order = (Label.KERNEL, Label.HYBRID, Label.LIBRARY)
        return order.index(label or Label.HYBRID) <= order.index(Label(self.value))


class Correctness(Record):
    """Error of the candidate against the float64 oracle, over all trials (worst trial)."""

    max_abs_err: float
    mean_abs_err: float
    err_vs_oracle: float
    """Root mean square error over root mean square of the oracle."""
    reference_err_vs_oracle: float
    """The same for the reference itself in the task's precision class."""
    reference_max_abs_err: float = 0.0
    precision_class: PrecisionClass | None = None
    """The strictest class whose tolerance the candidate meets; None when it meets none."""
    trials: int = 0
    worst_index: tuple[int, ...] = ()
    worst_expected: float | None = None
    worst_actual: float | None = None
    fell_on: str = ""  # the inputs on which a refused candidate fell, in words for a person; no prompt has them


class TimingKind(StrEnum):
    """A measurement on a card, or an estimate from counts; the two are never compared."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


class Comparison(StrEnum):
    """What a measurement or an estimate says about candidate and baseline; `timing.compare` has the rule for both."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"
    """The interval or the estimate's band contains the baseline, or the control failed: only a longer measurement can tell."""


class Measurement(Record):
    """A ratio of medians of pairs with its 95 % confidence interval, from one pair of processes."""

    ratio: float
    interval: tuple[float, float]
    pairs: int


class Timing(Record):
    """Latency per forward in milliseconds and the score against each baseline."""

    kind: TimingKind
    median_ms: float
    baselines_ms: dict[str, float]
    """Those that were measured, by name (`eager`, `compile`, `compile_max_autotune`); without the candidate where that is faster."""
    baseline: str
    """Name of the baseline that `score` is against."""
    score: float
    """Baseline time over candidate time: median of pair ratios when measured."""
    score_eager: float
    interval: tuple[float, float] | None = None
    """95 % confidence interval of `score`; None for an estimate."""
    band: tuple[float, float] | None = None
    """Least and largest `score` by the bands of both estimates, the baseline's and the candidate's. None when measured."""
    apart: float | None = None  # ratio of two estimates from which their order is trusted; None when measured
    ratios: dict[str, float] = Field(default_factory=dict)
    """Median pair ratio against every baseline."""
    pairs: int = 0
    raw: str | None = None
    """Path of the JSON file with the raw samples."""
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    """Against the strongest baseline that has a figure; None only in older records."""
    control: Measurement | None = None
    """The strongest baseline against itself, measured in the same session: 1.0 but for noise."""
    sessions: tuple[Measurement, ...] = ()
    """Score in each session; every session has fresh processes, seeds and inputs. `quick` has one."""
    device_ms: float | None = None
    """Median by the card's clock (events around a call, in the runner), of the calls for which it stands."""
    wall_ms: float | None = None
    """The card's median, and what the oracle's clock reads beyond it on a quiet host (tenth percentile, less a call without forward)."""
    floor_ms: float | None = None
    """What is not believed: below this a time is refused. Bytes and operations over measured rates, with a margin for clever algorithms."""
    form: str = "as_called"  # or `cuda_graph`: one replay of what was captured from the candidate's forward
    forms_ms: dict[str, float] = Field(default_factory=dict)  # of each form that was timed, the median of some calls in turns
    host_ms: float | None = None
    """Milliseconds of one call as called by the host's clock, with nothing ahead of it on the card: queueing and work."""
    floor: FloorShare | None = None
    """How near this time is to the least that the task needs, and by which limit; of the same kind as the time."""

    @property
    def form_words(self) -> str:
        """In which form the candidate ran, and what it costs as called; empty where it ran as called."""
        if self.form != "cuda_graph":
            return ""
        called = [f"{self.forms_ms['as_called']:.3g} ms on the card"] if "as_called" in self.forms_ms else []
        called += [f"{self.host_ms:.3g} ms of host time"] if self.host_ms is not None else []
        return "measured in a CUDA graph" + (f"; as called {', '.join(called)}" if called else "")

    @property
    def said(self) -> Comparison:
        """`comparison`, the only word that a score may get; in a record without one, what its interval or band says alone."""
        low, high = self.interval or self.band or (0.0, math.inf)
        return self.comparison or (Comparison.FASTER if low > 1 else Comparison.SLOWER if high < 1 else Comparison.AMBIGUOUS)

    @property
    def bar(self) -> str:
        """What the strongest baseline was found among: `strongest of six baselines`; no words for an estimate."""
        words = (None, "only baseline", *(f"strongest of {word} baselines" for word in ("two", "three", "four", "five", "six")))
        return words[len(self.baselines_ms)] or "strongest baseline"


class KernelFacts(Record):
    """One distinct compiled kernel as it was launched."""

    name: str
    launches: int  # of this kernel, per forward
    grid: tuple[int, int, int] = (1, 1, 1)
    num_warps: int = 0
    num_stages: int = 0
    constexprs: dict[str, int | float | bool | str | None] = Field(default_factory=dict)
    registers: int | None = None  # per thread
    spills: int | None = None  # bytes of local memory per thread
    shared_memory: int | None = None  # bytes per program
    resident: int | None = None  # programs that fit on the card at once
    cooperative: bool = False
    tensor_cores: bool | None = None
    code: str = ""  # digest of the compiled text without names and places: equal code has equal ones
    instructions: dict[str, int] = Field(default_factory=dict)  # of the compiled text by kind; loops count once
    device_ms: float | None = None  # device time per forward, measured
    bytes_loaded: float | None = None
    bytes_stored: float | None = None
    flops: float | None = None
    product: str = ""  # what most operations of its tl.dot are: `ieee`, `tf32`, `fp16`, `bf16`, ...; empty where nobody counted
    sync_rounds: int | None = None  # times a program waits for another one, at most over the programs
    lines: tuple[LineFacts, ...] = ()  # loads and stores by line; empty where the interpreter did not run the kernel
    work: KernelWork | None = None  # what compiling alone tells of one launch; None in older records


class LaunchFacts(Record):
    """What one forward of a candidate launches."""

    launches_per_forward: int = 0
    """Triton launches plus library kernels."""
    triton_launches: int = 0
    library_calls: dict[str, int] = Field(default_factory=dict)
    """Torch operators that compute (not views or allocations), with their counts per forward."""
    library_ms: dict[str, float] = Field(default_factory=dict)
    """Device time per forward of library kernels by name, longest first; measured."""
    kernels: tuple[KernelFacts, ...] = ()
    own_time_share: float | None = None
    """Share of device time in the candidate's own Triton kernels (measured), or of the estimate."""
    device_ms: float | None = None  # milliseconds in which a kernel of the profiled forward runs (measured)
    order_dependent: bool | None = None
    races: tuple[str, ...] = ()
    copied_outputs: tuple[int, ...] = ()
    """Outputs in a memory layout that is neither contiguous nor the reference's; copying them is part of the time on a card."""
    counters: Counters | None = None  # what bounds the kernels: evidence for analysis and detection; no status depends on it


class SizeScore(Record):
    """A kernel at a size of SHAPES that the judge drew: it was right there, and on a card it was timed."""

    entry: int
    """Which one of SHAPES, from 0 on."""
    sizes: dict[str, SizeValue]
    """Names with the values that were drawn."""
    timing: Timing | None = None
    """Against eager execution and torch.compile, from few pairs; None where no card measured."""
    note: str = ""
    """Why it was not timed, where a card was there."""

    @property
    def is_slower(self) -> bool:
        """Whether it is certainly slower than the strongest baseline there, and no faster than the module as it is called."""
        return self.timing is not None and self.timing.said is Comparison.SLOWER and self.timing.score_eager < 1.0


class Verdict(Record):
    """The answer about one candidate, as `evaluate --json` prints it."""

    status: Status
    sha: str = ""
    label: Label | None = None
    correctness: Correctness | None = None
    timing: Timing | None = None
    facts: LaunchFacts = Field(default_factory=LaunchFacts)
    environment: dict[str, Plain] = Field(default_factory=dict)
    """Card, driver, versions, clocks, date, sandbox layers, target of the estimate."""
    message: str = ""
    """One paragraph for the author and the user; never seeds or tolerances."""
    profile: str = "quick"
    quarantine: str = ""
    """Why a working candidate waits for an audit before it may win; empty when nothing is suspicious or the audit passed."""
    sizes: tuple[SizeScore, ...] = ()
    """Other sizes that a strict verdict was given at, in the order of SHAPES; no prompt has them."""
    advice: tuple[str, ...] = ()
    """What reading the text alone suggests, with line numbers; never part of the verdict."""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _status_is_backed(self) -> Verdict:
        timed = self.timing is not None or self.profile == CORRECTNESS_ONLY
        if self.status is Status.OK and (self.correctness is None or not timed):
            raise ValueError("an ok verdict needs correctness and timing")
        return self

    @property
    def score(self) -> float | None:
        """Score of a working candidate; None for any other."""
        return self.timing.score if self.status is Status.OK and self.timing else None


class Hardware(Record):
    """A card: measured limits where known, else the vendor's data sheet. Rates in operations/s and bytes/s."""

    key: str
    name: str
    capability: int  # times ten: 90 for sm_90
    processors: int
    shared_per_processor: int  # bytes
    shared_per_block: int  # bytes, the most that a launch may opt in to
    threads_per_processor: int
    blocks_per_processor: int
    registers_per_processor: int = 65536
    l2_bytes: int
    memory_bytes: int
    bandwidth: float
    fp32: float
    tf32: float
    fp16: float
    clock_hz: float
    triton: str = ""  # versions where it is judged; empty where nobody said
    torch: str = ""
    present: bool = False  # whether it is the card in this machine, and no named target
