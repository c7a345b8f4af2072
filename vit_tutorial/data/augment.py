"""Lesson 07: random changes to training images that leave their labels true.

**affine**, **crop** and **flip** change a whole batch in a few tensor lines. Deciding and doing are two steps: ``draw``
gives every image of the data set its row of numbers, once per epoch, from (seed, epoch) alone; ``change`` takes the
rows of a batch's images. So the result doesn't depend on which process loads an image, how many processes there are, or
which other images are in the batch.

**randaugment** changes one image at a time. **mixup** and **cutmix** mix the images of a batch, and their labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.data.extras import install_hint
from vit_tutorial.options.recipe import check_augment

ImageChange = Callable[[Tensor], Tensor]  # one image (C, H, W) in [0, 1] -> another one
Mix = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # images (B, C, H, W), labels (B,) -> mixed; labels may be (B, K)


class Change:
    """A random change to images: :meth:`draw` draws its random numbers for each image, :meth:`change` makes it.

    Called with images alone, one (C, H, W) or a batch (B, C, H, W) in [0, 1], it draws from torch's own generator.
    """

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Random numbers for ``n`` images: (n, ...), a row per image."""
        raise NotImplementedError

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, H, W); row i of ``numbers``, (B, ...), is for image i."""
        raise NotImplementedError

    def __call__(self, images: Tensor) -> Tensor:
        batch = images if images.ndim == 4 else images[None]  # (B, C, H, W)
        changed = self.change(batch, self.draw(len(batch)))  # (B, C, H, W)
        return changed if images.ndim == 4 else changed[0]


@dataclass(frozen=True)
class Affine(Change):
    """Rotate, scale, shear and shift an image a little, at random: a digit stays the same digit.

    Every entry of the 2 x 3 matrix, in units of half an image, is drawn from a normal distribution around the
    identity's; pixels from outside the image are zero.

    Args:
        strength: standard deviation; 0.1 moves a corner of an 8 x 8 image by about two thirds of a pixel.
    """

    strength: float = 0.1

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """A matrix per image: (n, 2, 3)."""
        return torch.eye(2, 3) + self.strength * torch.randn(n, 2, 3, generator=generator)

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Each image (B, C, H, W), transformed by its matrix (B, 2, 3)."""
        grid = F.affine_grid(numbers, list(images.shape), align_corners=False)  # (B, H, W, 2): where to look
        return F.grid_sample(images, grid, align_corners=False)  # (B, C, H, W)


@dataclass(frozen=True)
class Crop(Change):
    """Pad with zeros and crop to the old size at a random place: a shift of up to ``padding`` pixels in each direction.

    Args:
        padding: (rows above and below, columns left and right).
    """

    padding: tuple[int, int]

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """The top left corner of each crop, in the padded image: (n, 2)."""
        return torch.stack([torch.randint(2 * p + 1, (n,), generator=generator) for p in self.padding], dim=1)

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Each image (B, C, H, W), padded and cropped from (row, column), (B, 2)."""
        (B, _, H, W), (rows, columns) = images.shape, self.padding
        padded = F.pad(images, (columns, columns, rows, rows))  # (B, C, H + 2 rows, W + 2 columns)
        windows = padded.unfold(2, H, 1).unfold(3, W, 1)  # (B, C, 2 rows + 1, 2 columns + 1, H, W), a view
        return windows[torch.arange(B), :, numbers[:, 0], numbers[:, 1]]  # (B, C, H, W)


@dataclass(frozen=True)
class Flip(Change):
    """Mirror left and right, with probability 0.5."""

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Whether each image is mirrored: (n,) bool."""
        return torch.rand(n, generator=generator) < 0.5

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Each image (B, C, H, W), mirrored where ``numbers``, (B,) bool, is True."""
        return torch.where(numbers[:, None, None, None], images.flip(-1), images)


@dataclass(frozen=True)
class Augmentation:
    """What happens to training images before they are normalised, in this order."""

    name: str
    changes: tuple[Change, ...] = ()  # to a whole batch at once
    image_change: ImageChange | None = None  # to one image at a time, at random by torch's own generator
    mix: Mix | None = None  # to images and labels together, at random by torch's own generator


def by_name(name: str, image_size: tuple[int, int], num_classes: int) -> Augmentation:
    """The augmentation that a name stands for.

    Args:
        name: "none", or any of these, joined by "+": **affine** (see :class:`Affine`), **crop** (pad by an eighth, crop
            at random), **flip** (mirror left and right), **randaugment** (two of 14 changes at magnitude 9;
            Cubuk et al. 2020), **mixup** (blend two images; Zhang et al. 2018) and **cutmix** (paste a part of another;
            Yun et al. 2019). With both of the last two, each batch takes one of them, with DeiT's strengths, 0.8 and
            1.0 (Table 9 of Touvron et al. 2021). They are applied in this order, whatever the order in the name.
        image_size: (H, W), in pixels.
        num_classes: K; mixed labels are (B, K).

    Raises:
        ValueError: an unknown part.
    """
    height, width = image_size
    changes: dict[str, Change] = {
        "affine": Affine(),
        "crop": Crop((math.ceil(height / 8), math.ceil(width / 8))),
        "flip": Flip(),
    }
    parts = [] if name == "none" else name.split("+")
    check_augment(name)
    whole_batch = tuple(change for part, change in changes.items() if part in parts)
    if set(parts) <= set(changes):
        return Augmentation(name, changes=whole_batch)
    with install_hint():
        from torchvision.transforms import v2
    mixes: dict[str, Mix] = {
        "mixup": v2.MixUp(alpha=0.8, num_classes=num_classes),
        "cutmix": v2.CutMix(alpha=1.0, num_classes=num_classes),
    }
    chosen = [mix for part, mix in mixes.items() if part in parts]
    return Augmentation(
        name,
        changes=whole_batch,
        image_change=v2.RandAugment(num_ops=2, magnitude=9) if "randaugment" in parts else None,
        mix=v2.RandomChoice(chosen) if chosen else None,
    )
