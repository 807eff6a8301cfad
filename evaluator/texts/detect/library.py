"""Library calls that do the work of a candidate, by whatever name they are called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tritonsmith.evaluator.schema import LaunchFacts
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.detect.tensors import Tensors
from tritonsmith.evaluator.texts.source.host_calls import Call, HostCalls
from tritonsmith.evaluator.texts.source.host_things import Thing, ThingKind
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.source.values import KernelWalk

_PRODUCTS = {
    "matmul", "mm", "bmm", "addmm", "addmv", "mv", "baddbmm", "addbmm", "einsum", "linear", "tensordot", "dot", "inner", "bilinear",
    "chain_matmul", "multi_dot", "vdot", "outer", "ger", "_scaled_mm", "_int_mm", "addr", "kron", "matrix_power", "_grouped_mm",
    "scaled_mm", "int_mm", "_weight_int8pack_mm", "_weight_int4pack_mm", "vecdot",
}  # fmt: skip
"""Functions of torch that are a matrix product."""
_HEAVY = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "cudnn_convolution",
    "scaled_dot_product_attention", "multi_head_attention_forward", "gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_efficient_attention", "flex_attention", "_convolution", "miopen_convolution", "mkldnn_convolution",
    "_flash_attention_forward", "_efficient_attention_forward", "conv_tbc", "solve", "inv", "inverse", "cholesky", "qr", "svd", "eigh",
    "lu_factor", "solve_triangular", "triangular_solve", "lstsq", "stft", "istft",
}  # fmt: skip
"""Functions of torch that are more than a matrix product."""
_REDUCTIONS = {
    "softmax", "log_softmax", "layer_norm", "native_layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm", "cumsum",
    "cumprod", "logsumexp", "sort", "topk", "argsort", "cross_entropy", "nll_loss", "max_pool1d", "max_pool2d", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "max_pool3d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool1d", "cdist", "var_mean",
    "std_mean", "cummax", "cummin", "logcumsumexp", "native_batch_norm", "native_group_norm", "kl_div", "binary_cross_entropy",
    "local_response_norm", "msort", "median", "kthvalue", "embedding_bag", "normalize", "cosine_similarity",
}  # fmt: skip
"""Functions of torch that are a reduction or scan; they are the work where no kernel has any."""
_TENSOR_PRODUCTS = {
    "matmul", "mm", "bmm", "addmm", "mv", "addmv", "baddbmm", "addmm_", "addmv_", "baddbmm_", "addbmm", "addbmm_", "__matmul__",
    "__rmatmul__", "__imatmul__", "inner", "addr", "addr_", "outer", "dot", "vdot",
}  # fmt: skip
"""Methods of tensors that are a matrix product."""
_TENSOR_REDUCTIONS = {"softmax", "log_softmax", "cumsum", "cumprod", "logsumexp", "topk", "sort", "argsort", "msort", "median", "cumsum_"}
"""Methods of tensors that are a reduction or scan."""
_POINTWISE = {
    "exp", "exp2", "expm1", "log", "tanh", "sigmoid", "relu", "silu", "gelu", "elu", "leaky_relu", "softplus", "where", "clamp", "sqrt",
    "rsqrt", "pow", "lerp", "addcmul", "addcdiv", "maximum", "minimum", "mul", "add", "sub", "div", "sin", "cos", "logsigmoid", "hardtanh",
}  # fmt: skip
"""Functions of torch and methods of tensors that launch a kernel for each element's own work."""
_REDUCTION_MODULES = re.compile(r"(Log)?Softmax(2d)?$|(Layer|Group|RMS|Instance|Batch)Norm\d?d?$|(Adaptive)?(Max|Avg)Pool\dd$|\w+Loss$")
"""Layers of torch.nn that are a reduction."""
_PRODUCT_MODULES = {"Linear", "LazyLinear", "Bilinear", "NonDynamicallyQuantizableLinear"}
"""Layers of torch.nn that are a matrix product."""
_HEAVY_MODULES = re.compile(r"(Lazy)?(GRU|LSTM|RNN)(Cell|Base)?$|(Lazy)?Conv(Transpose)?\dd$|MultiheadAttention$|Transformer\w*$")
"""Layers of torch.nn that are more than a matrix product."""
_PACKAGES = {
    "flash_attn", "flash_attn_interface", "flash_attn_2_cuda", "xformers", "flashinfer", "sageattention", "transformer_engine", "apex",
    "causal_conv1d", "causal_conv1d_cuda", "mamba_ssm", "selective_scan_cuda", "bitsandbytes", "deep_gemm", "cupy", "jax", "cutlass",
    "torchvision", "torchaudio", "torch_scatter", "torch_sparse", "torch_cluster", "pyg_lib", "natten", "fla", "liger_kernel", "unsloth",
    "vllm", "sgl_kernel", "aiter", "flag_gems", "scipy", "tilelang", "cuequivariance_torch", "fused_dense_lib", "torchao", "kernels",
    "gemlite", "spconv", "tensorrt", "cublas", "cudnn", "nvmath", "onnxruntime",
}  # fmt: skip
"""Packages of kernels by others."""
_OWN_SHARE = 0.5
"""With at least this share of the device time in own kernels, the library does not do the work."""


