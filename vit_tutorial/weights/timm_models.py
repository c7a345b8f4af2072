"""Lesson 09: models of timm's: timm builds them; here is what it calls their tensors, and what no tensor shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch import nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import install_hint
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.weights import files
from vit_tutorial.weights.convert import Publication, PublishedModel, tensors_of
from vit_tutorial.weights.our_models import numbered_classes
from vit_tutorial.weights.proof import prove_preprocessing
from vit_tutorial.weights.tables import Table

# Ours: theirs, for their classes VisionTransformer, Eva and Beit. * is weight and bias, (a|b) are joined into one.
TIMM: Table = {
    "embed.cls_token": ("(cls_token|dist_token) : tokens", "cls_token"),
    "embed.registers": "reg_token",
    "embed.position": "pos_embed",
    "embed.patches.proj.*": "patch_embed.proj.*",
    "embed.norm.*": "norm_pre.*",
    "blocks.{i}.norm1.*": "blocks.{i}.norm1.*",
    "blocks.{i}.attention.qkv.*": ("blocks.{i}.attn.qkv.*", "blocks.{i}.attn.(q_proj|k_proj|v_proj).*"),
    "blocks.{i}.attention.qv_bias": (
        "blocks.{i}.attn.(q_bias|v_bias) : stack",
        "blocks.{i}.attn.(q_proj|v_proj).bias : stack",
    ),
    "blocks.{i}.attention.q_norm.*": "blocks.{i}.attn.q_norm.*",
    "blocks.{i}.attention.k_norm.*": "blocks.{i}.attn.k_norm.*",
    "blocks.{i}.attention.norm.*": "blocks.{i}.attn.norm.*",
    "blocks.{i}.attention.position_bias": "blocks.{i}.attn.relative_position_bias_table",
    "blocks.{i}.attention.proj.*": "blocks.{i}.attn.proj.*",
    "blocks.{i}.scale1.gamma": ("blocks.{i}.ls1.gamma", "blocks.{i}.gamma_1"),
    "blocks.{i}.norm2.*": "blocks.{i}.norm2.*",
    "blocks.{i}.mlp.fc1.*": ("blocks.{i}.mlp.fc1.*", "blocks.{i}.mlp.(fc1_g|fc1_x).*"),
    "blocks.{i}.mlp.norm.*": "blocks.{i}.mlp.norm.*",
    "blocks.{i}.mlp.fc2.*": "blocks.{i}.mlp.fc2.*",
    "blocks.{i}.scale2.gamma": ("blocks.{i}.ls2.gamma", "blocks.{i}.gamma_2"),
    "norm.*": "norm.*",
    "pool.probe": "attn_pool.latent",
    "pool.q.*": "attn_pool.q.*",
    "pool.kv.*": "attn_pool.kv.*",
    "pool.proj.*": "attn_pool.proj.*",
    "pool.norm.*": "attn_pool.norm.*",
    "pool.mlp.fc1.*": "attn_pool.mlp.fc1.*",
    "pool.mlp.fc2.*": "attn_pool.mlp.fc2.*",
    "pool_norm.*": "fc_norm.*",
    "head.weight": ("(head|head_dist).weight : columns", "head.weight"),
    "head.bias": ("(head|head_dist).bias : mean", "head.bias"),
}
POOLS = {"token": "cls", "avg": "mean", "map": "attention"}  # timm's names, and ours


def hub_name(name: str) -> str:
    """The repository where timm keeps a model's weights; without a tag in the name, its default weights."""
    with install_hint():
        import timm
    try:
        known = timm.models.get_pretrained_cfg(name)
    except RuntimeError:  # a tag that this version of timm doesn't know
        known = None
    if known is None:
        return f"timm/{name}"
    place = known.hf_hub_id or "timm/"
    return f"{place}{known.architecture}.{known.tag}" if place.endswith("/") else place


def load_folder(folder: Path, image_size: Size | None) -> Publication:
    """The model of a folder, as timm's repositories on the hub are."""
    with install_hint():
        import timm
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    rows = model.pretrained_cfg.get("num_classes", model.num_classes)
    if rows != model.num_classes:  # then timm gives it a new head
        raise ValueError(f"its config says {model.num_classes} classes, and its weights have {rows}")
    return _published(model, image_size, class_names(model))


