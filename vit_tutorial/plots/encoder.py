"""The figures of lesson 05."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import Array, as_array, draw
from vit_tutorial.plots.style import CYCLE, WIDTH, styled


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
