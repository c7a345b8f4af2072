"""Checks of lesson 11: positions in two halves, offsets from patch to patch, and attention with a bias."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from vit_tutorial.checks.harness import Case, Exercise, Fault, Result, Slip, answers, call, check, normal, section
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
        "sine-cosine": "How many of its numbers does training change?",
        "ways": "Down, a patch can lie -1, 0 or 1 rows from another. And how many columns?",
        "pairs": "In each row, count the patches that have a neighbour to the right.",
        "vector": "The row's half comes first, then the column's.",
        "weights": "Add the bias to the scores, and take the softmax. e to the power of ln 3 is 3.",
        "biases": "A number for each offset and each head; and each layer has its own.",
    },
    mistakes=(
        *section(
            _HALVES,
            (
                "one number for each patch",
                "A position is added to a token, so it is as wide: 6 · 8 numbers.",
                {"1-D": 6},
            ),
            ("the class token counted with the patches", "The question leaves it out: 6 patches.", {"1-D": 56}),
            ("whole vectors for rows and columns", "Each has half the width: D / 2 = 4 numbers.", {"2-D": 40}),
            ("fixed numbers counted as learned", "Training changes no sine and no cosine.", {"sine-cosine": 48}),
            ("halves that are added", "They are joined: the row's half, then the column's half.", {"vector": [6, 8]}),
        ),
        *section(
            _WAYS,
            (
                "pairs counted in place of offsets",
                "36 pairs share far fewer offsets: 3 down times 5 to the right.",
                {"ways": 36},
            ),
            (
                "offsets in one direction alone",
                "An offset to the left or upwards is another one: count negative ones.",
                {"ways": 6},
            ),
            ("biases that all heads share", "Each head has its own number for each offset.", {"biases": 60}),
        ),
        *section(
            _LIST,
            ("offsets along a list", "In a grid an offset has two parts, down and right: 3 · 5 of them.", {"ways": 11}),
            (
                "neighbours counted along the list",
                "Patch 2 ends the first row; patch 3 begins the second.",
                {"pairs": 5},
            ),
        ),
        *section(
            _AFTER,
            (
                "a bias added to the weights",
                "Add the bias to the scores, before the softmax: the weights must sum to 1.",
                {"weights": [0.5 + math.log(3), 0.5]},
            ),
        ),
        *section(
            _PLACES,
            ("biases of one layer", "There are four layers, each with 15 · 3 biases of its own.", {"biases": 45}),
        ),
    ),
)


def check_position_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(POSITION_NUMBERS, fn)


# ---- Two halves --------------------------------------------------------------------------------------------------


def _halves(
    rows: Callable[[Tensor, int], Tensor] = lambda row, C: row.repeat_interleave(C, dim=0),
    columns: Callable[[Tensor, int], Tensor] = lambda column, R: column.repeat(R, 1),
    join: Callable[[Tensor, Tensor], Tensor] = lambda left, right: torch.cat([left, right], dim=1),
) -> Callable[[Tensor, Tensor], Tensor]:
    """2-D positions, with rows or columns repeated, or joined, in another way."""

    def two_d_positions(row: Tensor, column: Tensor) -> Tensor:
        return join(rows(row, len(column)), columns(column, len(row)))  # (R * C, D)

    return two_d_positions


def _exchanged(row: Tensor, column: Tensor) -> Tensor:
    return _halves()(column, row)


def _pairs(row: Tensor, column: Tensor) -> Tensor:
    return torch.stack([torch.cat(pair) for pair in zip(row, column, strict=False)])


def _half_cases() -> list[Case]:
    sizes = [(2, 3, 4), (3, 2, 2), (4, 4, 6), (1, 5, 2), (3, 1, 6), (1, 1, 4), (13, 4, 2), (37, 5, 2), (3, 41, 70)]
    return [
        Case(f"{R} rows, {C} columns, D = {D}", (normal(R, D // 2, seed=1), normal(C, D // 2, seed=2)))
        for R, C, D in sizes
    ]


TWO_D_POSITIONS = Exercise(
    name="two_d_positions",
    lesson="11",
    points=4,
    right=_halves(),
    cases=_half_cases,
    observe=functools.partial(call, differentiable=True),
    forbidden=(lesson.GridPosition,),
    mistakes=(
        *section(
            _HALVES,
            (
                "patches column by column",
                "Patches are numbered row by row: in the first row the column changes, and the row stays.",
                Slip(
                    _halves,
                    rows=lambda row, C: row.repeat(C, 1),
                    columns=lambda column, R: column.repeat_interleave(R, dim=0),
                ),
            ),
            (
                "rows that are repeated as a whole",
                "All patches of the first row are in row 0: use repeat_interleave for the rows.",
                Slip(_halves, rows=lambda row, C: row.repeat(C, 1)),
            ),
            (
                "columns that are repeated one by one",
                "The list of columns begins anew in each row: use repeat for the columns.",
                Slip(_halves, columns=lambda column, R: column.repeat_interleave(R, dim=0)),
            ),
            (
                "the column's half in front",
                "Both halves are right, but the row's half comes first.",
                Slip(_halves, join=lambda left, right: torch.cat([right, left], dim=1)),
            ),
            (
                "halves that are added",
                "You return vectors of width D / 2. Join the halves: torch.cat along the last axis.",
                Slip(_halves, join=torch.add),
            ),
            ("a row paired with one column", "zip pairs row 0 with column 0. Each row goes with every column.", _pairs),
            (
                "halves that are joined along the tokens, then cut",
                "Join the halves along the last axis: torch.cat with dim=1, without a reshape.",
                Slip(_halves, join=lambda left, right: torch.cat([left, right]).reshape(len(left), -1)),
            ),
            (
                "numbers that are repeated in place of vectors",
                "repeat_interleave without dim repeats single numbers. With dim=0 it repeats whole vectors.",
                Slip(_halves, rows=lambda row, C: row.flatten().repeat_interleave(C).reshape(-1, row.shape[1])),
            ),
        ),
        *section(
            _SWAPPED,
            (
                "row and column exchanged throughout",
                "The column's half comes first, and the patches are numbered column by column. The rows are the first "
                "argument.",
                _exchanged,
            ),
        ),
    ),
)


def check_two_d_positions(fn: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(row, column)``: (rows, D / 2), (columns, D / 2) -> (N, D), row by row, the row's half first."""
    return check(TWO_D_POSITIONS, fn)


