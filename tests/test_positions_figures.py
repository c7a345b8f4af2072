"""Figures of lessons 09, 11 and 15: what is drawn is what was passed in."""

import numpy as np
import torch
from matplotlib.colors import to_rgba

from vit_tutorial import plots


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


def test_arrows_go_from_the_middle_to_the_vectors_in_the_roles_colours() -> None:
    vectors = {"query": torch.tensor([2.0, 1.0]), "key": torch.tensor([-1.0, 0.5])}
    figure = plots.arrows(vectors, "score -1.5")
    (axes,) = figure.axes
    assert [(arrow.xy, arrow.xyann) for arrow in axes.texts] == [((2.0, 1.0), (0, 0)), ((-1.0, 0.5), (0, 0))]
    colours = [to_rgba(plots.PALETTE[role]) for role in ("query", "key")]
    assert [arrow.arrow_patch.get_edgecolor() for arrow in axes.texts] == colours
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["query", "key"]
    assert axes.get_title() == "score -1.5"
