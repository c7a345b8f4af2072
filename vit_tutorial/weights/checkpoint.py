"""Lesson 09: a model of this package on disk: model.safetensors and config.json, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.data import Preprocessing
from vit_tutorial.data.files import write
from vit_tutorial.variants.hybrid import HybridConfig, HybridViT
from vit_tutorial.variants.modern import AttentionPool, ModernConfig, ModernEmbeddings, ModernMLP, ModernViT
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights.files import read_json, read_safetensors
from vit_tutorial.weights.our_models import (
    COUNTER,
    KnowsPreprocessing,
    LoadedModel,
    check_fits,
    model_from,
    numbered_classes,
    without_numbers,
)

BUNDLED = Path(__file__).parent / "checkpoints"
KINDS: dict[str, tuple[type[ViTConfig], type[ViT]]] = {  # what a config.json calls them
    "vit": (ViTConfig, ViT),
    "hybrid": (HybridConfig, HybridViT),
    "modern": (ModernConfig, ModernViT),
}
WRAPPED = ("_orig_mod", "module")  # where torch.compile, and where DataParallel and others, keep the model
# On which attributes a layer's answer depends, besides its tensors and parts. Rates of dropout count in training only.
SETTINGS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Conv2d: ("stride", "padding", "dilation", "groups", "padding_mode"),
    nn.LayerNorm: ("normalized_shape", "eps"),
    nn.RMSNorm: ("normalized_shape", "eps"),
    nn.BatchNorm2d: ("eps",),
    nn.GELU: ("approximate",),
    ViT: ("reads_cls_token",),
    MultiHeadSelfAttention: ("num_heads",),
    ModernEmbeddings: ("class_tokens",),
    ModernMLP: ("gated",),
    AttentionPool: ("num_heads",),
}
CARD = """---
library_name: vit_tutorial
---

{about}

`{config}`, pictures prepared by `{preprocess}`, classes: {classes}.

```python
import vit_tutorial as vt

model, classes, preprocess = vt.load("OWNER/NAME")  # or the folder
logits = model(preprocess(picture))  # a PIL image
```
"""


def bundled_models() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(folder.name for folder in BUNDLED.iterdir())


# ---------------------------------------------------------------------------------------------------------------- save


def save(
    model: ViT | LoadedModel,
    folder: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    preprocess: Preprocessing | None = None,
    about: str = "A Vision Transformer.",
) -> None:
    """Write model.safetensors, config.json and a model card, README.md, which ``vt.load(folder)`` reads again.

    Each file is replaced whole or not at all. If the process dies after the weights and before the config,
    ``vt.load`` refuses the folder, since the config holds the weights' SHA-256.

    ``hf upload OWNER/NAME folder`` puts the folder on the Hugging Face hub, for ``vt.load("OWNER/NAME")``.

    Args:
        model: a model, or what :func:`load` returned.
        folder: made if it isn't there; files of these names in it are replaced.
        classes: the names of the head's rows; by default those that were loaded, or for a bare model "class 0", ….
        preprocess: how pictures become what the model takes; by default as it was loaded.
        about: what the card says of the model: its data, its licence, its limits.

    Raises:
        TypeError: a model that can't be loaded again (see :func:`check_savable`).
        ValueError: no preprocessing is known, or one for other pictures; as many names as the head has rows are needed;
            a number isn't finite.
        OSError: the folder can't be written.
    """
    if isinstance(model, LoadedModel):
        classes = model.classes if classes is None else classes
        preprocess = preprocess or model.preprocess
        model = model.model
    check_savable(model)
    if preprocess is None and isinstance(model, KnowsPreprocessing):
        preprocess = model.preprocess
    if preprocess is None:
        raise ValueError("how pictures become what it takes isn't known: give preprocess=vt.data.Preprocessing(…)")
    names = _checked_names(numbered_classes(model.config.num_classes) if classes is None else classes, model)
    check_fits(preprocess, model.config)
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(COUNTER)}
    if broken := [name for name, tensor in state.items() if tensor.is_meta or not tensor.isfinite().all()]:
        raise ValueError(
            f"{broken[0]} holds numbers that aren't finite, or none (the meta device): nothing was written"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    weights = safetensors.torch.save(tensors)
    settings = {"kind": kind_of(model), "model": asdict(model.config), "classes": names, **asdict(preprocess)}
    settings["sha256"] = hashlib.sha256(weights).hexdigest()
    config = (json.dumps(settings, indent=2) + "\n").encode()
    few = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    card = CARD.format(about=about, config=model.config, preprocess=preprocess, classes=few or "none")
    out = Path(folder).expanduser()
    # From here on, nothing but the disk can fail.
    write(out / "model.safetensors", weights)
    write(out / "config.json", config)
    write(out / "README.md", card.encode())


def _checked_names(classes: Sequence[str], model: ViT) -> list[str]:
    """The names of the head's rows, or none of them."""
    names = list(classes)
    if isinstance(classes, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"classes must be the names of the head's rows, a list of str, got {classes!r}")
    if len(names) not in (0, model.config.num_classes):
        raise ValueError(
            f"{len(names)} names of classes, and the head has {model.config.num_classes} rows: all or none"
        )
    return names


