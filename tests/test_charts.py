"""Lines, dots and bars stand where the numbers are."""

from typing import Any

import numpy as np
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from vit_tutorial import plots
from vit_tutorial.plots.style import CYCLE

PANELS = {
    "one": {"a": {10: [1.0, 3.0], 100: [5.0]}, "b": {100: [7.0], 10: [2.0]}},
    "two": {"b": {10: [4.0, 6.0]}},
}


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


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


def test_curves_draws_the_points() -> None:
    figure = plots.curves([1, 10], {"a": [1.0, 2.0], "b": torch.tensor([3.0, 4.0])}, log="x", marks={"here": (1, 2)})
    lines = figure.axes[0].get_lines()
    np.testing.assert_allclose(lines[1].get_ydata(), [3, 4])
    assert [line.get_label() for line in lines[:2]] == ["a", "b"]
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[0].get_yscale() == "linear"
    assert "here" in texts_of(figure)


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
