"""Lesson 09: models of timm's: timm builds them, and this module reads off them what no tensor shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from torch import nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.weights import files, tables
from vit_tutorial.weights.checkpoint import numbered_classes
from vit_tutorial.weights.convert import LibraryModel, PublishedModel, tensors_of
from vit_tutorial.weights.proof import prove_preprocessing

POOLS = {"token": "cls", "avg": "mean", "map": "attention"}  # timm's names, and ours


def repository(name: str) -> str:
    """Where timm keeps the weights of one of its models; without the name of weights, of its default ones."""
    with needed():
        import timm
    try:
        known = timm.models.get_pretrained_cfg(name)
    except RuntimeError:  # of weights that this version of timm doesn't know
        known = None
    if known is None:
        return f"timm/{name}"
    place = known.hf_hub_id or "timm/"
    return f"{place}{known.architecture}.{known.tag}" if place.endswith("/") else place


def load_folder(folder: Path, image_size: Size | None) -> PublishedModel:
    """The model of a folder, as timm's repositories on the hub are."""
    with needed():
        import timm
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    rows = model.pretrained_cfg.get("num_classes", model.num_classes)
    if rows != model.num_classes:  # then timm gives it a new head
        raise ValueError(f"its config says {model.num_classes} classes, and its weights have {rows}")
    return _published(model, image_size, class_names(model))


def load_file(path: Path, name: str, image_size: Size | None) -> PublishedModel:
    """A file of tensors, as timm's own loader reads it: Google's .npz, DeiT's, DINO's, files of timm's training."""
    with needed():
        import timm
        from timm.models import load_checkpoint, load_state_dict, model_entrypoint

    state: dict[str, Any] = files.read(path)  # first, so that a damaged file is called so
    module = sys.modules[model_entrypoint(name.partition(".")[0]).__module__]
    dialect = getattr(module, "checkpoint_filter_fn", None)
    if path.suffix == ".npz":
        rows = [tensor.shape[-1] for key, tensor in state.items() if key.endswith("head/bias")]
    else:
        state = load_state_dict(str(path), weights_only=True)
        renamed = dialect(dict(state), timm.create_model(name, num_classes=0)) if dialect else state
        rows = [len(tensor) for key, tensor in renamed.items() if key == "head.bias"]
    model = timm.create_model(name, num_classes=rows[0] if rows else 0).eval()
    load_checkpoint(model, str(path), filter_fn=dialect, weights_only=True)
    return _published(model, image_size, numbered_classes(model.num_classes))


def _published(model: Any, image_size: Size | None, classes: tuple[str, ...]) -> PublishedModel:
    preprocess = preprocessing(model)
    if image_size is not None:
        model.set_input_size(as_pair(image_size, "image_size"))
    return PublishedModel(describe(model), preprocess, classes)


def class_names(model: Any) -> tuple[str, ...]:
    """The names in its config; of models for ImageNet, which have none there, ImageNet's."""
    from torchvision.models import ViT_B_16_Weights

    names = model.pretrained_cfg.get("label_names")
    if names and len(names) == model.num_classes:
        return tuple(names)
    if model.num_classes == 1000 and "in1k" in (model.pretrained_cfg.get("tag") or ""):
        return tuple(ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"])
    return numbered_classes(model.num_classes)


def describe(model: nn.Module) -> LibraryModel:
    """What our config needs to know of timm's ``VisionTransformer``, ``Eva``, ``Beit``, or any with their names.

    Raises:
        ValueError: no Vision Transformer, or one with parts that :class:`.ModernConfig` doesn't have.
    """
    embed: Any = getattr(model, "patch_embed", None)
    pool = getattr(model, "global_pool", None)
    if not hasattr(embed, "img_size") or pool not in POOLS:
        raise ValueError(f"timm's {type(model).__name__} isn't a Vision Transformer that pools by {list(POOLS)}")
    (H, W), (P, Q) = embed.img_size, embed.patch_size
    facts: dict[str, Any] = {"image_size": (H - H % P, W - W % Q), "pool": POOLS[pool]}
    if hasattr(model, "dist_token"):
        facts["pool"] = "distilled"
    if pool == "map":
        facts["pool_heads"] = cast(Any, model.attn_pool).num_heads
    if pool != "token":
        facts["pool_prefix"] = getattr(model, "pool_include_prefix", pool == "map")  # its class Eva pools all tokens
    rope: Any = getattr(model, "rope", None)
    if rope is not None:
        facts["rotary"] = rotary(rope)
    return LibraryModel(
        model=model,
        tower=model,
        table=tables.TIMM_MODERN,
        tensors=tensors_of(model, model),
        forward=model,
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


def preprocessing(model: nn.Module) -> Preprocessing:
    """As ``timm.data.create_transform`` prepares a picture for this model."""
    from timm.data import create_transform, resolve_model_data_config

    how = resolve_model_data_config(model)
    ours = Preprocessing(
        tuple(how["input_size"][1:]),
        tuple(how["mean"]),
        tuple(how["std"]),
        how["crop_pct"],
        how["interpolation"],
        squash=how["crop_mode"] == "squash",
    )
    return prove_preprocessing(ours, lambda picture: create_transform(**how, is_training=False)(picture))
