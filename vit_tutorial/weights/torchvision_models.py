"""Lesson 09: models of torchvision's: torchvision builds them; here is what it calls their tensors."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import install_hint
from vit_tutorial.weights import files
from vit_tutorial.weights.convert import Publication, PublishedModel, tensors_of
from vit_tutorial.weights.our_models import numbered_classes
from vit_tutorial.weights.proof import prove_preprocessing
from vit_tutorial.weights.tables import Table

TORCHVISION: Table = {  # ours: theirs; * is weight and bias
    "embed.cls_token": "class_token",
    "embed.position": "encoder.pos_embedding",
    "embed.patches.proj.*": "conv_proj.*",
    "blocks.{i}.norm1.*": "encoder.layers.encoder_layer_{i}.ln_1.*",
    "blocks.{i}.attention.qkv.*": "encoder.layers.encoder_layer_{i}.self_attention.in_proj_*",
    "blocks.{i}.attention.proj.*": "encoder.layers.encoder_layer_{i}.self_attention.out_proj.*",
    "blocks.{i}.norm2.*": "encoder.layers.encoder_layer_{i}.ln_2.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layers.encoder_layer_{i}.mlp.0.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.encoder_layer_{i}.mlp.3.*",
    "norm.*": "encoder.ln.*",
    "head.*": "heads.head.*",
}


def load_name(name: str) -> Publication:
    """The model of a name: "vit_b_16", or with weights named, "vit_b_16.IMAGENET1K_V1"."""
    model, weights = _weights(name)
    return _published(model, weights, download(weights), weights.meta["categories"])


def load_file(path: Path, name: str) -> Publication:
    """A file of tensors of this model, bare or as torchvision's own script of training writes it."""
    model, weights = _weights(name)
    state = files.read(path)
    return _published(model, weights, state.get("model", state), [])


def _weights(name: str) -> tuple[str, Any]:
    """The name of a model, and its weights."""
    with install_hint():
        from torchvision.models import get_model_weights, list_models
    model, _, version = name.partition(".")
    if model not in list_models(include="vit_*"):
        raise ValueError(f"torchvision has {', '.join(list_models(include='vit_*'))}, no {model!r}")
    weights = get_model_weights(model)
    if version and version not in weights.__members__:
        raise ValueError(f"{model} has the weights {', '.join(weights.__members__)}, no {version!r}")
    return model, weights[version or "DEFAULT"]


def download(weights: Any) -> dict[str, Tensor]:
    """The tensors of one of torchvision's weights, checked by the hash in their name.

    Raises:
        ValueError: the file is damaged.
        OSError: they aren't on disk and can't be downloaded: which file to put where.
    """
    folder, name = Path(torch.hub.get_dir(), "checkpoints"), weights.url.rpartition("/")[2]
    no_network = "" if (folder / name).exists() else files.no_answer(weights.url)
    try:
        if no_network:
            raise OSError(no_network)
        return weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except OSError as error:
        reason = " ".join(str(error).split())[:200]
        raise OSError(
            f"{name} is not on disk and can't be downloaded ({reason}): with a network, call again; without, put "
            f"{name} from {weights.url} into {folder} first"
        ) from None
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{name} is damaged ({error!s:.80}): remove {folder / name}, and it is downloaded again"
        ) from error


def _published(name: str, weights: Any, state: dict[str, Tensor], categories: Sequence[str]) -> Publication:
    from torchvision.models import get_model

    head = state.get("heads.head.weight")
    if head is None:
        raise ValueError("there is no heads.head.weight: not torchvision's names of a ViT")
    model = get_model(name, weights=None, num_classes=len(head), image_size=weights.meta["min_size"][0])
    model.load_state_dict(state)
    classes = tuple(categories) if len(categories) == len(head) else numbered_classes(len(head))
    return Publication(describe(model.eval()), preprocessing(weights.transforms()), classes)


def preprocessing(transforms: Any) -> Preprocessing:
    """As the ``transforms()`` of torchvision's weights."""
    size, resized = transforms.crop_size[0], transforms.resize_size[0]
    ours = Preprocessing(
        image_size=(size, size),
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        crop=size / resized,
        interpolation=transforms.interpolation.value,
    )
    prove_preprocessing(ours, transforms)
    return ours


def describe(original: nn.Module) -> PublishedModel:
    """What our config needs to know of torchvision's ``VisionTransformer``."""
    if not hasattr(original, "conv_proj"):
        raise ValueError(f"torchvision's {type(original).__name__} isn't a Vision Transformer")
    return PublishedModel(
        original=original,
        tower=original,
        table=TORCHVISION,
        tensors=tensors_of(original, original),
        forward=original,
        facts={"image_size": original.image_size},
        recipe="torchvision",
    )
