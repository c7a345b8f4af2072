"""The figures of lesson 04."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import Array, as_array, as_picture
from vit_tutorial.plots.style import WIDTH, styled

GAP = 2  # pixels between two pictures


@styled
def unit_pictures(rows: Sequence[Sequence[Array]], names: Sequence[str]) -> Figure:
    """The pictures at which each unit is largest, a row for each unit.

    Args:
        rows: for each unit its pictures, each (C, H, W), in [0, 1].
        names: one for each unit.
    """
    H, W = as_array(rows[0][0]).shape[1:]
    high, wide = H + GAP, W + GAP
    side = (WIDTH - 0.9) / len(rows[0])
    figure = Figure(figsize=(WIDTH, len(rows) * side * high / wide), layout="constrained")
    ax = figure.add_subplot()  # one for all pictures: forty axes take a second
    gap = ((0, GAP), (0, GAP), (0, 0))
    lines = [np.hstack([np.pad(as_picture(one), gap, constant_values=1) for one in pictures]) for pictures in rows]
    ax.imshow(np.vstack(lines), interpolation="nearest")
    ax.set(xticks=[], yticks=[row * high + (H - 1) / 2 for row in range(len(rows))], yticklabels=names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure
