"""Matrices are drawn with their numbers, and on one scale."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from vit_tutorial import plots


def images_of(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(image.get_array()) for ax in figure.axes for image in ax.get_images()]


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize("place", [(0, 0), (2, 5)])
def test_position_maps_share_a_scale_and_outline_the_patch(place):
    maps = {"before": torch.eye(8) / 2, "after": -torch.eye(8)}
    axes = plots.position_maps(maps, place).axes[:2]
    assert [ax.get_title() for ax in axes] == ["before", "after"]
    for ax, expected in zip(axes, maps.values(), strict=True):
        (image,) = ax.get_images()
        assert np.allclose(image.get_array(), expected)
        assert image.get_clim() == (-1, 1)
        assert ax.patches[0].get_xy() == (place[1] - 0.5, place[0] - 0.5)


def test_heatmaps_share_a_scale() -> None:
    a, b = torch.arange(6.0).reshape(2, 3), -2 * torch.arange(6.0).reshape(2, 3)
    figure = plots.heatmaps([a, b], ["a", "b"], symmetric=True, xlabel="key", ylabel="query")
    np.testing.assert_allclose(images_of(figure)[1], b)
    assert {image.get_clim() for ax in figure.axes[:2] for image in ax.get_images()} == {(-10, 10)}
    plain = plots.heatmaps([a, b])
    assert {image.get_clim() for ax in plain.axes[:2] for image in ax.get_images()} == {(-10, 5)}
    limited = plots.heatmaps([a, b], limits=(0, 1))
    assert {image.get_clim() for ax in limited.axes[:2] for image in ax.get_images()} == {(0, 1)}


def test_matrices_writes_the_numbers() -> None:
    figure = plots.matrices([np.eye(2), np.array([[0.25, 1.0]])], ["A", "B"], signs=["@"], roles=["query", "key"])
    assert texts_of(figure) == ["A", "@", "B", "1", "0", "0", "1", "0.25", "1.00"]


def test_matrices_writes_a_minus_sign_not_a_hyphen() -> None:
    assert texts_of(plots.matrices([[[-1, 2]], [[-0.25, 1.0]]])) == ["−1", "2", "−0.25", "1.00"]


def test_groups_colours_cells_by_member_and_writes_the_numbers() -> None:
    figure = plots.groups([[[1, 2]], [[3]]], [[[0, 1]], [[0]]], ["a", "b"], signs=["→"])
    assert texts_of(figure) == ["a", "→", "b", "1", "2", "3"]
    first, second, third = (cell.get_facecolor()[:3] for cell in figure.axes[0].patches)
    assert first == third != second


def test_confusion_writes_every_count_that_is_not_zero_and_shades_mistakes_alone() -> None:
    figure = plots.confusion(torch.tensor([[9, 1], [0, 12]]), ["cat", "dog"])
    assert texts_of(figure) == ["9", "1", "12"]
    np.testing.assert_array_equal(images_of(figure)[0], [[0, 1], [0, 0]])
    ax = figure.axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["cat", "dog"]
    assert "true" in ax.get_ylabel()
