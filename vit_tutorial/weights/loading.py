"""Lesson 09: published weights, from torchvision, timm, Hugging Face, Google, or a file.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("torchvision/vit_b_16")  # doctest: +SKIP
>>> classes[model(preprocess(picture)).argmax()]  # doctest: +SKIP
'military uniform'
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, get_args
from urllib.request import Request, urlopen

import torch
from filelock import FileLock
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.data import Preprocessing
from vit_tutorial.embeddings import ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.vit import ViTConfig
from vit_tutorial.weights import configs_modern, files
from vit_tutorial.weights import names_modern as convert_modern
from vit_tutorial.weights.files import Trained, read
from vit_tutorial.weights.names import (
    Converted,
    Told,
    check_parts,
    check_preprocess,
    convert,
    convert_told,
    to_huggingface,
    to_timm,
    to_torchvision,
)
from vit_tutorial.weights.unwrap import State

__all__ = ["Converted", "convert", "load", "read", "to_huggingface", "to_timm", "to_torchvision"]

Json = dict[str, Any]
Getter = Callable[[str], Path | None]  # a file of a repository -> where it is now; None: there is none
GOOGLE_BUCKET = "https://storage.googleapis.com/vit_models/"
TORCHVISION_MODELS = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")


@dataclass(frozen=True)
class Found:
    """All that makes a model, before it is made."""

    config: ViTConfig
    state_dict: State
    preprocess: Preprocessing
    classes: tuple[str, ...]
    assumed: dict[str, Any]  # what the file didn't tell
    about: str  # what an error begins with


def load(
    name: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    image_size: Size | None = None,
    recipe: ResizeRecipe = "timm",
    num_heads: int | None = None,
    gelu: Gelu | None = None,
    norm_eps: float | None = None,
    preprocess: Preprocessing | None = None,
    parts: Mapping[str, Any] | None = None,
    plain: bool | None = None,
) -> Trained:
    """A trained model, the names of its classes and its preprocessing.

    What a file doesn't tell is assumed, and a UserWarning says in a sentence what; ``.assumed`` of the answer has it,
    and the keywords here give it. The config.json in a folder, or beside a file, is honoured key by key or refused. Of
    raw and averaged weights the average is taken, and the warning says so.

    Args:
        name: one of

            - "digits" or "shapes": come with the package;
            - a folder that ``python -m vit_tutorial.train`` or transformers' ``save_pretrained`` wrote, or a copy of a
              repository of timm's;
            - a file: .safetensors, .npz, .pth, .pt, .bin, .ckpt, .pth.tar, or the .index.json of several;
            - "torchvision/vit_b_16", or with weights named, "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1";
            - "timm/vit_small_patch16_224.augreg_in21k_ft_in1k", a repository of timm's on the Hugging Face hub;
            - "hf/google/vit-base-patch16-224", one of anybody's, for transformers;
            - "google/NAME.npz" in the paper's bucket's folder augreg, or "google/FOLDER/NAME.npz".

            Downloads show their progress, go on where they broke off, and are kept: by huggingface_hub, and in
            torch.hub's folder.
        num_classes: another number of classes than the checkpoint's gives a new head, of zeros; 0 gives none.
        image_size: H = W, or (H, W), in pixels; learned positions are resized to it. Of a file whose positions fill no
            square it must be the size that they were learned on (:func:`convert` takes that for any file).
        recipe: how (see :func:`resize_position_embedding`).
        num_heads: h; by default as the file tells, or the published models of its width have it.
        gelu: "exact" or "tanh"; by default as the file tells, or its library has it.
        norm_eps: epsilon of the norms, likewise.
        preprocess: how pictures become what the model takes, likewise.
        parts: of a model of after 2020, fields of its config that no tensor shows (see :func:`convert`).
        plain: True if you know that a file with timm's names is the paper's architecture (see :func:`convert`).

    Raises:
        ValueError: no such name; weights that are damaged, of another architecture, or beyond ViTConfig: which and why;
            a value out of its range.
        TypeError: a value of another type.
        OSError: a file isn't there and can't be downloaded: which file to put where.
    """
    text = os.fsdecode(name)
    if num_classes is not None and (isinstance(num_classes, bool) or not isinstance(num_classes, int)):
        raise TypeError(f"num_classes must be an int, got {num_classes!r:.100}")
    if recipe not in get_args(ResizeRecipe):
        raise ValueError(f"unknown recipe {recipe!r:.100}: choose one of {', '.join(get_args(ResizeRecipe))}")
    given = Told(num_heads, image_size, gelu, norm_eps, preprocess, plain=plain, parts=parts)
    with files.refusing():
        found = _find(text, given)
    assumed = dict(found.assumed)
    with files.refusing(found.about):
        config, state, classes, pixels = found.config, found.state_dict, found.classes, found.preprocess
        if num_classes is not None and num_classes != config.num_classes:
            (config, state), classes = with_head(config, state, num_classes), ()
        if image_size is not None:
            config, state = with_size(config, state, image_size, recipe)
            pixels = replace(pixels, image_size=as_pair(image_size, "image_size"))
        if preprocess is not None:
            pixels = preprocess
            assumed.pop("preprocess", None)
        check_preprocess(pixels, config)
        classes = classes or tuple(f"class {k}" for k in range(config.num_classes))
        model = files.assemble(config, state, checked=True)
    files.warn(repr(text), assumed)
    return Trained(model, classes, pixels, assumed)


def _find(text: str, given: Told) -> Found:
    """What the name stands for."""
    kind, _, rest = text.partition("/")
    path = Path(text)
    remote = {"torchvision": _torchvision, "timm": _timm_hub, "hf": _huggingface_hub, "google": _google}
    if text in files.shipped():
        return _own(text, given)
    if path.is_dir():
        _refuse_folder_without_model(path)
        return _folder(_local(path), text, given) if _is_hub_folder(path) else _own(text, given)
    if kind in remote and rest and not path.exists():
        return remote[kind](rest, given)
    if files.is_weights(path):
        return _file(path, given)
    raise ValueError(
        f"{text!r} is neither a model of the package ({', '.join(files.shipped())}) nor a folder, nor a file that "
        f"ends in {', '.join(files.READERS)}, nor {', '.join(f'{kind}/NAME' for kind in remote)}; "
        "python -m vit_tutorial.train --out FOLDER writes such a folder"
    )


def _refuse_folder_without_model(path: Path) -> None:
    """A FileNotFoundError for a folder with neither a config nor weights by the usual names: what there is instead."""
    there = sorted(file.name for file in path.iterdir())
    if "config.json" in there or any(name.startswith(("model.safetensors", "pytorch_model.bin")) for name in there):
        return
    if "state.pt" in there:
        raise FileNotFoundError(
            f"the folder {path} holds a training run without a model: finish it by the same command with --resume, or "
            "after vt.train.fit, which saves no model, by vt.weights.files.save"
        )
    weights = [name for name in there if files.is_weights(Path(name))]
    instead = f"; of these files of weights, name one: {files.some(weights)}" if weights else ""
    raise FileNotFoundError(
        files.brief(f"the folder {path} has no config.json and no model.safetensors{instead}", 1000)
    )


def _own(text: str, given: Told) -> Found:
    """A folder that this package wrote, or came with."""
    config, state, classes, preprocess = files.load(text)
    path = files.SHIPPED / text if text in files.shipped() else Path(text)
    changes = {name: getattr(given, name) for name in ("num_heads", "gelu", "norm_eps")}
    with files.refusing(files.damaged(path)):
        config = replace(config, **{name: value for name, value in changes.items() if value is not None})
        files.check_numbers(state)
        return Found(config, state, preprocess, classes, {}, files.damaged(path))


def _file(path: Path, given: Told) -> Found:
    """A file of tensors; a config.json beside it that is timm's or transformers' tells the rest."""
    state, config = read(path), _beside(path.parent)
    if config is not None:
        return _known(state, _processor(_local(path.parent), config), config, str(path), given)
    with files.refusing(repr(str(path))):
        told = replace(given, image_size=None, preprocess=None, wanted_size=given.image_size)
        converted = convert_told(state, "auto", told)
        return Found(*converted, (), converted.assumed, repr(str(path)))


def with_head(config: ViTConfig, state: State, num_classes: int) -> tuple[ViTConfig, State]:
    """The config and tensors with a new head of zeros for so many classes; 0: with none."""
    config = replace(config, num_classes=num_classes)
    state = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    if num_classes:
        state["head.weight"] = torch.zeros(num_classes, config.head_width)
        state["head.bias"] = torch.zeros(num_classes)
    return config, state


def with_size(
    config: ViTConfig, state: State, image_size: Size, recipe: ResizeRecipe = "timm"
) -> tuple[ViTConfig, State]:
    """The config and tensors for pictures of another size: learned positions are resized, sines computed anew."""
    if isinstance(config, ModernConfig):
        return convert_modern.with_size(config, state, image_size, recipe)
    old, config = config, replace(config, image_size=image_size)
    if config.position == "learned" and config.grid != old.grid:
        position = resize_position_embedding(
            state["embed.position"], old.grid, config.grid, prefix_tokens=config.prefix_tokens, recipe=recipe
        )
        state = state | {"embed.position": position}
    elif config.position == "sincos":
        grid = sincos_position_embedding(config.grid, config.dim)  # (1, N, D)
        prefix = torch.zeros(1, config.prefix_tokens, config.dim)
        state = state | {"embed.position": torch.cat([prefix, grid], dim=1)}
    return config, state


def _torchvision(name: str, given: Told) -> Found:
    from torchvision.models import get_model_weights

    model, _, version = name.partition(".")
    if model not in TORCHVISION_MODELS:
        raise ValueError(f"torchvision has {', '.join(TORCHVISION_MODELS)}, no {model!r}")
    known = get_model_weights(model)
    if version and version not in known.__members__:
        raise ValueError(f"{model} has the weights {', '.join(known.__members__)}, no {version!r}")
    weights = known[version or "DEFAULT"]
    how, size = weights.transforms(), weights.transforms().crop_size[0]
    crop = size / how.resize_size[0]
    pixels = Preprocessing((size, size), tuple(how.mean), tuple(how.std), crop, how.interpolation.value)
    state = _download(weights.url, weights.url.rpartition("/")[2])
    return _published(state, "torchvision", given, pixels, tuple(weights.meta["categories"]), f"torchvision/{name}")


def _google(name: str, given: Told) -> Found:
    if not re.fullmatch(r"([\w+-]+/)?[\w+.-]+\.npz", name):
        raise ValueError("the paper's files are google/NAME.npz or google/FOLDER/NAME.npz")
    name = name if "/" in name else f"augreg/{name}"
    state = _download(GOOGLE_BUCKET + name, f"vit_models/{name}")  # folders repeat file names
    return _published(state, "google", given, None, _imagenet() if "imagenet2012" in name else (), f"google/{name}")


def _published(
    state: dict[str, Any],
    source: str,
    given: Told,
    pixels: Preprocessing | None,
    classes: tuple[str, ...],
    about: str,
) -> Found:
    """A file by its own library's name for it, whose code tells what the tensors don't."""
    with files.refusing(about):
        converted = convert_told(state, source, replace(given, image_size=None, preprocess=None))
    assumed = {key: value for key, value in converted.assumed.items() if key in ("weights", "left_out")}
    model, tensors, preprocess = converted
    classes = classes if len(classes) == model.num_classes else ()
    if pixels is not None:
        preprocess = replace(pixels, image_size=preprocess.image_size)
    return Found(model, tensors, preprocess, classes, assumed, about)


def _imagenet() -> tuple[str, ...]:
    from torchvision.models import ViT_B_16_Weights

    return tuple(ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"])


def _download(url: str, file: str) -> dict[str, Any]:
    """What the file holds; fetched once, into torch.hub's folder."""
    path = Path(torch.hub.get_dir(), "checkpoints", file)
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):  # of several processes, one downloads and the others wait
                if not path.exists():
                    _fetch(url, path)
        except (OSError, HTTPException) as error:
            raise OSError(_offline(path.name, url, f"{path.parent}", error)) from None
    try:
        return read(path)
    except ValueError as error:
        raise ValueError(f"{error}; remove {path}, and it is downloaded again") from error


