"""Worked examples: recipes, which are proven right, rendered for a small module of the same family."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tritonsmith.evaluator.schema import Hardware, PrecisionClass
from tritonsmith.prompts.author import Example
from tritonsmith.prompts.recipes.book import BOOK
from tritonsmith.prompts.recipes.plans import ChainPlan, GruPlan, Operand, Plan
from tritonsmith.prompts.templates.families import Family

MOST_EXAMPLES = 2

GRU_REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers)

    def forward(self, x):  # x [24, 4, 48]
        states, _ = self.gru(x)
        return states

def get_inputs():
    return [torch.rand(24, 4, 48)]

def get_init_inputs():
    return [48, 64, 2]
'''
LINEAR_REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x):  # x [96, 160]
        return torch.relu(self.dense(x)) * 0.5

def get_inputs():
    return [torch.rand(96, 160) - 0.5]

def get_init_inputs():
    return [160, 72]
'''
CHAIN_REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):  # x [40, 96]
        return torch.tanh(x + self.bias) * 2.0

def get_inputs():
    return [torch.rand(40, 96)]

def get_init_inputs():
    return [96]
'''


def gru_example_plan() -> Plan:
    """The plan of GRU_REFERENCE."""
    return GruPlan(
        signature="input_size, hidden_size, num_layers",
        members=("self.gru = GRUWeights(input_size, hidden_size, num_layers)",),
        arguments="x", gru="self.gru", x="x", h0="None", tail=("return sequence",), needs_sequence=True, needs_last=False, linear=False,
        input_size=48, hidden_size=64, num_layers=2, steps=24, batch=4,
        returns="a tensor float32[24, 4, 64], the top layer's states of every step of gru",
    )  # fmt: skip


def linear_example_plan() -> Plan:
    """The plan of LINEAR_REFERENCE."""
    return ChainPlan(
        signature="*init_inputs",
        members=(
            'self.dense = getattr(self, "dense", None) or nn.Module()',
            "self.dense.weight = nn.Parameter(torch.empty((72, 160), dtype=torch.float32))",
            "self.dense.bias = nn.Parameter(torch.empty((72,), dtype=torch.float32))",
        ),
        arguments="x", operands=(), lines=("t0 = tl.maximum(total, 0.0)", "t1 = t0 * 0.5"), result="t1", shape=(96, 72), dtype="float32",
        x="x", weight="self.dense.weight", bias="self.dense.bias", rows=96, columns=72, inner=160, flops=13824.0,
    )  # fmt: skip


def chain_example_plan() -> Plan:
    """The plan of CHAIN_REFERENCE."""
    return ChainPlan(
        signature="*init_inputs", members=("self.bias = nn.Parameter(torch.empty((96,), dtype=torch.float32))",), arguments="x",
        operands=(
            Operand(value="v0", source="x", index="offset", numel=3840),
            Operand(value="v1", source="self.bias", index="(offset) % 96", numel=96),
        ),
        lines=("t0 = v0 + 1.0 * v1", "t1 = tanh(t0)", "t2 = t1 * 2.0"), result="t2", shape=(40, 96), dtype="float32", flops=38400.0,
    )  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A small module, its plan, and the recipes that show it, the most instructive first."""

    reference: str
    plan: Callable[[], Plan]
    recipes: dict[str, str]
    """What to learn from each, by recipe."""


_WAVEFRONT = (
    "The grid is split over hidden units, so every step ends in a barrier between co-resident programs; each step has a slot of its own; "
    "weights stay on the chip; layers run as a wavefront."
)
_ROWS = (
    "One program per batch row: it reads back only what it stored itself, so no barrier between programs is needed, but only as many "
    "processors work as there are rows. The input side of all steps is one product outside."
)
_TILES = "Tiles through tl.dot, the tail on the accumulator before the one store, programs in grouped order."
_CHAIN = "Every operand is read once, broadcast operands by index arithmetic; one store."
MODELS = {
    "gru": Model(GRU_REFERENCE, gru_example_plan, {"gru_wavefront": _WAVEFRONT, "gru_persistent_batch": _ROWS}),
    "linear": Model(LINEAR_REFERENCE, linear_example_plan, {"linear": _TILES}),
    "pointwise": Model(CHAIN_REFERENCE, chain_example_plan, {"pointwise": _CHAIN}),
}
_SHOWN = {
    Family.RECURRENT: "gru", Family.ATTENTION: "linear", Family.CONVOLUTION: "linear", Family.GEMM: "linear",
    Family.REDUCTION: "pointwise", Family.POINTWISE: "pointwise",
}  # fmt: skip
"""The nearest recipe family."""


@cache
def worked_example(recipe: str, hardware: Hardware, precision: PrecisionClass) -> Example | None:
    """A recipe at a small size for this card and accuracy; None where it does not fit the card."""
    model = next(one for one in MODELS.values() if recipe in one.recipes)
    plan, entry = model.plan(), BOOK[recipe]
    settings = entry.defaults(plan, hardware, precision)
    if settings is None:
        return None
    title = f"a kernel that {entry.describes}"
    return Example(title=title, source=entry.render(plan, settings), reference=model.reference.strip(), note=model.recipes[recipe])


def recipe_names(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Recipes that are worth showing for a task of these families, best first; those of the first family that has any."""
    return tuple(MODELS[_SHOWN[families[0]]].recipes)


def known_algorithms(families: tuple[Family, ...]) -> tuple[str, ...]:
    """What the recipes of the family do, plainest first, for an analyst; empty where they are of another family than the task."""
    book_family = {Family.RECURRENT: "gru", Family.GEMM: "linear", Family.POINTWISE: "pointwise"}.get(families[0])
    known = sorted((recipe for recipe in BOOK.values() if recipe.family == book_family), key=lambda one: one.level)
    return tuple(f"{recipe.name}: {recipe.describes}" for recipe in known)
