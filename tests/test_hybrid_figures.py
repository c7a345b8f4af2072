"""The figures of lesson 12 show the numbers that they are given."""

import numpy as np
from matplotlib.colors import to_hex

from vit_tutorial import plots
from vit_tutorial.plots.style import CYCLE

PANELS = {
    "one": {"a": {10: [1.0, 3.0], 100: [5.0]}, "b": {100: [7.0], 10: [2.0]}},
    "two": {"b": {10: [4.0, 6.0]}},
}


def test_a_line_goes_through_the_means_and_each_run_is_a_dot():
    axes = plots.runs_by_number(PANELS, xlabel="images", ylabel="right (%)").axes
    one, two = axes[0], axes[1]
    lines = {line.get_label(): line for line in one.get_lines() if line.get_label() in ("a", "b")}
    assert np.allclose(lines["a"].get_xydata(), [[10, 2], [100, 5]])
    assert np.allclose(lines["b"].get_xydata(), [[10, 2], [100, 7]])
    dots = {tuple(point) for line in one.get_lines() if line.get_marker() == "o" for point in line.get_xydata()}
    assert dots == {(10, 1), (10, 3), (100, 5), (10, 2), (100, 7)}
    assert [one.get_title(), two.get_title(), one.get_xscale()] == ["one", "two", "log"]


def test_the_axis_names_the_numbers_of_its_panel_or_those_that_are_given():
    def labels(**options):
        return [
            [text.get_text() for text in ax.get_xticklabels()] for ax in plots.runs_by_number(panels, **options).axes
        ]

    panels = PANELS | {"rates": {"a": {0.003: [1.0], 45_000: [2.0]}}}
    assert labels() == [["10", "100"], ["10"], ["0.003", "45,000"]]
    assert labels(ticks=(10, 1000)) == 3 * [["10", "1,000"]]


def test_a_series_keeps_its_colour_in_every_panel():
    axes = plots.runs_by_number(PANELS).axes
    assert {to_hex(line.get_color()).upper() for line in axes[1].get_lines()} == {CYCLE[1].upper()}


def test_a_panel_that_is_left_over_is_empty():
    figure = plots.runs_by_number(PANELS | dict.fromkeys(("three", "four", "five"), PANELS["two"]))
    assert [ax.axison for ax in figure.axes] == [True] * 5 + [False] * 3


def test_slopes_have_a_dot_for_each_run_and_a_line_from_mean_to_mean():
    pairs = {"a": ([1.0, 3.0], [5.0]), "b": ([4.0], [6.0, 8.0])}
    one, two = plots.slopes({"one": pairs, "two": {"b": ([4.0], [])}}, ("before", "after")).axes
    lines = {line.get_label(): line for line in one.get_lines() if line.get_label() in pairs}
    assert np.allclose(lines["a"].get_xydata(), [[0, 2], [1, 5]])
    assert np.allclose(lines["b"].get_xydata(), [[0, 4], [1, 7]])
    dots = {tuple(point) for line in one.get_lines() if line.get_marker() == "o" for point in line.get_xydata()}
    assert dots == {(0, 1), (0, 3), (1, 5), (0, 4), (1, 6), (1, 8)}
    assert [text.get_text() for text in one.get_xticklabels()] == ["before", "after"]
    assert {to_hex(line.get_color()).upper() for line in two.get_lines()} == {CYCLE[1].upper()}
    assert [line.get_xydata().tolist() for line in two.get_lines() if line.get_label() == "b"] == [[[0, 4], [1, 4]]]


def test_pipelines_have_each_part_and_its_shape():
    figure = plots.pipelines(
        {"ViT": [("cut", "(4, 8)", "cut"), ("head", "(3,)", "head")], "CNN": [("conv", "(2, 2)", "convolution")]}
    )
    texts = [text.get_text() for text in figure.axes[0].texts if text.get_text()]
    assert texts == ["ViT", "cut", "(4, 8)", "head", "(3,)", "CNN", "conv", "(2, 2)"]
    assert len(figure.axes[0].patches) == 3
