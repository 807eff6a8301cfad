"""A drop-in in a user's program. It prints {question: answer}: on the card, or under TRITON_INTERPRET=1.

Its arguments are a folder for files, and `traces` for the questions about traces alone, which take seconds.
"""

import copy
import io
import json
import os
import pickle
import shutil
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

from recipe_cases.best_in_use import Use, write_kernel
from recipe_cases.regions import RegionCase
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.storage.drop_in import write_drop_in
from tritonsmith.modules.dropin.drop_in import DropIn, load
from tritonsmith.modules.dropin.finished import form_of_values, list_cases
from tritonsmith.modules.dropin.runtime.engine import FallbackWarning
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config
from tritonsmith.modules.dropin.runtime.module import engine_of
from tritonsmith.modules.dropin.runtime.proof import Proof

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TESTED = ("test_schema", "test_autograd_registration", "test_faketensor") + (() if INTERPRETED else ("test_aot_dispatch_dynamic",))
"""Of opcheck: its compiled part takes seconds in the interpreter, and compiled calls and their gradients are asked about here too."""
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
ROWS = 6
BLOCK = f"""
import torch
from torch import nn
from torch.nn import functional as F

ROWS = {ROWS}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.LayerNorm(16)
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(32, 16)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.n(x))))


def get_inputs():
    return [torch.randn(ROWS, 16)]


def get_init_inputs():
    return []


SHAPES = [{{"ROWS": (2, 8)}}]
"""


class Network(nn.Module):
    """A larger model with two blocks."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A row of blocks."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def make_use(source: str = BLOCK, *, device: torch.device = DEVICE) -> tuple[DropIn, nn.Module, list[Any]]:
    """The drop-in of a task by the built-in author, a module with weights, and inputs; all sizes of the task count as proven."""
    task = Task(name="a_task", path="a_task.py", source=source)
    facts, _ = probe(task)
    task = task.model_copy(update={"precision": facts.precision})
    text = write_kernel(task, Use(RegionCase("", "", "")))
    text += write_drop_in(task, facts.model_dump(mode="json"), text)
    reference = load_reference(task)
    sys.modules["a_task"] = reference.module  # so that pickle finds the class
    reference.module.Model.__module__ = "a_task"
    original = reference.build(0).to(device)
    inputs = [
        value.to(device) if isinstance(value, torch.Tensor) else value for value in reference.draw_inputs(1)
    ]
    cases = list_cases(task, facts.model_dump(mode="json"), judged_elsewhere=True)
    kernel = Kernel(
        name="Model", text=text, arguments=tuple(reference.init_inputs()), form=form_of_values(original, inputs),
        proof=Proof(tuple(cases), by_mode=tuple(facts.by_mode), precision=str(facts.precision.value), words=("proven for a test",)),
        state={name: name for name in original.state_dict()}, config=describe_config(original),
    )  # fmt: skip
    return DropIn(kernel, original), original, inputs


def differ(mine: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference as a share of the largest value."""
    return float(
        (mine.detach().double() - wanted.detach().double()).abs().max() / wanted.detach().double().abs().max()
    )


def listen(call: Callable[[], Any]) -> list[str]:
    """Warnings about fallbacks in a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(item.message) for item in caught if item.category is FallbackWarning]


def ask_values(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Results, and whether the kernel made them."""
    faster = drop_in.module
    with torch.no_grad():
        yield "told", listen(lambda: faster(x))
        yield "close", differ(faster(x), original(x))
        yield "close by keyword", differ(faster(x=x), original(x))
        yield "close at another size", differ(faster(x[:3]), original(x[:3]))
        yield "same class", isinstance(faster, type(original)) and type(faster).__name__ == "Model"
        yield (
            "shared",
            all(
                mine is theirs
                for mine, theirs in zip(faster.parameters(), original.parameters(), strict=True)
            ),
        )
        original.a.weight.data.mul_(1.5)
        yield "close after .data", differ(faster(x), original(x))
        faster.load_state_dict({name: value * 1.1 for name, value in original.state_dict().items()})
        yield "close after load_state_dict", differ(faster(x), original(x))
        original.a.bias = nn.Parameter(torch.randn_like(original.a.bias))
        yield "close after assignment", differ(faster(x), original(x))
    with torch.inference_mode():
        yield "close in inference_mode", differ(faster(x), original(x))
    weights = {name: value.detach() * 0.5 for name, value in original.named_parameters()}
    with torch.no_grad():
        yield (
            "close in functional_call",
            differ(
                torch.func.functional_call(faster, weights, (x,)),
                torch.func.functional_call(original, weights, (x,)),
            ),
        )
        yield "close after functional_call", differ(faster(x), original(x))
    yield "kernels ran", not engine_of(faster).told


