"""Every figure of the series. Functions take arrays (NumPy or torch), never a model, and return a matplotlib Figure.

:func:`show` puts a figure into a notebook with its alternative text and its caption, :func:`show_slider` several behind
a slider.
"""

from vit_tutorial.plots.drawings import attention_flow, encoder_block, modern_blocks, tensor_map
from vit_tutorial.plots.figures import (
    attention_over_image,
    bars,
    confusion,
    cost,
    curves,
    dots,
    filters,
    five_steps,
    groups,
    head_split,
    heatmaps,
    matrices,
    overlays,
    patch_grid,
    pictures,
    position_similarity,
    steps,
    token_row,
)
from vit_tutorial.plots.hybrid import pipelines, runs_by_number
from vit_tutorial.plots.scaling import law_curves
from vit_tutorial.plots.showing import show, show_slider
from vit_tutorial.plots.style import CYCLE, PALETTE

__all__ = [
    "CYCLE",
    "PALETTE",
    "attention_flow",
    "attention_over_image",
    "bars",
    "confusion",
    "cost",
    "curves",
    "dots",
    "encoder_block",
    "filters",
    "five_steps",
    "groups",
    "head_split",
    "heatmaps",
    "law_curves",
    "matrices",
    "modern_blocks",
    "overlays",
    "patch_grid",
    "pictures",
    "pipelines",
    "position_similarity",
    "runs_by_number",
    "show",
    "show_slider",
    "steps",
    "tensor_map",
    "token_row",
]
