"""Lesson 09: the preprocessing of a published model: equal to its library's own, on a photograph, or refused."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image
from torch import Tensor

from vit_tutorial.data import Preprocessing, photograph_file
from vit_tutorial.vit import ViTConfig

LEVEL = 1 / 255  # the step between two of the 256 levels of a picture's colours
ROUNDED = 1.01  # levels: torchvision resizes tensors a little differently than Pillow resizes pictures
EXACT = 0.03
LEAST_CROP = 0.01  # a smaller share of a picture would be made enormous before it is cropped


def prove_preprocessing(
    ours: Preprocessing, theirs: Callable[[Image.Image], Tensor], allowed: float = EXACT
) -> Preprocessing:
    """Ours, if a photograph becomes the same numbers as by the library's own; else a ValueError.

    Args:
        ours: what the library's settings say.
        theirs: the library's own, a picture -> (C, H, W) or (1, C, H, W).
        allowed: the largest difference, in levels of 256 of a colour.
    """
    _check_crop(ours)
    with Image.open(photograph_file("cat")) as file:
        picture = file.convert("RGB")
    actual, expected = ours(picture)[0], theirs(picture).squeeze(0)  # (C, H, W) each
    if actual.shape != expected.shape:
        raise ValueError(
            f"preprocessing isn't equal: {tuple(expected.shape)} by the library, {tuple(actual.shape)} by us"
        )
    std = actual.new_tensor(ours.std)[:, None, None]  # (C, 1, 1)
    levels = ((actual - expected) * std).abs().max().item() / LEVEL
    if not levels <= allowed:
        raise ValueError(
            f"its preprocessing isn't one that Preprocessing can express: on a photograph it differs from {ours} by "
            f"{levels:.3g} of 256 levels"
        )
    return ours


def check_fits(preprocess: Preprocessing, config: ViTConfig) -> None:
    """Raise a ValueError if pictures prepared so aren't what the model takes: size, channels."""
    if not isinstance(preprocess, Preprocessing):
        raise TypeError(f"preprocess must be a Preprocessing, got {type(preprocess).__name__}")
    _check_crop(preprocess)
    if preprocess.image_size != config.image_size:
        raise ValueError(
            f"preprocess makes {preprocess.image_size} pixels, and the model takes {config.image_size}: "
            "vt.load(…, image_size=) sets both"
        )
    if not len(preprocess.mean) == len(preprocess.std) == config.in_channels:
        raise ValueError(f"mean and std must have a number for each of {config.in_channels} channels: {preprocess}")


def _check_crop(preprocess: Preprocessing) -> None:
    if not isinstance(preprocess.crop, str) and preprocess.crop < LEAST_CROP:
        raise ValueError(f"crop must be at least {LEAST_CROP}, got {preprocess.crop}")
