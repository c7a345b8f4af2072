"""Lesson 09: a model of this package on disk: model.safetensors and config.json, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.data.files import write
from vit_tutorial.variants.hybrid import HybridConfig, HybridViT
from vit_tutorial.variants.modern import ModernConfig, ModernViT
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import pixels
from vit_tutorial.weights.convert import COUNTER, assemble, without_numbers
from vit_tutorial.weights.files import read_json, read_safetensors

SHIPPED = Path(__file__).parent / "checkpoints"
KINDS: dict[str, tuple[type[ViTConfig], type[ViT]]] = {
    "vit": (ViTConfig, ViT),
    "hybrid": (HybridConfig, HybridViT),
    "modern": (ModernConfig, ModernViT),
}
CARD = """---
library_name: vit_tutorial
pipeline_tag: {task}
tags:
- vision-transformer
---

# {title}

{about}

- {kind}: width {dim}, {depth} blocks, {heads} heads, patches of {patch} pixels, {parameters:,} parameters
- images: {size} pixels, {channels} channels, `{preprocess}`
- classes: {classes}

```python
import vit_tutorial as vt

model, classes, preprocess = vt.load("{title}")
logits = model(preprocess(picture))  # a PIL image
```
"""


class Trained(NamedTuple):
    """What :func:`vit_tutorial.load` returns."""

    model: ViT  # in evaluation mode, on the CPU
    classes: tuple[str, ...]  # the names of the head's rows; () where it names none
    preprocess: Preprocessing  # pictures -> what the model takes


def shipped() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(folder.name for folder in SHIPPED.iterdir())


def kind_of(model: ViT) -> str:
    """What :func:`save` calls this kind of model; "" for one that it can't save."""
    for kind, (config, model_class) in KINDS.items():
        plain = type(model) is model_class and type(model.config) is config
        if plain and _parts(model) == _parts(_skeleton(model)):
            return kind
    return ""


def _skeleton(model: ViT) -> ViT:
    with without_numbers():
        return type(model)(model.config)


def _parts(model: ViT) -> dict[str, str]:
    """The type and the settings of each part, and the shape of each tensor; one that two parts share counts once."""
    parts = {name: f"{type(part)} {_settings(part)}" for name, part in model.named_modules()}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return parts | {name: f"{tuple(tensor.shape)}" for name, tensor in tensors}


def _settings(part: nn.Module) -> dict[str, object]:
    """A part's numbers and names on which its answer depends: an epsilon, the number of heads; no rate of dropout."""
    return {
        name: value
        for name, value in vars(part).items()
        if isinstance(value, (int, float, str)) and name not in ("training", "p") and not name.startswith("_")
    }


def check_savable(model: object) -> None:
    """Raise a TypeError for a model that a config can't describe, so that it couldn't be loaded again.

    Call it before a training begins, not after.
    """
    kinds = ", ".join(model_class.__name__ for _, model_class in KINDS.values())
    if not isinstance(model, ViT):
        raise TypeError(f"a ViT is needed, got {type(model).__name__}")
    if not kind_of(model):
        raise TypeError(
            f"a {type(model).__name__} with parts of its own can't be loaded from its config: only {kinds} with the "
            "parts that their config says can be saved; keep yours by torch.save(model.state_dict(), file)"
        )


def save(
    model: ViT | Trained,
    folder: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    preprocess: Preprocessing | None = None,
    about: str = "",
    title: str = "",
) -> None:
    """Write model.safetensors, config.json and a model card, README.md, which ``vt.load(folder)`` reads again.

    Args:
        model: a model, or what :func:`load` returned.
        folder: made if it isn't there; files of these names in it are replaced.
        classes: the names of the head's rows; by default those that were loaded, or none.
        preprocess: how pictures become what the model takes; by default as it was loaded.
        about: what the card says of the model: its data, its licence, its limits.
        title: the card's title, and what others load; by default the folder's name.

    Raises:
        TypeError: a model that can't be loaded again (see :func:`check_savable`).
        ValueError: no preprocessing is known, or one for other pictures; as many names as the head has rows are needed;
            a number isn't finite.
        OSError: the folder can't be written.
    """
    if isinstance(model, Trained):
        classes = model.classes if classes is None else classes
        preprocess = preprocess or model.preprocess
        model = model.model
    check_savable(model)
    config, names, out = model.config, () if classes is None else tuple(classes), Path(folder)
    if isinstance(classes, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"classes must be the names of the head's rows, a list of str, got {classes!r}")
    preprocess = preprocess or getattr(model, "preprocess", None)  # as vt.load left it there
    if preprocess is None:
        raise ValueError("how pictures become what it takes isn't known: give preprocess=vt.data.Preprocessing(…)")
    pixels.check_fits(preprocess, config)
    if len(names) not in (0, config.num_classes):
        raise ValueError(f"{len(names)} names of classes, and the head has {config.num_classes} rows: all or none")
    if broken := [name for name, tensor in model.state_dict().items() if not _is_finite(tensor)]:
        raise ValueError(
            f"{broken[0]} holds numbers that aren't finite, or none (the meta device): nothing was written"
        )
    settings = {"kind": kind_of(model), "model": asdict(config), "classes": list(names), **asdict(preprocess)}
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(COUNTER)}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    write(out / "model.safetensors", safetensors.torch.save(tensors))
    write(out / "config.json", (json.dumps(settings, indent=2) + "\n").encode())
    write(out / "README.md", card(model, names, preprocess, about, title or out.name).encode())


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_meta and bool(tensor.isfinite().all())