# ---- Offsets from patch to patch ---------------------------------------------------------------------------------


def _numbered(work: Any, case: Case) -> Result:
    """The offsets' numbers, which a call for another grid must leave as they are."""
    observed = call(work, case)
    found = observed["result"]
    before = copy.deepcopy(found)
    work((1, 2))
    if isinstance(found, Tensor) and not torch.equal(found, before):
        raise Fault("a call for another grid changes the result of the first: make a new tensor in each call")
    return observed


def _offset_index(
    rows_of: Callable[[Grid], int] = lambda grid: grid[1],
    offset: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda down, right: (down, right),
    shift: Callable[[Grid], Grid] = lambda grid: (grid[0] - 1, grid[1] - 1),
    factor: Callable[[Grid], int] = lambda grid: 2 * grid[1] - 1,
) -> Callable[[Grid], Tensor]:
    """(down + rows - 1) (2 columns - 1) + right + columns - 1, with each of its parts to be replaced."""

    def offset_index(grid: Grid) -> Tensor:
        patch = torch.arange(grid[0] * grid[1])
        row, column = patch // rows_of(grid), patch % rows_of(grid)
        down, right = offset(row[None] - row[:, None], column[None] - column[:, None])  # (N, N) each
        return (down + shift(grid)[0]) * factor(grid) + right + shift(grid)[1]

    return offset_index


def _along_the_list(grid: Grid) -> Tensor:
    place = torch.arange(grid[0] * grid[1])
    return place[None] - place[:, None] + len(place) - 1


def _columns_and_rows(grid: Grid) -> Tensor:
    return lesson.relative_position_index(grid[::-1])


