"""The figures of lesson 05."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import Array, as_array, draw
from vit_tutorial.plots.style import CYCLE, WIDTH, styled


@styled
def by_rate(found: Mapping[str, Mapping[float, Sequence[float]]], chance: float) -> Figure:
    """Accuracy against the learning rate: a dot for each seed, a line through the means, from 0 to 100 %.

    Args:
        found: {name: {rate: accuracy of each seed, in percent}}.
        chance: what guessing gives, in percent.
    """
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    ax = figure.add_subplot()
    for (name, rates), colour, marker in zip(found.items(), CYCLE, "os^D", strict=False):
        ax.plot(list(rates), [np.mean(runs) for runs in rates.values()], color=colour, label=name)
        for rate, runs in rates.items():
            ax.plot([rate] * len(runs), list(runs), marker, color=colour, alpha=0.5, markersize=5)
    ax.axhline(chance, color="#222222", linestyle="--", linewidth=1.2, label="chance")
    ax.set(xlabel="learning rate", ylabel="right answers (%)", xscale="log", ylim=(0, 100))
    ax.grid(color="#E5E5E5", linewidth=0.8)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


@styled
def stream_answers(images: Sequence[Array], classes: Sequence[str], probabilities: Array) -> Figure:
    """Pictures, and beside each what the head reads at one place of the stream, as bars from 0 to 1.

    Args:
        images: each (C, H, W), in [0, 1].
        classes: K names.
        probabilities: (images, K).
    """
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    axes = figure.subplots(1, 2 * len(images), width_ratios=[0.75, 1] * len(images))
    for index, (image, values) in enumerate(zip(images, as_array(probabilities), strict=True)):
        picture, chart = axes[2 * index : 2 * index + 2]
        draw(picture, image)
        chart.barh(list(classes), values, color=CYCLE[0], height=0.7)
        chart.invert_yaxis()
        chart.set(xlim=(0, 1), xlabel="probability")
        chart.tick_params(axis="y", length=0)
    return figure
