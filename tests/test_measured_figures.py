"""Figures of lessons 06 to 08 and 17: what is drawn is what was passed in."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from vit_tutorial import plots


def images_of(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(image.get_array()) for ax in figure.axes for image in ax.get_images()]


def test_intervals_has_a_mean_and_both_ends_for_each_series() -> None:
    figure = plots.intervals({"a": {"x": (1.0, 0.5)}, "b": {"x": (3.0, 1.0), "y": (-2.0, 0.25)}}, xlabel="points")
    (ax,) = figure.axes
    means = [line.get_xdata().tolist() for line in ax.get_lines() if line.get_marker() in "os"]  # type: ignore[union-attr]
    ends = [segment[:, 0].tolist() for bars in ax.collections for segment in bars.get_segments()]  # type: ignore[attr-defined]
    assert means == [[1.0, 3.0], [-2.0]]
    assert ends == [[0.5, 1.5], [2.0, 4.0], [-2.25, -1.75]]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]


def test_right_answers_is_the_mean_of_the_draws_with_their_range() -> None:
    (ax,) = plots.right_answers({"whole": 161, "broken": [100, 104, 111]}, images=200, chance=20).axes
    assert [bar.get_width() for bar in ax.patches] == [161, 105]
    assert [list(line.get_xdata()) for line in ax.get_lines()] == [[100, 111], [20, 20]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["whole", "broken"]
    assert ax.get_xlim() == (0, 200)


def test_stacked_bars_add_up_to_a_hundred_and_keep_their_colours() -> None:
    (ax,) = plots.stacked_bars({"one": {"a": 1, "b": 3}, "two": {"a": 0, "b": 2, "c": 2}}).axes
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]  # type: ignore[attr-defined]
    assert bars == [(0, 25), (25, 75), (0, 0), (0, 50), (50, 50)]
    assert ax.patches[1].get_facecolor() == ax.patches[3].get_facecolor() != ax.patches[0].get_facecolor()
    assert [text.get_text() for text in ax.texts] == ["25 %", "75 %", "50 %", "50 %"]


def test_loss_curves_share_one_axis() -> None:
    for values in ([2.0, 1.0], [9.0, 8.0]):
        (ax,) = plots.loss_curves([1, 2], {"training": values}, most=5.0, guessing=2.3).axes
        assert ax.get_ylim() == (0, 5)
        assert ax.get_lines()[0].get_ydata().tolist() == values  # type: ignore[union-attr]
        assert ax.get_lines()[1].get_ydata()[0] == 2.3  # type: ignore[index]


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_light_maps_are_white_at_zero_and_darkest_at_their_largest(scale: float) -> None:
    heat = scale * torch.tensor([[0.0, 0.5], [0.25, 1.0]])
    _, drawn = images_of(plots.light_maps([torch.ones(3, 4, 4)], {"m": [heat]}))
    np.testing.assert_allclose(drawn[0, 0], 1.0)
    dark = drawn[::2, ::2].sum(axis=-1)
    assert dark[1, 1] < dark[0, 1] < dark[1, 0] < dark[0, 0]
    np.testing.assert_allclose(drawn[2:, 2:], np.broadcast_to(drawn[3, 3], (2, 2, 3)))


def test_light_maps_has_a_row_of_pictures_and_one_for_each_kind() -> None:
    picture = torch.rand(3, 4, 8, generator=torch.Generator().manual_seed(0))
    maps = {"a": [torch.ones(2, 4)] * 2, "b": [torch.ones(2, 4)] * 2}
    figure = plots.light_maps([picture] * 2, maps, ["x", "y"])
    drawn = images_of(figure)
    assert len(drawn) == 6
    np.testing.assert_allclose(drawn[0], picture.permute(1, 2, 0))
    assert [ax.get_title() for ax in figure.axes[:2]] == ["x", "y"]
    assert [ax.get_ylabel() for ax in figure.axes[::2]] == ["", "a", "b"]


def test_of_the_two_towers_each_picture_s_own_caption_stands_on_the_diagonal() -> None:
    pictures = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    cosines = [[0.11, 0.12, 0.13], [0.21, 0.22, 0.23], [0.31, 0.32, 0.33]]
    figure = plots.two_towers(list(pictures), ["a ring", "a star", "a disc"], cosines)
    for drawn, picture in zip(images_of(figure), pictures, strict=True):
        np.testing.assert_allclose(drawn, picture.permute(1, 2, 0))
    (axes,) = figure.axes
    places: dict[str, list[tuple[float, float]]] = {}
    for text in axes.texts:
        places.setdefault(text.get_text(), []).append(text.get_position())
    columns = [places[caption][0][0] for caption in ("a ring", "a star", "a disc")]
    rows = [(image.get_extent()[2] + image.get_extent()[3]) / 2 for image in axes.get_images()]
    for i, j in itertools.product(range(3), repeat=2):
        assert places[f"{cosines[i][j]:.2f}\n{'↑' if i == j else '↓'}"] == [(columns[j], rows[i])]
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
