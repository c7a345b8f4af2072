"""The figures of lesson 17: shares by figure and colour, some cells framed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.style import PALETTE, STYLE


def share_table(
    shares: Any, rows: Sequence[str], columns: Sequence[str], *, framed: Sequence[tuple[int, int]] = (), title: str = ""
) -> Figure:
    """A table of shares in percent, darker the larger, from 0 to 100.

    Args:
        shares: (rows, columns), in [0, 1].
        rows: a name for each row.
        columns: a name for each column.
        framed: (row, column) of the cells that get a frame.
        title: above the table.
    """
    values = 100 * np.asarray(shares, float)
    with matplotlib.rc_context(STYLE):
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
        axes.set_title(title, fontsize=11)
    return figure
