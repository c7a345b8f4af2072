"""Lesson 09: our tensors in other libraries' models, by the tables that read theirs, and proven in the same way.

A plain ViT has a model in each library: one function returns it, another its state dict. A model with newer parts
goes back into the library's model that it came from, which you build::

    original = timm.create_model("vit_small_patch14_dinov2", num_classes=2)
    vt.weights.copy_into(model, original)
"""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import nn

from vit_tutorial.data.extras import install_hint
from vit_tutorial.patches import as_pair
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import (
    checkpoint,
    convert,
    proof,
    tables,
    timm_models,
    torchvision_models,
    transformers_models,
)
from vit_tutorial.weights.convert import PublishedModel
from vit_tutorial.weights.our_models import class_tokens
from vit_tutorial.weights.tables import State


def copy_into(model: ViT, original: nn.Module) -> nn.Module:
    """A model of timm's, torchvision's or transformers' with our tensors, in evaluation mode, equal to ours.

    Raises:
        TypeError: a model with parts of its own.
        ValueError: the library's model has other parts or sizes: which, or where the two first differ. It is left as it
            was.
    """
    checkpoint.check_savable(model)
    trial = copy.deepcopy(original).to(_dtype(model)).eval()  # a refusal leaves the original as it was
    published = _describe(trial)
    tables.to_theirs(published.table, _as_theirs(model, published), published.tensors)
    proof.prove(copy.deepcopy(model).to(_dtype(model)).eval(), published)
    original.to(_dtype(model)).load_state_dict(trial.state_dict())
    return original.eval()


def _dtype(model: ViT) -> torch.dtype:
    """The model's precision, or float32 for a lower one."""
    return torch.promote_types(next(model.parameters()).dtype, torch.float32)


def _describe(original: nn.Module) -> PublishedModel:
    """What is known of a model, by the library that its class comes from."""
    modules = {"timm": timm_models, "torchvision": torchvision_models, "transformers": transformers_models}
    library = type(original).__module__.partition(".")[0]
    if library not in modules:
        raise TypeError(f"a model of {', '.join(modules)} is needed, got {type(original).__name__}")
    return modules[library].describe(original)


def _as_theirs(model: ViT, published: PublishedModel) -> State:
    """Our tensors, with what is laid out in another way there: rotary pairs, positions of patches alone, no bias."""
    config = model.config
    ours = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    ours = convert.move_rotary_pairs(ours, config.num_heads, published, back=True)
    prefix = class_tokens(config)
    if prefix and "embed.position" in published.names and "embed.position" in ours:
        position = ours["embed.position"]  # (1, prefix + N, D)
        if published.tensors[published.names["embed.position"][0]].shape[-2] == position.shape[1] - prefix:
            ours["embed.cls_token"] = ours["embed.cls_token"] + position[:, :prefix]
            ours["embed.position"] = position[:, prefix:]
    no_bias = "head.weight" in published.names and "head.bias" not in published.names  # CLIP's projection
    if no_bias and ours.pop("head.bias", torch.zeros(0)).any():
        raise ValueError(f"{type(published.original).__name__}'s projection has no bias, and this head's isn't zero")
    return ours


# -------------------------------------------------------------------------------------------------------- a plain model


def to_timm(model: ViT) -> State:
    """The state dict of :func:`timm_model`."""
    return dict(timm_model(model).state_dict())


def to_torchvision(model: ViT) -> State:
    """The state dict of :func:`torchvision_model`."""
    return dict(torchvision_model(model).state_dict())


def to_huggingface(model: ViT) -> State:
    """The state dict of :func:`huggingface_model`, under the names of the installed version of transformers."""
    return dict(huggingface_model(model).state_dict())


def timm_model(model: ViT) -> nn.Module:
    """Timm's ``VisionTransformer`` with this plain model's tensors.

    Raises:
        ValueError: newer parts: see :func:`copy_into`.
        TypeError: no model, or one with parts of its own.
    """
    with install_hint():
        from timm.models import VisionTransformer

    config = _plain_config(model)
    original = VisionTransformer(
        img_size=config.image_size, patch_size=config.patch_size, in_chans=config.in_channels,
        num_classes=config.num_classes, embed_dim=config.dim, depth=config.depth, num_heads=config.num_heads,
        mlp_ratio=(config.mlp_dim + 0.01) / config.dim, qkv_bias=config.qkv_bias,
        global_pool={"cls": "token", "mean": "avg"}[config.pool], class_token=config.pool == "cls", fc_norm=False,
        pos_embed="none" if config.position == "none" else "learn",
        norm_layer=partial(nn.LayerNorm, eps=config.norm_eps),
        act_layer=partial(nn.GELU, approximate="tanh" if config.gelu == "tanh" else "none"),
    )  # fmt: skip
    return copy_into(model, original)


def torchvision_model(model: ViT) -> nn.Module:
    """Torchvision's ``VisionTransformer`` with this plain model's tensors; raises what :func:`timm_model` raises."""
    with install_hint():
        from torchvision.models import VisionTransformer

    config = _plain_config(model)
    (H, W), (P, Q) = as_pair(config.image_size, "image_size"), as_pair(config.patch_size, "patch_size")
    if H != W or P != Q or config.in_channels != 3:
        raise ValueError("torchvision's ViT takes squares in square patches of three channels: to_timm takes others")
    original = VisionTransformer(
        H, P, config.depth, config.num_heads, config.dim, config.mlp_dim, num_classes=config.num_classes or 1,
        norm_layer=partial(nn.LayerNorm, eps=config.norm_eps),
    )  # fmt: skip
    if not config.num_classes:
        original.heads = nn.Identity()
    return copy_into(model, original)


def huggingface_model(model: ViT) -> nn.Module:
    """Transformers' ``ViTForImageClassification``, or without a head ``ViTModel``, with this plain model's tensors.

    Its ``.save_pretrained(folder)`` writes a folder as transformers reads it. Raises what :func:`timm_model` raises.
    """
    with install_hint():
        from transformers import ViTConfig as TheirConfig
        from transformers import ViTForImageClassification, ViTModel

    config = _plain_config(model)
    (H, W), (P, Q) = as_pair(config.image_size, "image_size"), as_pair(config.patch_size, "patch_size")
    settings = TheirConfig(
        image_size=H if H == W else [H, W], patch_size=P if P == Q else [P, Q], num_channels=config.in_channels,
        hidden_size=config.dim, num_hidden_layers=config.depth, num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_dim, layer_norm_eps=config.norm_eps, qkv_bias=config.qkv_bias,
        num_labels=config.num_classes, hidden_act={"exact": "gelu", "tanh": "gelu_pytorch_tanh"}[config.gelu],
    )  # fmt: skip
    if config.num_classes:
        return copy_into(model, ViTForImageClassification(settings))
    return copy_into(model, ViTModel(settings, add_pooling_layer=False))


def _plain_config(model: ViT) -> ViTConfig:
    checkpoint.check_savable(model)
    if type(model) is not ViT:
        raise ValueError(
            f"a {type(model).__name__} has parts that the library's plain ViT doesn't have: build the library's model "
            "that has them, and vt.weights.copy_into(model, original) copies the tensors and compares"
        )
    return model.config
