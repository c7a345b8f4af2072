"""The figures of lesson 03."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.arrays import Array, as_array, as_picture, draw, overlay
from vit_tutorial.plots.style import PALETTE, WIDTH, styled

MOST = 10.0  # times uniform: where the scale of looks() ends


@styled
def contributions(with_scale: Array, without: Array) -> Figure:
    """Each query's contribution to a gradient, largest first, on one axis for every width.

    Args:
        with_scale: (T,), positive, in falling order.
        without: (T,), the same without the scale.
    """
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    ax = figure.add_subplot()
    for name, values, dash in (("with √d", with_scale, "-"), ("without", without, "--")):
        ax.plot(range(1, len(values) + 1), as_array(values), dash, label=name)
    ax.set(xlabel="query, by the size of its contribution", ylabel="contribution", yscale="log", ylim=(1e-4, 1e5))
    ax.grid(color="#E5E5E5", linewidth=0.8)
    ax.legend(loc="lower left")
    return figure


@styled
def looks(image: Array, maps: Sequence[Array], names: Sequence[str], query: int) -> Figure:
    """Where a patch looks: a row a model, a column a head, all on one scale from 0 to ten times uniform.

    Args:
        image: (C, H, W), in [0, 1].
        maps: for each model (heads, rows, columns), multiples of uniform weights.
        names: one for each model.
        query: index of the patch that looks, framed.
    """
    picture = as_picture(image)
    H, W = picture.shape[:2]
    columns = len(maps[0])
    side = (WIDTH - 0.4) / columns
    figure = Figure(figsize=(WIDTH, len(maps) * (side * H / W + 0.3)), layout="constrained")
    axes = figure.subplots(len(maps), columns, squeeze=False)
    for name, heads, line in zip(names, maps, axes, strict=True):
        line[0].set_ylabel(name)
        for head, (ax, weights) in enumerate(zip(line, as_array(heads), strict=True)):
            draw(ax, overlay(picture, weights.clip(0, MOST), MOST), f"head {head + 1}, most {weights.max():.0f} ×")
            y, x = divmod(query, weights.shape[1])
            P, Q = H / weights.shape[0], W / weights.shape[1]
            corner = (x * Q - 0.5, y * P - 0.5)
            ax.add_patch(Rectangle(corner, Q, P, fill=False, linewidth=2.5, edgecolor=PALETTE["query"]))
    return figure
