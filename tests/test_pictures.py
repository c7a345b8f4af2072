"""Pictures and the charts at their side: what is drawn is what was passed in."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from vit_tutorial import plots

PHOTO = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))


def images_of(figure: Figure) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(image.get_array()) for ax in figure.axes for image in ax.get_images()]


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.fixture
def photo() -> torch.Tensor:
    return torch.rand(3, 8, 12, generator=torch.Generator().manual_seed(0))


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


def test_patch_cost_draws_the_grid_and_marks_its_size():
    costs = {16: 4e9, 8: 20e9}
    left, right = plots.patch_cost(PHOTO, 8, costs).axes
    assert left.get_title() == "4 × 4 patches"
    horizontal, vertical = (lines.get_segments() for lines in left.collections)
    assert [len(horizontal), len(vertical)] == [5, 5]
    assert [bar.get_width() for bar in right.patches] == [4, 20]
    one, other = (bar.get_facecolor() for bar in right.patches)
    assert one != other
    assert plots.patch_cost(PHOTO, 16, costs).axes[1].patches[0].get_facecolor() == other


def test_answers_to_draws_the_picture_and_a_bar_for_each_model() -> None:
    image = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
    left, right = plots.answers_to(image, {"none": 40.0, "CNN": 95.5}, marked="CNN").axes
    assert np.allclose(np.asarray(left.get_images()[0].get_array())[..., 0], image[0].numpy())
    assert [bar.get_width() for bar in right.patches] == [40.0, 95.5]
    colours = [to_rgba(plots.PALETTE[role]) for role in ("query", "key")]
    assert [bar.get_facecolor() for bar in right.patches] == colours
    assert right.get_xlim()[0] == 0
    assert [text.get_text() for text in right.texts] == ["40", "96"]
    assert right.get_lines()[0].get_xdata()[0] == 10


@pytest.mark.parametrize("channels", [1, 3])
def test_mosaic_gives_patches_of_one_token_their_mean_colour(channels):
    image = torch.full((channels, 8, 16), 0.5)
    image[:, :4, :4], image[:, :4, 4:8] = 0.2, 0.6  # the first two patches: token 1, with one of the second row
    owner = torch.tensor([[1, 1, 0, 3], [2, 1, -1, 3]])
    drawn = plots.mosaic(image, owner)  # (3, 8, 16)
    assert drawn.shape == (3, 8, 16)
    mean = (0.2 + 0.6 + 0.5) / 3
    assert np.allclose(drawn[:, 1:4, :8], mean)  # no line within a token
    assert np.allclose(drawn[:, 1:8, 5:8], mean)
    assert np.allclose(drawn[:, 5:8, 1:4], 0.5)
    assert (drawn[:, :, 8] == 1).all()  # a line between tokens
    assert (drawn[:, 4:, 8:12] == 1).all()  # dropped


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


def test_five_steps_draws_the_tensors_in_order() -> None:
    photo, tokens = torch.rand(3, 8, 8), torch.randn(4, 6)
    embedded, attention = torch.randn(5, 6), torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    figure = plots.five_steps(photo, 4, tokens, embedded, attention, {"cat": 0.7, "dog": 0.3})
    drawn = images_of(figure)
    np.testing.assert_allclose(drawn[0], photo.permute(1, 2, 0))
    np.testing.assert_allclose(drawn[1], tokens, rtol=1e-6)
    np.testing.assert_allclose(drawn[2], embedded, rtol=1e-6)
    assert [bar.get_width() for bar in figure.axes[4].patches] == [0.7, 0.3]  # type: ignore[attr-defined]
