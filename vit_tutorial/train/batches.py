"""Lesson 07: the training images of each epoch: their order, their augmentation, and the seeds of both.

Nothing random is carried from epoch to epoch. The order of the images is a function of (seed, epoch), an augmentation
of (seed, epoch, image), dropout of (seed, epoch, process). So a run that was killed resumes from the last epoch's state
and ends with the same weights as one that was not, whatever the number of loader workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from vit_tutorial.data import LabelledImages
from vit_tutorial.data.augment import Augmentation
from vit_tutorial.data.text import counted
from vit_tutorial.options.recipe import Recipe

Batch = tuple[Tensor, Tensor]  # images (B, C, H, W), labels (B,) or, mixed, (B, K)
BatchIndex = tuple[int, list[int]]  # which batch: the epoch, and the images' places in their split
AUGMENTATION = 1  # the last word of its seeds, which so differ from those of the order


def seed_of(*words: int) -> int:
    """One seed from several whole numbers. Zeros at the end are ignored: (3, 1) and (3, 1, 0) give the same seed."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


@contextmanager
def seeded(*words: int) -> Iterator[None]:
    """Seed torch's generator for the block, and restore it afterwards, so that dropout draws the same numbers."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed_of(*words))
    try:
        yield
    finally:
        torch.set_rng_state(before)


class Order(Sampler[BatchIndex]):
    """The batches of an epoch, in an order of its own: this process's part of each global batch, all parts equal."""

    def __init__(self, images: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        if batch_size > images:
            raise ValueError(
                f"batch_size {batch_size} is more than {counted(images, 'training image')}: make it smaller"
            )
        if batch_size % processes:
            raise ValueError(
                f"batch_size {batch_size} is not divisible by the {processes} processes: change one of them"
            )
        self.images, self.batch_size, self.seed, self.rank, self.processes = images, batch_size, seed, rank, processes
        self.epoch = 0

    def __len__(self) -> int:
        return self.images // self.batch_size

    def __iter__(self) -> Iterator[BatchIndex]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, self.epoch))
        order = torch.randperm(self.images, generator=generator)  # (N,)
        for batch in order[: len(self) * self.batch_size].view(-1, self.batch_size):
            yield self.epoch, batch[self.rank :: self.processes].tolist()


class Reader(Dataset[Batch]):
    """The images and labels of a :data:`BatchIndex`, augmented the same way in whichever process reads them."""

    def __init__(self, images: LabelledImages, augmentation: Augmentation | None = None, seed: int = 0) -> None:
        self.images, self.augmentation, self.seed = images, augmentation or Augmentation("none"), seed
        self._numbers: tuple[int, list[Tensor]] = (-1, [])  # of the last epoch

    def __getitem__(self, index: BatchIndex) -> Batch:
        epoch, rows = index
        images, labels = self.images.batch(torch.tensor(rows))  # (B, C, H, W), (B,)
        for change, numbers in zip(self.augmentation.changes, self.random_numbers(epoch), strict=True):
            images = change.change(images, numbers[rows])
        if change_one := self.augmentation.image_change:
            changed = []
            for row, image in zip(rows, images, strict=True):
                with seeded(self.seed, epoch, row):
                    changed.append(change_one(image))
            images = torch.stack(changed)
        return images, labels

    def random_numbers(self, epoch: int) -> list[Tensor]:
        """What each change does to each image of the split in an epoch: (N, ...) per change."""
        if self._numbers[0] != epoch:
            tables = []
            for place, change in enumerate(self.augmentation.changes):
                generator = torch.Generator().manual_seed(seed_of(self.seed, epoch, place, AUGMENTATION))
                tables.append(change.draw(len(self.images), generator))
            self._numbers = (epoch, tables)
        return self._numbers[1]


def loader(
    images: LabelledImages,
    order: Iterable[BatchIndex],
    augmentation: Augmentation | None = None,
    *,
    seed: int = 0,
    workers: int = 0,
    pin_memory: bool = False,
) -> DataLoader[Batch]:
    """The batches of ``order``."""
    return DataLoader(
        Reader(images, augmentation, seed),
        batch_size=None,  # an index is a whole batch
        sampler=order,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # otherwise the workers' seeds come from dropout's generator
    )


class Batches:
    """The training images of each epoch, in batches, augmented, mixed, on their device."""

    def __init__(
        self,
        images: LabelledImages,
        recipe: Recipe,
        augmentation: Augmentation,
        accelerator: Accelerator,
        workers: int = 0,
    ) -> None:
        rank, processes = accelerator.process_index, accelerator.num_processes
        self.device, self.mix = accelerator.device, augmentation.mix
        self.order = Order(len(images), recipe.batch_size, recipe.seed, rank, processes)
        pin_memory = self.device.type == "cuda"
        self.loader = loader(images, self.order, augmentation, seed=recipe.seed, workers=workers, pin_memory=pin_memory)

    def __len__(self) -> int:
        return len(self.order)

    def of_epoch(self, epoch: int) -> Iterator[Batch]:
        """The part of this process: images (B, C, H, W) in [0, 1], labels (B,) or, mixed, (B, K)."""
        self.order.epoch = epoch
        for images, labels in self.loader:
            if self.mix:
                images, labels = self.mix(images, labels)
            yield images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
