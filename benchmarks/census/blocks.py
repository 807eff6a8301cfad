"""Layers and blocks of torchvision, timm, transformers and torch_geometric, small and without weights."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

Case = tuple[str, Callable[[], tuple[nn.Module, Any]]]
"""A name, and what makes the module with its inputs."""


def _import(place: str) -> Any:
    return importlib.import_module(place)


def _image(channels: int, size: int = 14) -> torch.Tensor:
    return torch.randn(2, channels, size, size)


def _tokens(width: int = 32, length: int = 16) -> torch.Tensor:
    return torch.randn(2, length, width)


def list_vision_blocks() -> Iterator[Case]:
    """Blocks of torchvision's models and its operators as layers."""
    resnet, ops, misc = "torchvision.models.resnet", "torchvision.ops", "torchvision.ops.misc"
    yield "torchvision BasicBlock", lambda: (_import(resnet).BasicBlock(16, 16), _image(16))
    yield "torchvision Bottleneck", lambda: (_import(resnet).Bottleneck(32, 8), _image(32))
    yield "torchvision Fire", lambda: (_import("torchvision.models.squeezenet").Fire(16, 4, 8, 8), _image(16))
    yield "torchvision DenseLayer", lambda: (_import("torchvision.models.densenet")._DenseLayer(16, 8, 2, 0.0), [_image(16)])
    yield "torchvision InvertedResidualV2", lambda: (_import("torchvision.models.mobilenetv2").InvertedResidual(16, 16, 1, 4), _image(16))
    yield "torchvision InvertedResidualShuffle", lambda: (
        _import("torchvision.models.shufflenetv2").InvertedResidual(16, 16, 1), _image(16))
    yield "torchvision Inception", lambda: (_import("torchvision.models.googlenet").Inception(16, 8, 4, 8, 4, 8, 8), _image(16))
    yield "torchvision CNBlock", lambda: (_import("torchvision.models.convnext").CNBlock(16, 1e-6, 0.0), _image(16))
    yield "torchvision EncoderBlock", lambda: (
        _import("torchvision.models.vision_transformer").EncoderBlock(4, 32, 64, 0.0, 0.0), _tokens())
    yield "torchvision SwinTransformerBlock", lambda: (
        _import("torchvision.models.swin_transformer").SwinTransformerBlock(32, 4, [7, 7], [3, 3]), torch.randn(2, 14, 14, 32))
    yield "torchvision SwinTransformerBlockV2", lambda: (
        _import("torchvision.models.swin_transformer").SwinTransformerBlockV2(32, 4, [7, 7], [3, 3]), torch.randn(2, 14, 14, 32))
    yield "torchvision PatchMerging", lambda: (_import("torchvision.models.swin_transformer").PatchMerging(16), torch.randn(2, 14, 14, 16))
    yield "torchvision SqueezeExcitation", lambda: (_import(ops).SqueezeExcitation(16, 4), _image(16))
    yield "torchvision FrozenBatchNorm2d", lambda: (_import(ops).FrozenBatchNorm2d(16), _image(16))
    yield "torchvision Conv2dNormActivation", lambda: (_import(misc).Conv2dNormActivation(16, 16), _image(16))
    yield "torchvision MLP", lambda: (_import(ops).MLP(32, [64, 32]), _tokens())
    yield "torchvision StochasticDepth", lambda: (_import(ops).StochasticDepth(0.2, "row"), _image(16))
    yield "torchvision FeaturePyramidNetwork", lambda: (
        _import(ops).FeaturePyramidNetwork([8, 16], 8), {"x": {"a": _image(8, 16), "b": _image(16, 8)}})
    yield "torchvision LRASPPHead", lambda: (
        _import("torchvision.models.segmentation.lraspp").LRASPPHead(8, 16, 4, 16), {"input": {"low": _image(8, 28), "high": _image(16)}})
    yield "torchvision ASPP", lambda: (_import("torchvision.models.segmentation.deeplabv3").ASPP(16, [2, 4], 8), _image(16))
    yield "torchvision RPNHead", lambda: (_import("torchvision.models.detection.rpn").RPNHead(16, 3), {"x": [_image(16), _image(16, 7)]})
    yield "torchvision DeformConv2d", lambda: (_import(ops).DeformConv2d(8, 8, 3, padding=1), (_image(8), _image(18)))


