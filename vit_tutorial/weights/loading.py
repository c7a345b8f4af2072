"""Lesson 09: from a name to a model. :func:`load` asks the library that published it, then proves that ours is equal.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("torchvision/vit_b_16")  # doctest: +SKIP
>>> classes[model(preprocess(picture)).argmax()]  # doctest: +SKIP
'military uniform'

The way of a published model: :func:`parse_name` says whose it is; the library's module (:mod:`.timm_models`,
:mod:`.torchvision_models`, :mod:`.transformers_models`) lets the library build it; :mod:`.convert` makes ours of it,
and :mod:`.proof` compares both. A folder of this package is read by :mod:`.checkpoint`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from vit_tutorial.data import Preprocessing
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import ViT
from vit_tutorial.weights import (
    checkpoint,
    convert,
    files,
    proof,
    timm_models,
    torchvision_models,
    transformers_models,
)
from vit_tutorial.weights.convert import Publication
from vit_tutorial.weights.our_models import (
    KnowsPreprocessing,
    LoadedModel,
    check_fits,
    numbered_classes,
    with_head,
    with_size,
)

SUFFIXES = (".safetensors", ".npz", ".pth", ".pt", ".bin", ".ckpt")
LIKE = "vt.load(file, like='timm/vit_small_patch16_224'), or like='torchvision/…', or a folder or name of transformers'"


def load(
    name: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | None = None,
    num_classes: int | None = None,
    image_size: Size | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
) -> LoadedModel:
    """A trained model, the names of its classes and its preprocessing.

    A published model is built by the library that published it, and ours is compared with it: the tokens after each
    block, the answer, the preprocessing of a photograph. It is equal, or a ValueError says where it first differs.

    Args:
        name: one of

            - "digits", "digits-patch2", "shapes", "photographs" or "cifar10": come with the package;
            - a folder that ``vt.save`` or ``vit-tutorial train`` wrote;
            - "timm/vit_small_patch16_224.augreg_in21k_ft_in1k": a model of timm's, with or without the name of weights;
            - "torchvision/vit_b_16", or with weights named, "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1";
            - "google/vit-base-patch16-224": a repository on the Hugging Face hub, for transformers, timm or this
              package;
            - a folder with the files of such a repository;
            - a file of weights, with ``like``.

        like: what a file of weights is: a name as above, of timm's, torchvision's or transformers', or a folder with a
            config.json of transformers'.
        num_classes: another number of classes than the checkpoint's gives a new head, of zeros; 0 gives none.
        image_size: H = W, or (H, W), in pixels, which the model then takes. Learned positions are resized to it, as the
            library does.
        revision: of a repository on the hub: a branch, a tag or a commit.
        token: for a repository that isn't public; by default the one that huggingface_hub has.

    Raises:
        ValueError: no such name; weights that are damaged; a model that isn't equal to ours: where it differs; revision
            or token for what isn't on the hub.
        TypeError: a value of another type.
        OSError: a file isn't there and can't be downloaded: which file to put where.
        ImportError: the library that published the model isn't installed.
    """
    size = None if image_size is None else as_pair(image_size, "image_size")
    source = parse_name(name if like is None else like)
    if like is None:
        check_hub_options(source.kind in ("hub", "timm"), name, revision, token)
        loaded = _load_named(source, size, revision, token)
    else:
        check_hub_options(source.kind == "hub", like, revision, token)
        loaded = _load_file(Path(name).expanduser(), source, size, revision, token)
    return _changed(loaded, num_classes, size)


def _changed(loaded: LoadedModel, num_classes: int | None, image_size: tuple[int, int] | None) -> LoadedModel:
    """The model with the number of classes and the image size that were asked for; it remembers its preprocessing."""
    model, classes, preprocess = loaded
    if image_size is not None and image_size != model.config.image_size:
        model = with_size(model, image_size)
        preprocess = replace(preprocess, image_size=image_size, cropped_edge=(0, 0))
    if num_classes is not None and num_classes != model.config.num_classes:
        model, classes = with_head(model, num_classes), numbered_classes(num_classes)
    cast(KnowsPreprocessing, model).preprocess = preprocess
    return LoadedModel(model, classes, preprocess)


# ------------------------------------------------------------------------------------------------------------- the name


@dataclass(frozen=True)
class Source:
    """Where a model comes from."""

    kind: Literal["bundled", "folder", "file", "timm", "torchvision", "hub"]
    name: str  # of the model, without "timm/" or "torchvision/"; a path; a repository, OWNER/NAME

    @property
    def path(self) -> Path:
        """The folder or the file."""
        return Path(self.name)


def parse_name(name: str | os.PathLike[str]) -> Source:
    """What a name stands for, by its form and by what is on disk.

    Raises:
        ValueError: no name of anything.
        FileNotFoundError: a path where nothing is.
    """
    text = os.fsdecode(name)
    path = Path(text).expanduser()
    owner, _, rest = text.partition("/")
    if not text:
        raise ValueError("the name is empty: name a model, OWNER/NAME, a folder or a file")
    if text in checkpoint.bundled_models():
        return Source("bundled", text)
    if path.is_dir():
        return Source("folder", str(path))
    if path.is_file() or path.suffix.lower() in SUFFIXES:
        return Source("file", str(path))
    if path.is_absolute() or text.startswith((".", "~")):
        raise FileNotFoundError(f"there is no folder {path}: check its name")
    if owner == "timm" and rest:
        return Source("timm", rest)
    if owner == "torchvision" and rest:
        return Source("torchvision", rest)
    if rest and "/" not in rest:
        return Source("hub", text)
    raise ValueError(
        f"{text!r} is neither a model of the package ({', '.join(checkpoint.bundled_models())}) nor a folder, nor "
        "timm/NAME, torchvision/NAME, or OWNER/NAME on the Hugging Face hub; vit-tutorial train --out FOLDER writes "
        "such a folder"
    )


def check_hub_options(downloaded: bool, name: object, revision: str | None, token: str | bool | None) -> None:
    """Raise a ValueError for a revision or a token where nothing is downloaded from the Hugging Face hub."""
    if not downloaded and (revision is not None or token is not None):
        option = "token" if revision is None else "revision"
        raise ValueError(f"{option}= is for a repository on the Hugging Face hub, which {name} isn't: leave it out")


# ------------------------------------------------------------------------------------------------------ what it names


def _load_named(
    source: Source, image_size: tuple[int, int] | None, revision: str | None, token: str | bool | None
) -> LoadedModel:
    """The model that a name stands for."""
    if source.kind == "bundled":
        return checkpoint.read_folder(checkpoint.BUNDLED / source.name)
    if source.kind == "folder":
        return _load_folder(source.path, source.name, image_size)
    if source.kind == "file":
        files.check_file(source.path)
        raise ValueError(f"{source.name} is a file of tensors, and doesn't say which model they belong to: {LIKE}")
    if source.kind == "torchvision":
        with errors_named(f"torchvision/{source.name}"):
            return convert_and_prove(torchvision_models.load_name(source.name), image_size)
    repository = timm_models.hub_name(source.name) if source.kind == "timm" else source.name
    return _load_folder(files.download(repository, revision, token), repository, image_size)


def _load_folder(folder: Path, name: str, image_size: tuple[int, int] | None) -> LoadedModel:
    """The model of a folder of this package's, or with the files of a repository for transformers or timm."""
    content = sorted(file.name for file in folder.iterdir())
    if "config.json" not in content:
        if "state.pt" in content:
            raise FileNotFoundError(f"{folder} holds an unfinished run: finish it by the same command with --resume")
        raise FileNotFoundError(f"the folder {folder} has no config.json, but {', '.join(content[:10]) or 'nothing'}")
    if "adapter_config.json" in content:  # which transformers leaves out, if peft isn't installed
        raise ValueError(f"{folder} holds an adapter: merge it (peft's merge_and_unload), save that model, and load it")
    settings = files.read_json(folder / "config.json")
    if checkpoint.is_ours(settings):
        return checkpoint.read_folder(folder)
    with errors_named(name):
        if "architecture" in settings:
            publication = timm_models.load_folder(folder, image_size)
        elif "model_type" in settings:
            publication = transformers_models.load(folder)
        else:
            raise ValueError("its config.json is neither this package's, nor transformers' (model_type), nor timm's")
        return convert_and_prove(publication, image_size)


