"""The figures of lesson 19 show which patches share a token, and the numbers that they were given."""

import numpy as np
import pytest
import torch

from vit_tutorial import plots


@pytest.mark.parametrize("channels", [1, 3])
def test_token_groups_colours_patches_that_share_a_token_and_no_others(channels):
    image = torch.full((channels, 4, 8), 0.5)
    owner = torch.tensor([[1, 1, 0, 3], [2, 1, -1, 3]])
    figure = plots.token_groups([image, image], [owner, owner])
    drawn = figure.axes[2].get_images()[0].get_array()[::2, ::2]  # a pixel for each patch: (2, 4, 3)
    assert np.allclose(drawn[0, 0], drawn[0, 1])
    assert np.allclose(drawn[0, 0], drawn[1, 1])
    assert np.allclose(drawn[0, 3], drawn[1, 3])
    assert not np.allclose(drawn[0, 0], drawn[0, 3], atol=0.1)
    for alone in (drawn[0, 2], drawn[1, 0]):
        assert np.ptp(alone) == 0 < alone[0] < 1  # grey
    assert (drawn[1, 2] == 1).all()


def test_points_lost_draws_each_way_in_its_row():
    found = {
        "merge": {"before": (-12.0, 2.0), "after": (-1.0, 1.0)},
        "drop": {"before": (-30.0, 3.0), "after": (-2, 1)},
    }
    figure = plots.points_lost({"one": found, "two": found})
    for ax in figure.axes:
        for drawn, series in zip(ax.containers, ("before", "after"), strict=True):
            x, rows = drawn.lines[0].get_data()
            assert list(x) == [found[way][series][0] for way in found]
            assert np.asarray(rows, float).round().tolist() == [0, 1]
            bar = drawn.lines[2][0].get_segments()[0]  # of the first way
            assert np.allclose(
                bar[:, 0], np.add(found["merge"][series][0], [-1, 1] * np.array(found["merge"][series][1]))
            )
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["merge", "drop"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["before", "after"]


def test_points_lost_of_one_series_has_no_legend():
    assert not plots.points_lost({"one": {"merge": {"": (-1.0, 0.5)}}}).legends


def test_by_block_starts_at_the_first_block():
    figure = plots.by_block({"a": {"x": [1, 2, 3], "y": [5, 6]}, "b": {"x": [7, 8]}}, first=1, ylabel="%")
    x, y = figure.axes[0].get_lines()
    assert (list(x.get_xdata()), list(x.get_ydata())) == ([1, 2, 3], [1, 2, 3])
    assert (list(y.get_xdata()), list(y.get_ydata())) == ([1, 2], [5, 6])
    assert figure.axes[1].get_lines()[0].get_color() == x.get_color() != y.get_color()
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_time_and_loss_names_each_form_at_its_point():
    forms = {"merge": (0.7, -20.0, 1.0), "two blocks": (0.5, -5.0, 2.0)}
    (ax,) = plots.time_and_loss({"shapes": forms}, ours=["merge"]).axes
    assert {text.get_text(): text.xy for text in ax.texts} == {"merge": (0.7, -20.0), "two blocks": (0.5, -5.0)}
    points = {drawn.lines[0].get_color(): drawn.lines[0].get_data() for drawn in ax.containers}
    assert [tuple(map(float, (x[0], y[0]))) for x, y in points.values()] == [(0.7, -20.0), (0.5, -5.0)]
