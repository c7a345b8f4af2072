"""Lesson 07: training images that needn't fit into memory: shards of WebDataset, and data sets of Hugging Face.

The training split is read as it is needed, shuffled through a buffer of :data:`BUFFER` images. The test split is held
in memory. The order depends on the seed and the epoch alone, so a run that was stopped goes on as it would have.
"""

from __future__ import annotations

import io
import random
import tarfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from vit_tutorial.data.extras import counted, needed, printable
from vit_tutorial.data.folders import SUFFIXES, decoded
from vit_tutorial.data.images import Data, Images, channel_statistics
from vit_tutorial.data.preprocessing import Preprocessing, from_scratch
from vit_tutorial.patches import Size

HUB = "hf://"
BUFFER = 1000  # samples among which the next one is drawn
HELD_OUT = ("test", "val", "valid", "validation")  # names of the split to test on; the first that is there
Sample = tuple[str, bytes, int]  # what an error calls it, the image file, the label
Pixels = Callable[[Any], np.ndarray]  # a PIL image -> (H, W, C), uint8


@dataclass
class Stream:
    """Labelled images that are read again in every epoch. Its parts can be pickled, as processes that are spawned need.

    Args:
        samples: (seed, process, processes) -> the samples of that process, in the order of that seed.
        count: how many samples all parts have.
        pixels: a PIL image -> the model's input as whole numbers, (H, W, C).
        skipped: a line for each image that couldn't be read so far.
    """

    samples: Callable[[int, int, int], Iterator[Sample]]
    count: int
    pixels: Pixels
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return self.count

    def images(self, seed: int, rank: int = 0, processes: int = 1) -> Iterator[tuple[Tensor, int]]:
        """The images (C, H, W) of a process, in [0, 1], with their labels, again and again, if there are any; those
        that can't be read are named and skipped. Several workers of a DataLoader share them.
        """
        while True:
            found = False
            for name, content, label in self.samples(seed, rank, processes):
                try:
                    picture = torch.from_numpy(self.pixels(decoded(io.BytesIO(content), name)))  # (H, W, C)
                except ValueError as error:
                    self.skip(str(error))
                    continue
                found = True
                yield picture.permute(2, 0, 1).float() / 255, label
            if not found:
                return

    def skip(self, line: str) -> None:
        """Keep the line, and warn of what it says, once; a worker leaves that to the process that it works for."""
        if line not in self.skipped:
            self.skipped.append(line)
            if get_worker_info() is None:
                warnings.warn(f"skipped {line}", UserWarning, stacklevel=3)


def is_stream(name: str) -> bool:
    """Whether :func:`load` reads it: ``hf://owner/name``, or a folder with shards called ``train-*.tar``."""
    return name.startswith(HUB) or any(Path(name).glob("train*.tar"))


def load(name: str, image_size: Size | None, preprocess: Preprocessing | None = None) -> Data:
    """The data set of :func:`is_stream`: ``train`` is a :class:`Stream`, ``test`` is held in memory.

    Args:
        name: a folder with ``train-*.tar``, ``test-*.tar`` (or ``val-*.tar``) and classes.txt, a name per line; a
            sample has an image and its label, as in 0001.jpg and 0001.cls, counted from 0. Or ``hf://owner/name``,
            with a column of images and one of labels; ``hf://owner/name#column`` names that of the labels.
        image_size: H = W or (H, W), in pixels, to train from scratch.
        preprocess: of the model to be fine-tuned, instead of ``image_size``. Without one, mean and standard deviation
            are those of the test split.

    Raises:
        ValueError: no test split, no names of classes, or a split without images.
        ModuleNotFoundError: webdataset or datasets is missing: what to type.
        OSError: a data set that was not found.
    """
    train, test, classes = _hub(name.removeprefix(HUB)) if name.startswith(HUB) else _tars(Path(name))
    to_input = preprocess or from_scratch(image_size or 64)
    held, skipped = _in_memory(test, to_input.pixels, name)
    if not train[1]:
        raise ValueError(f"the training split of {name} has no images")
    mean, std = (preprocess.mean, preprocess.std) if preprocess else channel_statistics(held)
    stream: Any = Stream(*train, to_input.pixels)
    short = name.partition("#")[0].rstrip("/").rpartition("/")[2]
    size = to_input.image_size
    return Data(short, stream, held, classes, size, len(mean), mean, std, preprocess=preprocess, skipped=skipped)


Split = tuple[Callable[[int, int, int], Iterator[Sample]], int]  # as the first two fields of Stream


def _tars(folder: Path) -> tuple[Split, Split, tuple[str, ...]]:
    held = next((name for name in HELD_OUT if any(folder.glob(f"{name}*.tar"))), "")
    if not held:
        raise ValueError(f"{folder} has no test-*.tar or val-*.tar: put the images to test on into some")
    names = folder / "classes.txt"
    if not names.is_file():
        raise ValueError(f"{names} is missing: write the name of each class into it, one per line, in label order")
    try:
        classes = tuple(line.strip() for line in names.read_text("utf-8-sig").split("\n") if line.strip())
    except UnicodeDecodeError:
        raise ValueError(f"{names} isn't UTF-8: save it again as that") from None
    if twice := [name for name in classes if classes.count(name) > 1]:
        raise ValueError(f"{names} has the class {twice[0]!r} twice: each class needs a name of its own")
    return _tar_split(folder, "train", len(classes)), _tar_split(folder, held, len(classes)), classes


def _tar_split(folder: Path, split: str, classes: int) -> Split:
    files = [path.as_posix() for path in sorted(folder.glob(f"{split}*.tar"))]
    return partial(_tar_samples, files, classes), sum(_count(file, classes) for file in files)


