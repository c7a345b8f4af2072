"""Lesson 07: photographs with a free licence that come with the package, to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.data.extras import install_hint
from vit_tutorial.data.images import Images
from vit_tutorial.data.preprocessing import crop_to
from vit_tutorial.patches import Size, as_pair

HERE = Path(__file__).parent
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def photograph_file(name: str) -> Path:
    """The file of a photograph with a free licence: "hopper", "cat", "brick", "grass" or "gravel".

    Grace Hopper comes with matplotlib (US Navy, public domain). The others come with this package, and before that with
    scikit-image (CC0): the cat Chelsea, and three kinds of ground, in grey. Whose they are: assets/CREDITS.md.

    Raises:
        ValueError: another name.
    """
    if name == "hopper":
        with install_hint():
            from matplotlib import cbook
        return Path(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))
    ours = {file.stem: file for file in (HERE / "pictures").glob("*.jpg")}
    if name not in ours:
        raise ValueError(f"there is no photograph {name!r}: use one of hopper, {', '.join(sorted(ours))}")
    return ours[name]


def photograph(size: Size = 224, name: str = "hopper") -> Tensor:
    """A photograph to look at (see :func:`photograph_file`): Grace Hopper from the top, the others from their center.

    Args:
        size: H = W, or (H, W), in pixels.
        name: which one; Grace Hopper is that of the lessons.

    Returns:
        (3, H, W), float32, in [0, 1].
    """
    from PIL import Image

    pair = as_pair(size, "size")
    with Image.open(photograph_file(name)) as picture:
        pixels = crop_to(picture.convert("RGB"), pair, above=0.0 if name == "hopper" else 0.5)
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255  # (H, W, 3) -> (3, H, W)


def cifar10_pictures() -> Images:
    """200 of CIFAR-10's test images, 20 per class, that come with the package: to look at, too few to measure with.

    They were chosen at random, and come from JPEG copies of the originals. Their classes are :data:`CIFAR10_CLASSES`.

    Returns:
        (200, 3, 32, 32), class by class.
    """
    from PIL import Image

    with Image.open(HERE / "cifar10_pictures.png") as sheet:
        pixels = torch.from_numpy(np.array(sheet))  # (10 * 32, 20 * 32, 3): a row per class
    pictures = pixels.view(10, 32, 20, 32, 3).permute(0, 2, 4, 1, 3)  # (10, 20, 3, 32, 32)
    return Images(pictures.reshape(200, 3, 32, 32), torch.arange(10).repeat_interleave(20))
