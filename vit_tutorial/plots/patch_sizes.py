"""The figures of lesson 01."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from vit_tutorial.plots.arrays import Array, as_picture, draw, draw_grid
from vit_tutorial.plots.style import PALETTE, styled


@styled
def patch_cost(image: Array, patch_size: int, costs: Mapping[int, float]) -> Figure:
    """An image under the grid of one patch size, and beside it what each size costs.

    Args:
        image: (C, H, W), in [0, 1].
        patch_size: P, one of ``costs``; it is highlighted.
        costs: {P: multiply-accumulates of the whole model}.
    """
    H, W = as_picture(image).shape[:2]
    figure = Figure(figsize=(7.4, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.5])
    draw(left, image, f"{H // patch_size} × {W // patch_size} patches")
    draw_grid(left, (H, W), (patch_size, patch_size), width=0.9 if patch_size > 8 else 0.4)
    colours = [PALETTE["query"] if size == patch_size else PALETTE["muted"] for size in costs]
    names = [f"P = {size}" for size in costs]
    bars = right.barh(names, [cost / 1e9 for cost in costs.values()], color=colours, height=0.7)
    right.bar_label(bars, [f"{cost / 1e9:.1f}" for cost in costs.values()], padding=4)
    right.invert_yaxis()
    right.set(xlabel="billion multiply-accumulates per image", xlim=(0, 1.15 * max(costs.values()) / 1e9))
    right.tick_params(axis="y", length=0)
    return figure
