"""Lesson 09: models of torchvision's: torchvision builds them, and this module reads off them what no tensor shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.weights import files, tables
from vit_tutorial.weights.checkpoint import numbered_classes
from vit_tutorial.weights.convert import LibraryModel, PublishedModel, tensors_of
from vit_tutorial.weights.proof import prove_preprocessing


def load_name(name: str) -> PublishedModel:
    """The model of a name: "vit_b_16", or with weights named, "vit_b_16.IMAGENET1K_V1"."""
    model, weights = _weights(name)
    return _published(model, weights, files.torchvision_state(weights), weights.meta["categories"])


def load_file(path: Path, name: str) -> PublishedModel:
    """A file of tensors of this model, bare or as torchvision's own script of training writes it."""
    model, weights = _weights(name)
    state = files.read(path)
    return _published(model, weights, state.get("model", state), [])


def _weights(name: str) -> tuple[str, Any]:
    """The name of a model, and its weights."""
    with needed():
        from torchvision.models import get_model_weights, list_models
    model, _, version = name.partition(".")
    if model not in list_models(include="vit_*"):
        raise ValueError(f"torchvision has {', '.join(list_models(include='vit_*'))}, no {model!r}")
    weights = get_model_weights(model)
    if version and version not in weights.__members__:
        raise ValueError(f"{model} has the weights {', '.join(weights.__members__)}, no {version!r}")
    return model, weights[version or "DEFAULT"]


def _published(name: str, weights: Any, state: dict[str, Tensor], categories: Sequence[str]) -> PublishedModel:
    from torchvision.models import get_model

    head = state.get("heads.head.weight")
    if head is None:
        raise ValueError("there is no heads.head.weight: not torchvision's names of a ViT")
    model = get_model(name, weights=None, num_classes=len(head), image_size=weights.meta["min_size"][0])
    model.load_state_dict(state)
    classes = tuple(categories) if len(categories) == len(head) else numbered_classes(len(head))
    return PublishedModel(describe(model.eval()), preprocessing(weights.transforms()), classes)


def describe(model: nn.Module) -> LibraryModel:
    """What our config needs to know of torchvision's ``VisionTransformer``."""
    if not hasattr(model, "conv_proj"):
        raise ValueError(f"torchvision's {type(model).__name__} isn't a Vision Transformer")
    return LibraryModel(
        model=model,
        tower=model,
        table=tables.TORCHVISION,
        tensors=tensors_of(model, model),
        forward=model,
        facts={"image_size": model.image_size},
        recipe="torchvision",
    )


def preprocessing(how: Any) -> Preprocessing:
    """As the ``transforms()`` of torchvision's weights."""
    size, resized = how.crop_size[0], how.resize_size[0]
    ours = Preprocessing((size, size), tuple(how.mean), tuple(how.std), size / resized, how.interpolation.value)
    return prove_preprocessing(ours, how)