def check_savable(model: object) -> None:
    """Raise a TypeError for a model that its config doesn't describe, so that it couldn't be loaded again.

    Call it before a training begins, not after.
    """
    if not isinstance(model, ViT):
        raise TypeError(f"a ViT is needed, got {type(model).__name__}{_where_the_vit_is(model)}")
    place = _other_than_its_config(model)
    if place is not None:
        kinds = ", ".join(model_class.__name__ for _, model_class in KINDS.values())
        raise TypeError(
            f"this {type(model).__name__} can't be loaded from its config: {place} isn't as the config says; only "
            f"{kinds} without parts or methods of their own can be saved. Keep yours by torch.save(model.state_dict(), "
            "file)"
        )


def _where_the_vit_is(wrapper: object) -> str:
    """For a compiled model, one for several GPUs or PEFT's: where in it the ViT is; "" for anything else."""
    if hasattr(wrapper, "merge_and_unload"):
        return ": the ViT has an adapter, save model.merge_and_unload()"
    path = "model"
    while isinstance(wrapper, nn.Module) and not isinstance(wrapper, ViT):
        name = next((name for name in WRAPPED if name in wrapper._modules), None)
        if name is None:
            return ""
        wrapper = wrapper.get_submodule(name)
        path = f"{path}.{name}"
    return f": the ViT is inside it, save {path}" if isinstance(wrapper, ViT) else ""


def kind_of(model: ViT) -> str | None:
    """What a config.json calls this kind of model."""
    classes = type(model.config), type(model)
    return next((kind for kind, described in KINDS.items() if described == classes), None)


def _other_than_its_config(model: ViT) -> str | None:
    """The first part or tensor that isn't as its config says; None, if all are."""
    if kind_of(model) is None:
        return "its class"
    with without_numbers():
        described = _parts(type(model)(model.config))
    parts = _parts(model)
    names = [*parts, *described]
    return next((name or "the model" for name in names if parts.get(name) != described.get(name)), None)


def _parts(model: nn.Module) -> dict[str, str]:
    """The type and the settings of each part, and the shape of each tensor; one that two parts share counts once."""
    parts = {name: f"{type(part)} {_settings(part)}" for name, part in model.named_modules()}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return parts | {name: f"{tuple(tensor.shape)}" for name, tensor in tensors}


def _settings(part: nn.Module) -> dict[str, object]:
    """What a part's answer depends on: an epsilon, the number of heads, a replaced method; no rate of dropout."""
    settings = {name: getattr(part, name) for kind in type(part).__mro__ for name in SETTINGS.get(kind, ())}
    replaced = {name: value for name, value in vars(part).items() if callable(getattr(type(part), name, None))}
    return settings | replaced


# ---------------------------------------------------------------------------------------------------------------- load


def is_ours(settings: Mapping[str, Any]) -> bool:
    """Whether :func:`save` wrote this config.json."""
    return "model" in settings and "classes" in settings


def read_folder(folder: Path) -> LoadedModel:
    """What a folder holds that :func:`save` wrote; no other library is needed.

    Raises:
        ValueError: files that are damaged or don't belong together.
        OSError: a file of the folder can't be read.
    """
    settings = read_json(folder / "config.json")
    state = read_safetensors(folder / "model.safetensors")
    if "sha256" in settings and settings["sha256"] != _sha256(folder / "model.safetensors"):
        raise ValueError(
            f"{folder / 'model.safetensors'} isn't the file that {folder / 'config.json'} was written with (another "
            "SHA-256): save the model again, or take sha256 out of the config if you changed the weights yourself"
        )
    try:
        return _described(settings, state)
    except (ValueError, TypeError, KeyError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder} isn't as this package writes it: {reason}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hashable(value: Any) -> Any:
    """JSON has lists for tuples."""
    return tuple(value) if isinstance(value, list) else value


def _described(settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> LoadedModel:
    """The model of a config.json and its tensors."""
    if settings.get("kind") not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}, got {settings.get('kind')!r}")
    config_class, _ = KINDS[settings["kind"]]
    config = config_class(**settings["model"])
    classes = tuple(settings["classes"])
    blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
    if len(blocks) != config.depth:  # before a damaged depth of a billion is built
        raise ValueError(f"the weights have {len(blocks)} blocks, the config says depth={config.depth}")
    if config.num_classes and len(classes) not in (0, config.num_classes):
        raise ValueError(f"{len(classes)} names for {config.num_classes} classes")
    names = [field.name for field in fields(Preprocessing) if field.name in settings]
    preprocess = Preprocessing(**{name: _hashable(settings[name]) for name in names})
    check_fits(preprocess, config)
    return LoadedModel(model_from(config, state), classes, preprocess)
