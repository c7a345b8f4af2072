"""Checks of lesson 11: positions in two halves, ways from patch to patch, and attention with a bias."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial import positions as lesson
from vit_tutorial.checks.harness import Case, Exercise, Mistake, Slip, answers, call, check, normal

__all__ = [
    "check_biased_attention",
    "check_offset_index",
    "check_position_numbers",
    "check_relative_bias",
    "check_two_d_positions",
]

_HALVES = "1 · A table, or two halves"
_WAYS = "2 · Ways in place of places"
_PLACES = "3 · Once, or in every layer"
_LIST = "A list in place of a grid."
_AFTER = "A bias after the softmax."
_SWAPPED = "Rows and columns exchanged."
_TURNED = "The way back."

Grid = tuple[int, int]

# ---- With a pencil -----------------------------------------------------------------------------------------------

# A grid of 2 rows and 3 columns, D = 8. Weights: e^(ln 3) = 3, so 3 / 4 and 1 / 4.
NUMBERS = {
    "1-D": 48,
    "2-D": 20,
    "sine-cosine": 0,
    "ways": 15,
    "pairs": 4,
    "vector": [1, 2, 5, 6],
    "weights": [0.75, 0.25],
    "biases": 180,
}

POSITION_NUMBERS = Exercise(
    name="position_numbers",
    lesson="11",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    advice={
        "1-D": "One vector of D numbers for each patch.",
        "2-D": "A vector of D / 2 numbers for each row, and one for each column.",
        "sine-cosine": "How many of its numbers does training move?",
        "ways": "Down, a patch can lie -1, 0 or 1 rows from another. How many values has the way to the right?",
        "pairs": "In each row, count the patches that have a neighbour to the right.",
        "vector": "The row's half comes first, then the column's.",
        "weights": "Add the bias to the scores, then e to the power of each, divided by their sum. e to the power of "
        "ln 3 is 3.",
        "biases": "A number for each way and each head; and each layer has its own.",
    },
    mistakes=(
        Mistake(
            "one number for each patch",
            "A position is a vector as wide as a token, because it is added to it: 6 patches times D = 8.",
            _HALVES,
            {"1-D": 6},
        ),
        Mistake(
            "the class token counted with the patches",
            "Its position is a row of its own. The question is about the six patches.",
            _HALVES,
            {"1-D": 56},
        ),
        Mistake(
            "whole vectors for rows and columns",
            "Row and column share the width: each has D / 2 = 4 numbers.",
            _HALVES,
            {"2-D": 40},
        ),
        Mistake(
            "two halves for each patch",
            "Patches in one row share the row's half. There are 2 rows and 3 columns, not 6 of each.",
            _HALVES,
            {"2-D": 48},
        ),
        Mistake(
            "fixed numbers counted as learned",
            "Sines and cosines are computed from row and column. Training moves none of them.",
            _HALVES,
            {"sine-cosine": 48},
        ),
        Mistake(
            "pairs counted in place of ways",
            "36 pairs of patches share far fewer ways: 3 down (-1, 0, 1) times 5 to the right (-2 to 2).",
            _WAYS,
            {"ways": 36},
        ),
        Mistake(
            "ways in one direction alone",
            "From right to left is another way than from left to right: count the negative ones, too.",
            _WAYS,
            {"ways": 6},
        ),
        Mistake(
            "ways along a list",
            "You have 2 N - 1 differences of numbers in a list. In a grid the way has two parts, down and right.",
            _LIST,
            {"ways": 11},
        ),
        Mistake(
            "neighbours counted along the list",
            "Patch 2 ends the first row, patch 3 begins the second: they are no neighbours.",
            _LIST,
            {"pairs": 5},
        ),
        Mistake(
            "neighbours counted in both directions",
            "From the left to the right patch is one way; back is another, with another number.",
            _WAYS,
            {"pairs": 8},
        ),
        Mistake(
            "the column's half in front",
            "It is the row's half that comes first.",
            _HALVES,
            {"vector": [5, 6, 1, 2]},
        ),
        Mistake(
            "halves that are added",
            "They stand side by side, so that none of the width is shared.",
            _HALVES,
            {"vector": [6, 8]},
        ),
        Mistake(
            "a bias that changes nothing",
            "Without it both weights are 0.5. The bias is added to the scores: ln 3 and 0.",
            _WAYS,
            {"weights": [0.5, 0.5]},
        ),
        Mistake(
            "a bias added to the weights",
            "The bias belongs to the scores, before the softmax. Weights must sum to 1.",
            _AFTER,
            {"weights": [0.5 + math.log(3), 0.5]},
        ),
        Mistake(
            "biases of one layer",
            "15 ways and 3 heads make 45 in a layer; there are four layers, each with its own.",
            _PLACES,
            {"biases": 45},
        ),
        Mistake(
            "biases that all heads share",
            "Each head has a number of its own for each way.",
            _WAYS,
            {"biases": 60},
        ),
    ),
)


def check_position_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(POSITION_NUMBERS, fn)


# ---- Two halves --------------------------------------------------------------------------------------------------


def _halves(row: Tensor, column: Tensor) -> Tensor:
    R, C = len(row), len(column)
    return torch.cat([row.repeat_interleave(C, dim=0), column.repeat(R, 1)], dim=1)  # (R * C, D)


def _half_cases() -> list[Case]:
    sizes = [(2, 3, 4), (3, 2, 2), (4, 4, 6), (1, 5, 2), (3, 1, 6), (1, 1, 4), (3, 3, 6), (13, 4, 2)]
    return [
        Case(f"{R} rows, {C} columns, D = {D}", (normal(R, D // 2, seed=1), normal(C, D // 2, seed=2)))
        for R, C, D in sizes
    ]


def _column_by_column(row: Tensor, column: Tensor) -> Tensor:
    R, C = len(row), len(column)
    return torch.cat([row.repeat(C, 1), column.repeat_interleave(R, dim=0)], dim=1)


def _both_repeated(row: Tensor, column: Tensor) -> Tensor:
    R, C = len(row), len(column)
    return torch.cat([row.repeat(C, 1), column.repeat(R, 1)], dim=1)


def _both_interleaved(row: Tensor, column: Tensor) -> Tensor:
    R, C = len(row), len(column)
    return torch.cat([row.repeat_interleave(C, dim=0), column.repeat_interleave(R, dim=0)], dim=1)


def _column_first(row: Tensor, column: Tensor) -> Tensor:
    left, right = _halves(row, column).chunk(2, dim=1)
    return torch.cat([right, left], dim=1)


def _added(row: Tensor, column: Tensor) -> Tensor:
    return (row[:, None] + column[None]).flatten(0, 1)


def _as_a_grid(row: Tensor, column: Tensor) -> Tensor:
    return _halves(row, column).unflatten(0, (len(row), len(column)))


def _end_to_end(row: Tensor, column: Tensor) -> Tensor:
    return torch.cat([row, column])


def _interleaved(row: Tensor, column: Tensor) -> Tensor:
    return torch.stack(_halves(row, column).chunk(2, dim=1), dim=2).flatten(1)


TWO_D_POSITIONS = Exercise(
    name="two_d_positions",
    lesson="11",
    points=4,
    right=_halves,
    cases=_half_cases,
    observe=functools.partial(call, differentiable=True),
    forbidden=(lesson.GridPosition,),
    mistakes=(
        Mistake(
            "patches column by column",
            "Patches are numbered row by row: in the first row the column changes, the row stays.",
            _HALVES,
            _column_by_column,
        ),
        Mistake(
            "rows that are repeated as the columns are",
            "You repeat the list of rows as a whole, so patch 1 is told row 1. In the first row all patches are in row "
            "0: repeat_interleave for the rows.",
            _HALVES,
            _both_repeated,
        ),
        Mistake(
            "columns that are repeated as the rows are",
            "You repeat each column on the spot, so the first patches are all told column 0. The list of columns "
            "begins anew in each row: repeat.",
            _HALVES,
            _both_interleaved,
        ),
        Mistake(
            "the column's half in front",
            "Both halves are right, but the row's comes first.",
            _HALVES,
            _column_first,
        ),
        Mistake(
            "halves that are added",
            "You return vectors of width D / 2. The halves stand side by side: torch.cat along the last axis.",
            _HALVES,
            _added,
        ),
        Mistake(
            "a grid that is not flattened",
            "The numbers are right, but tokens are a list: flatten rows and columns to one axis of N.",
            _HALVES,
            _as_a_grid,
        ),
        Mistake(
            "rows and columns as a list",
            "You return a vector for each row and for each column. Each patch gets one of both.",
            _HALVES,
            _end_to_end,
        ),
        Mistake(
            "numbers of row and column in turn",
            "The first half of the width is the row's, the second the column's. You take one number of each in turn.",
            _HALVES,
            _interleaved,
        ),
    ),
)


def check_two_d_positions(fn: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(row, column)``: (rows, D / 2), (columns, D / 2) -> (N, D), row by row, the row's half first."""
    return check(TWO_D_POSITIONS, fn)


