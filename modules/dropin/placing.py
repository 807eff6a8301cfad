"""A drop-in put into a larger model at a module's name, and taken out again. Imports torch."""

from __future__ import annotations

from fnmatch import fnmatchcase

from torch import nn

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config, find_difference
from tritonsmith.modules.dropin.runtime.module import ENGINE, replace_module, restore_module


def apply_kernel(model: nn.Module, kernel: Kernel, original: nn.Module | None, name: str | None) -> list[str]:
    """Put drop-ins into a model in place of its modules.

    Args:
        model: it is changed.
        kernel: the kernel of the drop-ins.
        original: the module that the kernel was made for, which is looked for where no name is given.
        name: of the module in the model, such as `layers.3.mlp`, or a pattern such as `layers.*.mlp`. None for the original itself, or
            where that is not in the model, for every module that is made as it is.

    Returns:
        Names of the modules that were replaced.

    Raises:
        UsageError: one sentence: nothing in the model fits. Nothing is changed then.
    """
    parts = {path: part for path, part in model.named_modules(remove_duplicate=False) if path}
    if name is not None:
        paths = [path for path in parts if _fits(path, name)]
        if not paths:
            raise UsageError(f"the model has no module {name}; it has {', '.join(list(parts)[:8])}")
        for path in paths:
            if difference := find_difference(kernel.config, describe_config(restore_module(parts[path]))):
                raise UsageError(f"{path} is another module than the kernel is made for: {difference}")
    else:
        paths = [path for path, part in parts.items() if part is original]
        paths = paths or [
            path for path, part in parts.items() if not find_difference(kernel.config, describe_config(part))
        ]
        if not paths:
            raise UsageError(
                f"the model holds no module that is made as the {kernel.name} of this kernel; give its name"
            )
    made: dict[int, nn.Module] = {}
    for path in paths:
        part = parts[path]
        try:
            faster = made.setdefault(id(part), replace_module(part, kernel))
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
        _put(model, path, faster)
    return paths


def revert_model(model: nn.Module, digest: str | None = None) -> list[str]:
    """Put the originals back in place of drop-ins, with their present weights.

    Args:
        model: it is changed.
        digest: of the kernel whose drop-ins are taken out; None for all.

    Returns:
        Names of the modules that were put back.
    """
    paths: list[str] = []
    made: dict[int, nn.Module] = {}
    for path, part in list(model.named_modules(remove_duplicate=False)):
        engine = vars(part).get(ENGINE)
        if path and engine is not None and digest in (None, engine.kernel.digest):
            _put(model, path, made.setdefault(id(part), restore_module(part)))
            paths.append(path)
    return paths


def _fits(path: str, pattern: str) -> bool:
    """Whether a name fits a pattern, part by part: `*` stands for one part."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _put(model: nn.Module, path: str, module: nn.Module) -> None:
    holder, _, name = path.rpartition(".")
    model.get_submodule(holder)._modules[name] = module
