"""A `best.py` in a user's program, for some families. It prints {case: {question: answer}}: on the card, or under TRITON_INTERPRET=1.

Its arguments are a folder for the files and the names of the cases.
"""

import copy
import importlib.util
import io
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from recipe_cases.regions import RegionCase
from tritonsmith.author.book import BOOK, match
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.confined.interpreter import schedule
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.storage.drop_in import write_drop_in

CACHING = """
import threading
from torch import nn
import torch


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(7, 6))
        self.key = None

    def pack(self):
        key = self.weight.data_ptr(), self.weight._version
        if key != self.key:
            self.packed, self.key, self.lock = self.weight.detach().t().contiguous(), key, threading.Lock()
        return self.packed


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Packed()

    def forward(self, x):
        self.lock = threading.Lock()
        return x @ self.a.pack()


def refuse(x):
    return x
"""
"""A kernel as a model may write one: what it keeps cannot be copied, and a name of it is one of the added part."""
PLAIN = """
import torch.nn as nn
import torch


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.empty(12))

    def forward(self, x):
        return x * self.w
"""
"""A text that stands for a kernel's."""


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")


@dataclass(frozen=True)
class Use:
    """A module, and who writes its kernel."""

    case: RegionCase
    recipe: str = ""
    """The last that the author offers where this is empty."""
    settings: Mapping[str, Any] | None = None
    """Those by which a recipe writes what it would not offer for so few values."""
    text: str = ""
    """A kernel that somebody else wrote."""


USES = {
    "elements": Use(
        RegionCase("elements", "return F.silu(x) * self.scale", "torch.randn(5, 12)", "self.scale = nn.Parameter(torch.ones(12))"),
        "pointwise",
    ),
    "norm": Use(
        RegionCase(
            "norm", "h = x + r; y = self.n(h); return y, {'sum': h.t(), 'places': y.argmax(-1)}", "torch.randn(5, 12), torch.randn(5, 12)",
            "self.n = nn.LayerNorm(12)", "x, r",
        )
    ),
    "recurrent": Use(
        RegionCase(
            "recurrent", "y, h = self.rnn(x, h0); return self.fc(y), h", "torch.randn(2, 3, 12), torch.randn(1, 2, 16)",
            "self.rnn = nn.GRU(12, 16, batch_first=True); self.fc = nn.Linear(16, 5)", "x, h0",
        ),
        "recurrent_persistent_batch",
    ),
    "convnet": Use(
        RegionCase(
            "convnet", "return F.max_pool2d(F.relu(self.n(self.c(x))), 2)", "torch.randn(2, 12, 6, 6)",
            "self.c = nn.Conv2d(12, 8, 3, padding=1); self.n = nn.BatchNorm2d(8)",
        ),
        "convnet_products",
    ),
    "convnet in training": Use(
        RegionCase(
            "convnet in training", "return F.relu(self.n(self.c(x)))", "torch.randn(2, 12, 6, 6)",
            "self.c = nn.Conv2d(12, 8, 3, padding=1, bias=False); self.n = nn.BatchNorm2d(8)", mode="train",
        ),
        "convnet_products",
    ),
    "norm in training": Use(
        RegionCase("norm in training", "return self.n(x) * 2", "torch.randn(6, 12)", "self.n = nn.BatchNorm1d(12)", mode="train")
    ),
    "product": Use(
        RegionCase("product", "return F.gelu(self.a(x))", "torch.randn(17, 12)", "self.a = nn.Linear(12, 24)"), "product_in_parts",
        {"group": 8, "block_m": 32, "block_n": 32, "block_k": 16, "num_warps": 4, "num_stages": 2, "scheme": "fp16x3", "carried": True},
    ),
    "dropout": Use(
        RegionCase(
            "dropout", "return self.d(torch.exp(x)) + self.b", "torch.randn(5, 12)",
            "self.d = nn.Dropout(0.3); self.b = nn.Parameter(torch.ones(12))",
        )
    ),
    "shared weights": Use(
        RegionCase(
            "shared weights", "return torch.sigmoid(x * self.a.weight[0] + self.held[0].sum()) * self.b.weight.mean(0)",
            "torch.randn(5, 12)",
            "self.a = nn.Linear(12, 12); self.b = nn.Linear(12, 12); self.b.weight = self.a.weight; self.held = [self.a.bias]; "
            "self.b.bias.requires_grad_(False)",
        )
    ),
    "number": Use(RegionCase("number", "return torch.exp(torch.arange(12).float() * n)", "0.5", arguments="n")),
    "cut off": Use(
        RegionCase(
            "cut off", "global CALLS; CALLS = 1; return x * self.w", "torch.randn(5, 12)", "self.w = nn.Parameter(torch.ones(12))"
        ),
        text=PLAIN,
    ),
    "caching": Use(RegionCase("caching", "return self.a(x)", "torch.randn(5, 6)", "self.a = nn.Linear(6, 7, bias=False)"), text=CACHING),
}  # fmt: skip