def load_file(path: Path, name: str, image_size: Size | None) -> Publication:
    """A file of tensors, as timm's own loader reads it: Google's .npz, DeiT's, DINO's, files of timm's training."""
    with install_hint():
        import timm
        from timm.models import load_checkpoint, load_state_dict, model_entrypoint

    state: dict[str, Any] = files.read(path)  # first, so that a damaged file is called so
    module = sys.modules[model_entrypoint(name.partition(".")[0]).__module__]
    theirs = getattr(module, "checkpoint_filter_fn", None)  # from the names of whoever published the model to timm's

    def rename(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
        state = _unwrapped(state, model)
        return theirs(state, model) if theirs else state

    if path.suffix.lower() == ".npz":
        rows = [tensor.shape[-1] for key, tensor in state.items() if key.endswith("head/bias")]
    else:
        state = load_state_dict(str(path), weights_only=True)
        renamed = rename(dict(state), timm.create_model(name, num_classes=0))
        rows = [len(tensor) for key, tensor in renamed.items() if key == "head.bias"]
    model = timm.create_model(name, num_classes=rows[0] if rows else 0).eval()
    load_checkpoint(model, str(path), filter_fn=rename, weights_only=True)
    return _published(model, image_size, numbered_classes(model.num_classes))


def _unwrapped(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The tensors without what stands before all names, such as Lightning's "model." and compile's "_orig_mod."."""
    own = {name.partition(".")[0] for name in model.state_dict()}
    while all("." in name for name in state) and len(first := {name.partition(".")[0] for name in state}) == 1:
        if first & own:
            break
        state = {name.partition(".")[2]: tensor for name, tensor in state.items()}
    return state


def _published(model: Any, image_size: Size | None, classes: tuple[str, ...]) -> Publication:
    preprocess = preprocessing(model)
    if image_size is not None:
        model.set_input_size(as_pair(image_size, "image_size"))
    return Publication(describe(model), preprocess, classes)


def class_names(model: Any) -> tuple[str, ...]:
    """The names in its config; of models for ImageNet, which have none there, ImageNet's."""
    from torchvision.models import ViT_B_16_Weights

    names = model.pretrained_cfg.get("label_names")
    if names and len(names) == model.num_classes:
        return tuple(names)
    if model.num_classes == 1000 and "in1k" in (model.pretrained_cfg.get("tag") or ""):
        return tuple(ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"])
    return numbered_classes(model.num_classes)


def preprocessing(model: nn.Module) -> Preprocessing:
    """As ``timm.data.create_transform`` prepares a picture for this model."""
    from timm.data import create_transform, resolve_model_data_config

    settings = resolve_model_data_config(model)
    ours = Preprocessing(
        image_size=tuple(settings["input_size"][1:]),
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        crop=settings["crop_pct"],
        interpolation=settings["interpolation"],
        squash=settings["crop_mode"] == "squash",
    )
    prove_preprocessing(ours, create_transform(**settings, is_training=False))
    return ours


def describe(original: Any) -> PublishedModel:
    """What our config needs to know of timm's ``VisionTransformer``, ``Eva``, ``Beit``, or any with their names.

    Raises:
        ValueError: no Vision Transformer, or one with parts that :class:`.ModernConfig` doesn't have.
    """
    embed: Any = getattr(original, "patch_embed", None)
    pool = getattr(original, "global_pool", None)
    if not hasattr(embed, "img_size") or pool not in POOLS:
        raise ValueError(f"timm's {type(original).__name__} isn't a Vision Transformer that pools by {list(POOLS)}")
    (H, W), (P, Q) = embed.img_size, embed.patch_size
    facts: dict[str, Any] = {"image_size": (H - H % P, W - W % Q), "pool": POOLS[pool]}
    if pool == "map":
        facts["pool_heads"] = original.attn_pool.num_heads
    if pool != "token":
        facts["pool_prefix"] = getattr(original, "pool_include_prefix", pool == "map")  # its class Eva pools all tokens
    rope = getattr(original, "rope", None)
    if rope is not None:
        facts["rotary"] = rotary(rope)
    return PublishedModel(
        original=original,
        tower=original,
        table=TIMM,
        tensors=tensors_of(original, original),
        forward=original,
        facts=facts,
        interleaved_rope=rope is not None and not rope.rotate_half,
        rope_columns_first=rope is not None and rope.grid_indexing == "xy",
        cropped_edge=(H % P, W % Q),
    )


def rotary(rope: Any) -> Rotary:
    """The config of timm's rotary positions."""
    if getattr(rope, "temperature", None) is None or not hasattr(rope, "grid_offset"):
        raise ValueError(f"timm's {type(rope).__name__} has positions of another kind than modern.Rotary")
    if not hasattr(rope, "ref_feat_shape"):
        return Rotary("centred", rope.temperature)
    reference = None if rope.ref_feat_shape is None else tuple(rope.ref_feat_shape)
    return Rotary("index", rope.temperature, reference, rope.grid_offset)