def list_timm_blocks() -> Iterator[Case]:
    """Layers and blocks of timm."""
    layers, vit = "timm.layers", "timm.models.vision_transformer"
    grid = torch.randn(2, 14, 14, 32)
    makes: dict[str, Callable[[Any], Any]] = {
        "Mlp": lambda kit: (kit.Mlp(32, 64), _tokens()), "GluMlp": lambda kit: (kit.GluMlp(32, 64), _tokens()),
        "SwiGLU": lambda kit: (kit.SwiGLU(32, 64), _tokens()), "ConvMlp": lambda kit: (kit.ConvMlp(16, 32), _image(16)),
        "GlobalResponseNormMlp": lambda kit: (kit.GlobalResponseNormMlp(32, 64), grid),
        "PatchEmbed": lambda kit: (kit.PatchEmbed(28, 7, 3, 32), _image(3, 28)),
        "LayerNorm2d": lambda kit: (kit.LayerNorm2d(16), _image(16)), "BatchNormAct2d": lambda kit: (kit.BatchNormAct2d(16), _image(16)),
        "GroupNormAct": lambda kit: (kit.GroupNormAct(16, 4), _image(16)), "RmsNorm": lambda kit: (kit.RmsNorm(32), _tokens()),
        "SEModule": lambda kit: (kit.SEModule(16), _image(16)), "EcaModule": lambda kit: (kit.EcaModule(16), _image(16)),
        "CbamModule": lambda kit: (kit.cbam.CbamModule(16), _image(16)),
        "GatherExcite": lambda kit: (kit.GatherExcite(16, use_mlp=False), _image(16)),
        "GlobalContext": lambda kit: (kit.GlobalContext(16), _image(16)),
        "SelectiveKernel": lambda kit: (kit.SelectiveKernel(16, 16), _image(16)),
        "SplitAttn": lambda kit: (kit.SplitAttn(16), _image(16)), "BlurPool2d": lambda kit: (kit.BlurPool2d(16), _image(16)),
        "AttentionPool2d": lambda kit: (kit.AttentionPool2d(32, feat_size=7, num_heads=4), _image(32, 7)),
        "AttentionPoolLatent": lambda kit: (kit.AttentionPoolLatent(32, num_heads=4), _tokens()),
        "StdConv2d": lambda kit: (kit.StdConv2d(16, 16, 3, padding=1), _image(16)),
        "CondConv2d": lambda kit: (kit.CondConv2d(8, 8, 3, padding=1, num_experts=2), (_image(8), torch.rand(2, 2))),
        "MixedConv2d": lambda kit: (kit.MixedConv2d(16, 16), _image(16)),
        "EvoNorm2dS0": lambda kit: (kit.EvoNorm2dS0(16, groups=4), _image(16)),
        "FilterResponseNormTlu2d": lambda kit: (kit.FilterResponseNormTlu2d(16), _image(16)),
        "LambdaLayer": lambda kit: (kit.lambda_layer.LambdaLayer(16, feat_size=(14, 14), num_heads=2), _image(16)),
        "HaloAttn": lambda kit: (kit.halo_attn.HaloAttn(16, feat_size=(16, 16), num_heads=2, block_size=8, halo_size=2), _image(16, 16)),
        "BottleneckAttn": lambda kit: (kit.bottleneck_attn.BottleneckAttn(16, feat_size=(14, 14), num_heads=2), _image(16)),
        "LayerScale": lambda kit: (kit.LayerScale(32), _tokens()), "DropPath": lambda kit: (kit.DropPath(0.1), _tokens()),
        "SelectAdaptivePool2d": lambda kit: (kit.SelectAdaptivePool2d(pool_type="avgmax"), _image(16)),
        "SpaceToDepth": lambda kit: (kit.SpaceToDepth(4), _image(16, 16)),
    }  # fmt: skip
    for name, make in makes.items():
        yield f"timm {name}", lambda make=make: make(_import(layers))  # type: ignore[misc]
    yield "timm vit Block", lambda: (_import(vit).Block(32, 4), _tokens())
    yield "timm vit Attention", lambda: (_import(vit).Attention(32, 4, qkv_bias=True, qk_norm=True, norm_layer=nn.LayerNorm), _tokens())
    yield "timm MixerBlock", lambda: (_import("timm.models.mlp_mixer").MixerBlock(32, 16), _tokens())
    yield "timm ConvNeXtBlock", lambda: (_import("timm.models.convnext").ConvNeXtBlock(16), _image(16))
    yield "timm EfficientNet InvertedResidual", lambda: (_import("timm.models._efficientnet_blocks").InvertedResidual(16, 16), _image(16))
    yield "timm beit Block", lambda: (_import("timm.models.beit").Block(32, 4, window_size=(4, 4)), _tokens(length=17))
    yield "timm xcit XCA", lambda: (_import("timm.models.xcit").XCA(32, 4), _tokens())
    yield "timm gc GlobalContextVitLayer", lambda: (_import("timm.models.cait").ClassAttn(32, 4), _tokens())


