"""Figures: what is drawn is what was passed in."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from vit_tutorial import plots


def images_of(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(image.get_array()) for ax in figure.axes for image in ax.get_images()]


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.fixture
def photo() -> torch.Tensor:
    return torch.rand(3, 8, 12, generator=torch.Generator().manual_seed(0))


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


def test_pictures_draws_the_pixels(photo: torch.Tensor) -> None:
    figure = plots.pictures([photo, photo.mean(0)], ["colour", "grey"])
    colour, grey = images_of(figure)
    np.testing.assert_allclose(colour, photo.permute(1, 2, 0))
    np.testing.assert_allclose(grey, photo.mean(0)[..., None].expand(-1, -1, 3))
    assert [ax.get_title() for ax in figure.axes] == ["colour", "grey"]


@pytest.mark.parametrize("shape", [(8, 12, 3), (2, 8, 12), (1, 3, 8, 12)])
def test_pictures_refuses_what_is_no_image(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(C, H, W\) with 1 or 3 channels"):
        plots.pictures([torch.zeros(shape)])


def test_patch_grid_draws_lines_between_patches(photo: torch.Tensor) -> None:
    figure = plots.patch_grid(photo, (4, 6), numbers=range(4), highlight={3: "class"})
    horizontal, vertical = (lines.get_segments() for lines in figure.axes[0].collections)
    assert [segment[0][1] for segment in horizontal] == [-0.5, 3.5, 7.5]
    assert [segment[0][0] for segment in vertical] == [-0.5, 5.5, 11.5]
    assert texts_of(figure) == ["0", "1", "2", "3"]
    (box,) = figure.axes[0].patches
    assert box.get_xy() == (5.5, 3.5)  # type: ignore[attr-defined]
    assert box.get_edgecolor() == to_rgba(plots.PALETTE["class"])


def test_token_row_shows_the_first_and_the_last() -> None:
    patches = torch.rand(20, 3, 2, 2)
    drawn = images_of(plots.token_row(patches))
    np.testing.assert_allclose(drawn[-1], patches[19].permute(1, 2, 0))
    labels = [ax.get_xlabel() for ax in plots.token_row(patches).axes]
    assert labels == [*map(str, range(10)), "…  18", "19"]
    assert [ax.get_xlabel() for ax in plots.token_row(patches, indices=[4, 5, 9]).axes] == ["4", "5", "…  9"]


def test_overlays_are_a_table_of_maps(photo: torch.Tensor) -> None:
    even, corner = torch.full((2, 3), 0.5), torch.zeros(2, 3)
    corner[0, 0] = 1.0
    figure = plots.overlays([photo, photo], {"a": [even, corner], "b": [corner, even]}, ["x", "y"])
    assert [ax.get_title() for ax in figure.axes[:2]] == ["x", "y"]
    assert [ax.get_ylabel() for ax in figure.axes[::2]] == ["image", "a", "b"]
    drawn = images_of(figure)
    assert len(drawn) == 6
    np.testing.assert_array_equal(drawn[2], drawn[5])
    np.testing.assert_array_equal(drawn[3], drawn[4])


def test_heatmaps_share_a_scale() -> None:
    a, b = torch.arange(6.0).reshape(2, 3), -2 * torch.arange(6.0).reshape(2, 3)
    figure = plots.heatmaps([a, b], ["a", "b"], symmetric=True, xlabel="key", ylabel="query")
    np.testing.assert_allclose(images_of(figure)[1], b)
    assert {image.get_clim() for ax in figure.axes[:2] for image in ax.get_images()} == {(-10, 10)}
    plain = plots.heatmaps([a, b])
    assert {image.get_clim() for ax in plain.axes[:2] for image in ax.get_images()} == {(-10, 5)}


def test_matrices_writes_the_numbers() -> None:
    figure = plots.matrices([np.eye(2), np.array([[0.25, 1.0]])], ["A", "B"], signs=["@"], roles=["query", "key"])
    assert texts_of(figure) == ["A", "@", "B", "1", "0", "0", "1", "0.25", "1.00"]


def test_curves_draws_the_points() -> None:
    figure = plots.curves([1, 10], {"a": [1.0, 2.0], "b": torch.tensor([3.0, 4.0])}, log="x", marks={"here": (1, 2)})
    lines = figure.axes[0].get_lines()
    np.testing.assert_allclose(lines[1].get_ydata(), [3, 4])
    assert [line.get_label() for line in lines[:2]] == ["a", "b"]
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[0].get_yscale() == "linear"
    assert "here" in texts_of(figure)


def test_five_steps_draws_the_tensors_in_order() -> None:
    photo, tokens = torch.rand(3, 8, 8), torch.randn(4, 6)
    embedded, attention = torch.randn(5, 6), torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    figure = plots.five_steps(photo, 4, tokens, embedded, attention, {"cat": 0.7, "dog": 0.3})
    drawn = images_of(figure)
    np.testing.assert_allclose(drawn[0], photo.permute(1, 2, 0))
    np.testing.assert_allclose(drawn[1], tokens, rtol=1e-6)
    np.testing.assert_allclose(drawn[2], embedded, rtol=1e-6)
    assert [bar.get_width() for bar in figure.axes[4].patches] == [0.7, 0.3]  # type: ignore[attr-defined]


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


def test_dots_draws_every_run_and_the_median() -> None:
    figure = plots.dots({"a": [1.0, 1.0, 4.0], "b": [2.0]}, interval=(0.0, 3.0), label="chance")
    ax: Any = figure.axes[0]
    assert [line.get_xdata()[0] for line in ax.lines] == [1.0, 1.0, 4.0, 2.0]
    heights = [line.get_ydata()[0] for line in ax.lines]
    assert heights[0] != heights[1]  # equal values stand above each other
    assert (heights[0], heights[2], heights[3]) == (0.0, 0.0, 1.0)
    assert [bar.get_segments()[0][0][0] for bar in ax.collections] == [1.0, 2.0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["chance"]


def test_hits_and_differences_draw_each_row_but_the_reference() -> None:
    hits, differences = {"right": 9, "a": 8, "b": 2}, {"right": 0.0, "a": 0.01, "b": 3.0}
    left, right = plots.hits_and_differences(hits, differences, total=10, bound=1e-10).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["a", "b"]
    assert list(left.lines[0].get_xdata()) == [9, 9]
    assert list(left.lines[1].get_xdata()) == [8, 2]
    assert list(right.lines[0].get_xdata()) == [1e-10, 1e-10]
    assert list(right.lines[1].get_xdata()) == [0.01, 3.0]
