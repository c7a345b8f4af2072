"""Schemes: the current steps are lit, boxes have their shapes, arrows go where the numbers say."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from vit_tutorial import plots


def images_of(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(image.get_array()) for ax in figure.axes for image in ax.get_images()]


def test_arrows_go_from_the_middle_to_the_vectors_in_the_roles_colours() -> None:
    vectors = {"query": torch.tensor([2.0, 1.0]), "key": torch.tensor([-1.0, 0.5])}
    figure = plots.arrows(vectors, "score -1.5")
    (axes,) = figure.axes
    assert [(arrow.xy, arrow.xyann) for arrow in axes.texts] == [((2.0, 1.0), (0, 0)), ((-1.0, 0.5), (0, 0))]
    colours = [to_rgba(plots.PALETTE[role]) for role in ("query", "key")]
    assert [arrow.arrow_patch.get_edgecolor() for arrow in axes.texts] == colours
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["query", "key"]
    assert axes.get_title() == "score -1.5"


def test_rounding_joins_each_value_to_its_nearest_level():
    (ax,) = plots.rounding([-0.6, 0.4, 1.5], {"coarse": [-1.0, 0.0, 1.0], "fine": [-0.5, 0.5, 1.5]}).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["coarse", "fine"]
    joins = [line.get_xdata() for line in ax.get_lines() if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"]
    assert np.allclose(joins, [(-0.6, -1), (0.4, 0), (1.5, 1), (-0.6, -0.5), (0.4, 0.5), (1.5, 1.5)])


def test_pipelines_have_each_part_and_its_shape():
    figure = plots.pipelines(
        {"ViT": [("cut", "(4, 8)", "cut"), ("head", "(3,)", "head")], "CNN": [("conv", "(2, 2)", "convolution")]}
    )
    texts = [text.get_text() for text in figure.axes[0].texts if text.get_text()]
    assert texts == ["ViT", "cut", "(4, 8)", "head", "(3,)", "CNN", "conv", "(2, 2)"]
    assert len(figure.axes[0].patches) == 3


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


@pytest.mark.parametrize(("current", "lit"), [(1, {1}), ((1, 2), {1, 2}), ((), set())])
def test_steps_lights_the_current_ones(current: Any, lit: set[int]) -> None:
    boxes = [box for box in plots.steps(current).axes[0].patches if type(box).__name__ == "FancyBboxPatch"]
    assert {
        index + 1 for index, box in enumerate(boxes) if box.get_facecolor() == to_rgba(plots.PALETTE["query"])
    } == lit


def test_steps_lights_one_part_of_the_encoder() -> None:
    white = to_rgba("white")
    parts = [box for box in plots.steps(4, part="MLP").axes[0].patches if type(box).__name__ == "Rectangle"]
    assert [box.get_facecolor() == white for box in parts] == [False, True]
    parts = [box for box in plots.steps(4).axes[0].patches if type(box).__name__ == "Rectangle"]
    assert [box.get_facecolor() == white for box in parts] == [True, True]
