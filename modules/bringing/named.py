"""A module by its name: a class in a file, or an architecture of a library, with drawn weights and inputs. Imports torch."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.errors import UsageError

_INPUT = re.compile(r"\s*(?:(\w+)\s*=\s*)?(\w+)\s*\[([\d,\s]*)\](?:\s*:\s*(\d+))?\s*(?:,|$)")
"""One input: a name where it is a keyword argument, its type, its sizes, and the end of what whole numbers may be."""
_SIZE = re.compile(r"\s*(\w+)\s*(?:\[\s*(-?\d+)\s*\])?\s*=\s*(\d+)\s*(?:\.\.\s*(\d+)\s*)?$")
"""One size: a name, an axis where the name is an input's, and a value or the two ends of a range."""
_EXAMPLE = 'such as "float32[32,512,768], int64[32,512]:50000"'
_SEED = 0
_HIGHEST = 2
"""End of whole numbers that nobody gave an end for."""
_TOKENS = (2, 32)
"""Sequences and their length, for a model of text without given inputs."""


def load_named(word: str, inputs: str | None, init: str | None) -> tuple[nn.Module, Any]:
    """The module and the inputs that `FILE.py:Class`, `hf:CONFIG.json` or `timm:NAME` stand for. Raises UsageError."""
    torch.manual_seed(_SEED)
    kind, _, rest = word.partition(":")
    if kind == "hf":
        return _load_hf(rest, inputs)
    if kind == "timm":
        return _load_timm(rest, inputs, init)
    return _load_class(word, inputs, init)


def read_inputs(text: str) -> Any:
    """Tensors as a command line names them, drawn at random: arguments in their order, and keyword arguments by name. Raises UsageError."""
    args, kwargs, place = [], {}, 0
    while place < len(text.rstrip()):
        found = _INPUT.match(text, place)
        if found is None:
            raise UsageError(
                f"--inputs {text!r}: cannot be read from {text[place:].strip()!r} on; write types with sizes, {_EXAMPLE}"
            )
        name, kind, sizes, end = found.groups()
        value = _draw(
            kind,
            [int(size) for size in sizes.split(",") if size.strip()],
            None if end is None else int(end),
            text,
        )
        if name:
            kwargs[name] = value
        else:
            args.append(value)
        place = found.end()
    return tuple(args), kwargs


def _draw(kind: str, sizes: list[int], end: int | None, text: str) -> torch.Tensor:
    dtype = getattr(torch, kind, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"--inputs {text!r}: there is no type {kind}; write one of torch's, {_EXAMPLE}")
    if dtype == torch.bool:
        return torch.rand(sizes) < 0.5  # noqa: PLR2004 - even chances
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=torch.float32 if dtype.is_floating_point else dtype).to(dtype)
    return torch.randint(0, end or _HIGHEST, sizes, dtype=dtype)


