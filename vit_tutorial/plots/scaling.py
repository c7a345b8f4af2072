"""The figures of lesson 14."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from vit_tutorial.plots.arrays import Array
from vit_tutorial.plots.style import CYCLE, PALETTE, styled

MARKERS = "osD^vPX"
TICKS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))


@styled
def law_curves(
    runs: Mapping[str, tuple[Array, Array]],
    laws: Mapping[str, tuple[Array, Array]] | None = None,
    *,
    xlabel: str,
    ylabel: str,
    band: tuple[Array, Array, Array] | None = None,
    predicted: tuple[float, float, float] | None = None,
    ylim: tuple[float, float] | None = None,
) -> Figure:
    """Runs as dots over their cost, laws as lines, and what was predicted as a bar.

    Args:
        runs: {label: (cost, loss)}, each (n,); the first lie on top.
        laws: {label: (cost, loss)}, drawn in the order of the runs' colours; in the legend if no runs have the label.
        xlabel: with its unit.
        ylabel: with its unit.
        band: (cost, low, high): shaded, where redrawn laws lie.
        predicted: (cost, low, high) of a run.
        ylim: ends of the vertical axis, the same for figures that stand behind one slider.
    """
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    ax = figure.add_subplot()
    if band is not None:
        cost, low, high = (np.asarray(part) for part in band)
        ax.fill_between(cost, low, high, color="#E4E4E4", label="laws drawn again, 95 %", zorder=0)
    for order, (label, (cost, loss)) in enumerate(runs.items()):
        ax.plot(
            np.asarray(cost),
            np.asarray(loss),
            (MARKERS * 2)[order],
            color=(CYCLE * 2)[order],
            label=label,
            markersize=6,
            zorder=2.9 - order / 100,
        )
    for (label, (cost, loss)), colour in zip((laws or {}).items(), CYCLE * 2, strict=False):
        new = "" if label in runs else label
        ax.plot(np.asarray(cost), np.asarray(loss), "--", color=colour, label=new, linewidth=1.5, zorder=1)
    if predicted is not None:
        at, least, most = predicted
        ax.vlines(at, least, most, color=PALETTE["ink"], linewidth=7, alpha=0.35, label="predicted, 95 %", zorder=1)
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=ylim)
    _plain_numbers(ax)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=10)
    return figure


def _plain_numbers(ax: Axes) -> None:
    """Logarithmic axes whose ticks are numbers that one reads, at least three if there is room, round ones first."""
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        for steps in TICKS:
            ticks = [step * 10.0**power for power in range(-6, 13) for step in steps]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) >= 3:
                break
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter([f"{tick:,.10g}" for tick in ticks]))
        axis.set_minor_locator(NullLocator())
    ax.grid(color="#E5E5E5", linewidth=0.8)
