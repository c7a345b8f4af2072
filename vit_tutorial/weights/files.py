"""Lesson 09: what a file of weights holds, read without running code."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

LARGEST_JSON = 4_000_000  # bytes; the names of 20,000 classes, both ways, take two


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a .safetensors, .npz or torch file (.pth, .pt, .bin, .ckpt) holds; no code in it is ever run.

    Raises:
        ValueError: a damaged file, or one whose pickle asks for code: it is named, and nothing of it was loaded.
        OSError: it isn't there, or can't be read.
    """
    path = Path(path)
    check_file(path)
    if path.suffix == ".safetensors":
        return dict(read_safetensors(path))
    if path.suffix == ".npz":
        return dict(read_npz(path))
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
        asked = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception:  # unpickling damaged bytes may raise anything
        asked = []
    if asked:
        return f"asks for {', '.join(asked)}, and a file of tensors needs no code: ask for a .safetensors file"
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
    """A file's JSON object.

    Raises:
        ValueError: a damaged file.
        OSError: it isn't there, or can't be read.
    """
    check_file(path)
    text = path.read_bytes() if path.stat().st_size < LARGEST_JSON else b""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged, no JSON object, or larger than 4 MB: get it again")
    return content


def check_file(path: Path) -> None:
    """Raise unless there is a file: a pipe or a device may never answer, or never end."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder, a pipe or a device, and a file is needed: nothing was read")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: check its name")
