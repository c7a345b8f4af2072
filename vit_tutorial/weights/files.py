"""Trained models on disk: written whole or not at all, read without running code; two come with the package.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("digits")
>>> model(preprocess(vt.data.digits().test.batch()[0])).shape
torch.Size([360, 10])
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import pickle
import re
import reprlib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.variants.hybrid import stem_from
from vit_tutorial.variants.modern import ModernConfig, build
from vit_tutorial.vit import ViT, ViTConfig

History = list[dict[str, float]]  # a row an epoch
SHIPPED = Path(__file__).parent / "checkpoints"
COUNTER = "num_batches_tracked"  # a batch norm counts its training steps; nothing reads it, so files go without


class _Trained(NamedTuple):
    model: ViT  # in evaluation mode, on the CPU
    classes: tuple[str, ...]
    preprocess: Preprocessing  # pictures -> what the model takes


class Trained(_Trained):
    """What :func:`vit_tutorial.load` returns: ``model, classes, preprocess``, and ``assumed``.

    ``assumed`` maps what the file didn't tell to what was taken, as :class:`.names.Converted` has it.
    """

    assumed: dict[str, Any]

    def __new__(
        cls,
        model: ViT,
        classes: tuple[str, ...],
        preprocess: Preprocessing,
        assumed: Mapping[str, Any] | None = None,
    ) -> Self:
        self = super().__new__(cls, model, classes, preprocess)
        self.assumed = dict(assumed or {})
        return self

    def _replace(self, **changes: Any) -> Self:
        changed = super()._replace(**changes)
        changed.assumed = self.assumed
        return changed


class Stored(NamedTuple):
    """What a folder holds that :func:`save` wrote: all that makes a model."""

    config: ViTConfig
    state_dict: dict[str, Tensor]
    classes: tuple[str, ...]
    preprocess: Preprocessing


def load(name: str | os.PathLike[str]) -> Stored:
    """The config, tensors, classes and preprocessing of a model of this package; ``vt.load`` makes the model of them.

    Args:
        name: of a model that comes with the package, "digits" or "shapes"; or a folder that
            ``python -m vit_tutorial.train`` wrote ("./digits" for a folder with such a name).

    Raises:
        ValueError: neither a model nor a folder, or files that are damaged or don't belong together.
        OSError: a file of the folder can't be read.
    """
    path = SHIPPED / name if os.fspath(name) in shipped() else Path(name)
    if not path.is_dir():
        raise ValueError(
            f"{os.fspath(name)!r} is neither a model of the package ({', '.join(shipped())}) nor a folder: write one "
            "with python -m vit_tutorial.train --out FOLDER"
        )
    with refusing(damaged(path)):
        state = read_safetensors(path / "model.safetensors")
        settings = read_json(path / "config.json")
        if "model" not in settings:
            raise ValueError(
                "config.json has no 'model', so it isn't this package's; the tensors alone: name their file"
            )
        fields = settings["model"]
        stem = fields.get("stem")
        kind = ModernConfig if "registers" in fields else ViTConfig
        config = kind(**(fields | {"stem": None if stem is None else stem_from(stem)}))
        if config.num_classes not in (0, len(settings["classes"])):
            raise ValueError(f"{len(settings['classes'])} names for {config.num_classes} classes")
        height, width = settings["image_size"]
        how = {field: settings[field] for field in ("crop", "interpolation", "squash", "corner") if field in settings}
        preprocess = Preprocessing((height, width), tuple(settings["mean"]), tuple(settings["std"]), **how)
        return Stored(config, state, tuple(settings["classes"]), preprocess)


def shipped() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(folder.name for folder in SHIPPED.iterdir())


def damaged(path: Path) -> str:
    """What an error about a folder of this package begins with."""
    return f"config.json and model.safetensors in {path} are damaged or don't belong together"


@contextmanager
def refusing(about: str = "") -> Iterator[None]:
    """Whatever goes wrong inside becomes one short ValueError that begins with ``about``, what a file is called.

    An OSError stays as it is; so does a TypeError, if it isn't about a file. What isn't foreseen in a stranger's file
    (a config nested a thousandfold, torch's own errors) is named by its kind.
    """
    start = f"{about}: " if about else ""
    try:
        yield
    except OSError as error:
        if error.filename is None or brief(str(error)) == str(error):
            raise
        raise type(error)(error.errno, error.strerror, brief(str(error.filename), 1000)) from None
    except ValueError as error:
        raise ValueError(brief(f"{start}{error}")) from error
    except TypeError as error:
        raise (ValueError if about else TypeError)(brief(f"{start}{error}")) from error
    except KeyError as error:
        raise ValueError(brief(f"{start}{error} is missing")) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(brief(f"{start}{type(error).__name__}: {reason}")) from error


def brief(text: str, limit: int = 1500) -> str:
    """The text on one line, cut in its middle where it is longer; what can't be printed is written as its code."""
    if not text.isprintable():  # a name may hold anything: line ends, codes that colour a terminal
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if len(text) <= limit else f"{text[: limit - 300]} … {text[-290:]}"


def warn(about: str, assumed: Mapping[str, Any], stacklevel: int = 3) -> None:
    """One UserWarning, in a sentence, that says what was assumed; none, if that is nothing."""
    ways = {
        "num_heads": "{} heads",
        "gelu": "the {} GELU",
        "norm_eps": "epsilon {}",
        "image_size": "pictures of {} pixels",
        "preprocess": "{}",
        "stem": "the stem {}",
        "rotary": "rotary positions {}",
        "pool": "pooling by {}",
        "plain": "the paper's architecture, {}",
    }
    said = {key: _recipe(value) if isinstance(value, Preprocessing) else value for key, value in assumed.items()}
    keys = {"rotary": "parts", "pool": "parts"}
    parts = [f"{way.format(said[key])} ({keys.get(key, key)}=)" for key, way in ways.items() if key in said]
    sentences = []
    if parts:
        sentences.append(
            f"{about} doesn't tell all, so this was assumed: {', '.join(parts)}; give what you know better"
        )
    if "weights" in assumed:
        sentences.append(f"{'' if parts else f'{about}: '}the weights are {assumed['weights']}")
    if "left_out" in assumed:
        sentences.append(f"{'' if sentences else f'{about}: '}left out, a ViT having none: {assumed['left_out']}")
    if sentences:
        warnings.warn(brief(". ".join(sentences) + "."), UserWarning, stacklevel=stacklevel)


def _recipe(how: Preprocessing) -> str:
    return f"pixels of mean {how.mean}, deviation {how.std}, crop {how.crop}, {how.interpolation}"


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object. Raises ValueError for a damaged one, OSError for one that can't be read."""
    text = path.read_bytes() if path.stat().st_size < 4_000_000 else b""  # names of 20,000 classes, both ways, take two
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: get it again")
    return content


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """A file's tensors, mapped into memory: no copy, and a page is read when it is used.

    The format has no checksum: of a flipped bit within a number, nothing tells. Raises ValueError for a file that is
    damaged or of another kind, OSError for one that can't be read.
    """
    _refuse_other_kind(path)
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise Refused(f"{path} is damaged, or no safetensors file ({error}): get it again") from error


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
    reader = _reader(path)
    if reader is None:
        raise ValueError(f"{path} is no file of weights: its name must end in {', '.join(READERS)}")
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {brief(str(path), 1000)}: check the path, or give a name as in 'timm/NAME'"
        )
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
        reason = " ".join(str(error).rpartition("WeightsUnpickler error:")[2].partition("Check the doc")[0].split())
        raise Refused(
            f"{path} is damaged, or of another kind ({reason[:200]}), and nothing was loaded: get it again"
        ) from None