def _fetch(url: str, path: Path) -> None:
    """Download, going on where an earlier try broke off (torch.hub would begin again); checked by the name's hash."""
    part = path.with_name(f"{path.name}.part")
    have = max(part.stat().st_size - 1, 0) if part.exists() else 0  # nobody sends nothing: ask for one byte at least
    request = Request(url, headers={"User-Agent": "vit_tutorial", "Range": f"bytes={have}-"})
    with urlopen(request, timeout=30) as answer:  # without a limit it would wait for ever behind some firewalls
        have = have if answer.status == 206 else 0  # a server may send all of it again
        total = have + int(answer.headers.get("Content-Length", 0))
        bar = {"desc": path.name, "initial": have, "total": total, "unit": "B", "unit_scale": True}
        with part.open("r+b" if have else "wb") as file, tqdm.wrapattr(file, "write", **bar) as output:
            file.seek(have)
            shutil.copyfileobj(answer, output, 2**20)
    if part.stat().st_size < total:
        raise OSError("the download broke off, and goes on from there next time")
    digest = re.search(r"-([a-f0-9]{8,})\.", path.name)
    with part.open("rb") as file:
        right = not digest or hashlib.file_digest(file, "sha256").hexdigest().startswith(digest[1])
    if not right or not zipfile.is_zipfile(part):  # both kinds of file are
        part.unlink()
        raise OSError("what came is another file, by its hash" if not right else "what came is no such file")
    part.replace(path)


