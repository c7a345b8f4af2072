"""Lesson 07: what makes a training run repeatable: the order of the images, randomness, and the state on disk.

Nothing random is carried from epoch to epoch. The order of the images is a function of (seed, epoch), an augmentation
of (seed, epoch, image), dropout of (seed, epoch, process). So a run that was killed resumes from the last epoch's state
and ends with the same weights as one that was not, whatever the number of loader workers.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from vit_tutorial.data import Data, Images
from vit_tutorial.data.augment import Augmentation
from vit_tutorial.data.extras import counted
from vit_tutorial.data.recipe import Recipe, name_of
from vit_tutorial.data.shards import Stream
from vit_tutorial.weights import keeping
from vit_tutorial.weights.keeping import History

Batch = tuple[Tensor, Tensor]  # images (B, C, H, W), labels (B,) or, mixed, (B, K)
Saved = dict[str, Any]  # what the file holds: numbers, texts, tensors, and lists and mappings of them
VERSION = 2  # of what a run draws and in which order: another version ends with other weights
RECIPE = tuple(field.name for field in fields(Recipe) if field.name != "mix")  # what has a name in files and options
Key = tuple[int, list[int]]  # which batch: the epoch, and the images' places in their split

# ---------------------------------------------------------------------------------------- order and randomness


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


class Order(Sampler[Key]):
    """The batches of an epoch, in an order of its own: this process's share of each global batch, all shares equal."""

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

    def __iter__(self) -> Iterator[Key]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, self.epoch))
        order = torch.randperm(self.images, generator=generator)  # (N,)
        for batch in order[: len(self) * self.batch_size].view(-1, self.batch_size):
            yield self.epoch, batch[self.rank :: self.processes].tolist()


class Reader(Dataset[Batch]):
    """The images and labels of a :data:`Key`, augmented the same way in whichever process reads them."""

    def __init__(self, images: Images, augmentation: Augmentation | None = None, seed: int = 0) -> None:
        self.images, self.augmentation, self.seed = images, augmentation or Augmentation("none"), seed
        self._drawn: tuple[int, list[Tensor]] = (-1, [])

    def __getitem__(self, key: Key) -> Batch:
        epoch, rows = key
        images, labels = self._read(rows)  # (B, C, H, W), (B,)
        for change, drawn in zip(self.augmentation.changes, self.drawn(epoch), strict=True):
            images = change.change(images, drawn[rows])
        if each := self.augmentation.each:
            changed = []
            for row, image in zip(rows, images, strict=True):
                with seeded(self.seed, epoch, row):
                    changed.append(each(image))
            images = torch.stack(changed)
        return images, labels

    def drawn(self, epoch: int) -> list[Tensor]:
        """What each change does to each image of the split in an epoch: (N, ...) per change."""
        if self._drawn[0] != epoch:
            tables = []
            for place, change in enumerate(self.augmentation.changes):
                generator = torch.Generator().manual_seed(seed_of(self.seed, epoch, place, 1))
                tables.append(change.draw(len(self.images), generator))
            self._drawn = (epoch, tables)
        return self._drawn[1]

    def _read(self, rows: list[int]) -> Batch:
        if isinstance(self.images, Images):
            return self.images.batch(torch.tensor(rows))
        items = [self.images[row][:2] for row in rows]  # any torch Dataset will do
        return torch.stack([image for image, _ in items]), torch.tensor([int(label) for _, label in items])


def loader(
    images: Images,
    order: Any,
    augmentation: Augmentation | None = None,
    *,
    seed: int = 0,
    workers: int = 0,
    pin_memory: bool = False,
) -> DataLoader[Batch]:
    """The batches of ``order``, an iterable of :data:`Key`."""
    return DataLoader(
        Reader(images, augmentation, seed),
        batch_size=None,  # a key is a whole batch
        sampler=order,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # otherwise the workers' seeds come from dropout's generator
    )


class StreamReader(IterableDataset[tuple[Batch, list[str]]]):
    """The batches of this process from a stream, augmented, each with a line for every image that was skipped."""

    def __init__(self, stream: Stream, augmentation: Augmentation, order: Order) -> None:
        self.stream, self.augmentation, self.order = stream, augmentation, order

    def __iter__(self) -> Iterator[tuple[Batch, list[str]]]:
        order, worker, told = self.order, get_worker_info(), len(self.stream.skipped)
        reader = (order.seed, order.epoch, order.rank, worker.id if worker else 0)
        items = self.stream.images(seed_of(order.seed, order.epoch), order.rank, order.processes)
        share = order.batch_size // order.processes
        for number in count():
            batch = list(islice(items, share))
            if len(batch) < share:
                return  # nothing is left for this worker
            images = torch.stack([image for image, _ in batch])  # (B, C, H, W)
            for place, change in enumerate(self.augmentation.changes):
                generator = torch.Generator().manual_seed(seed_of(*reader, number, place, 1))
                images = change.change(images, change.draw(share, generator))
            if each := self.augmentation.each:
                with seeded(*reader, number, 2):
                    images = torch.stack([each(image) for image in images])
            yield (images, torch.tensor([label for _, label in batch])), self.stream.skipped[told:]
            told = len(self.stream.skipped)