@dataclass
class Desk:
    """A user's program: the reference, the kernel's module with its weights, and inputs."""

    module: Any
    reference: nn.Module
    fast: nn.Module
    inputs: list[Any]
    mode: Literal["eval", "train"]

    def compare(self, fast: nn.Module | None = None) -> float:
        """The largest difference of a kernel's results, as they are or of a copy, as a share of the reference's largest."""
        with torch.no_grad():
            pairs = zip(flatten((fast or self.fast)(*self.inputs)), flatten(self.reference(*self.inputs)), strict=True)
            return max(float((one.double() - other.double()).abs().max() / other.double().abs().max()) for one, other in pairs)


def prepare(name: str, folder: Path) -> Desk:
    """A case with its `best.py`, and weights drawn anew."""
    use = USES[name]
    task = Task(name="a_task", path="a_task.py", source=use.case.source(), mode=use.case.mode)
    facts, _ = probe(task)
    text = use.text or write_kernel(task, use)
    path = folder / f"best_{len(list(folder.iterdir()))}.py"
    path.write_text(text + write_drop_in(task, facts.model_dump(mode="json"), text))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded = load_reference(task)
    reference, inputs = (
        loaded.build(0).to(DEVICE),
        [one.to(DEVICE) if isinstance(one, torch.Tensor) else one for one in loaded.draw_inputs(1)],
    )
    with torch.no_grad():
        for one in reference.parameters():
            one.normal_()
    fast = module.ModelNew(*loaded.init_inputs()).train(use.case.mode == "train").to(DEVICE)
    fast.load_state_dict(reference.state_dict())
    return Desk(module, reference, fast, inputs, use.case.mode)


def write_kernel(task: Task, use: Use) -> str:
    """The built-in author's text."""
    facts, _ = probe(task)
    found = match(task, facts, CARDS["h200"])
    assert found is not None
    recipe = BOOK[use.recipe] if use.recipe else found.recipes[-1]
    settings = use.settings or recipe.defaults(found.plan, CARDS["h200"], task.precision)
    assert settings is not None
    return recipe.render(found.plan, dict(settings))


