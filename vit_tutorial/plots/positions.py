"""Figures of lessons 09, 11 and 15."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import as_array, as_picture, bare
from vit_tutorial.plots.style import PALETTE, WIDTH, styled


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


@styled
def arrows(vectors: Mapping[str, Any], title: str = "", *, reach: float = 2.5) -> Figure:
    """Arrows from one point in the plane, as many as the palette's roles query and key.

    Args:
        vectors: {name: two numbers}, the query first.
        title: above them.
        reach: how far the plane goes in each direction.
    """
    figure = Figure((3.4, 3.6))
    ax = figure.add_axes((0.02, 0.14, 0.96, 0.76))
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title=title)
    for (name, vector), role in zip(vectors.items(), ("query", "key"), strict=True):
        x, y = as_array(vector)
        style = {"arrowstyle": "-|>", "color": PALETTE[role], "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x, y), (0, 0), arrowprops=style)
        ax.plot([], [], color=PALETTE[role], linewidth=2.5, label=name)
    ax.axhline(0, color="#DDDDDD", linewidth=1, zorder=0)
    ax.axvline(0, color="#DDDDDD", linewidth=1, zorder=0)
    bare(ax)
    figure.legend(loc="lower center", ncols=2, frameon=False)
    return figure
