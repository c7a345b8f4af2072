"""Matrices: as colour, or with their numbers written in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from vit_tutorial.plots.arrays import Array, as_array, canvas, draw_grid
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, decimal, styled

CELL = 0.62  # inches, the side of a cell with its number, where there is room
LETTER = 0.085  # inches, the width of one in a label, on average


@styled
def heatmaps(
    arrays: Sequence[Array],
    titles: Sequence[str] = (),
    *,
    xlabel: str = "",
    ylabel: str = "",
    symmetric: bool = False,
    limits: tuple[float, float] | None = None,
    label: str = "",
    height: float = 3.2,
) -> Figure:
    """Matrices as colour, side by side, on one scale.

    Args:
        arrays: each (rows, columns).
        titles: one for each.
        xlabel: what the columns are.
        ylabel: what the rows are.
        symmetric: a diverging scale around zero, for signed values.
        limits: the ends of the scale, so that several figures share it; None takes the arrays' own.
        label: of the colour bar.
        height: in inches.
    """
    values = [as_array(array) for array in arrays]
    low = min(float(array.min()) for array in values)
    high = max(float(array.max()) for array in values)
    if limits:
        low, high = limits
    if symmetric:
        high = max(-low, high)
        low = -high
    colours = "RdBu_r" if symmetric else "viridis"
    figure = Figure(figsize=(min(WIDTH, height * len(values) * 1.15 + 0.8), height), layout="constrained")
    axes = figure.subplots(1, len(values), squeeze=False)[0]
    for index, (ax, array) in enumerate(zip(axes, values, strict=True)):
        aspect = "equal" if 0.4 < array.shape[0] / array.shape[1] < 2.5 else "auto"
        image = ax.imshow(array, cmap=colours, vmin=low, vmax=high, aspect=aspect, interpolation="nearest")
        ax.set(title=titles[index] if titles else "", xlabel=xlabel, ylabel=ylabel if index == 0 else "")
        ax.spines[:].set_visible(False)
        for axis, size in ((ax.xaxis, array.shape[1]), (ax.yaxis, array.shape[0])):
            axis.set_major_locator(MaxNLocator(min(size, 6), integer=True))
    figure.colorbar(image, ax=list(axes), label=label, shrink=0.9)
    return figure


@styled
def position_maps(maps: Mapping[str, Array], place: tuple[int, int]) -> Figure:
    """The similarity of one patch's position with every other's, for several tables, all from -1 to 1.

    Args:
        maps: {title: cosines (rows, columns)}.
        place: row and column of the patch, which is outlined.
    """
    figure = Figure(figsize=(3.1 * len(maps) + 0.6, 2.9), layout="constrained")
    axes = figure.subplots(1, len(maps), squeeze=False)[0]
    for ax, (title, cosines) in zip(axes, maps.items(), strict=True):
        image = ax.imshow(as_array(cosines), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        corner = (place[1] - 0.5, place[0] - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, linewidth=2.5, edgecolor=PALETTE["ink"]))
        ax.set(title=title, xticks=[], yticks=[], xlabel="column", ylabel="row" if ax is axes[0] else "")
    figure.colorbar(image, ax=list(axes), label="cosine", shrink=0.9)
    return figure


@styled
def matrices(
    arrays: Sequence[Array],
    titles: Sequence[str] = (),
    *,
    signs: Sequence[str] = (),
    roles: Sequence[str] = (),
    digits: int = 2,
) -> Figure:
    """Small matrices with their numbers, for reading with a pencil: Q, K and V, scores, weights.

    Args:
        arrays: each (rows, columns), at most about 8 x 12.
        titles: one for each.
        signs: what stands between two of them: "@", "=", "+", "→".
        roles: the role of PALETTE whose colour each matrix takes, the stronger the larger a number is; if some are
            negative, the stronger the further from zero, and the negative ones in grey.
        digits: decimals; whole numbers are written without.
    """
    values = [np.atleast_2d(as_array(array)).astype(float) for array in arrays]
    figure, ax, corners, cell = _side_by_side(values, titles, signs)
    for index, (array, (left, top)) in enumerate(zip(values, corners, strict=True)):
        role = roles[index] if index < len(roles) else "muted"
        positive = LinearSegmentedColormap.from_list(role, ["#FFFFFF", PALETTE[role]])
        negative = LinearSegmentedColormap.from_list("negative", ["#FFFFFF", "#666666"])
        low = 0.0 if array.min() < 0 else float(array.min())
        spread = float(np.abs(array - low).max())
        for (y, x), value in np.ndenumerate(array):
            shade = 0.08 + 0.55 * abs(value - low) / spread if spread else 0.25
            tint = positive(shade) if value >= low else negative(shade)
            ax.add_patch(Rectangle((left + x, top + y), 1, 1, facecolor=tint, edgecolor="white", linewidth=1.5))
            text = decimal(value, 0 if np.allclose(array, array.round()) else digits)
            ax.text(left + x + 0.5, top + y + 0.5, text, ha="center", va="center", fontsize=min(11.0, 20 * cell))
    return figure


@styled
def groups(
    arrays: Sequence[Array], members: Sequence[Array], titles: Sequence[str] = (), *, signs: Sequence[str] = ()
) -> Figure:
    """Small matrices whose cells are coloured by the group they belong to: where each number goes when a tensor is cut.

    Args:
        arrays: each (rows, columns), small.
        members: for each array its cells' groups, whole numbers from 0 on, of the same shape.
        titles: one for each.
        signs: what stands between two of them.
    """
    values = [np.atleast_2d(as_array(array)) for array in arrays]
    figure, ax, corners, _ = _side_by_side(values, titles, signs)
    for array, group, (left, top) in zip(values, members, corners, strict=True):
        for (y, x), owner in np.ndenumerate(np.atleast_2d(as_array(group)).astype(int)):
            _cell(ax, left + x, top + y, float(array[y, x]), CYCLE[owner % len(CYCLE)])
    return figure


def _side_by_side(
    values: Sequence[Array], titles: Sequence[str], signs: Sequence[str]
) -> tuple[Figure, Axes, list[tuple[float, float]], float]:
    """A canvas for matrices in a row, with titles above and signs between; the (left, top) of each, a cell's side."""
    columns = sum(array.shape[1] for array in values) + 0.9 * (len(values) - 1)
    cell = min(CELL, WIDTH / columns)
    tallest = max(array.shape[0] for array in values)
    size = (columns * cell, tallest * cell + 0.45)
    figure, ax = canvas(*size, (-0.05, columns + 0.05), (tallest + 0.05, -0.45 / cell))
    corners, left = [], 0.0
    for index, (rows, width) in enumerate(array.shape for array in values):
        top = (tallest - rows) / 2
        corners.append((left, top))
        if index < len(titles):
            ax.text(left + width / 2, top - 0.14 / cell, titles[index], ha="center", va="center", weight="bold")
        left += width + 0.9
        if index < min(len(signs), len(values) - 1):
            ax.text(left - 0.45, tallest / 2, signs[index], ha="center", va="center", fontsize=15)
    return figure, ax, corners, cell


