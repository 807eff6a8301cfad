"""Builds the steps of a convolution network one by one, each open for what its kernel can still do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.families.convnet.plan import NetworkStep, Pair, StepKind
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts
from tritonsmith.prompts.node_names import name_node

MEASURE, NORM, ADD, ACTIVATE, POOL = range(1, 6)
"""What one kernel does behind its product, in this order."""
_TAKEN = frozenset(
    ("self", "x", "check", "packed", "tickets", "norms", "torch", "convolve", "convolve_by_library", "finish_image", "pool_image")
)
"""Names that forward uses itself."""


@dataclass(frozen=True)
class Image:
    """A value of the trace: an image, or the row of numbers that one is after `flatten`."""

    variable: str
    channels: int
    size: Pair
    step: int
    """The step that makes it; -1 for forward's own input."""
    flat: bool = False


def list_references(node: OpNode, image: Image | None = None, images: Mapping[str, Image] | None = None) -> Iterator[str]:
    """Nodes that a node reads; with an image, only those that are this image."""
    for argument in (*node.args, *node.kwargs.values()):
        for part in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(part, dict) and "ref" in part and (image is None or (images or {}).get(part["ref"]) == image):
                yield part["ref"]


class StepBuilder:
    """The values of a trace and the steps that make them. A step stays open as long as nobody else reads its result."""

    def __init__(self, task: Task, facts: TaskFacts, card: CardModel) -> None:
        self.task, self.facts, self.card = task, facts, card
        self.images: dict[str, Image] = {}
        self.steps: list[NetworkStep] = []
        self.stages: list[int] = []
        """By step: the last thing that it does."""
        self.activations: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, int] = {}
        self.flops = 0.0
        self.has_norm = self.libdevice = False
        self.x = ""
        for node in facts.ops:
            for name in list_references(node):
                self.readers[name] = self.readers.get(name, 0) + 1

    def source(self, node: OpNode, argument: Any = None) -> Image:
        """The image that a node reads first, or the one of an argument."""
        argument = argument if argument is not None else next(iter((*node.args, *node.kwargs.values())), None)
        image = self.images.get(argument.get("ref", "")) if isinstance(argument, dict) else None
        if image is None:
            raise ValueError(f"{name_node(node)} of something else than an image")
        return image

    def rename(self, node: OpNode, image: Image) -> None:
        """A node that only gives an image another name: who reads either reads the same."""
        reference = next(list_references(node))
        self.readers[node.name] = self.readers.get(node.name, 0) + self.readers[reference] - 1
        self.images[node.name] = image

    def channels_last(self, image: Image) -> Image:
        """The image as kernels pass it on; forward's own input is copied the first time."""
        if image.step >= 0:
            return image
        known = next((one for name, one in self.images.items() if name == "channels_last"), None)
        if known is not None:
            return known
        self.images["channels_last"] = self.add_step(
            "channels_last", 0, kind=StepKind.POOL, source=image.variable, inputs=image.size, outputs=image.size,
            channels=image.channels, gathers=True,
        )  # fmt: skip
        return self.images["channels_last"]

    def add_step(self, name: str, stage: int, flat: bool = False, **fields: Any) -> Image:
        """A new step of that name, open for what comes after `stage`."""
        variable = name
        while variable in _TAKEN or variable == self.x:
            variable += "_"
        self.steps.append(NetworkStep(result=variable, **fields))
        self.stages.append(stage)
        return Image(variable, fields["channels"], fields["outputs"], len(self.steps) - 1, flat)

    def finish(self, node: OpNode, image: Image, stage: int, **fields: Any) -> None:
        """A step of its own for what no product does, open for what comes after `stage`."""
        image = self.channels_last(image)
        self.images[node.name] = self.add_step(
            node.name, stage, image.flat, kind=StepKind.FINISH, source=image.variable, inputs=image.size, outputs=image.size,
            channels=image.channels, **fields,
        )  # fmt: skip

    def is_open(self, node: OpNode, image: Image, stage: int) -> bool:
        """Whether the step that made an image can do this node too."""
        reference = next(list_references(node, image, self.images))
        if image.step < 0 or self.readers[reference] != 1 or self.steps[image.step].kind is StepKind.POOL:
            return False
        last = self.stages[image.step]
        return last < stage or (last == stage == ACTIVATE)

    def extend(self, node: OpNode, image: Image, stage: int, **fields: Any) -> None:
        """Let the step that made an image do this node too."""
        self.steps[image.step] = self.steps[image.step].model_copy(update=fields)
        self.stages[image.step] = stage
        self.images[node.name] = replace(image, size=fields.get("outputs", image.size))
