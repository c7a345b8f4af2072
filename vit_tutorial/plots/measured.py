"""Figures of measurements: right answers, means with their intervals, and what a whole is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

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
    figure = Figure(figsize=(7.5, 0.42 * len(rows) + 1.1), layout="constrained")
    ax = figure.add_subplot()
    for index, name in enumerate(series):
        offset = 0.22 * (index - (len(series) - 1) / 2)
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
    ax.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    if len(series) > 1:
        figure.legend(loc="outside upper center", ncols=len(series), fontsize=10)
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
        ax.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    return figure


@styled
def shares(wholes: Mapping[str, Mapping[str, float]]) -> Figure:
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
    ax.set(xlim=(0, 100), ylim=(len(wholes) - 0.5, -0.5), xlabel="share (%)")
    ax.tick_params(axis="y", length=0)
    ax.spines[:].set_visible(False)
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
    ax.grid(color="#E5E5E5", linewidth=0.8)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
