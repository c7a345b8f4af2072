"""Lesson 07: images that needn't fit into memory: data sets of the Hugging Face hub, and folders of WebDataset shards.

The library ``datasets`` downloads them, converts shards once, and reads rows from its cache on the disk as they are
needed. So every image has its place, and a run that was stopped resumes exactly, as with images in memory.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from vit_tutorial.data.extras import install_hint
from vit_tutorial.data.images import Data, Images, channel_statistics
from vit_tutorial.data.photo_files import decode
from vit_tutorial.data.preprocessing import Preprocessing, unnormalised_center
from vit_tutorial.patches import Size

if TYPE_CHECKING:
    import datasets  # type: ignore[import-untyped]

HUB = "hf://"
STATISTICS_IMAGES = 1000  # training images from which mean and standard deviation are measured
TEST_SPLITS = ("test", "val", "valid", "validation")  # names of the split to test on; the first that is there


class Rows(Dataset[tuple[Tensor, int]]):
    """One split, on the disk. An item is (image (C, H, W) float32 in [0, 1], label)."""

    def __init__(self, rows: datasets.Dataset, image: str, label: str, preprocess: Preprocessing, name: str) -> None:
        self.rows, self.image, self.label, self.preprocess, self.name = rows, image, label, preprocess, name

    @property
    def labels(self) -> Tensor:
        """(N,), int64; -1 where there is none."""
        return torch.tensor([-1 if label is None else label for label in self.rows[self.label]])

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Many items at once: images (B, C, H, W) float32 in [0, 1], labels (B,) int64."""
        images, labels = zip(*(self[place] for place in index.tolist()), strict=True)
        return torch.stack(images), torch.tensor(labels)

    def part(self, chosen: Tensor) -> Rows:
        """The images where ``chosen``, (N,) bool, is True, in their order."""
        rows = self.rows.select(chosen.nonzero().flatten().tolist())
        return Rows(rows, self.image, self.label, self.preprocess, self.name)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels, label = self.pixels(index)
        return pixels.float() / 255, label

    def pixels(self, index: int) -> tuple[Tensor, int]:
        """The image as whole numbers, (C, H, W) uint8, and its label."""
        row, name = self.rows[index], f"image {index} of {self.name}"
        if row[self.image] is None or row[self.label] is None or row[self.label] < 0:  # as where labels are secret
            raise ValueError(f"{name} has no label, or there is no image: both are needed")
        content = row[self.image]["bytes"] or Path(row[self.image]["path"]).read_bytes()
        picture = self.preprocess.pixels(decode(io.BytesIO(content), name))  # (H, W, C)
        return torch.from_numpy(picture).permute(2, 0, 1), int(row[self.label])


def stays_on_disk(name: str) -> bool:
    """Whether :func:`from_disk` reads it: ``hf://owner/name``, or a folder with shards called ``train*.tar``."""
    return name.startswith(HUB) or (name != "" and any(Path(name).glob("train*.tar")))  # Path("") is this folder


def from_disk(name: str, image_size: Size, preprocess: Preprocessing | None = None) -> Data:
    """A data set that stays on the disk.

    Args:
        name: a folder with ``train*.tar``, ``test*.tar`` (or ``val*.tar``) and classes.txt, a name per line; a sample
            has an image and its label, as in 0001.jpg and 0001.cls, counted from 0. Or ``hf://owner/name``, with a
            column of images and one of labels; ``hf://owner/name#column`` names that of the labels.
        image_size: H = W or (H, W), in pixels, to train from scratch.
        preprocess: of the model to be fine-tuned, instead of ``image_size``. Without one, mean and standard deviation
            are measured on 1,000 of the training images.

    Raises:
        ValueError: no test split, no names of classes, or columns that aren't clear.
        ModuleNotFoundError: datasets is missing: what to type.
        OSError: a data set that was not found.
    """
    with install_hint():
        import datasets

    splits, image, label, classes = (
        _from_hub(name.removeprefix(HUB)) if name.startswith(HUB) else _from_shards(Path(name))
    )
    to_input = preprocess or unnormalised_center(image_size)
    short = name.partition("#")[0].rstrip("/").rpartition("/")[2]
    columns, as_bytes = [image, label], datasets.Image(decode=False)
    train, test = (
        Rows(rows.select_columns(columns).cast_column(image, as_bytes), image, label, to_input, f"{short}, {split}")
        for rows, split in zip(splits, ("train", "test"), strict=True)
    )
    mean, std = (preprocess.mean, preprocess.std) if preprocess else _statistics(train)
    return Data(
        name=short,
        train=train,
        test=test,
        classes=classes,
        image_size=to_input.image_size,
        in_channels=len(mean),
        mean=mean,
        std=std,
        preprocess=preprocess,
        digest=f"{_digest(splits[0])}; {_digest(splits[1])}",
    )


