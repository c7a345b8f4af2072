"""Pictures of arrays, for several figures."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Array = Any  # whatever numpy.asarray takes, and torch tensors that require a gradient
_HEAT = matplotlib.colormaps["magma"]


def as_array(x: Array) -> np.ndarray[Any, np.dtype[Any]]:
    """What matplotlib can draw."""
    return np.asarray(x.detach().cpu().float() if hasattr(x, "detach") else x)


def as_picture(image: Array) -> np.ndarray[Any, np.dtype[Any]]:
    """(C, H, W) or (H, W) as (H, W, 3), for imshow."""
    pixels = as_array(image)
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
        raise ValueError(f"an image must have shape (C, H, W) with 1 or 3 channels, got {pixels.shape}")
    return np.moveaxis(np.repeat(pixels, 3 // len(pixels), axis=0), 0, -1).clip(0, 1)


def canvas(width: float, height: float, x: tuple[float, float], y: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure that is one drawing, without axes: ``x`` its limits from left to right, ``y`` from bottom to top."""
    figure = Figure(figsize=(width, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=x, ylim=y)
    ax.set_axis_off()
    return figure, ax


def draw(ax: Axes, image: Array, title: str = "") -> None:
    """An image (C, H, W) or (H, W) without ticks."""
    ax.imshow(as_picture(image), interpolation="nearest")
    ax.set_title(title)
    bare(ax)


def bare(ax: Axes) -> None:
    """Neither ticks nor a frame."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def enlarged(heat: Array, size: tuple[int, int]) -> Array:
    """Heat (rows, columns) as fractions of its largest number, a block of pixels for each: ``size``, (H, W)."""
    H, W = size
    strength = heat / max(float(heat.max()), 1e-12)
    return strength.repeat(-(-H // len(heat)), axis=0)[:H].repeat(-(-W // heat.shape[1]), axis=1)[:, :W]


def overlay(picture: Array, weights: Array) -> Array:
    """Heat (rows, columns) over the picture (H, W, 3) in grey, as (3, H, W)."""
    strength = enlarged(weights, picture.shape[:2])
    mix = (0.3 + 0.5 * strength)[..., None]  # (H, W, 1)
    mixed = (1 - mix) * picture.mean(axis=-1, keepdims=True) + mix * _HEAT(strength)[..., :3]
    return np.moveaxis(mixed, -1, 0)


def draw_grid(
    ax: Axes, size: tuple[int, int], patch: tuple[int, int], width: float = 0.9, colour: str = "white"
) -> None:
    """Lines between the patches of an image of ``size``, both (height, width) in pixels."""
    style = {"color": colour, "linewidth": width}
    ax.hlines(np.arange(0, size[0] + 1, patch[0]) - 0.5, -0.5, size[1] - 0.5, **style)  # type: ignore[arg-type]
    ax.vlines(np.arange(0, size[1] + 1, patch[1]) - 0.5, -0.5, size[0] - 0.5, **style)  # type: ignore[arg-type]