def _tar_samples(files: list[str], classes: int, seed: int, part: int, parts: int) -> Iterator[Sample]:
    with needed():
        import webdataset  # type: ignore[import-untyped]
        from webdataset import tariterators

    order, worker = random.Random(seed), get_worker_info()
    if worker:
        part, parts = part * worker.num_workers + worker.id, parts * worker.num_workers
    if parts > len(files):
        raise ValueError(
            f"{counted(len(files), 'shard')}, such as {files[0]}, can't serve {parts} readers (processes times "
            "workers): use fewer readers, or write more and smaller shards"
        )
    shuffled = order.sample(files, len(files))
    inside = tariterators.tar_file_expander(_opened(shuffled[part::parts]))
    for sample in webdataset.shuffle(BUFFER, rng=order)(tariterators.group_by_keys(inside)):
        yield _checked(sample, classes)


def _checked(sample: dict[str, Any], classes: int) -> Sample:
    name = f"{printable(sample['__key__'])} in {sample['__url__']}"
    image = next((content for key, content in sample.items() if f".{key.lower()}" in SUFFIXES), None)
    if image is None or "cls" not in sample:
        raise ValueError(f"{name} needs an image and a label, as in x.jpg and x.cls (or the shard was cut short)")
    text = sample["cls"].decode(errors="replace").strip()
    if not (text.isdecimal() and int(text) < classes):
        last = f"0 to {classes - 1}" if classes else "nothing"
        raise ValueError(f"{name} has the label {text!r}, and the lines of classes.txt stand for {last}")
    return name, image, int(text)


def _opened(files: list[str]) -> Iterator[dict[str, Any]]:
    """The shards, open: given their names, webdataset would take the drive of a Windows path for a protocol."""
    for file in files:
        with Path(file).open("rb") as stream:
            yield {"url": file, "stream": stream}


def _count(file: str, classes: int) -> int:
    """How many samples are in a shard; each is checked, but for its image, which isn't read."""
    with needed():
        from webdataset import tariterators

    def content(member: tarfile.TarInfo) -> bytes:
        opened = shard.extractfile(member) if member.name.lower().endswith(".cls") else None
        return opened.read() if opened else b""

    try:
        with tarfile.open(file) as shard:
            members = (member for member in shard if member.isreg() and not member.name.startswith("__"))
            headers = ({"fname": member.name, "__url__": file, "data": content(member)} for member in members)
            return sum(1 for sample in tariterators.group_by_keys(headers) if _checked(sample, classes))
    except (tarfile.TarError, EOFError):
        raise ValueError(f"{file} is not a shard, or is damaged") from None


def _hub(name: str) -> tuple[Split, Split, tuple[str, ...]]:
    with needed():
        import datasets  # type: ignore[import-untyped]

    name, _, column = name.partition("#")
    if not name:
        raise ValueError(f"{HUB} needs the name of a data set, as in {HUB}owner/name")
    found = datasets.load_dataset(name, streaming=True)
    held = next((split for split in HELD_OUT if split in found), "")
    if "train" not in found or not held:
        raise ValueError(f"{name} has the splits {', '.join(found)}: train and test (or validation) are needed")
    kinds = found["train"].features or {}
    images = [key for key, kind in kinds.items() if isinstance(kind, datasets.Image)]
    labels = [key for key, kind in kinds.items() if isinstance(kind, datasets.ClassLabel) and column in ("", key)]
    if len(images) != 1 or len(labels) != 1:
        raise ValueError(
            f"{name} needs one column of images and one of labels, and has {', '.join(sorted(kinds))}: name the column "
            f"of labels, as in {HUB}{name}#label"
        )
    image, label = images[0], labels[0]

    def of(split: str) -> Split:
        raw = found[split].select_columns([image, label]).cast_column(image, datasets.Image(decode=False))
        known = (raw.info.splits or {}).get(split)
        count = known.num_examples if known and known.num_examples else sum(1 for _ in raw.select_columns([label]))
        return partial(_hub_samples, raw, image, label, f"{name}, {split}"), count

    return of("train"), of(held), tuple(kinds[label].names)


def _hub_samples(raw: Any, image: str, label: str, name: str, seed: int, part: int, parts: int) -> Iterator[Sample]:
    from datasets.distributed import split_dataset_by_node  # type: ignore[import-untyped]

    rows = split_dataset_by_node(raw.shuffle(seed=seed, buffer_size=BUFFER), part, parts)
    for number, row in enumerate(rows):  # of several workers each gets a share, which datasets sees to
        if row[image] is None or row[label] is None or row[label] < 0:  # as where labels are kept secret
            raise ValueError(f"image {number} of {name} has no label, or there is no image: both are needed")
        content = row[image]["bytes"] or Path(row[image]["path"]).read_bytes()
        yield f"image {number} of {name}", content, row[label]


def _in_memory(split: Split, pixels: Pixels, name: str) -> tuple[Images, tuple[str, ...]]:
    """All images of a split, as whole numbers, and a line for each that can't be read."""
    pictures, labels, skipped = [], [], []
    for file, content, label in split[0](0, 0, 1):
        try:
            pictures.append(torch.from_numpy(pixels(decoded(io.BytesIO(content), file))))  # (H, W, C)
            labels.append(label)
        except ValueError as error:
            skipped.append(str(error))
            warnings.warn(f"skipped {error}", UserWarning, stacklevel=2)
    if not pictures:
        raise ValueError(f"the test split of {name} has no image that can be read")
    return Images(torch.stack(pictures).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)), tuple(skipped)