def _cell(ax: Axes, x: float, y: float, value: float, colour: str) -> None:
    ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, alpha=0.3, edgecolor="white", linewidth=1.5))
    ax.text(x + 0.5, y + 0.5, f"{value:g}", ha="center", va="center", fontsize=10)


@styled
def confusion(counts: Array, classes: Sequence[str], *, height: float = 4.6) -> Figure:
    """A confusion matrix: the right answers on the diagonal, the mistakes beside it shaded by how often they happen.

    Args:
        counts: (K, K), whole numbers: row the true class, column the model's.
        classes: K names.
        height: in inches.
    """
    values = as_array(counts).astype(int)
    right = np.eye(len(values), dtype=bool)
    mistakes = np.where(right, 0, values)
    longest = max(map(len, classes)) * LETTER
    upright = longest > 0.8 * height / len(classes)  # beside each other the names wouldn't fit
    figure = Figure(figsize=(height + 0.3 + longest, height + longest * upright), layout="constrained")
    ax = figure.add_subplot()
    shades = LinearSegmentedColormap.from_list("mistakes", ["#FFFFFF", PALETTE["key"]])
    ax.imshow(mistakes, cmap=shades, vmin=0, vmax=max(3, mistakes.max()), interpolation="nearest")
    for (row, column), count in np.ndenumerate(values):
        if count:
            colour = PALETTE["value"] if row == column else PALETTE["ink"]
            ax.text(column, row, str(count), ha="center", va="center", color=colour, weight="bold", fontsize=10)
    ax.set(xlabel="the model's answer", ylabel="true class")
    # parse_math: a class may be called $5$
    ax.set_xticks(range(len(classes)), classes, parse_math=False, rotation=90 if upright else 0)
    ax.set_yticks(range(len(classes)), classes, parse_math=False)
    draw_grid(ax, (len(values), len(values)), (1, 1), colour="#DDDDDD")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return figure


@styled
def percent_table(
    fractions: Any, rows: Sequence[str], columns: Sequence[str], *, framed: Sequence[tuple[int, int]] = ()
) -> Figure:
    """A table of fractions in percent, darker the larger, from 0 to 100.

    Args:
        fractions: (rows, columns), in [0, 1].
        rows: a name for each row.
        columns: a name for each column.
        framed: (row, column) of the cells that get a frame.
    """
    values = 100 * np.asarray(fractions, float)
    figure = Figure(figsize=(1.3 + 0.8 * len(columns), 0.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 60 else "black"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=10)
    for row, column in framed:
        corner = (column - 0.46, row - 0.44)
        axes.add_patch(Rectangle(corner, 0.92, 0.88, fill=False, linewidth=2.5, edgecolor=PALETTE["key"]))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
