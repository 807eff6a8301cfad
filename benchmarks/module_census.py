"""How many modules of libraries come in: `python -m tritonsmith.benchmarks.module_census [--out FILE] [--names TEXT]`.

Modules are those of torch.nn with the constructors and inputs of PyTorch's own tests, and of torchvision, timm, transformers and
torch_geometric where these are installed: blocks, and architectures by name, small and without weights. `projects` are modules written in
the style of public projects. Each is brought in, which compares the written
task with the original; then the built-in author is asked for its kernels. Nothing is judged here, so no card is needed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import re
import sys
import tempfile
import time
import traceback
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tritonsmith.author.book import explain_refusal, match
from tritonsmith.benchmarks.census.blocks import (
    Case,
    list_graph_blocks,
    list_text_blocks,
    list_timm_blocks,
    list_vision_blocks,
)
from tritonsmith.benchmarks.census.projects import list_projects
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reads.worlds import visit_worlds
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.modules.bringing.bring import bring
from tritonsmith.modules.shell import tell_of_module

_MOST_INPUTS = 2
"""Ways to make one module of torch.nn; the tests have up to 64."""
_VISION = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t", "densenet121", "squeezenet1_1",
           "shufflenet_v2_x0_5", "regnet_y_400mf", "mnasnet0_5", "googlenet", "maxvit_t", "alexnet", "vgg11_bn")  # fmt: skip
_TIMM = ("resnet18", "vit_tiny_patch16_224", "mixer_s32_224", "convnext_atto", "efficientnet_b0", "swin_tiny_patch4_window7_224",
         "levit_128s", "poolformer_s12", "edgenext_xx_small", "mobilevit_xxs", "gmlp_ti16_224", "resmlp_12_224",
         "xcit_nano_12_p16_224")  # fmt: skip
_TEXT = (
    "bert",
    "gpt2",
    "llama",
    "mistral",
    "qwen2",
    "t5",
    "roberta",
    "distilbert",
    "gemma",
    "phi",
    "opt",
    "albert",
    "electra",
    "mixtral",
)
_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
          "vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128,
          "pad_token_id": 0, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "head_dim": 16, "ffn_dim": 128}  # fmt: skip
_GRAPH = ("GCNConv", "SAGEConv", "GATConv", "GINConv", "GraphConv", "TAGConv", "ChebConv", "SGConv")


def list_torch(most: int = _MOST_INPUTS) -> Iterator[Case]:
    """Modules of torch.nn as PyTorch tests them, each with its first ways to make it."""
    if importlib.util.find_spec("expecttest") is None:  # what those tests compare texts with, and nothing here needs
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    common = importlib.import_module("torch.testing._internal.common_modules")
    for info in common.module_db:
        made = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
        for number, sample in enumerate(made):
            build, call = sample.constructor_input, sample.forward_input
            if call is None or number >= most:
                continue
            yield (
                f"torch {info.name} {number}",
                lambda info=info, build=build, call=call: (  # type: ignore[misc]
                    info.module_cls(*build.args, **build.kwargs),
                    (call.args, call.kwargs),
                ),
            )


def list_vision() -> Iterator[Case]:
    """Architectures of torchvision."""
    models = importlib.import_module("torchvision.models")
    for name in _VISION:
        yield f"torchvision {name}", lambda name=name: (models.get_model(name, weights=None), torch.randn(2, 3, 224, 224))  # type: ignore[misc]


def list_timm() -> Iterator[Case]:
    """Architectures of timm."""
    timm = importlib.import_module("timm")
    for name in _TIMM:
        yield f"timm {name}", lambda name=name: (timm.create_model(name, pretrained=False), torch.randn(2, 3, 224, 224))  # type: ignore[misc]


def list_text() -> Iterator[Case]:
    """Small models of transformers."""
    transformers = importlib.import_module("transformers")

    def build(name: str) -> tuple[nn.Module, Any]:
        config = transformers.AutoConfig.for_model(name)
        for field, value in _SMALL.items():
            if hasattr(config, field):
                setattr(config, field, value)
        config.use_cache = False
        ids = torch.randint(1, 100, (2, 16))
        call = {"input_ids": ids, **({"decoder_input_ids": ids} if config.is_encoder_decoder else {})}
        return transformers.AutoModel.from_config(config), call

    for name in _TEXT:
        yield f"transformers {name}", lambda name=name: build(name)  # type: ignore[misc]


def list_graphs() -> Iterator[Case]:
    """Layers of torch_geometric."""
    layers = importlib.import_module("torch_geometric.nn")
    edges = torch.randint(0, 12, (2, 40))
    for name in _GRAPH:
        more = {"GINConv": lambda kind: kind(nn.Linear(16, 8)), "ChebConv": lambda kind: kind(16, 8, 3)}
        make = more.get(name, lambda kind: kind(16, 8))
        yield (
            f"torch_geometric {name}",
            lambda name=name, make=make: (  # type: ignore[misc]
                make(getattr(layers, name)),
                (torch.randn(12, 16), edges),
            ),
        )


LIBRARIES: dict[str, Callable[[], Iterator[Case]]] = {
    "projects": list_projects,
    "torch_geometric": lambda: chain(list_graph_blocks(), list_graphs()),
    "torchvision": lambda: chain(list_vision_blocks(), list_vision()),
    "timm": lambda: chain(list_timm_blocks(), list_timm()),
    "transformers": lambda: chain(list_text_blocks(), list_text()),
    "torch": list_torch,
}
"""Cases by library, small ones first."""


def try_case(make: Callable[[], tuple[nn.Module, Any]], folder: Path) -> dict[str, str]:
    """What becomes of one module: its way in, and whether the author has kernels for it."""
    torch.manual_seed(0)
    try:
        module, inputs = make()
    except Exception as error:  # noqa: BLE001 - a constructor of another version of a library
        return {"way": "not made", "said": f"{type(error).__name__}: {error}"}
    try:
        brought = bring(module, inputs, folder)
        task = load_task(brought.task)
        with visit_worlds():
            facts, _ = probe(task)
            found = match(task, facts, CARDS["h200"])
            text = ""
            if found is not None:
                recipe = found.recipes[-1]
                settings = recipe.defaults(found.plan, CARDS["h200"], task.precision)
                text = recipe.render(found.plan, settings) if settings is not None else ""
            kernels = text.count("@triton.jit")
            said = brought.reason if brought.reason else "" if kernels else explain_refusal(task, facts, CARDS["h200"])
        return {"way": brought.way, "kernels": str(kernels), "said": said}
    except UsageError as error:
        return {"way": "refused", "said": str(tell_of_module(error, folder / "task.py", type(module).__name__))}
    except Exception:  # noqa: BLE001 - what this is for
        return {"way": "traceback", "said": traceback.format_exc()}


def main() -> None:
    """Try every case of the libraries that are installed, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a JSON file for every row")
    parser.add_argument("--libraries", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES), help="which of them")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further module of a library after this time")
    parser.add_argument("--names", default="", help="only cases whose names hold this text")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # of tracers that give up
    rows: dict[str, dict[str, str]] = {}
    for library in arguments.libraries:
        list_cases = LIBRARIES[library]
        if library != "projects" and importlib.util.find_spec(library) is None:
            print(f"{library}: not installed")  # noqa: T201
            continue
        end = time.monotonic() + arguments.seconds
        for name, make in list_cases():
            if time.monotonic() < end and arguments.names.lower() in name.lower():
                with tempfile.TemporaryDirectory() as folder:
                    rows[name] = try_case(make, Path(folder) / "task")
                if rows[name]["way"] == "traceback":
                    print(name, rows[name]["said"])  # noqa: T201
                if arguments.out is not None:  # after each one, so that an interruption loses nothing
                    arguments.out.write_text(re.sub(r"(?<![\w.])/(?:[\w.-]+/)+", "", json.dumps(rows, indent=1)) + "\n")
        print_shares(library, {name: row for name, row in rows.items() if name.startswith(f"{library} ")})


def print_shares(library: str, rows: dict[str, dict[str, str]]) -> None:
    """How many of a library came in, have kernels of the author's own, and were refused."""
    ways = Counter(row["way"] for row in rows.values())
    own = sum(row.get("kernels", "0") != "0" for row in rows.values())
    told = ", ".join(f"{count} {way}" for way, count in ways.most_common())
    print(f"{library}: {len(rows)} modules: {told}; {own} with own kernels")  # noqa: T201


if __name__ == "__main__":
    main()
