"""Lesson 09: from a name to a model: the file, unwrapped, its names, its config, the model.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("torchvision/vit_b_16")  # doctest: +SKIP
>>> classes[model(preprocess(picture)).argmax()]  # doctest: +SKIP
'military uniform'
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from vit_tutorial.data import Preprocessing
from vit_tutorial.embeddings import ResizeRecipe
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import ViTConfig
from vit_tutorial.weights import configs, hub
from vit_tutorial.weights.fields import Given
from vit_tutorial.weights.hub import Json, Published, Repository
from vit_tutorial.weights.keeping import SHIPPED, damaged, shipped, stored
from vit_tutorial.weights.messages import brief, refusing, some, warn
from vit_tutorial.weights.model import Converted, Trained, assemble, convert_given, with_head, with_size
from vit_tutorial.weights.names import State
from vit_tutorial.weights.reading import READERS, check_numbers, is_weights, read, read_json
from vit_tutorial.weights.sources import check_preprocess

REMOTE = ("torchvision", "timm", "hf", "google")


@dataclass(frozen=True)
class Found:
    """All that makes a model, before it is made."""

    config: ViTConfig
    state_dict: State
    preprocess: Preprocessing
    classes: tuple[str, ...]
    assumed: dict[str, Any]  # what the file didn't tell
    about: str  # what an error begins with
    projection: bool = False  # whether the head names no classes
    recipe: ResizeRecipe = "timm"  # how its library resizes positions


def load(
    name: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    image_size: Size | None = None,
    recipe: ResizeRecipe | None = None,
    num_heads: int | None = None,
    gelu: Gelu | None = None,
    norm_eps: float | None = None,
    preprocess: Preprocessing | None = None,
    parts: Mapping[str, Any] | None = None,
    plain: bool | None = None,
    part: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
) -> Trained:
    """A trained model, the names of its classes and its preprocessing.

    What a file doesn't tell is assumed, and a UserWarning says in a sentence what; ``.assumed`` of the answer has it,
    and the keywords here give it. The config.json in a folder, or beside a file, is honoured key by key or refused. Of
    raw and averaged weights the average is taken, and the warning says so.

    Args:
        name: one of

            - "digits", "digits-patch2", "shapes", "photographs" or "cifar10": come with the package;
            - a folder that ``python -m vit_tutorial.train`` or transformers' ``save_pretrained`` wrote, or a copy of a
              repository of timm's;
            - a file: .safetensors, .npz, .pth, .pt, .bin, .ckpt, .pth.tar, or the .index.json of several;
            - "torchvision/vit_b_16", or with weights named, "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1";
            - "timm/vit_small_patch16_224.augreg_in21k_ft_in1k", a repository of timm's on the Hugging Face hub;
            - "google/vit-base-patch16-224" or "facebook/dinov2-base", one of anybody's, for transformers or timm; "hf/"
              or "hf-hub:" may stand before it;
            - "google/NAME.npz" in the paper's bucket's folder augreg, or "google/FOLDER/NAME.npz".

            Downloads show their progress, go on where they broke off, and are kept: by huggingface_hub, and in
            torch.hub's folder.
        num_classes: another number of classes than the checkpoint's gives a new head, of zeros; 0 gives none.
        image_size: H = W, or (H, W), in pixels; learned positions are resized to it. Of a file whose positions fill no
            square it must be the size that they were learned on (:func:`convert` takes that for any file).
        recipe: how (see :func:`resize_position_embedding`); by default as the file's own library does, DINO's or
            transformers', and as timm does for all others.
        num_heads: h; by default as the file tells, or the published models of its width have it.
        gelu: "exact" or "tanh"; by default as the file tells, or its library has it.
        norm_eps: epsilon of the norms, likewise.
        preprocess: how pictures become what the model takes, likewise.
        parts: fields of the config that no tensor shows (see :func:`convert`).
        plain: True if you know that a file with timm's names is the paper's architecture (see :func:`convert`).
        part: which model, of several in one file (see :func:`convert`).
        revision: of a repository on the hub: a branch, a tag or a commit.
        token: for a repository that isn't public; by default the one that huggingface_hub has.

    Raises:
        ValueError: no such name; weights that are damaged, of another architecture, or beyond the configs: which and
            why; a value out of its range.
        TypeError: a value of another type.
        OSError: a file isn't there and can't be downloaded: which file to put where.
    """
    text = os.fsdecode(name)
    if not text:
        raise ValueError("the name is empty: name a model, a folder or a file")
    if num_classes is not None and (isinstance(num_classes, bool) or not isinstance(num_classes, int)):
        raise TypeError(f"num_classes must be an int, got {num_classes!r:.100}")
    if recipe not in (None, *get_args(ResizeRecipe)):
        raise ValueError(f"unknown recipe {recipe!r:.100}: choose one of {', '.join(get_args(ResizeRecipe))}")
    given = Given(num_heads, image_size, gelu, norm_eps, preprocess, plain=plain, parts=parts, part=part)
    given = replace(given, revision=revision, token=token)
    with refusing():
        found = _find(text, given)
    assumed = dict(found.assumed)
    with refusing(repr(text)):  # what is asked of it: its files are whole
        config, state, classes, pixels = found.config, found.state_dict, found.classes, found.preprocess
        projection = found.projection
        if num_classes is not None and num_classes != config.num_classes:
            config, state = with_head(config, state, num_classes)
            classes, projection = (), False
        if image_size is not None:
            config, state = with_size(config, state, image_size, recipe or found.recipe)
            pixels = replace(pixels, image_size=as_pair(image_size, "image_size"))
        if preprocess is not None:
            pixels = preprocess
            assumed.pop("preprocess", None)
    with refusing(found.about):
        check_preprocess(pixels, config)
        if not classes and not projection:
            classes = tuple(f"class {k}" for k in range(config.num_classes))
        model = assemble(config, state, checked=True)
        vars(model)["preprocess"] = pixels  # so that training on other pixels is an error
    warn(repr(text), assumed)
    return Trained(model, classes, pixels, assumed)


def _find(text: str, given: Given) -> Found:
    """What the name stands for."""
    text = re.sub(r"^hf[-_]hub:", "hf/", text)  # as timm and open_clip write it
    kind, _, rest = text.partition("/")
    path = Path(text)
    if text in shipped():
        return _own(text, given)
    if path.is_dir():
        _refuse_folder_without_model(path)
        return (
            from_repository(hub.files_of(hub.folder(path), text), text, given)
            if _is_hub_folder(path)
            else _own(text, given)
        )
    if kind in REMOTE and rest and not path.exists():
        return _remote(kind, rest, given)
    if is_weights(path):
        return _file(path, given)
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text) and not path.exists():
        return _remote("hf", text, given)
    raise ValueError(
        f"{text!r} is neither a model of the package ({', '.join(shipped())}) nor a folder, nor a file that "
        f"ends in {', '.join(READERS)}, nor {', '.join(f'{kind}/NAME' for kind in REMOTE)}, nor OWNER/NAME on the "
        "Hugging Face hub; python -m vit_tutorial.train --out FOLDER writes such a folder"
    )


def _remote(kind: str, name: str, given: Given) -> Found:
    """What a name in somebody's collection stands for."""
    if kind == "torchvision":
        return _published(hub.torchvision(name), f"torchvision/{name}", given)
    if kind == "google" and name.endswith(".npz"):
        return _published(hub.google(name), f"google/{name}", given)
    about = name if kind == "hf" else f"{kind}/{name}"
    get = hub.repository(about, given.revision, given.token)
    path = get("config.json")
    if path is not None and "model" in read_json(path) and get("model.safetensors") is not None:  # this package's
        return _own(str(path.parent), given)
    found = from_repository(hub.files_of(get, about), about, given)
    if not about.startswith("timm/"):
        return found
    named = any(not re.fullmatch(r"class \d+", label) for label in found.classes)
    if not named and "in1k" in name and found.config.num_classes == 1000:
        return replace(found, classes=hub.imagenet())
    return found


