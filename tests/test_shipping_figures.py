"""The figures of lesson 18 show the numbers that they are given."""

import numpy as np
import torch
from matplotlib.colors import to_rgba

from vit_tutorial import plots


def test_rounding_joins_each_value_to_its_nearest_level():
    (ax,) = plots.rounding([-0.6, 0.4, 1.5], {"coarse": [-1.0, 0.0, 1.0], "fine": [-0.5, 0.5, 1.5]}).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["coarse", "fine"]
    joins = [line.get_xdata() for line in ax.get_lines() if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"]
    assert np.allclose(joins, [(-0.6, -1), (0.4, 0), (1.5, 1), (-0.6, -0.5), (0.4, 0.5), (1.5, 1.5)])


def test_few_bits_draws_weights_levels_and_answers():
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    figure = plots.few_bits(
        [0.1, -0.2, 0.1], [-0.2, 0.0, 0.2], images, list("abcd"), [True, False, True, True], limit=0.3
    )
    histogram, *pictures = figure.axes
    assert sum(bar.get_height() for bar in histogram.patches) == 3
    assert [segment[0, 0] for segment in histogram.collections[0].get_segments()] == [-0.2, 0.0, 0.2]
    assert [ax.get_title() for ax in pictures] == list("abcd")
    colours = [to_rgba(ax.title.get_color()) for ax in pictures]
    assert colours == [to_rgba(plots.PALETTE[role]) for role in ("ink", "key", "ink", "ink")]


def test_costs_of_bits_has_a_panel_a_model_and_an_interval_a_point():
    panels = {
        "one": {"rows": {8: (0.0, 0.3), 4: (-1.0, 0.5)}, "tensor": {8: (0.1, 0.2), 4: (-5.0, 1.0)}},
        "two": {"rows": {8: (0.0, 0.1), 4: (-2.0, 0.4)}},
    }
    one, two = plots.costs_of_bits(panels).axes
    assert (one.get_title(), two.get_title()) == ("one", "two")
    assert one.get_xlim()[0] > one.get_xlim()[1]  # from many bits to few
    (line, _, (bars,)), _ = one.containers
    assert np.allclose(line.get_ydata(), [0.0, -1.0])
    assert np.allclose([segment[:, 1] for segment in bars.get_segments()], [(-0.3, 0.3), (-1.5, -0.5)])
