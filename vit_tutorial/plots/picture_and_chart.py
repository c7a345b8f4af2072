"""Pictures with a chart at their side: what a model answers, what a patch size costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.arrays import Array, as_array, as_picture, draw, draw_grid, overlay
from vit_tutorial.plots.style import CYCLE, PALETTE, WIDTH, styled


@styled
def five_steps(
    image: Array, patch_size: int, tokens: Array, embedded: Array, attention: Array, scores: Mapping[str, float]
) -> Figure:
    """A photograph's way through a ViT, a panel for each of the five steps.

    Args:
        image: (C, H, W), in [0, 1].
        patch_size: P, in pixels.
        tokens: (N, D), after the linear embedding.
        embedded: (N + 1, D), with the class token and the positions.
        attention: (rows, columns), from the class token to the patches.
        scores: {class: probability}.
    """
    picture = as_picture(image)
    H, W = picture.shape[:2]
    figure = Figure(figsize=(WIDTH * 1.25, 3.1), layout="constrained")
    axes = figure.subplots(1, 5)
    for ax in axes:  # as tall as the pictures, and their tops in one line
        ax.set_box_aspect(H / W)
        ax.set_anchor("N")
    draw(axes[0], image)
    draw_grid(axes[0], (H, W), (patch_size, patch_size))
    for ax, array in ((axes[1], as_array(tokens)), (axes[2], as_array(embedded))):
        most = np.quantile(np.abs(array), 0.98)
        ax.imshow(array, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        ax.set(xticks=[], yticks=[], ylabel=f"{len(array)} tokens", xlabel=f"width D = {array.shape[1]}")
        ax.spines[:].set_visible(False)
    # One row of 197 would be a hairline: a band of its own above the matrix stands for the class token.
    band = 0.06 * len(array)
    axes[2].set_ylim(len(array) - 0.5, -0.5 - band)
    axes[2].add_patch(Rectangle((-0.5, -0.5 - band), array.shape[1], band, facecolor=PALETTE["class"], linewidth=0))
    middle = (array.shape[1] / 2, -0.5 - band / 2)
    axes[2].text(*middle, "class token", ha="center", va="center", fontsize=9, color="white")
    draw(axes[3], overlay(picture, as_array(attention)))
    axes[4].barh(list(scores), list(scores.values()), color=PALETTE["query"], height=0.7)
    axes[4].invert_yaxis()
    axes[4].set(xlabel="probability", xlim=(0, 1))
    axes[4].tick_params(axis="y", length=0)
    names = ("1  patches", "2  linear embedding", "3  class token, positions", "4  encoder", "5  head")
    for ax, name in zip(axes, names, strict=True):
        ax.set_title(name, weight="bold", loc="left", fontsize=10.5)
    return figure


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


@styled
def answers_to(image: Any, accuracies: Mapping[str, float], *, marked: str = "") -> Figure:
    """A changed picture, and bars: how often a model is right when all pictures are changed like it.

    A dashed line stands at 10 %, what guessing among ten classes gives.

    Args:
        image: (C, H, W) or (H, W), in [0, 1].
        accuracies: {model or change: percent}.
        marked: the bar in another colour.
    """
    figure = Figure(figsize=(WIDTH * 0.75, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 2.2))
    left.imshow(as_picture(image), interpolation="nearest")
    left.set_axis_off()
    colours = [PALETTE["key" if name == marked else "query"] for name in accuracies]
    bars = right.barh(list(accuracies), list(accuracies.values()), color=colours, height=0.7)
    right.bar_label(bars, [f"{value:.0f}" for value in accuracies.values()], padding=4, fontsize=10)
    right.axvline(10, color=PALETTE["ink"], linestyle="--", linewidth=1.2)
    right.invert_yaxis()
    right.set(xlim=(0, 105), xlabel="accuracy (%)")
    right.tick_params(axis="y", length=0)
    return figure


@styled
def few_bits(
    values: Any, levels: Any, images: Sequence[Any], answers: Sequence[str], right: Sequence[bool], *, limit: float
) -> Figure:
    """One setting of a slider over bits: a histogram with its levels, and what the rounded model answers.

    Args:
        values: (n,), before they are rounded.
        levels: (m,), the numbers that there are codes for.
        images: each (C, H, W), in [0, 1].
        answers: the class that the model names for each.
        right: whether that is the image's class.
        limit: of the histogram's axis, on both sides.
    """
    figure = Figure(figsize=(WIDTH * 0.85, 2.9), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    ax = parts[0].subplots()
    ax.hist(np.asarray(values), bins=np.linspace(-limit, limit, 81), color=PALETTE["patch"])
    width = 1.2 if len(levels) < 50 else 0.4
    ax.vlines(np.asarray(levels), 0, 0.07, transform=ax.get_xaxis_transform(), color=PALETTE["key"], linewidth=width)
    ax.set(xlim=(-limit, limit), xlabel="weight", ylabel="weights per bin")
    rows = parts[1].subplots(2, len(images) // 2)
    for cell, image, answer, good in zip(rows.flat, images, answers, right, strict=True):
        cell.imshow(as_picture(image), interpolation="nearest")
        cell.set_title(answer, fontsize=10, color=PALETTE["ink" if good else "key"])
        cell.set_axis_off()
    return figure