NAMES = 50_000  # tensors of a file; the largest models have a few thousand
TOO_LONG = (
    "names and shapes take less, so nothing was loaded. If it is a checkpoint with a history, save its state dict anew"
)
KINDS = {  # what files begin with that go by a wrong name
    b"version https://git-lfs": "a pointer of Git LFS in the place of the file: git lfs pull brings it",
    b"<": "a web page: get the file itself",
    b"\x1f\x8b": "packed by gzip: unpack it first",
    b"\xfd7zXZ": "packed by xz: unpack it first",
}


def _refuse_other_kind(path: Path) -> None:
    """A ValueError that says what the file is, if that isn't what its name says."""
    with path.open("rb") as file:  # whose errors name it
        start = file.read(40)
    kind = next((kind for begins, kind in KINDS.items() if start.startswith(begins)), "")
    suffix, length = path.suffix.lower(), int.from_bytes(start[:8], "little")
    if suffix == ".safetensors" and start[8:9] == b"{" and _most(path, 1_000_000) < length < path.stat().st_size:
        raise Refused(
            f"{path} begins with {length:,} bytes of names and shapes: no model has so many, nothing was loaded"
        )
    if suffix == ".safetensors" and start.startswith(b"PK"):
        kind = "a zip, as torch.save or numpy.savez writes it: call it .pth or .npz"
    elif suffix != ".safetensors" and start[8:9] == b"{" and length < path.stat().st_size:
        kind = "in the format of .safetensors: call it so"
    if kind:
        raise Refused(f"{path} is {kind}. Nothing was loaded")