def _published(file: Published, about: str, given: Given) -> Found:
    """A file whose library's code tells what the tensors don't."""
    with refusing(about):
        converted = convert_given(file.state, file.source, replace(given, image_size=None, preprocess=None))
    config, tensors, preprocess = converted
    assumed = {key: value for key, value in converted.assumed.items() if key in ("weights", "left_out")}
    classes = file.classes if len(file.classes) == config.num_classes else ()
    if file.pixels is not None:
        preprocess = replace(file.pixels, image_size=preprocess.image_size)
    return Found(config, tensors, preprocess, classes, assumed, about)


def _refuse_folder_without_model(path: Path) -> None:
    """A FileNotFoundError for a folder without a config and weights by the usual names: what there is instead."""
    there = sorted(file.name for file in path.iterdir())
    lacking = [usual[0] for usual in (hub.CONFIGS, (*hub.INDEXED, *hub.OPEN_CLIP)) if not {*usual} & {*there}]
    if not lacking or _is_hub_folder(path):
        return
    if set(hub.ADAPTER) & set(there):
        raise FileNotFoundError(
            f"the folder {path} holds an adapter (LoRA or the like) alone: put its files beside those of its base, "
            "which adapter_config.json names, and load that folder"
        )
    if "state.pt" in there:
        raise FileNotFoundError(
            f"the folder {path} holds an unfinished training run: finish it by the same command with --resume, or "
            "by the same call of vt.train.fit with resume=True"
        )
    weights = [name for name in there if is_weights(Path(name))]
    instead = f"; of these files of weights, name one: {some(weights)}" if weights else ""
    raise FileNotFoundError(brief(f"the folder {path} has no {' and no '.join(lacking)}{instead}", 1000))


