"""Lesson 14: a power law with its interval, models in proportion."""

import ast
import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import vit_tutorial as vt
from vit_tutorial import plots
from vit_tutorial.analysis.scaling import EXPONENTS, PowerLaw, fit_law, fit_lines, interval, predict, scale_config

ROOT = Path(__file__).resolve().parent.parent
COST = np.array([1.7, 4.6, 9.9, 30.0, 77.0])
BASE = vt.ViTConfig(image_size=32, patch_size=4, num_classes=10, dim=64, depth=4, num_heads=4, mlp_dim=128)


def noisy(law, cost, share, seed):
    return law(cost) * np.exp(share * np.random.default_rng(seed).standard_normal(len(cost)))


@given(st.floats(0.1, 5), st.integers(5, 200), st.floats(0, 2))
def test_a_law_without_noise_is_found_again(a, hundredths, c):
    law = PowerLaw(a, hundredths / 100, c)
    found = fit_law(COST, law(COST))
    assert found.b == pytest.approx(law.b)
    assert (found.a, found.c) == pytest.approx((a, c), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_fit_is_scipys(seed):
    """Relative errors of a x^-b + c, bounded at zero; ours takes b to two digits, so it may miss by next to nothing."""
    losses = noisy(PowerLaw(1.0, 0.4, 0.9), COST, 0.02, seed)

    def misses(abc):
        return PowerLaw(*abc)(COST) / losses - 1

    theirs = optimize.least_squares(misses, (1.0, 0.5, 0.5), bounds=((0, 0.01, 0), (np.inf, 3, np.inf)), xtol=1e-12)
    ours = fit_law(COST, losses)
    mine = math.sqrt(np.mean(misses((ours.a, ours.b, ours.c)) ** 2))
    best = math.sqrt(np.mean(theirs.fun**2))
    assert best - 1e-9 <= mine < best + 1e-4


@given(st.lists(st.floats(0.1, 10), min_size=5, max_size=5))
def test_neither_part_of_a_loss_is_below_zero(losses):
    a, c, error = fit_lines(COST, np.array(losses), EXPONENTS)
    assert (a >= 0).all()
    assert (c >= 0).all()
    assert np.isfinite(error).all()


def test_a_steeper_fall_than_any_floor_allows_has_a_floor_of_zero():
    losses = 3 - 0.5 * np.log(COST)  # concave in log-log: a line with c > 0 can't bend this way
    law = fit_law(COST, losses)
    assert law.c == 0
    assert law.a > 0


def test_losses_that_grow_with_cost_are_no_law():
    law = fit_law(COST, 1 + COST / 100)
    assert law.a == 0


def test_the_interval_is_of_the_laws_that_were_drawn():
    found = predict(COST, noisy(PowerLaw(1.2, 0.4, 0.8), COST, 0.02, 3), 20.0, draws=200)
    assert found.exponent == interval([law.b for law in found.laws])
    assert found.floor == interval([law.c for law in found.laws])
    assert found.law.b == fit_law(COST, noisy(PowerLaw(1.2, 0.4, 0.8), COST, 0.02, 3)).b


def test_runs_are_drawn_again_with_a_deviation_that_is_drawn_first():
    losses = noisy(PowerLaw(1.2, 0.4, 0.8), COST, 0.02, 3)
    law, random = fit_law(COST, losses), np.random.default_rng(7)
    squares = np.sum(np.log(losses / law(COST)) ** 2)
    deviations = np.sqrt(squares / random.chisquare(2, 10))  # five runs, three fitted numbers
    again = law(COST) * np.exp(deviations[:, None] * random.standard_normal((10, 5)))
    laws = [fit_law(COST, runs) for runs in again]
    chance = np.exp(deviations * random.standard_normal(10))
    found = predict(COST, losses, 147.0, draws=10, seed=7)
    assert [law.c for law in found.laws] == pytest.approx([law.c for law in laws], rel=1e-9)
    assert found.run == pytest.approx(interval([float(law(147.0)) * f for law, f in zip(laws, chance, strict=True)]))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_an_interval_cuts_off_alike_on_both_sides(values):
    assert interval(values) == pytest.approx(tuple(float(np.percentile(values, end)) for end in (2.5, 97.5)))


@pytest.mark.parametrize(
    ("factor", "depth", "dim", "heads", "mlp"),
    [(0.5, 2, 32, 2, 64), (0.75, 3, 48, 3, 96), (1, 4, 64, 4, 128), (2.5, 10, 160, 10, 320), (0.01, 1, 16, 1, 32)],
)
def test_all_sizes_grow_by_one_factor(factor, depth, dim, heads, mlp):
    config = scale_config(BASE, factor)
    assert (config.depth, config.dim, config.num_heads, config.mlp_dim) == (depth, dim, heads, mlp)
    assert (config.patch_size, config.image_size, config.num_classes) == ((4, 4), (32, 32), 10)


@pytest.mark.parametrize(
    ("cost", "losses", "words"),
    [
        ([1, 2, 3], [1, 2], ("(3,)", "(2,)", "the same length")),
        ([1, 2, 0], [1, 2, 3], ("costs", "positive", "0")),
        ([1, 2, 3], [1, 2, math.nan], ("losses", "nan")),
        ([1, 2, 2, 1], [1, 2, 3, 4], ("2 different costs", "3 or more")),
    ],
)
def test_runs_that_fix_no_law_are_refused(refuses, cost, losses, words):
    with refuses(ValueError, *words):
        fit_law(cost, losses)


def test_other_refusals(refuses):
    with refuses(ValueError, "3 runs", "at least 4"):
        predict([1, 2, 3], [3, 2, 1], 4)
    with refuses(ValueError, "new_cost must be positive and finite", "-16"):
        predict([1, 2, 4, 8], [4, 3, 2, 1.5], -16)
    for factor in (-1, math.inf):
        with refuses(ValueError, "positive, finite", str(factor)):
            scale_config(BASE, factor)


# ---- Figures -----------------------------------------------------------------------------------------------------


def test_a_law_is_drawn_through_its_runs():
    law = PowerLaw(1.0, 0.5, 0.5)
    figure = plots.law_curves(
        {"runs": (COST, law(COST))}, {"law": (COST, law(COST))}, xlabel="MACs", ylabel="loss",
        band=(COST, law(COST) - 0.1, law(COST) + 0.1), predicted=(147.0, 0.5, 0.7),
    )  # fmt: skip
    (ax,) = figure.axes
    dots, line = ax.lines
    assert np.array_equal(dots.get_ydata(), law(COST))
    assert np.array_equal(line.get_ydata(), law(COST))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["laws drawn again, 95 %", "runs", "law", "predicted, 95 %"]


def test_the_axis_of_a_figure_behind_a_slider_can_be_given():
    (ax,) = plots.law_curves({"runs": (COST, COST)}, xlabel="", ylabel="", ylim=(0.5, 400)).axes
    assert ax.get_ylim() == (0.5, 400)


# ---- The lesson --------------------------------------------------------------------------------------------------


def lesson(kind):
    notebook = json.loads((ROOT / "notebooks" / "14_how_it_scales.ipynb").read_text("utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def typed(name):
    """The value that a cell of the lesson assigns to a name."""
    for source in lesson("code"):
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return ast.literal_eval(node.value)
    raise AssertionError(f"no cell assigns {name}")


@pytest.mark.parametrize(("name", "part", "column"), [("runs", "before", "loss"), ("results", "curves", "unseen_loss")])
def test_the_losses_that_the_lesson_types_are_those_of_the_benchmark(name, part, column):
    with (ROOT / "benchmarks" / "scaling_scenes.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == part]
    if part == "curves":
        rows = [row for row in rows if row["budget"] == "18.0"]
    rows.sort(key=lambda row: (float(row["budget"]), int(row["seed"])))
    for size, losses in typed(name).items():
        assert losses == [float(row[column]) for row in rows if row["size"] == size]
