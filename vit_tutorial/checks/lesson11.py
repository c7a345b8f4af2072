"""Checks of lesson 11: positions in two halves, offsets from patch to patch, and attention with a bias."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import call, normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.embeddings import Grid
from vit_tutorial.variants import positions as lesson
from vit_tutorial.variants.modern import position_bias_index

_HALVES = "A table, or two halves"
_WAYS = "Offsets instead of places"
_FROM_J = "The offset from j to i."
_LIST = "A list instead of a grid."
_AFTER = "A bias after the softmax."


# ---- With a pencil -----------------------------------------------------------------------------------------------

POSITION_NUMBERS = pencil(
    "position_numbers",
    lesson="11",
    points=4,
    tolerance=0.001,  # ln 3 may be taken as 1.1
    questions={
        "1-D": Question(48, "One vector of D numbers for each patch."),
        "2-D": Question(
            20,
            "A vector of D / 2 numbers for each row, and one for each column.",
            _HALVES,
            {40: Slip("whole vectors for rows and columns", "Each has half the width: D / 2 = 4 numbers.")},
        ),
        "sine-cosine": Question(0, "How many of its numbers does training change?"),
        "offsets": Question(
            15,
            "Down, a patch can lie -1, 0 or 1 rows from another. And how many columns?",
            _WAYS,
            {
                36: Slip(
                    "pairs counted in place of offsets",
                    "36 pairs share far fewer offsets: 3 down times 5 to the right.",
                )
            },
        ),
        "pairs": Question(4, "In each row, count the patches that have a neighbour to the right."),
        "vector": Question([1, 2, 5, 6], "The row's half comes first, then the column's."),
        "weights": Question(
            [0.75, 0.25],
            "Add the bias to the scores, and take the softmax. e to the power of ln 3 is 3.",
            _AFTER,
            {
                (0.5 + math.log(3), 0.5): Slip(
                    "a bias added to the weights",
                    "Add the bias to the scores, before the softmax: the weights must sum to 1.",
                )
            },
        ),
        "biases": Question(180, "A number for each offset and each head; and each layer has its own."),
    },
)


# ---- Two halves --------------------------------------------------------------------------------------------------


def _halves(row: Tensor, column: Tensor) -> Tensor:
    rows = row.repeat_interleave(len(column), dim=0)
    return torch.cat([rows, column.repeat(len(row), 1)], dim=1)  # (R * C, D)


TWO_D_POSITIONS = Exercise(
    name="two_d_positions",
    lesson="11",
    points=4,
    right=_halves,
    cases=lambda: [
        Case(f"{R} rows, {C} columns, D = {D}", (normal(R, D // 2, seed=1), normal(C, D // 2, seed=2)))
        for R, C, D in [(2, 3, 4), (3, 2, 2), (4, 4, 6), (1, 5, 2)]
    ],
    observe=functools.partial(call, differentiable=True),
    forbidden=(lesson.GridPosition,),
    mistakes=(
        Mistake(
            name="the column's half first",
            says="The first D / 2 numbers are the row's.",
            reread=_HALVES,
            wrong=lambda row, column: _halves(row, column).roll(column.shape[1], -1),
        ),
        Mistake(
            name="patches counted down the columns",
            says="Patches go row by row: the column changes fastest.",
            reread=_HALVES,
            wrong=lambda row, column: _halves(row, column).unflatten(0, (len(row), -1)).transpose(0, 1).flatten(0, 1),
        ),
    ),
)


# ---- Offsets from patch to patch ---------------------------------------------------------------------------------


def _listed(grid: Grid) -> Tensor:
    """Offsets along the list of patches."""
    n = torch.arange(math.prod(grid))
    return n - n[:, None] + len(n) - 1


def _offsets(grid: Grid, a_row: int) -> Tensor:
    """The offsets with another number of them in a row."""
    rows, columns = (x.flatten() for x in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    down, right = rows - rows[:, None] + grid[0] - 1, columns - columns[:, None] + grid[1] - 1
    return down * a_row + right


OFFSET_INDEX = Exercise(
    name="offset_index",
    lesson="11",
    points=4,
    right=lesson.relative_position_index,
    cases=lambda: [Case(f"{R} rows, {C} columns", ((R, C),)) for R, C in ((2, 3), (3, 2), (5, 1), (8, 10))],
    forbidden=(position_bias_index,),
    mistakes=(
        Mistake(
            name="offsets from j to i",
            says="Entry [i, j] is the offset from patch i to patch j: the place of j minus the place of i.",
            reread=_FROM_J,
            wrong=lambda grid: lesson.relative_position_index(grid).T,
        ),
        Mistake(
            name="differences in the list of patches",
            says="The last patch of a row and the first of the next are neighbours only in the list. Separate rows "
            "and columns first.",
            reread=_LIST,
            wrong=_listed,
        ),
        Mistake(
            name="a step down that counts too few",
            says="From one row of offsets to the next there are 2 · columns - 1 of them, not 2 · rows - 1.",
            reread=_WAYS,
            wrong=lambda grid: _offsets(grid, 2 * grid[0] - 1),
        ),
    ),
)


# ---- Attention with a bias ---------------------------------------------------------------------------------------


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / math.sqrt(q.shape[-1]) + bias).softmax(dim=-1)
    return weights @ v, weights


def _added_after(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    weights = _attend(q, k, v, torch.zeros_like(bias))[1] + bias
    return weights @ v, weights


def _attention_cases() -> list[Case]:
    cases = []
    for B, h, T, d in [(2, 3, 5, 2), (1, 2, 3, 4), (3, 3, 3, 3)]:
        q, k, v = (normal(B, h, T, d, seed=seed) for seed in (1, 2, 3))
        cases.append(Case(f"q, k, v {(B, h, T, d)}, bias {(h, T, T)}", (q, k, v, normal(h, T, T, seed=4))))
    hidden = normal(3, 3, 3, seed=8)
    hidden[:, :, 1] = -1e4  # nobody may look at token 1
    return [*cases, Case("a bias of -10,000 on token 1", (*cases[-1].args[:3], hidden))]


BIASED_ATTENTION = Exercise(
    name="biased_attention",
    lesson="11",
    points=3,
    right=_attend,
    cases=_attention_cases,
    mistakes=(
        Mistake(
            name="a bias after the softmax",
            says="Your weights don't sum to 1 any more. Add the bias to the scores, before the softmax.",
            reread=_AFTER,
            wrong=_added_after,
        ),
        Mistake(
            name="a bias from j to i",
            says="Entry [i, j] of the bias belongs to query i and key j, as the scores do. You add its transpose.",
            reread=_FROM_J,
            wrong=lambda q, k, v, bias: _attend(q, k, v, bias.mT),
        ),
        Mistake(
            name="scores that aren't divided by √d",
            says="Divide q kᵀ by the square root of d, then add the bias.",
            reread=_AFTER,
            wrong=lambda q, k, v, bias: _attend(math.sqrt(q.shape[-1]) * q, k, v, bias),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _bias(table: Tensor, grid: Grid, index: Callable[[Grid], Tensor] = lesson.relative_position_index) -> Tensor:
    N, many = grid[0] * grid[1], table.shape[1] - 3
    whole = torch.full((N + 1, N + 1), many + 2)
    whole[0, 1:], whole[1:, 0] = many, many + 1
    whole[1:, 1:] = index(grid)
    return table[:, whole]


RELATIVE_BIAS = Exercise(
    name="relative_bias",
    lesson="11",
    points=2,
    right=_bias,
    cases=lambda: [
        Case(f"{h} heads, {R} rows, {C} columns", (normal(h, (2 * R - 1) * (2 * C - 1) + 3), (R, C)))
        for h, R, C in [(2, 2, 3), (3, 3, 2), (1, 1, 4)]
    ],
    observe=functools.partial(call, differentiable=True),
    forbidden=(lesson.RelativeBias,),
    mistakes=(
        Mistake(
            name="offsets from j to i",
            says="Entry [i, j] is the offset from patch i to patch j: the place of j minus the place of i.",
            reread=_FROM_J,
            wrong=functools.partial(_bias, index=lambda grid: lesson.relative_position_index(grid).T),
        ),
        Mistake(
            name="differences in the list of patches",
            says="The last patch of a row and the first of the next are neighbours only in the list. Separate rows "
            "and columns first.",
            reread=_LIST,
            wrong=functools.partial(_bias, index=_listed),
        ),
    ),
)
