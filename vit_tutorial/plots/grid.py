"""The figures of lesson 02."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vit_tutorial.plots.arrays import Array, as_array
from vit_tutorial.plots.style import PALETTE, styled


@styled
def position_maps(maps: Mapping[str, Array], place: tuple[int, int]) -> Figure:
    """The similarity of one patch's position with every other's, for several tables, all from -1 to 1.

    Args:
        maps: {title: cosines (rows, columns)}.
        place: row and column of the patch, which is outlined.
    """
    figure = Figure(figsize=(3.1 * len(maps) + 0.6, 2.9), layout="constrained")
    axes = figure.subplots(1, len(maps), squeeze=False)[0]
    for ax, (title, cosines) in zip(axes, maps.items(), strict=True):
        image = ax.imshow(as_array(cosines), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        corner = (place[1] - 0.5, place[0] - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, linewidth=2.5, edgecolor=PALETTE["ink"]))
        ax.set(title=title, xticks=[], yticks=[], xlabel="column", ylabel="row" if ax is axes[0] else "")
    figure.colorbar(image, ax=list(axes), label="cosine", shrink=0.9)
    return figure
