"""The figures of lesson 18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from vit_tutorial.plots.arrays import as_picture
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled


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


@styled
def few_bits(
    values: Any, levels: Any, images: Sequence[Any], answers: Sequence[str], right: Sequence[bool], *, limit: float
) -> Figure:
    """One setting of a slider over bits: a histogram with its levels, and what the rounded model answers.

    Args:
        values: (n,), before they are rounded.
        levels: (m,), the numbers that there are codes for.
        images: each (C, H, W), in [0, 1].
        answers: the class that the model names for each.
        right: whether that is the image's class.
        limit: of the histogram's axis, on both sides.
    """
    figure = Figure(figsize=(WIDTH * 0.85, 2.9), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    ax = parts[0].subplots()
    ax.hist(np.asarray(values), bins=np.linspace(-limit, limit, 81), color=PALETTE["patch"])
    width = 1.2 if len(levels) < 50 else 0.4
    ax.vlines(np.asarray(levels), 0, 0.07, transform=ax.get_xaxis_transform(), color=PALETTE["key"], linewidth=width)
    ax.set(xlim=(-limit, limit), xlabel="weight", ylabel="weights per bin")
    rows = parts[1].subplots(2, len(images) // 2)
    for cell, image, answer, good in zip(rows.flat, images, answers, right, strict=True):
        cell.imshow(as_picture(image), interpolation="nearest")
        cell.set_title(answer, fontsize=10, color=PALETTE["ink" if good else "key"])
        cell.set_axis_off()
    return figure


@styled
def costs_of_bits(panels: Mapping[str, Mapping[str, Mapping[int, tuple[float, float]]]]) -> Figure:
    """Accuracy lost with fewer bits, with intervals: a panel for each model, a line for each way of rounding.

    Args:
        panels: {model: {way: {bits: (difference in points, half of its interval)}}}.
    """
    figure = Figure(figsize=(WIDTH * 0.9, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, ways) in zip(axes, panels.items(), strict=True):
        for index, (name, by_bits) in enumerate(ways.items()):
            bits = np.array(list(by_bits))
            mean, half = np.array(list(by_bits.values())).T
            x = bits + 0.09 * (index - (len(ways) - 1) / 2)
            label = name if ax is axes[0] else "_"
            ax.errorbar(x, mean, yerr=half, marker="osD^"[index], color=CYCLE[index], label=label, markersize=5)
        ax.axhline(0, color=PALETTE["muted"], linewidth=1.0, zorder=0)
        ax.set(title=title, xlabel="bits", xticks=bits)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.invert_xaxis()
        ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes[0].set_ylabel("accuracy against float32 (points)")
    figure.legend(loc="outside upper center", ncols=4, fontsize=10)
    return figure
