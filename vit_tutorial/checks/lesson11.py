"""Checks of lesson 11: positions in two halves, ways from patch to patch, and attention with a bias."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from vit_tutorial.checks.harness import Case, Exercise, Fault, Mistake, Result, Slip, answers, call, check, normal
from vit_tutorial.variants import positions as lesson

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
    tolerance=0.001,  # ln 3 may be taken as 1.1
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
            "a table for each layer",
            "Positions are added once, before the first block. The question is about one table.",
            _PLACES,
            {"1-D": 192},
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
            "rows multiplied by columns",
            "Rows and columns have halves of their own, so they are added: 2 + 3 halves of 4 numbers.",
            _HALVES,
            {"2-D": 24},
        ),
        Mistake(
            "fixed numbers counted as learned",
            "Sines and cosines are computed from row and column. Training moves none of them.",
            _HALVES,
            {"sine-cosine": 48},
        ),
        Mistake(
            "sines and cosines learned as halves",
            "They are computed from row and column, and stay as they are. Only a table's halves are learned.",
            _HALVES,
            {"sine-cosine": 20},
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
            "the way to itself left out",
            "0 down and 0 to the right is a way, too, and the question counts it.",
            _WAYS,
            {"ways": 14},
        ),
        Mistake(
            "one way too many in each direction",
            "From -1 to 1 there are three numbers, from -2 to 2 five: 2 · 2 - 1 and 2 · 3 - 1.",
            _WAYS,
            {"ways": 24},
        ),
        Mistake(
            "steps that are added, or a way and the way back counted as one",
            "Each step down goes with each step to the right: multiply 3 by 5. And the way back is another way.",
            _WAYS,
            {"ways": 8},
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
            "the last column counted",
            "The last patch of a row has no neighbour to the right: 2 of the 3 patches in each row have one.",
            _WAYS,
            {"pairs": 6},
        ),
        Mistake(
            "neighbours below in place of neighbours to the right",
            "0 down, 1 to the right: both patches are in one row. You counted those one below the other.",
            _SWAPPED,
            {"pairs": 3},
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
            "one number of each half in turn",
            "The whole half of the row comes first, then the whole half of the column.",
            _HALVES,
            {"vector": [1, 5, 2, 6]},
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
            "weights that belong to the other patch",
            "The patch with the bias ln 3 gets the larger weight: a bias is added to its score.",
            _WAYS,
            {"weights": [0.25, 0.75]},
        ),
        Mistake(
            "powers of e that aren't divided by their sum",
            "e to the power of ln 3 and of 0 are 3 and 1. Divide both by their sum, so that the weights sum to 1.",
            _WAYS,
            {"weights": [3, 1]},
        ),
        Mistake(
            "weights that are multiplied by e to the power of the bias",
            "From 0.5 and 0.5 you get 1.5 and 0.5, and these don't sum to 1 any more. Divide both by their sum.",
            _AFTER,
            {"weights": [1.5, 0.5]},
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
        Mistake(
            "the class token's biases counted",
            "Its three numbers would make 18 in each head. The question leaves out what belongs to the class token.",
            _WAYS,
            {"biases": 216},
        ),
        Mistake(
            "a bias for each pair of patches",
            "Pairs with the same way share a number: 15 numbers in each head, not 36.",
            _WAYS,
            {"biases": 432},
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
    sizes = [(2, 3, 4), (3, 2, 2), (4, 4, 6), (1, 5, 2), (3, 1, 6), (1, 1, 4), (3, 3, 6), (13, 4, 2), (37, 5, 2),
             (3, 41, 70)]  # fmt: skip
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


def _exchanged(row: Tensor, column: Tensor) -> Tensor:
    return _halves(column, row)


def _one_by_one(row: Tensor, column: Tensor) -> Tensor:
    return torch.stack([torch.cat(pair) for pair in zip(row, column, strict=False)])


def _row_twice(row: Tensor, column: Tensor) -> Tensor:
    return _halves(row, column).chunk(2, dim=1)[0].repeat(1, 2)


def _column_twice(row: Tensor, column: Tensor) -> Tensor:
    return _halves(row, column).chunk(2, dim=1)[1].repeat(1, 2)


def _stacked(row: Tensor, column: Tensor) -> Tensor:
    return torch.stack(_halves(row, column).chunk(2, dim=1), dim=1)


def _below_each_other(row: Tensor, column: Tensor) -> Tensor:
    return torch.cat(_halves(row, column).chunk(2, dim=1))


def _below_and_cut(row: Tensor, column: Tensor) -> Tensor:
    return _below_each_other(row, column).reshape(len(row) * len(column), -1)


def _numbers_repeated(row: Tensor, column: Tensor) -> Tensor:
    each = row.flatten().repeat_interleave(len(column)).reshape(-1, row.shape[1])
    return torch.cat([each, column.repeat(len(row), 1)], dim=1)


def _width_in_front(row: Tensor, column: Tensor) -> Tensor:
    whole = _halves(row, column)
    return whole.mT.reshape(whole.shape)


def _with_a_class_token(row: Tensor, column: Tensor) -> Tensor:
    patches = _halves(row, column)
    return torch.cat([torch.zeros_like(patches[:1]), patches])


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
        Mistake(
            "row and column exchanged throughout",
            "You give each patch its column's half first, and number the patches column by column. The rows are the "
            "first argument.",
            _SWAPPED,
            _exchanged,
        ),
        Mistake(
            "one patch for each row and column, as far as both go",
            "You pair row 0 with column 0, row 1 with column 1, and so on, as zip does. Every row meets every column.",
            _HALVES,
            _one_by_one,
        ),
        Mistake(
            "the row's half twice",
            "The second half is the row's once more. There belongs the column's.",
            _HALVES,
            _row_twice,
        ),
        Mistake(
            "the column's half twice",
            "The first half is the column's, too. There belongs the row's.",
            _HALVES,
            _column_twice,
        ),
        Mistake(
            "two halves on an axis of their own",
            "You return (N, 2, D / 2), as torch.stack does. Use torch.cat along the last axis: (N, D).",
            _HALVES,
            _stacked,
        ),
        Mistake(
            "halves one below the other",
            "You join them along the tokens, and return twice as many. They stand side by side: dim=1.",
            _HALVES,
            _below_each_other,
        ),
        Mistake(
            "halves that are joined one below the other and then cut",
            "The shape is right, but a patch gets the halves of two rows or of two columns. Join along the last axis: "
            "torch.cat with dim=1, without a reshape.",
            _HALVES,
            _below_and_cut,
        ),
        Mistake(
            "rows without their columns",
            "Your vectors have the width D / 2, and say in which row a patch is. Put the column's half beside it.",
            _HALVES,
            lambda row, column: row.repeat_interleave(len(column), dim=0),
        ),
        Mistake(
            "columns without their rows",
            "Your vectors have the width D / 2, and say in which column a patch is. The row's half goes in front.",
            _HALVES,
            lambda row, column: column.repeat(len(row), 1),
        ),
        Mistake(
            "numbers that are repeated in place of vectors",
            "repeat_interleave without dim takes the numbers one by one. With dim=0 it repeats whole vectors.",
            _HALVES,
            _numbers_repeated,
        ),
        Mistake(
            "halves that are multiplied",
            "You return vectors of width D / 2. The halves stand side by side: torch.cat along the last axis.",
            _HALVES,
            lambda row, column: (row[:, None] * column[None]).flatten(0, 1),
        ),
        Mistake(
            "a mean of both halves",
            "You return vectors of width D / 2. The halves stand side by side: torch.cat along the last axis.",
            _HALVES,
            lambda row, column: _added(row, column) / 2,
        ),
        Mistake(
            "one line for each row of patches",
            "You joined the columns with the width: flatten(1). Rows and columns are joined: flatten(0, 1).",
            _HALVES,
            lambda row, column: _as_a_grid(row, column).flatten(1),
        ),
        Mistake(
            "tokens and width exchanged",
            "You return (D, N). A row of the table is a patch.",
            _HALVES,
            lambda row, column: _halves(row, column).mT,
        ),
        Mistake(
            "a reshape in place of a permute",
            "The width was in front, and reshape only cut the numbers anew. Move it to the end with permute first.",
            _HALVES,
            _width_in_front,
        ),
        Mistake(
            "a place for the class token",
            "The table is for the patches alone: rows times columns of them.",
            _HALVES,
            _with_a_class_token,
        ),
        Mistake(
            "rows from the bottom to the top",
            "Row 0 is the upper one, and its patches come first.",
            _HALVES,
            lambda row, column: _halves(row.flip(0), column),
        ),
    ),
)


def check_two_d_positions(fn: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(row, column)``: (rows, D / 2), (columns, D / 2) -> (N, D), row by row, the row's half first."""
    return check(TWO_D_POSITIONS, fn)


