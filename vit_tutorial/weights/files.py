"""Lesson 09: files of weights: read without running code, and downloaded once from the Hugging Face hub."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from vit_tutorial.data.extras import install_hint

PATIENCE = 4.0  # seconds without any answer, after which there is no network
CONFIGS = ["config.json", "preprocessor_config.json", "processor_config.json"]
TOKENIZER = ["*token*.json", "vocab.json", "merges.txt", "*.model"]
SAFETENSORS = ["model*.safetensors", "model.safetensors.index.json"]
PICKLES = ["pytorch_model*.bin", "*.bin.index.json"]


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a .safetensors, .npz or torch file (.pth, .pt, .bin, .ckpt) holds; no code in it is ever run.

    Raises:
        ValueError: a damaged file, or one whose pickle asks for code: it is named, and nothing of it was loaded.
        OSError: it isn't there, or can't be read.
    """
    path = Path(path)
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return dict(read_safetensors(path))
    if suffix == ".npz":
        return dict(read_npz(path))
    return read_pickle(path)


def read_pickle(path: Path) -> dict[str, Any]:
    """What ``torch.save`` wrote, if it is a dictionary of tensors, numbers and texts; as :func:`read_safetensors`."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path} {_code_in(path)}: nothing was loaded") from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged, or no file of torch's: get it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, no dictionary of tensors: save its state dict")
    return content


def _code_in(path: Path) -> str:
    """What a pickle asks for besides tensors."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception:  # unpickling damaged bytes may raise anything
        names = []
    if names:
        return f"asks for {', '.join(names)}, and a file of tensors needs no code: ask for a .safetensors file"
    return "is damaged, or holds more than tensors: get it again"


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """A file's tensors, mapped into memory: no copy, and a page is read when it is used.

    Raises:
        ValueError: a damaged file, or one of another kind.
        OSError: it isn't there, or can't be read.
    """
    check_file(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged, or no safetensors file ({error}): get it again") from error


def read_npz(path: Path) -> dict[str, Tensor]:
    """NumPy's arrays as tensors; as :func:`read_safetensors`."""
    check_file(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged, or holds more than arrays of numbers: get it again") from error


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object; as :func:`read_safetensors`."""
    check_file(path)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged, or no JSON object: get it again")
    return content


def check_file(path: Path) -> None:
    """Raise a FileNotFoundError unless this is a file: a pipe or a device may never answer, or never end."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check its name")


# ----------------------------------------------------------------------------------------------------------- downloads


def download(repository: str, revision: str | None, token: str | bool | None) -> Path:
    """The folder of a repository on the Hugging Face hub: its config, its weights, its tokenizer.

    Raises:
        OSError: it isn't on disk and can't be downloaded: what to do.
    """
    folder = _snapshot(repository, revision, token, CONFIGS + TOKENIZER + SAFETENSORS)
    if not list(folder.glob("model*.safetensors")):
        folder = _snapshot(repository, revision, token, CONFIGS + TOKENIZER + PICKLES)
    return folder


def _snapshot(repository: str, revision: str | None, token: str | bool | None, patterns: list[str]) -> Path:
    """The folder with those of the repository's files whose names are like one of the patterns."""
    with install_hint():
        from huggingface_hub import constants, errors, snapshot_download

    no_network = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else no_answer(constants.ENDPOINT)
    try:
        folder = snapshot_download(
            repository, revision=revision, token=token, allow_patterns=patterns, local_files_only=bool(no_network)
        )
    except (errors.RepositoryNotFoundError, errors.GatedRepoError, errors.RevisionNotFoundError) as error:
        raise OSError(
            f"the hub gives no {repository}{f' at revision {revision}' if revision else ''} ({type(error).__name__}): "
            "check the name and revision=; a private or gated one needs token="
        ) from None
    except Exception as error:  # those of its HTTP library, which isn't always the same one, come through
        reason = no_network or " ".join(str(error).split())[:200]
        raise OSError(
            f"{repository} is not on disk and can't be downloaded ({reason}): with a network, call again; without, put "
            f"the files of https://huggingface.co/{repository} into a folder, and load that"
        ) from None
    return Path(folder)


def no_answer(url: str) -> str:
    """Why nothing answers at this address, or "": known within seconds, where a download would try for minutes."""
    with install_hint():
        from huggingface_hub import get_session

    try:
        get_session().head(url, timeout=PATIENCE)
    except Exception as error:  # of its HTTP library
        return f"{urlsplit(url).hostname} doesn't answer: {' '.join(str(error).split()) or type(error).__name__}"
    return ""
