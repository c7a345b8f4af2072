"""Lesson 09: models of transformers': it builds them, and this module reads off them what no tensor shows."""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.weights import tables
from vit_tutorial.weights.checkpoint import numbered_classes
from vit_tutorial.weights.convert import LibraryModel, PublishedModel, tensors_of
from vit_tutorial.weights.proof import EXACT, ROUNDED, prove_preprocessing
from vit_tutorial.weights.tables import State

TABLES = {  # by a name that only one of them has
    "encoder.layer.0.norm1.weight": tables.TRANSFORMERS_DINO,
    "model.layer.0.norm1.weight": tables.TRANSFORMERS_DINO_3,
    "encoder.layers.0.layer_norm1.weight": tables.TRANSFORMERS_CLIP,
}


def load(folder: Path, state: State | None = None) -> PublishedModel:
    """The model of a folder; with ``state`` its config's, with these tensors."""
    model = live_model(folder, state)
    problem = getattr(model.config, "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise ValueError(f"its answers are for {problem}, and no softmax over classes")
    return PublishedModel(describe(model), preprocessing(processor_of(folder)), class_names(model))


def live_model(folder: Path, state: State | None = None) -> Any:
    """As :func:`load`, the live model of any class of transformers' that the config names.

    Raises:
        ValueError: tensors that the model needs are missing, or it has no place for some.
    """
    with needed():
        import transformers
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    name = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    kind: Any = getattr(transformers, name, None)
    if kind is None:
        raise ValueError(f"transformers has no {name}")
    model, report = kind.from_pretrained(
        None if state is not None else folder, config=config, state_dict=state, dtype=torch.float32,
        output_loading_info=True, local_files_only=True,
    )  # fmt: skip
    _check_whole(model, report["missing_keys"], sorted(report["unexpected_keys"]))
    return model.eval()


def _check_whole(model: nn.Module, missing: set[str], unexpected: list[str]) -> None:
    """Raise a ValueError for tensors that transformers made up, or left out of a layer that there is."""
    needed_ones = sorted(name for name in missing if "pooler.dense" not in name)
    if needed_ones:
        others = f"; it has {', '.join(unexpected[:3])}" if unexpected else ""
        raise ValueError(f"the file isn't whole: {', '.join(needed_ones[:5])} missing, of {len(needed_ones)}{others}")
    layers = {_without_number(name) for name in model.state_dict()}
    if beyond := [name for name in unexpected if "lora_" in name or _without_number(name) in layers]:
        raise ValueError(f"the model has no place for {beyond[0]}: more layers than its config says, or an adapter")


def _without_number(name: str) -> str:
    """The name of a tensor, the same for all layers."""
    return re.sub(r"\d+", "#", name)


def class_names(model: Any) -> tuple[str, ...]:
    """The labels in its config; numbered ones in place of transformers' "LABEL_0"; none where nothing classifies."""
    if not hasattr(model, "classifier") and not hasattr(model, "cls_classifier"):
        return ()
    labels = model.config.id2label
    names = tuple(str(labels[k]) for k in sorted(labels))
    return numbered_classes(len(names)) if names == tuple(f"LABEL_{k}" for k in range(len(names))) else names


def describe(model: nn.Module) -> LibraryModel:
    """What our config needs to know of the model, or of its image tower: ViT, DeiT, BEiT, DINO, CLIP, SigLIP, …

    Raises:
        ValueError: no Vision Transformer by any name of our tables.
    """
    tower = image_tower(model)
    tensors = tensors_of(model, tower)
    table = next((table for name, table in TABLES.items() if name in tensors), tables.TRANSFORMERS_VIT)
    (H, W), (P, Q) = _pair(tower.config.image_size), _pair(tower.config.patch_size)
    facts: dict[str, Any] = {"image_size": (H - H % P, W - W % Q)}
    if table is tables.TRANSFORMERS_CLIP and hasattr(model, "classifier"):
        # It reads the mean of the patches: SigLIP's pooling is unread, and CLIP's last norm, too.
        unread = ("pool", "norm") if hasattr(tower.embeddings, "class_embedding") else ("pool",)
        table = {our: their for our, their in table.items() if not our.startswith(unread)}
        facts["pool"] = "mean"
    if hasattr(tower, "rope_embeddings"):
        facts["rotary"] = Rotary("centred", tower.rope_embeddings.base)
    return LibraryModel(
        model=model,
        tower=tower,
        table=table,
        tensors=tensors,
        forward=partial(answer, model, tower),
        facts=facts,
        cropped_edge=(H % P, W % Q),
        recipe="timm" if hasattr(tower.embeddings, "register_tokens") else "huggingface",
        resizes_positions=True,
    )


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def image_tower(model: nn.Module) -> Any:
    """The part of one of transformers' models that sees the image, without what answers."""
    towers = [module for name, module in model.named_modules() if name.rpartition(".")[2] == "vision_model"]
    tower: Any = towers[-1] if towers else getattr(model, "base_model", model)
    return tower if hasattr(tower, "embeddings") else model


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
    resized = tuple(images.shape[-2:]) != _pair(tower.config.image_size)
    if resized and "interpolate_pos_encoding" in inspect.signature(call).parameters:
        return call(images, interpolate_pos_encoding=True)
    return call(images)


def processor_of(folder: Path) -> Any:
    """The image processor that lies beside the weights."""
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
    except OSError as error:
        raise ValueError(
            "there is no preprocessor_config.json beside its weights, which says how pictures are prepared: "
            "AutoImageProcessor.from_pretrained(the published model).save_pretrained(the folder) puts one there"
        ) from error


def preprocessing(processor: Any) -> Preprocessing:
    """As one of transformers' image processors prepares a picture."""
    from transformers.image_utils import PILImageResampling

    size, crop_size = dict(processor.size), dict(getattr(processor, "crop_size", None) or {})
    cropped = bool(getattr(processor, "do_center_crop", False)) and bool(crop_size)
    side = size.get("shortest_edge") or size.get("height")
    if side is None or (size.get("shortest_edge") and not cropped) or not processor.do_resize:
        raise ValueError(f"its processor resizes to {size}, and crops to {crop_size or 'nothing'}: no fixed size")
    output = crop_size if cropped else size
    ours = Preprocessing(
        (output["height"], output["width"]),
        tuple(processor.image_mean) if processor.do_normalize else (0.0, 0.0, 0.0),
        tuple(processor.image_std) if processor.do_normalize else (1.0, 1.0, 1.0),
        crop=output["height"] / side if cropped else "none",
        interpolation=PILImageResampling(processor.resample).name.lower(),
        squash=cropped and not size.get("shortest_edge"),
        corner="floored",
    )
    by_pillow = type(processor).__name__.endswith("Pil")

    def theirs(picture: Any) -> Tensor:
        return processor(images=picture, return_tensors="pt")["pixel_values"]

    return prove_preprocessing(ours, theirs, EXACT if by_pillow else ROUNDED)
