"""The figures of lesson 14."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from vit_tutorial.plots.style import CYCLE, PALETTE, STYLE, WIDTH

Array = Any
MARKERS = "osD^vPX"
TICKS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))

_styled = matplotlib.rc_context(STYLE)


@_styled
def law_curves(
    runs: Mapping[str, tuple[Array, Array]],
    laws: Mapping[str, tuple[Array, Array]] | None = None,
    *,
    xlabel: str,
    ylabel: str,
    band: tuple[Array, Array, Array] | None = None,
    predicted: tuple[float, float, float] | None = None,
    log: str = "xy",
) -> Figure:
    """Runs as dots over their cost, laws as lines, and what was predicted as a bar.

    Args:
        runs: {label: (cost, loss)}, each (n,).
        laws: {label: (cost, loss)}, drawn in the order of the runs' colours.
        xlabel: with its unit.
        ylabel: with its unit.
        band: (cost, low, high): shaded, where redrawn laws lie.
        predicted: (cost, low, high) of a run.
        log: the logarithmic axes.
    """
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    ax = figure.add_subplot()
    if band is not None:
        cost, low, high = (np.asarray(part) for part in band)
        ax.fill_between(cost, low, high, color="#E4E4E4", label="laws drawn again, 95 %", zorder=0)
    for (label, (cost, loss)), marker, colour in zip(runs.items(), MARKERS * 2, CYCLE * 2, strict=False):
        ax.plot(np.asarray(cost), np.asarray(loss), marker, color=colour, label=label, markersize=6)
    for (label, (cost, loss)), colour in zip((laws or {}).items(), CYCLE * 2, strict=False):
        ax.plot(np.asarray(cost), np.asarray(loss), "--", color=colour, label=label, linewidth=1.5, zorder=1)
    if predicted is not None:
        at, least, most = predicted
        ax.vlines(at, least, most, color=PALETTE["ink"], linewidth=7, alpha=0.35, label="predicted, 95 %", zorder=1)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    _plain_numbers(ax, log)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=10)
    return figure


@_styled
def law_profile(exponents: Array, errors: Array, floors: Array, interval: tuple[float, float]) -> Figure:
    """How well each exponent fits, and which floor goes with it.

    Args:
        exponents: b, (E,).
        errors: of the best law with each b, in percent, (E,).
        floors: its c, (E,).
        interval: of b, shaded.
    """
    figure = Figure(figsize=(WIDTH * 0.9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for ax, values, label in ((left, errors, "error of the best law (%)"), (right, floors, "its floor c")):
        ax.axvspan(*interval, color="#EEEEEE", zorder=0)
        ax.plot(np.asarray(exponents), np.asarray(values), color=PALETTE["query"])
        ax.set(xlabel="exponent b", ylabel=label, ylim=(0, None))
        ax.grid(color="#E5E5E5", linewidth=0.8)
    best = int(np.argmin(np.asarray(errors)))
    for ax, values in ((left, errors), (right, floors)):
        ax.plot(np.asarray(exponents)[best], np.asarray(values)[best], "o", color=PALETTE["key"], markersize=7)
    return figure


@_styled
def cost_panels(
    panels: Mapping[str, Mapping[str, tuple[Array, Array]]], *, ylabel: str, base: Mapping[str, tuple[float, float]]
) -> Figure:
    """The same runs over several costs, side by side: a line for each way to grow, all through the base model.

    Args:
        panels: {xlabel: {label: (cost, loss)}}, the same labels in each.
        ylabel: with its unit.
        base: {xlabel: (cost, loss)} of the model where the lines cross.
    """
    figure = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (xlabel, parts) in zip(axes, panels.items(), strict=True):
        for (label, (cost, loss)), marker, colour in zip(parts.items(), MARKERS, CYCLE, strict=False):
            ax.plot(np.asarray(cost), np.asarray(loss), marker + "-", color=colour, label=label, markersize=5, lw=1.5)
        ax.plot(*base[xlabel], "o", color=PALETTE["ink"], markersize=9, fillstyle="none", label="the base")
        ax.set(xlabel=xlabel)
        _plain_numbers(ax, "x", few=True)
    axes[0].set_ylabel(ylabel)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=10)
    return figure


@_styled
def model_sizes(models: Mapping[str, tuple[int, int]]) -> Figure:
    """Models drawn to scale: a bar for each layer, as long as a token is wide.

    Args:
        models: {label: (depth, width)}.
    """
    figure = Figure(figsize=(WIDTH, 2.3), layout="constrained")
    ax = figure.add_subplot()
    widest = max(width for _, width in models.values())
    left = 0.0
    for label, (depth, width) in models.items():
        for layer in range(depth):
            ax.add_patch(Rectangle((left, layer), width, 0.72, color=PALETTE["patch"]))
        ax.text(left + width / 2, -0.35, label, ha="center", va="top", fontsize=10)
        left += max(width, 0.45 * widest) + 0.3 * widest
    deepest = max(depth for depth, _ in models.values())
    ax.set(xlim=(-0.25 * widest, left), ylim=(-1.6, deepest + 0.1))
    ax.axis("off")
    return figure


def _plain_numbers(ax: Axes, log: str, few: bool = False) -> None:
    """Logarithmic axes whose ticks are numbers that one reads, at least three if there is room, round ones first."""
    for name in log:
        getattr(ax, f"set_{name}scale")("log")
        axis = ax.xaxis if name == "x" else ax.yaxis
        low, high = axis.get_view_interval()
        for steps in TICKS if few else TICKS[2:]:
            ticks = [step * 10.0**power for power in range(-6, 13) for step in steps]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) >= 3:
                break
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter([f"{tick:,.10g}" for tick in ticks]))
        axis.set_minor_locator(NullLocator())
    ax.grid(color="#E5E5E5", linewidth=0.8)