class Refused(ValueError):
    """A file that can't be read, with its name, the reason and the way out."""


def is_weights(path: Path) -> bool:
    """Whether :func:`read` knows files with such a name."""
    return _reader(path) is not None


def _reader(path: Path) -> Callable[[Path], dict[str, Any]] | None:
    return next((reader for suffix, reader in READERS.items() if path.name.lower().endswith(suffix)), None)


def weight_map(path: Path) -> dict[str, str]:
    """What an index says: the file of each tensor. They lie beside it. Raises ValueError for another content."""
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(file, str) for file in index.values()):
        raise Refused(f"{path} is damaged: it has no weight_map from names to files; get it again")
    for file in sorted(set(index.values())):
        if Path(file).name != file or "\\" in file or not file.endswith((".safetensors", ".bin")):
            raise Refused(
                f"{path} names {brief(repr(file), 400)}, which is no file of weights beside it: nothing was loaded"
            )
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
                raise Refused(
                    f"{path} is a TorchScript archive, a model with its code, and nothing was loaded: save its "
                    "state_dict() with torch.save, or get a .safetensors file"
                )
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
            raise Refused(
                f"{path} is a pickle of protocol {start[1]}, a kind that torch.load can't read safely, and nothing was "
                "loaded: get a .safetensors file, or one that torch.save wrote"
            ) from None
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
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(
        array.shape
    )  # of one number, it makes a row
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
    return min(1_000_000, _most(path, 250_000))


def _most(path: Path, least: int) -> int:
    """How many bytes names and shapes may have: much less than the numbers, in a file of some size."""
    return least + path.stat().st_size // 20


def assemble(config: ViTConfig, state_dict: Mapping[str, Tensor], *, checked: bool = False) -> ViT:
    """The model with these tensors as its parameters, float32, in evaluation mode; nothing is copied or initialised.

    Args:
        config: what the model is.
        state_dict: its tensors, under our names.
        checked: True if :func:`check_numbers` has seen them; looking at every number again takes as long as the rest.

    Raises:
        ValueError: names that are missing or too many, other shapes, numbers that aren't finite (in float32): which.
    """
    state = {name: tensor.detach() for name, tensor in state_dict.items() if not name.endswith(COUNTER)}
    blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
    if len(blocks) != config.depth:  # before a damaged depth of a billion is built
        raise ValueError(f"the weights have {len(blocks)} blocks, the config says depth={config.depth}")
    with torch.device("meta"):
        model = build(config)
    whole = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = {name: shape for name, shape in whole.items() if not name.endswith(COUNTER)}
    compare(expected, {name: tuple(tensor.shape) for name, tensor in state.items()})
    if not checked:
        check_numbers(state)
    single = {name: tensor.float() for name, tensor in state.items()}
    check_numbers({name: tensor for name, tensor in single.items() if state[name].dtype == torch.float64})
    counters = {name: torch.tensor(0) for name in whole if name.endswith(COUNTER)}
    model.load_state_dict(single | counters, assign=True)
    return model.eval()


def compare(expected: Mapping[str, tuple[int, ...] | None], found: Mapping[str, tuple[int, ...]]) -> None:
    """Raise a ValueError that lists what of ``found`` is missing, too many or of another shape; None: any shape."""
    wrong = [
        f"{name} {found[name]} instead of {shape}"
        for name, shape in expected.items()
        if name in found and shape not in (None, found[name])
    ]
    lists = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "of another shape": wrong,
    }
    if any(lists.values()):
        raise ValueError("; ".join(f"{len(names)} {what}: {some(names)}" for what, names in lists.items() if names))


