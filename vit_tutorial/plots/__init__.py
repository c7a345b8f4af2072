"""Every figure of the series. Functions take arrays (NumPy or torch), never a model, and return a matplotlib Figure
(:func:`mosaic` a picture for one).

:func:`show` puts a figure into a notebook with its alternative text and its caption, :func:`show_slider` several behind
a slider, :func:`show_attention`, :func:`show_matches` and :func:`show_clicks` photographs to touch, and
:func:`show_weighing` a query to drag.
"""

from vit_tutorial.plots.drawings import attention_flow, encoder_block, modern_blocks, tensor_map
from vit_tutorial.plots.encoder import stream_answers
from vit_tutorial.plots.figures import (
    confusion,
    curves,
    dots,
    five_steps,
    groups,
    heatmaps,
    matrices,
    overlays,
    patch_grid,
    pictures,
    steps,
    token_row,
)
from vit_tutorial.plots.grid import position_maps
from vit_tutorial.plots.hybrid import pipelines, runs_by_number, slopes
from vit_tutorial.plots.interactive import show_attention, show_clicks, show_matches
from vit_tutorial.plots.measured import hits_and_differences, intervals, loss_curves, right_answers, shares
from vit_tutorial.plots.mlp import unit_pictures
from vit_tutorial.plots.patch_sizes import patch_cost
from vit_tutorial.plots.positions import answers_to, arrows
from vit_tutorial.plots.scaling import law_curves
from vit_tutorial.plots.seeing import light_maps
from vit_tutorial.plots.shipping import costs_of_bits, few_bits, rounding
from vit_tutorial.plots.showing import show, show_slider
from vit_tutorial.plots.style import CYCLE, PALETTE
from vit_tutorial.plots.tokens import mosaic
from vit_tutorial.plots.weighing import show_weighing
from vit_tutorial.plots.words import share_table, two_towers

__all__ = [
    "CYCLE",
    "PALETTE",
    "answers_to",
    "arrows",
    "attention_flow",
    "confusion",
    "costs_of_bits",
    "curves",
    "dots",
    "encoder_block",
    "few_bits",
    "five_steps",
    "groups",
    "heatmaps",
    "hits_and_differences",
    "intervals",
    "law_curves",
    "light_maps",
    "loss_curves",
    "matrices",
    "modern_blocks",
    "mosaic",
    "overlays",
    "patch_cost",
    "patch_grid",
    "pictures",
    "pipelines",
    "position_maps",
    "right_answers",
    "rounding",
    "runs_by_number",
    "share_table",
    "shares",
    "show",
    "show_attention",
    "show_clicks",
    "show_matches",
    "show_slider",
    "show_weighing",
    "slopes",
    "steps",
    "stream_answers",
    "tensor_map",
    "token_row",
    "two_towers",
    "unit_pictures",
]
