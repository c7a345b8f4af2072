"""Pictures: side by side, cut into patches, or under heat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.arrays import Array, as_array, as_picture, bare, draw, draw_grid, enlarged
from vit_tutorial.plots.style import PALETTE, WIDTH, styled

HEAT = matplotlib.colormaps["YlOrRd"]
GAP = 2  # pixels between two pictures


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
        ax.set_title(title, fontsize=10, parse_math=False)  # a class may be called $5$
    return figure


def _pale(picture: Any, heat: Any) -> Any:
    """Heat (rows, columns), multiplied with the picture (H, W, 3) in pale grey: (H, W, 3)."""
    strength = enlarged(heat, picture.shape[:2])
    grey = 0.72 + 0.28 * picture.mean(axis=-1, keepdims=True)
    colour = np.where(strength[..., None] > 0, HEAT(strength)[..., :3], 1.0)
    white = np.minimum(strength / 0.15, 1.0)[..., None]  # the colour map's yellow begins only above zero
    return (grey * (white * colour + (1 - white))).clip(0, 1)


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
