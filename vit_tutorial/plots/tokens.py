"""The figure of lesson 19: which patches share a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import hsv_to_rgb
from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import as_array, as_picture
from vit_tutorial.plots.style import WIDTH, styled


@styled
def token_groups(images: Sequence[Any], owners: Sequence[Any]) -> Figure:
    """Pictures, and below each its patches coloured by the token that holds them.

    A patch that has a token to itself shows its pixels in grey. Patches that share one share a colour. A dropped patch
    is white.

    Args:
        images: each (C, H, W), in [0, 1].
        owners: for each (rows, columns), the token of each patch; -1: none.
    """
    side = min(2.0, WIDTH / len(images))
    figure = Figure(figsize=(side * len(images), 2 * side), layout="constrained")
    axes = figure.subplots(2, len(images), squeeze=False)
    for column, (image, owner) in enumerate(zip(images, owners, strict=True)):
        picture = as_picture(image)
        axes[0, column].imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes[1, column].imshow(_by_group(picture, as_array(owner).astype(int)), interpolation="nearest")
    for ax in axes.flat:
        ax.set_axis_off()
    return figure


def _by_group(picture: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The picture (H, W) or (H, W, 3) in grey, under the colours of its groups (rows, columns): (H, W, 3)."""
    grey = picture.mean(axis=2) if picture.ndim == 3 else picture  # (H, W)
    drawn = np.repeat(0.25 + 0.6 * grey[..., None], 3, axis=2)  # (H, W, 3)
    tokens, counts = np.unique(owner, return_counts=True)
    shared = tokens[(counts > 1) & (tokens >= 0)]
    for index, token in enumerate(shared):
        hue, value = index / len(shared), (0.95, 0.6)[index % 2]  # neighbours differ in lightness, too
        colour = hsv_to_rgb((hue, 0.85, value))
        for patch in _patches(drawn, owner == token):
            patch[:] = 0.3 * patch + 0.7 * colour
    for patch in _patches(drawn, owner < 0):
        patch[:] = 1
    return drawn


def _patches(drawn: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
    """Views of the patches of a picture (H, W, 3) where ``which`` (rows, columns) is True."""
    high, wide = (side // cells for side, cells in zip(drawn.shape, which.shape, strict=False))
    return [drawn[y * high : (y + 1) * high, x * wide : (x + 1) * wide] for y, x in np.argwhere(which)]
