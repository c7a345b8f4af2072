"""Lesson 07: from an image to a model's input: cropped, resized, normalised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.patches import Size, as_pair

if TYPE_CHECKING:
    from PIL import Image as PILImage
CropMode = float | Literal["center", "none"]
Corner = Literal["rounded", "floored"]
LEAST_CROP = 0.01  # a picture of which less is kept would be made enormous before it is cropped
INTERPOLATIONS = ("nearest", "lanczos", "bilinear", "bicubic")  # the place of each is its number in Pillow
MAX_RESIZED = 2**24  # pixels of a picture before its center is cropped: 50 MB
LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)


class Statistics(Protocol):
    """What images are normalised by, a number per channel: a data set's, or a checkpoint's preprocessing."""

    @property
    def mean(self) -> tuple[float, ...]: ...  # in [0, 1]

    @property
    def std(self) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Preprocessing:
    """From an image file's pixels to a model's input, as in its training: always a batch, of one for one image.

    Pictures are turned upright as their EXIF data say. Transparent parts become white, and 16 bits become 8 by their
    upper half, where the libraries' ``convert("RGB")`` drops the transparency and clips at 255: there the input isn't
    theirs.

    Args:
        image_size: (H, W), in pixels.
        mean: of each channel, in [0, 1].
        std: of each channel.
        crop: what is kept. "center": the largest central part with the shape of ``image_size``, resized to it. A
            number up to 1: the center after resizing, of which ``image_size`` is that fraction (0.875: 224 of 256).
            "none": all of it, resized to ``image_size``, whatever its shape.
        interpolation: "bicubic", "bilinear", "lanczos" or "nearest".
        squash: with a number for ``crop``: the resizing before the crop ignores the image's shape (timm's "squash",
            transformers' DeiT).
        corner: where the center crop begins, if that is between two pixels: "rounded" (torchvision, timm) or
            "floored" (transformers).
        cropped_edge: rows and columns that ``image_size`` would have more, at the bottom and at the right, if patches
            didn't leave them over (SigLIP's 384 pixels in patches of 14: image_size 378, left over 6).

    Raises:
        ValueError: an unknown crop, interpolation or corner; a mean or a standard deviation that pixels in [0, 1] can't
            have, or not as many of one as of the other.
        TypeError: sizes, a mean or a standard deviation that aren't numbers.
    """

    image_size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: CropMode = "center"
    interpolation: str = "bicubic"
    squash: bool = False
    corner: Corner = "rounded"
    cropped_edge: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if not isinstance(self.image_size, (tuple, list)):
            raise TypeError(f"image_size must be a pair of ints (height, width), got {self.image_size!r}")
        object.__setattr__(self, "image_size", as_pair(self.image_size, "image_size"))
        for name in ("mean", "std"):
            try:
                values = tuple(float(value) for value in getattr(self, name))  # NumPy's numbers aren't JSON
            except (TypeError, ValueError):
                raise TypeError(
                    f"{name} must be a number per channel, as in (0.5,), got {getattr(self, name)!r}"
                ) from None
            object.__setattr__(self, name, values)
        possible = all(0 <= mean <= 1 for mean in self.mean) and all(0 < std < math.inf for std in self.std)
        if len(self.mean) != len(self.std) or not possible:
            raise ValueError(
                "a mean in [0, 1] and a standard deviation above 0 for each channel are needed (divide those of 8-bit "
                f"pixels by 255), got {self.mean} and {self.std}"
            )
        crop = self.crop
        is_fraction = isinstance(crop, (int, float)) and not isinstance(crop, bool) and LEAST_CROP <= crop <= 1
        if not is_fraction and crop not in ("center", "none"):
            raise ValueError(f"crop is 'center', 'none' or a fraction from {LEAST_CROP} to 1, got {crop!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(f"unknown interpolation {self.interpolation!r}: use one of {', '.join(INTERPOLATIONS)}")
        if self.corner not in get_args(Corner):
            raise ValueError(f"unknown corner {self.corner!r}: use one of {', '.join(get_args(Corner))}")

    def __call__(self, images: Tensor | PILImage.Image) -> Tensor:
        """One image or a batch of them -> a batch (B, C, H, W), normalised; B = 1 for one image.

        A picture becomes float32, and a tensor keeps its precision.

        Args:
            images: a PIL image of any size, which is cropped and resized, and grey for a grey model; or a tensor
                (C, H, W) or (B, C, H, W) in [0, 1], already of the right size.

        Raises:
            ValueError: a tensor of another size, with other channels or outside [0, 1].
            TypeError: neither of the two.
        """
        from PIL import Image

        C = len(self.mean)
        if isinstance(images, Image.Image):
            images = torch.from_numpy(self.pixels(images)).permute(2, 0, 1).float() / 255  # (C, H, W)
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise TypeError(f"images must be a PIL image or a floating-point tensor in [0, 1], got {kind}")
        if images.ndim not in (3, 4) or images.shape[-3:] != (C, *self.image_size):
            raise ValueError(
                f"images must be ({C}, {self.image_size[0]}, {self.image_size[1]}), one or a batch of them, got "
                f"{tuple(images.shape)}: give PIL images, which are cropped and resized, or resize them yourself"
            )
        if images.numel() and not (images.min() >= 0 and images.max() <= 1):  # nan is neither
            low, high = images.aminmax()
            raise ValueError(f"images must lie in [0, 1], got values from {low:.3g} to {high:.3g}: divide by 255?")
        return normalise(images.reshape(-1, C, *self.image_size), self)

    def crops_like(self, other: Preprocessing) -> bool:
        """Whether both crop and resize pictures in the same way."""
        names = ("crop", "interpolation", "squash", "corner", "cropped_edge")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def pixels(self, picture: PILImage.Image) -> np.ndarray:
        """The model's input before it is normalised: (H, W, C), uint8, grey (rounded) for a model of one channel."""
        from PIL import ImageOps

        upright = ImageOps.exif_transpose(picture)  # as open_photo does, which leaves nothing to turn
        resized = self._resized(to_rgb(upright))  # (H, W, 3)
        if len(self.mean) == 3:
            return resized
        return (resized @ np.array(LUMA)).round().astype(np.uint8)[:, :, None]

    def _resized(self, picture: PILImage.Image) -> np.ndarray:
        """Cropped and resized: (H, W, 3), uint8; the same pixels as torchvision's and timm's evaluation."""
        rows, columns = self.cropped_edge
        size = self.image_size[0] + rows, self.image_size[1] + columns
        return self._cropped(picture, size)[: self.image_size[0], : self.image_size[1]]

    def _cropped(self, picture: PILImage.Image, size: tuple[int, int]) -> np.ndarray:
        from PIL import Image

        (H, W), filter_ = size, Image.Resampling[self.interpolation.upper()]
        if isinstance(self.crop, str):
            if self.crop == "none":
                return np.array(picture.resize((W, H), filter_))
            return crop_to(picture, size, above=0.5, interpolation=self.interpolation)
        # Whole pixels, and 242 from 224 / (224 / 242).
        height, width = (math.floor(side / self.crop + 1e-6) for side in (H, W))
        if not self.squash and height == width:  # the short side, as torchvision rounds the long one
            short = min(picture.height, picture.width)
            height, width = (int(height * side / short) for side in (picture.height, picture.width))
        elif not self.squash:
            scale = max(height / picture.height, width / picture.width)
            height, width = round(picture.height * scale), round(picture.width * scale)
        if height * width > max(MAX_RESIZED, 16 * H * W):
            raise ValueError(
                f"{picture.width} x {picture.height} pixels would be resized to {width} x {height}: crop it first"
            )
        picture = picture.resize((width, height), filter_)
        if self.corner == "floored":
            top, left = (height - H) // 2, (width - W) // 2
        else:
            top, left = round((height - H) / 2), round((width - W) / 2)
        return np.array(picture.crop((left, top, left + W, top + H)))