def read_init(text: str | None) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a constructor as a command line names them: `768, 12, bias=False`. Raises UsageError."""
    if not text:
        return [], {}
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        return [ast.literal_eval(one) for one in call.args], {
            str(one.arg): ast.literal_eval(one.value) for one in call.keywords
        }
    except (SyntaxError, ValueError):
        raise UsageError(
            f'--init {text!r}: write literals as in a call, such as "768, 12, bias=False"'
        ) from None


def read_sizes(text: str | None) -> list[dict[str, Any]]:
    """Other sizes as a command line names them, as `shapes=` takes them: `batch=1..64, length=128; x[0]=7`. Raises UsageError."""
    entries: list[dict[str, Any]] = []
    for part in (text or "").split(";") if text is not None else ():
        entry: dict[str, Any] = {}
        for word in part.split(","):
            found = _SIZE.match(word)
            if found is None:
                raise UsageError(
                    f"--shapes {text!r}: {word.strip()!r} cannot be read; write names with a value or a range, "
                    'such as "batch=1..64, length=128"'
                )
            name, axis, low, high = found.groups()
            size = (int(low), int(high)) if high else int(low)
            if axis is None:
                entry[name] = size
            else:
                entry.setdefault(name, {})[int(axis)] = size
        entries.append(entry)
    return entries


def _load_class(word: str, inputs: str | None, init: str | None) -> tuple[nn.Module, Any]:
    file, _, name = word.rpartition(":")
    space = import_file(Path(file))
    made = getattr(space, name, None)
    if made is None:
        classes = [
            key
            for key, value in vars(space).items()
            if isinstance(value, type) and issubclass(value, nn.Module)
        ]
        raise UsageError(f"{file}: has no {name}; its modules are {', '.join(classes) or 'none'}")
    if not callable(made):
        raise UsageError(
            f"{word}: {name} is a {type(made).__name__}; name a class, a function that makes a torch.nn.Module, or such an object"
        )
    args, kwargs = read_init(init)
    module = (
        made
        if isinstance(made, nn.Module)
        else _call(
            lambda: made(*args, **kwargs), f"{name}({init or ''})", 'give its arguments with --init "..."'
        )
    )
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"{word}: {name} gives a {type(module).__name__}; name a class or a function that makes a torch.nn.Module"
        )
    if inputs is not None:
        return module, read_inputs(inputs)
    example = getattr(space, "example_inputs", None) or getattr(space, "get_inputs", None)
    if example is None:
        raise UsageError(f"{file}: has no example_inputs(); add that function, or give --inputs, {_EXAMPLE}")
    return module, _call(example, "example_inputs()", "it must return the inputs of one call")


def import_file(path: Path) -> ModuleType:
    """A file as the module that it is in its package, so that its own imports work. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; write FILE.py:Class")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    sys.path.insert(0, str(root))
    if len(parts) > 1:
        found: ModuleType = _call(
            lambda: importlib.import_module(".".join(parts)), str(path), "fix the file so that it imports"
        )
        return found
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    loader = spec.loader
    _call(lambda: loader.exec_module(module), str(path), "fix the file so that it imports")
    return module


def _call(function: Callable[[], Any], what: str, cure: str) -> Any:
    try:
        return function()
    except UsageError:
        raise
    except Exception as error:  # the user's own code: anything may come out of it
        raise UsageError(
            f"{what} raised {type(error).__name__} ({' '.join(str(error).split())[:240]}); {cure}"
        ) from error


def _require(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"{name} is not installed; install it in this environment (pip install {name})"
        ) from None


def _load_timm(name: str, inputs: str | None, init: str | None) -> tuple[nn.Module, Any]:
    timm = _require("timm")
    _, kwargs = read_init(init)
    module: nn.Module = _call(
        lambda: timm.create_model(name, pretrained=False, **kwargs),
        f"timm.create_model({name!r})",
        "choose one of timm.list_models()",
    )
    size = (getattr(module, "default_cfg", None) or {}).get("input_size", (3, 224, 224))
    return module, read_inputs(inputs) if inputs else torch.randn(2, *size)


def _load_hf(place: str, inputs: str | None) -> tuple[nn.Module, Any]:
    transformers = _require("transformers")
    try:
        known = json.loads(Path(place).read_text(encoding="utf-8"))
        kind = known.pop("model_type")
    except (OSError, ValueError, KeyError, AttributeError):
        raise UsageError(
            f"hf:{place}: is no config.json with a model_type; name the file of a model of transformers"
        ) from None
    config = _call(
        lambda: transformers.AutoConfig.for_model(kind, **known),
        f"the config {place}",
        "check its model_type",
    )
    config.use_cache = False
    architecture = next((getattr(transformers, one, None) for one in known.get("architectures") or ()), None)
    module = _call(
        lambda: architecture(config) if architecture else transformers.AutoModel.from_config(config),
        kind,
        "check the config",
    )
    if inputs:
        return module, read_inputs(inputs)
    if (end := getattr(config, "vocab_size", None)) is None:
        raise UsageError(
            f'hf:{place}: is no model of text; give its inputs by name, such as --inputs "pixel_values=float32[2,3,224,224]"'
        )
    return module, ((), {"input_ids": torch.randint(0, end, _TOKENS)})
