"""The figures of lesson 19: which patches share a token, and what fewer tokens cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import hsv_to_rgb
from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import as_array, as_picture
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled


@styled
def token_groups(images: Sequence[Any], owners: Sequence[Any]) -> Figure:
    """Pictures, and below each its patches coloured by the token that holds them.

    A patch that has a token to itself shows its pixels in grey. Patches that share one share a colour. A dropped patch
    is white.

    Args:
        images: each (C, H, W), in [0, 1].
        owners: for each (rows, columns), the token of each patch; -1: none.
    """
    side = min(2.0, WIDTH / len(images))
    figure = Figure(figsize=(side * len(images), 2 * side), layout="constrained")
    axes = figure.subplots(2, len(images), squeeze=False)
    for column, (image, owner) in enumerate(zip(images, owners, strict=True)):
        picture = as_picture(image)
        axes[0, column].imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes[1, column].imshow(_by_group(picture, as_array(owner).astype(int)), interpolation="nearest")
    for ax in axes.flat:
        ax.set_axis_off()
    return figure


def _by_group(picture: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The picture (H, W) or (H, W, 3) in grey, under the colours of its groups (rows, columns): (H, W, 3)."""
    grey = picture.mean(axis=2) if picture.ndim == 3 else picture  # (H, W)
    drawn = np.repeat(0.25 + 0.6 * grey[..., None], 3, axis=2)  # (H, W, 3)
    tokens, counts = np.unique(owner, return_counts=True)
    shared = tokens[(counts > 1) & (tokens >= 0)]
    for index, token in enumerate(shared):
        hue, value = index / len(shared), (0.95, 0.6)[index % 2]  # neighbours differ in lightness, too
        colour = hsv_to_rgb((hue, 0.85, value))
        for patch in _patches(drawn, owner == token):
            patch[:] = 0.3 * patch + 0.7 * colour
    for patch in _patches(drawn, owner < 0):
        patch[:] = 1
    return drawn


def _patches(drawn: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
    """Views of the patches of a picture (H, W, 3) where ``which`` (rows, columns) is True."""
    high, wide = (side // cells for side, cells in zip(drawn.shape, which.shape, strict=False))
    return [drawn[y * high : (y + 1) * high, x * wide : (x + 1) * wide] for y, x in np.argwhere(which)]


@styled
def points_lost(panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]) -> Figure:
    """What each way costs each model: a panel for each model, a row for each way, a mark with its interval.

    Args:
        panels: {title: {way: {series: (difference in points, half of its interval)}}}, the same ways in each; a series
            keeps its colour.
    """
    ways = list(next(iter(panels.values())))
    series = list(dict.fromkeys(name for panel in panels.values() for row in panel.values() for name in row))
    figure = Figure(figsize=(WIDTH, 0.34 * len(ways) + 1.3), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for ax, (title, panel) in zip(axes, panels.items(), strict=True):
        for index, name in enumerate(series):
            rows = [row + 0.25 * (index - (len(series) - 1) / 2) for row in range(len(ways))]
            means, halves = zip(*(panel[way][name] for way in ways), strict=True)
            colour, marker = CYCLE[index], "osD"[index]
            ax.errorbar(means, rows, xerr=halves, fmt=marker, color=colour, label=name, markersize=6)
        ax.axvline(0, color=PALETTE["muted"], linewidth=1.0, zorder=0)
        ax.set_title(title, fontsize=10)
        ax.set(yticks=range(len(ways)), yticklabels=ways, ylim=(len(ways) - 0.5, -0.5))
        ax.tick_params(axis="y", length=0)
        ax.grid(color="#E5E5E5", linewidth=0.8)
    figure.supxlabel("accuracy minus that with all tokens (points)", fontsize=11)
    if len(series) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(series))
    return figure


@styled
def by_block(panels: Mapping[str, Mapping[str, Sequence[float]]], *, first: int, ylabel: str) -> Figure:
    """Lines over the blocks of a model, from 0 to 100 %, panels side by side.

    Args:
        panels: {title: {series: a percentage for each block}}; a series keeps its colour.
        first: the first number's block.
        ylabel: with its unit.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    figure = Figure(figsize=(WIDTH if len(panels) > 1 else 0.75 * WIDTH, 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, panel) in zip(axes, panels.items(), strict=True):
        for name, values in panel.items():
            index, blocks = names.index(name), range(first, first + len(values))
            ax.plot(blocks, values, marker="osD^"[index], color=CYCLE[index], label=name, markersize=5)
        last = max(len(values) for values in panel.values())
        ax.set(title=title, xlabel="after block", xticks=range(first, first + last), ylim=(-3, 103))
        ax.grid(color="#E5E5E5", linewidth=0.8)
    axes[0].set_ylabel(ylabel)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(names))
    return figure


@styled
def time_and_loss(panels: Mapping[str, Mapping[str, tuple[float, float, float]]], ours: Sequence[str]) -> Figure:
    """Accuracy lost over CPU time: a panel for each model, a named point with its interval for each form.

    Args:
        panels: {title: {form: (share of the time, difference in points, half of its interval)}}.
        ours: the forms in the first colour, named to the right; the others are their rivals.
    """
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, forms) in zip(axes, panels.items(), strict=True):
        for name, (time, mean, half) in forms.items():
            colour, marker = (PALETTE["query"], "o") if name in ours else (PALETTE["key"], "s")
            side, ha = (7, "left") if name in ours else (-7, "right")
            ax.errorbar(time, mean, yerr=half, fmt=marker, color=colour, markersize=6)
            ax.annotate(
                name, (time, mean), xytext=(side, -4), textcoords="offset points", color=colour, fontsize=9, ha=ha
            )
        ax.axhline(0, color=PALETTE["muted"], linewidth=1.0, zorder=0)
        ax.set(title=title, xlabel="CPU time, as a share of the whole model's", xlim=(0, 1))
        ax.grid(color="#E5E5E5", linewidth=0.8)
    axes[0].set_ylabel("accuracy minus all tokens (points)")
    return figure
