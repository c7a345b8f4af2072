"""Lesson 09: published weights, from torchvision, timm, Hugging Face, Google, or a file.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("torchvision/vit_b_16")  # doctest: +SKIP
>>> classes[model(preprocess(picture)).argmax()]  # doctest: +SKIP
'military uniform'
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import torch
from filelock import FileLock
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial import files
from vit_tutorial.convert import HALF, Converted, convert, to_huggingface, to_timm, to_torchvision
from vit_tutorial.data import INTERPOLATIONS, Preprocessing
from vit_tutorial.embeddings import ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.files import Trained, read
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair

__all__ = ["Converted", "convert", "load", "read", "to_huggingface", "to_timm", "to_torchvision"]

Found = tuple[Converted, tuple[str, ...]]
Getter = Callable[[str], Path | None]  # a file of a repository -> where it is now; None: there is none
GOOGLE_BUCKET = "https://storage.googleapis.com/vit_models/"
TORCHVISION_MODELS = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")


def load(
    name: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    image_size: Size | None = None,
    recipe: ResizeRecipe = "timm",
) -> Trained:
    """A trained model, the names of its classes and its preprocessing.

    Args:
        name: one of

            - "digits" or "shapes": come with the package;
            - a folder that ``python -m vit_tutorial.train`` or transformers' ``save_pretrained`` wrote, or a copy of a
              repository of timm's;
            - a file: .safetensors, .npz, .pth, .pt or .bin;
            - "torchvision/vit_b_16", or with weights named, "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1";
            - "timm/vit_small_patch16_224.augreg_in21k_ft_in1k", a repository of timm's on the Hugging Face hub;
            - "hf/google/vit-base-patch16-224", one of anybody's, for transformers;
            - "google/NAME.npz" in the paper's bucket's folder augreg, or "google/FOLDER/NAME.npz".

            Downloads show their progress, go on where they broke off, and are kept: by huggingface_hub, and in
            torch.hub's folder.
        num_classes: another number of classes than the checkpoint's gives a new head, of zeros; 0 gives none.
        image_size: H = W, or (H, W), in pixels; learned positions are resized to it.
        recipe: how (see :func:`resize_position_embedding`).

    Raises:
        ValueError: no such name; weights that are damaged, of another architecture, or beyond ViTConfig: which and why.
        OSError: a file isn't there and can't be downloaded: which file to put where.
    """
    text = os.fspath(name)
    kind, _, rest = text.partition("/")
    path = Path(text)
    remote = {"torchvision": _torchvision, "timm": _timm_hub, "hf": _huggingface_hub, "google": _google}
    try:
        if text in _shipped() or (path.is_dir() and not _is_hub_folder(path)):
            model, classes, preprocess = files.load(text)
            found: Found = Converted(model.config, dict(model.state_dict()), preprocess), classes
        elif path.is_dir():
            found = _hub_folder(lambda file: path / file if (path / file).is_file() else None, text)
        elif kind in remote and rest and not path.exists():
            found = remote[kind](rest)
        elif path.suffix in (".safetensors", ".npz", ".pth", ".pt", ".bin"):
            found = convert(read(path)), ()
        else:
            raise ValueError(
                f"{text!r} is neither a model of the package ({', '.join(_shipped())}) nor a folder, nor a file that "
                f"ends in .safetensors, .npz or .pth, nor {', '.join(f'{kind}/NAME' for kind in remote)}; "
                "python -m vit_tutorial.train --out FOLDER writes such a folder"
            )
        return _adapt(*found, num_classes, image_size, recipe)
    except ValueError as error:
        raise ValueError(str(error) if text in str(error) else f"{text!r}: {error}") from error


def _shipped() -> list[str]:
    return sorted(folder.name for folder in files.SHIPPED.iterdir())


def _adapt(
    found: Converted, classes: tuple[str, ...], num_classes: int | None, image_size: Size | None, recipe: ResizeRecipe
) -> Trained:
    """With another head, or for another image size, if asked."""
    config, state, preprocess = found.config, dict(found.state_dict), found.preprocess
    if num_classes is not None and num_classes != config.num_classes:
        config, classes = replace(config, num_classes=num_classes), ()
        state = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        if num_classes:
            state["head.weight"] = torch.zeros(num_classes, config.head_width)
            state["head.bias"] = torch.zeros(num_classes)
    if image_size is not None:
        old, config = config, replace(config, image_size=image_size)
        preprocess = replace(preprocess, image_size=as_pair(image_size, "image_size"))
        prefix = config.prefix_tokens
        if config.position == "learned" and config.grid != old.grid:
            state["embed.position"] = resize_position_embedding(
                state["embed.position"], old.grid, config.grid, prefix_tokens=prefix, recipe=recipe
            )
        elif config.position == "sincos":
            grid = sincos_position_embedding(config.grid, config.dim)
            state["embed.position"] = torch.cat([torch.zeros(1, prefix, config.dim), grid], dim=1)
    if len(classes) != config.num_classes:
        classes = tuple(f"class {k}" for k in range(config.num_classes))
    return Trained(files.assemble(config, state), classes, preprocess)


def _torchvision(name: str) -> Found:
    from torchvision.models import get_model_weights

    model, _, version = name.partition(".")
    if model not in TORCHVISION_MODELS:
        raise ValueError(f"torchvision has {', '.join(TORCHVISION_MODELS)}, no {model!r}")
    known = get_model_weights(model)
    if version and version not in known.__members__:
        raise ValueError(f"{model} has the weights {', '.join(known.__members__)}, no {version!r}")
    weights = known[version or "DEFAULT"]
    how, found = weights.transforms(), convert(_download(weights.url, weights.url.rpartition("/")[2]), "torchvision")
    crop = how.crop_size[0] / how.resize_size[0]
    size = (how.crop_size[0], how.crop_size[0])
    preprocess = Preprocessing(size, tuple(how.mean), tuple(how.std), crop, how.interpolation.value)
    return found._replace(preprocess=preprocess), tuple(weights.meta["categories"])


def _google(name: str) -> Found:
    if not re.fullmatch(r"([\w+-]+/)?[\w+.-]+\.npz", name):
        raise ValueError("the paper's files are google/NAME.npz or google/FOLDER/NAME.npz")
    name = name if "/" in name else f"augreg/{name}"
    found = convert(_download(GOOGLE_BUCKET + name, f"vit_models/{name}"), "google")  # folders repeat file names
    return found, _imagenet() if "imagenet2012" in name and found.config.num_classes == 1000 else ()


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


def _timm_hub(name: str) -> Found:
    found, classes = _hub_folder(_hub(f"timm/{name}"), f"timm/{name}")
    return found, classes or (_imagenet() if "in1k" in name and found.config.num_classes == 1000 else ())


def _huggingface_hub(name: str) -> Found:
    return _hub_folder(_hub(name), name)


def _is_hub_folder(path: Path) -> bool:
    """Whether it is a copy of a repository for transformers or timm; what else it is, files.load will say."""
    try:
        return bool(_json(path / "config.json").keys() & {"model_type", "architecture"})
    except (OSError, ValueError):
        return False


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: get it again")
    return content


def _hub_folder(get: Getter, name: str) -> Found:
    """A repository's config.json says whose it is, and all that the shapes don't tell."""
    path = get("config.json")
    if path is None or (weights := get("model.safetensors") or get("pytorch_model.bin")) is None:
        raise ValueError(f"{name} needs config.json, and model.safetensors or pytorch_model.bin")
    config, state = _json(path), read(weights)
    try:
        if "architecture" in config:
            return _from_timm(config, state)
        other = get("preprocessor_config.json")
        return _from_transformers(config, state, _json(other) if other else {})
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"config.json or preprocessor_config.json of {name} is damaged or unknown: {error!r}"
        ) from error


def _from_timm(config: dict[str, Any], state: dict[str, Any]) -> Found:
    about, more = config["pretrained_cfg"], config.get("model_args", {})
    name = config["architecture"]
    # The tensors of those three would fit, and their activation or rotation isn't among them.
    if not re.match(r"vit_|deit_", name) or re.search(r"quickgelu|siglip|rope", name):
        raise ValueError(f"timm's {name} is beyond ViTConfig: of vit_* and deit_*, all but quickgelu, siglip and rope")
    size, heads = tuple(about["input_size"][1:]), {"vit_base_patch16_gap_224": 16}.get(name)
    found = convert(state, "timm", num_heads=more.get("num_heads", heads), image_size=size)
    crop = "squeeze" if about.get("crop_mode") == "squash" else about["crop_pct"]
    preprocess = Preprocessing(size, tuple(about["mean"]), tuple(about["std"]), crop, about["interpolation"])
    return found._replace(preprocess=preprocess), tuple(config.get("label_names") or about.get("label_names") or ())


def _from_transformers(config: dict[str, Any], state: dict[str, Any], how: dict[str, Any]) -> Found:
    gelus: dict[str, Gelu] = {"gelu": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
    if config.get("model_type") != "vit" or config["hidden_act"] not in gelus:
        raise ValueError(f"{config.get('model_type')} with {config.get('hidden_act')} is beyond ViTConfig: vit, gelu")
    size = as_pair(config["image_size"], "image_size")
    found = convert(state, "huggingface", num_heads=config["num_attention_heads"], image_size=size)
    changed = replace(found.config, norm_eps=config["layer_norm_eps"], gelu=gelus[config["hidden_act"]])
    mean, std = tuple(how.get("image_mean", HALF[0])), tuple(how.get("image_std", HALF[1]))
    mode = INTERPOLATIONS[how.get("resample", 2)]
    names = config.get("id2label") or {}
    classes = tuple(names[key] for key in sorted(names, key=int)) if found.config.num_classes else ()
    return Converted(changed, found.state_dict, Preprocessing(size, mean, std, "squeeze", mode)), classes
