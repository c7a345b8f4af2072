"""The figures of lesson 00."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import Array, as_array, as_picture, draw, overlay
from vit_tutorial.plots.style import PALETTE, WIDTH, styled


@styled
def before_and_after(image: Array, runs: Mapping[str, tuple[Array, Mapping[str, float]]]) -> Figure:
    """What several models look at in one photograph, and what they say: a row for each.

    Args:
        image: (C, H, W), in [0, 1].
        runs: {title: (attention (rows, columns), {class: probability})}; all attention has one scale.
    """
    picture = as_picture(image)
    most = max(float(as_array(attention).max()) for attention, _ in runs.values())
    figure = Figure(figsize=(0.8 * WIDTH, 2.5 * len(runs)), layout="constrained")
    table = figure.subplots(len(runs), 3, squeeze=False, width_ratios=[1, 1, 1.7])
    for (title, (attention, scores)), (seen, looks, says) in zip(runs.items(), table, strict=True):
        draw(seen, image, title)
        draw(looks, overlay(picture, as_array(attention), most), f"largest weight {as_array(attention).max():.3f}")
        says.barh(list(scores), list(scores.values()), color=PALETTE["query"], height=0.7)
        says.invert_yaxis()
        says.set(xlim=(0, 1))
        says.tick_params(axis="y", length=0, labelsize=9)
    table[-1][2].set_xlabel("probability")
    return figure
