"""Lesson 09: what a file of weights holds, read without running code."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from vit_tutorial.weights.messages import brief, refusing, some

COUNTER = "num_batches_tracked"  # a batch norm counts its training steps; nothing reads it, so files go without
NAMES = 50_000  # tensors of a file; the largest models have a few thousand


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object. Raises ValueError for a damaged one, OSError for one that can't be read."""
    refuse_endless(path)
    text = path.read_bytes() if path.stat().st_size < 4_000_000 else b""  # names of 20,000 classes, both ways, take two
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged, no JSON object, or larger than 4 MB: get it again")
    return content


def refuse_endless(path: Path) -> None:
    """A ValueError for a pipe or a device: it may never answer, or never end."""
    if path.exists() and not path.is_file():
        raise Refused(f"{path} is a folder, a pipe or a device, and a file is needed: nothing was read")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """A file's tensors, mapped into memory: no copy, and a page is read when it is used.

    The format has no checksum: of a flipped bit within a number, nothing tells. Raises ValueError for a file that is
    damaged or of another kind, OSError for one that can't be read.
    """
    refuse_endless(path)
    _refuse_other_kind(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names, notes = file.keys(), file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in names}
    except safetensors.SafetensorError as error:
        raise Refused(f"{path} is damaged, or no safetensors file ({error}): get it again") from error
    # Of tensors that a model has twice, safetensors' save_model keeps one, and notes its name under the other's.
    return tensors | {name: tensors[kept] for name, kept in notes.items() if kept in tensors and name not in tensors}


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a .safetensors, .npz, .pth, .pt, .bin, .ckpt or .pth.tar file holds; no code in it is ever run.

    The index of a model in several files (``model.safetensors.index.json``) gives all of them together. A flipped bit
    within a number is noticed by the check sums of .npz and .pth (torch 1.6 and later); .safetensors has none.

    Raises:
        ValueError: another suffix; a file that is damaged, that declares more than it holds, or whose pickle asks for
            code: it is named, and nothing of it was loaded.
        OSError: it isn't there, or can't be read.
    """
    with refusing():
        return _read(Path(path))


def _read(path: Path) -> dict[str, Any]:
    reader = reader_of(path)
    if reader is None:
        raise ValueError(f"{path} is no file of weights: its name must end in {', '.join(READERS)}")
    refuse_endless(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {brief(str(path), 1000)}: check it, or give a name: 'timm/NAME'")
    try:
        return reader(path)
    except Refused:  # says all that there is to say
        raise
    except OSError as error:
        if error.filename is not None or isinstance(error, FileNotFoundError):  # the disk's own
            raise
        raise Refused(f"{path} is damaged ({' '.join(str(error).split())[:200]}): get it again") from None
    except Exception as error:  # on damaged bytes, unpickling and unzipping raise nearly anything
        # torch's own advice would be to run the code.
        said = str(error).rpartition("WeightsUnpickler error:")[2].partition("Check the doc")[0]
        reason = " ".join(said.split())[:200]
        raise Refused(f"{path} is damaged or of another kind ({reason}), nothing was loaded: get it again") from None


TOO_LONG = (
    "names and shapes take less, so nothing was loaded. If it is a checkpoint with a history, save its state dict anew"
)
KINDS = {  # what files begin with that go by a wrong name
    b"version https://git-lfs": "a pointer of Git LFS in the place of the file: git lfs pull brings it",
    b"<": "a web page: get the file itself",
    b"\x1f\x8b": "packed by gzip: unpack it first",
    b"GGUF": "of llama.cpp's kind (GGUF), which isn't read here: get a .safetensors file",
    b"\x89HDF": "of Keras's kind (HDF5), which isn't read here: get a .safetensors file",
}


def _refuse_other_kind(path: Path) -> None:
    """A ValueError that says what the file is, if that isn't what its name says."""
    with path.open("rb") as file:  # whose errors name it
        start = file.read(40)
    kind = next((kind for begins, kind in KINDS.items() if start.startswith(begins)), "")
    suffix, length, size = path.suffix.lower(), int.from_bytes(start[:8], "little"), path.stat().st_size
    if suffix == ".safetensors" and start[8:9] == b"{" and 1_000_000 + size // 20 < length < size:
        raise Refused(f"{path} begins with {length:,} bytes of names and shapes: no model has so many; not loaded")
    if suffix == ".safetensors" and start.startswith(b"PK"):
        kind = "a zip, as torch.save or numpy.savez writes it: call it .pth or .npz"
    elif suffix != ".safetensors" and start[8:9] == b"{" and length < size:
        kind = "in the format of .safetensors: call it so"
    if kind:
        raise Refused(f"{path} is {kind}. Nothing was loaded")


