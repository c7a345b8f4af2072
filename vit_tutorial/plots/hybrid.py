"""The figures of lesson 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import NullFormatter

from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled

Kind = Literal["convolution", "cut", "attention", "head"]
FACES: dict[Kind, str] = {
    "convolution": PALETTE["value"],
    "cut": PALETTE["patch"],
    "attention": PALETTE["query"],
    "head": PALETTE["class"],
}


@styled
def runs_by_number(
    panels: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    *,
    xlabel: str = "",
    ylabel: str = "",
    columns: int = 4,
    ticks: Sequence[float] | None = None,
) -> Figure:
    """Repeated runs over a logarithmic axis: a small dot for each run, a line through the means, panels side by side.

    Panels of one row share their vertical axis.

    Args:
        panels: {title: {series: {number: the values of its runs}}}; a series keeps its colour in all panels.
        xlabel: what the number is.
        ylabel: with its unit.
        columns: panels a row.
        ticks: the numbers that stand on each axis; None: all of its panel.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    columns = min(columns, len(panels))
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
    ax.grid(color="#E5E5E5", linewidth=0.8)
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
        ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    for ax in axes[:, 0]:
        ax.set_ylabel(ylabel)
    lines = [line for ax in [*axes.flat][::-1] for line in ax.get_lines()]  # the first panel's last, so they count
    handles = {line.get_label(): line for line in lines if line.get_label() in names}
    figure.legend([handles[name] for name in names], names, loc="outside upper center", ncols=len(names))
    return figure


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
    box = FancyBboxPatch(
        (column + 0.06, row - 0.28),
        0.82,
        0.44,
        boxstyle="round,pad=0,rounding_size=0.06",
        facecolor=face,
        alpha=0.28,
        edgecolor=PALETTE["muted"],
    )
    ax.add_patch(box)
    ax.text(column + 0.47, row - 0.06, text, ha="center", va="center", fontsize=9.5)
    ax.text(column + 0.47, row + 0.3, shape, ha="center", va="center", fontsize=9, color=PALETTE["muted"])