# ---- Ways from patch to patch ------------------------------------------------------------------------------------


Steps = tuple[Tensor, Tensor]


def _numbered(work: Any, case: Case) -> Result:
    """The ways' numbers, which a call for another grid must leave as they are."""
    observed = call(work, case)
    found = observed["result"]
    before = copy.deepcopy(found)
    work((1, 2))
    if isinstance(found, Tensor) and not torch.equal(found, before):
        raise Fault("a call for another grid changes the result of the first: make a new tensor in each call")
    return observed


def _places(grid: Grid) -> Steps:
    """Row and column of each patch, (N,) both."""
    patch = torch.arange(grid[0] * grid[1])
    return patch // grid[1], patch % grid[1]


def _steps(places: Steps) -> Steps:
    """How far patch j lies below patch i and to the right of it, at [i, j] of two tables (N, N)."""
    row, column = places
    return row[None] - row[:, None], column[None] - column[:, None]


def _offset_index(
    places: Callable[[Grid], Steps] = _places,
    way: Callable[[Tensor, Tensor], Steps] = lambda down, right: (down, right),
    shift: Callable[[Grid], Grid] = lambda grid: (grid[0] - 1, grid[1] - 1),
    factor: Callable[[Grid], int] = lambda grid: 2 * grid[1] - 1,
) -> Callable[[Grid], Tensor]:
    """(down + rows - 1) (2 columns - 1) + right + columns - 1, with each of its parts to be replaced."""

    def offset_index(grid: Grid) -> Tensor:
        down, right = way(*_steps(places(grid)))
        return (down + shift(grid)[0]) * factor(grid) + right + shift(grid)[1]

    return offset_index


