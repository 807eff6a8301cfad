"""The list: each case is a module with inputs, written out as a task file. Libraries give architectures, never weights."""

from __future__ import annotations

from dataclasses import dataclass

_TASK = '''"""{title}."""

import torch
import torch.nn.functional as F
from torch import nn
{imports}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{build}

    def forward(self, {arguments}):
{forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
'''
_TYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}


@dataclass(frozen=True)
class Case:
    """One module.

    Args:
        name: of the task's file.
        type: of its weights and floating inputs: `bf16`, `fp16` or `fp32`.
        title: what it is, with its sizes.
        inputs: expressions by argument name; `T` is the type.
        build: lines of the constructor; the module is cast to the type behind them.
        forward: lines of forward.
        imports: lines ahead of the class.
        library: what must be installed besides torch.
    """

    name: str
    type: str
    title: str
    inputs: dict[str, str]
    build: str
    forward: str
    imports: str = ""
    library: str = ""

    def write(self) -> str:
        """The text of the task file."""
        type_ = _TYPES[self.type]
        cast = "" if self.type == "fp32" else f"\nself.to({type_})"
        imports = self.imports.strip().replace("\n", "\n")
        return _TASK.format(
            title=f"{self.title}, {self.type}",
            imports=f"{imports}\n" if imports else "",
            build=_indent(self.build.strip() + cast),
            arguments=", ".join(self.inputs),
            forward=_indent(self.forward),
            inputs=", ".join(value.replace("T", type_) if value.endswith("T)") else value for value in self.inputs.values()),
        )


def _indent(lines: str) -> str:
    return "\n".join(" " * 8 + line for line in lines.strip().splitlines())


def _draw(*shape: int) -> str:
    return f"torch.randn({', '.join(map(str, shape))}, dtype=T)"


def _ids(most: int, *shape: int) -> str:
    return f"torch.randint(0, {most}, ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''}))"


def _timm(name: str, type_: str, model: str, batch: int, size: int = 224, options: str = "") -> Case:
    """A whole network of timm."""
    return Case(
        name,
        type_,
        f"timm's {model}, batch {batch}",
        {"x": _draw(batch, 3, size, size)},
        f'self.net = timm.create_model("{model}"{options})',
        "return self.net(x)",
        "import timm",
        "timm",
    )


def _block(name: str, type_: str, title: str, inputs: dict[str, str], build: str, imports: str, library: str) -> Case:
    """One block of a library, called with its inputs."""
    return Case(name, type_, title, inputs, f"self.block = {build}", f"return self.block({', '.join(inputs)})", imports, library)


_LLAMA = "from transformers import LlamaConfig\nfrom transformers.models.llama import modeling_llama as llama"
_LLAMA_SIZES = (
    'LlamaConfig(hidden_size=2048, intermediate_size=5632, num_attention_heads=16, num_key_value_heads=4, attn_implementation="sdpa")'
)
_VISION = "from torchvision import models"
_ROPE = """
self.config = {config}
self.layer = {layer}
self.rotary = {rotary}
"""

