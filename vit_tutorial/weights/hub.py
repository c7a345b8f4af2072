"""Lesson 09: published weights by name, fetched once: torchvision's, Google's, and those on the Hugging Face hub."""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from threading import Thread
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import torch
from filelock import FileLock

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.weights.fields import Given, Json, Known
from vit_tutorial.weights.reading import read, read_json, refuse_endless, weight_map

Contents = dict[str, Any]
Getter = Callable[[str], Path | None]  # a file of a repository -> where it is now; None: there is none
GOOGLE_BUCKET = "https://storage.googleapis.com/vit_models/"
TORCHVISION_MODELS = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")
CONFIG_KEYS = {"model_type", "architecture", "model_cfg"}  # of transformers', timm's and open_clip's configs
INDEXED = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
PATIENCE = 4.0  # seconds without any answer, after which there is no network
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")
MERGE = "peft's merge_and_unload() merges it into them; save that model, and load it"


class Repository(NamedTuple):
    """The files of a folder, or of a repository on the hub."""

    state: Contents
    config: Json  # {}: none
    processor: Json | None


def torchvision(name: str) -> tuple[Contents, Known]:
    """One of torchvision's models, "vit_b_16", or with its weights named, "vit_b_16.IMAGENET1K_V1"."""
    with needed():
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
    state = download(weights.url, weights.url.rpartition("/")[2])
    names = dict(enumerate(weights.meta["categories"]))
    return state, Known("torchvision", Given(), labels=names, pixels=pixels, published=True)


def google(name: str) -> tuple[Contents, Known]:
    """One of the files in the paper's bucket, "NAME.npz" in its folder augreg, or "FOLDER/NAME.npz"."""
    if not re.fullmatch(r"([\w+-]+/)?[\w+.-]+\.npz", name):
        raise ValueError(f"the paper's files are google/NAME.npz or google/FOLDER/NAME.npz, got google/{name}")
    name = name if "/" in name else f"augreg/{name}"
    state = download(GOOGLE_BUCKET + name, f"vit_models/{name}")  # folders repeat file names
    names = dict(enumerate(imagenet())) if "imagenet2012" in name else {}
    return state, Known("google", Given(), labels=names, published=True)


def imagenet() -> tuple[str, ...]:
    """ImageNet's class names, in the order of the published heads."""
    with needed():
        from torchvision.models import ViT_B_16_Weights

    return tuple(ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"])


def download(url: str, file: str) -> Contents:
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
    with needed():
        from tqdm import tqdm  # type: ignore[import-untyped]

    if not _answers(url):
        raise OSError(f"{urlsplit(url).hostname} doesn't answer within {PATIENCE:g} s")
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


def _offline(file: str, url: str, folder: str, error: Exception | str) -> str:
    way_out = f"with a network, call again; without, put {file} from {url} into {folder} first"
    return f"{file} is not on disk and can't be downloaded ({' '.join(str(error).split())[:200]}): {way_out}"


def unreachable() -> str:
    """Why the Hugging Face hub can't be asked, found within seconds; "" if it can."""
    with needed():
        from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    silent = f"{urlsplit(constants.ENDPOINT).hostname} doesn't answer within {PATIENCE:g} s"
    return "" if _answers(constants.ENDPOINT) else silent


def repository(repository: str, revision: str | None = None, token: str | bool | None = None) -> Getter:
    """Files of a repository on the Hugging Face hub: downloaded with progress, resumed and kept by its own library."""
    with needed():
        from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
        from huggingface_hub import errors as hub_errors

    absent = hub_errors.EntryNotFoundError
    refused = (hub_errors.RepositoryNotFoundError, hub_errors.GatedRepoError, hub_errors.RevisionNotFoundError)
    offline = unreachable()

    def get(file: str) -> Path | None:
        try:
            only = bool(offline)
            return Path(hf_hub_download(repository, file, revision=revision, token=token, local_files_only=only))
        except refused as error:
            raise OSError(
                f"the hub gives no {repository}{f' at revision {revision}' if revision else ''} "
                f"({type(error).__name__}): check the name and revision=; a private or gated one needs token="
            ) from None
        except Exception as error:  # those of its HTTP library, which isn't always the same one, come through
            there_is_none = isinstance(error, absent) and not isinstance(error, hub_errors.LocalEntryNotFoundError)
            if there_is_none or try_to_load_from_cache(repository, file, revision=revision) is _CACHED_NO_EXIST:
                return None  # the hub says so, or once said so
            url, folder = f"https://huggingface.co/{repository}", "a folder, the other files beside it, and load that"
            raise OSError(_offline(file, url, folder, offline or error)) from None

    return get


def _answers(url: str) -> bool:
    """Whether anything answers at this address, known within seconds; huggingface_hub would try for minutes."""
    answers = list[bool]()

    def ask() -> None:
        try:
            urlopen(Request(url, method="HEAD"), timeout=PATIENCE).close()
        except (OSError, HTTPException) as error:  # no such page, no trusted certificate: an answer all the same
            socks = "unknown url type" in str(error)  # a proxy that urllib doesn't know, and huggingface_hub may
            if not isinstance(error, HTTPError) and not isinstance(getattr(error, "reason", 0), SSLError) and not socks:
                return
        answers.append(True)

    thread = Thread(target=ask, daemon=True)  # looking up a name has no limit of its own
    thread.start()
    thread.join(PATIENCE)
    return bool(answers)


def folder(path: Path) -> Getter:
    """Files of a folder on disk."""

    def get(file: str) -> Path | None:
        refuse_endless(path / file)
        return path / file if (path / file).is_file() else None

    return get


def files_of(get: Getter, name: str, weights: Path | None = None) -> Repository:
    """A repository's tensors, and the config.json that says whose they are and all that the shapes don't tell.

    For a file of weights that was named, what lies beside it. An adapter there is refused: transformers would apply it,
    so without it the weights are others.
    """
    config = config_of(get)
    if weights is None:
        files = OPEN_CLIP + INDEXED if "model_cfg" in config else INDEXED
        weights = next((found for file in files if (found := get(file)) is not None), None)
        if not config or weights is None:
            needs = f"a config.json of transformers, timm or open_clip; one of {', '.join(INDEXED)}"
            raise ValueError(f"{name} needs {needs}")
        if weights.name.endswith(".index.json"):
            for file in sorted(set(weight_map(weights).values())):
                get(file)  # downloads it
    if adapters := [file for file in ADAPTER if perhaps(get, file) is not None]:
        raise ValueError(f"{name}: {adapters[0]}, an adapter (as LoRA), changes these weights: {MERGE}")
    state, processor = read(weights), None
    if config and (path := perhaps(get, "processor_config.json")) is not None:  # of transformers 5
        processor = read_json(path).get("image_processor")  # beside that of texts
    if config and not isinstance(processor, dict):  # timm's and open_clip's configs say it themselves
        path = (get if "model_type" in config else partial(perhaps, get))("preprocessor_config.json")
        processor = None if path is None else read_json(path)
    return Repository(state, config, processor)


def perhaps(get: Getter, file: str) -> Path | None:
    """The file, if it is there; without a network, a cache may not know whether it is."""
    with suppress(OSError):
        return get(file)
    return None


def config_of(get: Getter) -> Json:
    """The config, if it is transformers', timm's or open_clip's; else {}."""
    path = get("config.json")
    config = {} if path is None else read_json(path)
    if not config.keys() & CONFIG_KEYS and (path := perhaps(get, "open_clip_config.json")) is not None:
        config = read_json(path)
    return config if config.keys() & CONFIG_KEYS else {}
