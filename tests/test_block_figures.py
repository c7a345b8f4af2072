"""The figures of lessons 03 to 05: what is drawn is what was passed in."""

import numpy as np
import torch

from vit_tutorial import plots


def test_contributions_are_drawn_as_they_are() -> None:
    few, many = torch.tensor([8.0, 2.0, 1.0]), torch.tensor([900.0, 3.0, 0.01])
    (ax,) = plots.contributions(few, many).axes
    assert [line.get_ydata().tolist() for line in ax.get_lines()] == [[8.0, 2.0, 1.0], [900.0, 3.0, np.float32(0.01)]]
    assert ax.get_yscale() == "log"


def test_looks_share_one_scale_and_frame_the_query() -> None:
    image, faint = torch.full((3, 8, 8), 0.5), torch.zeros(2, 4, 4)
    faint[:, 1, 2] = 1.0  # uniform
    strong = faint * 10
    axes = plots.looks(image, [strong, faint], ["trained", "untrained"], query=6).axes
    drawn = [np.asarray(ax.get_images()[0].get_array()) for ax in axes]
    assert not np.allclose(drawn[0][2, 4], drawn[2][2, 4])  # ten times the weight is another colour
    np.testing.assert_allclose(drawn[0][0, 0], drawn[2][0, 0])  # where nothing is looked at, both are alike
    assert [ax.get_title() for ax in axes] == [
        "head 1, most 10 ×", "head 2, most 10 ×", "head 1, most 1 ×", "head 2, most 1 ×"
    ]  # fmt: skip
    assert axes[0].patches[0].get_xy() == (3.5, 1.5)  # patch 6 is in row 1, column 2


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
