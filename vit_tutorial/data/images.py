"""Lesson 07: labelled images in memory, the two splits of a data set, and what they are normalised by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vit_tutorial.data.preprocessing import Preprocessing
from vit_tutorial.data.text import counted
from vit_tutorial.options.recipe import STRONG

Split = Literal["train", "test"]


class LabelledImages(Protocol):
    """A split, in memory or on the disk: its images (C, H, W), float32 in [0, 1], and their labels."""

    @property
    def labels(self) -> Tensor: ...  # (N,), int64

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Tensor, int]: ...

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The images (n, C, H, W) and labels (n,) at these n places."""
        ...

    def part(self, chosen: Tensor) -> LabelledImages:
        """The images where ``chosen``, (N,) bool, is True."""
        ...


class Images(Dataset[tuple[Tensor, int]]):
    """Labelled images of one size, held in memory. An item is (image (C, H, W) float32 in [0, 1], label).

    Args:
        images: (N, C, H, W), uint8; a tensor or NumPy's array.
        labels: (N,), whole numbers, likewise.
        white: the whole number that stands for 1.0: 255, or 16 for digits.
        masks: (N, H, W), bool, True on the pixels of what the label names; shapes have them, the others None.

    Raises:
        ValueError: other numbers than uint8, another shape, or not one whole number per image.
    """

    def __init__(
        self, images: Tensor | np.ndarray, labels: Tensor | np.ndarray, *, white: int = 255, masks: Tensor | None = None
    ) -> None:
        self.images, self.labels = torch.as_tensor(images), torch.as_tensor(labels)
        self.white, self.masks = white, masks
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(
                f"images must be (N, C, H, W) of uint8, got {tuple(self.images.shape)} of {self.images.dtype}: "
                "(255 * images).round().to(torch.uint8) for floats in [0, 1]"
            )
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"{counted(len(self.images), 'image')} and labels of shape {tuple(self.labels.shape)}: one label each"
            )
        if self.labels.is_floating_point():
            raise ValueError(f"labels must be whole numbers, got {self.labels.dtype}")
        self.labels = self.labels.long()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index].float() / self.white, int(self.labels[index])

    def batch(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Many items at once, by default all: images (B, C, H, W) float32 in [0, 1], labels (B,) int64."""
        return self.images[index].float() / self.white, self.labels[index]

    def part(self, chosen: Tensor) -> Images:
        """The images where ``chosen``, (N,) bool, is True, in their order."""
        masks = None if self.masks is None else self.masks[chosen]
        return Images(self.images[chosen], self.labels[chosen], white=self.white, masks=masks)


@dataclass(frozen=True)
class Data:
    """A data set: its two splits, and what a model and its normalisation need to know, (x - mean) / std.

    Raises:
        ValueError: a label in memory that is no class's number.
    """

    name: str
    train: LabelledImages
    test: LabelledImages
    classes: tuple[str, ...]
    image_size: tuple[int, int]  # (H, W)
    in_channels: int
    mean: tuple[float, ...]  # one per channel
    std: tuple[float, ...]
    augment: str = STRONG  # the augmentation "default"
    random_test_files: tuple[str, ...] = ()  # of a folder of classes: those set aside to test on, as class/name
    test_files: tuple[str, ...] = ()  # of a folder: the file of each image of ``test``
    preprocess: Preprocessing | None = None  # how pictures became images; None: cropped, resized, as the fields say
    skipped: tuple[str, ...] = ()  # of a folder: a line for each file that couldn't be read
    digest: str = ""  # of a folder: how many files, and a hash of their names and sizes; what hold_out held out
    test_split: Literal["test", "validation"] = "test"  # what ``test`` is

    def __post_init__(self) -> None:
        for split in (self.train, self.test):
            # Labels on the disk would have to be read.
            labels = split.labels.tolist() if isinstance(split, Images) else []
            if labels and not 0 <= min(labels) <= max(labels) < len(self.classes):
                raise ValueError(
                    f"{self.name} has labels from {min(labels)} to {max(labels)}, and its {len(self.classes)} classes "
                    "are counted from 0"
                )


def content_of(split: LabelledImages) -> str:
    """How many images a split has, and a hash of their labels and, of those in memory, of their pixels."""
    digest = hashlib.sha256(split.labels.contiguous().numpy().data)
    if isinstance(split, Images):
        digest.update(split.images.contiguous().numpy().data)
    return f"{counted(len(split), 'image')}, SHA-256 {digest.hexdigest()[:16]}"


def channel_statistics(train: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all pixels, with 1.0 as white: (C,) each; std is above 0."""
    means, stds = [], []
    for channel in train.images.unbind(1):  # (N, H, W)
        frequency = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()  # of each level, (256,)
        level = torch.arange(256, dtype=torch.float64) / train.white
        means.append(float(frequency @ level))
        # A constant channel has a standard deviation of 0, by which nothing can be divided.
        stds.append(max(float(frequency @ (level - means[-1]) ** 2) ** 0.5, 1 / train.white))
    return tuple(means), tuple(stds)


def hold_out(data: Data, fraction: float, seed: int = 0) -> Data:
    """The same data with a fraction of each class's training images, chosen at random, in place of its test split.

    This is a validation split: choose on it, because an accuracy on the images you chose by looks better than it is.

    Args:
        data: whose training images are split.
        fraction: of each class, in (0, 1), rounded to whole images.
        seed: another seed holds out other images.

    Raises:
        ValueError: a fraction outside (0, 1), or one that leaves a class without an image on either side.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be above 0 and below 1, got {fraction}: 0.1 holds out every tenth image")
    labels, random = data.train.labels, np.random.RandomState(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label, name in enumerate(data.classes):
        places = np.flatnonzero((labels == label).numpy())
        count = round(fraction * len(places))
        if not 0 < count < len(places):
            raise ValueError(
                f"{fraction} of {counted(len(places), 'training image')} of class {name!r} is {count} to hold out: a "
                "class needs one on either side, so take another fraction, or add images"
            )
        held[torch.from_numpy(random.permutation(places)[:count])] = True
    splits = (data.train.part(~held), data.train.part(held))
    # Of images on the disk, content_of sees the labels alone, which another seed may leave as they are.
    digest = f"{data.digest}; held out {hashlib.sha256(held.numpy().data).hexdigest()[:16]}"
    return replace(
        data, train=splits[0], test=splits[1], test_files=(), test_split="validation", digest=digest.lstrip("; ")
    )
