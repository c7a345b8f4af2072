"""Schemes, drawn from a few names and numbers: the five steps, pipelines, two towers, rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from vit_tutorial.plots.arrays import as_array, as_picture, bare, canvas
from vit_tutorial.plots.drawings import LINE, SOFT, arrow, box
from vit_tutorial.plots.style import PALETTE, WIDTH, decimal, styled

STEPS = ("Patches", "Linear\nembedding", "Class token,\npositions", "Encoder", "Head")
Kind = Literal["convolution", "cut", "attention", "head"]
FACES: dict[Kind, str] = {
    "convolution": PALETTE["value"],
    "cut": PALETTE["patch"],
    "attention": PALETTE["query"],
    "head": PALETTE["class"],
}


@styled
def steps(current: int | Sequence[int], part: str = "") -> Figure:
    """The five steps of a ViT as a small map, the current ones lit.

    Args:
        current: a step from 1 to 5, or several; none (an empty tuple) lights nothing.
        part: of the encoder, when a lesson is about one: "attention", "MLP", or "" for the whole.
    """
    lit = {current} if isinstance(current, int) else set(current)
    figure, ax = canvas(WIDTH, 1.35, (-0.02, len(STEPS)), (0, 1))
    for index, name in enumerate(STEPS):
        _draw_step(ax, index, name, on=index + 1 in lit)
        if index:
            pointer = FancyArrowPatch((index - 0.17, 0.5), (index - 0.01, 0.5), arrowstyle="-|>", mutation_scale=11)
            pointer.set(color=PALETTE["muted"])
            ax.add_patch(pointer)
    for name, left, width in (("attention", 3.05, 0.42), ("MLP", 3.51, 0.26)):
        _draw_encoder_part(ax, name, left, width, encoder_on=4 in lit, on=4 in lit and part in ("", name))
    return figure


def _draw_step(ax: Axes, index: int, name: str, *, on: bool) -> None:
    """A step's box, from ``index`` on, with its number and its name."""
    face, edge = (PALETTE["query"], PALETTE["query"]) if on else ("#F2F2F2", "#C8C8C8")
    frame = FancyBboxPatch((index, 0.08), 0.82, 0.84, boxstyle="round,pad=0,rounding_size=0.06", linewidth=1.2)
    frame.set(facecolor=face, edgecolor=edge)
    ax.add_patch(frame)
    colour, weight = ("white", "bold") if on else (LINE, "normal")
    centre = index + 0.41
    ax.text(centre, 0.78, str(index + 1), ha="center", va="center", color=colour, fontsize=10)
    height = 0.54 if name == "Encoder" else 0.42  # its parts stand below the name
    ax.text(centre, height, name, ha="center", va="center", color=colour, weight=weight, linespacing=1.1)


def _draw_encoder_part(ax: Axes, name: str, left: float, width: float, *, encoder_on: bool, on: bool) -> None:
    """Attention or the MLP, a small box in the encoder's."""
    if on:
        face, ink = "white", PALETTE["query"]
    elif encoder_on:
        face, ink = PALETTE["query"], "white"
    else:
        face, ink = "#E4E4E4", "#777777"
    edge = "white" if encoder_on else "none"
    ax.add_patch(Rectangle((left, 0.15), width, 0.23, facecolor=face, edgecolor=edge))
    ax.text(left + width / 2, 0.26, name, ha="center", va="center", color=ink, fontsize=9)


@styled
def pipelines(models: Mapping[str, Sequence[tuple[str, str, Kind]]]) -> Figure:
    """Models as rows of boxes from left to right, with the shape of what leaves each box under it.

    Args:
        models: {name: its parts from the image on, each (what it is, the shape that it makes, its kind)}.
    """
    longest = max(len(parts) for parts in models.values())
    figure = Figure(figsize=(WIDTH, 1.25 * len(models)), layout="constrained")
    ax = figure.add_subplot()
    for row, (name, parts) in enumerate(models.items()):
        ax.text(-0.05, row, name, ha="right", va="center", weight="bold")
        for column, (text, shape, kind) in enumerate(parts):
            _part(ax, column, row, text, shape, FACES[kind])
            if column:
                ax.annotate("", (column + 0.04, row), (column - 0.1, row), arrowprops={"arrowstyle": "->"})
    ax.set(xlim=(-0.75, longest), ylim=(len(models) - 0.45, -0.45))
    ax.set_axis_off()
    return figure


