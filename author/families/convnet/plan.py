"""What a kernel of a convolution network needs to know: its layers, whose weights are packed once, and its steps, one launch each."""

from __future__ import annotations

import math
from enum import StrEnum

from pydantic import Field

from tritonsmith.author.compiler.kernels.schemes import SumText
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.types import IN_PARTS
from tritonsmith.evaluator.schema import Record

Pair = tuple[int, int]
_MOST_PLACES = 64
"""Places of an image that one program goes through for a pool of the whole."""
_SMALL = 2**20
"""Values of a result below which a convolution counts as small: too few for tiles of 64 x 64 on every processor."""


class NetworkLayer(Record):
    """A convolution, or a linear layer as one: scale and shift of its result, and its weights in the order in which a kernel reads them."""

    name: str
    """Its path in the reference."""
    weighs: bool = True
    """Whether it has weights; a batch norm that follows no convolution has none."""
    norm: str = ""
    """Path of the batch norm behind it; empty without one, and where the batch's own statistics count."""
    eps: float = 0.0
    inner: int = 0
    """Channels that one output channel reads."""
    columns: int = 0
    groups: int = 1
    window: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    linear: bool = False

    @property
    def by_channel(self) -> bool:
        """Whether each output channel reads one channel alone, so that it is a sum over its window and no product."""
        return self.weighs and self.inner == 1 and self.groups > 1


class StepKind(StrEnum):
    """Which kernel does a step."""

    CONVOLUTION = "convolution"
    POOL = "pool"
    FINISH = "finish"


class NetworkStep(Record):
    """One launch of forward. All images are channels-last."""

    kind: StepKind
    result: str
    """The variable of forward that holds its result."""
    source: str
    layer: NetworkLayer | None = None
    gathers: bool = False
    """Whether a convolution reads forward's own input, in its own layout."""
    measures: bool = False
    """Whether a convolution leaves the moments of its tiles for a batch norm."""
    moments: str = ""
    """Variable of the moments that a batch norm takes its statistics from; empty for any other step."""
    norm: str = ""
    """Path of that batch norm."""
    eps: float = 0.0
    momentum: float = 0.0
    tracks: bool = False
    """Whether that batch norm updates running statistics."""
    residual: str = ""
    """Variable of the image that is added."""
    activation: str = ""
    """Name of the elementwise function behind the sum."""
    pool: int = 1
    """Side of the window whose maximum is stored."""
    window: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    maximum: bool = True
    """Whether a pool takes the maximum; else the mean."""
    counts_padding: bool = True
    inputs: Pair = (1, 1)
    """Lines and columns of its source."""
    outputs: Pair = (1, 1)
    """Lines and columns of its result."""
    channels: int = 0
    """Of its result."""
    last: bool = False
    """Whether forward returns its result."""


class NetworkPlan(KernelPlan, SumText):
    """The steps of a network in their order, and what its forward gives back."""

    x: str
    """The argument that holds the images."""
    input_shape: tuple[int, int, int]
    """Channels, lines and columns of an image."""
    dtype: str
    result_dtype: str
    steps: tuple[NetworkStep, ...]
    activations: dict[str, tuple[str, ...]]
    """By name: statements that compute the function of `v`."""
    returned: str
    """Expression of what forward returns."""
    tables: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Shapes of parameters and buffers by their dotted paths, by the name of the table that the module has; empty for few."""
    training: bool = False
    has_norm: bool = False
    """Whether the mode of the module changes the result."""
    largest: int = 0
    """Elements of the largest image between two steps."""
    flops: float = 0.0
    batch: int = 1

    @property
    def measures(self) -> bool:
        """Whether a batch norm takes the statistics of the batch."""
        return any(step.moments for step in self.steps)

    @property
    def channels(self) -> bool:
        """Whether there are convolutions of each channel by itself."""
        return any(step.layer is not None and step.layer.by_channel for step in self.steps)

    @property
    def multiplies(self) -> bool:
        """Whether there are convolutions that are products."""
        return any(step.layer is not None and step.layer.weighs and not step.layer.by_channel for step in self.steps)

    @property
    def finishes(self) -> bool:
        """Whether there is elementwise work that no convolution does."""
        return any(step.kind is StepKind.FINISH for step in self.steps)

    @property
    def shrinks(self) -> bool:
        """Whether there is a pool of large whole images, which programs share."""
        return any(
            step.kind is StepKind.POOL and step.outputs == (1, 1) and step.window == step.inputs and not step.gathers
            and math.prod(step.inputs) > self.most_places
            for step in self.steps
        )  # fmt: skip

    @property
    def most_places(self) -> int:
        """Places of an image that one program goes through for a pool."""
        return _MOST_PLACES

    @property
    def pools(self) -> bool:
        """Whether there is a pool that no convolution does."""
        return any(step.kind is StepKind.POOL for step in self.steps)

    def goes_to_library(self, step: NetworkStep, choice: str) -> bool:
        """Whether the library computes a convolution, where it gets `none`, `all`, the `small` or the `large` ones."""
        if choice == "none" or step.layer is None or step.layer.linear or step.measures or step.kind is not StepKind.CONVOLUTION:
            return False
        values = self.batch * math.prod(step.outputs) * step.pool**2 * step.channels
        return choice == "all" or (choice == "small") == (values < _SMALL)

    def find_way(self, step: NetworkStep, choice: str) -> str:
        """Who computes a convolution: the `library`, a sum `channel` by channel, or a `product`."""
        if self.goes_to_library(step, choice):
            return "library"
        return "channel" if step.layer is not None and step.layer.by_channel else "product"

    @property
    def layers(self) -> tuple[NetworkLayer, ...]:
        """Every layer that has something to pack, in forward's order."""
        return tuple(step.layer for step in self.steps if step.layer is not None)

    @property
    def half(self) -> bool:
        """Whether images and weights have 16 bits."""
        return self.dtype not in IN_PARTS
