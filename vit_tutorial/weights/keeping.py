"""Models of this package on disk: written whole or not at all, and those that come with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.files import write
from vit_tutorial.variants.hybrid import HybridConfig
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights.messages import short
from vit_tutorial.weights.reading import COUNTER, check_numbers, read_json, read_safetensors

SHIPPED = Path(__file__).parent / "checkpoints"


def stored(path: Path) -> tuple[ViTConfig, dict[str, Tensor], tuple[str, ...], Preprocessing, str]:
    """What :func:`write_model` wrote into a folder: config, tensors, classes, preprocessing, and what its answers are.

    Raises:
        ValueError: files that are damaged or don't belong together.
        OSError: a file of the folder can't be read.
    """
    state = read_safetensors(path / "model.safetensors")
    check_numbers(state)
    settings = read_json(path / "config.json")
    if "model" not in settings:
        raise ValueError("config.json has no 'model', so it isn't this package's; the tensors alone: name their file")
    fields = settings["model"]
    kinds = {"vit": ViTConfig, "hybrid": HybridConfig, "modern": ModernConfig}
    if settings.get("kind") not in kinds:
        raise ValueError(f"config.json has the kind {settings.get('kind')!r}: one of {', '.join(kinds)} is needed")
    config = kinds[settings["kind"]](**fields)
    if config.num_classes and len(settings["classes"]) not in (0, config.num_classes):
        raise ValueError(f"{len(settings['classes'])} names for {config.num_classes} classes")
    height, width = settings["image_size"]
    how = {field: settings[field] for field in ("crop", "interpolation", "squash", "corner") if field in settings}
    over = tuple(settings.get("left_over", (0, 0)))
    preprocess = Preprocessing((height, width), tuple(settings["mean"]), tuple(settings["std"]), left_over=over, **how)
    answers = settings.get("answers", "")
    if not isinstance(answers, str):
        raise TypeError(f"answers must be text that says what they are, got {short(answers)}")
    return config, state, tuple(settings["classes"]), preprocess, answers


def shipped() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(folder.name for folder in SHIPPED.iterdir())


def write_model(
    folder: Path, model: ViT, classes: Sequence[str], preprocess: Preprocessing, about: Mapping[str, Any]
) -> None:
    """Write model.safetensors and config.json, all that is needed to use them; ``about`` is for people."""
    kinds = {ViTConfig: "vit", HybridConfig: "hybrid", ModernConfig: "modern"}
    if type(model.config) not in kinds:
        raise TypeError(f"a {type(model).__name__} can't be saved: a ViT, HybridViT or ModernViT can")
    config = {
        "kind": kinds[type(model.config)],
        "model": asdict(model.config),
        "classes": list(classes),
        **asdict(preprocess),
        **about,
    }
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(COUNTER)}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write(folder / "model.safetensors", safetensors.torch.save(weights))
    write(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
