"""Modules that are brought in, and the comparison of their tasks with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.modules.bringing.bring import Brought, bring
from tritonsmith.modules.bringing.check import copy_call, describe_difference, run_task_model
from tritonsmith.modules.bringing.structure import Signature, as_call, split_call


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def bring_and_compare(module: nn.Module, inputs: Any, folder: Path, mode: str = "eval") -> Brought:
    """The task of a module, whose Model with its weights gives the flat results of the original on other inputs of the same sizes too."""
    brought = bring(module, inputs, folder, mode=mode)
    reference = load_reference(load_task(brought.task))
    model = reference.build(1)
    reference.load_weights(model)
    args, kwargs = as_call(inputs)
    module.train(mode == "train")
    leaves, spec = split_call(args, kwargs)
    drawn = reference.draw_inputs(2)
    for number, value in zip(brought.signature.inputs, drawn, strict=True):
        leaves[number] = value
    again_args, again_kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
    with torch.no_grad():
        wanted = module(*copy_call(again_args, again_kwargs)[0], **again_kwargs)
    given = Signature.read(folder).flatten_call(again_args, again_kwargs)
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(wanted) if isinstance(leaf, torch.Tensor)]
    assert describe_difference(run_task_model(model, given), tensors) == ""
    return brought
