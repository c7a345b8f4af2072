"""The figures of lesson 16: that each class has its colour."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from vit_tutorial import plots
from vit_tutorial.plots.style import CYCLE


def test_a_mask_has_its_classes_colours_and_leaves_the_ground_grey():
    image, mask = torch.ones(3, 4, 6), torch.zeros(4, 6, dtype=torch.long)
    mask[1, 2], mask[3, 5] = 1, 2
    figure = plots.class_maps([image, image], {"mask": [mask, mask]}, ["disc", "ring"])
    scene, _, drawn, _ = [ax.get_images()[0].get_array() for ax in figure.axes]
    assert np.array_equal(scene, np.ones((4, 6, 3)))
    assert drawn[1, 2].tolist() == pytest.approx(to_rgb(CYCLE[0]))
    assert drawn[3, 5].tolist() == pytest.approx(to_rgb(CYCLE[1]))
    assert drawn[0, 0].tolist() == pytest.approx([1, 1, 1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["disc", "ring"]


def test_layer_curves_have_a_line_for_each_model_and_a_legend_where_series_have_names():
    panels = {"where": {"": [[10, 60], [20, 50]]}, "what": {"on it": [[20, 70]], "elsewhere": [[12, 80]]}}
    where, what = plots.by_layer(panels, ["embedding", "block 1"], chance={"what": 12.5}).axes
    assert [line.get_ydata().tolist() for line in where.get_lines()] == [[10, 60], [20, 50]]
    assert len({line.get_color() for line in where.get_lines()}) == 1
    assert where.get_legend() is None
    assert [text.get_text() for text in what.get_legend().get_texts()] == ["on it", "elsewhere"]
    assert list(what.get_lines()[-1].get_ydata()) == [12.5, 12.5]
    assert where.get_ylim() == (0, 100)