def ask_fallbacks(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """What is said, and whether the result is the original's to the bit."""
    faster = drop_in.wrap(original)
    with torch.no_grad():
        wide = torch.randn(ROWS, 32, device=x.device)[:, ::2]
        yield "size", listen(lambda: [faster(x.repeat(9, 1)), faster(x.repeat(8, 1))])
        yield "layout", listen(lambda: faster(wide))
        yield "type", listen(lambda: copy.deepcopy(faster).double()(x.double()))
        with torch.autocast(x.device.type, torch.bfloat16):
            yield "autocast", listen(lambda: faster(x))
            yield "autocast same", torch.equal(faster(x), original(x))
        yield "transform", listen(lambda: torch.func.vmap(faster)(x[None]))
        hook = original.a.register_forward_hook(lambda module, given, result: result * 2)
        yield "hook", listen(lambda: faster(x))
        yield "hook same", torch.equal(faster(x), original(x))
        hook.remove()
        calls: list[int] = []
        hook = faster.register_forward_hook(lambda *_: calls.append(1))
        faster(x)
        hook.remove()
        yield "own hook", calls
        kept, original.a = original.a, nn.Linear(16, 32, device=x.device)
        yield "replaced", listen(lambda: faster(x))
        original.a = kept
        yield "size same", torch.equal(faster(x.repeat(9, 1)), original(x.repeat(9, 1)))
        other = copy.deepcopy(original)
        other.n.eps = 0.5
        changed = drop_in.wrap(other)
        yield "made otherwise", listen(lambda: changed(x))
        yield "made otherwise same", torch.equal(changed(x), other(x))
        parametrised = copy.deepcopy(original)
        faster = drop_in.wrap(parametrised)
        parametrizations.weight_norm(parametrised.a)
        for number, module in enumerate((faster, drop_in.wrap(parametrised))):
            yield (
                f"parametrised {number}",
                [listen(lambda module=module: module(x)), differ(module(x), parametrised(x))],
            )


def ask_copies(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Differences of copies, each with weights of its own."""
    faster = drop_in.module
    file = io.BytesIO()
    torch.save(faster, file)
    file.seek(0)
    made = {
        "deepcopy": copy.deepcopy(faster), "pickle": pickle.loads(pickle.dumps(faster)), "torch.save": torch.load(file, weights_only=False),
        "copy": copy.copy(faster),
    }  # fmt: skip
    with torch.no_grad():
        for name, module in made.items():
            yield name, differ(module(x), original(x))
            yield f"{name} told", sorted(engine_of(module).told)
            if name != "copy":
                for value in module.parameters():
                    value.mul_(2.0)
        yield "original after copies", differ(faster(x), original(x))


def ask_gradients(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Gradients, those of gradients, and frozen weights."""
    faster = drop_in.module
    given = x.clone().requires_grad_()
    wanted = [given, *original.parameters()]

    def take(module: nn.Module, *, twice: bool) -> list[torch.Tensor]:
        first = torch.autograd.grad((module(given) ** 2).sum(), wanted, create_graph=twice)
        return (
            list(torch.autograd.grad(sum((value**2).sum() for value in first), wanted))
            if twice
            else list(first)
        )  # type: ignore[arg-type]

    for twice, name in ((False, "gradients"), (True, "gradients of gradients")):
        yield name, max(map(differ, take(faster, twice=twice), take(original, twice=twice)))
    original.a.weight.requires_grad_(False)
    (faster(x) ** 2).sum().backward()
    yield "frozen", original.a.weight.grad is None and original.a.bias.grad is not None
    original.a.weight.requires_grad_()
    original.zero_grad()


def ask_compilers(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """One graph with the operator in it: values, other sizes, the original beyond them."""
    operator = engine_of(drop_in.module).operator
    network, plain = make_networks(drop_in, original, x)
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend=keep)
    with torch.no_grad():
        yield "compiled", max(differ(compiled(x[:rows].clone()), plain(x[:rows])) for rows in (6, 5, 3))
        yield "operators", sum(node.target is operator.overload for node in graphs[0].graph.nodes)
        yield "graphs for three sizes", len(graphs)
        big = x.repeat(3, 1)
        yield "compiled beyond", torch.equal(compiled(big), plain(big))
        yield "operators beyond", sum(node.target is operator.overload for node in graphs[-1].graph.nodes)


def make_networks(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> tuple[nn.Module, nn.Module]:
    """A network of two drop-ins, and one of the originals with the same weights."""
    network = Network([drop_in.module, drop_in.wrap(copy.deepcopy(original))]).to(x.device)
    plain = Network([original, network.blocks[1]]).to(x.device)
    plain.first = network.first
    drop_in.revert(plain)
    return network, plain


def ask_traces(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """What opcheck, torch.export and a compiled backward make of the operator."""
    operator, given = engine_of(drop_in.module).operator, x.clone().requires_grad_()
    drop_in.module(x)
    checked = torch.library.opcheck(operator.overload, (given, *original.parameters()), test_utils=TESTED)
    yield "opcheck", sorted(set(checked.values()))
    network, plain = make_networks(drop_in, original, x)
    with torch.no_grad():
        yield "exported", differ(torch.export.export(network, (x,)).module()(x), plain(x))
    given = x.clone().requires_grad_()
    traced = torch.compile(network, fullgraph=True, backend="aot_eager")
    mine = torch.autograd.grad((traced(given) ** 2).sum(), [given, *original.parameters()])
    theirs = torch.autograd.grad((plain(given) ** 2).sum(), [given, *original.parameters()])
    yield "compiled gradients", max(map(differ, mine, theirs))


def ask_places(drop_in: DropIn, original: nn.Module, x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Names in a larger model, a refusal, and the way back; and what check says."""
    network = Network([original, copy.deepcopy(original)]).to(x.device)
    with torch.no_grad():
        wanted = network(x)
        yield "found", drop_in.apply(network)
        yield "by pattern", drop_in.apply(network, "blocks.*")
        yield "applied", differ(network(x), wanted)
        try:
            drop_in.apply(network, "first")
        except UsageError as error:
            yield "refused", str(error)
        yield "reverted", drop_in.revert(network)
        yield "plain again", type(network.blocks[0]) is type(original) and torch.equal(network(x), wanted)
    check = drop_in.check(x)
    yield "check", [check.right, check.fallback]
    yield "check beyond", drop_in.check(x.repeat(3, 1)).fallback
    faster = drop_in.wrap(original)
    kept = engine_of(faster).kernel.forward
    vars(engine_of(faster).kernel)["forward"] = lambda model, value: kept(model, value) * 1.001
    yield "check of a wrong one", drop_in.check(x, faster).right
    vars(engine_of(faster).kernel)["forward"] = kept
    yield "report", drop_in.report


def ask_files(
    drop_in: DropIn, original: nn.Module, x: torch.Tensor, folder: Path
) -> Iterator[tuple[str, Any]]:
    """A saved folder: its files, loaded again, imported as a package, and given to Hugging Face `kernels` where that is there."""
    saved = drop_in.save(folder / "saved", "fast-block")
    yield "files", sorted(str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file())
    with torch.no_grad():
        yield "loaded", differ(load(saved).wrap(original)(x), original(x))
        sys.path.insert(0, str(saved / "torch-ext"))
        package = __import__("fast_block")
        yield "imported", differ(package.wrap(original)(x), original(x))
        borrowed = [name for name, value in vars(package).items() if "tritonsmith" in str(getattr(value, "__module__", ""))]
        yield "imports the project", borrowed
        yield (
            "operator",
            engine_of(package.wrap(original))
            .operator.overload.name()
            .partition("::")[0]
            .startswith("_fast_block_"),
        )
        layer = package.layers.Model
        yield "stateless", layer.__init__ is nn.Module.__init__
        module = copy.deepcopy(original)
        module.forward = types.MethodType(layer.forward, module)
        yield "layer", [differ(module(x), original(x)), listen(lambda: module(x))]
        yield (
            "layer compiled",
            differ(torch.compile(module, fullgraph=True, backend="aot_eager")(x), original(x)),
        )
        try:
            import kernels

            replace = kernels.replace_kernel_forward_from_hub
        except (ImportError, AttributeError):  # a folder of the tests has that name too
            return
        yield "validated", list(validate_folder(saved))
        shutil.copytree(saved / "build" / "torch-cuda", saved / "build" / "torch-cpu")
        for path in ("metadata.json", "_ops.py"):
            file = saved / "build" / "torch-cpu" / path
            file.write_text(file.read_text().replace('"cuda"', '"cpu"').replace("_cuda_", "_cpu_"))
        replace(type(original), "Model")
        repository = kernels.LocalLayerRepository(saved, layer_name="Model")
        with kernels.use_kernel_mapping({"Model": {x.device.type: repository}}):
            module = kernels.kernelize(
                copy.deepcopy(original),
                mode=kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE,
                device=x.device.type,
            )
        yield (
            "kernelized",
            [differ(module(x), original(x)), listen(lambda: module(x)), module.forward.__func__.__module__],
        )


def validate_folder(saved: Path) -> Iterator[str]:
    """What the package `kernels` reads in a saved folder by its own checks; it raises an error where one fails."""
    from kernels._rust import Build, Metadata
    from kernels.validate import default_metadata_validators
    from kernels.variants import get_variants_local

    yield from map(str, Build.open(saved).general.backends)
    (variant,) = get_variants_local(saved / "build")
    metadata = Metadata.read_from_file(saved / "build" / variant.variant_str / "metadata.json")
    for validator in default_metadata_validators():
        validator.validate_metadata(metadata=metadata, variant=variant.variant_str)
    yield from (variant.variant_str, str(metadata.name))


def main() -> None:
    """Answers to all questions about one drop-in."""
    folder, found = Path(sys.argv[1]), dict[str, Any]()
    torch.manual_seed(0)
    drop_in, original, (x,) = make_use()
    if sys.argv[2:] == ["traces"]:
        found |= dict(ask_traces(drop_in, original, x))
    else:
        for ask in (ask_values, ask_copies, ask_gradients, ask_fallbacks, ask_compilers, ask_places):
            found |= dict(ask(drop_in, original, x))
        found |= dict(ask_files(drop_in, original, x, folder))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
