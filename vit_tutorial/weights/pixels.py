"""Lesson 09: the preprocessing of a published model, read off its library's own, and compared on a photograph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PIL import Image
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing, photograph_file
from vit_tutorial.vit import ViTConfig

LEVEL = 1 / 255  # the step between two of the 256 levels of a picture's colours
ROUNDED = 1.01  # levels: torchvision resizes tensors a little differently than Pillow resizes pictures
EXACT = 0.03
LARGEST = 16_384  # pixels of a side that are made before the crop


def from_timm(model: nn.Module) -> Preprocessing:
    """As ``timm.data.create_transform`` evaluates this model."""
    from timm.data import create_transform, resolve_model_data_config

    how = resolve_model_data_config(model)
    size = how["input_size"][1:]
    found = Preprocessing(
        (size[0], size[1]),
        tuple(how["mean"]),
        tuple(how["std"]),
        how["crop_pct"],
        how["interpolation"],
        squash=how["crop_mode"] == "squash",
    )
    return proven(found, lambda picture: create_transform(**how, is_training=False)(picture), EXACT)


def from_torchvision(how: Any) -> Preprocessing:
    """As the ``transforms()`` of torchvision's weights."""
    size, resized = how.crop_size[0], how.resize_size[0]
    found = Preprocessing((size, size), tuple(how.mean), tuple(how.std), size / resized, how.interpolation.value)
    return proven(found, how, EXACT)


def from_transformers(processor: Any) -> Preprocessing:
    """As one of transformers' image processors."""
    from transformers.image_utils import PILImageResampling

    size, crop_size = dict(processor.size), dict(getattr(processor, "crop_size", None) or {})
    cropped = bool(getattr(processor, "do_center_crop", False)) and bool(crop_size)
    side = size.get("shortest_edge") or size.get("height")
    if side is None or (size.get("shortest_edge") and not cropped) or not processor.do_resize:
        raise ValueError(f"its processor resizes to {size}, and crops to {crop_size or 'nothing'}: no fixed size")
    made = crop_size if cropped else size
    normalised = processor.do_normalize
    found = Preprocessing(
        (made["height"], made["width"]),
        tuple(processor.image_mean) if normalised else (0.0, 0.0, 0.0),
        tuple(processor.image_std) if normalised else (1.0, 1.0, 1.0),
        crop=made["height"] / side if cropped else "none",
        interpolation=PILImageResampling(processor.resample).name.lower(),
        squash=cropped and not size.get("shortest_edge"),
        corner="floored",
    )
    by_pillow = type(processor).__name__.endswith("Pil")
    return proven(
        found, lambda p: processor(images=p, return_tensors="pt")["pixel_values"], EXACT if by_pillow else ROUNDED
    )


def proven(found: Preprocessing, theirs: Callable[[Image.Image], Tensor], allowed: float) -> Preprocessing:
    """The preprocessing, if a photograph becomes the same numbers as by the library's own; else a ValueError.

    Args:
        found: ours.
        theirs: the library's own.
        allowed: the largest difference, in levels of 256 of a colour.
    """
    check(found)
    with Image.open(photograph_file("cat")) as file:
        picture = file.convert("RGB")
    ours, expected = found(picture)[0], theirs(picture).squeeze(0)  # (C, H, W) each
    if ours.shape != expected.shape:
        raise ValueError(
            f"preprocessing isn't equal: {tuple(expected.shape)} by the library, {tuple(ours.shape)} by us"
        )
    std = ours.new_tensor(found.std)[:, None, None]  # (C, 1, 1)
    levels = ((ours - expected) * std).abs().max().item() / LEVEL
    if not levels <= allowed:
        raise ValueError(
            f"its preprocessing isn't one that Preprocessing can express: on a photograph it differs from {found} by "
            f"{levels:.3g} of 256 levels"
        )
    return found


def check(preprocess: Preprocessing) -> None:
    """Raise a ValueError for pictures that would be made too large, or numbers that lose the picture."""
    largest = max(preprocess.image_size)
    if not isinstance(preprocess.crop, str) and largest > LARGEST * preprocess.crop:
        raise ValueError(
            f"preprocessing to {largest / preprocess.crop:,.0f} pixels before the crop: at most {LARGEST:,}"
        )
    if not all(abs(mean) < 1e6 for mean in preprocess.mean) or not all(1e-6 < std < 1e6 for std in preprocess.std):
        raise ValueError(f"mean {preprocess.mean} and std {preprocess.std} must be finite, std above 0")


def without_left_over(
    preprocess: Preprocessing, left_over: tuple[int, int], image_size: tuple[int, int]
) -> Preprocessing:
    """The same, but for the rows and columns that the library's patches leave out, if there are any."""
    return replace(preprocess, image_size=image_size, left_over=left_over) if left_over != (0, 0) else preprocess


def check_fits(preprocess: Preprocessing, config: ViTConfig) -> None:
    """Raise a ValueError if pictures prepared so aren't what the model takes: size, channels."""
    if not isinstance(preprocess, Preprocessing):
        raise TypeError(f"preprocess must be a Preprocessing, got {type(preprocess).__name__}")
    check(preprocess)
    if preprocess.image_size != config.image_size:
        raise ValueError(
            f"preprocess makes {preprocess.image_size} pixels, and the model takes {config.image_size}: "
            "vt.load(…, image_size=) sets both"
        )
    if not len(preprocess.mean) == len(preprocess.std) == config.in_channels:
        raise ValueError(f"mean and std must have a number for each of {config.in_channels} channels: {preprocess}")
