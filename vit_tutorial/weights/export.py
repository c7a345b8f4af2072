"""Lesson 09: our tensors in other libraries' models, by the tables that read theirs, and proven in the same way.

Each library has two functions: one returns its live model, the other that model's state dict. What a library's model
can't express is a ValueError that names it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from vit_tutorial.data.extras import needed
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import ModernConfig, QuickGELU
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import adapters, checkpoint, convert, proof, tables
from vit_tutorial.weights.adapters import Twin
from vit_tutorial.weights.tables import State


def to_timm(model: ViT) -> State:
    """The state dict of :func:`timm_model`."""
    return dict(timm_model(model).state_dict())


def to_torchvision(model: ViT) -> State:
    """The state dict of :func:`torchvision_model`."""
    return dict(torchvision_model(model).state_dict())


def to_huggingface(model: ViT) -> State:
    """The state dict of :func:`huggingface_model`, under the names of the installed version of transformers."""
    return dict(huggingface_model(model).state_dict())


def filled(model: ViT, theirs: nn.Module, adapter: Callable[[nn.Module], Twin]) -> nn.Module:
    """A library's model with our tensors, in our precision or float32, equal to ours.

    Raises:
        TypeError: a model with parts of its own.
        ValueError: parts that the library's model doesn't have.
    """
    checkpoint.check_savable(model)
    dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    config, theirs = model.config, theirs.to(dtype).eval().requires_grad_(False)
    twin = adapter(theirs)
    ours = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if isinstance(config, ModernConfig) and config.rotary is not None:
        ours = convert.reorder_pairs(ours, config.num_heads, twin.neighbours, twin.columns_first, back=True)
    place = twin.theirs.get("embed.position", [""])[0]
    classes = config.prefix_tokens - (config.registers if isinstance(config, ModernConfig) else 0)
    if place and classes and "embed.position" in ours:
        position = ours["embed.position"]
        if twin.tensors[place].shape[-2] == position.shape[1] - classes:  # theirs are the patches' alone
            ours["embed.cls_token"] = ours["embed.cls_token"] + position[:, :classes]
            ours["embed.position"] = position[:, classes:]
    no_bias = "head.weight" in twin.theirs and "head.bias" not in twin.theirs
    if no_bias and ours.pop("head.bias").any():
        raise ValueError(f"{type(theirs).__name__}'s projection has no bias, and this head's isn't zero")
    tables.write(twin.table, ours, twin.tensors)
    proof.prove(copy.deepcopy(model).to(dtype).eval(), twin)
    return theirs.requires_grad_(True)


# ---------------------------------------------------------------------------------------------------------------- timm


def timm_model(model: ViT) -> nn.Module:
    """Timm's ``VisionTransformer``, ``VisionTransformerDistilled``, ``Eva`` or ``Beit`` with this model's tensors.

    Raises:
        ValueError: parts that none of them has together.
        TypeError: no model, or one with parts of its own.
    """
    with needed():
        import timm

    checkpoint.check_savable(model)
    config = model.config
    modern = config if isinstance(config, ModernConfig) else ModernConfig(**_as_modern(config))
    shared: dict[str, Any] = dict(
        img_size=config.image_size, patch_size=config.patch_size, in_chans=config.in_channels,
        num_classes=config.num_classes, embed_dim=config.dim, depth=config.depth, num_heads=config.num_heads,
        qkv_bias=config.qkv_bias, init_values=modern.layer_scale,
        norm_layer=partial(nn.RMSNorm if modern.norm == "rms" else nn.LayerNorm, eps=config.norm_eps),
        mlp_ratio=(config.mlp_dim + 0.01) / config.dim,
        global_pool={"cls": "token", "mean": "avg", "attention": "map"}.get(config.pool, "token"),
    )  # fmt: skip
    no_k_bias = config.qkv_bias and not modern.k_bias
    if modern.position_bias:
        if modern.pool == "attention":
            raise ValueError("timm's Beit has no attention pooling: this model has position biases and pools so")
        found: nn.Module = timm.models.beit.Beit(
            **shared, use_abs_pos_emb=config.position == "learned", use_rel_pos_bias=True, use_fc_norm=modern.pool_norm
        )
    elif modern.rotary is not None or no_k_bias or (modern.gated and modern.mlp_norm):
        found = timm.models.eva.Eva(**shared, **_eva(modern))
    else:
        found = _timm_vit(modern, shared)
    return filled(model, found, adapters.from_timm)


def _as_modern(config: ViTConfig) -> dict[str, Any]:
    """The plain config's fields in the modern one."""
    return {**vars(config), "class_token": config.pool == "cls"}


def _timm_vit(config: ModernConfig, shared: dict[str, Any]) -> nn.Module:
    from timm.layers import SwiGLUPacked
    from timm.models import deit, vision_transformer

    acts = {"exact": nn.GELU, "tanh": partial(nn.GELU, approximate="tanh"), "quick": QuickGELU}
    shared = {**shared, "act_layer": acts[config.gelu]}
    if config.pool == "distilled":
        return deit.VisionTransformerDistilled(**shared)
    if config.gated:
        shared |= {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 2 * shared["mlp_ratio"]}
    return vision_transformer.VisionTransformer(
        **shared, qk_norm=config.qk_norm, scale_attn_norm=config.attention_norm, scale_mlp_norm=config.mlp_norm,
        class_token=config.class_token, reg_tokens=config.registers, no_embed_class=config.registers > 0,
        pos_embed="none" if config.position == "none" else "learn", pre_norm=config.pre_norm,
        final_norm=config.final_norm or config.pool_norm, fc_norm=config.pool_norm,
        pool_include_prefix=config.pool_prefix,
    )  # fmt: skip