def check_numbers(state: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names the tensors which are no plain, finite floating-point numbers."""
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for name, tensor in state.items():
        if tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in kinds:
            raise ValueError(f"{name} is {tensor.dtype} ({tensor.layout}): plain float16, 32 or 64 numbers are needed")
        # A few bytes may claim to be a terabyte, by strides of 0.
        if not tensor.numel() or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise ValueError(f"{name} {tuple(tensor.shape)} is empty, or declares more numbers than the file holds")
    # The sum is quick, and not finite if one number isn't; finite numbers may overflow it.
    bad = [name for name, tensor in state.items() if not (tensor.sum().isfinite() or tensor.isfinite().all())]
    if bad:
        raise ValueError(f"{len(bad)} with NaN or infinity: {some(bad)}")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def short(value: Any) -> str:
    """The value as Python writes it, cut where it is long."""
    return _SHORT.repr(value)[:200]


def some(names: Sequence[str], limit: int = 10) -> str:
    """At most ten names, each in short, then a count."""
    short = [name if len(name) <= 100 else f"{name[:60]}…{name[-30:]}" for name in names[:limit]]
    return ", ".join(short) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def save(
    folder: str | os.PathLike[str], model: ViT, data: Data, history: History, *, command: str = "",
    preprocess: Preprocessing | None = None, recipe: Mapping[str, Any] | None = None,
    test: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Write model.safetensors, config.json (all that is needed to use them), history.csv and curves.png.

    ``preprocess`` says how pictures become what the model takes; None: as ``data`` has them. ``recipe``, plain values,
    says how it was trained. ``test``, loss and accuracy on the test split, if the history is that of images held out.
    """
    from vit_tutorial import plots

    out, table, picture = Path(folder), io.StringIO(), io.BytesIO()
    split, accuracies = "test", {"test_accuracy": history[-1]["test_accuracy"]}
    if test is not None:
        split = "validation"
        accuracies = {"test_accuracy": test["test_accuracy"], "validation_accuracy": history[-1]["test_accuracy"]}
        history = [{name.replace("test_", "validation_"): value for name, value in row.items()} for row in history]
    config = {
        "model": asdict(model.config), "classes": list(data.classes),
        **asdict(preprocess or Preprocessing(data.image_size, data.mean, data.std)),
        "data": data.name, **accuracies, "command": command,
        "recipe": dict(recipe or {}), "test_files": list(data.test_files),
    }  # fmt: skip
    rows = csv.DictWriter(table, list(history[0]), lineterminator="\n")
    rows.writeheader()
    rows.writerows(history)
    names = ("loss", f"{split}_loss", "accuracy", f"{split}_accuracy")
    columns = {name: [row[name] for row in history] for name in names}
    labels = ("training loss", f"{split} loss", "training accuracy", f"{split} accuracy")
    lines = dict(zip(labels, columns.values(), strict=True))
    epochs = [row["epoch"] for row in history]
    plots.curves(epochs, lines, xlabel="epoch", ylabel="loss (nats), accuracy (0 to 1)").savefig(picture)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(COUNTER)}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write(out / "model.safetensors", safetensors.torch.save(weights))
    write(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write(out / "history.csv", table.getvalue().encode())
    write(out / "curves.png", picture.getvalue())


def write(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` in place of the file, as :func:`replacing` does."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` in one move when the block ends well.

    Killed at any moment, the old file or the new one is there; after an error the old one.

    Raises:
        OSError: that names the folder, for a full disk or one without the right to write.
    """
    partial_file = path.with_name(f"{path.name}.partial")  # one name: what a kill leaves is overwritten
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name and no content
        partial_file.replace(path)
    except OSError as error:
        raise OSError(
            error.errno,
            f"can't write {path.name} to the folder {path.parent} ({error.strerror}): what was saved there before is "
            "untouched; make room, or get the right to write, and resume",
        ) from error
    finally:
        with suppress(OSError):
            partial_file.unlink(missing_ok=True)
