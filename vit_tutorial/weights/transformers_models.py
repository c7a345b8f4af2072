"""Lesson 09: models of transformers': it builds them; here is what it calls their tensors, and what no tensor shows."""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import install_hint
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.weights.convert import Publication, PublishedModel, tensors_of
from vit_tutorial.weights.our_models import numbered_classes
from vit_tutorial.weights.proof import EXACT, ROUNDED, prove_preprocessing
from vit_tutorial.weights.tables import State, Table

# Ours: theirs, without the prefix that each class has ("vit.", "deit.", …). * is weight and bias, (a|b) are joined.
VIT: Table = {  # ViT, DeiT, BEiT and their kin
    "embed.cls_token": ("embeddings.(cls_token|distillation_token) : tokens", "embeddings.cls_token"),
    "embed.position": "embeddings.position_embeddings",
    "embed.patches.proj.*": "embeddings.patch_embeddings.projection.*",
    "blocks.{i}.norm1.*": "layers.{i}.layernorm_before.*",
    "blocks.{i}.attention.qkv.*": "layers.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.qv_bias": "layers.{i}.attention.(q_proj|v_proj).bias : stack",
    "blocks.{i}.attention.proj.*": "layers.{i}.attention.o_proj.*",
    "blocks.{i}.attention.position_bias": "layers.{i}.relative_position_bias.relative_position_bias_table",
    "blocks.{i}.scale1.gamma": "layers.{i}.lambda_1",
    "blocks.{i}.norm2.*": "layers.{i}.layernorm_after.*",
    "blocks.{i}.mlp.fc1.*": "layers.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "layers.{i}.mlp.fc2.*",
    "blocks.{i}.scale2.gamma": "layers.{i}.lambda_2",
    "norm.*": "layernorm.*",
    "pool_norm.*": "pooler.layernorm.*",
    "head.weight": ("(cls_classifier|distillation_classifier).weight : columns", "classifier.weight"),
    "head.bias": ("(cls_classifier|distillation_classifier).bias : mean", "classifier.bias"),
}
DINO_2: Table = {  # with and without registers
    "embed.cls_token": "embeddings.cls_token",
    "embed.registers": "embeddings.register_tokens",
    "embed.position": "embeddings.position_embeddings",
    "embed.patches.proj.*": "embeddings.patch_embeddings.projection.*",
    "blocks.{i}.norm1.*": "encoder.layer.{i}.norm1.*",
    "blocks.{i}.attention.qkv.*": "encoder.layer.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.proj.*": "encoder.layer.{i}.attention.o_proj.*",
    "blocks.{i}.scale1.gamma": "encoder.layer.{i}.layer_scale1.lambda1",
    "blocks.{i}.norm2.*": "encoder.layer.{i}.norm2.*",
    "blocks.{i}.mlp.fc1.*": ("encoder.layer.{i}.mlp.fc1.*", "encoder.layer.{i}.mlp.(gate_proj|up_proj).*"),
    "blocks.{i}.mlp.fc2.*": ("encoder.layer.{i}.mlp.fc2.*", "encoder.layer.{i}.mlp.down_proj.*"),
    "blocks.{i}.scale2.gamma": "encoder.layer.{i}.layer_scale2.lambda1",
    "norm.*": "layernorm.*",
    "head.*": "classifier.*",
}
DINO_3: Table = {
    "embed.cls_token": "embeddings.cls_token",
    "embed.registers": "embeddings.register_tokens",
    "embed.patches.proj.*": "embeddings.patch_embeddings.*",
    "blocks.{i}.norm1.*": "model.layer.{i}.norm1.*",
    "blocks.{i}.attention.qkv.*": "model.layer.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.qv_bias": "model.layer.{i}.attention.(q_proj|v_proj).bias : stack",
    "blocks.{i}.attention.proj.*": "model.layer.{i}.attention.o_proj.*",
    "blocks.{i}.scale1.gamma": "model.layer.{i}.layer_scale1.lambda1",
    "blocks.{i}.norm2.*": "model.layer.{i}.norm2.*",
    "blocks.{i}.mlp.fc1.*": ("model.layer.{i}.mlp.(gate_proj|up_proj).*", "model.layer.{i}.mlp.up_proj.*"),
    "blocks.{i}.mlp.fc2.*": "model.layer.{i}.mlp.down_proj.*",
    "blocks.{i}.scale2.gamma": "model.layer.{i}.layer_scale2.lambda1",
    "norm.*": "norm.*",
}
CLIP_BLOCKS: Table = {  # in the image towers and the text towers of CLIP and SigLIP
    "blocks.{i}.norm1.*": "encoder.layers.{i}.layer_norm1.*",
    "blocks.{i}.attention.qkv.*": "encoder.layers.{i}.self_attn.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.proj.*": "encoder.layers.{i}.self_attn.out_proj.*",
    "blocks.{i}.norm2.*": "encoder.layers.{i}.layer_norm2.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layers.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.{i}.mlp.fc2.*",
}
CLIP: Table = {  # the image towers
    "embed.cls_token": "embeddings.class_embedding",
    "embed.position": "embeddings.position_embedding.weight",
    "embed.patches.proj.*": "embeddings.patch_embedding.*",
    "embed.norm.*": "pre_layrnorm.*",
    **CLIP_BLOCKS,
    "norm.*": "post_layernorm.*",
    "pool.probe": "head.probe",
    "pool.q.*": "head.attention.q_proj.*",
    "pool.kv.*": "head.attention.kv_proj.*",
    "pool.proj.*": "head.attention.out_proj.*",
    "pool.norm.*": "head.layernorm.*",
    "pool.mlp.fc1.*": "head.mlp.fc1.*",
    "pool.mlp.fc2.*": "head.mlp.fc2.*",
    "head.*": ("visual_projection.*", "classifier.*"),
}
CLIP_TEXT: Table = {  # the text towers: lesson 17
    "tokens.weight": "embeddings.token_embedding.weight",
    "position": "embeddings.position_embedding.weight",
    **CLIP_BLOCKS,
    "norm.*": "final_layer_norm.*",
    "head.*": ("text_projection.*", "head.*"),
}
TABLES = {  # by a name that only one of them has
    "layers.0.layernorm_before.weight": VIT,
    "encoder.layer.0.norm1.weight": DINO_2,
    "model.layer.0.norm1.weight": DINO_3,
    "encoder.layers.0.layer_norm1.weight": CLIP,
}