# ---- Ways from patch to patch ------------------------------------------------------------------------------------


def _ways(grid: Grid, number: Callable[[Tensor, Tensor, Grid], Tensor]) -> Tensor:
    """(N, N) by what ``number`` makes of the steps down and to the right, and of the grid."""
    row = torch.arange(grid[0]).repeat_interleave(grid[1])  # (N,)
    column = torch.arange(grid[1]).repeat(grid[0])  # (N,)
    return number(row[None] - row[:, None], column[None] - column[:, None], grid)


def _numbered(
    down: Tensor, right: Tensor, grid: Grid, sign: int = 1, base: Callable[[Grid], int] = lambda grid: 2 * grid[1] - 1
) -> Tensor:
    return (sign * down + grid[0] - 1) * base(grid) + sign * right + grid[1] - 1


def _make_ways(number: Callable[[Tensor, Tensor, Grid], Tensor]) -> Callable[[Grid], Tensor]:
    return lambda grid: _ways(grid, number)


def _along_the_list(grid: Grid) -> Tensor:
    place = torch.arange(grid[0] * grid[1])
    return place[None] - place[:, None] + len(place) - 1


OFFSET_INDEX = Exercise(
    name="offset_index",
    lesson="11",
    points=4,
    right=lesson.offsets,
    cases=lambda: [
        Case(f"{R} rows, {C} columns", ((R, C),))
        for R, C in ((2, 3), (3, 2), (1, 4), (4, 4), (5, 1), (8, 10), (1, 1), (23, 24))
    ],
    observe=call,
    forbidden=("vit_tutorial.modern.relative_index",),
    mistakes=(
        Mistake(
            "the way back",
            "You number the way from j to i. Entry [i, j] is the way from patch i, which looks, to patch j: column of "
            "j minus column of i.",
            _TURNED,
            _make_ways(functools.partial(_numbered, sign=-1)),
        ),
        Mistake(
            "differences along the list",
            "Your numbers are j - i, moved up: the end of a row and the beginning of the next look like neighbours. "
            "Take rows and columns apart, and let a step down skip all 2 · columns - 1 ways to the right.",
            _LIST,
            _along_the_list,
        ),
        Mistake(
            "the rows' number of ways for the columns",
            "One step down skips all ways to the right, and these are 2 · columns - 1. You took 2 · rows - 1.",
            _SWAPPED,
            _make_ways(functools.partial(_numbered, base=lambda grid: 2 * grid[0] - 1)),
        ),
        Mistake(
            "rows and columns exchanged",
            "You number the ways column by column. The step down counts in steps of 2 · columns - 1, the step "
            "to the right in steps of one.",
            _SWAPPED,
            _make_ways(lambda down, right, grid: (right + grid[1] - 1) * (2 * grid[0] - 1) + down + grid[0] - 1),
        ),
        Mistake(
            "ways that are not moved up from zero",
            "Some of your numbers are negative, and an index below zero counts from the end. Add rows - 1 to the step "
            "down and columns - 1 to the step to the right.",
            _WAYS,
            _make_ways(lambda down, right, grid: down * (2 * grid[1] - 1) + right),
        ),
        Mistake(
            "distances without a direction",
            "You took the absolute value, so left and right get one number. A way has a sign.",
            _WAYS,
            _make_ways(lambda down, right, grid: _numbered(down.abs(), right.abs(), grid)),
        ),
        Mistake(
            "absolute steps that are not moved up",
            "You took the absolute values, so left and right get one number. A way has a sign: move it up by rows - 1 "
            "and columns - 1 in place of that.",
            _WAYS,
            _make_ways(lambda down, right, grid: down.abs() * (2 * grid[1] - 1) + right.abs()),
        ),
        Mistake(
            "the two steps added",
            "Down and right are added without a factor, so one step down is as one to the right. Multiply the step "
            "down by 2 · columns - 1.",
            _WAYS,
            _make_ways(functools.partial(_numbered, base=lambda grid: 1)),
        ),
    ),
)


