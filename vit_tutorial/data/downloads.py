"""Lesson 07: the images of data sets that torchvision downloads."""

from __future__ import annotations

import math
import socket
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch

from vit_tutorial.data.extras import needed
from vit_tutorial.data.images import Images

Downloaded = tuple[tuple[str, ...], Images, Images]  # the class names, the training images, the test images


def cifar10_images(root: Path, download: bool) -> Downloaded:
    """CIFAR-10's classes and its two splits; ``root`` holds ``cifar-10-python.tar.gz`` and what it unpacks to."""
    with needed():
        from torchvision.datasets import CIFAR10

    train, test = _both_splits(CIFAR10, root, root, download, [CIFAR10.filename], CIFAR10.url)

    def images(split: CIFAR10) -> Images:
        pixels = torch.from_numpy(split.data).permute(0, 3, 1, 2)  # (N, 3, 32, 32)
        return Images(pixels.contiguous(), torch.tensor(split.targets))

    return tuple(train.classes), images(train), images(test)


def fashion_mnist_images(root: Path, download: bool) -> Downloaded:
    """Fashion-MNIST's classes and its two splits; ``root`` holds ``FashionMNIST/raw``."""
    with needed():
        from torchvision.datasets import FashionMNIST

    folder = root / "FashionMNIST" / "raw"
    for file in folder.glob("*-ubyte") if download else ():
        # torchvision checks the archives' MD5, but takes any unpacked file: one cut short is unpacked once more.
        if file.stat().st_size != _idx_size(file):
            file.unlink()
    archives = [name for name, _ in FashionMNIST.resources]
    train, test = _both_splits(FashionMNIST, root, folder, download, archives, FashionMNIST.mirrors[0])
    train_images, test_images = (Images(split.data[:, None], split.targets) for split in (train, test))
    return tuple(train.classes), train_images, test_images


def _idx_size(file: Path) -> int:
    """How many bytes an idx file of 8-bit numbers should have: a magic number, its axes, and the product of those."""
    with file.open("rb") as opened:
        magic, *axes = [int.from_bytes(opened.read(4), "big") for _ in range(4)]
    axes = axes[: magic % 256]
    return 4 + 4 * len(axes) + math.prod(axes)


def _both_splits(kind: Any, root: Path, folder: Path, download: bool, files: list[str], source: str) -> tuple[Any, Any]:
    """The two splits from torchvision, or one line that says which files to put into which folder."""
    waited = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # torchvision sets none: behind some firewalls it would wait for ever
    try:
        return kind(root, train=True, download=download), kind(root, train=False)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split())
        raise OSError(
            f"{kind.__name__} is not on disk ({reason}): with a network, try again"
            f"{'' if download else ' with download=True'}; without, put {', '.join(files)} from {source} into "
            f"{folder.resolve()} first"
        ) from None
    finally:
        socket.setdefaulttimeout(waited)
