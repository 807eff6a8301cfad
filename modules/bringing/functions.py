"""Calls whose text has a form of its own: parts of tensors, shapes, norms, losses, and makers of tensors. Imports torch."""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.modules.bringing.calls import Call, Written

_REDUCTIONS = ("none", "mean", "sum")
_FACTORIES = frozenset(
    {
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "eye",
        "scalar_tensor",
        "linspace",
        "tril_indices",
        "triu_indices",
    }
)


def _write_index(holder: str, dim: int, rank: int, inside: str) -> Written:
    dim = dim + rank if dim < 0 else dim
    return Written(f"{holder}[{', '.join([':'] * dim + [inside])}]")


def _rank(call: Call, name: str = "self") -> int:
    return len(call.values[name].meta["val"].shape)


def _select(call: Call) -> Written:
    return _write_index(call.say("self", inner=True), call.values["dim"], _rank(call), call.say("index"))


def _slice(call: Call) -> Written:
    low, high, step = (call.values.get(name) for name in ("start", "end", "step"))
    first = "" if low in (None, 0) else call.writer.say(low)
    last = "" if high is None or (isinstance(high, int) and high >= 2**62) else call.writer.say(high)
    if not first and not last and step == 1:
        return call.writer.names[call.values["self"]]
    stride = f":{call.say('step')}" if step != 1 else ""
    return _write_index(
        call.say("self", inner=True), call.values["dim"], _rank(call), f"{first}:{last}{stride}"
    )


def _index(call: Call) -> Written:
    places = list(call.values["indices"])
    while places and places[-1] is None:
        places.pop()
    return Written(
        f"{call.say('self', inner=True)}[{', '.join(':' if one is None else call.writer.say(one) for one in places)}]"
    )