def _offline(file: str, url: str, folder: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200]
    return (
        f"{file} is not on disk and can't be downloaded ({reason}): with a network, call again; without, put {file} "
        f"from {url} into {folder} first"
    )


def _hub(repository: str) -> Getter:
    """Files of a repository on the Hugging Face hub: downloaded with progress, resumed and kept by its own library."""
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def get(file: str) -> Path | None:
        try:
            return Path(hf_hub_download(repository, file))
        except Exception as error:  # those of its HTTP library, which isn't always the same one, come through
            online = isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
            if online or try_to_load_from_cache(repository, file) is _CACHED_NO_EXIST:
                return None  # the hub says, or once said, that there is none
            url, folder = f"https://huggingface.co/{repository}", "a folder, the other files beside it, and load that"
            raise OSError(_offline(file, url, folder, error)) from None

    return get


def _timm_hub(name: str, given: Told) -> Found:
    found = _folder(_hub(f"timm/{name}"), f"timm/{name}", given)
    named = any(not re.fullmatch(r"class \d+", label) for label in found.classes)
    if not named and "in1k" in name and found.config.num_classes == 1000:
        return replace(found, classes=_imagenet())
    return found


def _huggingface_hub(name: str, given: Told) -> Found:
    return _folder(_hub(name), name, given)