def _offsets_and_numbers(compared: list[tuple[Case, Result, Result]]) -> str:
    """Whether each offset has one number, and each number one offset, where they aren't the text's numbers."""
    apart = False
    for case, right, yours in compared:
        offsets, numbers = right["result"].flatten(), torch.as_tensor(yours["result"]).flatten()
        if numbers.numel() != offsets.numel():
            return ""
        apart = apart or bool((numbers != offsets).any())
        pairs = len(torch.stack([offsets, numbers], dim=1).unique(dim=0))
        many, found = len(offsets.unique()), len(numbers.unique())
        if pairs > many:
            return f"With {case.label} pairs of patches with the same offset get different numbers."
        if found < many:
            return f"With {case.label} there are {many} offsets, and you have {found} numbers: some share one."
    if not apart:
        return ""
    return (
        "Each offset has one number, and no two offsets share one, but they aren't the numbers of the text: down by 1 "
        "adds 2 · columns - 1, to the right by 1 adds 1, and the smallest number is 0."
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
    locate=_offsets_and_numbers,
    mistakes=(
        *section(
            _TURNED,
            (
                "the offset from j to i",
                "Entry [i, j] is the offset from patch i, which looks, to patch j: column of j minus column of i.",
                Slip(_offset_index, offset=lambda down, right: (-down, -right)),
            ),
        ),
        *section(
            _LIST,
            (
                "differences along the list",
                "Your numbers are j - i plus a constant: the end of a row and the beginning of the next look like "
                "neighbours. Find the row and the column of each patch; a step down skips 2 · columns - 1 numbers.",
                _along_the_list,
            ),
        ),
        *section(
            _SWAPPED,
            (
                "a grid of (columns, rows)",
                "grid is (rows, columns). You took its first number for the columns.",
                _columns_and_rows,
            ),
            (
                "the rows' number of offsets for the columns",
                "One step down skips 2 · columns - 1 numbers. You took 2 · rows - 1.",
                Slip(_offset_index, factor=lambda grid: 2 * grid[0] - 1),
            ),
            (
                "offsets that are numbered column by column",
                "A step down adds 2 · columns - 1, a step to the right adds 1.",
                Slip(
                    _offset_index,
                    offset=lambda down, right: (right, down),
                    shift=lambda grid: (grid[1] - 1, grid[0] - 1),
                    factor=lambda grid: 2 * grid[0] - 1,
                ),
            ),
            (
                "a division by the number of rows",
                "A row is as long as there are columns: patch n is in row n // columns and column n % columns.",
                Slip(_offset_index, rows_of=lambda grid: grid[0]),
            ),
            (
                "rows - 1 and columns - 1 exchanged",
                "The step down begins at -(rows - 1): add rows - 1 to it, and columns - 1 to the step to the right.",
                Slip(_offset_index, shift=lambda grid: (grid[1] - 1, grid[0] - 1)),
            ),
        ),
        *section(
            _WAYS,
            (
                "offsets that don't begin at zero",
                "Some of your numbers are negative. Add rows - 1 to the step down and columns - 1 to the step right.",
                Slip(_offset_index, shift=lambda grid: (0, 0)),
            ),
            (
                "2 · columns for 2 · columns - 1",
                "From -(columns - 1) to columns - 1 there are 2 · columns - 1 steps, so your numbers have gaps.",
                Slip(_offset_index, factor=lambda grid: 2 * grid[1]),
            ),
            (
                "parentheses left out",
                "Multiply by (2 * columns - 1), in parentheses.",
                Slip(_offset_index, factor=lambda grid: 2 * grid[1], shift=lambda grid: (grid[0] - 1, grid[1] - 2)),
            ),
            (
                "distances without a direction",
                "You took the absolute value, so left and right get one number. An offset has a sign.",
                Slip(_offset_index, offset=lambda down, right: (down.abs(), right.abs())),
            ),
            (
                "the two steps added",
                "One step down gets the number of one to the right. Multiply the step down by 2 · columns - 1.",
                Slip(_offset_index, factor=lambda grid: 1),
            ),
        ),
    ),
)


