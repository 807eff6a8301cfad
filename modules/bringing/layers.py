"""Layers of torch.nn as the constructor calls that a person writes, where one call of the graph is one of them. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn

from tritonsmith.modules.bringing.calls import CallWriter, Written

_WEIGHTS: dict[str, tuple[str, ...]] = {
    "linear": ("weight", "bias"), "conv1d": ("weight", "bias"), "conv2d": ("weight", "bias"), "conv3d": ("weight", "bias"),
    "conv_transpose1d": ("weight", "bias"), "conv_transpose2d": ("weight", "bias"), "conv_transpose3d": ("weight", "bias"),
    "layer_norm": ("weight", "bias"), "group_norm": ("weight", "bias"), "rms_norm": ("weight",), "embedding": ("weight",),
    "batch_norm": ("weight", "bias", "running_mean", "running_var"), "prelu": ("weight",), "bilinear": ("weight", "bias"),
}  # fmt: skip
"""For the calls that a layer is: its tensors among their arguments."""
_INPUTS = {"linear": "input", "embedding": "indices", "prelu": "self", "batch_norm": "input"}
_RECURRENT = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}


def find_layer(node: fx.Node, modules: Mapping[str, nn.Module], state: Mapping[fx.Node, str]) -> str:
    """The path of the layer that a call is the whole of; empty where it is none.

    Args:
        node: the call.
        modules: those of the original, by path.
        state: the paths of parameters and buffers, by their placeholders.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    name = target._schema.name.removeprefix("aten::")
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0].partition("@")[0] if stack else ""
    module = modules.get(path)
    if module is None or not path or type(module) not in _WRITERS or _has_hooks(module):
        return ""
    held = {path_of for path_of in state.values() if path_of.rpartition(".")[0] == path}
    if name in _RECURRENT:
        weights = node.args[2 if len(node.args[2]) != 0 and isinstance(node.args[2], list | tuple) else 3]  # type: ignore[arg-type]
        named = [f"{path}.{one}" for one in getattr(module, "_flat_weights_names", [])]
        return (
            path if isinstance(weights, list | tuple) and [state.get(one) for one in weights] == named else ""
        )
    if name not in _WEIGHTS:
        return ""
    names = [one.name for one in target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    for one in _WEIGHTS[name]:
        value = given.get(one)
        own = getattr(module, one, None)
        path_of = state.get(value) if isinstance(value, fx.Node) else None
        if (own is None) is not (value is None) or (value is not None and path_of != f"{path}.{one}"):
            return ""
    used = {f"{path}.{one}" for one in _WEIGHTS[name]} | {f"{path}.num_batches_tracked"}
    if name == "batch_norm" and bool(given.get("training")) is not module.training:
        return ""
    if getattr(module, "padding_mode", "zeros") != "zeros":  # then another call pads
        return ""
    return path if held and held <= used else ""


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations"))


def write_layer_call(node: fx.Node, attribute: str, writer: CallWriter) -> Written | None:
    """The call of the layer with its inputs; None where they are not plain."""
    name = node.target._schema.name.removeprefix("aten::")  # type: ignore[union-attr]
    if name in _RECURRENT:
        return _write_recurrent(node, name, attribute, writer)
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    if name == "bilinear":
        return Written(f"{attribute}({writer.say(given['input1'])}, {writer.say(given['input2'])})")
    return Written(f"{attribute}({writer.say(given[_INPUTS.get(name, names[0])])})")


def _write_recurrent(node: fx.Node, name: str, attribute: str, writer: CallWriter) -> Written | None:
    """A layer of cells; states that begin as zeros are left out, as its own forward makes them."""
    data, states = node.args[0], node.args[1]
    several = list(states) if isinstance(states, list | tuple) else [states]
    if any(not isinstance(one, fx.Node) for one in several) or len(node.args) != 9:
        return None  # a packed sequence
    if all(_is_zeros(one) for one in several):
        return Written(f"{attribute}({writer.say(data)})")
    said = [writer.say(one) for one in several]
    return Written(
        f"{attribute}({writer.say(data)}, {said[0] if name != 'lstm' else f'({said[0]}, {said[1]})'})"
    )


def _is_zeros(node: Any) -> bool:
    return isinstance(node, fx.Node) and str(node.target) == "aten.zeros.default"


def _list_words(module: nn.Module, first: tuple[str, ...], rest: Mapping[str, Any]) -> str:
    """Arguments of a constructor: attributes in front, and those by name that differ from their defaults."""
    words = [_say(getattr(module, name)) for name in first]
    words += [
        f"{name}={_say(getattr(module, name))}"
        for name, default in rest.items()
        if getattr(module, name) != default
    ]
    return ", ".join(words)


def _say(value: Any) -> str:
    if isinstance(value, tuple) and len(set(value)) == 1:
        return repr(value[0])
    return repr(tuple(value) if isinstance(value, torch.Size | list) else value)


def _write_linear(module: nn.Module) -> str:
    return _with_bias(module, _list_words(module, ("in_features", "out_features"), {}))


def _with_bias(module: nn.Module, words: str) -> str:
    return words + ("" if module.bias is not None else ", bias=False")


def _write_conv(module: nn.Module) -> str:
    first = ("in_channels", "out_channels", "kernel_size")
    plain = 1 if module.transposed else None
    sizes = len(module.kernel_size)  # type: ignore[arg-type]
    rest = {
        "stride": (1,) * sizes,
        "padding": (0,) * sizes,
        "dilation": (1,) * sizes,
        "groups": 1,
        "padding_mode": "zeros",
    }
    if plain:
        rest["output_padding"] = (0,) * sizes
    return _with_bias(module, _list_words(module, first, rest))


def _write_layer_norm(module: nn.Module) -> str:
    plain = module.weight is None
    words = _list_words(module, ("normalized_shape",), {"eps": 1e-5})
    if len(module.normalized_shape) > 1:  # type: ignore[arg-type]
        words = f"{tuple(module.normalized_shape)}{words[len(_say(module.normalized_shape)) :]}"  # type: ignore[arg-type]
    return words + (", elementwise_affine=False" if plain else ", bias=False" if module.bias is None else "")


def _write_rms_norm(module: nn.Module) -> str:
    shape = tuple(module.normalized_shape)  # type: ignore[arg-type]
    words = repr(shape[0] if len(shape) == 1 else shape) + (
        "" if module.eps is None else f", eps={module.eps}"
    )
    return words + (", elementwise_affine=False" if module.weight is None else "")


def _write_group_norm(module: nn.Module) -> str:
    words = _list_words(module, ("num_groups", "num_channels"), {"eps": 1e-5})
    return words + ("" if module.affine else ", affine=False")


def _write_batch_norm(module: nn.Module) -> str:
    return _list_words(
        module, ("num_features",), {"eps": 1e-5, "momentum": 0.1, "affine": True, "track_running_stats": True}
    )


def _write_embedding(module: nn.Module) -> str:
    return _list_words(module, ("num_embeddings", "embedding_dim"), {"padding_idx": None})


def _write_prelu(module: nn.Module) -> str:
    return _list_words(module, (), {"num_parameters": 1})


def _write_bilinear(module: nn.Module) -> str:
    return _with_bias(module, _list_words(module, ("in1_features", "in2_features", "out_features"), {}))


def _write_cells(module: nn.Module) -> str:
    rest: dict[str, Any] = {
        "num_layers": 1,
        "bias": True,
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": False,
    }
    if isinstance(module, nn.RNN):
        rest["nonlinearity"] = "tanh"
    else:
        rest["proj_size"] = 0
    return _list_words(module, ("input_size", "hidden_size"), rest)


_WRITERS: dict[type[nn.Module], Callable[[nn.Module], str]] = {
    nn.Linear: _write_linear, nn.Bilinear: _write_bilinear, nn.LayerNorm: _write_layer_norm, nn.RMSNorm: _write_rms_norm,
    nn.GroupNorm: _write_group_norm, nn.Embedding: _write_embedding, nn.PReLU: _write_prelu,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _write_conv),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _write_batch_norm),
    **dict.fromkeys((nn.GRU, nn.LSTM, nn.RNN), _write_cells),
}  # fmt: skip
"""How the arguments of each layer's constructor are written; only these very classes, as a derived one may do something else."""


def write_constructor(module: nn.Module) -> str:
    """The constructor call of a layer that `find_layer` has found; empty where it does not make the same tensors."""
    words = _WRITERS[type(module)](module)
    types = {value.dtype for value in module.state_dict().values() if value.is_floating_point()}
    if len(types) > 1:
        return ""
    kind = next(iter(types), torch.float32)
    words += f", dtype={kind}" if kind != torch.float32 else ""
    text = f"nn.{type(module).__name__}({words})"
    with torch.device("meta"):
        made = eval(text, {"nn": nn, "torch": torch})  # noqa: S307 - our own text
    own, wanted = made.state_dict(), module.state_dict()
    alike = own.keys() == wanted.keys() and all(
        own[n].shape == wanted[n].shape and own[n].dtype == wanted[n].dtype for n in own
    )
    return text if alike else ""