TRANSFORMERS = (
    _block(
        "llama_mlp",
        "bf16",
        "Llama MLP, 4 x 512 tokens of 2048",
        {"x": _draw(4, 512, 2048)},
        f"llama.LlamaMLP({_LLAMA_SIZES})",
        _LLAMA,
        "transformers",
    ),
    _block(
        "llama_norm",
        "bf16",
        "Llama RMSNorm, 8192 rows of 4096",
        {"x": _draw(8192, 4096)},
        "llama.LlamaRMSNorm(4096)",
        _LLAMA,
        "transformers",
    ),
    Case(
        "llama_layer",
        "bf16",
        "Llama decoder layer, 2 x 512 tokens of 2048, grouped heads",
        {"x": _draw(2, 512, 2048)},
        _ROPE.format(
            config=_LLAMA_SIZES, layer="llama.LlamaDecoderLayer(self.config, 0)", rotary="llama.LlamaRotaryEmbedding(self.config)"
        ),
        "places = torch.arange(x.shape[1], device=x.device)[None]\n"
        "out = self.layer(x, position_embeddings=self.rotary(x, places))\n"
        "return out[0] if isinstance(out, tuple) else out",
        _LLAMA,
        "transformers",
    ),
    Case(
        "qwen_layer",
        "bf16",
        "Qwen2 decoder layer, 1 x 1024 tokens of 1536",
        {"x": _draw(1, 1024, 1536)},
        _ROPE.format(
            config="Qwen2Config(hidden_size=1536, intermediate_size=4096, num_attention_heads=12, num_key_value_heads=2,"
            ' attn_implementation="sdpa")',
            layer="qwen2.Qwen2DecoderLayer(self.config, 0)",
            rotary="qwen2.Qwen2RotaryEmbedding(self.config)",
        ),
        "places = torch.arange(x.shape[1], device=x.device)[None]\n"
        "out = self.layer(x, position_embeddings=self.rotary(x, places))\n"
        "return out[0] if isinstance(out, tuple) else out",
        "from transformers import Qwen2Config\nfrom transformers.models.qwen2 import modeling_qwen2 as qwen2",
        "transformers",
    ),
    _block(
        "bert_layer",
        "fp16",
        "BERT layer, 16 x 256 tokens of 768",
        {"x": _draw(16, 256, 768)},
        'bert.BertLayer(BertConfig(attn_implementation="sdpa"))',
        "from transformers import BertConfig\nfrom transformers.models.bert import modeling_bert as bert",
        "transformers",
    ),
    _block(
        "gpt2_block",
        "bf16",
        "GPT-2 block, 8 x 512 tokens of 768",
        {"x": _draw(8, 512, 768)},
        'gpt2.GPT2Block(GPT2Config(attn_implementation="sdpa"), 0)',
        "from transformers import GPT2Config\nfrom transformers.models.gpt2 import modeling_gpt2 as gpt2",
        "transformers",
    ),
    Case(
        "gpt2_block_fp32",
        "fp32",
        "GPT-2 block, 4 x 256 tokens of 768",
        {"x": _draw(4, 256, 768)},
        'self.block = gpt2.GPT2Block(GPT2Config(attn_implementation="sdpa"), 0)',
        "out = self.block(x)\nreturn out[0] if isinstance(out, tuple) else out",
        "from transformers import GPT2Config\nfrom transformers.models.gpt2 import modeling_gpt2 as gpt2",
        "transformers",
    ),
    _block(
        "t5_mlp",
        "bf16",
        "T5 gated MLP with its norm, 8 x 512 tokens of 1024",
        {"x": _draw(8, 512, 1024)},
        't5.T5LayerFF(T5Config(d_model=1024, d_ff=2816, feed_forward_proj="gated-gelu"))',
        "from transformers import T5Config\nfrom transformers.models.t5 import modeling_t5 as t5",
        "transformers",
    ),
    _block(
        "whisper_mlp_norm",
        "fp16",
        "WavLM-like feed forward, 8 x 500 frames of 768",
        {"x": _draw(8, 500, 768)},
        "wav2vec2.Wav2Vec2FeedForward(Wav2Vec2Config())",
        "from transformers import Wav2Vec2Config\nfrom transformers.models.wav2vec2 import modeling_wav2vec2 as wav2vec2",
        "transformers",
    ),
    _block(
        "mamba_mixer",
        "fp32",
        "Mamba mixer, 8 x 128 steps of 256",
        {"x": _draw(8, 128, 256)},
        "mamba.MambaMixer(MambaConfig(hidden_size=256, state_size=16, num_hidden_layers=1, intermediate_size=512, time_step_rank=16), 0)",
        "from transformers import MambaConfig\nfrom transformers.models.mamba import modeling_mamba as mamba",
        "transformers",
    ),
    _block(
        "clip_mlp",
        "fp16",
        "CLIP MLP with quick GELU, 32 x 257 tokens of 1024",
        {"x": _draw(32, 257, 1024)},
        "clip.CLIPMLP(CLIPVisionConfig(hidden_size=1024, intermediate_size=4096, num_attention_heads=16))",
        "from transformers import CLIPVisionConfig\nfrom transformers.models.clip import modeling_clip as clip",
        "transformers",
    ),
    _block(
        "bert_pooler_head",
        "fp32",
        "BERT's head over 30522 words, 8 x 64 tokens",
        {"x": _draw(8, 64, 768)},
        "bert.BertLMPredictionHead(BertConfig())",
        "from transformers import BertConfig\nfrom transformers.models.bert import modeling_bert as bert",
        "transformers",
    ),
)