def _local(path: Path) -> Getter:
    """Files of a folder on disk."""
    return lambda file: path / file if (path / file).is_file() else None


def _is_hub_folder(path: Path) -> bool:
    """Whether it is a copy of a repository for transformers or timm; what else it is, files.load will say."""
    try:
        return _beside(path) is not None
    except (OSError, ValueError):
        return False


def _beside(folder: Path) -> Json | None:
    """The folder's config.json, if it is transformers' or timm's."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    config = files.read_json(path)
    return config if config.keys() & {"model_type", "architecture"} else None


def _folder(get: Getter, name: str, given: Told) -> Found:
    """A repository's tensors, and the config.json that says whose they are and all that the shapes don't tell."""
    names = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
    path = get("config.json")
    weights = next((found for file in names if (found := get(file)) is not None), None)
    if path is None or weights is None:
        raise ValueError(f"{name} needs config.json, and {', '.join(names[:3:2])}, or an index of several")
    if weights.name.endswith(".index.json"):
        for file in sorted(set(files.weight_map(weights).values())):
            get(file)  # downloads it
    config = files.read_json(path)
    return _known(read(weights), _processor(get, config), config, name, given)


def _processor(get: Getter, config: Json) -> Json | None:
    """What says how transformers prepares pictures; timm's config does that itself."""
    if "architecture" in config or (path := get("preprocessor_config.json")) is None:
        return None
    return files.read_json(path)


def _known(state: dict[str, Any], processor: Json | None, config: Json, name: str, given: Told) -> Found:
    """Tensors and a config.json of timm's or transformers'."""
    with files.refusing(name):
        try:
            known = configs_modern.read(config, processor)
        except ValueError:
            check_parts(state)  # what the tensors show says more than a name that isn't known
            raise
        told = replace(given, image_size=None, preprocess=None).or_else(known.told)
        converted = convert_told(state, known.source, told)
        model, tensors, preprocess = converted
        known.check(model)
        assumed = converted.assumed
        if known.pixels is not None:
            preprocess = known.pixels
            assumed = {key: value for key, value in assumed.items() if key != "preprocess"}
        classes = known.classes(model.num_classes) if model.num_classes else ()
        if given.image_size is None and known.resized:
            height, width = preprocess.image_size
            size = height if height == width else (height, width)
            model, tensors = with_size(model, tensors, size, known.recipe)
        return Found(model, tensors, preprocess, classes, assumed, name)
