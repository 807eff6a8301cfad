"""Modules of 4 to 60 launches: blocks of timm and transformers with random weights, as task files, and an honest candidate for each.

A candidate is the block with its norms and activations replaced by Triton kernels, so it launches several of them beside library calls.
Nothing is downloaded. The libraries are imported by the task files alone, where these are run.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPES = ("float32", "bfloat16")
"""Types of weights and inputs of each block's two modules."""
_BERT = "from transformers.models.bert.modeling_bert import BertConfig as Config, BertLayer as Block"
_SDPA = "config = Config({settings})\n        config._attn_implementation = 'sdpa'\n        self.block = Block({arguments})"
_ROTATE = (
    "self.block(x, position_embeddings=(self.cos.to(x.dtype), self.sin.to(x.dtype)))",
    "\n        angles = torch.arange(128)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)[None, :]"
    "\n        angles = torch.cat([angles, angles], 1)[None]"
    "\n        self.register_buffer('cos', angles.cos(), persistent=False)"
    "\n        self.register_buffer('sin', angles.sin(), persistent=False)",
)


@dataclass(frozen=True)
class Block:
    """One block of a library."""

    name: str
    imports: str
    build: str
    """Statements of `__init__` that make `self.block`."""
    shape: str
    """Of the input."""
    call: str = "self.block(x)"

    def task(self, dtype: str) -> str:
        """Text of the task file in one of `TYPES`."""
        return _TASK.format(block=self, dtype=dtype)

    def candidate(self, dtype: str) -> str:
        """Text of the candidate for it."""
        return _CANDIDATE.format(block=self, dtype=dtype)


def _of_transformers(name: str, imports: str, settings: str = "", arguments: str = "config", **more: str) -> Block:
    build = _SDPA.format(settings=settings, arguments=arguments) + more.pop("after", "")
    return Block(name, imports, build, **{"shape": "8, 128, 768", **more})


def _rotary(name: str, module: str, kind: str) -> Block:
    imports = f"from transformers.models.{module}.modeling_{module} import {kind}Config as Config, {kind}DecoderLayer as Block"
    settings = "hidden_size=768, intermediate_size=2048, num_attention_heads=12, num_key_value_heads=4, head_dim=64, num_hidden_layers=1"
    return _of_transformers(name, imports, settings, "config, layer_idx=0", call=_ROTATE[0], after=_ROTATE[1])


def _hidden(module: str, config: str, layer: str) -> str:
    return f"from transformers.models.{module}.modeling_{module} import {config} as Config, {layer} as Block"


BLOCKS = (
    _of_transformers("bert", _BERT),
    Block("vit", "from timm.models.vision_transformer import Block", "self.block = Block(384, 6, qkv_bias=True)", "16, 197, 384"),
    Block(
        "swin", "from timm.models.swin_transformer import SwinTransformerBlock as Block",
        "self.block = Block(96, (28, 28), num_heads=3, window_size=7, shift_size=3)", "8, 28, 28, 96",
    ),
    _rotary("llama", "llama", "Llama"),
    _of_transformers(
        "whisper", _hidden("whisper", "WhisperConfig", "WhisperEncoderLayer"),
        "d_model=384, encoder_attention_heads=6, encoder_ffn_dim=1536", shape="4, 256, 384", call="self.block(x, None)",
    ),
    _of_transformers("gpt2", _hidden("gpt2", "GPT2Config", "GPT2Block"), arguments="config, layer_idx=0"),
    Block(
        "convnext", "from timm.models.convnext import ConvNeXtBlock as Block", "self.block = Block(96, ls_init_value=None)",
        "8, 96, 56, 56",
    ),
    Block("mixer", "from timm.models.mlp_mixer import MixerBlock as Block", "self.block = Block(512, 196)", "16, 196, 512"),
    Block("beit", "from timm.models.beit import Block", "self.block = Block(384, 6, qkv_bias=True, init_values=0.1)", "16, 197, 384"),
    _rotary("qwen3", "qwen3", "Qwen3"),
    _of_transformers("clip", _hidden("clip", "CLIPVisionConfig", "CLIPEncoderLayer"), shape="16, 50, 768", call="self.block(x, None)"),
    Block("eva", "from timm.models.eva import EvaBlock as Block", "self.block = Block(384, 6, swiglu_mlp=True)", "16, 197, 384"),
    _of_transformers(
        "dinov2", _hidden("dinov2", "Dinov2Config", "Dinov2Layer"), "hidden_size=384, num_attention_heads=6", shape="16, 197, 384",
    ),
    Block(
        "gmlp", "from timm.models.mlp_mixer import SpatialGatingBlock as Block", "self.block = Block(256, 196, mlp_ratio=6)",
        "16, 196, 256",
    ),
    Block("resmlp", "from timm.models.mlp_mixer import ResBlock as Block", "self.block = Block(384, 196)", "16, 196, 384"),
    Block(
        "inverted residual", "from timm.models._efficientnet_blocks import InvertedResidual as Block",
        "self.block = Block(64, 64, exp_ratio=4.0, act_layer=nn.SiLU)", "16, 64, 28, 28",
    ),
    Block("cait", "from timm.models.cait import LayerScaleBlock as Block", "self.block = Block(288, 6, init_values=0.1)", "8, 196, 288"),
    _of_transformers("wav2vec2", _hidden("wav2vec2", "Wav2Vec2Config", "Wav2Vec2EncoderLayer"), shape="4, 249, 768"),
    _of_transformers("opt", _hidden("opt", "OPTConfig", "OPTDecoderLayer"), arguments="config, layer_idx=0"),
    _of_transformers("distilbert", _hidden("distilbert", "DistilBertConfig", "TransformerBlock")),
)  # fmt: skip
"""The first ones are measured; the others stand in for those that a version of the libraries builds in another way."""