class Refused(ValueError):
    """A file that can't be read, with its name, the reason and the way out."""


def reader_of(path: Path) -> Callable[[Path], dict[str, Any]] | None:
    """What reads files with such a name; None, if nothing does."""
    return next((reader for suffix, reader in READERS.items() if path.name.lower().endswith(suffix)), None)


def weight_map(path: Path) -> dict[str, str]:
    """What an index says: the file of each tensor. They lie beside it. Raises ValueError for another content."""
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(file, str) for file in index.values()):
        raise Refused(f"{path} is damaged: it has no weight_map from names to files; get it again")
    for file in sorted(set(index.values())):
        if Path(file).name != file or "\\" in file or not file.endswith((".safetensors", ".bin")):
            raise Refused(f"{path} names {brief(repr(file), 400)}, no file of weights beside it: nothing was loaded")
    return index


def _shards(path: Path) -> dict[str, Any]:
    """All tensors of the files that an index names."""
    index, state = weight_map(path), dict[str, Any]()
    for file in sorted(set(index.values())):
        shard = _read(path.with_name(file))
        if twice := [name for name in shard if name in state]:
            raise Refused(f"{path.with_name(file)} holds {some(twice)} a second time: get it again")
        state |= shard
    if lost := [name for name in index if name not in state]:
        raise Refused(f"{path} lists {len(lost)} tensors that its files lack: {some(lost)}: get them again")
    return state


def _pickle(path: Path) -> dict[str, Any]:
    _refuse_other_kind(path)
    torch.serialization.add_safe_globals([argparse.Namespace])  # inert; DeiT's and DINO's files hold their options
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _no_bomb(archive, path)
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise Refused(f"{path} is TorchScript, which has code, and nothing was loaded: save its state_dict()")
            # torch doesn't compare check sums; it can also write files without.
            if any(entry.CRC for entry in archive.infolist()) and (bad := archive.testzip()):
                raise Refused(f"{path} is damaged: {bad} doesn't match its check sum; get it again")
    try:
        with _Metered(path) as file:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        with path.open("rb") as file:
            start = file.read(2)
        if start[:1] == b"\x80" and start[1] > 2:
            why = f"of protocol {start[1]}, which torch.load can't read safely, and nothing was loaded"
            raise Refused(f"{path} is a pickle {why}: get a .safetensors file, or one of torch.save's") from None
        code = re.search(
            r"(?:GLOBAL|Unsupported (?:global|class|operand))[: ]+(?:GLOBAL )?([A-Za-z_][\w.]*)", str(error)
        )
        if code is None:
            raise
        raise Refused(
            f"{path} asks for {code[1]}: loading it would run code, so nothing was loaded. Tensors alone are read: "
            "get a .safetensors file, or, if you trust its author, save its state dict anew"
        ) from None
    if not isinstance(loaded, Mapping):
        raise Refused(f"{path} holds a {type(loaded).__name__}: a state dict, names and tensors, is needed")
    return dict(loaded)