def _load_file(
    file: Path, like: Source, image_size: tuple[int, int] | None, revision: str | None, token: str | bool | None
) -> LoadedModel:
    """The model of a file of weights, read by the library whose model it is like."""
    files.check_file(file)
    with errors_named(str(file)):
        if like.kind == "timm":
            publication = timm_models.load_file(file, like.name, image_size)
        elif like.kind == "torchvision":
            publication = torchvision_models.load_file(file, like.name)
        elif like.kind == "hub":
            publication = transformers_models.load(files.download(like.name, revision, token), files.read(file))
        elif like.kind == "folder" and "model_type" in files.read_json(like.path / "config.json"):
            publication = transformers_models.load(like.path, files.read(file))
        else:
            raise ValueError(
                f"like={like.name!r} is no model of timm's, torchvision's or transformers': {LIKE}; a folder with a "
                "model of this package or of timm's is loaded by its own name"
            )
        return convert_and_prove(publication, image_size)


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Whatever a library, or a model of another kind, makes go wrong becomes a ValueError with the name before it."""
    try:
        yield
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:1000]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{name}: {kind}{message}") from error


# ------------------------------------------------------------------------------------------------------------ the proof


def convert_and_prove(publication: Publication, image_size: tuple[int, int] | None = None) -> LoadedModel:
    """Our model of a published one, for images of this size, compared with it.

    Raises:
        ValueError: they aren't equal: where they first differ.
    """
    published, preprocess, classes = publication
    model = convert.model_of(published)  # for images of the size that the library's model has
    preprocess = _preprocessing_for(model, publication, image_size)
    resized = with_size(model, preprocess.image_size, published.recipe)
    if published.resizes_positions and resized is not model:
        # transformers resizes positions in each forward pass: so the proof covers our resizing, too.
        proof.prove(resized, replace(published, cropped_edge=(0, 0)))
    else:
        # timm has built its model for the wanted size already, and torchvision's takes no other size than its own.
        proof.prove(model, published)
    check_fits(preprocess, resized.config)
    return LoadedModel(resized, classes, preprocess)


def _preprocessing_for(model: ViT, publication: Publication, image_size: tuple[int, int] | None) -> Preprocessing:
    """The published preprocessing for the wanted size; without one, as published, but for an edge that is cropped."""
    edge = publication.model.cropped_edge
    if image_size is not None:
        return replace(publication.preprocess, image_size=image_size)
    if any(edge):
        own_size = as_pair(model.config.image_size, "image_size")
        return replace(publication.preprocess, image_size=own_size, cropped_edge=edge)
    return publication.preprocess
