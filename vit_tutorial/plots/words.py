"""The figures of lesson 17: CLIP's two towers, and shares by figure and colour, some cells framed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.arrays import as_picture
from vit_tutorial.plots.drawings import SOFT, arrow, box
from vit_tutorial.plots.style import PALETTE, styled


@styled
def two_towers(images: Sequence[Any], captions: Sequence[str], cosines: Sequence[Sequence[float]]) -> Figure:
    """CLIP: pictures and captions become vectors, every pair has a cosine, and the loss raises those on the diagonal.

    Args:
        images: (C, H, W) in [0, 1] each.
        captions: one for each image, of two or three short lines.
        cosines: a row for each image, one number for each caption.
    """
    n = len(images)
    figure = Figure((0.72 * (n + 6.1), 0.72 * (n + 3.3)))
    axes = figure.add_axes((0, 0, 1, 1))
    box(axes, (2.2, n / 2), (1.5, n - 0.1), "picture\ntower:\na ViT", SOFT["query"])
    box(axes, (4 + n / 2, -1.75), (n - 0.1, 0.8), "caption tower", SOFT["key"])
    for i, (image, caption) in enumerate(zip(images, captions, strict=True)):
        axes.imshow(as_picture(image), extent=(0, 0.9, i + 0.95, i + 0.05))
        arrow(axes, (0.95, i + 0.5), (1.4, i + 0.5))
        arrow(axes, (2.98, i + 0.5), (3.3, i + 0.5))
        box(axes, (3.6, i + 0.5), (0.55, 0.6), f"p{i + 1}", SOFT["query"])
        axes.text(4.5 + i, -2.85, caption, ha="center", va="center", fontsize=10)
        arrow(axes, (4.5 + i, -2.5), (4.5 + i, -2.17))
        arrow(axes, (4.5 + i, -1.32), (4.5 + i, -0.8))
        box(axes, (4.5 + i, -0.48), (0.55, 0.6), f"c{i + 1}", SOFT["key"])
        for j in range(n):
            own = i == j
            cell = Rectangle(
                (4 + j, i), 1, 1, facecolor=SOFT["value" if own else "plain"], edgecolor="white", linewidth=2
            )
            axes.add_patch(cell)
            text = f"{cosines[i][j]:.2f}\n{'↑' if own else '↓'}"
            axes.text(4.5 + j, i + 0.5, text, ha="center", va="center", fontsize=11)
    axes.text(n + 4.2, n / 2, "in each cell,\ntheir cosine:\n↑ own caption\n↓ another's", va="center", linespacing=1.5)
    axes.set(xlim=(-0.1, n + 6.0), ylim=(n + 0.1, -3.2), aspect="equal")
    axes.axis("off")
    return figure


@styled
def share_table(
    shares: Any, rows: Sequence[str], columns: Sequence[str], *, framed: Sequence[tuple[int, int]] = ()
) -> Figure:
    """A table of shares in percent, darker the larger, from 0 to 100.

    Args:
        shares: (rows, columns), in [0, 1].
        rows: a name for each row.
        columns: a name for each column.
        framed: (row, column) of the cells that get a frame.
    """
    values = 100 * np.asarray(shares, float)
    figure = Figure(figsize=(1.3 + 0.8 * len(columns), 0.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 60 else "black"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=10)
    for row, column in framed:
        frame = Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, linewidth=2.5,
                          edgecolor=PALETTE["key"])  # fmt: skip
        axes.add_patch(frame)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