def _with_places(row: Callable[[Tensor, Grid], Tensor], column: Callable[[Tensor, Grid], Tensor]) -> Slip:
    """The ways between patches whose row and column are found in another way from their number."""

    def places(grid: Grid) -> Steps:
        patch = torch.arange(grid[0] * grid[1])
        return row(patch, grid), column(patch, grid)

    return Slip(_offset_index, places=places)


def _along_the_list(grid: Grid) -> Tensor:
    place = torch.arange(grid[0] * grid[1])
    return place[None] - place[:, None] + len(place) - 1


def _far_along_the_list(grid: Grid) -> Tensor:
    place = torch.arange(grid[0] * grid[1])
    return (place[None] - place[:, None]).abs()


def _pairs(grid: Grid) -> Tensor:
    N = grid[0] * grid[1]
    return torch.arange(N * N).reshape(N, N)


def _both_steps(grid: Grid) -> Tensor:
    down, right = _steps(_places(grid))
    return torch.stack([down + grid[0] - 1, right + grid[1] - 1], dim=-1)


def _in_the_order_met(grid: Grid) -> Tensor:
    ways = lesson.relative_position_index(grid)
    met: dict[int, int] = {}
    numbers = [met.setdefault(way, len(met)) for way in ways.flatten().tolist()]
    return torch.tensor(numbers).reshape(ways.shape)


def _turned_shift(grid: Grid) -> Grid:
    return grid[1] - 1, grid[0] - 1


_column_ways = _offset_index(
    way=lambda down, right: (right, down), shift=_turned_shift, factor=lambda grid: 2 * grid[0] - 1
)


def _ways_and_numbers(compared: list[tuple[Case, Result, Result]]) -> str:
    """Whether each way has one number, and each number one way, where the numbers are others than the text's."""
    for case, right, yours in compared:
        ways, numbers = right["result"].flatten(), torch.as_tensor(yours["result"])
        if numbers.numel() != ways.numel():
            return ""
        pairs = len(torch.stack([ways, numbers.flatten()], dim=1).unique(dim=0))
        many, told = len(ways.unique()), len(numbers.unique())
        if pairs > many:
            return f"With {case.label} pairs of patches with the same way between them get different numbers."
        if told < many:
            return f"With {case.label} there are {many} ways, and you have {told} numbers: different ways share one."
    return (
        "Each way has one number, and no two ways share one, but they aren't the numbers of the text: down by 1 adds "
        "2 · columns - 1, to the right by 1 adds 1, and the smallest number is 0."
    )


