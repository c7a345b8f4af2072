"""CIFAR-10 from a folder, with the 5,000 training images that every script here holds out, and draws of few labels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import vit_tutorial as vt

VALIDATION = 5_000  # images of the training split


def read_cifar10(folder: str) -> dict[str, Tensor]:
    """The pictures as bytes and their labels, the validation split apart, kept beside the folder for the next run."""
    kept = Path(folder).with_suffix(".pt")
    if kept.exists():
        return torch.load(kept, weights_only=True)  # type: ignore[no-any-return]
    data = vt.data.load(folder, image_size=32)
    splits = {}
    for name, split in (("train", data.train), ("test", data.test)):
        pairs = [split[i] for i in range(len(split))]  # type: ignore[arg-type]
        splits[f"{name}_images"] = torch.stack([(image * 255).round().byte() for image, _ in pairs])  # (n, 3, 32, 32)
        splits[f"{name}_labels"] = torch.tensor([int(label) for _, label in pairs])
    order = torch.randperm(len(splits["train_labels"]), generator=torch.Generator().manual_seed(0))
    for part in ("images", "labels"):
        every = splits[f"train_{part}"][order]
        splits[f"validation_{part}"], splits[f"train_{part}"] = every[:VALIDATION], every[VALIDATION:]
    pixels = splits["train_images"].float() / 255
    splits["mean"], splits["std"] = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    torch.save(splits, kept)
    return splits


def few_of_each_class(labels: Tensor, each: int, seed: int) -> Tensor:
    """The places of so many images of each of the ten classes, class by class, drawn by the seed: (10 * each,)."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return torch.cat([order[labels[order] == label][:each] for label in range(10)])