def _own(text: str, given: Given) -> Found:
    """A folder that this package wrote, or came with."""
    config, state, classes, preprocess = stored(text)
    path = SHIPPED / text if text in shipped() else Path(text)
    if unused := [name for name in ("parts", "plain", "part") if getattr(given, name) is not None]:
        raise ValueError(f"{unused[0]}= is for what other libraries' files don't tell: leave it out for {text!r}")
    changes = {name: getattr(given, name) for name in ("num_heads", "gelu", "norm_eps")}
    with refusing(repr(text)):
        config = replace(config, **{name: value for name, value in changes.items() if value is not None})
    with refusing(damaged(path)):
        check_numbers(state)
    return Found(config, state, preprocess, classes, {}, damaged(path), projection=not classes)


def _file(path: Path, given: Given) -> Found:
    """A file of tensors; a config.json beside it that is timm's or transformers' tells the rest."""
    get, about = hub.folder(path.parent), repr(str(path))
    with refusing(about):
        state, adapted = hub.with_adapter(get, read(path))
    config = _beside(path.parent)
    if config is not None:
        return from_repository(Repository(state, config, hub.processor_of(get, config), adapted), str(path), given)
    with refusing(about):
        wanted = replace(given, image_size=None, preprocess=None, wanted_size=given.image_size)
        converted = convert_given(state, "auto", wanted)
        config, tensors, preprocess = converted
        assumed = converted.assumed | ({"merged": adapted} if adapted else {})
        return Found(config, tensors, preprocess, (), assumed, about, converted.projection, converted.recipe)


def _is_hub_folder(path: Path) -> bool:
    """Whether it is a copy of a repository for transformers or timm; what else it is, :func:`stored` will say."""
    try:
        return _beside(path) is not None
    except (OSError, ValueError):
        return False


def _beside(folder: Path) -> Json | None:
    """The folder's config, if it is transformers', timm's or open_clip's."""
    found = [read_json(folder / file) for file in hub.CONFIGS if (folder / file).is_file()]
    return next((config for config in found if hub.whose(config)), None)


def from_repository(files: Repository, name: str, given: Given) -> Found:
    """Tensors and a config.json of timm's, transformers' or open_clip's."""
    with refusing(name):
        known = configs.read(files.config, files.processor)
        wanted = replace(given, image_size=None, preprocess=None).or_else(known.given)
        converted: Converted = convert_given(files.state, known.source, wanted)
        config, tensors, preprocess = converted
        assumed = converted.assumed | known.check(config) | ({"merged": files.adapted} if files.adapted else {})
        if known.pixels is not None:
            preprocess = known.pixels
            assumed = {key: value for key, value in assumed.items() if key != "preprocess"}
        classes = known.classes(config.num_classes) if config.num_classes and not converted.projection else ()
        if given.image_size is None and known.resized:
            height, width = preprocess.image_size
            size = height if height == width else (height, width)
            config, tensors = with_size(config, tensors, size, known.recipe)
        return Found(config, tensors, preprocess, classes, assumed, name, converted.projection, known.recipe)
