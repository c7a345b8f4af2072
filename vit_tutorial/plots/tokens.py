"""Lesson 19: a picture as a mosaic of its tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from vit_tutorial.plots.arrays import as_array, as_picture


def mosaic(image: Any, owner: Any) -> np.ndarray:
    """A picture with the patches of each token in their mean colour, framed in white: for :func:`plots.pictures`.

    Args:
        image: (C, H, W), in [0, 1].
        owner: (rows, columns), the token of each patch; -1: none, and the patch is white.

    Returns:
        (3, H, W).
    """
    colours = as_picture(image)  # (H, W, 3)
    tokens = as_array(owner).astype(int)  # (rows, columns)
    high, wide = colours.shape[0] // tokens.shape[0], colours.shape[1] // tokens.shape[1]
    of_pixel = tokens.repeat(high, axis=0).repeat(wide, axis=1)  # (H, W)
    tiles = np.ones_like(colours)
    for token in np.unique(tokens[tokens >= 0]):
        tiles[of_pixel == token] = colours[of_pixel == token].mean(axis=0)
    tiles[1:][of_pixel[1:] != of_pixel[:-1]] = 1
    tiles[:, 1:][of_pixel[:, 1:] != of_pixel[:, :-1]] = 1
    return np.moveaxis(tiles, -1, 0)
