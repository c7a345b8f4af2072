"""The figures of lessons 03 to 05: what is drawn is what was passed in."""

import numpy as np
import torch

from vit_tutorial import plots


def test_unit_pictures_has_a_row_for_each_unit() -> None:
    pictures = torch.rand(2, 3, 3, 8, 8)
    (ax,) = plots.unit_pictures(list(pictures), ["unit 7", "unit 9"]).axes
    sheet = ax.get_images()[0].get_array()
    np.testing.assert_allclose(sheet[10:18, 20:28], pictures[1, 2].permute(1, 2, 0))  # 2 pixels between two
    assert [label.get_text() for label in ax.get_yticklabels()] == ["unit 7", "unit 9"]


def test_stream_answers_draws_a_chart_beside_each_picture() -> None:
    pictures = list(torch.rand(2, 3, 4, 4))
    axes = plots.stream_answers(pictures, ["a", "b"], torch.tensor([[0.25, 0.75], [0.5, 0.125]])).axes
    np.testing.assert_allclose(axes[2].get_images()[0].get_array(), pictures[1].permute(1, 2, 0))
    assert [[bar.get_width() for bar in ax.patches] for ax in axes[1::2]] == [[0.25, 0.75], [0.5, 0.125]]
    assert all(ax.get_xlim() == (0, 1) for ax in axes[1::2])