def check_offset_index(fn: Callable[[Grid], Tensor]) -> bool:
    """Check ``fn(grid)``: (rows, columns) -> (N, N) whole numbers, the offset from patch i to patch j at [i, j]."""
    return check(OFFSET_INDEX, fn)


# ---- Attention with a bias ---------------------------------------------------------------------------------------


def _attend(
    compare: Callable[[Tensor, Tensor], Tensor] = lambda q, k: q @ k.mT / q.shape[-1] ** 0.5,
    add: Callable[[Tensor, Tensor], Tensor] = lambda scores, b: scores + b,
    squash: Callable[[Tensor, Tensor], Tensor] = lambda scores, b: scores.softmax(dim=-1),
) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Attention with other scores, a bias that is added in another way, or another softmax."""

    def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        weights = squash(add(compare(q, k), bias), bias)
        return weights @ v, weights

    return biased_attention


def _divided_with_the_rest(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return _attend()(q, k, v, bias / q.shape[-1] ** 0.5)


def _weights_without_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return _attend()(q, k, v, bias)[0], _attend()(q, k, v, torch.zeros_like(bias))[1]


def _attention_cases() -> list[Case]:
    sizes = [(1, 2, 3, 4), (2, 3, 5, 2), (3, 1, 4, 6), (3, 3, 3, 3), (1, 2, 1, 3), (1, 12, 45, 2), (17, 2, 3, 1),
             (2, 13, 2, 5), (1, 1, 61, 2)]  # fmt: skip
    cases = [
        Case(
            f"q, k, v ({B}, {h}, {T}, {d}), bias ({h}, {T}, {T})",
            (*(normal(B, h, T, d, seed=seed) for seed in (1, 2, 3)), (20 if T == 61 else 1) * normal(h, T, T, seed=4)),
        )
        for B, h, T, d in sizes
    ]
    q, k, v = (normal(2, 2, 4, 3, seed=seed) for seed in (5, 6, 7))
    hidden = normal(2, 4, 4, seed=8)
    hidden[:, :, 1] = -1e4  # nobody may look at token 1
    large = Case("scores in the thousands", (60 * q, 60 * k, v, normal(2, 4, 4, seed=9)))
    return [*cases, Case("a bias of -10,000 on token 1", (q, k, v, hidden)), large]


BIASED_ATTENTION = Exercise(
    name="biased_attention",
    lesson="11",
    points=3,
    right=_attend(),
    cases=_attention_cases,
    observe=call,
    mistakes=(
        *section(
            _AFTER,
            (
                "a bias after the softmax",
                "Your weights don't sum to 1 any more. Add the bias to the scores, before the softmax.",
                Slip(_attend, add=lambda scores, b: scores, squash=lambda scores, b: scores.softmax(dim=-1) + b),
            ),
        ),
        *section(
            _WAYS,
            ("a bias that is divided by √d", "Divide q kᵀ alone, then add the bias.", _divided_with_the_rest),
            ("no bias at all", "Add the bias to the scores.", Slip(_attend, add=lambda scores, b: scores)),
            (
                "no scale",
                "Divide q kᵀ by √d, as in lesson 03, and then add the bias.",
                Slip(_attend, compare=lambda q, k: q @ k.mT),
            ),
            (
                "a division by d",
                "You divide by d, or both q and k by √d. q kᵀ is divided by √d, once.",
                Slip(_attend, compare=lambda q, k: q @ k.mT / q.shape[-1]),
            ),
            (
                "a bias for each image",
                "The first axis of (h, T, T) is for the heads: it fits the scores (B, h, T, T) without a new axis.",
                Slip(_attend, add=lambda scores, b: scores + b[:, None]),
            ),
            (
                "weights returned without their bias",
                "The output is right. Return the weights that you mixed with, those with the bias.",
                _weights_without_bias,
            ),
        ),
        *section(
            _TURNED,
            (
                "a transposed bias",
                "bias[h, i, j] is for token i that looks at token j, as in the scores: no transpose.",
                Slip(_attend, add=lambda scores, b: scores + b.mT),
            ),
        ),
        *section(
            "Softmax over the wrong axis.",
            (
                "a softmax over the wrong axis",
                "Your columns sum to 1. The weights of one query must sum to 1 over the keys: dim=-1.",
                Slip(_attend, squash=lambda scores, b: scores.softmax(dim=-2)),
            ),
            lesson="03",
        ),
        *section(
            "Queries and keys exchanged.",
            (
                "query and key exchanged",
                "You compute k qᵀ, the transposed scores. It is q kᵀ.",
                Slip(_attend, compare=lambda q, k: k @ q.mT / q.shape[-1] ** 0.5),
            ),
            lesson="03",
        ),
        *section(
            "The softmax overflows.",
            (
                "powers of e that overflow",
                "e to the power of some hundreds is infinite. torch's softmax subtracts the largest score first; do "
                "the same, or use it.",
                Slip(_attend, squash=lambda scores, b: scores.exp() / scores.exp().sum(dim=-1, keepdim=True)),
            ),
            lesson="03",
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
    """The bias with another index, the class token's columns in another order, or the class token at the end."""

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