def check_offset_index(fn: Callable[[Grid], Tensor]) -> bool:
    """Check ``fn(grid)``: (rows, columns) -> (N, N) whole numbers, the way from patch i to patch j at [i, j]."""
    return check(OFFSET_INDEX, fn)


# ---- Attention with a bias ---------------------------------------------------------------------------------------


def _attend(
    score: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda q, k, b: q @ k.mT / q.shape[-1] ** 0.5 + b,
    squash: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(dim=-1),
    after: Callable[[Tensor, Tensor], Tensor] = lambda weights, b: weights,
) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        weights = after(squash(score(q, k, bias)), bias)
        return weights @ v, weights

    return biased_attention


def _scaled(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / q.shape[-1] ** 0.5


def _attention_cases() -> list[Case]:
    sizes = [
        (1, 2, 3, 4, 1.0),
        (2, 3, 5, 2, 1.0),
        (3, 1, 4, 6, 3.0),
        (3, 3, 3, 3, 1.0),
        (1, 2, 1, 3, 1.0),
        (1, 12, 45, 2, 1.0),
    ]
    cases = [
        Case(
            f"q, k, v ({B}, {h}, {T}, {d}), bias ({h}, {T}, {T})",
            (*(normal(B, h, T, d, seed=seed) for seed in (1, 2, 3)), size * normal(h, T, T, seed=4)),
        )
        for B, h, T, d, size in sizes
    ]
    q, k, v = (normal(2, 2, 4, 3, seed=seed) for seed in (5, 6, 7))
    hidden = normal(2, 4, 4, seed=8)
    hidden[:, :, 1] = -1e4  # nobody may look at token 1
    large = Case("scores in the thousands", (60 * q, 60 * k, v, normal(2, 4, 4, seed=9)))
    return [*cases, Case("a bias of -10,000 on token 1", (q, k, v, hidden)), large]


_right_attention = _attend()

BIASED_ATTENTION = Exercise(
    name="biased_attention",
    lesson="11",
    points=3,
    right=_right_attention,
    cases=_attention_cases,
    observe=call,
    mistakes=(
        Mistake(
            "a bias after the softmax",
            "Your weights don't sum to 1 any more. The bias belongs to the scores: add it before the softmax.",
            _AFTER,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k), after=lambda weights, b: weights + b),
        ),
        Mistake(
            "a bias that is divided by √d",
            "The scale belongs to q kᵀ alone. Divide first, then add the bias.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: (q @ k.mT + b) / q.shape[-1] ** 0.5),
        ),
        Mistake(
            "a bias that is turned",
            "bias[h, i, j] is for token i that looks at token j, as in the scores: no transpose.",
            _TURNED,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k) + b.mT),
        ),
        Mistake(
            "no bias at all",
            "This is attention as in lesson 03. Add the bias to the scores.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k)),
        ),
        Mistake(
            "a bias that is subtracted",
            "A larger number means a larger weight: add it.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k) - b),
        ),
        Mistake(
            "a bias that is added twice",
            "The bias goes into the scores once, in front of the softmax.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k) + 2 * b),
        ),
        Mistake(
            "scores that are multiplied by the bias",
            "The bias is added. A factor would do nothing where the score is zero.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k) * b),
        ),
        Mistake(
            "no scale",
            "Divide q kᵀ by √d, as in lesson 03, and then add the bias.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: q @ k.mT + b),
        ),
        Mistake(
            "a softmax over the wrong axis",
            "Your columns sum to 1. The weights of one query must sum to 1 over the keys: dim=-1.",
            "Softmax over the wrong axis.",
            Slip(_attend, squash=lambda scores: scores.softmax(dim=-2)),
            lesson="03",
        ),
        Mistake(
            "the bias of the first head for all",
            "Each head has its own bias: (h, T, T) fits the scores (B, h, T, T) as it is.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k) + b[:1]),
        ),
        Mistake(
            "a mean bias for all heads",
            "Each head has its own bias: (h, T, T) fits the scores (B, h, T, T) as it is.",
            _WAYS,
            Slip(_attend, score=lambda q, k, b: _scaled(q, k) + b.mean(dim=0)),
        ),
    ),
)