def find_library_work(index: KernelSource, host: HostCalls, walks: Mapping[str, KernelWalk], facts: LaunchFacts | None) -> TraitHit | None:
    """Library calls that do the work: recurrent, convolution and attention calls, torch.compile, products where no kernel has tl.dot or
    sums products itself, and reductions where no kernel reduces.
    """
    if facts is not None and facts.own_time_share is not None and facts.own_time_share >= _OWN_SHARE:
        return None
    tensors = Tensors(host.values)
    launched = {call.kernel for call in host.calls if call.kernel}
    own = [walk for name, walk in walks.items() if name in launched]
    products = any(walk.has_dot or any(product.summed for product in walk.products) for walk in own)
    reductions = products or any(walk.products or walk.reduces or any(loop.updates for loop in walk.loops.values()) for walk in own)
    accepted = {"product": not products, "reduction": not reductions, "heavy": True}
    found: dict[int, str] = {}
    for call in host.calls:
        kind = find_library_call(call, tensors)
        if kind and accepted[kind[1]]:
            found.setdefault(call.node.lineno, kind[0])
    for call_node in index.calls:
        if index.resolve_name(call_node.func) == "torch.compile":
            found.setdefault(call_node.lineno, "torch.compile")
    launches = bool(launched)
    share = f"; own kernels have {facts.own_time_share:.0%} of the device time" if facts and facts.own_time_share is not None else ""
    if found:
        text = ", ".join(f"{name} (line {line})" for line, name in sorted(found.items())[:8])
        nearest = "" if share or not launches else "a hybrid, if the own kernels take most of the time, which only a measurement says"
        return TraitHit(name=Trait.LIBRARY_PASS_THROUGH, line=min(found), evidence=f"the library computes: {text}{share}", nearest=nearest)
    if "ModelNew" in index.classes and not launches:
        line = index.classes["ModelNew"].lineno
        return TraitHit(name=Trait.LIBRARY_PASS_THROUGH, line=line, evidence="ModelNew.forward launches no Triton kernel of its own")
    return None


def find_library_call(call: Call, tensors: Tensors) -> tuple[str, str] | None:
    """Name of the library's computing function that a call enters, and its kind: `heavy`, `product` or `reduction`."""
    for thing in call.things:
        for name, kind in _read_work(thing, call, tensors):
            return name, kind
    return None


def is_pointwise_call(call: Call, tensors: Tensors) -> bool:
    """Whether a call enters a pointwise function of torch, with a tensor that rests on forward's arguments."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    for thing in call.things:
        parts = thing.name.split(".")
        outside = thing.kind is ThingKind.OUTSIDE and parts[0] == "torch"
        if (outside or thing.kind is ThingKind.METHOD) and parts[-1].rstrip("_") in _POINTWISE:
            given = [*call.node.args, *(word.value for word in call.node.keywords)]
            return any(tensors.is_input(part, call.frame) for part in (given if outside else [owner]))
    return False


def _read_work(thing: Thing, call: Call, tensors: Tensors) -> Iterator[tuple[str, str]]:
    """What a thing computes when it is called, as far as that is the library's."""
    if thing.kind is ThingKind.METHOD:
        if thing.name in _TENSOR_PRODUCTS:
            yield f".{thing.name}", "product"
        elif thing.name in _TENSOR_REDUCTIONS:
            yield f".{thing.name}", "reduction"
    elif thing.kind is ThingKind.OUTSIDE:
        yield from _read_function(thing.name, call, tensors)
    elif thing.kind is ThingKind.MADE:
        yield from _read_module(thing.name)
        for part in thing.parts:
            if part.kind is ThingKind.MADE:
                yield from _read_work(part, call, tensors)


def _read_function(name: str, call: Call, tensors: Tensors) -> Iterator[tuple[str, str]]:
    short = name
    if name.startswith(("torch.", "operator.", "einops.", "numpy.")) or name in _PRODUCTS:
        parts = name.split(".")
        kinds = [(kind, part) for part in reversed(parts[1:]) if (kind := _kind_of(part))]
        if name.startswith("torch.fft."):
            yield name, "heavy"
        elif kinds and kinds[0][1] in parts[-2:]:
            yield "@" if name == "operator.matmul" else short, kinds[0][0]
        elif len(parts) > 2 and parts[-1] in ("forward", "__call__"):
            yield from _read_module(name.rpartition(".")[0])
    elif _gets_tensors_elsewhere(name, call, tensors):
        yield name, "heavy"


def _read_module(name: str) -> Iterator[tuple[str, str]]:
    """What a layer of torch.nn computes."""
    short = name.rpartition(".")[2]
    if not name.startswith("torch."):
        return
    if _HEAVY_MODULES.match(short):
        yield f"nn.{short}", "heavy"
    elif short in _PRODUCT_MODULES:
        yield f"nn.{short}", "product"
    elif _REDUCTION_MODULES.match(short):
        yield f"nn.{short}", "reduction"


def _kind_of(name: str) -> str:
    """What a function of torch is; empty for one that does little."""
    plain = name.rstrip("_")
    if plain in _HEAVY:
        return "heavy"
    return "product" if plain in _PRODUCTS else "reduction" if plain in _REDUCTIONS or plain.lstrip("_") in _REDUCTIONS else ""


def _gets_tensors_elsewhere(name: str, call: Call, tensors: Tensors) -> bool:
    """Whether a function of a package of kernels gets tensors of forward and its result is used."""
    package, *parts = name.split(".")
    if package not in _PACKAGES or not parts or any("util" in part for part in parts):
        return False
    given = [*call.node.args, *(word.value for word in call.node.keywords)]
    return not call.unused and any(tensors.is_input(argument, call.frame) for argument in given)