def card(model: ViT, classes: Sequence[str], preprocess: Preprocessing, about: str, title: str) -> str:
    """The model card, in Markdown."""
    config, more = model.config, f" and {len(classes) - 20} more" if len(classes) > 20 else ""
    return CARD.format(
        task="image-classification" if classes else "image-feature-extraction",
        title=title,
        about=about or "A Vision Transformer.",
        kind=type(model).__name__,
        dim=config.dim,
        depth=config.depth,
        heads=config.num_heads,
        patch=config.patch_size,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        size=config.image_size,
        channels=config.in_channels,
        preprocess=preprocess,
        classes=", ".join(classes[:20]) + more if classes else "none",
    )


def push_to_hub(
    model: ViT | Trained,
    repository: str,
    *,
    classes: Sequence[str] | None = None,
    preprocess: Preprocessing | None = None,
    about: str = "",
    private: bool | None = None,
    token: str | bool | None = None,
) -> str:
    """Write the folder of :func:`save` into a repository on the Hugging Face hub, and return its address.

    Args:
        model: a model, or what :func:`load` returned.
        repository: "owner/name"; made if it isn't there.
        classes: as :func:`save` has it.
        preprocess: likewise.
        about: likewise.
        private: of a new repository; None: as the owner's are by default.
        token: that may write; by default the one that huggingface_hub has.

    Raises:
        ValueError: as :func:`save`.
        OSError: no network, or no right to write (huggingface_hub's own errors).
    """
    with needed():
        from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory() as folder:
        save(model, folder, classes=classes, preprocess=preprocess, about=about, title=repository)
        hub = HfApi(token=token)
        hub.create_repo(repository, private=private, exist_ok=True)
        done = hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="A Vision Transformer")
    return str(getattr(done, "repo_url", None) or f"https://huggingface.co/{repository}")


def is_ours(settings: Mapping[str, Any]) -> bool:
    """Whether :func:`save` wrote this config.json."""
    return "model" in settings and "classes" in settings


def read(folder: Path) -> Trained:
    """What a folder holds that :func:`save` wrote; no other library is needed.

    Raises:
        ValueError: files that are damaged or don't belong together.
        OSError: a file of the folder can't be read.
    """
    settings = read_json(folder / "config.json")
    state = read_safetensors(folder / "model.safetensors")
    try:
        fields = settings["model"]
        if settings.get("kind") not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, got {settings.get('kind')!r}")
        config = KINDS[settings["kind"]][0](**fields)
        classes = tuple(settings["classes"])
        pixel_fields = {name: settings[name] for name in asdict(Preprocessing((1, 1), (), ())) if name in settings}
        preprocess = Preprocessing(**{name: _tuple(value) for name, value in pixel_fields.items()})
        blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
        if len(blocks) != config.depth:  # before a damaged depth of a billion is built
            raise ValueError(f"the weights have {len(blocks)} blocks, the config says depth={config.depth}")
        if config.num_classes and len(classes) not in (0, config.num_classes):
            raise ValueError(f"{len(classes)} names for {config.num_classes} classes")
        pixels.check_fits(preprocess, config)
        if broken := [name for name, tensor in state.items() if not _is_finite(tensor)]:
            raise ValueError(f"{broken[0]} holds numbers that aren't finite")
        return Trained(assemble(config, state), classes, preprocess)
    except (ValueError, TypeError, KeyError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder} isn't as this package writes it: {said}") from error


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
