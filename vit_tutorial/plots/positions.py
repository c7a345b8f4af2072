"""The figures of lesson 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import as_picture
from vit_tutorial.plots.style import PALETTE, WIDTH, styled


@styled
def paired_runs(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], labels: tuple[str, str], *, xlabel: str = ""
) -> Figure:
    """Each row's runs in two settings, one above the other: a dot for each run, a bar at the mean.

    Args:
        runs: {row: (the runs in the first setting, in the second)}.
        labels: what the two settings are.
        xlabel: with its unit.
    """
    figure = Figure(figsize=(WIDTH * 0.75, 0.62 * len(runs) + 1.3), layout="constrained")
    ax = figure.add_subplot()
    for setting, (label, role) in enumerate(zip(labels, ("muted", "query"), strict=True)):
        for row, pair in enumerate(runs.values()):
            height = row + (0.16 if setting else -0.16)
            name = label if row == 0 else "_"
            ax.plot(pair[setting], [height] * len(pair[setting]), "o", color=PALETTE[role], label=name, alpha=0.85)
            ax.vlines(float(np.mean(pair[setting])), height - 0.15, height + 0.15, color=PALETTE["key"], zorder=3)
    ax.set_yticks(range(len(runs)), list(runs))
    ax.set(xlabel=xlabel, ylim=(len(runs) - 0.5, -0.5))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    figure.legend(loc="outside upper right", ncols=2, fontsize=10)
    return figure


@styled
def answers_to(image: Any, accuracies: Mapping[str, float], *, chance: float = 10.0, marked: str = "") -> Figure:
    """A changed picture, and bars: how often a model is right when all pictures are changed like it.

    Args:
        image: (C, H, W) or (H, W), in [0, 1].
        accuracies: {model or change: percent}.
        chance: where a dashed line says what guessing gives, in percent.
        marked: the bar in another colour.
    """
    figure = Figure(figsize=(WIDTH * 0.75, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 2.2))
    left.imshow(as_picture(image), interpolation="nearest")
    left.set_axis_off()
    colours = [PALETTE["key" if name == marked else "query"] for name in accuracies]
    bars = right.barh(list(accuracies), list(accuracies.values()), color=colours, height=0.7)
    right.bar_label(bars, [f"{value:.0f}" for value in accuracies.values()], padding=4, fontsize=10)
    right.axvline(chance, color=PALETTE["ink"], linestyle="--", linewidth=1.2)
    right.invert_yaxis()
    right.set(xlim=(0, 105), xlabel="accuracy (%)")
    right.tick_params(axis="y", length=0)
    return figure