def unnormalised_center(image_size: Size) -> Preprocessing:
    """For a data set whose mean and standard deviation are still to be measured: the center, in RGB, not normalised."""
    return Preprocessing(as_pair(image_size, "image_size"), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def normalise(images: Tensor, pixels: Statistics) -> Tensor:
    """(x - mean) / std by channel: (B, C, H, W) -> (B, C, H, W). Raises TypeError unless they are floating point."""
    mean, std = _as_tensors(images, pixels)
    return (images - mean) / std


def denormalise(images: Tensor, pixels: Statistics) -> Tensor:
    """The inverse of :func:`normalise`, clipped to [0, 1], to look at: (B, C, H, W) -> (B, C, H, W)."""
    mean, std = _as_tensors(images, pixels)
    return (images * std + mean).clamp(0, 1)


def _as_tensors(images: Tensor, pixels: Statistics) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, (C, 1, 1) each, like the images: whole numbers would round them to 0."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images must be a floating-point tensor, got {kind}: images.float() / 255 for 8-bit pixels")
    mean, std = (images.new_tensor(values)[:, None, None] for values in (pixels.mean, pixels.std))
    return mean, std


def to_rgb(picture: PILImage.Image) -> PILImage.Image:
    """Any kind of pixels as RGB: 16 bits reduced to 8, transparent parts white."""
    from PIL import Image

    if picture.mode[0] in "IF":  # 16 or 32 bits a pixel, which convert("RGB") would clip at 255
        levels = np.asarray(picture)
        if picture.mode == "F" or levels.min() < 0 or levels.max() > 65535:
            raise ValueError("32-bit pixels: save it with 8 or 16 bits")
        check_levels(int(levels.max()))
        picture = Image.fromarray((levels >> 8).astype(np.uint8))
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")  # which would copy it


def check_levels(highest: int) -> None:
    """Raise a ValueError if levels of 16 bits end below a quarter of white: they may be 8, 12 or 14 bits."""
    if highest < 2**14:
        raise ValueError(
            f"its 16-bit levels end at about {highest:,} of 65,535, so its picture would be nearly black: if it has "
            "fewer bits, save it with 8"
        )


def crop_to(picture: PILImage.Image, size: tuple[int, int], above: float, interpolation: str = "bicubic") -> np.ndarray:
    """The largest part with the shape of ``size``, resized to it; ``above`` is how much of the rest lies above it."""
    from PIL import Image

    height, width = size
    scale = min(picture.width / width, picture.height / height)
    left, top = (picture.width - width * scale) / 2, (picture.height - height * scale) * above
    # Rounding must not carry the box over the edge.
    box = (left, top, min(left + width * scale, picture.width), min(top + height * scale, picture.height))
    return np.array(picture.resize((width, height), Image.Resampling[interpolation.upper()], box=box))
