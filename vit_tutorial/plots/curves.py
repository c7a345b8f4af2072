"""Lines over an axis: losses, laws, and repeated runs over a number or between two settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from vit_tutorial.plots.arrays import Array, as_array
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled

MARKERS = "osD^vPX"
TICKS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))


@styled
def curves(
    x: Array,
    ys: Mapping[str, Array],
    *,
    xlabel: str = "",
    ylabel: str = "",
    log: str = "",
    marks: Mapping[str, tuple[float, float]] | None = None,
    markers: bool = False,
    height: float = 3.6,
) -> Figure:
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
    ax.grid()
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log")
    for text, point in (marks or {}).items():
        ax.plot(*point, "o", color=PALETTE["ink"], markersize=6)
        ax.annotate(text, point, xytext=(6, 6), textcoords="offset points", fontsize=10)
    if len(ys) > 1 or any(ys):
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


@styled
def loss_curves(steps: Any, losses: Mapping[str, Any], *, most: float, guessing: float, xlabel: str = "step") -> Figure:
    """Losses of one run over its steps, on an axis from 0 to ``most`` that is the same for every run.

    Args:
        steps: (n,).
        losses: {label: (n,)}, in nats.
        most: top of the axis; what lies above is cut off.
        guessing: the loss of guessing, log K: a dotted line.
        xlabel: what is counted along the axis.
    """
    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    ax = figure.add_subplot()
    for (name, values), dash in zip(losses.items(), ["-", "--", "-."], strict=False):
        ax.plot(steps, values, dash, label=name)
    ax.axhline(guessing, color=PALETTE["muted"], linestyle=":", linewidth=1.5)
    ax.set(xlabel=xlabel, ylabel="loss (nats)", ylim=(0, most), xlim=(0, None))
    ax.grid()
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


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
    ax.grid()


@styled
def runs_by_number(
    panels: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    *,
    xlabel: str = "",
    ylabel: str = "",
    ticks: Sequence[float] | None = None,
) -> Figure:
    """Repeated runs over a logarithmic axis: a small dot for each run, a line through the means.

    Panels stand four a row at most, and those of one row have one vertical axis.

    Args:
        panels: {title: {series: {number: the values of its runs}}}; a series keeps its colour in all panels.
        xlabel: what the number is.
        ylabel: with its unit.
        ticks: the numbers that stand on each axis; None: all of its panel.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(min(WIDTH, 3.6 * columns + 1.4), 3.3 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharey="row", squeeze=False)
    for ax, (title, panel) in zip(axes.flat, panels.items(), strict=False):
        _panel(ax, panel, names)
        at = sorted({x for series in panel.values() for x in series}) if ticks is None else ticks
        ax.set_xticks(at, [f"{x:,g}" for x in at])
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel if ax in axes[:, 0] else "")
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    handles = {line.get_label(): line for ax in axes.flat for line in ax.get_lines() if line.get_label() in names}
    figure.legend(list(handles.values()), list(handles), loc="outside right center")
    return figure


def _panel(ax: Axes, panel: Mapping[str, Mapping[float, Sequence[float]]], names: Sequence[str]) -> None:
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid()
    for name, series in panel.items():
        colour, numbers = CYCLE[names.index(name) % len(CYCLE)], sorted(series)
        ax.plot(numbers, [float(np.mean(series[x])) for x in numbers], color=colour, label=name)
        for x in numbers:
            ax.plot([x] * len(series[x]), series[x], "o", color=colour, alpha=0.6, markersize=5)


@styled
def slopes(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    settings: tuple[str, str],
    *,
    ylabel: str = "",
) -> Figure:
    """What a change does to each model: a dot for each run in both settings, a line from mean to mean.

    Panels stand three a row at most, each with its own vertical axis.

    Args:
        panels: {title: {series: (its runs in the first setting, in the second)}}; a series keeps its
            colour. Without runs in the second, a dotted line goes on at the level of the first.
        settings: what the two settings are.
        ylabel: with its unit.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    rows = -(-len(panels) // 3)
    columns = -(-len(panels) // rows)
    figure = Figure(figsize=(WIDTH, 0.6 + 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    for ax, (title, panel) in zip(axes.flat, panels.items(), strict=False):
        for name, pair in panel.items():
            colour = CYCLE[names.index(name) % len(CYCLE)]
            means = [float(np.mean(several or pair[0])) for several in pair]
            ax.plot((0, 1), means, "-" if pair[1] else ":", color=colour, label=name)
            for x, several in enumerate(pair):
                ax.plot([x] * len(several), several, "o", color=colour, alpha=0.6, markersize=5)
        ax.set_xticks((0, 1), settings)
        ax.set(title=title, xlim=(-0.35, 1.35))
        ax.grid(axis="y")
    for ax in axes[:, 0]:
        ax.set_ylabel(ylabel)
    lines = [line for ax in [*axes.flat][::-1] for line in ax.get_lines()]  # the first panel's last, so they count
    handles = {line.get_label(): line for line in lines if line.get_label() in names}
    figure.legend([handles[name] for name in names], names, loc="outside upper center", ncols=len(names))
    return figure