_TASK = '''"""The block `{block.name}` of a library in {dtype}, with random weights."""

import torch
from torch import nn

{block.imports}


class Model(nn.Module):
    """Maps x [{block.shape}] to a tensor of the same shape."""

    def __init__(self):
        super().__init__()
        {block.build}
        self.to(torch.{dtype})

    def forward(self, x):
        found = {block.call}
        return found[0] if isinstance(found, tuple) else found


def get_inputs():
    return [torch.randn({block.shape}, dtype=torch.{dtype})]


def get_init_inputs():
    return []
'''

_CANDIDATE = '''import torch
import triton
import triton.language as tl
from torch import nn

{block.imports}


@triton.jit
def norm_rows(x, weight, bias, out, columns, eps, CENTRED: tl.constexpr, SHIFTED: tl.constexpr, BLOCK: tl.constexpr):
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = place < columns
    value = tl.load(x + row * columns + place, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        value = tl.where(inside, value - tl.sum(value, 0) / columns, 0.0)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / columns + eps)
    value = value * tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    if SHIFTED:
        value = value + tl.load(bias + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + place, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def activate(x, out, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if KIND == "erf":
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    elif KIND == "tanh":
        value = value * tl.sigmoid(1.5957691216057308 * (value + 0.044715 * value * value * value))
    elif KIND == "quick":
        value = value * tl.sigmoid(1.702 * value)
    elif KIND == "silu":
        value = value * tl.sigmoid(value)
    else:
        value = tl.maximum(value, 0.0)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


class RowNorm(nn.Module):
    """A layer norm, or a norm by the root mean square, with the weights of another one."""

    def __init__(self, norm, centred):
        super().__init__()
        self.weight, self.centred = norm.weight, centred
        self.register_parameter("bias", getattr(norm, "bias", None))
        self.eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon

    def forward(self, x):
        x = x.contiguous()
        out, columns = torch.empty_like(x), x.shape[-1]
        bias = self.weight if self.bias is None else self.bias
        norm_rows[(x.numel() // columns,)](
            x, self.weight, bias, out, columns, self.eps, CENTRED=self.centred, SHIFTED=self.bias is not None,
            BLOCK=triton.next_power_of_2(columns), num_warps=4,
        )
        return out


class Activation(nn.Module):
    """An activation of every element."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        activate[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), KIND=self.kind, BLOCK=1024, num_warps=4)
        return out


KINDS = {{
    "GELUActivation": "erf", "NewGELUActivation": "tanh", "PytorchGELUTanh": "tanh", "GELUTanh": "tanh", "QuickGELUActivation": "quick",
    "SiLU": "silu", "SiLUActivation": "silu", "ReLU": "relu",
}}


def replace_parts(module):
    for name, part in list(module.named_children()):
        kind = type(part).__name__
        if kind == "LayerNorm" and part.weight is not None and len(part.normalized_shape) == 1:
            setattr(module, name, RowNorm(part, True))
        elif kind.endswith("RMSNorm") and hasattr(part, "variance_epsilon"):
            setattr(module, name, RowNorm(part, False))
        elif kind == "GELU":
            setattr(module, name, Activation("tanh" if getattr(part, "approximate", "none") == "tanh" else "erf"))
        elif kind in KINDS:
            setattr(module, name, Activation(KINDS[kind]))
        else:
            replace_parts(part)


class ModelNew(nn.Module):
    """The block with Triton kernels in the places of norms and activations."""

    def __init__(self):
        super().__init__()
        {block.build}
        replace_parts(self.block)
        self.to(torch.{dtype})

    def forward(self, x):
        found = {block.call}
        return found[0] if isinstance(found, tuple) else found
'''
