"""The family's kernels as a class that a module of other work holds and calls: parameters and forward are those of nn.LSTM and its kin."""

from __future__ import annotations

import ast
import textwrap

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.stacks import StackSizes, StackText
from tritonsmith.author.cost import Way, time_launches, time_product, time_rounds
from tritonsmith.author.families.recurrent.plan import RecurrentPlan
from tritonsmith.author.families.recurrent.resident import LAYERS, WAVEFRONT
from tritonsmith.author.recipe import Recipe, Settings
from tritonsmith.evaluator.schema import PrecisionClass

_MOST_ROWS = 32
"""Rows of one launch: each step of a launch costs an exchange between programs, however many rows it has (assumed; not measured)."""


def write_stack(sizes: StackSizes, card: CardModel) -> StackText | None:
    """The text of a stack by the best recipe that keeps its steps in a kernel; None where its programs do not fit on the card at once."""
    plan = _make_plan(sizes, card)
    precision = PrecisionClass.IEEE if sizes.exact else PrecisionClass.TF32
    for recipe in (WAVEFRONT, LAYERS):
        settings = recipe.defaults(plan, card.hardware, precision)
        if settings is not None:
            settings = _take_more_rows(recipe, plan, settings, card)
            return _make_text(plan, recipe, settings)
    return None


def _make_plan(sizes: StackSizes, card: CardModel) -> RecurrentPlan:
    """The family's plan of a stack that stands between other work."""
    keeps_cell = sizes.kind == "LSTM"
    return RecurrentPlan(
        card=card, signature="", members=(), arguments="x", kind=sizes.kind, activation=sizes.activation, directions=sizes.directions,
        holder="self", dtype=sizes.dtype, x="x", h0="h0", h0_dtype=sizes.dtype, c0="c0" if keeps_cell else "None", c0_dtype=sizes.dtype,
        tail=(), needs_sequence=True, needs_last=True, needs_cell=keeps_cell, linear=False, input_size=sizes.inputs,
        hidden_size=sizes.hidden, num_layers=sizes.layers, steps=sizes.steps, batch=sizes.batch, returns="sequence",
    )  # fmt: skip


def _take_more_rows(recipe: Recipe, plan: RecurrentPlan, settings: Settings, card: CardModel) -> Settings:
    """The settings with as many rows in a launch as the batch has and the card has room for."""
    rows = int(settings["batch_block"])
    while rows < min(_MOST_ROWS, plan.batch):
        rows *= 2
        wider = recipe.complete(plan, settings | {"batch_block": rows}, card.hardware)
        if not recipe.fits(plan, wider, card.hardware):
            break
        settings = wider
    return settings


def _predict(plan: RecurrentPlan, settings: Settings) -> tuple[float, int]:
    """Seconds of a call, and its launches."""
    blocks, card = -(-plan.batch // int(settings["batch_block"])), plan.card
    groups = -(-plan.num_layers // int(settings.get("layers_per_launch", 1)))
    together = min(plan.num_layers, int(settings.get("layers_per_launch", 1)))
    rounds = blocks * groups * (plan.steps + together - 1)
    apart = "layers_per_launch" not in settings
    launches = groups * (blocks + apart) + 1
    inputs = plan.input_size + (plan.num_layers - 1) * plan.directions * plan.hidden_size
    flops = 2.0 * plan.batch * plan.steps * plan.gates * plan.directions * plan.hidden_size * inputs
    way = Way.PARTS if int(settings["parts"]) > 1 else Way.HALF
    return time_rounds(rounds) + time_launches(launches) + apart * time_product(card, flops, way, card.fits.products.in_loop), launches


def _make_text(plan: RecurrentPlan, recipe: Recipe, settings: Settings) -> StackText:
    """What the recipe writes, with a class that can be called in the place of its module."""
    text = recipe.render(plan, settings)
    lines, tree = text.splitlines(), ast.parse(text)
    kept: list[str] = []
    names: list[str] = []
    methods: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Expr | ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            functions = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            methods = [_cut_out(lines, one) for one in functions if one.name not in ("__init__", "forward")]
            continue
        kept.append(_cut_out(lines, node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [one.id for one in node.targets if isinstance(one, ast.Name)]
    title = f"{plan.kind}Stack"
    kept.append("\n\n".join([_write_class(plan, title), *methods]))
    kernel = next(name for name in reversed(names) if name.startswith(f"{plan.name}_"))
    seconds, launches = _predict(plan, settings)
    return StackText(title, "\n\n\n".join(kept) + "\n", frozenset((*names, title)), kernel, seconds, launches)


def _cut_out(lines: list[str], node: ast.stmt) -> str:
    """The lines of a statement, with its decorators and what is written beside it."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    start = min([node.lineno, *(one.lineno for one in decorators)])
    return "\n".join(lines[start - 1 : node.end_lineno])


def _write_class(plan: RecurrentPlan, title: str) -> str:
    """The head of the class, with `forward`."""
    given = "h0, c0 = (None, None) if hx is None else hx" if plan.keeps_cell else "h0 = hx"
    wide = ", ".join(f"wide({name})" for name in ("x", *plan.states.split(", ")))
    run = f"{plan.results} = self.run(self, {wide if plan.half else f'x, {plan.states}'})"
    result = "sequence, (last, cell)" if plan.keeps_cell else "sequence, last"
    narrow = [f"{name} = {name}.to(torch.{plan.dtype})" for name in plan.results.split(", ")] if plan.half else []
    before = ["wide = lambda value: None if value is None else value.float()  # states are kept in fp32"] if plan.half else []
    body = "\n".join([given, f"check(self, x, {plan.states})", *before, run, *narrow, f"return {result}"])
    article = "An" if plan.kind in ("LSTM", "RNN") else "A"
    return f'''class {title}({plan.kind}Weights):
    """{article} {plan.kind} stack whose steps are done by the kernels above; results are those of nn.{plan.kind}."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.packed_key = None

    def forward(self, x, hx=None):
{textwrap.indent(body, " " * 8)}'''
