"""The figures of lesson 04."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.arrays import Array, as_array, as_picture
from vit_tutorial.plots.style import PALETTE, WIDTH, styled

GAP = 2  # pixels between two pictures


@styled
def unit_pictures(
    rows: Sequence[Sequence[Array]], places: Array, names: Sequence[str], grid: tuple[int, int]
) -> Figure:
    """The pictures at which each unit is largest, with the patch that makes it so in a frame.

    Args:
        rows: for each unit its pictures, each (C, H, W), in [0, 1].
        places: (units, pictures), the index of the patch in each.
        names: one for each unit.
        grid: (rows, columns) of patches.
    """
    H, W = as_array(rows[0][0]).shape[1:]
    high, wide, P, Q = H + GAP, W + GAP, H / grid[0], W / grid[1]
    side = (WIDTH - 0.9) / len(rows[0])
    figure = Figure(figsize=(WIDTH, len(rows) * side * high / wide), layout="constrained")
    ax = figure.add_subplot()  # one for all pictures: forty axes take a second
    gap = ((0, GAP), (0, GAP), (0, 0))
    lines = [np.hstack([np.pad(as_picture(one), gap, constant_values=1) for one in pictures]) for pictures in rows]
    ax.imshow(np.vstack(lines), interpolation="nearest")
    for row, found in enumerate(as_array(places).astype(int)):
        for column, place in enumerate(found):
            y, x = divmod(int(place), grid[1])
            corner = column * wide + x * Q - 0.5, row * high + y * P - 0.5
            ax.add_patch(Rectangle(corner, Q, P, fill=False, linewidth=1.8, edgecolor="white"))
    ax.set(xticks=[], yticks=[row * high + (H - 1) / 2 for row in range(len(rows))], yticklabels=names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


@styled
def agreement(trained: Array, new_units: Array, untrained: Sequence[Array], chance: Array) -> Figure:
    """How many of a unit's ten pictures show one class, block by block, on an axis from none to all ten.

    Args:
        trained: (blocks,).
        new_units: (blocks,), untrained units that read the trained model's tokens.
        untrained: for each model (blocks,).
        chance: (blocks,), with the classes shuffled.
    """
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    ax = figure.add_subplot()
    blocks = np.arange(1, len(as_array(trained)) + 1)
    lines: Mapping[str, tuple[Sequence[Array], str, str]] = {
        "trained": ([trained], PALETTE["query"], "o-"),
        "new units, on its tokens": ([new_units], PALETTE["value"], "^-."),
        "untrained model": (untrained, PALETTE["key"], "s--"),
        "trained, classes shuffled": ([chance], PALETTE["muted"], ":"),
    }
    for name, (values, colour, style) in lines.items():
        for index, line in enumerate(values):
            ax.plot(blocks, as_array(line), style, color=colour, label=None if index else name, markersize=5)
    ax.set(xlabel="block", ylabel="pictures of one class, of 10", ylim=(0, 10))
    ax.grid(color="#E5E5E5", linewidth=0.8)
    ax.legend(loc="upper left")
    return figure