_LAYERS = (("llama", "LlamaMLP"), ("llama", "LlamaRMSNorm"), ("mistral", "MistralMLP"), ("qwen2", "Qwen2MLP"), ("gemma", "GemmaMLP"),
           ("gemma2", "Gemma2MLP"), ("phi", "PhiMLP"), ("phi3", "Phi3MLP"), ("gpt2", "GPT2Block"), ("bert", "BertLayer"),
           ("bert", "BertEmbeddings"), ("bert", "BertPooler"), ("roberta", "RobertaLayer"), ("electra", "ElectraLayer"),
           ("distilbert", "TransformerBlock"), ("t5", "T5LayerFF"), ("t5", "T5LayerNorm"), ("t5", "T5LayerSelfAttention"),
           ("opt", "OPTDecoderLayer"), ("bloom", "BloomMLP"), ("falcon", "FalconMLP"), ("gptj", "GPTJMLP"), ("gpt_neox", "GPTNeoXMLP"),
           ("mixtral", "MixtralSparseMoeBlock"), ("qwen2_moe", "Qwen2MoeSparseMoeBlock"), ("vit", "ViTLayer"), ("clip", "CLIPMLP"),
           ("clip", "CLIPEncoderLayer"), ("whisper", "WhisperEncoderLayer"), ("deberta_v2", "DebertaV2Layer"), ("mamba", "MambaMixer"),
           ("rwkv", "RwkvFeedForward"), ("swin", "SwinLayer"), ("segformer", "SegformerMixFFN"), ("convnext", "ConvNextLayer"),
           ("dinov2", "Dinov2Layer"), ("siglip", "SiglipMLP"), ("wav2vec2", "Wav2Vec2FeedForward"), ("cohere", "CohereLayerNorm"),
           ("olmo", "OlmoMLP"), ("nystromformer", "NystromformerLayer"), ("fnet", "FNetLayer"),
           ("longformer", "LongformerIntermediate"))  # fmt: skip
"""Architecture and class; the class takes a config, or a config and the number of the layer."""
_FIELDS = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
           "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 4, "dim": 32,
           "hidden_dim": 64, "n_heads": 4, "head_dim": 8, "ffn_dim": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 64,
           "attention_hidden_size": 32, "num_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 32, "rotary_dim": 8,
           "shared_expert_intermediate_size": 32, "embedding_size": 32, "word_embed_proj_dim": 32, "state_size": 4,
           "pad_token_id": 0}  # fmt: skip


def list_text_blocks() -> Iterator[Case]:
    """Layers of transformers."""
    for kind, name in _LAYERS:
        yield f"transformers {name}", lambda kind=kind, name=name: _make_layer(kind, name)  # type: ignore[misc]


def _make_layer(kind: str, name: str) -> tuple[nn.Module, Any]:
    config = _import("transformers").AutoConfig.for_model(kind)
    config = getattr(config, "vision_config", config) if kind in ("clip", "siglip") else config
    for field, value in _FIELDS.items():
        if hasattr(config, field):
            with contextlib.suppress(AttributeError):  # of what a config computes
                setattr(config, field, value)
    config._attn_implementation = "sdpa"
    space = _import(f"transformers.models.{kind}.modeling_{kind}")
    build = getattr(space, name)
    special: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
        "LlamaRMSNorm": lambda: (build(32), _tokens()), "T5LayerNorm": lambda: (build(32), _tokens()),
        "CohereLayerNorm": lambda: (build(32), _tokens()), "GPTJMLP": lambda: (build(64, config), _tokens()),
        "BertEmbeddings": lambda: (build(config), torch.randint(1, 100, (2, 16))), "MambaMixer": lambda: (build(config, 0), _tokens()),
        "BloomMLP": lambda: (build(config), (_tokens(), _tokens())),
        "OPTDecoderLayer": lambda: (build(config, 0), _tokens()), "GPT2Block": lambda: (build(config, 0), _tokens()),
        "CLIPEncoderLayer": lambda: (build(config), (_tokens(), None)), "WhisperEncoderLayer": lambda: (build(config), (_tokens(), None)),
        "DebertaV2Layer": lambda: (build(config), (_tokens(), torch.ones(2, 1, 16, 16))),
        "SwinLayer": lambda: (build(config, 32, (14, 14), 4), (_tokens(32, 196), (14, 14))),
        "SegformerMixFFN": lambda: (build(config, 32, 64), (_tokens(32, 196), 14, 14)),
        "ConvNextLayer": lambda: (build(config, 16), _image(16)), "RwkvFeedForward": lambda: (build(config, 0), _tokens()),
    }  # fmt: skip
    return special[name]() if name in special else (build(config), _tokens())