def _npz(path: Path) -> dict[str, Any]:
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with zipfile.ZipFile(path) as archive:
        _no_bomb(archive, path)
        for entry in archive.infolist():
            with archive.open(entry) as member:
                shape, _, dtype = headers[np.lib.format.read_magic(member)](member)
                size = math.prod(shape) * dtype.itemsize
                # numpy would reserve what the header declares before it reads.
                if dtype.hasobject or member.tell() + size != entry.file_size:
                    what = "holds a pickle" if dtype.hasobject else f"declares {dtype} {shape} and holds another size"
                    raise Refused(f"{path}: {entry.filename} {what}, nothing was loaded: get it again")
    with np.load(path, allow_pickle=False) as arrays:
        try:
            return {name: from_numpy(arrays[name], name) for name in arrays.files}
        except Refused as error:
            raise Refused(f"{path}: {error}") from None


def from_numpy(array: np.ndarray, name: str) -> Tensor:
    """The array's numbers, in its own memory where torch can use that. Raises ValueError for what are no numbers."""
    if array.dtype == np.dtype("V2"):  # NumPy has no bfloat16, and keeps JAX's as two nameless bytes a number
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise Refused(f"{some([name])} is an array of {array.dtype}: plain float16, 32 or 64 numbers are needed")
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)  # of one number: no row
    return torch.from_numpy(plain if plain.flags.writeable else plain.copy())


READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".safetensors.index.json": _shards,
    ".bin.index.json": _shards,
    ".safetensors": read_safetensors,
    ".npz": _npz,
    ".pth": _pickle,
    ".pt": _pickle,
    ".bin": _pickle,
    ".ckpt": _pickle,
    ".pth.tar": _pickle,
}


class _Metered(io.BufferedReader):
    """A file of which Python reads so many bytes at most: its pickles. Tensors' numbers are read past it, by C."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.left = _pickled(path)

    def read(self, size: int | None = -1, /) -> bytes:
        return self._counted(super().read(size))

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._counted(super().readline(size))

    def _counted(self, content: bytes) -> bytes:
        self.left -= len(content)
        if self.left < 0:
            raise Refused(f"{self.name} has too long a pickle: {TOO_LONG}")
        return content


def _no_bomb(archive: zipfile.ZipFile, path: Path) -> None:
    entries, packed = archive.infolist(), path.stat().st_size
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > 2 * packed + 1_000_000:  # weights hardly shrink: noise doesn't
        raise Refused(f"{path} has {packed:,} bytes and unpacks to {unpacked:,}: no weights do, nothing was loaded")
    if len(entries) > NAMES:
        raise Refused(f"{path} has {len(entries):,} parts: no model has so many, nothing was loaded")
    if any(entry.filename.endswith(".pkl") and entry.file_size > _pickled(path) for entry in entries):
        raise Refused(f"{path} has too long a pickle: {TOO_LONG}")


def _pickled(path: Path) -> int:
    """How many bytes a pickle may have, without the numbers; each can become 80 in memory. B/16 has 25,000."""
    return min(1_000_000, 250_000 + path.stat().st_size // 20)


def check_numbers(state: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names the tensors which are no plain, finite floating-point numbers."""
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for name, tensor in state.items():
        if tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in kinds:
            kind = "meta" if tensor.is_meta else tensor.layout
            raise ValueError(f"{name} is {tensor.dtype} ({kind}): plain float16, 32 or 64 numbers are needed")
        if not tensor.numel():
            raise ValueError(f"{name} {tuple(tensor.shape)} is empty: of ZeRO-3, whose zero_to_fp32.py gathers it")
        # A few bytes may claim to be a terabyte, by strides of 0.
        if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise ValueError(f"{name} {tuple(tensor.shape)} declares more numbers than the file holds")
    # The sum is quick, and not finite if one number isn't; finite numbers may overflow it.
    bad = [name for name, tensor in state.items() if not (tensor.sum().isfinite() or tensor.isfinite().all())]
    if bad:
        raise ValueError(f"{len(bad)} with NaN or infinity: {some(bad)}")
