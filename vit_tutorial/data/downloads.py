"""Lesson 07: the images of CIFAR-10, which torchvision downloads."""

from __future__ import annotations

import socket
from http.client import HTTPException
from pathlib import Path

import torch

from vit_tutorial.data.extras import install_hint
from vit_tutorial.data.images import Images

Downloaded = tuple[tuple[str, ...], Images, Images]  # the class names, the training images, the test images


def cifar10_images(root: Path, download: bool) -> Downloaded:
    """CIFAR-10's classes and its two splits; ``root`` holds ``cifar-10-python.tar.gz`` and what it unpacks to."""
    with install_hint():
        from torchvision.datasets import CIFAR10

    if root.is_file():
        raise ValueError(f"{root} is a file, and downloads need a folder: name one")
    waited = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # torchvision sets none: behind some firewalls it would wait for ever
    try:
        train, test = CIFAR10(root, train=True, download=download), CIFAR10(root, train=False)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split())
        raise OSError(
            f"CIFAR10 is not on disk ({reason}): with a network, try again{'' if download else ' with download=True'}; "
            f"without, put {CIFAR10.filename} from {CIFAR10.url} into {root.resolve()} first"
        ) from None
    finally:
        socket.setdefaulttimeout(waited)

    def images(split: CIFAR10) -> Images:
        pixels = torch.from_numpy(split.data).permute(0, 3, 1, 2)  # (N, 3, 32, 32)
        return Images(pixels.contiguous(), torch.tensor(split.targets))

    return tuple(train.classes), images(train), images(test)