def _padded(table: Tensor, grid: Grid) -> Tensor:
    return table[:, pad(lesson.relative_position_index(grid), (1, 0, 1, 0))]


def _bias_cases() -> list[Case]:
    sizes = [(1, 2, 2), (2, 2, 3), (3, 3, 2), (2, 4, 4), (3, 1, 4), (2, 5, 1), (2, 1, 1), (5, 2, 2), (12, 9, 4),
             (2, 3, 17), (13, 17, 2), (1, 9, 11)]  # fmt: skip
    return [
        Case(f"{h} heads, {R} rows, {C} columns", (normal(h, (2 * R - 1) * (2 * C - 1) + 3), (R, C)))
        for h, R, C in sizes
    ]


RELATIVE_BIAS = Exercise(
    name="relative_bias",
    lesson="11",
    points=2,
    right=_bias(),
    cases=_bias_cases,
    observe=functools.partial(call, differentiable=True),
    forbidden=(lesson.RelativeBias,),
    mistakes=(
        *section(
            _WAYS,
            (
                "looking and being looked at exchanged",
                "Row 0 is for the class token that looks at a patch, the first of the three; column 0 is for a patch "
                "that looks at it, the second.",
                Slip(_bias, order=(1, 0, 2)),
            ),
            (
                "no row and column for the class token",
                "You return (h, N, N), and the scores are (N + 1, N + 1): the class token comes first.",
                _patches_alone,
            ),
            (
                "[0, 0] without its own number",
                "The class token that looks at itself has the last column of the table: set [0, 0] after row 0 and "
                "column 0.",
                Slip(_bias, order=(0, 1, 1)),
            ),
            (
                "offset 0 for the class token",
                "You padded the index with zeros, and 0 is the offset to the upper left. The class token has the last "
                "three columns of the table.",
                _padded,
            ),
        ),
        *section(
            "In front, not at the end",
            (
                "a class token at the end",
                "The class token is token 0, so its row and its column come first.",
                Slip(_bias, front=False),
            ),
            lesson="02",
        ),
        *section(
            _TURNED,
            (
                "offsets from j to i",
                "The patches' part is transposed: entry [i, j] is the offset from patch i, which looks, to patch j.",
                Slip(_bias, index=lambda grid: lesson.relative_position_index(grid).T),
            ),
        ),
        *section(
            _SWAPPED,
            (
                "a grid of (columns, rows)",
                "grid is (rows, columns). You took its first number for the columns.",
                Slip(_bias, index=_columns_and_rows),
            ),
        ),
    ),
)


def check_relative_bias(fn: Callable[[Tensor, Grid], Tensor]) -> bool:
    """Check ``fn(table, grid)``: (h, offsets + 3), (rows, columns) -> (h, T, T), the class token first."""
    return check(RELATIVE_BIAS, fn)
