"""The figures of lesson 11: what is drawn is what was passed in."""

import numpy as np
import torch
from matplotlib.colors import to_rgba

from vit_tutorial import plots


def test_paired_runs_draws_both_settings_of_each_row() -> None:
    runs = {"none": ([50.0, 52.0], [51.0, 53.0]), "1-D": ([80.0, 82.0, 84.0], [90.0, 92.0, 97.0])}
    figure = plots.paired_runs(runs, ("one rate", "its own"), xlabel="accuracy (%)")
    (ax,) = figure.axes
    drawn = [tuple(map(float, line.get_xdata())) for line in ax.get_lines()]
    assert drawn == [(50, 52), (80, 82, 84), (51, 53), (90, 92, 97)]
    means = [float(bar.get_segments()[0][0, 0]) for bar in ax.collections]
    assert means == [51, 82, 52, 93]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["none", "1-D"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one rate", "its own"]
    first, _, second, _ = (line.get_ydata()[0] for line in ax.get_lines())
    assert first < 0 < second  # above and below the row's middle


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