def _sym_size(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.shape[{call.say('dim')}]")


def _sym_numel(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.numel()")


def _sym_stride(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.stride({call.say('dim')})")


def _to(call: Call) -> Written:
    kept = {
        name: call.writer.say(value)
        for name, value in call.kept.items()
        if name in ("dtype", "memory_format", "other")
    }
    holder = call.values["self"]
    if "dtype" in kept and holder.meta["val"].dtype == call.values["dtype"] and not call.values.get("copy"):
        kept.pop("dtype")
    if not kept:
        return call.writer.names[holder]
    return Written(
        f"{call.say('self', inner=True)}.to({', '.join(f'memory_format={v}' if n == 'memory_format' else v for n, v in kept.items())})"
    )


def _shape(call: Call) -> Written:
    """A method that takes sizes one by one: `x.view(2, 4)`."""
    name = {"view": "size", "reshape": "shape", "expand": "size", "permute": "dims", "repeat": "repeats"}[
        call.name
    ]
    if name not in call.values or not isinstance(call.values[name], list | tuple) or not call.values[name]:
        return Written(f"{call.say('self', inner=True)}.{call.name}({call.arguments(skip=('self',))})")
    return Written(
        f"{call.say('self', inner=True)}.{call.name}({', '.join(map(call.writer.say, call.values[name]))})"
    )


def _dropout(call: Call) -> Written:
    if not call.values["train"] or call.values["p"] == 0:
        return call.writer.names[call.values["input" if "input" in call.values else "self"]]
    return Written(f"F.dropout({call.arguments(skip=('train',))}, training=True)")


def _embedding(call: Call) -> Written:
    padding = call.values["padding_idx"]
    return call.call(
        "F.embedding",
        _ids=call.say("indices"),
        _weight=call.say("weight"),
        padding_idx="" if padding in (-1,) else str(padding),
    )


def _batch_norm(call: Call) -> Written:
    training = call.values["training"]
    return call.call(
        "F.batch_norm", _x=call.say("input"), _mean=call.say("running_mean"), _var=call.say("running_var"),
        weight=_unless(call, "weight"), bias=_unless(call, "bias"), training="True" if training else "",
        momentum=call.say("momentum") if training else "", eps=call.say("eps"),
    )  # fmt: skip


def _instance_norm(call: Call) -> Written:
    return call.call(
        "F.instance_norm", _x=call.say("input"), running_mean=_unless(call, "running_mean"), running_var=_unless(call, "running_var"),
        weight=_unless(call, "weight"), bias=_unless(call, "bias"), use_input_stats="" if call.values["use_input_stats"] else "False",
        eps=call.say("eps"),
    )  # fmt: skip


def _unless(call: Call, name: str) -> str:
    return "" if call.values.get(name) is None else call.say(name)


def _softmax(call: Call) -> Written:
    name = {"softmax": "softmax", "log_softmax": "log_softmax"}[call.name]
    return call.call(f"F.{name}", _x=call.say("self"), dim=call.say("dim"), dtype=_unless(call, "dtype"))


def _loss(call: Call) -> Written:
    name = {
        "cross_entropy_loss": "cross_entropy",
        "nll_loss_nd": "nll_loss",
        "nll_loss2d": "nll_loss",
        "soft_margin_loss": "soft_margin_loss",
    }.get(call.name, call.name)
    kept = {
        one: call.writer.say(value)
        for one, value in call.kept.items()
        if one not in ("self", "target", "reduction")
    }
    reduction = _REDUCTIONS[call.values["reduction"]]
    words = {
        "_x": call.say("self"),
        "_t": call.say("target"),
        **kept,
        "reduction": "" if reduction == "mean" else f'"{reduction}"',
    }
    return call.call(f"F.{name}", **words)


def _interpolate(call: Call) -> Written | None:
    kind = call.name.removeprefix("upsample_")
    mode = {"nearest1d": "nearest", "nearest2d": "nearest", "nearest3d": "nearest", "bilinear2d": "bilinear", "bicubic2d": "bicubic",
            "linear1d": "linear", "trilinear3d": "trilinear", "_upsample_nearest_exact2d": "nearest-exact"}.get(kind)  # fmt: skip
    if mode is None or "scale_factors" not in call.values:
        return None
    aligned = call.values.get("align_corners")
    return call.call(
        "F.interpolate", _x=call.say("input"), size=_unless(call, "output_size"), scale_factor=_unless(call, "scale_factors"),
        mode=f'"{mode}"', align_corners="" if aligned is None else repr(aligned),
    )  # fmt: skip


def _max_pool(call: Call) -> Written:
    """A maximum over windows, with its places only where they are read."""
    name = call.name.removesuffix("_with_indices")
    if all(
        getattr(user.target, "__name__", "") == "getitem" and user.args[1] == 0 for user in call.node.users
    ):
        return Written(f"F.{name}({call.arguments()})", first=True)
    return Written(f"F.{name}({call.arguments()}, return_indices=True)")


def _conv_transpose(call: Call) -> Written:
    name = {
        "conv_transpose1d": "conv_transpose1d",
        "conv_transpose2d": "conv_transpose2d",
        "conv_transpose3d": "conv_transpose3d",
    }[call.name]
    return Written(f"F.{name}({call.arguments()})")


def _clone(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.clone({call.arguments(skip=('self',))})")


def _factory(call: Call) -> Written:
    text = call.arguments(skip=("device",))
    return Written(f"torch.{call.name}({text}{', ' if text else ''}device={call.writer.device})")


def _like(call: Call) -> Written:
    return Written(f"torch.{call.name}({call.arguments(skip=('device',))})")


def _new(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.{call.name}({call.arguments(skip=('self', 'device'))})")


def _spread(call: Call) -> Written:
    """A function that takes its tensors one by one."""
    return Written(f"torch.{call.name}({', '.join(map(call.writer.say, call.values['tensors']))})")


def _pow(call: Call) -> Written | None:
    if not call.is_tensor("self") or call.is_tensor("exponent"):
        return None
    return Written(f"{call.say('self', inner=True)} ** {call.say('exponent', inner=True)}", loose=True)


def _neg(call: Call) -> Written:
    return Written(f"-{call.say('self', inner=True)}", loose=True)


def _property(call: Call) -> Written:
    """A view that tensors have as a property."""
    name = {"numpy_T": "T", "matrix_H": "H"}.get(call.name, call.name)
    return Written(f"{call.say('self', inner=True)}.{name}")


def _recurrent(call: Call) -> Written:
    """A layer of cells whose weights are given one by one: the function that nn.GRU and its like call."""
    name = {"gru": "gru", "lstm": "lstm", "rnn_tanh": "rnn_tanh", "rnn_relu": "rnn_relu"}[call.name]
    return Written(f"torch._VF.{name}({', '.join(map(call.writer.say, call.node.args))})")


SPECIAL: dict[str, Callable[[Call], Written | None]] = {
    "select": _select, "slice": _slice, "index": _index,
    "sym_size": _sym_size, "sym_numel": _sym_numel, "sym_stride": _sym_stride, "to": _to, "_to_copy": _to,
    "view": _shape, "reshape": _shape, "expand": _shape, "permute": _shape, "repeat": _shape,
    "dropout": _dropout, "dropout_": _dropout, "feature_dropout": _dropout, "feature_dropout_": _dropout, "alpha_dropout": _dropout,
    "feature_alpha_dropout": _dropout, "alpha_dropout_": _dropout,
    "embedding": _embedding, "batch_norm": _batch_norm, "instance_norm": _instance_norm, "softmax": _softmax, "log_softmax": _softmax,
    **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "nll_loss2d", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                     "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"), _loss),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d", "upsample_bicubic2d",
                     "upsample_linear1d", "upsample_trilinear3d"), _interpolate),
    **dict.fromkeys(("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"), _max_pool),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    **dict.fromkeys(_FACTORIES, _factory),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like"), _like),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty"), _new),
    **dict.fromkeys(("gru", "lstm", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("broadcast_tensors", "block_diag", "cartesian_prod"), _spread),
    **dict.fromkeys(("mH", "mT", "numpy_T", "matrix_H"), _property),
    "clone": _clone, "pow": _pow, "neg": _neg,
}  # fmt: skip
