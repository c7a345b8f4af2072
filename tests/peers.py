"""The same Vision Transformer in timm, torchvision and transformers, with our weights under their names."""

from functools import partial
from typing import TypeVar

import timm
import timm.models.deit
import torch
import transformers
from torch import Tensor, nn
from torchvision.models import VisionTransformer

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.patches import as_pair
from vit_tutorial.weights.names import TIMM, TORCHVISION, TRANSFORMERS_4, TRANSFORMERS_5, rename

Module = TypeVar("Module", bound=nn.Module)


def timm_vit(c: ViTConfig) -> nn.Module:
    kind = timm.models.deit.VisionTransformerDistilled if c.pool == "distilled" else timm.models.VisionTransformer
    return kind(
        img_size=c.image_size, patch_size=c.patch_size, in_chans=c.in_channels, num_classes=c.num_classes,
        embed_dim=c.dim, depth=c.depth, num_heads=c.num_heads, mlp_ratio=c.mlp_dim / c.dim, qkv_bias=c.qkv_bias,
        class_token=c.pool != "mean", global_pool="avg" if c.pool == "mean" else "token",
        fc_norm=False,  # timm's mean pooling would norm after the pool
        pos_embed="none" if c.position == "none" else "learn", norm_layer=partial(nn.LayerNorm, eps=c.norm_eps),
        act_layer=partial(nn.GELU, approximate={"exact": "none", "tanh": "tanh"}[c.gelu]),
    )  # fmt: skip


def torchvision_vit(c: ViTConfig) -> nn.Module:
    return VisionTransformer(
        c.image_size, c.patch_size, c.depth, c.num_heads, c.dim, c.mlp_dim, num_classes=c.num_classes,
        norm_layer=partial(nn.LayerNorm, eps=c.norm_eps),
    )  # fmt: skip


def transformers_vit(c: ViTConfig, attention: str = "sdpa") -> nn.Module:
    theirs = transformers.ViTConfig(
        image_size=as_pair(c.image_size, "image_size"), patch_size=as_pair(c.patch_size, "patch_size"),
        num_channels=c.in_channels, num_labels=c.num_classes, hidden_size=c.dim, num_hidden_layers=c.depth,
        num_attention_heads=c.num_heads, intermediate_size=c.mlp_dim, qkv_bias=c.qkv_bias, layer_norm_eps=c.norm_eps,
        hidden_act={"exact": "gelu", "tanh": "gelu_pytorch_tanh"}[c.gelu],
    )  # fmt: skip
    return transformers.AutoModelForImageClassification.from_config(theirs, attn_implementation=attention)


BUILDERS = {"timm": timm_vit, "torchvision": torchvision_vit, "transformers": transformers_vit}


def table_of(peer: str, theirs: nn.Module) -> dict[str, str]:
    """The table for a built peer; transformers renamed its modules in version 5."""
    hugging_face = TRANSFORMERS_5 if "vit.layers.0.mlp.fc1.weight" in theirs.state_dict() else TRANSFORMERS_4
    return {"timm": TIMM, "torchvision": TORCHVISION, "transformers": hugging_face}[peer]


@torch.no_grad()
def randomise(module: Module, seed: int = 0) -> Module:
    """Add noise to every parameter: a zero head, zero biases and norms of one would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        spread = parameter[0].numel() ** -0.5 if parameter.ndim in (2, 4) else 0.2
        parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * spread)
    return module


def twin(peer: str, ours: ViT, **options: str) -> nn.Module:
    """The same model from a peer, in ours's dtype and mode, its weights in memory of their own."""
    with torch.device("meta"):  # their initialisation takes seconds, and is thrown away
        theirs = BUILDERS[peer](ours.config, **options)
    state = rename(ours.state_dict(), table_of(peer, theirs))
    theirs.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)  # strict: no key left
    return theirs.train(ours.training)


def pair(
    peer: str, config: ViTConfig, dtype: torch.dtype = torch.float32, seed: int = 0, **options: str
) -> tuple[ViT, nn.Module]:
    """(ours, theirs) in eval mode, with equal random weights."""
    ours = randomise(ViT(config), seed).to(dtype).eval()
    return ours, twin(peer, ours, **options)


def logits(model: nn.Module, images: Tensor) -> Tensor:
    """What the model answers, also where the answer is an object around it (transformers)."""
    answer = model(images)
    return getattr(answer, "logits", answer)


def under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, their names behind a prefix."""
    return {prefix + name: tensor for name, tensor in state.items()}
