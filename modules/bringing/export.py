"""A live module as an exported program: its calls with their sizes, and one sentence where that cannot be had. Imports torch."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

_LONGEST_REASON = 240
"""Characters of what torch says that a sentence repeats."""
_BY_VALUE = re.compile(
    "data-dependent|GuardOnDataDependent|Could not guard|unbacked|item\\(\\)|dynamic control flow",
    re.IGNORECASE,
)


class NotExported(Exception):
    """torch.export cannot take the module; the message says why in a few words."""


def export_module(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, dynamic: bool = True
) -> ExportedProgram:
    """The module's calls for these inputs, with every size of an input that may be another one as a symbol.

    Raises NotExported.
    """
    marks = _mark_sizes(module, args, kwargs) if dynamic else None
    kept = {id(one): dict(vars(one)) for one in module.modules()}
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=marks, strict=False)
    except Exception as error:  # noqa: BLE001 - a foreign module runs in a tracer: anything may come out of it
        if dynamic:
            return export_module(module, args, kwargs, dynamic=False)
        raise NotExported(describe_failure(error)) from error
    finally:
        for one in module.modules():  # a tracer leaves its own attributes behind
            for name in [name for name in vars(one) if name not in kept.get(id(one), vars(one))]:
                del vars(one)[name]


def _mark_sizes(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Marks for `dynamic_shapes`: every axis of every tensor may have another size."""

    def mark(leaf: Any) -> Any:
        return {axis: Dim.AUTO for axis in range(leaf.ndim)} if isinstance(leaf, torch.Tensor) else None

    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    try:
        return {name: pytree.tree_map(mark, value) for name, value in bound.arguments.items()}
    except Exception:  # noqa: BLE001 - a record whose constructor looks at its tensors takes no marks: its sizes stay
        return None


def describe_failure(error: BaseException) -> str:
    """Why an export failed, in one line."""
    text = " ".join(str(error).split())
    if _BY_VALUE.search(text) or type(error).__name__.startswith("GuardOnDataDependent"):
        return f"its control flow depends on values of tensors{_find_place(error)}"
    text = re.sub(
        r"\s*(For more information|To debug|The following call|Set TORCH|You can suppress|from user code).*",
        "",
        text,
    )
    return f"{type(error).__name__}: {text[:_LONGEST_REASON]}{_find_place(error)}"


def _find_place(error: BaseException) -> str:
    """File and line of the user's code where it failed; empty where that is unknown."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if (
            "/torch/" not in file
            and "tritonsmith" not in trace.tb_frame.f_globals.get("__name__", "")
            and trace.tb_frame.f_code.co_name == "forward"
        ):
            found = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and the log of a tracer."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):  # it prints graphs that it gave up
                yield
    finally:
        logging.disable(before)