def _eva(config: ModernConfig) -> dict[str, Any]:
    parts: dict[str, Any] = dict(
        class_token=config.class_token, num_reg_tokens=config.registers, no_embed_class=config.registers > 0,
        use_abs_pos_emb=config.position != "none", qk_norm=config.qk_norm, scale_attn_inner=config.attention_norm,
        swiglu_mlp=config.gated, scale_mlp=config.mlp_norm, use_pre_transformer_norm=config.pre_norm,
        use_post_transformer_norm=config.final_norm, use_fc_norm=config.pool_norm,
        qkv_fused=not (config.gated and config.mlp_norm),  # as EVA-02's base and large have it
        attn_type="eva" if config.qkv_bias and not config.k_bias else "rope",  # which has a bias of k
    )  # fmt: skip
    if config.rotary is None:
        return parts
    centred = config.rotary.coordinates == "centred"
    return parts | dict(
        use_rot_pos_emb=True, rope_type="dinov3" if centred else "cat", rope_temperature=config.rotary.temperature,
        rope_rotate_half=centred, ref_feat_shape=config.rotary.reference, rope_grid_offset=config.rotary.offset,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------- torchvision


def torchvision_model(model: ViT) -> nn.Module:
    """Torchvision's ``VisionTransformer`` with this model's tensors.

    Raises:
        ValueError: a rectangle, or parts that it doesn't have.
        TypeError: no model, or one with parts of its own.
    """
    with needed():
        from torchvision.models import VisionTransformer

    checkpoint.check_savable(model)
    config = model.config
    (H, W), (P, Q) = as_pair(config.image_size, "image_size"), as_pair(config.patch_size, "patch_size")
    if H != W or P != Q or config.in_channels != 3:
        raise ValueError("torchvision's ViT takes squares in square patches of three channels: to_timm takes others")
    theirs = VisionTransformer(
        H, P, config.depth, config.num_heads, config.dim, config.mlp_dim, num_classes=config.num_classes or 1,
        norm_layer=partial(nn.LayerNorm, eps=config.norm_eps),
    )  # fmt: skip
    if not config.num_classes:
        theirs.heads = nn.Identity()
    return filled(model, theirs, adapters.from_torchvision)


# -------------------------------------------------------------------------------------------------------- transformers


def huggingface_model(model: ViT) -> nn.Module:
    """The one of transformers' models that has these parts, with this model's tensors: ``.save_pretrained(folder)``.

    ViT, DINOv2 with or without registers, DINOv3, BEiT, CLIP's or SigLIP's image tower.

    Raises:
        ValueError: parts that none of them has together.
        TypeError: no model, or one with parts of its own.
    """
    with needed():
        import transformers

    checkpoint.check_savable(model)
    config = model.config
    name, settings = _huggingface_kind(config)
    (H, W), (P, Q) = as_pair(config.image_size, "image_size"), as_pair(config.patch_size, "patch_size")
    fields: dict[str, Any] = dict(
        image_size=H if H == W else [H, W], patch_size=P if P == Q else [P, Q], num_channels=config.in_channels,
        hidden_size=config.dim, num_hidden_layers=config.depth, num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_dim, layer_norm_eps=config.norm_eps,
        qkv_bias=config.qkv_bias, num_labels=config.num_classes, projection_dim=config.num_classes,
        hidden_act={"exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu"}[config.gelu],
    )  # fmt: skip
    fields |= settings
    kind = getattr(transformers, name)
    pooler = {"add_pooling_layer": False} if name == "ViTModel" else {}  # a layer for a task of its pretraining
    return filled(model, kind(kind.config_class(**fields), **pooler), adapters.from_transformers)


def _huggingface_kind(config: ViTConfig) -> tuple[str, dict[str, Any]]:
    """The class of transformers' with the most of the config's parts, and the fields that it alone has."""
    classifier = "ForImageClassification" if config.num_classes else "Model"
    if not isinstance(config, ModernConfig):
        return f"ViT{classifier}", {}
    if config.rotary is not None:
        kind, parts = "DINOv3ViTModel", dict(
            num_register_tokens=config.registers, rope_theta=config.rotary.temperature, use_gated_mlp=config.gated,
            query_bias=config.qkv_bias, key_bias=config.qkv_bias and config.k_bias, value_bias=config.qkv_bias,
        ) | (dict(hidden_act="silu") if config.gated else {})  # fmt: skip
    elif config.position_bias:
        kind, parts = f"Beit{classifier}", dict(
            use_relative_position_bias=True, use_mean_pooling=config.pool_norm,
            layer_scale_init_value=config.layer_scale or 0.0,
            use_absolute_position_embeddings=config.position == "learned",
        )  # fmt: skip
    elif config.pool == "attention":
        kind, parts = "SiglipVisionModel", {}
    elif config.pre_norm:
        kind, parts = "CLIPVisionModelWithProjection" if config.num_classes else "CLIPVisionModel", {}
    elif config.registers:
        kind, parts = f"Dinov2WithRegisters{classifier}", dict(num_register_tokens=config.registers)
    else:
        kind, parts = f"Dinov2{classifier}", {}
    if kind.startswith("Dinov2"):
        ratio = round(config.mlp_dim / config.dim * (1.5 if config.gated else 1))  # of a gated MLP it takes two thirds
        parts |= dict(use_swiglu_ffn=config.gated, mlp_ratio=ratio)
    return kind, parts
