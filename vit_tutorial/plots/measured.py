"""Measurements, a row or a bar for each: right answers, means with their intervals, what a whole is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vit_tutorial.plots.arrays import as_array
from vit_tutorial.plots.style import CYCLE, PALETTE, styled

MARKERS = ("o", "s", "D", "^", "v")


@styled
def right_answers(counts: Mapping[str, int | Sequence[int]], *, images: int, chance: float) -> Figure:
    """How many pictures a model names correctly, a bar for each change, on an axis from none to all pictures.

    Args:
        counts: {change: its count, or one for each draw}; of several the bar is the mean, and a line goes from the
            lowest to the highest. The first bar, the model as it was trained, has a colour of its own.
        images: how many there are.
        chance: how many guessing gets right: a dotted line.
    """
    figure = Figure(figsize=(7.5, 0.42 * len(counts) + 0.9), layout="constrained")
    ax = figure.add_subplot()
    for row, values in enumerate(np.atleast_1d(count) for count in counts.values()):
        ax.barh(row, values.mean(), height=0.66, color=PALETTE["key" if row else "query"])
        if len(values) > 1:
            ax.plot([values.min(), values.max()], [row, row], color=PALETTE["ink"], linewidth=1.6)
        ax.text(values.max() + 0.012 * images, row, f"{values.mean():.0f}", va="center", fontsize=10)
    ax.axvline(chance, color=PALETTE["ink"], linestyle=":", linewidth=1.5)
    ax.text(chance, -0.62, "chance", ha="center", va="bottom", fontsize=9)
    ax.set_yticks(range(len(counts)), list(counts))
    ax.set(xlim=(0, images), ylim=(len(counts) - 0.5, -0.6), xlabel=f"right of {images}")
    ax.tick_params(axis="y", length=0)
    return figure


@styled
def intervals(
    rows: Mapping[str, Mapping[str, tuple[float, float | tuple[float, float]]]],
    *,
    xlabel: str = "",
    reference: float | None = 0.0,
) -> Figure:
    """Means with their intervals, a row for each name, a marker for each series.

    Args:
        rows: {label: {series: (mean, half of the interval, or how far it reaches to the left and to the right)}}; a
            series keeps its colour in all rows.
        xlabel: with its unit.
        reference: where a thin line stands, such as no difference; None for no line.
    """
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    height = max(0.42, 0.12 * len(series))  # of a row, in inches
    apart = min(0.22, 0.88 / len(series))  # two series of a row; the next row stays clear
    figure = Figure(figsize=(7.5, height * len(rows) + 1.1), layout="constrained")
    ax = figure.add_subplot()
    for index, name in enumerate(series):
        offset = apart * (index - (len(series) - 1) / 2)
        here = [(y + offset, *row[name]) for y, row in enumerate(rows.values()) if name in row]
        places, middles, reach = zip(*here, strict=True)
        sides = np.array([np.broadcast_to(each, 2) for each in reach]).T  # (2, rows)
        marker = MARKERS[index % len(MARKERS)]
        ax.errorbar(middles, places, xerr=sides, fmt=marker, color=CYCLE[index % len(CYCLE)], label=name, markersize=6)
    if reference is not None:
        ax.axvline(reference, color=PALETTE["muted"], linewidth=1.0, zorder=0)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    if len(series) > 1:
        figure.legend(loc="outside upper center", ncols=len(series), fontsize=10)
    return figure


@styled
def dots(
    values: Mapping[str, Sequence[float]],
    *,
    xlabel: str = "",
    interval: tuple[float, float] | None = None,
    label: str = "",
) -> Figure:
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
    ax.grid(axis="x")
    if label:
        figure.legend(loc="outside upper right", fontsize=10)
    return figure


@styled
def hits_and_differences(
    hits: Mapping[str, int], differences: Mapping[str, float], *, total: int, bound: float
) -> Figure:
    """What counting answers shows and what comparing logits shows, a row for each name; the first is the reference.

    Args:
        hits: {name: correct answers}.
        differences: {name: largest difference of a logit from the reference's}.
        total: how many answers there are.
        bound: the largest difference that rounding explains.
    """
    reference, *names = hits
    rows = range(len(names))
    figure = Figure(figsize=(8.5, 0.36 * len(names) + 1.1), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.axvline(hits[reference], color=PALETTE["muted"], linestyle="--")
    left.plot([hits[name] for name in names], rows, "o", color=PALETTE["query"])
    left.set(xlim=(0, total), xlabel=f"correct answers of {total}")
    right.axvline(bound, color=PALETTE["muted"], linestyle="--")
    right.semilogx([differences[name] for name in names], rows, "o", color=PALETTE["query"])
    right.set(xlim=(bound / 10, 1e3), xlabel="largest difference of a logit")
    for ax in (left, right):
        ax.set_yticks(rows, names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
    return figure


@styled
def stacked_bars(wholes: Mapping[str, Mapping[str, float]]) -> Figure:
    """What each whole is made of: a bar from 0 to 100 % for each, parts in the same order and colour.

    Args:
        wholes: {label of the bar: {part: amount}}.
    """
    parts = list(dict.fromkeys(part for whole in wholes.values() for part in whole))
    figure = Figure(figsize=(7.5, 0.62 * len(wholes) + 1.2), layout="constrained")
    ax = figure.add_subplot()
    for y, whole in enumerate(wholes.values()):
        left, total = 0.0, sum(whole.values())
        for part, amount in whole.items():
            width = 100 * amount / total
            ax.barh(y, width, left=left, height=0.6, color=CYCLE[parts.index(part)], edgecolor="white")
            if width >= 5:
                ax.text(left + width / 2, y, f"{width:.0f} %", ha="center", va="center", color="white", fontsize=10)
            left += width
    handles = [Patch(color=CYCLE[index]) for index in range(len(parts))]
    figure.legend(handles, parts, loc="outside upper center", ncols=3, fontsize=10)
    ax.set_yticks(range(len(wholes)), list(wholes))
    ax.set(xlim=(0, 100), ylim=(len(wholes) - 0.5, -0.5), xlabel="of the whole (%)")
    ax.tick_params(axis="y", length=0)
    ax.spines[:].set_visible(False)
    return figure