TIMM = (
    _block(
        "convnext_block",
        "bf16",
        "ConvNeXt block, 32 x 192 x 28 x 28",
        {"x": _draw(32, 192, 28, 28)},
        "convnext.ConvNeXtBlock(192)",
        "from timm.models import convnext",
        "timm",
    ),
    _block(
        "convnext_block_fp32",
        "fp32",
        "ConvNeXt block, 16 x 96 x 56 x 56",
        {"x": _draw(16, 96, 56, 56)},
        "convnext.ConvNeXtBlock(96)",
        "from timm.models import convnext",
        "timm",
    ),
    _block(
        "vit_block",
        "bf16",
        "ViT block, 32 x 197 tokens of 768",
        {"x": _draw(32, 197, 768)},
        "vit.Block(768, 12, qkv_bias=True)",
        "from timm.models import vision_transformer as vit",
        "timm",
    ),
    _block(
        "vit_block_fp32",
        "fp32",
        "ViT block, 16 x 197 tokens of 384",
        {"x": _draw(16, 197, 384)},
        "vit.Block(384, 6, qkv_bias=True)",
        "from timm.models import vision_transformer as vit",
        "timm",
    ),
    _block(
        "swin_block",
        "fp16",
        "Swin block, 32 x 56 x 56 x 96, shifted",
        {"x": _draw(32, 56, 56, 96)},
        "swin.SwinTransformerBlock(96, (56, 56), 3, window_size=7, shift_size=3)",
        "from timm.models import swin_transformer as swin",
        "timm",
    ),
    _block(
        "mixer_block",
        "bf16",
        "MLP-Mixer block, 64 x 196 tokens of 512",
        {"x": _draw(64, 196, 512)},
        "mixer.MixerBlock(512, 196)",
        "from timm.models import mlp_mixer as mixer",
        "timm",
    ),
    _block(
        "squeeze_excite",
        "fp16",
        "Squeeze and excite, 64 x 256 x 28 x 28",
        {"x": _draw(64, 256, 28, 28)},
        "SEModule(256)",
        "from timm.layers import SEModule",
        "timm",
    ),
    _block(
        "layer_norm_2d",
        "fp16",
        "LayerNorm over channels, 32 x 256 x 56 x 56",
        {"x": _draw(32, 256, 56, 56)},
        "LayerNorm2d(256)",
        "from timm.layers import LayerNorm2d",
        "timm",
    ),
    _block(
        "mbconv",
        "fp32",
        "MBConv with squeeze and excite, 16 x 48 x 56 x 56",
        {"x": _draw(16, 48, 56, 56)},
        "blocks.InvertedResidual(48, 48, exp_ratio=6.0, se_layer=blocks.SqueezeExcite)",
        "from timm.models import _efficientnet_blocks as blocks",
        "timm",
    ),
    _block(
        "swiglu",
        "bf16",
        "SwiGLU block, 16 x 1024 tokens of 1024",
        {"x": _draw(16, 1024, 1024)},
        "SwiGLU(1024, 2816)",
        "from timm.layers import SwiGLU",
        "timm",
    ),
    _timm("vit_tiny", "bf16", "vit_tiny_patch16_224", 16),
    _timm("resnet18_bf16", "bf16", "resnet18", 32),
    _timm("mobilenet_v3", "fp32", "mobilenetv3_small_100", 16),
    _timm("mixer_s32", "fp32", "mixer_s32_224", 16),
    _timm("convnext_atto", "fp16", "convnext_atto", 16),
    _timm("resmlp_12", "fp32", "resmlp_12_224", 8),
)