def _digest(rows: datasets.Dataset) -> str:
    """How many rows a split has, and how many bytes they are."""
    return f"{len(rows)} rows of {rows.info.splits[str(rows.split)].num_bytes} bytes"


Splits = tuple["datasets.Dataset", "datasets.Dataset"]


def _from_hub(name: str) -> tuple[Splits, str, str, tuple[str, ...]]:
    """The two splits, the columns of images and labels, the classes."""
    import datasets

    name, _, column = name.partition("#")
    if not name:
        raise ValueError(f"{HUB} needs the name of a data set, as in {HUB}owner/name")
    found = datasets.load_dataset(name)
    test_split = next((split for split in TEST_SPLITS if split in found), "")
    if "train" not in found or not test_split:
        raise ValueError(f"{name} has the splits {', '.join(found)}: train and test (or validation) are needed")
    kinds = found["train"].features
    images = [key for key, kind in kinds.items() if isinstance(kind, datasets.Image)]
    labels = [key for key, kind in kinds.items() if isinstance(kind, datasets.ClassLabel) and column in ("", key)]
    if len(images) != 1 or len(labels) != 1:
        raise ValueError(
            f"{name} needs one column of images and one of labels, and has {', '.join(sorted(kinds))}: name the column "
            f"of labels, as in {HUB}{name}#label"
        )
    return (found["train"], found[test_split]), images[0], labels[0], tuple(kinds[labels[0]].names)


def _from_shards(folder: Path) -> tuple[Splits, str, str, tuple[str, ...]]:
    """Of a folder of shards: the two splits, the columns of images and labels, the classes."""
    import datasets

    test_split = next((name for name in TEST_SPLITS if any(folder.glob(f"{name}*.tar"))), "")
    if not test_split:
        raise ValueError(f"{folder} has no test*.tar or val*.tar: put the images to test on into some")
    names = folder / "classes.txt"
    if not names.is_file():
        raise ValueError(f"{names} is missing: write the name of each class into it, one per line, in label order")
    classes = tuple(line.strip() for line in names.read_text("utf-8-sig").splitlines() if line.strip())
    files = {split: sorted(map(str, folder.glob(f"{split}*.tar"))) for split in ("train", test_split)}
    found = datasets.load_dataset("webdataset", data_files=files)
    images = [key for key, kind in found["train"].features.items() if isinstance(kind, datasets.Image)]
    if len(images) != 1 or "cls" not in found["train"].features:
        raise ValueError(f"each sample in {folder} needs one image and a label, all of one kind, as in x.jpg and x.cls")
    labels = {label for split in found.values() for label in split["cls"]}
    if wrong := sorted(labels - set(range(len(classes)))):
        raise ValueError(
            f"{folder} has the label {wrong[0]}, and the lines of classes.txt stand for 0 to {len(classes) - 1}"
        )
    return (found["train"], found[test_split]), images[0], "cls", classes


def _statistics(train: Rows) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over some of the training images, drawn at random."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randperm(len(train), generator=generator)[:STATISTICS_IMAGES].tolist()
    pixels = torch.stack([train.pixels(place)[0] for place in places])  # (n, C, H, W)
    return channel_statistics(Images(pixels, torch.zeros(len(places), dtype=torch.int64)))
