"""A drop-in as a folder that pip installs, in the layout of Hugging Face `kernels`. Imports torch."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from torch import nn

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules import records
from tritonsmith.modules.dropin.runtime.kernel import Kernel
from tritonsmith.modules.dropin.runtime.package import read_record, write_record
from tritonsmith.modules.dropin.runtime.proof import describe_case

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    autoescape=False, keep_trailing_newline=True,
)  # fmt: skip  # noqa: S701 - Python text and TOML, no HTML
_RUNTIME = "tritonsmith.modules.dropin.runtime."
_SOURCE = "torch-ext"
_BUILT = "build/torch-cuda"


def save_kernel(kernel: Kernel, folder: Path, name: str | None, original: nn.Module | None) -> Path:
    """Write a kernel as a package.

    Args:
        kernel: the kernel.
        folder: new or empty.
        name: of the package: small letters, digits and `-`; None for one from the class's name.
        original: gives the arguments of forward; those of the proven call are taken where there is none.

    Raises:
        UsageError: one sentence; nothing is written then.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty; name a new folder, so that nothing is overwritten")
    name = name or "fast-" + re.sub(
        r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kernel.name).lower()
    ).strip("-")
    if not re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", name):
        raise UsageError(
            f"{name} is no name of a package: take small letters, digits and -, and begin with a letter"
        )
    package = name.replace("-", "_")
    source = folder / _SOURCE / package
    source.mkdir(parents=True)
    try:
        write_record(kernel, source)
    except (ValueError, NotImplementedError) as error:
        shutil.rmtree(folder)
        raise UsageError(f"the drop-in cannot be written to a folder: {error}") from error
    values = {
        "kernel": kernel, "name": name, "package": package, "identifier": f"_{package}_{kernel.digest}",
        "cases": [describe_case(case) for case in kernel.proof.cases],
        "signature": _write_signature(kernel, original),
    }  # fmt: skip
    for target, template in (("__init__.py", "package"), ("layers.py", "layers"), ("_ops.py", "ops")):
        (source / target).write_text(_render(template, values), encoding="utf-8")
    for path in (*(Path(__file__).parent / "runtime").glob("*.py"), Path(records.__file__)):
        if path.name != "__init__.py":
            (source / path.name).write_text(
                _make_relative(path.read_text(encoding="utf-8")), encoding="utf-8"
            )
    for target, template in (
        ("build.toml", "build"),
        ("pyproject.toml", "pyproject"),
        ("CARD.md", "card"),
        (f"tests/test_{package}.py", "test"),
    ):
        (folder / target).parent.mkdir(exist_ok=True)
        (folder / target).write_text(_render(template, values), encoding="utf-8")
    shutil.copytree(source, folder / _BUILT)
    identifier = f"_{package}_cuda_{kernel.digest}"
    (folder / _BUILT / "_ops.py").write_text(
        _render("ops", values | {"identifier": identifier}), encoding="utf-8"
    )
    metadata = {
        "name": name, "id": identifier, "version": 1, "license": "mit", "python-depends": [], "backend": {"type": "cuda"},
    }  # fmt: skip
    (folder / _BUILT / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    return folder


def load_kernel(folder: Path) -> Kernel:
    """The kernel in a folder that `save_kernel` wrote, or in the package within. Raises UsageError."""
    places = [folder, *sorted((folder / _SOURCE).glob("*")), folder / _BUILT]
    for place in places:
        if (place / "kernel.json").is_file():
            try:
                return read_record(place)
            except (OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
                raise UsageError(
                    f"{place} holds a drop-in that cannot be read ({type(error).__name__}: {error})"
                ) from error
    raise UsageError(f"{folder} holds no drop-in; name a folder that save() wrote")


def _render(template: str, values: dict[str, object]) -> str:
    return _TEMPLATES.get_template(f"{template}.j2").render(**values)


def _make_relative(text: str) -> str:
    """A file of the runtime with imports of its neighbours, as a package that anybody may rename needs them."""
    return text.replace(f"from {_RUNTIME}", "from .").replace(f"from {records.__name__}", "from .records")


def _write_signature(kernel: Kernel, original: nn.Module | None) -> dict[str, str]:
    """Parameters of the layer's forward, and how they are handed on: those of the original's class, since `kernels` compares them."""
    if original is None:
        names = [name for name in kernel.form.given if not name.startswith("*")]
        return {
            "parameters": ", ".join(names),
            "args": f"({''.join(f'{name}, ' for name in names)})",
            "kwargs": "{}",
        }
    parameters, args, kwargs = [], "", ""
    starred = False
    for parameter in list(inspect.signature(type(original).forward).parameters.values())[1:]:
        default = (
            f"={parameter.default!r}"
            if isinstance(parameter.default, bool | int | float | str | None)
            else "=None"
        )
        default = "" if parameter.default is inspect.Parameter.empty else default
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                parameters.append(f"*{parameter.name}")
                args += f"*{parameter.name}, "
                starred = True
            case inspect.Parameter.VAR_KEYWORD:
                parameters.append(f"**{parameter.name}")
                kwargs += f"**{parameter.name}, "
            case inspect.Parameter.KEYWORD_ONLY:
                parameters += [] if starred else ["*"]
                starred = True
                parameters.append(f"{parameter.name}{default}")
                kwargs += f'"{parameter.name}": {parameter.name}, '
            case _:
                parameters.append(f"{parameter.name}{default}")
                args += f"{parameter.name}, "
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            parameters = [name for name in parameters if name != "/"] + ["/"]
    return {"parameters": ", ".join(parameters), "args": f"({args})", "kwargs": f"{{{kwargs}}}"}
