"""Every figure of the series. Functions take arrays (NumPy or torch), never a model, and return a matplotlib Figure
(:func:`mosaic` a picture for one).

:func:`show` puts a figure into a notebook with its alternative text and its caption, :func:`show_slider` several behind
a slider, :func:`show_attention`, :func:`show_matches` and :func:`show_clicks` photographs to touch, and
:func:`show_weighing` a query to drag.
"""

from vit_tutorial.plots.curves import curves, law_curves, loss_curves, runs_by_number, slopes
from vit_tutorial.plots.drawings import attention_flow, encoder_block, modern_blocks, tensor_map
from vit_tutorial.plots.interactive import show_attention, show_clicks, show_matches
from vit_tutorial.plots.matrices import confusion, groups, heatmaps, matrices, percent_table, position_maps
from vit_tutorial.plots.measured import (
    dots,
    hits_and_differences,
    intervals,
    right_answers,
    stacked_bars,
)
from vit_tutorial.plots.picture_and_chart import answers_to, few_bits, five_steps, patch_cost, stream_answers
from vit_tutorial.plots.pictures import (
    light_maps,
    mosaic,
    patch_grid,
    pictures,
    token_row,
    unit_pictures,
)
from vit_tutorial.plots.schemes import arrows, pipelines, rounding, steps, two_towers
from vit_tutorial.plots.showing import show, show_slider
from vit_tutorial.plots.style import CYCLE, PALETTE
from vit_tutorial.plots.weighing import show_weighing

__all__ = [
    "CYCLE",
    "PALETTE",
    "answers_to",
    "arrows",
    "attention_flow",
    "confusion",
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
    "patch_cost",
    "patch_grid",
    "percent_table",
    "pictures",
    "pipelines",
    "position_maps",
    "right_answers",
    "rounding",
    "runs_by_number",
    "show",
    "show_attention",
    "show_clicks",
    "show_matches",
    "show_slider",
    "show_weighing",
    "slopes",
    "stacked_bars",
    "steps",
    "stream_answers",
    "tensor_map",
    "token_row",
    "two_towers",
    "unit_pictures",
]