_CONVOLUTIONS = ("GATv2Conv", "TransformerConv", "ARMAConv", "LEConv", "ClusterGCNConv", "FeaStConv", "FiLMConv", "GeneralConv", "MFConv",
                 "ResGatedGraphConv", "SuperGATConv", "GCN2Conv", "APPNP", "SSGConv", "MixHopConv", "GatedGraphConv", "EGConv", "PNAConv",
                 "NNConv", "CGConv", "GMMConv", "RGCNConv", "PointNetConv", "DynamicEdgeConv", "EdgeConv", "HypergraphConv")  # fmt: skip


def list_graph_blocks() -> Iterator[Case]:
    """Convolutions, norms, pools and small models of torch_geometric."""
    space = "torch_geometric.nn"
    nodes, batch = torch.randn(12, 16), torch.tensor([0] * 5 + [1] * 7)
    edges = torch.randint(0, 12, (2, 40))

    def convolution(name: str) -> tuple[nn.Module, Any]:
        kit = _import(space)
        build = getattr(kit, name)
        special: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
            "GCN2Conv": lambda: (build(16, 0.1), (nodes, torch.randn(12, 16), edges)), "APPNP": lambda: (build(3, 0.1), (nodes, edges)),
            "SSGConv": lambda: (build(16, 8, 0.1, 3), (nodes, edges)), "GatedGraphConv": lambda: (build(16, 2), (nodes, edges)),
            "EGConv": lambda: (build(16, 8, num_heads=4), (nodes, edges)),
            "PNAConv": lambda: (build(16, 8, ["mean", "max"], ["identity", "amplification"], torch.tensor([0, 3, 5, 4])), (nodes, edges)),
            "NNConv": lambda: (build(16, 8, nn.Linear(4, 128)), (nodes, edges, torch.randn(40, 4))),
            "CGConv": lambda: (build(16), (nodes, edges)), "GMMConv": lambda: (build(16, 8, 2, 3), (nodes, edges, torch.rand(40, 2))),
            "RGCNConv": lambda: (build(16, 8, 3), (nodes, edges, torch.randint(0, 3, (40,)))),
            "PointNetConv": lambda: (build(nn.Linear(19, 8)), (nodes, torch.randn(12, 3), edges)),
            "DynamicEdgeConv": lambda: (build(nn.Linear(32, 8), 3), (nodes, batch)),
            "EdgeConv": lambda: (build(nn.Linear(32, 8)), (nodes, edges)),
        }  # fmt: skip
        return special[name]() if name in special else (build(16, 8), (nodes, edges))

    for name in _CONVOLUTIONS:
        yield f"torch_geometric {name}", lambda name=name: convolution(name)  # type: ignore[misc]
    norms = ("BatchNorm", "InstanceNorm", "LayerNorm", "GraphNorm", "PairNorm", "GraphSizeNorm", "MeanSubtractionNorm", "DiffGroupNorm")
    for name in norms:
        more: tuple[Any, ...] = {"PairNorm": (), "GraphSizeNorm": (), "MeanSubtractionNorm": (), "DiffGroupNorm": (16, 4)}.get(name, (16,))
        call = (nodes,) if name in ("BatchNorm", "DiffGroupNorm") else (nodes, batch)
        yield f"torch_geometric {name}", lambda name=name, more=more, call=call: (getattr(_import(space), name)(*more), call)  # type: ignore[misc]
    yield "torch_geometric MLP", lambda: (_import(space).MLP([16, 32, 8]), nodes)
    yield "torch_geometric GCN", lambda: (_import(space).GCN(16, 8, 2), (nodes, edges))
    yield "torch_geometric GIN", lambda: (_import(space).GIN(16, 8, 2), (nodes, edges))
    yield "torch_geometric TopKPooling", lambda: (_import(space).TopKPooling(16), (nodes, edges))
    yield "torch_geometric JumpingKnowledge", lambda: (_import(space).JumpingKnowledge("lstm", 16, 2), {"xs": [nodes, nodes + 1]})
    yield "torch_geometric DenseGCNConv", lambda: (_import(space).DenseGCNConv(16, 8), (torch.randn(2, 12, 16), torch.ones(2, 12, 12)))
