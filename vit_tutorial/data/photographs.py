"""Photographs with a free licence, to look at."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from vit_tutorial.data.preprocessing import crop_to
from vit_tutorial.patches import Size, as_pair


def photograph_file(name: str) -> Path:
    """The file of a photograph with a free licence: "hopper", "cat", "brick", "grass" or "gravel".

    Grace Hopper comes with matplotlib (US Navy, public domain). The others come with this package, and before that with
    scikit-image (CC0): the cat Chelsea, and three kinds of ground, in grey. Whose they are: assets/CREDITS.md.

    Raises:
        ValueError: another name.
    """
    from matplotlib import cbook

    if name == "hopper":
        return Path(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))
    ours = {file.stem: file for file in (Path(__file__).parent / "pictures").glob("*.jpg")}
    if name not in ours:
        raise ValueError(f"there is no photograph {name!r}: use one of hopper, {', '.join(sorted(ours))}")
    return ours[name]


def photograph(size: Size = 224, name: str = "hopper") -> Tensor:
    """A photograph to look at (see :func:`photograph_file`): Grace Hopper from the top, the others from their middle.

    Args:
        size: H = W, or (H, W), in pixels.
        name: whose; Grace Hopper's is that of the lessons.

    Returns:
        (3, H, W), float32, in [0, 1].
    """
    from PIL import Image

    pair = as_pair(size, "size")
    with Image.open(photograph_file(name)) as picture:
        pixels = crop_to(picture.convert("RGB"), pair, above=0.0 if name == "hopper" else 0.5)
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255  # (H, W, 3) -> (3, H, W)
