"""What several lessons draw: from arrays (NumPy or torch), never a model, a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator

from vit_tutorial.plots.arrays import Array, as_array, as_picture, canvas, draw, draw_grid, overlay
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled

STEPS = ("Patches", "Linear\nembedding", "Class token,\npositions", "Encoder", "Head")
LETTER = 0.085  # inches, the width of one in a label, on average


@styled
def steps(current: int | Sequence[int], part: str = "") -> Figure:
    """The five steps of a ViT as a small map, the current ones lit.

    Args:
        current: a step from 1 to 5, or several; none (an empty tuple) lights nothing.
        part: of the encoder, when a lesson is about one: "attention", "MLP", or "" for the whole.
    """
    lit = {current} if isinstance(current, int) else set(current)
    figure, ax = canvas(WIDTH, 1.35, (-0.02, 5.0), (0, 1))
    for index, name in enumerate(STEPS):
        on = index + 1 in lit
        box = FancyBboxPatch(
            (index, 0.08), 0.82, 0.84, boxstyle="round,pad=0,rounding_size=0.06", linewidth=1.2,
            facecolor=PALETTE["query"] if on else "#F2F2F2", edgecolor=PALETTE["query"] if on else "#C8C8C8",
        )  # fmt: skip
        ax.add_patch(box)
        colour, weight = ("white", "bold") if on else ("#555555", "normal")
        ax.text(index + 0.41, 0.78, str(index + 1), ha="center", va="center", color=colour, fontsize=10)
        height = 0.54 if name == "Encoder" else 0.42
        ax.text(index + 0.41, height, name, ha="center", va="center", color=colour, weight=weight, linespacing=1.1)
        if index < len(STEPS) - 1:
            arrow = FancyArrowPatch((index + 0.83, 0.5), (index + 0.99, 0.5), arrowstyle="-|>", mutation_scale=11)
            arrow.set(color=PALETTE["muted"])
            ax.add_patch(arrow)
    for index, name in enumerate(("attention", "MLP")):
        on = 4 in lit and part in ("", name)
        face = "white" if on else (PALETTE["query"] if 4 in lit else "#E4E4E4")
        ink = PALETTE["query"] if on else ("white" if 4 in lit else "#777777")
        x, w = (3.05, 0.42) if index == 0 else (3.51, 0.26)
        ax.add_patch(Rectangle((x, 0.15), w, 0.23, facecolor=face, edgecolor="white" if 4 in lit else "none"))
        ax.text(x + w / 2, 0.26, name, ha="center", va="center", color=ink, fontsize=9)
    return figure


@styled
def pictures(images: Sequence[Array], titles: Sequence[str] = (), *, columns: int = 0, height: float = 2.6) -> Figure:
    """Images side by side. Each is (C, H, W) or (H, W), in [0, 1]; one channel is drawn in grey.

    Args:
        images: what to draw.
        titles: one for each image, or none.
        columns: images in a row; 0 puts all in one row.
        height: of each image, in inches, where the column is wide enough.
    """
    columns = columns or len(images)
    rows = -(-len(images) // columns)
    shape = as_picture(images[0]).shape
    height = min(height, WIDTH / columns * shape[0] / shape[1])
    width = columns * height * shape[1] / shape[0]
    figure = Figure(
        figsize=(min(WIDTH, width + 0.3), rows * (height + (0.35 if titles else 0.06))), layout="constrained"
    )
    for index, image in enumerate(images):
        ax = figure.add_subplot(rows, columns, index + 1)
        draw(ax, image, titles[index] if titles else "")
    return figure


@styled
def patch_grid(
    image: Array,
    patch_size: int | tuple[int, int],
    *,
    numbers: Sequence[int] = (),
    highlight: Mapping[int, str] | None = None,
) -> Figure:
    """The image with the grid of its patches.

    Args:
        image: (C, H, W), in [0, 1].
        patch_size: P, or (height, width), in pixels.
        numbers: the patches into which their index is written.
        highlight: {patch index: a colour or a role of PALETTE}, outlined.
    """
    picture = as_picture(image)
    H, W = picture.shape[:2]
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    side = 6.4 if numbers else 5.0
    figure = Figure(figsize=(side * min(1.0, W / H), side * min(1.0, H / W)), layout="constrained")
    ax = figure.add_subplot()
    draw(ax, image)
    draw_grid(ax, (H, W), (P, Q))
    columns = W // Q
    size = float(np.clip(9 * Q / W * 14, 5.0, 14.0))
    for index in numbers:
        y, x = divmod(index, columns)
        text = ax.text(x * Q + Q / 2 - 0.5, y * P + P / 2 - 0.5, str(index), ha="center", va="center", fontsize=size)
        text.set(color="white", bbox={"facecolor": "black", "alpha": 0.6, "pad": 0.8, "linewidth": 0})
    for index, colour in (highlight or {}).items():
        y, x = divmod(index, columns)
        corner = (x * Q - 0.5, y * P - 0.5)
        edge = PALETTE.get(colour, colour)
        ax.add_patch(Rectangle(corner, Q, P, fill=False, linewidth=3, edgecolor=edge, zorder=3))  # above the grid
    return figure


@styled
def token_row(patches: Array, *, indices: Sequence[int] | None = None) -> Figure:
    """Patches in a row, as the encoder sees them: a sequence.

    Args:
        patches: (N, C, P, P), in [0, 1].
        indices: which to draw; None draws the first ten, a gap and the last two.
    """
    pictures_ = as_array(patches)
    N = len(pictures_)
    numbers = list(indices) if indices is not None else list(range(N)) if N <= 13 else [*range(10), N - 2, N - 1]
    figure = Figure(figsize=(WIDTH, WIDTH / max(len(numbers), 9) + 0.45), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(numbers)))
    for place, (ax, index) in enumerate(zip(axes, numbers, strict=True)):
        draw(ax, pictures_[index])
        gap = place > 0 and index != numbers[place - 1] + 1
        ax.set_xlabel(("…  " if gap else "") + str(index))
    return figure


@styled
def overlays(
    images: Sequence[Array], maps: Mapping[str, Sequence[Array]], titles: Sequence[str] = (), *,
    height: float = 1.6,
) -> Figure:  # fmt: skip
    """A table of heat over images: a column an image, a row a kind of map, below the images themselves.

    Args:
        images: each (C, H, W), in [0, 1].
        maps: {label of the row: a map (rows, columns) for each image}, non-negative.
        titles: one for each column.
        height: of each picture, in inches, where the column is wide enough.
    """
    table: list[tuple[str, Sequence[Array | None]]] = [("image", [None] * len(images)), *maps.items()]
    H, W = as_picture(images[0]).shape[:2]
    height = min(height, (WIDTH - 0.4) / len(images) * H / W)
    size = (len(images) * (height * W / H + 0.05) + 0.4, len(table) * (height + 0.05) + (0.25 if titles else 0))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(table), len(images), squeeze=False)
    for (label, row), line in zip(table, axes, strict=True):
        line[0].set_ylabel(label)
        for ax, image, heat in zip(line, images, row, strict=True):
            draw(ax, image if heat is None else overlay(as_picture(image), as_array(heat)))
    for ax, title in zip(axes[0], titles, strict=False):
        ax.set_title(title, parse_math=False)  # a class may be called $5$
    return figure


@styled
def heatmaps(
    arrays: Sequence[Array], titles: Sequence[str] = (), *, xlabel: str = "", ylabel: str = "",
    symmetric: bool = False, label: str = "", height: float = 3.2, first: int = 0,
) -> Figure:  # fmt: skip
    """Matrices as colour, side by side, on one scale.

    Args:
        arrays: each (rows, columns).
        titles: one for each.
        xlabel: what the columns are.
        ylabel: what the rows are.
        symmetric: a diverging scale around zero, for signed values.
        label: of the colour bar.
        height: in inches.
        first: the number of the first row and of the first column.
    """
    values = [as_array(array) for array in arrays]
    most = max(float(np.abs(array).max()) for array in values)
    low, high = (
        (-most, most)
        if symmetric
        else (min(float(array.min()) for array in values), max(float(a.max()) for a in values))
    )
    figure = Figure(figsize=(min(WIDTH, height * len(values) * 1.15 + 0.8), height), layout="constrained")
    axes = figure.subplots(1, len(values), squeeze=False)[0]
    for index, (ax, array) in enumerate(zip(axes, values, strict=True)):
        aspect = "equal" if 0.4 < array.shape[0] / array.shape[1] < 2.5 else "auto"
        image = ax.imshow(
            array, cmap="RdBu_r" if symmetric else "viridis", vmin=low, vmax=high, aspect=aspect,
            interpolation="nearest",
            extent=(first - 0.5, first + array.shape[1] - 0.5, first + array.shape[0] - 0.5, first - 0.5),
        )  # fmt: skip
        ax.set(title=titles[index] if titles else "", xlabel=xlabel, ylabel=ylabel if index == 0 else "")
        ax.spines[:].set_visible(False)
        for axis, size in ((ax.xaxis, array.shape[1]), (ax.yaxis, array.shape[0])):
            axis.set_major_locator(MaxNLocator(min(size, 6), integer=True))
    figure.colorbar(image, ax=list(axes), label=label, shrink=0.9)
    return figure


@styled
def matrices(
    arrays: Sequence[Array], titles: Sequence[str] = (), *, signs: Sequence[str] = (), roles: Sequence[str] = (),
    digits: int = 2, cell: float = 0.62,
) -> Figure:  # fmt: skip
    """Small matrices with their numbers, for reading with a pencil: Q, K and V, scores, weights.

    Args:
        arrays: each (rows, columns), at most about 8 x 12.
        titles: one for each.
        signs: what stands between two of them: "@", "=", "+", "→".
        roles: the role of PALETTE whose colour each matrix takes, the stronger the larger a number is; if some are
            negative, the stronger the further from zero, and the negative ones in grey.
        digits: decimals; whole numbers are written without.
        cell: the side of a cell, in inches.
    """
    values = [np.atleast_2d(as_array(array)).astype(float) for array in arrays]
    figure, ax, corners, cell = _side_by_side(values, titles, signs, cell)
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
            text = f"{value:.0f}" if np.allclose(array, array.round()) else f"{value:.{digits}f}"
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
    figure, ax, corners, _ = _side_by_side(values, titles, signs, 0.62)
    for array, group, (left, top) in zip(values, members, corners, strict=True):
        for (y, x), owner in np.ndenumerate(np.atleast_2d(as_array(group)).astype(int)):
            _cell(ax, left + x, top + y, float(array[y, x]), CYCLE[owner % len(CYCLE)])
    return figure


@styled
def curves(
    x: Array, ys: Mapping[str, Array], *, xlabel: str = "", ylabel: str = "", log: str = "",
    marks: Mapping[str, tuple[float, float]] | None = None, markers: bool = False, height: float = 3.6,
) -> Figure:  # fmt: skip
    """Lines over one axis, each labelled.

    Args:
        x: (n,).
        ys: {label: (n,)}.
        xlabel: with its unit.
        ylabel: with its unit.
        log: "x", "y" or "xy" for logarithmic axes.
        marks: {text: (x, y)}, points worth naming.
        markers: draw the points, too.
        height: in inches.
    """
    figure = Figure(figsize=(7.5, height), layout="constrained")
    ax = figure.add_subplot()
    for (name, y), dash in zip(ys.items(), ["-", "--", "-.", ":"] * len(ys), strict=False):
        ax.plot(as_array(x), as_array(y), dash, label=name, marker="o" if markers else None, markersize=5)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(color="#E5E5E5", linewidth=0.8)
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log")
    for text, point in (marks or {}).items():
        ax.plot(*point, "o", color=PALETTE["ink"], markersize=6)
        ax.annotate(text, point, xytext=(6, 6), textcoords="offset points", fontsize=10)
    if len(ys) > 1 or any(ys):
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


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
    draw_grid(ax, (len(values), len(values)), (1, 1))
    for lines in ax.collections:  # the grid, which is white, on white
        lines.set(color="#DDDDDD")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return figure


@styled
def dots(
    values: Mapping[str, Sequence[float]], *, xlabel: str = "",
    interval: tuple[float, float] | None = None, label: str = "",
) -> Figure:  # fmt: skip
    """Repeated measurements: a row for each name, a dot for each value, a bar at their median.

    Args:
        values: {label: the values of its runs}; equal ones are drawn above each other.
        xlabel: with its unit.
        interval: a range to shade, from the first number to the second.
        label: what the range is.
    """
    figure = Figure(figsize=(7.5, 0.5 * len(values) + (1.3 if label else 1.0)), layout="constrained")
    ax = figure.add_subplot()
    if interval:
        ax.axvspan(*interval, color="#EEEEEE", label=label, zorder=0)
    for row, runs in enumerate(values.values()):
        counts: dict[float, int] = {}
        for value in map(float, runs):
            ax.plot(value, row - 0.13 * counts.get(value, 0), "o", color=PALETTE["query"], alpha=0.85, markersize=7)
            counts[value] = counts.get(value, 0) + 1
        ax.vlines(
            float(np.median(as_array(runs))), row - 0.36, row + 0.3, color=PALETTE["key"], linewidth=2.5, zorder=1
        )
    ax.set_yticks(range(len(values)), list(values))
    ax.set(xlabel=xlabel, ylim=(len(values) - 0.4, -0.75))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    if label:
        figure.legend(loc="outside upper right", fontsize=10)
    return figure


@styled
def five_steps(
    image: Array, patch_size: int, tokens: Array, embedded: Array, attention: Array, scores: Mapping[str, float]
) -> Figure:
    """A photograph's way through a ViT, a panel for each of the five steps.

    Args:
        image: (C, H, W), in [0, 1].
        patch_size: P, in pixels.
        tokens: (N, D), after the linear embedding.
        embedded: (N + 1, D), with the class token and the positions.
        attention: (rows, columns), from the class token to the patches.
        scores: {class: probability}.
    """
    picture = as_picture(image)
    H, W = picture.shape[:2]
    figure = Figure(figsize=(WIDTH * 1.25, 3.1), layout="constrained")
    axes = figure.subplots(1, 5)
    for ax in axes:  # as tall as the pictures, and their tops in one line
        ax.set_box_aspect(H / W)
        ax.set_anchor("N")
    draw(axes[0], image)
    draw_grid(axes[0], (H, W), (patch_size, patch_size))
    for ax, array in ((axes[1], as_array(tokens)), (axes[2], as_array(embedded))):
        most = np.quantile(np.abs(array), 0.98)
        ax.imshow(array, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        ax.set(xticks=[], yticks=[], ylabel=f"{len(array)} tokens", xlabel=f"width D = {array.shape[1]}")
        ax.spines[:].set_visible(False)
    # One row of 197 would be a hairline: a band of its own above the matrix stands for the class token.
    band = 0.06 * len(array)
    axes[2].set_ylim(len(array) - 0.5, -0.5 - band)
    axes[2].add_patch(Rectangle((-0.5, -0.5 - band), array.shape[1], band, facecolor=PALETTE["class"], linewidth=0))
    middle = (array.shape[1] / 2, -0.5 - band / 2)
    axes[2].text(*middle, "class token", ha="center", va="center", fontsize=9, color="white")
    draw(axes[3], overlay(picture, as_array(attention)))
    axes[4].barh(list(scores), list(scores.values()), color=PALETTE["query"], height=0.7)
    axes[4].invert_yaxis()
    axes[4].set(xlabel="probability", xlim=(0, 1))
    axes[4].tick_params(axis="y", length=0)
    names = ("1  patches", "2  linear embedding", "3  class token, positions", "4  encoder", "5  head")
    for ax, name in zip(axes, names, strict=True):
        ax.set_title(name, weight="bold", loc="left", fontsize=10.5)
    return figure


def _side_by_side(
    values: Sequence[Array], titles: Sequence[str], signs: Sequence[str], cell: float
) -> tuple[Figure, Axes, list[tuple[float, float]], float]:
    """A canvas for matrices in a row, with titles above and signs between; the (left, top) of each, a cell's side."""
    columns = sum(array.shape[1] for array in values) + 0.9 * (len(values) - 1)
    cell = min(cell, WIDTH / columns)
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