def say(call: Callable[[], Any]) -> str:
    """What a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return f"{type(error).__name__}: {error}"
    return ""


def take_gradients(desk: Desk, model: nn.Module, *, twice: bool = False) -> list[torch.Tensor | None]:
    """Gradients of a layer ahead of a module, of the inputs and of the weights, from all its results."""
    ahead = nn.Linear(12, 12, device=DEVICE)
    with torch.no_grad():
        for number, one in enumerate(ahead.parameters()):
            one.copy_(torch.linspace(-1, 1, one.numel(), device=DEVICE).view_as(one) * (number + 1))
    given = [one.clone().requires_grad_() if isinstance(one, torch.Tensor) else one for one in desk.inputs]
    first = given[0].movedim(1, -1) if given[0].dim() == 4 else given[0]
    through = ahead(first).movedim(-1, 1) if given[0].dim() == 4 else ahead(first)
    results = [one for one in flatten(model(through, *given[1:])) if one.is_floating_point()]
    total = sum(((one * torch.linspace(-1, 2, one.numel(), device=DEVICE).view(one.shape)) ** 2).sum() for one in results)
    assert isinstance(total, torch.Tensor)
    wanted = [*ahead.parameters(), *given, *dict(sorted(model.named_parameters())).values()]
    wanted = [one for one in wanted if one.requires_grad]
    found = torch.autograd.grad(total, wanted, allow_unused=True, create_graph=twice)
    if twice:
        squares = sum((one**2).sum() for one in found if one is not None)
        assert isinstance(squares, torch.Tensor)
        found = torch.autograd.grad(squares, wanted, allow_unused=True)
    return list(found)


def differ(mine: list[torch.Tensor | None], wanted: list[torch.Tensor | None]) -> float:
    """The largest difference as a share of the largest of all gradients; infinite where one is missing."""
    if [one is None for one in mine] != [one is None for one in wanted]:
        return float("inf")
    pairs = [(one, other) for one, other in zip(mine, wanted, strict=True) if one is not None and other is not None]
    largest = max(float(other.detach().abs().max()) for _, other in pairs)
    return max(float((one - other).detach().abs().max()) for one, other in pairs) / largest


def ask_gradients(desk: Desk) -> Iterator[tuple[str, Any]]:
    """Gradients, buffers after them, and what no_grad leaves out."""
    with torch.no_grad():
        yield "a graph under no_grad", any(one.requires_grad for one in flatten(desk.fast(*desk.inputs)))
    with torch.inference_mode():
        yield "a graph under inference_mode", any(one.requires_grad for one in flatten(desk.fast(*desk.inputs)))
    yield "made ready for gradients", "idle_references" in vars(desk.fast)
    if desk.mode == "train":
        desk.fast.load_state_dict(desk.reference.state_dict())
    mine, wanted = take_gradients(desk, desk.fast), take_gradients(desk, desk.reference)
    yield "gradients", differ(mine, wanted)
    states = desk.fast.state_dict(), desk.reference.state_dict()
    yield "state after", max((float((states[0][name].double() - one.double()).abs().max()) for name, one in states[1].items()), default=0.0)
    yield "names", [name for name, _ in desk.fast.named_parameters()] == [name for name, _ in desk.reference.named_parameters()]
    with suppress(RuntimeError):  # some gradients of PyTorch have none themselves
        mine, wanted = take_gradients(desk, desk.fast, twice=True), take_gradients(desk, desk.reference, twice=True)
        yield "gradients of gradients", differ(mine, wanted)


def ask_copies(desk: Desk) -> Iterator[tuple[str, Any]]:
    """Differences of copies made after a call, and whether they hold what calls keep."""
    file = io.BytesIO()
    torch.save(desk.fast, file)
    file.seek(0)
    average = torch.optim.swa_utils.AveragedModel(desk.fast)
    average.update_parameters(desk.fast)
    copies = {
        "deepcopy": copy.deepcopy(desk.fast),
        "pickle": pickle.loads(pickle.dumps(desk.fast)),
        "torch.save": torch.load(file, weights_only=False),
        "average": average.module,
    }
    fresh = {*vars(type(desk.fast)(*vars(desk.fast)["constructed_with"][0]))}
    yield "kept by copies", sorted({name for one in copies.values() for name in vars(one)} - fresh)
    for name, one in copies.items():
        yield name, desk.compare(one)


def ask_changes(desk: Desk) -> Iterator[tuple[str, Any]]:
    """Differences after weights were changed in several ways."""

    def change(how: Callable[[torch.Tensor, torch.Tensor], Any]) -> float:
        for name, other in desk.reference.named_parameters():
            with torch.no_grad():
                other.mul_(1.5).add_(0.1)
            how(desk.fast.get_parameter(name), other)
        return desk.compare()

    yield "by .data in place", change(lambda one, other: one.data.copy_(other))
    yield "by another .data", change(lambda one, other: setattr(one, "data", other.detach().clone()))
    yield "once more", change(lambda one, other: setattr(one, "data", other.detach().clone()))
    yield "by copy_", change(lambda one, other: one.detach().copy_(other))
    change(lambda one, other: None)
    desk.fast.load_state_dict(desk.reference.state_dict(), assign=True)
    yield "by assignment", desk.compare()
    yield "by .data of what was assigned", change(lambda one, other: one.data.copy_(other))
    for one, other in zip(desk.fast.buffers(), desk.reference.buffers(), strict=True):
        if one.is_floating_point():
            one.data.add_(1.0)
            other.data.add_(1.0)
    yield "buffers by .data", desk.compare()
    with torch.inference_mode():
        change(lambda one, other: None)
        desk.fast.load_state_dict(desk.reference.state_dict())
        yield "under inference_mode", desk.compare()


def ask_compilers(desk: Desk) -> Iterator[tuple[str, Any]]:
    """torch.compile and torch.export of a network with it."""
    network = nn.Sequential(nn.Identity(), desk.fast, nn.Tanh())
    (given,) = [one.clone().requires_grad_() for one in desk.inputs]
    (again,) = [one.clone().requires_grad_() for one in desk.inputs]
    compiled = torch.compile(network, backend="eager")(given)
    plain = torch.tanh(desk.reference(again))
    (first,), (second,) = torch.autograd.grad(compiled.sum(), given), torch.autograd.grad(plain.sum(), again)
    yield "compiled", float((compiled - plain).detach().abs().max() + (first - second).abs().max())
    torch._dynamo.reset()
    yield "one graph", say(lambda: torch.compile(network, backend="eager", fullgraph=True)(given))
    yield "exported", say(lambda: torch.export.export(network, (given,), strict=False))
    yield "exported strictly", say(lambda: torch.export.export(desk.fast, (given,), strict=True))


def ask_wrong_use(desk: Desk) -> Iterator[tuple[str, Any]]:
    """Sentences about another mode and other arguments."""
    desk.fast.train(desk.mode != "train")
    yield "other mode", say(lambda: desk.fast(*desk.inputs))
    desk.fast.train(desk.mode == "train")
    wrong = 3.0 if isinstance(desk.inputs[0], torch.Tensor) else torch.ones(3)
    with torch.no_grad():
        yield "number for tensor", say(lambda: desk.fast(wrong, *desk.inputs[1:]))
    yield "gradients asked for", say(lambda: desk.fast(*desk.inputs))


QUESTIONS = {
    "gradients": ask_gradients, "copies": ask_copies, "changes": ask_changes, "compilers": ask_compilers, "wrong use": ask_wrong_use,
}  # fmt: skip


def main() -> None:
    """Answers for each `CASE:QUESTIONS` of the arguments."""
    torch.backends.cudnn.allow_tf32 = False
    folder, found = Path(sys.argv[1]), dict[str, dict[str, Any]]()
    with schedule.session("round_robin", 0, detect_races=False) if INTERPRETED else nullcontext():
        for asked in sys.argv[2:]:
            name, _, questions = asked.partition(":")
            desk = prepare(name, folder)
            found.setdefault(name, {})["as it is"] = desk.compare()
            for question in questions.split(","):
                found[name] |= dict(QUESTIONS[question](desk))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