def check_biased_attention(fn: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> bool:
    """Check ``fn(q, k, v, bias)``: (B, h, T, d) each, (h, T, T) -> output (B, h, T, d), weights (B, h, T, T)."""
    return check(BIASED_ATTENTION, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _bias(
    index: Callable[[Grid], Tensor] = lesson.offsets, order: tuple[int, int, int] = (0, 1, 2), front: bool = True
) -> Callable[[Tensor, Grid], Tensor]:
    def relative_bias(table: Tensor, grid: Grid) -> Tensor:
        N = grid[0] * grid[1]
        many = table.shape[1] - 3
        whole = torch.full((N + 1, N + 1), many + order[2])
        patches, token = (slice(1, None), 0) if front else (slice(0, N), N)
        whole[token, patches] = many + order[0]
        whole[patches, token] = many + order[1]
        whole[patches, patches] = index(grid)
        return table[:, whole]

    return relative_bias


def _patches_alone(table: Tensor, grid: Grid) -> Tensor:
    return table[:, lesson.offsets(grid)]


def _heads_last(table: Tensor, grid: Grid) -> Tensor:
    return _bias()(table, grid).permute(1, 2, 0)


def _zeros_for_the_class(table: Tensor, grid: Grid) -> Tensor:
    whole = _bias()(table, grid).clone()
    whole[:, 0], whole[:, :, 0] = 0, 0
    return whole


_right_bias = _bias()

RELATIVE_BIAS = Exercise(
    name="relative_bias",
    lesson="11",
    points=2,
    right=_right_bias,
    cases=lambda: [
        Case(
            f"{h} heads, {R} rows, {C} columns",
            (normal(h, (2 * R - 1) * (2 * C - 1) + 3), (R, C)),
        )
        for h, R, C in (
            (1, 2, 2),
            (2, 2, 3),
            (3, 3, 2),
            (2, 4, 4),
            (3, 1, 4),
            (2, 5, 1),
            (2, 1, 1),
            (5, 2, 2),
            (12, 9, 4),
        )
    ],
    observe=functools.partial(call, differentiable=True),
    forbidden=(lesson.RelativeBias,),
    mistakes=(
        Mistake(
            "looking and being looked at exchanged",
            "The first of the three is for the class token that looks at a patch: row 0. The second is for a patch "
            "that looks at it: column 0.",
            _WAYS,
            Slip(_bias, order=(1, 0, 2)),
        ),
        Mistake(
            "a class token at the end",
            "The class token is token 0, so its row and its column come first.",
            "In front, not at the end",
            Slip(_bias, front=False),
            lesson="02",
        ),
        Mistake(
            "the way back",
            "The patches' part is turned: entry [i, j] is the way from the patch that looks to the one that is looked "
            "at.",
            _TURNED,
            Slip(_bias, index=lambda grid: lesson.offsets(grid).T),
        ),
        Mistake(
            "one number for all that has to do with the class token",
            "There are three: it looks, it is looked at, it looks at itself. You took the first for all.",
            _WAYS,
            Slip(_bias, order=(0, 0, 0)),
        ),
        Mistake(
            "no row and column for the class token",
            "You return (h, N, N), and the scores are (N + 1, N + 1): the class token comes first.",
            _WAYS,
            _patches_alone,
        ),
        Mistake(
            "heads on the last axis",
            "The scores have the heads before both token axes: (h, T, T).",
            _WAYS,
            _heads_last,
        ),
        Mistake(
            "zeros for the class token",
            "The last three columns of the table are for it, and they are learned as the others are.",
            _WAYS,
            _zeros_for_the_class,
        ),
    ),
)


def check_relative_bias(fn: Callable[[Tensor, Grid], Tensor]) -> bool:
    """Check ``fn(table, grid)``: (h, ways + 3), (rows, columns) -> (h, T, T), the class token first."""
    return check(RELATIVE_BIAS, fn)