def load(folder: Path, state: State | None = None) -> Publication:
    """The model of a folder; with ``state`` its config's, with these tensors."""
    original = build(folder, state)
    problem = getattr(original.config, "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise ValueError(f"its answers are for {problem}, and no softmax over classes")
    return Publication(describe(original), preprocessing(folder), class_names(original))


def build(folder: Path, state: State | None = None) -> Any:
    """As :func:`load`, the model of any class of transformers' that the config names.

    Raises:
        ValueError: tensors that the model needs are missing, or it has no place for some.
    """
    with install_hint():
        import transformers
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    name = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    model_class: Any = getattr(transformers, name, None)
    if model_class is None:
        raise ValueError(f"transformers has no {name}")
    original, report = model_class.from_pretrained(
        None if state is not None else folder,
        config=config,
        state_dict=state,
        dtype=torch.float32,
        output_loading_info=True,
        local_files_only=True,
    )
    _check_all_used(original, report["missing_keys"], sorted(report["unexpected_keys"]))
    return original.eval()


def _check_all_used(model: nn.Module, missing: set[str], unexpected: list[str]) -> None:
    """Raise a ValueError for tensors that transformers made up, or left out of a layer that there is."""
    made_up = sorted(name for name in missing if "pooler.dense" not in name)
    if made_up:
        others = f"; it has {', '.join(unexpected[:3])}" if unexpected else ""
        raise ValueError(f"the file isn't whole: {', '.join(made_up[:5])} missing, of {len(made_up)}{others}")
    layers = {re.sub(r"\d+", "#", name) for name in model.state_dict()}
    for name in unexpected:
        if "lora_" in name or re.sub(r"\d+", "#", name) in layers:
            raise ValueError(f"the model has no place for {name}: more layers than its config says, or an adapter")


def class_names(model: Any) -> tuple[str, ...]:
    """The labels in its config; numbered ones in place of transformers' "LABEL_0"; none where nothing classifies."""
    if not hasattr(model, "classifier") and not hasattr(model, "cls_classifier"):
        return ()
    labels = model.config.id2label
    names = tuple(str(labels[k]) for k in sorted(labels))
    return numbered_classes(len(names)) if names == tuple(f"LABEL_{k}" for k in range(len(names))) else names


# ------------------------------------------------------------------------------------------------------ the image tower


def describe(original: nn.Module) -> PublishedModel:
    """What our config needs to know of the model, or of its image tower: ViT, DeiT, BEiT, DINO, CLIP, SigLIP, …

    Raises:
        ValueError: no Vision Transformer by any name of our tables.
    """
    tower = image_tower(original)
    tensors = with_clip_views(tensors_of(original, tower))
    table = next((table for name, table in TABLES.items() if name in tensors), VIT)
    (H, W), (P, Q) = (as_pair(getattr(tower.config, name), name) for name in ("image_size", "patch_size"))
    facts: dict[str, Any] = {"image_size": (H - H % P, W - W % Q)}
    if table is CLIP and hasattr(original, "classifier"):
        # It reads the mean of the patches: SigLIP's pooling is unread, and CLIP's last norm, too.
        unread = ("pool", "norm") if hasattr(tower.embeddings, "class_embedding") else ("pool",)
        table = {our: theirs for our, theirs in table.items() if not our.startswith(unread)}
        facts["pool"] = "mean"
    if hasattr(tower, "rope_embeddings"):
        facts["rotary"] = Rotary("centred", tower.rope_embeddings.base)
    return PublishedModel(
        original=original,
        tower=tower,
        table=table,
        tensors=tensors,
        forward=partial(answer, original, tower),
        facts=facts,
        cropped_edge=(H % P, W % Q),
        recipe="timm" if hasattr(tower.embeddings, "register_tokens") else "huggingface",
        resizes_positions=True,
    )


def image_tower(model: nn.Module) -> Any:
    """The part of one of transformers' models that sees the image, without what answers."""
    towers = [module for name, module in model.named_modules() if name.rpartition(".")[2] == "vision_model"]
    tower: Any = towers[-1] if towers else getattr(model, "base_model", model)
    return tower if hasattr(tower, "embeddings") else model


def with_clip_views(tensors: State) -> State:
    """CLIP's and SigLIP's tensors as ours are laid out, as views: a first axis of one; q apart from k and v."""
    views = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith(("class_embedding", "position_embedding.weight")):  # (D,) or (T, D)
            views[name] = tensor.view(1, -1, tensor.shape[-1])  # (1, 1, D) or (1, T, D)
        elif name.startswith("head.attention.in_proj_"):  # (3 D, D), its bias (3 D,)
            width = len(tensor) // 3
            views[name.replace("in_proj_", "q_proj.")] = tensor[:width]
            views[name.replace("in_proj_", "kv_proj.")] = tensor[width:]
    return views


def answer(model: Any, tower: Any, images: Tensor) -> Tensor:
    """Its logits, its place in a space of images and texts, or without either what a head would read."""
    if hasattr(model, "get_image_features"):  # CLIP or SigLIP with both towers
        return forward(model.get_image_features, tower, images).pooler_output
    if any(name.endswith(("classifier.weight", "visual_projection.weight")) for name in model.state_dict()):
        output = forward(model.forward, tower, images)
        return output.logits if "logits" in output else output.image_embeds
    return features(tower, images)


def features(tower: Any, images: Tensor) -> Tensor:
    """What a head would read of a tower that has none: what is pooled, the class tokens, or the mean."""
    output = forward(tower.forward, tower, images)
    tokens, pooled = output.last_hidden_state, getattr(output, "pooler_output", None)  # (B, T, D), (B, D)
    for_pretraining = hasattr(getattr(tower, "pooler", None), "dense")  # a layer for a task of its pretraining
    if pooled is not None and not for_pretraining:
        return pooled
    if hasattr(tower.embeddings, "distillation_token"):
        return tokens[:, :2].flatten(1)
    if hasattr(tower.embeddings, "cls_token"):
        return tokens[:, 0]
    return tokens.mean(dim=1)


def forward(call: Any, tower: Any, images: Tensor) -> Any:
    """A forward pass, with the switch that some of transformers' models need for another size than the config's."""
    resized = tuple(images.shape[-2:]) != as_pair(tower.config.image_size, "image_size")
    if resized and "interpolate_pos_encoding" in inspect.signature(call).parameters:
        return call(images, interpolate_pos_encoding=True)
    return call(images)


# ------------------------------------------------------------------------------------------------------- preprocessing


def preprocessing(folder: Path) -> Preprocessing:
    """As the image processor in the folder prepares a picture."""
    from transformers import AutoImageProcessor
    from transformers.image_utils import PILImageResampling

    try:
        processor: Any = AutoImageProcessor.from_pretrained(
            folder, backend="pil", local_files_only=True, trust_remote_code=False
        )
    except OSError as error:
        raise ValueError(
            "there is no preprocessor_config.json with its weights, which says how pictures are prepared: "
            "AutoImageProcessor.from_pretrained(the published model).save_pretrained(the folder) puts one there"
        ) from error
    size, crop_size = dict(processor.size), dict(getattr(processor, "crop_size", None) or {})
    cropped = bool(getattr(processor, "do_center_crop", False)) and bool(crop_size)
    side = size.get("shortest_edge") or size.get("height")
    if side is None or (size.get("shortest_edge") and not cropped) or not processor.do_resize:
        raise ValueError(f"its processor resizes to {size}, and crops to {crop_size or 'nothing'}: no fixed size")
    output = crop_size if cropped else size
    ours = Preprocessing(
        image_size=(output["height"], output["width"]),
        mean=tuple(processor.image_mean) if processor.do_normalize else (0.0, 0.0, 0.0),
        std=tuple(processor.image_std) if processor.do_normalize else (1.0, 1.0, 1.0),
        crop=output["height"] / side if cropped else "none",
        interpolation=PILImageResampling(processor.resample).name.lower(),
        squash=cropped and not size.get("shortest_edge"),
        corner="floored",
    )
    by_pillow = type(processor).__name__.endswith("Pil")
    prove_preprocessing(
        ours,
        lambda picture: processor(images=picture, return_tensors="pt")["pixel_values"],
        EXACT if by_pillow else ROUNDED,
    )
    return ours