def _part(ax: Axes, column: int, row: int, text: str, shape: str, face: str) -> None:
    """A box of :func:`pipelines`: what the part is, and below it the shape that it makes."""
    frame = FancyBboxPatch((column + 0.06, row - 0.28), 0.82, 0.44, boxstyle="round,pad=0,rounding_size=0.06")
    frame.set(facecolor=face, alpha=0.28, edgecolor=PALETTE["muted"])
    ax.add_patch(frame)
    ax.text(column + 0.47, row - 0.06, text, ha="center", va="center", fontsize=9.5)
    ax.text(column + 0.47, row + 0.3, shape, ha="center", va="center", fontsize=9, color=PALETTE["muted"])


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
            text = f"{decimal(cosines[i][j], 2)}\n{'↑' if own else '↓'}"
            axes.text(4.5 + j, i + 0.5, text, ha="center", va="center", fontsize=11)
    axes.text(n + 4.2, n / 2, "in each cell,\ntheir cosine:\n↑ own caption\n↓ another's", va="center", linespacing=1.5)
    axes.set(xlim=(-0.1, n + 6.0), ylim=(n + 0.1, -3.2), aspect="equal")
    axes.axis("off")
    return figure


@styled
def arrows(vectors: Mapping[str, Any], title: str = "") -> Figure:
    """A query and a key as arrows in the plane, which goes from -2.5 to 2.5 in each direction.

    Args:
        vectors: {name: two numbers}, the query first.
        title: above the plane.
    """
    figure = Figure((3.4, 3.6))
    ax = figure.add_axes((0.02, 0.14, 0.96, 0.76))
    ax.set(xlim=(-2.5, 2.5), ylim=(-2.5, 2.5), aspect="equal", title=title)
    for (name, vector), role in zip(vectors.items(), ("query", "key"), strict=True):
        x, y = as_array(vector)
        style = {"arrowstyle": "-|>", "color": PALETTE[role], "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x, y), (0, 0), arrowprops=style)
        ax.plot([], [], color=PALETTE[role], linewidth=2.5, label=name)
    ax.axhline(0, color="#DDDDDD", linewidth=1, zorder=0)
    ax.axvline(0, color="#DDDDDD", linewidth=1, zorder=0)
    bare(ax)
    figure.legend(loc="lower center", ncols=2, frameon=False)
    return figure


@styled
def rounding(values: Any, levels: Mapping[str, Any], *, xlabel: str = "") -> Figure:
    """Values on a line, and one row for each kind of codes: its levels as ticks, and where each value goes.

    Args:
        values: (n,), few.
        levels: {label of the row: (m,)}, the numbers that there are codes for.
        xlabel: with its unit.
    """
    x = np.asarray(values, float)
    figure = Figure(figsize=(WIDTH * 0.75, 0.9 * len(levels) + 1.0), layout="constrained")
    ax = figure.add_subplot()
    for row, some in enumerate(levels.values()):
        ticks = np.asarray(some, float)
        near = ticks[np.abs(x[:, None] - ticks).argmin(axis=1)]  # (n,)
        ax.vlines(ticks, row - 0.16, row + 0.16, color=PALETTE["query"], linewidth=2.5)
        ax.plot(x, np.full(len(x), row - 0.42), "o", color=PALETTE["key"], markersize=6)
        ax.plot([x, near], [np.full(len(x), row - 0.36), np.full(len(x), row - 0.16)], color=PALETTE["muted"], lw=1.2)
    ax.axvline(0, color=PALETTE["muted"], linestyle=":", linewidth=1.2, zorder=0)
    ax.set_yticks(range(len(levels)), list(levels))
    ax.set(xlabel=xlabel, ylim=(len(levels) - 0.6, -0.65))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return figure
