"""Checks of lesson 02: the class token, positions added, positions of sines and cosines, positions on another grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from vit_tutorial import embeddings as lesson
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation, Submission
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.layers import layer, random_weights
from vit_tutorial.checks.engine.questions import Question, Slip, pencil

_IN_FRONT = "In front, not at the end"
_BEFORE = "Positions added before the class token is in front."
_SINES = "Positions that aren't learned: sines and cosines"
_GRID = "The class token in the grid, or no grid at all."
_EXCHANGED = "Height and width exchanged."
_CUT = "A smaller image, and `position[:, :T]`."
_LARGER = "The same positions on a larger image"
_NEW = "a new layer, as it starts"

# ---- With a pencil -----------------------------------------------------------------------------------------------

_AT_THE_END = Slip("a class token at the end", "The class token is token 0, and row 0 of the table is its row.")
_TOO_EARLY = Slip(
    "positions added before the class token is in front",
    "You gave rows 0 and 1 of the table to the patches. Row 0 is the class token's.",
)

EMBEDDING_NUMBERS = pencil(
    "embedding_numbers",
    lesson="02",
    points=3,
    questions={
        "z0": Question(
            [[11, 11], [21, 22], [33, 30]],
            "Write down the class token, then the patches, a row each; then add its own position to each.",
            _IN_FRONT,
            {((11, 12), (23, 20), (31, 31)): _AT_THE_END, ((1, 1), (11, 12), (23, 20)): _TOO_EARLY},
        ),
        "tokens": Question(
            141,
            "Count rows and columns of patches, multiply, and think of what comes before the patches.",
            _IN_FRONT,
            {140: Slip("the class token forgotten", "The class token is one token more than the 140 patches.")},
        ),
        "table": Question(108288, "One row for each token, and each row as wide as a token."),
        "token": Question(
            24,
            "Which number does the patch have among the patches, row by row from 0? And what comes before them?",
            _IN_FRONT,
            {23: Slip("patches counted from 0 among the tokens", "The class token is token 0, so patch 0 is token 1.")},
        ),
        "class gradient": Question(
            5,
            "Raise one number of the class token by a little. By how much does the loss grow through image 0, "
            "and by how much through image 1?",
        ),
        "stretched": Question(
            [0, 2, 4, 6],
            "The first number stays, the last number stays, and the others lie between them in equal steps.",
        ),
    },
)


# ---- Equation 1 --------------------------------------------------------------------------------------------------


def _embed(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1) + position


def _embed_cases() -> list[Case]:
    shapes = [(1, 4, 6), (2, 3, 5), (3, 6, 8), (5, 4, 5)]
    return [
        Case(
            f"x {(B, N, D)}, cls_token {(1, 1, D)}, position {(1, N + 1, D)}",
            (normal(B, N, D, seed=1), normal(1, 1, D, seed=2), normal(1, N + 1, D, seed=3)),
        )
        for B, N, D in shapes
    ]


EMBED_TOKENS = Exercise(
    name="embed_tokens",
    lesson="02",
    points=3,
    right=_embed,
    cases=_embed_cases,
    mistakes=(
        Mistake(
            name="positions added before the class token is in front",
            says="Your patches get rows 0 to N-1 of the table, one row too early, and the class token gets none. "
            "Concatenate first, then add the whole table.",
            reread=_BEFORE,
            wrong=lambda x, cls_token, position: torch.cat(
                [cls_token.expand(len(x), -1, -1), x + position[:, : x.shape[1]]], dim=1
            ),
        ),
        Mistake(
            name="positions added to the patches alone",
            says="The class token has a position too, row 0 of the table: concatenate first, then add the whole table.",
            reread=_BEFORE,
            wrong=lambda x, cls_token, position: torch.cat(
                [cls_token.expand(len(x), -1, -1), x + position[:, 1:]], dim=1
            ),
        ),
        Mistake(
            name="a class token at the end",
            says="The class token is token 0: it comes before the patches, and row 0 of the table is its row.",
            reread=_IN_FRONT,
            wrong=lambda x, cls_token, position: torch.cat([x, cls_token.expand(len(x), -1, -1)], dim=1) + position,
        ),
    ),
)


# ---- The class ---------------------------------------------------------------------------------------------------


def _observe_embeddings(submission: Submission, case: Case) -> Observation:
    if case.label != _NEW:
        return layer(submission, case, differentiable=False)  # an image needs no gradient
    cls_token, position, another = (
        _new_parameter(submission, case, name) for name in ("cls_token", "position", "position")
    )
    return Observation(
        {
            "the largest number of a new class token": cls_token.abs().max().item(),
            "the standard deviation of new positions": round(position.std().item(), 2),
            "the table of another new layer": "the same" if torch.equal(position, another) else "drawn anew",
        }
    )


def _new_parameter(submission: Submission, case: Case, name: str) -> Tensor:
    parameters = submission(*case.build).named_parameters()
    return next((p.detach() for own, p in parameters if own.endswith(name)), torch.zeros(2))


def _embeddings_cases() -> list[Case]:
    cases = []
    for B, C, image_size, patch_size, dim in [(1, 1, (4, 4), 2, 6), (3, 2, (6, 8), 2, 5), (2, 4, (6, 12), (2, 4), 8)]:
        build: tuple[Any, ...] = (image_size, patch_size, C, dim)
        label = f"images {(B, C, *image_size)}, patch_size={patch_size}, dim={dim}"
        cases.append(Case(label, (normal(B, C, *image_size),), build, random_weights(lesson.Embeddings(*build))))
    return [*cases, Case(_NEW, build=((48, 64), 4, 1, 40))]


def _with(join: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[nn.Module]:
    """The layer with another way to join patch tokens, class token and positions."""

    class Wrong(lesson.Embeddings):
        def forward(self, images: Tensor) -> Tensor:
            assert self.cls_token is not None
            assert self.position is not None
            return join(self.patches(images), self.cls_token, self.position)

    return Wrong


EMBEDDINGS = Exercise(
    name="embeddings",
    lesson="02",
    points=3,
    right=lesson.Embeddings,
    cases=_embeddings_cases,
    observe=_observe_embeddings,
    mistakes=tuple(dataclasses.replace(one, wrong=_with(one.wrong)) for one in EMBED_TOKENS.mistakes),
)


# ---- Sines and cosines -------------------------------------------------------------------------------------------


def _short_frequencies(grid: lesson.Grid, dim: int) -> Tensor:
    frequency = 10_000.0 ** -(torch.arange(dim // 4) / (dim // 4))
    y, x = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    x_angle, y_angle = x.flatten()[:, None] * frequency, y.flatten()[:, None] * frequency  # (N, D/4)
    return torch.cat([x_angle.sin(), x_angle.cos(), y_angle.sin(), y_angle.cos()], dim=1)[None]


def _down_the_columns(grid: lesson.Grid, dim: int) -> Tensor:
    return lesson.sincos_position_embedding(grid, dim).unflatten(1, grid).transpose(1, 2).flatten(1, 2)


SINCOS_POSITIONS = Exercise(
    name="sincos_positions",
    lesson="02",
    points=2,
    right=lesson.sincos_position_embedding,
    cases=lambda: [
        Case(f"grid={grid}, dim={dim}", (grid, dim))
        for grid, dim in [((2, 3), 8), ((3, 2), 16), ((1, 5), 12), ((4, 5), 24)]
    ],
    mistakes=(
        Mistake(
            name="patches counted down the columns",
            says="Patches go row by row, so the column changes fastest: torch.meshgrid(rows, columns, indexing='ij').",
            reread=_SINES,
            wrong=_down_the_columns,
        ),
        Mistake(
            name="the grid read as (columns, rows)",
            says="grid is (rows, columns), height first. With square grids the mistake doesn't show.",
            reread=_SINES,
            wrong=lambda grid, dim: lesson.sincos_position_embedding(grid[::-1], dim),
        ),
        Mistake(
            name="frequencies that end before 1/10000",
            says="You divide k by the number of frequencies, n = D/4. From 1 to 1/10000 there are n - 1 steps: 10000 "
            "** (-k / (n - 1)).",
            reread=_SINES,
            wrong=_short_frequencies,
        ),
    ),
)


# ---- Another grid ------------------------------------------------------------------------------------------------


def _resize(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return lesson.resize_position_embedding(position, old_grid, new_grid, recipe="huggingface")


def _resize_cases() -> list[Case]:
    cases = []
    sizes = [((2, 3), (4, 6), 5), ((5, 2), (3, 7), 4), ((3, 5), (4, 2), 6), ((4, 3), (4, 3), 5), ((3, 3), (5, 5), 4)]
    for old, new, dim in sizes:
        position = normal(1, 1 + old[0] * old[1], dim, seed=dim)
        cases.append(Case(f"position {tuple(position.shape)}, {old} -> {new}", (position, old, new)))
    return cases


def _resized(rows: Tensor, old: lesson.Grid, new: lesson.Grid, **options: Any) -> Tensor:
    """(1, N, D) -> (1, new N, D), bicubic unless ``options`` say something else."""
    maps = rows.transpose(1, 2).reshape(1, -1, *old)
    return interpolate(maps, size=new, **{"mode": "bicubic"} | options).flatten(2).transpose(1, 2)


def _patches_by(stretch: Callable[[Tensor, lesson.Grid, lesson.Grid], Tensor]) -> Callable[..., Tensor]:
    """The class token's row as it is, the other rows (1, N, D) stretched in some way."""

    def resize(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
        return torch.cat([position[:, :1], stretch(position[:, 1:], old_grid, new_grid)], dim=1)

    return resize


def _stretch_list(rows: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
    return interpolate(rows.transpose(1, 2), size=new[0] * new[1], mode="linear").transpose(1, 2)


def _reshaped(rows: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
    maps = interpolate(rows.reshape(1, -1, *old), size=new, mode="bicubic")
    return maps.reshape(1, -1, rows.shape[-1])


RESIZE_POSITIONS = Exercise(
    name="resize_positions",
    lesson="02",
    points=3,
    right=_resize,
    cases=_resize_cases,
    forbidden=(lesson.resize_position_embedding,),
    mistakes=(
        Mistake(
            name="positions flattened before resizing",
            says="You stretch the list of patches in one dimension, so rows and columns are lost. Lay it out as a grid "
            "first: (1, D, rows, columns).",
            reread=_GRID,
            wrong=_patches_by(_stretch_list),
        ),
        Mistake(
            name="the class token in the grid",
            says="You lay out the first rows * columns rows of the table, the class token's among them, so that every "
            "patch moves by one. Set row 0 aside first.",
            reread=_GRID,
            wrong=lambda position, old, new: torch.cat([position[:, :1], _resized(position[:, :-1], old, new)], dim=1),
        ),
        Mistake(
            name="a reshape in place of a transpose",
            says="The table is (1, N, D), and the channels must come first: transpose(1, 2), then reshape to (1, D, "
            "rows, columns). On the way back a reshape alone mixes channels and patches again: flatten(2), then "
            "transpose(1, 2).",
            reread=_GRID,
            wrong=_patches_by(_reshaped),
        ),
        Mistake(
            name="a table cut to length",
            says="You take the first rows of the table. Row 1 of the new grid then starts with the end of row 0 of the "
            "old one: resize the grid.",
            reread=_CUT,
            wrong=lambda position, old, new: position[:, : 1 + new[0] * new[1]],
        ),
        Mistake(
            name="a bilinear resize",
            says="The text asks for bicubic interpolation.",
            reread=_LARGER,
            wrong=_patches_by(lambda rows, old, new: _resized(rows, old, new, mode="bilinear")),
        ),
        Mistake(
            name="corners aligned",
            says="You pass align_corners=True. Here it is False, interpolate's default.",
            reread=_LARGER,
            wrong=_patches_by(lambda rows, old, new: _resized(rows, old, new, align_corners=True)),
        ),
        Mistake(
            name="rows and columns of both grids exchanged",
            says="You read old_grid and new_grid as (columns, rows). They are (rows, columns), and so is reshape's "
            "order.",
            reread=_EXCHANGED,
            wrong=_patches_by(lambda rows, old, new: _resized(rows, old[::-1], new[::-1])),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _stretch_cases() -> list[Case]:
    sizes = [((2, 4, 1), (4, 6)), ((6, 7, 3), (4, 2)), ((2, 3, 5), (1, 4)), ((3, 1, 2), (2, 4)), ((4, 3, 2), (1, 1))]
    return [Case(f"grid {shape} -> {size}", (normal(*shape), size)) for shape, size in sizes]


def _by_hand(
    places: Callable[[int, int], Tensor], weigh: Callable[[Tensor], Tensor] = lambda fraction: fraction
) -> Callable[..., Tensor]:
    """Bilinear by hand, with other places of the new cells among the old ones, or other weights."""

    def stretch(grid: Tensor, size: lesson.Grid) -> Tensor:
        for axis in (0, 1):
            old = grid.shape[axis]
            place = places(old, size[axis]).clamp(0, old - 1)
            low = place.floor().long()
            high, fraction = (low + 1).clamp(max=old - 1), (place - low)
            weight = weigh(fraction).reshape(-1, *[1] * (2 - axis))
            grid = grid.index_select(axis, low) * (1 - weight) + grid.index_select(axis, high) * weight
        return grid

    return stretch


def _kept_corners(old: int, new: int) -> Tensor:
    return torch.arange(new) * ((old - 1) / max(new - 1, 1))


STRETCH = Exercise(
    name="stretch",
    lesson="02",
    points=2,
    right=_by_hand(_kept_corners),
    cases=_stretch_cases,
    forbidden=("interpolate", "upsample", lesson.resize_position_embedding),
    mistakes=(
        Mistake(
            name="outer edges kept in place of corners",
            says="That is align_corners=False. Here the first and the last cell stay where they are.",
            reread=_LARGER,
            wrong=_by_hand(lambda old, new: (torch.arange(new) + 0.5) * (old / new) - 0.5),
        ),
        Mistake(
            name="steps of old / new",
            says="From corner to corner, new - 1 steps cover a distance of old - 1: each is (old - 1) / (new - 1).",
            reread=_LARGER,
            wrong=_by_hand(lambda old, new: torch.arange(new) * (old / new)),
        ),
        Mistake(
            name="the nearest cell repeated",
            says="You take one old cell for each new one. Take a weighted mean of two along each axis.",
            reread=_LARGER,
            wrong=_by_hand(_kept_corners, weigh=torch.round),
        ),
    ),
)
