"""The figures of lesson 08: maps in light colours over pale pictures, small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import as_array, as_picture, bare, draw
from vit_tutorial.plots.style import WIDTH, styled

HEAT = matplotlib.colormaps["YlOrRd"]


@styled
def light_maps(
    images: Sequence[Any],
    maps: Mapping[str, Sequence[Any]],
    titles: Sequence[str] = (),
    *,
    height: float = 0.95,
) -> Figure:
    """A table of heat over pale pictures: a column for each image, a row for the images and one for each kind of map.

    White is zero, dark red the largest value of the map itself.

    Args:
        images: each (C, H, W), in [0, 1].
        maps: {label of the row: a map (rows, columns) for each image}, not negative.
        titles: one for each column.
        height: of each picture, in inches.
    """
    pictures = [as_picture(image) for image in images]
    H, W = pictures[0].shape[:2]
    height = min(height, (WIDTH - 1.6) / len(pictures) * H / W)
    rows = len(maps) + 1
    size = (len(pictures) * (height * W / H + 0.06) + 1.6, rows * (height + 0.06) + (0.3 if titles else 0.0))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, len(pictures), squeeze=False)
    for ax, image in zip(axes[0], images, strict=True):
        draw(ax, image)
    for line, (label, row) in zip(axes[1:], maps.items(), strict=True):
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
        for ax, picture, heat in zip(line, pictures, map(as_array, row), strict=True):
            ax.imshow(_pale(picture, heat), interpolation="nearest")
            bare(ax)
    for ax, title in zip(axes[0], titles, strict=False):
        ax.set_title(title, fontsize=10)
    return figure


def _pale(picture: Any, heat: Any) -> Any:
    """Heat (rows, columns), multiplied with the picture (H, W, 3) in pale grey: (H, W, 3)."""
    H, W = picture.shape[:2]
    strength = heat / max(float(heat.max()), 1e-12)
    strength = strength.repeat(H // heat.shape[0], axis=0).repeat(W // heat.shape[1], axis=1)
    grey = 0.72 + 0.28 * picture.mean(axis=-1, keepdims=True)
    colour = np.where(strength[..., None] > 0, HEAT(strength)[..., :3], 1.0)
    white = np.minimum(strength / 0.15, 1.0)[..., None]  # the colour map's yellow begins only above zero
    return (grey * (white * colour + (1 - white))).clip(0, 1)