class Batches:
    """The training images of each epoch, in batches, augmented, mixed, on their device."""

    def __init__(
        self,
        images: Images | Stream,
        recipe: Recipe,
        augmentation: Augmentation,
        accelerator: Accelerator,
        workers: int = 0,
    ) -> None:
        rank, processes, device = accelerator.process_index, accelerator.num_processes, accelerator.device
        self.order = Order(len(images), recipe.batch_size, recipe.seed, rank, processes)
        self.mix = recipe.mix or augmentation.batch
        self.device = device
        pin_memory = device.type == "cuda"
        self.stream = images if isinstance(images, Stream) else None
        self.loader: DataLoader[Any]
        if isinstance(images, Stream):
            reader = StreamReader(images, augmentation, self.order)
            self.loader = DataLoader(reader, batch_size=None, num_workers=workers, pin_memory=pin_memory)
            return
        self.loader = loader(images, self.order, augmentation, seed=recipe.seed, workers=workers, pin_memory=pin_memory)

    def __len__(self) -> int:
        return len(self.order)

    def of(self, epoch: int) -> Iterator[Batch]:
        """The share of this process: images (B, C, H, W) in [0, 1], labels (B,) or, mixed, (B, K)."""
        self.order.epoch = epoch
        left = len(self)
        for batch in islice(self.loader, left):
            left -= 1
            if self.stream:
                batch, skipped = batch
                for line in skipped:
                    self.stream.skip(line)
            images, labels = batch
            if self.mix:
                images, labels = self.mix(images, labels)
            yield images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        if left:
            raise ValueError("the training images ended too soon: they can't be read, or there are too few shards")


# ------------------------------------------------------------------------------------------------------ the state


def settings(recipe: Recipe, augmentation: Augmentation, data: Data, model: nn.Module) -> dict[str, Any]:
    """All that decides a run's weights, as plain values: two runs with the same settings are the same run."""
    files_of_the_test = "\n".join(data.test_files).encode()
    return recipe.settings() | {
        "augment": augmentation.name,
        "data": data.name,
        "test_files": f"{len(data.test_files)}, SHA-256 {hashlib.sha256(files_of_the_test).hexdigest()[:16]}",
        "model": name_of(model),
        "version": VERSION,
    }


def for_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are a recipe's, as plain values: JSON has no infinity."""
    return {name: "inf" if settings[name] == math.inf else settings[name] for name in RECIPE}


def check_free(folder: str | os.PathLike[str], resume: bool) -> None:
    """Raise an OSError, before any work, for a folder that can't be written, or that has a run, not to be resumed."""
    path = Path(folder) / "state.pt"
    if path.exists() and not resume:
        raise FileExistsError(f"{path.parent} already has a run: resume it, or choose another folder")
    keeping.check_writable(path)


class Store:
    """The state of a run in the folder ``out``, None for none: read once, written whole after every epoch.

    Args:
        out: the folder.
        accelerator: says which process writes.
    """

    def __init__(self, out: str | os.PathLike[str] | None, accelerator: Accelerator) -> None:
        self.path = Path(out) / "state.pt" if out is not None else None
        self.accelerator = accelerator

    def read(self, resume: bool) -> Saved | None:
        """The state that is there; None where there is none.

        Raises:
            ValueError: no folder to resume from, a damaged state, or machines that see different ones.
            OSError: see :func:`check_free`.
        """
        if resume and self.path is None:
            raise ValueError("resume needs out=, the folder of the run")
        state = None
        if self.path:
            check_free(self.path.parent, resume)
            state = _read_state(self.path) if self.path.exists() else None
        done = torch.tensor([len(state["history"]) if state else -1], device=self.accelerator.device)
        if len(set(self.accelerator.gather(done).tolist())) > 1:
            raise ValueError(f"the machines see different states in {self.path}: the folder must be one they share")
        return state

    def restore(self, state: Saved | None, settings: Saved, parts: Mapping[str, Any]) -> History:
        """Load ``parts`` from the state; the rows of the epochs that are done.

        Without a state a first one is written, which shows at once that the folder is writable.

        Raises:
            ValueError: a state of other settings: which.
            OSError: the folder can't be written.
        """
        if state is None:
            self.save(settings, parts, [])
            return []
        self._check(state["settings"], settings)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return list(state["history"])

    def save(self, settings: Saved, parts: Mapping[str, Any], history: History) -> None:
        """Write the state of ``parts``, anything with a ``state_dict``. Raises OSError that names the folder."""
        if self.path and self.accelerator.is_main_process:
            state = {name: part.state_dict() for name, part in parts.items()}
            buffer = io.BytesIO()
            torch.save(state | {"settings": settings, "history": history}, buffer)
            keeping.write(self.path, buffer.getbuffer())

    def _check(self, before: Saved, settings: Saved) -> None:
        folder = self.path and self.path.parent
        for name, value in settings.items():
            known = before.get(name)
            if known != value:
                raise ValueError(
                    f"the run in {folder} has {name}={known}, not {value}: "
                    "resume with the same settings, or choose another folder"
                )


def _read_state(path: Path) -> Saved:
    try:
        state: Saved = torch.load(path, map_location="cpu", weights_only=True)
        if not (isinstance(state["settings"], dict) and isinstance(state["history"], list)):
            raise TypeError("no settings, or no history")
    except Exception as error:
        raise ValueError(f"{path} is not the state of a run, or is damaged: move it away to start again") from error
    return state
