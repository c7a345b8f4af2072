"""Checks of lesson 12: a convolution as a matrix, what one place sees, a fair choice of rates, nine heads."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.checks.engine.exercise import Case, Exercise, Forbidden, Mistake, Observation
from vit_tutorial.checks.engine.functions import call, entries, normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.embeddings import Grid

_KNOWS = "What a convolution knows"
_RATE = "One rate for both."

Layer = tuple[int, int]  # kernel size, stride
Run = dict[str, Any]

# ---- With a pencil -----------------------------------------------------------------------------------------------

BIAS_NUMBERS = pencil(
    "bias_numbers",
    lesson="12",
    points=4,
    questions={
        "convolution": Question(648, "A kernel of 3 × 3 for each pair of an input and an output channel."),
        "patches": Question(4608, "E maps all the numbers of a patch, in all channels, to D numbers."),
        "convolution's work": Question(
            663552, "Each of its numbers is used once at each place of the map that comes out."
        ),
        "patches' work": Question(294912, "Each number of E is used once for each patch."),
        "matrix": Question(
            100,
            "A row has nine numbers, fewer for a place at the edge. Or: along one axis 3 · 4 - 2 pairs are neighbours.",
            _KNOWS,
            {
                144: Slip(
                    "nine numbers in each row",
                    "At the edge part of the kernel lies on the padding, which has no column.",
                )
            },
        ),
        "different": Question(9, "All places use the same kernel."),
        "field": Question(
            11,
            "Begin with 1. Each layer adds its kernel minus one, times all strides before it.",
            _KNOWS,
            {
                7: Slip(
                    "kernels that are added without strides",
                    "Behind a stride of 2, one place of the map counts as two pixels.",
                ),
                17: Slip("a layer's own stride counted", "A stride acts on the layers after it."),
            },
        ),
        "heads": Question(25, "One head for each place of the kernel."),
    },
)


# ---- A convolution as a matrix -----------------------------------------------------------------------------------


Place = Callable[[int, int, Grid], int | None]  # the number of the pixel at (y, x), or None outside the image


def _by_rows(y: int, x: int, size: Grid) -> int | None:
    return y * size[1] + x if 0 <= y < size[0] and 0 <= x < size[1] else None


def _by_number(y: int, x: int, size: Grid) -> int | None:
    number = y * size[1] + x
    return number if 0 <= number < math.prod(size) else None


def _conv_matrix(kernel: Tensor, size: Grid, place: Place = _by_rows) -> Tensor:
    k, before = len(kernel), len(kernel) // 2
    matrix = torch.zeros(math.prod(size), math.prod(size), dtype=kernel.dtype)
    for y, x, i, j in itertools.product(range(size[0]), range(size[1]), range(k), range(k)):
        column = place(y + i - before, x + j - before, size)
        if column is not None:
            matrix[y * size[1] + x, column] += kernel[i, j]
    return matrix


CONV_MATRIX = Exercise(
    name="conv_matrix",
    lesson="12",
    points=4,
    right=_conv_matrix,
    cases=lambda: [
        Case(f"a kernel of {k} × {k}, an image of {H} × {W}", (normal(k, k, seed=k), (H, W)))
        for k, H, W in [(3, 3, 4), (5, 5, 3), (3, 1, 4), (1, 2, 3)]
    ],
    tolerance=1e-6,  # the kernel's numbers are put into their places, as they are
    mistakes=(
        Mistake(
            name="a kernel that is flipped",
            says="That is the mathematicians' convolution. torch doesn't flip it: kernel[0, 0] meets the pixel above, "
            "on the left.",
            reread=_KNOWS,
            wrong=lambda kernel, size: _conv_matrix(kernel.flip(0, 1), size),
        ),
        Mistake(
            name="a border that wraps around",
            says="A pixel outside the image is 0: it has no column in the matrix.",
            reread=_KNOWS,
            wrong=functools.partial(_conv_matrix, place=lambda y, x, size: y % size[0] * size[1] + x % size[1]),
        ),
        Mistake(
            name="a border that goes on in the next row",
            says="The pixel to the right of a row's last one is outside. Check row and column separately, not the "
            "pixel's number.",
            reread=_KNOWS,
            wrong=functools.partial(_conv_matrix, place=_by_number),
        ),
    ),
)


# ---- What one place sees -----------------------------------------------------------------------------------------


def _receptive_field(layers: Sequence[Layer]) -> int:
    r = pixels = 1
    for k, s in layers:
        r += (k - 1) * pixels
        pixels *= s
    return r


def _field_cases() -> list[Case]:
    stacks: list[list[Layer]] = [
        [(3, 1), (3, 2), (3, 2)],
        [(3, 2), (5, 1), (3, 3), (2, 2), (3, 1)],
        [(7, 2), (3, 2), (1, 1), (3, 1)],
        [],
    ]
    return [Case(f"layers (kernel, stride): {layers}", (layers,)) for layers in stacks]


RECEPTIVE_FIELD = Exercise(
    name="receptive_field",
    lesson="12",
    points=3,
    right=_receptive_field,
    cases=_field_cases,
    tolerance=1e-9,  # pixels are counted
)


# ---- A fair comparison -------------------------------------------------------------------------------------------


def _runs(seed: int, models: Sequence[str], rates: Sequence[float], seeds: int) -> list[Run]:
    """Runs in mixed order, a quarter of them lost; the best by one run, or by the test images, isn't the best."""
    held = 60 + 8 * normal(len(models), len(rates), seeds, seed=seed)
    test = 0.5 * held + 6 * normal(len(models), len(rates), seeds, seed=seed + 100)
    runs = [
        {"model": name, "rate": rate, "seed": s, "held_out": held[m, r, s].item(), "test": test[m, r, s].item()}
        for m, name in enumerate(models)
        for r, rate in enumerate(rates)
        for s in range(seeds)
    ]
    order = torch.randperm(len(runs), generator=torch.Generator().manual_seed(seed)).tolist()
    return [runs[i] for i in order[: 3 * len(runs) // 4]]


def _mean(runs: Iterable[Run], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)


def _fair(runs: list[Run], chosen_by: str = "held_out") -> dict[str, tuple[float, float]]:
    choices = {}
    for name in sorted({run["model"] for run in runs}):
        by_rate: dict[float, list[Run]] = {}
        for run in runs:
            if run["model"] == name:
                by_rate.setdefault(run["rate"], []).append(run)
        rate = max(by_rate, key=lambda rate: _mean(by_rate[rate], chosen_by))
        choices[name] = (rate, _mean(by_rate[rate], "test"))
    return choices


def _one_rate(runs: list[Run]) -> dict[str, tuple[float, float]]:
    """The mistake: the rate that is best on average over the models, for all of them."""
    by_rate: dict[float, list[Run]] = {}
    for run in runs:
        by_rate.setdefault(run["rate"], []).append(run)
    rate = max(by_rate, key=lambda rate: _mean(by_rate[rate], "held_out"))
    return _fair(by_rate[rate])


def _of_each_model(submission: Any, case: Case) -> Observation:
    """The rate and the accuracy that the submission gives for each model."""
    observed = call(submission, case)
    pairs = entries(observed.result, sorted({run["model"] for run in case.args[0]}))
    observed.values = {f"the pair of {model!r}": pair for model, pair in pairs.items()}
    return observed


FAIR_COMPARISON = Exercise(
    name="fair_comparison",
    lesson="12",
    points=4,
    right=_fair,
    cases=lambda: [
        Case(f"{len(models)} models, {len(rates)} rates, {seeds} seeds", (_runs(seed, models, rates, seeds),))
        for seed, models, rates, seeds in [
            (1, ("resnet", "vit"), (0.001, 0.01, 0.1), 3),
            (2, ("hybrid vit", "vit", "vit-s"), (0.0003, 0.003, 0.03, 0.3), 4),
        ]
    ],
    observe=_of_each_model,
    tolerance=1e-6,
    mistakes=(
        Mistake(
            name="a rate that is chosen by the test images",
            says="A rate that is chosen on the test images looks better there than it is. Choose by held_out.",
            reread=_RATE,
            wrong=functools.partial(_fair, chosen_by="test"),
        ),
        Mistake(
            name="one rate for all models",
            says="A rate that suits one model may ruin another. Choose a rate for each model, from its own runs.",
            reread=_RATE,
            wrong=_one_rate,
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _nine(x: Tensor, weight: Tensor, grid: Grid, place: Place = _by_rows) -> Tensor:
    joined = x.new_zeros(())
    for i, j in itertools.product(range(3), range(3)):
        step = torch.zeros(3, 3)
        step[i, j] = 1
        joined = joined + _conv_matrix(step, grid, place) @ x @ weight[:, :, i, j].T  # (B, N, F)
    return joined


_BY_HAND = "this exercise asks you to do without torch's convolutions and unfold"
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_d", "conv_t", "convolution", "unfold", "im2col")


NINE_HEADS = Exercise(
    name="nine_heads",
    lesson="12",
    points=2,
    right=_nine,
    cases=lambda: [
        Case(
            f"x ({B}, {R * C}, {channels}), weight ({F}, {channels}, 3, 3), {R} rows, {C} columns",
            (normal(B, R * C, channels, seed=R), normal(F, channels, 3, 3, seed=C), (R, C)),
        )
        for B, R, C, channels, F in [(1, 3, 4, 2, 3), (2, 4, 3, 3, 2), (1, 1, 5, 2, 2), (3, 2, 1, 4, 1)]
    ],
    observe=functools.partial(call, differentiable=True),
    forbidden=(
        *(Forbidden(name, _BY_HAND) for name in _CONVOLUTIONS),
        Forbidden(F.unfold, _BY_HAND),  # a Python function, which nn.Unfold calls, too
    ),
    mistakes=(
        Mistake(
            name="a look in the other direction",
            says="Head (i, j) looks i - 1 rows down and j - 1 columns to the right: a 1 stands at [n, m] where patch "
            "m has this offset from patch n. Yours are transposed, and the kernel is flipped.",
            reread=_KNOWS,
            wrong=lambda x, weight, grid: _nine(x, weight.flip(2, 3), grid),
        ),
        Mistake(
            name="neighbours in the list of patches",
            says="The last patch of a row and the first of the next are neighbours only in the list. Compare rows "
            "and columns separately.",
            reread=_KNOWS,
            wrong=functools.partial(_nine, place=_by_number),
        ),
    ),
)