OFFSET_INDEX = Exercise(
    name="offset_index",
    lesson="11",
    points=4,
    right=lesson.relative_position_index,
    cases=lambda: [
        Case(f"{R} rows, {C} columns", ((R, C),))
        for R, C in ((2, 3), (3, 2), (1, 4), (4, 4), (5, 1), (8, 10), (1, 1), (23, 24))
    ],
    observe=_numbered,
    forbidden=("vit_tutorial.variants.modern.position_bias_index",),
    locate=_ways_and_numbers,
    mistakes=(
        Mistake(
            "the way back",
            "You number the way from j to i. Entry [i, j] is the way from patch i, which looks, to patch j: column of "
            "j minus column of i.",
            _TURNED,
            Slip(_offset_index, way=lambda down, right: (-down, -right)),
        ),
        Mistake(
            "differences along the list",
            "Your numbers are j - i, moved up, as with the factor columns: the end of a row and the beginning of the "
            "next look like neighbours. Take rows and columns apart, and let a step down skip all 2 · columns - 1 ways "
            "to the right.",
            _LIST,
            _along_the_list,
        ),
        Mistake(
            "the rows' number of ways for the columns",
            "One step down skips all ways to the right, and these are 2 · columns - 1. You took 2 · rows - 1.",
            _SWAPPED,
            Slip(_offset_index, factor=lambda grid: 2 * grid[0] - 1),
        ),
        Mistake(
            "rows and columns exchanged",
            "You number the ways column by column. The step down counts in steps of 2 · columns - 1, the step "
            "to the right in steps of one.",
            _SWAPPED,
            _column_ways,
        ),
        Mistake(
            "ways that are not moved up from zero",
            "Some of your numbers are negative, and an index below zero counts from the end. Add rows - 1 to the step "
            "down and columns - 1 to the step to the right.",
            _WAYS,
            Slip(_offset_index, shift=lambda grid: (0, 0)),
        ),
        Mistake(
            "one way too many to the right",
            "You multiply the step down by 2 · columns. From -(columns - 1) to columns - 1 there are 2 · columns - 1 "
            "steps, so your numbers have gaps.",
            _WAYS,
            Slip(_offset_index, factor=lambda grid: 2 * grid[1]),
        ),
        Mistake(
            "a division by the number of rows",
            "You found a patch's row and column with the number of rows. A row is as long as there are columns: "
            "n // columns and n % columns.",
            _SWAPPED,
            _with_places(lambda n, grid: n // grid[0], lambda n, grid: n % grid[0]),
        ),
        Mistake(
            "rows that are found with the number of rows",
            "The column is right, but patch n is in row n // columns, not n // rows.",
            _SWAPPED,
            _with_places(lambda n, grid: n // grid[0], lambda n, grid: n % grid[1]),
        ),
        Mistake(
            "n % columns taken for the row",
            "n % columns is the column of patch n, n // columns its row. You exchanged them.",
            _SWAPPED,
            _with_places(lambda n, grid: n % grid[1], lambda n, grid: n // grid[1]),
        ),
        Mistake(
            "patches that are numbered column by column",
            "Patch 1 is to the right of patch 0, not below it: patch n is in row n // columns and in column "
            "n % columns.",
            _SWAPPED,
            _with_places(lambda n, grid: n % grid[0], lambda n, grid: n // grid[0]),
        ),
        Mistake(
            "a step down that is not moved up from zero",
            "Upwards your numbers are negative. Add rows - 1 to the step down, before you multiply.",
            _WAYS,
            Slip(_offset_index, shift=lambda grid: (0, grid[1] - 1)),
        ),
        Mistake(
            "a step to the right that is not moved up from zero",
            "The smallest of your numbers is negative, and the last ones are never used. Add columns - 1, too.",
            _WAYS,
            Slip(_offset_index, shift=lambda grid: (grid[0] - 1, 0)),
        ),
        Mistake(
            "steps that are moved up by one too many",
            "The longest way up is rows - 1 rows. Add rows - 1 and columns - 1, so that the numbers begin at 0.",
            _WAYS,
            Slip(_offset_index, shift=lambda grid: (grid[0], grid[1])),
        ),
        Mistake(
            "rows and columns exchanged where the steps are moved up",
            "The step down goes from -(rows - 1) on, so add rows - 1 to it. You added columns - 1, and rows - 1 to the "
            "step to the right.",
            _SWAPPED,
            Slip(_offset_index, shift=_turned_shift),
        ),
        Mistake(
            "the factor at the step to the right",
            "You multiply the step to the right by 2 · columns - 1. It is the step down that is multiplied.",
            _SWAPPED,
            Slip(_offset_index, way=lambda down, right: (right, down), shift=_turned_shift),
        ),
        Mistake(
            "numbers that begin at 1",
            "The first column of a table has the number 0. Yours are all one too large.",
            _WAYS,
            Slip(_offset_index, shift=lambda grid: (grid[0] - 1, grid[1])),
        ),
        Mistake(
            "parentheses left out",
            "Multiply by (2 * columns - 1), in parentheses. Without them only 2 * columns multiplies, and the 1 is "
            "subtracted afterwards.",
            _WAYS,
            Slip(_offset_index, factor=lambda grid: 2 * grid[1], shift=lambda grid: (grid[0] - 1, grid[1] - 2)),
        ),
        Mistake(
            "distances without a direction",
            "You took the absolute value, so left and right get one number. A way has a sign.",
            _WAYS,
            Slip(_offset_index, way=lambda down, right: (down.abs(), right.abs())),
        ),
        Mistake(
            "absolute steps that are not moved up",
            "You took the absolute values, so left and right get one number. A way has a sign: move it up by rows - 1 "
            "and columns - 1 in place of that.",
            _WAYS,
            Slip(_offset_index, way=lambda down, right: (down.abs(), right.abs()), shift=lambda grid: (0, 0)),
        ),
        Mistake(
            "the two steps added",
            "Down and right are added without a factor, so one step down is as one to the right. Multiply the step "
            "down by 2 · columns - 1.",
            _WAYS,
            Slip(_offset_index, factor=lambda grid: 1),
        ),
        Mistake(
            "a step down with the wrong sign",
            "The step to the right is right, but the step down has the wrong sign: row of j minus row of i.",
            _TURNED,
            Slip(_offset_index, way=lambda down, right: (-down, right)),
        ),
        Mistake(
            "a step to the right with the wrong sign",
            "The step down is right, but the step to the right has the wrong sign: column of j minus column of i.",
            _TURNED,
            Slip(_offset_index, way=lambda down, right: (down, -right)),
        ),
        Mistake(
            "the number of all ways as a factor",
            "A step down skips the ways to the right alone, 2 · columns - 1 of them. You multiply it by the number of "
            "all ways.",
            _WAYS,
            Slip(_offset_index, factor=lambda grid: (2 * grid[0] - 1) * (2 * grid[1] - 1)),
        ),
        Mistake(
            "the number of patches as a factor",
            "A step down skips the ways to the right, 2 · columns - 1 of them. You multiply it by rows · columns.",
            _WAYS,
            Slip(_offset_index, factor=lambda grid: grid[0] * grid[1]),
        ),
        Mistake(
            "ways that are numbered in the order in which they are met",
            "Each way has a number of its own, but patch 0 to itself gets 0. The numbers follow from the steps: the "
            "farthest up and to the left has 0.",
            _WAYS,
            _in_the_order_met,
        ),
        Mistake(
            "a number for each pair of patches",
            "No two pairs share a number. Pairs with the same way between them must: take the difference of their "
            "places.",
            _WAYS,
            _pairs,
        ),
        Mistake(
            "distances along the list",
            "Your numbers are the distances of j and i in the list. A way has two parts, down and right, with signs.",
            _LIST,
            _far_along_the_list,
        ),
        Mistake(
            "two numbers for each way",
            "You return (N, N, 2), the steps down and to the right. Make one number of both: down times "
            "2 · columns - 1, plus right.",
            _WAYS,
            _both_steps,
        ),
    ),
)


def check_offset_index(fn: Callable[[Grid], Tensor]) -> bool:
    """Check ``fn(grid)``: (rows, columns) -> (N, N) whole numbers, the way from patch i to patch j at [i, j]."""
    return check(OFFSET_INDEX, fn)


# ---- Attention with a bias ---------------------------------------------------------------------------------------


def _attend(
    size: Callable[[Tensor], float] = lambda q: q.shape[-1] ** 0.5,
    compare: Callable[[Tensor, Tensor], Tensor] = lambda q, k: q @ k.mT,
    add: Callable[[Tensor, Tensor, float], Tensor] = lambda scores, b, size: scores + b,
    squash: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(dim=-1),
    after: Callable[[Tensor, Tensor], Tensor] = lambda weights, b: weights,
    mix: Callable[[Tensor, Tensor], Tensor] = lambda weights, v: weights @ v,
    give: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = lambda output, weights, scores: (output, weights),
) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        scores = add(compare(q, k) / size(q), bias, size(q))
        weights = after(squash(scores), bias)
        return give(mix(weights, v), weights, scores)

    return biased_attention


def _weights_without_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return _right_attention(q, k, v, bias)[0], _right_attention(q, k, v, torch.zeros_like(bias))[1]


def _powers_alone(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def _attention_cases() -> list[Case]:
    sizes = [
        (1, 2, 3, 4, 1.0),
        (2, 3, 5, 2, 1.0),
        (3, 1, 4, 6, 3.0),
        (3, 3, 3, 3, 1.0),
        (1, 2, 1, 3, 1.0),
        (1, 12, 45, 2, 1.0),
        (17, 2, 3, 1, 1.0),
        (2, 13, 2, 5, 1.0),
        (1, 1, 61, 2, 20.0),
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
            Slip(_attend, add=lambda scores, b, size: scores, after=lambda weights, b: weights + b),
        ),
        Mistake(
            "a bias that is divided by √d",
            "The scale belongs to q kᵀ alone. Divide first, then add the bias.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores + b / size),
        ),
        Mistake(
            "a bias that is turned",
            "bias[h, i, j] is for token i that looks at token j, as in the scores: no transpose.",
            _TURNED,
            Slip(_attend, add=lambda scores, b, size: scores + b.mT),
        ),
        Mistake(
            "no bias at all",
            "This is attention as in lesson 03. Add the bias to the scores.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores),
        ),
        Mistake(
            "a bias that is subtracted",
            "A larger number means a larger weight: add it.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores - b),
        ),
        Mistake(
            "a bias that is added twice",
            "The bias goes into the scores once, in front of the softmax.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores + 2 * b),
        ),
        Mistake(
            "scores that are multiplied by the bias",
            "The bias is added. A factor would do nothing where the score is zero.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores * b),
        ),
        Mistake(
            "no scale",
            "Divide q kᵀ by √d, as in lesson 03, and then add the bias.",
            _WAYS,
            Slip(_attend, size=lambda q: 1.0),
        ),
        Mistake(
            "a division by d",
            "You divide by d, or both q and k by √d. q kᵀ is divided by √d, once, as in lesson 03.",
            _WAYS,
            Slip(_attend, size=lambda q: q.shape[-1]),
        ),
        Mistake(
            "the root of the whole width for √d",
            "You divide by the root of h · d. As in lesson 03, d is the width of one head: q.shape[-1].",
            _WAYS,
            Slip(_attend, size=lambda q: (q.shape[1] * q.shape[-1]) ** 0.5),
        ),
        Mistake(
            "a multiplication by √d",
            "q kᵀ is divided by √d, so that the scores get smaller. Yours get larger.",
            _WAYS,
            Slip(_attend, size=lambda q: q.shape[-1] ** -0.5),
        ),
        Mistake(
            "the number of tokens for d",
            "You divide by the root of T. d is the width of a query: q.shape[-1].",
            _WAYS,
            Slip(_attend, size=lambda q: q.shape[-2] ** 0.5),
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
            Slip(_attend, add=lambda scores, b, size: scores + b[:1]),
        ),
        Mistake(
            "a mean bias for all heads",
            "Each head has its own bias: (h, T, T) fits the scores (B, h, T, T) as it is.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores + b.mean(dim=0)),
        ),
        Mistake(
            "a bias for each image",
            "You put a new axis behind the bias's first one, so that its heads meet the images. The first axis of "
            "(h, T, T) is the heads': it fits the scores (B, h, T, T) as it is.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores + b[:, None]),
        ),
        Mistake(
            "the biases of all heads summed",
            "Each head has its own bias: (h, T, T) fits the scores (B, h, T, T) as it is.",
            _WAYS,
            Slip(_attend, add=lambda scores, b, size: scores + b.sum(dim=0)),
        ),
        Mistake(
            "query and key exchanged",
            "You compute k qᵀ, the scores transposed: who looks and who is looked at change places. It is q kᵀ.",
            "Queries and keys exchanged.",
            Slip(_attend, compare=lambda q, k: k @ q.mT),
            lesson="03",
        ),
        Mistake(
            "no softmax",
            "You mix with the scores themselves. softmax(dim=-1) turns scores and bias into weights that sum to 1.",
            _WAYS,
            Slip(_attend, squash=lambda scores: scores),
        ),
        Mistake(
            "two softmaxes",
            "You take a softmax, add the bias, and take a softmax again. There is one: the bias is added to the scores "
            "before it.",
            _AFTER,
            Slip(_attend, add=lambda scores, b, size: scores, after=lambda weights, b: (weights + b).softmax(dim=-1)),
        ),
        Mistake(
            "weights that are multiplied by the bias",
            "Your weights don't sum to 1 any more. Add the bias to the scores, before the softmax.",
            _AFTER,
            Slip(_attend, add=lambda scores, b, size: scores, after=lambda weights, b: weights * b),
        ),
        Mistake(
            "powers of e that overflow",
            "e to the power of some hundreds is infinite, and infinite by infinite is nan. torch's softmax subtracts "
            "the largest score first; do the same, or use it.",
            "The softmax overflows.",
            Slip(_attend, squash=_powers_alone),
            lesson="03",
        ),
        Mistake(
            "a scale behind the softmax",
            "You divide the weights by √d, so that they no longer sum to 1. Divide q kᵀ, then add the bias.",
            "4 · Why divide by √d",
            Slip(
                _attend,
                size=lambda q: 1.0,
                mix=lambda weights, v: weights @ v / v.shape[-1] ** 0.5,
                give=lambda output, weights, scores: (output, weights / output.shape[-1] ** 0.5),
            ),
            lesson="03",
        ),
        Mistake(
            "a softmax over the heads",
            "dim=1 is the axis of the heads. The weights of one query must sum to 1 over the keys: dim=-1.",
            "Softmax over the wrong axis.",
            Slip(_attend, squash=lambda scores: scores.softmax(dim=1)),
            lesson="03",
        ),
        Mistake(
            "weights transposed",
            "You mix with weightsᵀ @ v. The output of query i is row i of the weights times v: weights @ v.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, mix=lambda weights, v: weights.mT @ v),
            lesson="03",
        ),
        Mistake(
            "output and weights exchanged",
            "Both are right, but in the other order: first the output z, then the weights A.",
            _WAYS,
            Slip(_attend, give=lambda output, weights, scores: (weights, output)),
        ),
        Mistake(
            "scores returned in place of weights",
            "The output is right. The second thing to return are the weights, after the softmax.",
            _WAYS,
            Slip(_attend, give=lambda output, weights, scores: (output, scores)),
        ),
        Mistake(
            "weights returned without their bias",
            "The output is right. Return the weights that you mixed with, those with the bias.",
            _WAYS,
            _weights_without_bias,
        ),
    ),
)


def check_biased_attention(fn: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> bool:
    """Check ``fn(q, k, v, bias)``: (B, h, T, d) each, (h, T, T) -> output (B, h, T, d), weights (B, h, T, T)."""
    return check(BIASED_ATTENTION, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _bias(
    index: Callable[[Grid], Tensor] = lesson.relative_position_index,
    order: tuple[int, int, int] = (0, 1, 2),
    front: bool = True,
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
    return table[:, lesson.relative_position_index(grid)]


def _heads_last(table: Tensor, grid: Grid) -> Tensor:
    return _bias()(table, grid).permute(1, 2, 0)


def _zeros_for_the_class(table: Tensor, grid: Grid) -> Tensor:
    whole = _bias()(table, grid).clone()
    whole[:, 0], whole[:, :, 0] = 0, 0
    return whole


def _class_columns_first(table: Tensor, grid: Grid) -> Tensor:
    return _bias()(table.roll(-3, dims=1), grid)


def _padded(table: Tensor, grid: Grid) -> Tensor:
    return table[:, pad(lesson.relative_position_index(grid), (1, 0, 1, 0))]


def _corner_left_at_zero(table: Tensor, grid: Grid) -> Tensor:
    whole = _bias()(table, grid).clone()
    whole[:, 0, 0] = table[:, 0]
    return whole


def _mean_of_heads(table: Tensor, grid: Grid) -> Tensor:
    return _bias()(table.mean(dim=0, keepdim=True), grid).repeat(len(table), 1, 1)


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
            (2, 3, 17),
            (13, 17, 2),
            (1, 9, 11),
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
            Slip(_bias, index=lambda grid: lesson.relative_position_index(grid).T),
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
        Mistake(
            "row and column of the whole exchanged",
            "All is there, but turned: entry [i, j] is for token i that looks at token j, the class token included.",
            _TURNED,
            lambda table, grid: _bias()(table, grid).mT,
        ),
        Mistake(
            "a corner without its own number",
            "The class token that looks at itself has the last column of the table. You filled row 0 and then column 0 "
            "as a whole: set [0, 0] after both.",
            _WAYS,
            Slip(_bias, order=(0, 1, 1)),
        ),
        Mistake(
            "a corner that was left at 0",
            "Way 0 is one between patches. The class token that looks at itself has the last column of the table: set "
            "[0, 0] of the index, too.",
            _WAYS,
            _corner_left_at_zero,
        ),
        Mistake(
            "a corner that belongs to the row",
            "The class token that looks at itself has the last column of the table. You filled row 0 as a whole: set "
            "[0, 0] after it.",
            _WAYS,
            Slip(_bias, order=(0, 1, 0)),
        ),
        Mistake(
            "the last of the three for all",
            "There are three: the class token looks, it is looked at, it looks at itself. You took the last for all.",
            _WAYS,
            Slip(_bias, order=(2, 2, 2)),
        ),
        Mistake(
            "the three taken from the end",
            "The first of the three is the third column from the end, -3. The last, -1, is for the class token that "
            "looks at itself.",
            _WAYS,
            Slip(_bias, order=(2, 1, 0)),
        ),
        Mistake(
            "the class token's own number as the first of the three",
            "The class token that looks at itself has the last of the three. First comes the class token that looks at "
            "a patch, then a patch that looks at it.",
            _WAYS,
            Slip(_bias, order=(1, 2, 0)),
        ),
        Mistake(
            "the class token's columns taken one too early",
            "The ways have the numbers from 0 on, so column `ways` is the first after them. You begin one before.",
            _WAYS,
            Slip(_bias, order=(-1, 0, 1)),
        ),
        Mistake(
            "the class token's columns at the front of the table",
            "The ways come first in the table, and the class token's three columns last.",
            _WAYS,
            _class_columns_first,
        ),
        Mistake(
            "way 0 for the class token",
            "You padded the index with zeros, and 0 is the way to the upper left. The class token has the last three "
            "columns of the table.",
            _WAYS,
            _padded,
        ),
        Mistake(
            "ways that are not moved up from zero",
            "An index below zero counts from the end, so some patches get the class token's numbers. Add rows - 1 to "
            "the step down and columns - 1 to the step to the right.",
            _WAYS,
            Slip(_bias, index=_offset_index(shift=lambda grid: (0, 0))),
        ),
        Mistake(
            "differences along the list",
            "Your ways are differences of numbers in the list. Take rows and columns apart, as in exercise 3.",
            _LIST,
            Slip(_bias, index=_along_the_list),
        ),
        Mistake(
            "a grid with rows and columns exchanged",
            "grid is (rows, columns). You took its first number for the columns.",
            _SWAPPED,
            Slip(_bias, index=lambda grid: lesson.relative_position_index(grid[::-1])),
        ),
        Mistake(
            "ways that are numbered column by column",
            "One step down skips the 2 · columns - 1 ways to the right, and one step to the right skips none.",
            _SWAPPED,
            Slip(_bias, index=_column_ways),
        ),
        Mistake(
            "distances without a direction",
            "You took the absolute value, so left and right get one number. A way has a sign.",
            _WAYS,
            Slip(_bias, index=_offset_index(way=lambda down, right: (down.abs(), right.abs()))),
        ),
        Mistake(
            "one head alone",
            "The table has a row for each head, and each head has its own bias: table[:, index].",
            _WAYS,
            lambda table, grid: _bias()(table[:1], grid),
        ),
        Mistake(
            "the bias of the first head for all",
            "The table has a row for each head, and each head has its own bias: table[:, index].",
            _WAYS,
            lambda table, grid: _bias()(table[:1], grid).repeat(len(table), 1, 1),
        ),
        Mistake(
            "a mean of all heads",
            "The table has a row for each head, and each head has its own bias: table[:, index].",
            _WAYS,
            _mean_of_heads,
        ),
        Mistake(
            "an axis for the images",
            "The numbers are right. All images share the bias, so it is (h, T, T), without an axis in front.",
            _WAYS,
            lambda table, grid: _bias()(table, grid)[None],
        ),
    ),
)


def check_relative_bias(fn: Callable[[Tensor, Grid], Tensor]) -> bool:
    """Check ``fn(table, grid)``: (h, ways + 3), (rows, columns) -> (h, T, T), the class token first."""
    return check(RELATIVE_BIAS, fn)
