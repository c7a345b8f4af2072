"""The figures of lesson 16: masks in the colours of their classes, and scores over the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vit_tutorial.plots.arrays import as_array, as_picture, bare, draw
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled

COLOURS = [*CYCLE, PALETTE["muted"]]  # of classes 1 to 8


@styled
def class_maps(images: Sequence[Any], maps: Mapping[str, Sequence[Any]], classes: Sequence[str]) -> Figure:
    """Masks over pale pictures, a colour a class: a column for each image, a row for each kind of mask.

    Args:
        images: each (C, H, W), in [0, 1]; the first row.
        maps: {label of the row: for each image (H, W) whole numbers, 0 the ground}.
        classes: the names of the classes 1, 2, ..., for the legend.
    """
    rows, height = len(maps) + 1, min(1.15, (WIDTH - 1.9) / len(images))
    figure = Figure(figsize=(len(images) * height + 1.9, rows * (height + 0.05) + 0.35), layout="constrained")
    axes = figure.subplots(rows, len(images), squeeze=False)
    for column, image in enumerate(images):
        draw(axes[0, column], image)
        grey = 0.75 + 0.25 * as_picture(image).mean(axis=-1, keepdims=True)  # (H, W, 1)
        for ax, row in zip(axes[1:, column], maps.values(), strict=True):
            ax.imshow(_coloured(grey, as_array(row[column])), interpolation="nearest")
            bare(ax)
    for ax, label in zip(axes[:, 0], ["scene", *maps], strict=True):
        ax.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
    handles = [Patch(color=colour, label=name) for colour, name in zip(COLOURS, classes, strict=False)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(classes), fontsize=9, handlelength=1.0)
    return figure


@styled
def by_layer(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    layers: Sequence[str],
    *,
    chance: Mapping[str, float],
) -> Figure:
    """A line for each model over the layers, panels side by side.

    Args:
        panels: {title: {series: for each model its numbers, one a layer, in percent}}; "" isn't named.
        layers: their names.
        chance: {title: where a dotted line says what guessing gives}.
    """
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    colours = iter(CYCLE)
    for ax, (title, panel) in zip(axes, panels.items(), strict=True):
        for name, models in panel.items():
            colour = next(colours)
            for index, numbers in enumerate(models):
                ax.plot(layers, numbers, "o-", color=colour, markersize=4, label="" if index else name)
        if title in chance:
            ax.axhline(chance[title], color=PALETTE["ink"], linestyle=":", linewidth=1.2)
        ax.set(title=title, ylim=(0, 100))
        ax.tick_params(axis="x", labelsize=9)
        ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
        if any(panel):
            ax.legend(loc="upper left", fontsize=9)
    return figure


def _coloured(grey: Any, classes: Any) -> Any:
    """Pale grey (H, W, 1) where the class is 0, else its colour: (H, W, 3)."""
    colours = np.array([(1.0, 1.0, 1.0), *map(to_rgb, COLOURS)])
    return grey * colours[classes.astype(int)]