TORCHVISION = (
    _block(
        "resnet_bottleneck",
        "fp16",
        "ResNet bottleneck, 32 x 256 x 56 x 56",
        {"x": _draw(32, 256, 56, 56)},
        "models.resnet.Bottleneck(256, 64)",
        _VISION,
        "torchvision",
    ),
    _block(
        "inverted_residual",
        "fp32",
        "MobileNet v2 block, 16 x 32 x 56 x 56",
        {"x": _draw(16, 32, 56, 56)},
        "models.mobilenetv2.InvertedResidual(32, 32, 1, 6)",
        _VISION,
        "torchvision",
    ),
    _block(
        "dense_layer",
        "fp32",
        "DenseNet layer, 16 x 256 x 28 x 28",
        {"x": _draw(16, 256, 28, 28)},
        "models.densenet._DenseLayer(256, 32, 4, 0.0)",
        _VISION,
        "torchvision",
    ),
    Case(
        "squeezenet",
        "fp32",
        "SqueezeNet 1.1, batch 16",
        {"x": _draw(16, 3, 224, 224)},
        "self.net = models.squeezenet1_1()",
        "return self.net(x)",
        _VISION,
        "torchvision",
    ),
    Case(
        "shufflenet",
        "fp16",
        "ShuffleNet v2, batch 32",
        {"x": _draw(32, 3, 224, 224)},
        "self.net = models.shufflenet_v2_x1_0()",
        "return self.net(x)",
        _VISION,
        "torchvision",
    ),
    Case(
        "box_iou",
        "fp32",
        "Pairwise IoU of 4096 and 4096 boxes",
        {"a": _draw(4096, 4), "b": _draw(4096, 4)},
        "pass",
        "one, two = (torch.cat([c[:, :2], c[:, :2] + c[:, 2:].abs()], 1) for c in (a, b))\nreturn ops.box_iou(one, two)",
        "from torchvision import ops",
        "torchvision",
    ),
)

