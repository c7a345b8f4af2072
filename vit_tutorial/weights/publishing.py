"""A model, its classes and its preprocessing as a folder that :func:`load` reads, with a card; and onto the hub."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.data.files import write
from vit_tutorial.vit import ViT
from vit_tutorial.weights.keeping import write_model
from vit_tutorial.weights.messages import brief, some
from vit_tutorial.weights.model import Trained
from vit_tutorial.weights.sources import check_preprocess

CARD = """---
library_name: vit_tutorial
pipeline_tag: {task}
tags:
- vision-transformer
---

# {title}

{about}

| | |
|---|---|
| architecture | {kind}: {dim} numbers a token, {depth} blocks, {heads} heads, patches of {patch} pixels |
| pictures | {size} pixels, channels: {channels} |
| parameters | {parameters:,} |
| preprocessing | `{preprocess}` |
| classes | {classes} |

```python
import vit_tutorial as vt

model, classes, preprocess = vt.load("{where}")
logits = model(preprocess(picture))  # a PIL image
```
"""


def save(
    model: ViT | Trained,
    folder: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    preprocess: Preprocessing | None = None,
    about: str = "",
    called: str = "",
) -> None:
    """Write model.safetensors, config.json and a model card, README.md, which ``vt.load(folder)`` reads again.

    Args:
        model: a model, or what :func:`load` returned.
        folder: made if it isn't there; files of these names in it are replaced.
        classes: the names of the head's rows; by default those that were loaded, or none.
        preprocess: how pictures become what the model takes; by default as it was loaded.
        about: what the card says of the model: its data, its licence, its limits.
        called: the card's title, and what others load; by default the folder's name.

    Raises:
        ValueError: no preprocessing is known, or one for other pictures; as many names as the head has rows are needed.
        OSError: the folder can't be written.
    """
    answers = {}
    if isinstance(model, Trained):
        answers = {key: value for key, value in model.assumed.items() if key == "answers"}
        classes = model.classes if classes is None else classes
        preprocess = preprocess or model.preprocess
        model = model.model
    if not isinstance(model, ViT):
        raise TypeError(f"a ViT is needed, or what vt.load returns, got {type(model).__name__}")
    config, names, where = model.config, tuple(classes or ()), called or Path(folder).name
    preprocess = preprocess or getattr(model, "preprocess", None)  # as vt.load left it there
    if preprocess is None:
        raise ValueError("how pictures become what it takes isn't known: give preprocess=vt.data.Preprocessing(…)")
    check_preprocess(preprocess, config)
    if len(names) not in (0, config.num_classes):
        raise ValueError(f"{len(names)} names of classes, and the head has {config.num_classes} rows: all or none")
    write_model(Path(folder), model, names, preprocess, answers)
    card = CARD.format(
        task="image-classification" if names else "image-feature-extraction", title=brief(where, 200),
        about=about or "A Vision Transformer.", kind=type(model).__name__, dim=config.dim, depth=config.depth,
        heads=config.num_heads, patch=config.patch_size, size=config.image_size, channels=config.in_channels,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        preprocess=preprocess, classes=brief(some(names, 20)) if names else "none", where=where,
    )  # fmt: skip
    write(Path(folder, "README.md"), card.encode())


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
        save(model, folder, classes=classes, preprocess=preprocess, about=about, called=repository)
        hub = HfApi(token=token)
        hub.create_repo(repository, private=private, exist_ok=True)
        done = hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="A Vision Transformer")
    return str(getattr(done, "repo_url", None) or f"https://huggingface.co/{repository}")