OWN = (
    Case(
        "unet_block",
        "fp16",
        "Diffusion UNet residual block, 8 x 320 to 640 channels at 32 x 32",
        {"x": _draw(8, 320, 32, 32), "t": _draw(8, 1280)},
        "self.n1, self.c1 = nn.GroupNorm(32, 320), nn.Conv2d(320, 640, 3, padding=1)\nself.t = nn.Linear(1280, 640)\n"
        "self.n2, self.c2 = nn.GroupNorm(32, 640), nn.Conv2d(640, 640, 3, padding=1)\nself.skip = nn.Conv2d(320, 640, 1)",
        "h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]\nreturn self.skip(x) + self.c2(F.silu(self.n2(h)))",
    ),
    Case(
        "conv_bn_relu",
        "bf16",
        "Convolution, batch norm, ReLU, twice, 32 x 128 x 28 x 28",
        {"x": _draw(32, 128, 28, 28)},
        "self.net = nn.Sequential(nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU(),\n"
        "                         nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU())",
        "return self.net(x)",
    ),
    Case(
        "router_top6",
        "bf16",
        "Expert router, 8192 tokens of 2048, 6 of 64",
        {"x": _draw(8192, 2048)},
        "self.gate = nn.Linear(2048, 64, bias=False)",
        "p = self.gate(x).float().softmax(-1)\nw, i = torch.topk(p, 6, dim=-1)\nreturn w / w.sum(-1, keepdim=True), i",
    ),
    Case(
        "router_top2_fp32",
        "fp32",
        "Expert router with bias, 4096 tokens of 1024, 2 of 16",
        {"x": _draw(4096, 1024)},
        "self.gate = nn.Linear(1024, 16)",
        "s = torch.sigmoid(self.gate(x))\nw, i = s.topk(2, dim=-1)\nreturn w / w.sum(-1, keepdim=True), i",
    ),
    Case(
        "norm_residual_int8",
        "bf16",
        "Residual, RMSNorm and int8 by row, 8192 x 4096",
        {"x": _draw(8192, 4096), "residual": _draw(8192, 4096)},
        "self.weight = nn.Parameter(torch.ones(4096))",
        "r = x + residual\nh = r.float()\nh = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight.float()\n"
        "s = h.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0\nreturn torch.round(h / s).clamp(-128, 127).to(torch.int8), s, r",
    ),
    Case(
        "residual_layer_norm",
        "bf16",
        "Bias, dropout off, residual, LayerNorm, 16384 x 1024",
        {"x": _draw(16384, 1024), "residual": _draw(16384, 1024)},
        "self.bias, self.norm = nn.Parameter(torch.zeros(1024)), nn.LayerNorm(1024)",
        "r = x + self.bias + residual\nreturn self.norm(r), r",
    ),
    Case(
        "decode_attention",
        "bf16",
        "One query token on 4096 keys, 32 heads on 8",
        {"q": _draw(16, 32, 1, 128), "k": _draw(16, 8, 4096, 128), "v": _draw(16, 8, 4096, 128)},
        "pass",
        "return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
    ),
    Case(
        "causal_attention",
        "bf16",
        "Causal attention with projections, 4 x 1024 tokens of 1024",
        {"x": _draw(4, 1024, 1024)},
        "self.qkv, self.out = nn.Linear(1024, 3072, bias=False), nn.Linear(1024, 1024, bias=False)",
        "q, k, v = (c.unflatten(-1, (16, 64)).transpose(1, 2) for c in self.qkv(x).chunk(3, -1))\n"
        "h = F.scaled_dot_product_attention(q, k, v, is_causal=True)\nreturn self.out(h.transpose(1, 2).flatten(-2))",
    ),
    Case(
        "cross_entropy",
        "bf16",
        "Cross entropy of 4096 tokens over 128256 classes",
        {"x": _draw(4096, 128256), "y": _ids(128256, 4096)},
        "pass",
        "return F.cross_entropy(x.float(), y)",
    ),
    Case(
        "int8_linear",
        "bf16",
        "Linear with int8 weights and scales by group of 128, 16 x 4096 to 4096",
        {"x": _draw(16, 4096)},
        'self.register_buffer("weight", torch.randint(-127, 127, (4096, 4096), dtype=torch.int8))\n'
        "self.scale = nn.Parameter(torch.rand(4096, 32) * 0.01)",
        "w = self.weight.unflatten(1, (32, 128)).to(x.dtype) * self.scale[:, :, None].to(x.dtype)\nreturn F.linear(x, w.flatten(1))",
    ),
    Case(
        "rotary",
        "bf16",
        "Rotary embedding of queries, 4 x 32 x 2048 x 128",
        {"q": _draw(4, 32, 2048, 128), "cos": _draw(2048, 128), "sin": _draw(2048, 128)},
        "pass",
        "half = torch.cat([-q[..., 64:], q[..., :64]], -1)\nreturn q * cos + half * sin",
    ),
    Case(
        "gated_conv_1d",
        "fp32",
        "WaveNet layer: two dilated 1-d convolutions, gate, residual",
        {"x": _draw(8, 128, 4096)},
        "self.f, self.g = (nn.Conv1d(128, 128, 3, dilation=4, padding=4) for _ in range(2))\nself.o = nn.Conv1d(128, 128, 1)",
        "return x + self.o(torch.tanh(self.f(x)) * torch.sigmoid(self.g(x)))",
    ),
    Case(
        "conformer_conv",
        "fp16",
        "Conformer convolution module, 16 x 512 frames of 512",
        {"x": _draw(16, 512, 512)},
        "self.norm, self.p1 = nn.LayerNorm(512), nn.Conv1d(512, 1024, 1)\n"
        "self.d, self.bn, self.p2 = nn.Conv1d(512, 512, 31, padding=15, groups=512), nn.BatchNorm1d(512), nn.Conv1d(512, 512, 1)",
        "h = F.glu(self.p1(self.norm(x).transpose(1, 2)), dim=1)\nreturn x + self.p2(F.silu(self.bn(self.d(h)))).transpose(1, 2)",
    ),
    Case(
        "lstm_tagger",
        "fp32",
        "Embedding, 2 layers of LSTM both ways, linear",
        {"ids": _ids(30000, 32, 200)},
        "self.emb = nn.Embedding(30000, 256)\nself.lstm = nn.LSTM(256, 256, num_layers=2, batch_first=True, bidirectional=True)\n"
        "self.out = nn.Linear(512, 48)",
        "h, _ = self.lstm(self.emb(ids))\nreturn self.out(h).log_softmax(-1)",
    ),
    Case(
        "gru_classifier",
        "fp32",
        "GRU over 128 steps, last state, linear",
        {"x": _draw(64, 128, 80)},
        "self.gru, self.out = nn.GRU(80, 256, batch_first=True), nn.Linear(256, 35)",
        "h, last = self.gru(x)\nreturn self.out(last[-1])",
    ),
    Case(
        "encoder_layer",
        "fp32",
        "torch's encoder layer, pre-norm, 32 x 256 tokens of 512",
        {"x": _draw(32, 256, 512)},
        'self.layer = nn.TransformerEncoderLayer(512, 8, 2048, activation="gelu", batch_first=True, norm_first=True)',
        "return self.layer(x)",
    ),
    Case(
        "kmeans",
        "fp32",
        "Assignment of 100000 points to 1024 centres of 64",
        {"x": _draw(100000, 64)},
        "self.centres = nn.Parameter(torch.randn(1024, 64))",
        "return torch.cdist(x, self.centres).min(dim=1).values",
    ),
    Case(
        "spiking",
        "fp32",
        "Leaky spiking layer, 100 steps of 128 x 512",
        {"x": _draw(100, 128, 512)},
        "self.fc = nn.Linear(512, 512)",
        "v, spikes = torch.zeros_like(x[0]), []\n"
        "for step in range(x.shape[0]):\n"
        "    v = 0.9 * v + self.fc(x[step])\n"
        "    spikes.append((v > 1.0).to(v.dtype))\n"
        "    v = v - spikes[-1]\n"
        "return torch.stack(spikes).mean(0), v",
    ),
    Case(
        "contrastive",
        "fp32",
        "Contrastive loss of 2048 pairs of 512",
        {"a": _draw(2048, 512), "b": _draw(2048, 512)},
        "self.scale = nn.Parameter(torch.tensor(2.0))",
        "s = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T * self.scale.exp()\ny = torch.arange(s.shape[0], device=s.device)\n"
        "return (F.cross_entropy(s, y) + F.cross_entropy(s.T, y)) / 2",
    ),
    Case(
        "graph_conv",
        "fp32",
        "Graph convolution, 20000 nodes of 128, 200000 edges",
        {"x": _draw(20000, 128), "src": _ids(20000, 200000), "dst": _ids(20000, 200000)},
        "self.lin = nn.Linear(128, 128)",
        "h = self.lin(x)\nout = torch.zeros_like(h).index_add(0, dst, h[src])\n"
        "count = torch.zeros(h.shape[0], device=h.device).index_add(0, dst, torch.ones_like(dst, dtype=h.dtype))\n"
        "return F.relu(out / count.clamp(min=1)[:, None])",
    ),
    Case(
        "recommender",
        "fp32",
        "26 tables, two MLPs, pairwise products",
        {"dense": "torch.rand(2048, 13)", "ids": _ids(100000, 2048, 26)},
        "self.emb = nn.ModuleList(nn.Embedding(100000, 64) for _ in range(26))\n"
        "self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())\n"
        "self.top = nn.Sequential(nn.Linear(64 + 351, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))\n"
        'i, j = torch.tril_indices(27, 27, offset=-1)\nself.register_buffer("i", i)\nself.register_buffer("j", j)',
        "x = self.bottom(dense)\nt = torch.stack([x] + [m(ids[:, k]) for k, m in enumerate(self.emb)], dim=1)\n"
        "z = torch.bmm(t, t.transpose(1, 2))[:, self.i, self.j]\nreturn torch.sigmoid(self.top(torch.cat([x, z], dim=1)))",
    ),
    Case(
        "mlp_policy",
        "fp32",
        "Policy of three layers with tanh, batch 256",
        {"x": _draw(256, 64)},
        "self.net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 12))",
        "return self.net(x)",
    ),
    Case(
        "nerf",
        "fp16",
        "NeRF's MLP with sines and cosines, 65536 points",
        {"p": _draw(65536, 3)},
        "self.a = nn.Sequential(nn.Linear(63, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))",
        "f = (p[:, :, None] * 2.0 ** torch.arange(10, device=p.device, dtype=p.dtype)).flatten(1)\n"
        "return self.a(torch.cat([p, f.sin(), f.cos()], -1))",
    ),
    Case(
        "focal_loss",
        "fp32",
        "Sigmoid focal loss, 16 x 80 x 64 x 64",
        {"x": _draw(16, 80, 64, 64), "y": "torch.randint(0, 2, (16, 80, 64, 64)).float()"},
        "pass",
        'p = torch.sigmoid(x)\nce = F.binary_cross_entropy_with_logits(x, y, reduction="none")\npt = p * y + (1 - p) * (1 - y)\n'
        "return ((0.25 * y + 0.75 * (1 - y)) * ce * (1 - pt) ** 2).mean()",
    ),
    Case(
        "gauss_blur",
        "fp32",
        "Separable Gaussian blur and difference, 8 x 3 x 512 x 512",
        {"x": _draw(8, 3, 512, 512)},
        'g = torch.exp(-torch.linspace(-2, 2, 9) ** 2)\nself.register_buffer("k", (g / g.sum()).repeat(3, 1, 1, 1))',
        'h = F.conv2d(F.pad(x, (4, 4, 0, 0), mode="reflect"), self.k, groups=3)\n'
        'h = F.conv2d(F.pad(h, (0, 0, 4, 4), mode="reflect"), self.k.transpose(2, 3), groups=3)\nreturn x + 0.5 * (x - h)',
    ),
    Case(
        "ssim_stats",
        "fp32",
        "Local means and variances by pooling, 16 x 3 x 256 x 256",
        {"x": _draw(16, 3, 256, 256), "y": _draw(16, 3, 256, 256)},
        "pass",
        "m, n = F.avg_pool2d(x, 7, 1), F.avg_pool2d(y, 7, 1)\nv = F.avg_pool2d(x * x, 7, 1) - m * m\n"
        "w = F.avg_pool2d(y * y, 7, 1) - n * n\n"
        "c = F.avg_pool2d(x * y, 7, 1) - m * n\n"
        "return ((2 * m * n + 1e-2) * (2 * c + 1e-2) / ((m * m + n * n + 1e-2) * (v + w + 1e-2))).mean()",
    ),
    Case(
        "ema_quantiser",
        "fp32",
        "Nearest code of 512 for 16384 vectors, and the code",
        {"x": _draw(16384, 64)},
        "self.codes = nn.Parameter(torch.randn(512, 64))",
        "d = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.codes.T + self.codes.pow(2).sum(1)\ni = d.argmin(1)\nreturn self.codes[i], i",
    ),
    Case(
        "lora_linear",
        "bf16",
        "Linear with a low-rank branch, 4096 tokens of 2048",
        {"x": _draw(4096, 2048)},
        "self.base = nn.Linear(2048, 2048, bias=False)\nself.a, self.b = nn.Linear(2048, 16, bias=False), nn.Linear(16, 2048, bias=False)",
        "return self.base(x) + 2.0 * self.b(self.a(x))",
    ),
    Case(
        "geglu",
        "fp16",
        "GEGLU of a diffusion transformer, 8 x 1024 tokens of 640",
        {"x": _draw(8, 1024, 640)},
        "self.i, self.o = nn.Linear(640, 5120), nn.Linear(2560, 640)",
        "h, g = self.i(x).chunk(2, -1)\nreturn self.o(h * F.gelu(g))",
    ),
    Case(
        "adaln",
        "bf16",
        "Adaptive LayerNorm with scale, shift and gate, 8 x 1024 tokens of 1152",
        {"x": _draw(8, 1024, 1152), "c": _draw(8, 1152)},
        "self.norm, self.m = nn.LayerNorm(1152, elementwise_affine=False), nn.Linear(1152, 3456)",
        "shift, scale, gate = self.m(F.silu(c))[:, None].chunk(3, -1)\nreturn x + gate * (self.norm(x) * (1 + scale) + shift)",
    ),
)

CASES = (*TRANSFORMERS, *TIMM, *TORCHVISION, *OWN)
"""All of the list; half and more of it in bf16 or fp16."""
