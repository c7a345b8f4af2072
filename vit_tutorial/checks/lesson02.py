"""Checks of lesson 02: the class token, positions added, positions of sines and cosines, positions on another grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from vit_tutorial import embeddings as lesson
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Result,
    answers,
    call,
    check,
    layer,
    normal,
    random_weights,
)

__all__ = [
    "check_embed_tokens",
    "check_embedding_numbers",
    "check_embeddings",
    "check_resize_positions",
    "check_sincos_positions",
    "check_stretch",
]

_IN_FRONT = "In front, not at the end"
_SHARED = "One vector, shared by every image"
_BEFORE = "Positions added before the class token is in front."
_ADDED = "4 · Positions are added"
_SINES = "Positions that nobody learns: sines and cosines"
_GRID = "The class token in the grid, or no grid at all."
_EXCHANGED = "Height and width exchanged."
_LARGER = "7 · The same positions on a larger image"
_RECIPES = "Five recipes, five results"
_HAND = "1 · Equation 1, by hand"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "z0": [[11, 11], [21, 22], [33, 30]],
    "tokens": 141,
    "table": 141 * 768,
    "token": 24,
    "class gradient": 5,
    "stretched": [0, 2, 4, 6],
}

EMBEDDING_NUMBERS = Exercise(
    name="embedding_numbers",
    lesson="02",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    secret=True,
    mistakes=(
        Mistake(
            "a class token at the end",
            "The class token is token 0: first it, then the patches. Row 0 of the table is its row.",
            _IN_FRONT,
            {"z0": [[11, 12], [23, 20], [31, 31]]},
        ),
        Mistake(
            "positions added before the class token is in front",
            "You gave rows 0 and 1 of the table to the patches. Put the class token in front first; then row 0 is its "
            "row, and the patches take rows 1 and 2.",
            _BEFORE,
            {"z0": [[1, 1], [11, 12], [23, 20]]},
        ),
        Mistake(
            "positions concatenated",
            "You put each position beside its token, so that the width doubled. Positions are added.",
            _ADDED,
            {"z0": [[1, 1, 10, 10], [1, 2, 20, 20], [3, 0, 30, 30]]},
        ),
        Mistake(
            "the class token forgotten",
            "14 rows of 10 make 140 patches. The class token is one token more.",
            "2 · The real size",
            {"tokens": 140},
        ),
        Mistake(
            "a table without the class token's row",
            "The table has one row for each token, and the class token is a token: 141 rows.",
            _ADDED,
            {"table": 140 * 768},
        ),
        Mistake(
            "patches counted from 0 among the tokens",
            "Patch 0 is token 1, because the class token is token 0.",
            _IN_FRONT,
            {"token": 23},
        ),
        Mistake(
            "rows and columns of patches exchanged",
            "Patches count across first. A row of this grid has 10 patches, so row 2 begins with patch 20.",
            _EXCHANGED,
            {"token": 45},
        ),
        Mistake(
            "a class token for each image",
            "Both images use the same class token, so it collects the gradients of both: they are summed.",
            _SHARED,
            {"class gradient": [2, 3]},
        ),
        Mistake(
            "a mean over the batch",
            "The gradient of a parameter that is used twice is the sum of both gradients, not their mean.",
            _SHARED,
            {"class gradient": 2.5},
        ),
        Mistake(
            "outer edges kept in place of corners",
            "That is the other choice, align_corners=False. With the corners kept, the first number stays 0, the last "
            "stays 6, and three equal steps lie between.",
            _LARGER,
            {"stretched": [0, 1.5, 4.5, 6]},
        ),
        Mistake(
            "numbers repeated",
            "You repeated the nearest number. Interpolation puts numbers in between.",
            _LARGER,
            {"stretched": [0, 0, 6, 6]},
        ),
    ),
)


def check_embedding_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(EMBEDDING_NUMBERS, fn)


# ---- Equation 1 --------------------------------------------------------------------------------------------------


def _embed(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1) + position


def _embed_cases() -> list[Case]:
    shapes = [(1, 4, 6), (2, 3, 4), (3, 6, 8), (4, 1, 5)]
    return [
        Case(
            f"x {(B, N, D)}, cls_token {(1, 1, D)}, position {(1, N + 1, D)}",
            (normal(B, N, D, seed=1), normal(1, 1, D, seed=2), normal(1, N + 1, D, seed=3)),
        )
        for B, N, D in shapes
    ]


def _joined(run: Callable[[Any, Case], Result]) -> Callable[[Any, Case], Result]:
    """An observer that keeps what torch.cat complains about: a class token that is not expanded gets no further."""

    def observe(work: Any, case: Case) -> Result:
        try:
            return {"torch.cat": "joined"} | run(work, case)
        except RuntimeError as error:
            if not str(error).startswith("Sizes of tensors must match"):
                raise
            return {"torch.cat": str(error)}

    return observe


def _not_expanded(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token, x], dim=1) + position


def _one_a_patch(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(x.shape[1], -1, -1), x], dim=1) + position


def _class_at_the_end(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([x, cls_token.expand(len(x), -1, -1)], dim=1) + position


def _end_and_its_row(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([x + position[:, 1:], (cls_token + position[:, :1]).expand(len(x), -1, -1)], dim=1)


def _early_first_rows(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x + position[:, : x.shape[1]]], dim=1)


def _early_last_rows(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x + position[:, 1:]], dim=1)


def _beside(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    z = torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1)
    return torch.cat([z, position.expand(len(x), -1, -1)], dim=2)


def _as_more_tokens(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x, position.expand(len(x), -1, -1)], dim=1)


def _class_for_the_first(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    others = torch.zeros(len(x) - 1, 1, x.shape[2])
    return torch.cat([torch.cat([cls_token, others]), x], dim=1) + position


def _class_added(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return x + cls_token + position[:, 1:]


def _class_over_a_patch(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x[:, 1:]], dim=1) + position[:, : x.shape[1]]


def _no_position(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1)


EMBED_TOKENS = Exercise(
    name="embed_tokens",
    lesson="02",
    points=3,
    right=_embed,
    cases=_embed_cases,
    observe=_joined(call),
    mistakes=(
        Mistake(
            "a class token that is not expanded",
            "There is one class token and a batch of images, and torch.cat doesn't broadcast. "
            "cls_token.expand(B, -1, -1) shows it once for each image.",
            _SHARED,
            _not_expanded,
        ),
        Mistake(
            "a class token for each patch",
            "You expand it to N along the batch. It is needed once for each image: cls_token.expand(B, -1, -1).",
            _SHARED,
            _one_a_patch,
        ),
        Mistake(
            "a class token at the end",
            "The class token comes first: the head reads z[:, 0], and row 0 of the positions is its row. Exchange the "
            "two parts in torch.cat.",
            _IN_FRONT,
            _class_at_the_end,
        ),
        Mistake(
            "a class token at the end, with its own position",
            "Each token has the right position, but the class token stands last. The head reads z[:, 0].",
            _IN_FRONT,
            _end_and_its_row,
        ),
        Mistake(
            "positions added before the class token is in front",
            "Your patches get rows 0 to N-1 of the table, one row too early, and the class token gets none. "
            "Concatenate first, then add the whole table.",
            _BEFORE,
            _early_first_rows,
        ),
        Mistake(
            "a class token without its position",
            "Your patches have the right rows, but row 0 of the table is never used. Concatenate first, then add the "
            "whole table.",
            _BEFORE,
            _early_last_rows,
        ),
        Mistake(
            "positions concatenated along the width",
            "You return (B, N + 1, 2D). Positions are added to the tokens, so that the width stays D.",
            _ADDED,
            _beside,
        ),
        Mistake(
            "positions concatenated as further tokens",
            "You return (B, 2N + 2, D): the positions stand in the sequence as if they were patches. Add them.",
            _ADDED,
            _as_more_tokens,
        ),
        Mistake(
            "a class token for the first image alone",
            "Every image of the batch gets the same class token: cls_token.expand(B, -1, -1).",
            _SHARED,
            _class_for_the_first,
        ),
        Mistake(
            "a class token added to the patches",
            "The semicolons of Equation 1 mean a concatenation: the class token is one more token, N + 1 in all.",
            _HAND,
            _class_added,
        ),
        Mistake(
            "a class token written over patch 0",
            "Patch 0 is lost. The class token is one more token: torch.cat makes room for it.",
            _HAND,
            _class_over_a_patch,
        ),
        Mistake(
            "positions forgotten",
            "The sequence is complete, but nothing says where a patch was: add `position`.",
            _ADDED,
            _no_position,
        ),
    ),
)


def check_embed_tokens(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, cls_token, position)``: (B, N, D), (1, 1, D), (1, N + 1, D) -> (B, N + 1, D)."""
    return check(EMBED_TOKENS, fn)


# ---- The class ---------------------------------------------------------------------------------------------------


def _in_words(module: nn.Module, weights: dict[str, Tensor]) -> Result:
    """What the two new parameters are, in words: a wrong size would end the comparison before anything is named."""
    found = {name.rpartition(".")[2]: p.numel() for name, p in module.named_parameters() if "patches" not in name}
    dim, tokens = weights["cls_token"].shape[2], weights["position"].shape[1]
    cls = found.get("cls_token", 0)
    token = {0: "no nn.Parameter", dim: "one vector"}.get(cls, f"{cls // dim} vectors")
    rows = found.get("position", 0) // dim
    table = {0: "no nn.Parameter", tokens: "a row a token", tokens - 1: "a row a patch"}.get(rows, f"{rows} rows")
    if cls > dim and cls % dim == 0:
        token = "one vector for each image of a batch"
    return {"cls_token": token, "position": table}


def _observe_embeddings(work: Any, case: Case) -> Result:
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        raise Fault("the class must derive from nn.Module")
    words = _in_words(module, case.weights)
    sound = words == {"cls_token": "one vector", "position": "a row a token"}
    other_names = {name.split(".")[0] for name, _ in module.named_parameters()} - {"patches", *words}
    return words | _joined(layer)(work, case) if sound or other_names else words


def _embeddings_cases() -> list[Case]:
    made = []
    for B, C, image_size, patch_size, dim in [(1, 1, (4, 4), 2, 5), (3, 3, (4, 6), 2, 4), (2, 2, (8, 4), (2, 4), 6)]:
        build: tuple[Any, ...] = (image_size, patch_size, C, dim)
        label = f"images {(B, C, *image_size)}, patch_size={patch_size}, dim={dim}"
        weights = random_weights(lesson.Embeddings(*build))
        made.append(Case(label, (normal(B, C, *image_size),), build, weights))
    return made


def _with(join: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[nn.Module]:
    """The layer with another way to join patch tokens, class token and positions."""

    class Wrong(lesson.Embeddings):
        def forward(self, images: Tensor) -> Tensor:
            assert self.cls_token is not None
            assert self.position is not None
            return join(self.patches(images), self.cls_token, self.position)

    return Wrong


class _BatchInTheParameter(lesson.Embeddings):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cls_token = nn.Parameter(torch.zeros(8, 1, args[3]))


class _RowForEachPatch(lesson.Embeddings):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.position = nn.Parameter(torch.zeros(1, self.patches.grid[0] * self.patches.grid[1], args[3]))


class _FixedClassToken(lesson.Embeddings):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cls_token = None


class _FixedPositions(lesson.Embeddings):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.position = None


EMBEDDINGS = Exercise(
    name="embeddings",
    lesson="02",
    points=4,
    right=lesson.Embeddings,
    cases=_embeddings_cases,
    observe=_observe_embeddings,
    mistakes=(
        Mistake(
            "a class token with the batch size in its shape",
            "There is one class token, and all images share it: its shape is (1, 1, D). expand it in forward, where "
            "the batch is known.",
            "A class token with the batch size in its shape.",
            _BatchInTheParameter,
        ),
        Mistake(
            "a table without the class token's row",
            "Your table has a row for each patch. The class token needs one, too: N + 1 rows.",
            _ADDED,
            _RowForEachPatch,
        ),
        Mistake(
            "a class token that can't learn",
            "A plain tensor is no parameter: the optimiser never sees it. Wrap it in nn.Parameter, and call it "
            "`cls_token`.",
            "2 · The real size",
            _FixedClassToken,
        ),
        Mistake(
            "positions that can't learn",
            "A plain tensor is no parameter: the optimiser never sees it. Wrap it in nn.Parameter, and call it "
            "`position`.",
            "2 · The real size",
            _FixedPositions,
        ),
        Mistake(
            "a class token that is not expanded",
            "There is one class token and a batch of images, and torch.cat doesn't broadcast. "
            "self.cls_token.expand(B, -1, -1) shows it once for each image.",
            _SHARED,
            _with(_not_expanded),
        ),
        Mistake(
            "a class token at the end",
            "The class token comes first: the head reads z[:, 0], and row 0 of the positions is its row.",
            _IN_FRONT,
            _with(_class_at_the_end),
        ),
        Mistake(
            "positions added before the class token is in front",
            "Your patches get the rows 0 to N-1, one row too early. Concatenate first, then add the whole table.",
            _BEFORE,
            _with(_early_first_rows),
        ),
        Mistake(
            "a class token without its position",
            "Row 0 of your table is never used. Concatenate first, then add the whole table.",
            _BEFORE,
            _with(_early_last_rows),
        ),
        Mistake(
            "positions concatenated",
            "You return tokens of width 2D. Positions are added, so that the width stays D.",
            _ADDED,
            _with(_beside),
        ),
        Mistake(
            "a class token for the first image alone",
            "Every image of the batch gets the same class token: cls_token.expand(B, -1, -1).",
            _SHARED,
            _with(_class_for_the_first),
        ),
        Mistake("positions forgotten", "Add `position` to the sequence.", _ADDED, _with(_no_position)),
    ),
)


def check_embeddings(cls: type[nn.Module]) -> bool:
    """Check ``cls(image_size, patch_size, in_channels, dim)`` with ``patches``, ``cls_token`` and ``position``."""
    return check(EMBEDDINGS, cls)


# ---- Sines and cosines -------------------------------------------------------------------------------------------


def _waves(
    frequency: Callable[[int], Tensor] | None = None, order: tuple[int, ...] = (0, 1, 2, 3), indexing: str = "ij"
) -> Callable[..., Tensor]:
    """The table with other frequencies, another order of sin x, cos x, sin y, cos y, or another order of patches."""

    def table(grid: lesson.Grid, dim: int) -> Tensor:
        f = 10_000.0 ** -torch.linspace(0, 1, dim // 4) if frequency is None else frequency(dim // 4)
        rows, columns = torch.arange(grid[0]), torch.arange(grid[1])
        if indexing == "ij":
            y, x = torch.meshgrid(rows, columns, indexing="ij")
        else:
            x, y = torch.meshgrid(columns, rows, indexing="ij")
        x_angle, y_angle = x.flatten()[:, None] * f, y.flatten()[:, None] * f  # (N, D/4)
        parts = [x_angle.sin(), x_angle.cos(), y_angle.sin(), y_angle.cos()]
        return torch.cat([parts[i] for i in order], dim=1)[None]

    return table


def _interleaved(grid: lesson.Grid, dim: int) -> Tensor:
    sin_x, cos_x, sin_y, cos_y = lesson.sincos_position_embedding(grid, dim).chunk(4, dim=2)
    return torch.cat([torch.stack([sin_x, cos_x], -1).flatten(2), torch.stack([sin_y, cos_y], -1).flatten(2)], 2)


def _one_dimension(grid: lesson.Grid, dim: int) -> Tensor:
    place = torch.arange(grid[0] * grid[1])[:, None] * 10_000.0 ** -torch.linspace(0, 1, dim // 2)
    return torch.cat([place.sin(), place.cos()], dim=1)[None]


SINCOS_POSITIONS = Exercise(
    name="sincos_positions",
    lesson="02",
    points=3,
    right=lesson.sincos_position_embedding,
    cases=lambda: [
        Case(f"grid={grid}, dim={dim}", (grid, dim))
        for grid, dim in [((2, 3), 8), ((3, 2), 16), ((1, 5), 12), ((4, 4), 20)]
    ],
    observe=call,
    mistakes=(
        Mistake(
            "x and y exchanged",
            "Your first half tells the row. Agreed is: first the column (x), sine and cosine, then the row (y).",
            _SINES,
            _waves(order=(2, 3, 0, 1)),
        ),
        Mistake(
            "patches counted down the columns",
            "Patches go row by row, so the column changes fastest: torch.meshgrid(rows, columns, indexing='ij').",
            _SINES,
            _waves(indexing="xy"),
        ),
        Mistake(
            "sines and cosines interleaved",
            "You alternate sine and cosine, as the original Transformer does. Agreed are four blocks, each D/4 wide: "
            "sin x, cos x, sin y, cos y.",
            _SINES,
            _interleaved,
        ),
        Mistake(
            "sines before cosines",
            "You put both sines first. Agreed is: sin x, cos x, sin y, cos y.",
            _SINES,
            _waves(order=(0, 2, 1, 3)),
        ),
        Mistake(
            "cosines before sines",
            "Each pair begins with the sine: sin x, cos x, sin y, cos y.",
            _SINES,
            _waves(order=(1, 0, 3, 2)),
        ),
        Mistake(
            "frequencies that stop before 1/10000",
            "You divide k by D/4, so the last frequency is not reached. Divide by D/4 - 1: the exponents go from 0 to "
            "1, both included, as torch.linspace gives them.",
            _SINES,
            _waves(lambda many: 10_000.0 ** -(torch.arange(many) / many)),
        ),
        Mistake(
            "frequencies in equal steps",
            "Your frequencies fall by the same amount each time. It is the exponent that goes in equal steps: each "
            "frequency is the one before, times a fixed factor.",
            _SINES,
            _waves(lambda many: torch.linspace(1, 1e-4, many)),
        ),
        Mistake(
            "a base of e in place of 10000",
            "You have e to the power of -k/(D/4 - 1). The base is 10000, so that the slowest wave hardly moves.",
            _SINES,
            _waves(lambda many: torch.exp(-torch.linspace(0, 1, many))),
        ),
        Mistake(
            "a base of 100 in place of 10000",
            "The slowest frequency is 1/10000; yours is 1/100. Look for a square root, or a factor of 2 in the "
            "exponent, that does not belong there.",
            _SINES,
            _waves(lambda many: 100.0 ** -torch.linspace(0, 1, many)),
        ),
        Mistake(
            "frequencies that grow",
            "The exponent needs a minus: frequencies fall from 1 to 1/10000.",
            _SINES,
            _waves(lambda many: 10_000.0 ** torch.linspace(0, 1, many)),
        ),
        Mistake(
            "positions in one dimension",
            "You number the patches through and ignore the grid. A half of the width tells the column, the other half "
            "the row.",
            _SINES,
            _one_dimension,
        ),
    ),
)


def check_sincos_positions(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(grid, dim)``: positions (1, rows*columns, D) of sines and cosines."""
    return check(SINCOS_POSITIONS, fn)


# ---- Another grid ------------------------------------------------------------------------------------------------


def _resize(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return lesson.resize_position_embedding(position, old_grid, new_grid, recipe="huggingface")


def _resize_cases() -> list[Case]:
    made = []
    for old, new, dim in [((2, 3), (4, 5), 4), ((4, 2), (2, 6), 3), ((3, 3), (5, 3), 5), ((3, 4), (6, 8), 6)]:
        position = normal(1, 1 + old[0] * old[1], dim, seed=dim)
        made.append(Case(f"position {tuple(position.shape)}, {old} -> {new}", (position, old, new)))
    return made


def _cubic(grid: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
    """(1, N, D) -> (1, new N, D)."""
    maps = grid.transpose(1, 2).reshape(1, -1, *old)
    return interpolate(maps, size=new, mode="bicubic").flatten(2).transpose(1, 2)


def _patches_as(stretch: Callable[[Tensor, lesson.Grid, lesson.Grid], Tensor]) -> Callable[..., Tensor]:
    """The class token's row kept, the other rows (1, N, D) stretched in some way."""

    def resize(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
        return torch.cat([position[:, :1], stretch(position[:, 1:], old_grid, new_grid)], dim=1)

    return resize


def _list(rows: Tensor, many: int) -> Tensor:
    return interpolate(rows.transpose(1, 2), size=many, mode="linear").transpose(1, 2)


def _whole_list(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return _list(position, 1 + new_grid[0] * new_grid[1])


def _class_in_the_grid(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return torch.cat([position[:, :1], _cubic(position[:, :-1], old_grid, new_grid)], dim=1)


def _class_stretched(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    grid = _cubic(position[:, :-1], old_grid, new_grid)
    return torch.cat([grid, position[:, -1:]], dim=1)


def _class_dropped(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return _cubic(position[:, 1:], old_grid, new_grid)


def _class_behind(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return torch.cat([_cubic(position[:, 1:], old_grid, new_grid), position[:, :1]], dim=1)


def _maps_by_reshape(rows: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
    maps = interpolate(rows.reshape(1, -1, *old), size=new, mode="bicubic")
    return maps.flatten(2).transpose(1, 2)


def _rows_by_reshape(rows: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
    maps = interpolate(rows.transpose(1, 2).reshape(1, -1, *old), size=new, mode="bicubic")
    return maps.reshape(1, new[0] * new[1], -1)


def _both_by_reshape(rows: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
    return interpolate(rows.reshape(1, -1, *old), size=new, mode="bicubic").reshape(1, new[0] * new[1], -1)


def _stretched_by(**options: Any) -> Callable[..., Tensor]:
    def stretch(rows: Tensor, old: lesson.Grid, new: lesson.Grid) -> Tensor:
        maps = interpolate(rows.transpose(1, 2).reshape(1, -1, *old), size=new, **options)
        return maps.flatten(2).transpose(1, 2)

    return _patches_as(stretch)


RESIZE_POSITIONS = Exercise(
    name="resize_positions",
    lesson="02",
    points=3,
    right=_resize,
    cases=_resize_cases,
    observe=call,
    mistakes=(
        Mistake(
            "positions flattened before resizing",
            "You stretch the list of patches in one dimension, so rows and columns come apart. Lay it out as a grid "
            "first: (1, D, rows, columns).",
            _GRID,
            _patches_as(lambda rows, old, new: _list(rows, new[0] * new[1])),
        ),
        Mistake(
            "a class token resized along, in one list",
            "You stretch all rows as one list, the class token's among them. Set row 0 aside, and stretch the others "
            "as a grid.",
            _GRID,
            _whole_list,
        ),
        Mistake(
            "a class token taken into the grid",
            "Your grid begins with the class token's row, so every patch comes one place late: the patches are "
            "position[:, 1:].",
            _GRID,
            _class_in_the_grid,
        ),
        Mistake(
            "a last row set aside in place of the first",
            "The class token's row is row 0, not the last one. You stretched it along with the patches.",
            _GRID,
            _class_stretched,
        ),
        Mistake(
            "a class token's row lost",
            "You return the patches alone. Row 0 is put back in front, as it was.",
            _LARGER,
            _class_dropped,
        ),
        Mistake(
            "a class token's row put back at the end",
            "Row 0 belongs in front again: exchange the parts in torch.cat.",
            _IN_FRONT,
            _class_behind,
        ),
        Mistake(
            "rows and columns of the old grid exchanged",
            "You lay the patches out as (columns, rows). old_grid is (rows, columns), and so is reshape's order.",
            _EXCHANGED,
            _patches_as(lambda rows, old, new: _cubic(rows, old[::-1], new)),
        ),
        Mistake(
            "rows and columns of the new grid exchanged",
            "new_grid is (rows, columns): pass it to interpolate as it is.",
            _EXCHANGED,
            _patches_as(lambda rows, old, new: _cubic(rows, old, new[::-1])),
        ),
        Mistake(
            "rows and columns exchanged in both grids",
            "Height comes first everywhere: (rows, columns). On squares nobody can notice.",
            _EXCHANGED,
            _patches_as(lambda rows, old, new: _cubic(rows, old[::-1], new[::-1])),
        ),
        Mistake(
            "a reshape in place of a transpose, on the way in",
            "(1, N, D) becomes (1, D, rows, columns) by transpose(1, 2), then reshape. A reshape alone mixes channels "
            "and places.",
            _LARGER,
            _patches_as(_maps_by_reshape),
        ),
        Mistake(
            "a reshape in place of a transpose, on the way back",
            "(1, D, rows, columns) becomes (1, N, D) by flatten(2), then transpose(1, 2).",
            _LARGER,
            _patches_as(_rows_by_reshape),
        ),
        Mistake(
            "a reshape in place of a transpose, both ways",
            "The two slips do not cancel: in between, channels and places were mixed. transpose(1, 2) both times.",
            _LARGER,
            _patches_as(_both_by_reshape),
        ),
        Mistake(
            "corners kept in place of edges",
            "You pass align_corners=True. The stub asks for align_corners=False: the outer edges of the cells stay.",
            _RECIPES,
            _stretched_by(mode="bicubic", align_corners=True),
        ),
        Mistake(
            "bilinear in place of bicubic",
            "The layout is right. The stub asks for mode='bicubic'; bilinear gives other numbers.",
            _RECIPES,
            _stretched_by(mode="bilinear"),
        ),
        Mistake(
            "nearest in place of bicubic",
            "The layout is right, but interpolate repeats the nearest cell unless you pass mode='bicubic'.",
            _RECIPES,
            _stretched_by(mode="nearest"),
        ),
    ),
)


def check_resize_positions(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(position, old_grid, new_grid)``: (1, 1 + old N, D) -> (1, 1 + new N, D)."""
    return check(RESIZE_POSITIONS, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _stretch_by(**options: Any) -> Callable[..., Tensor]:
    def stretch(grid: Tensor, size: lesson.Grid) -> Tensor:
        return interpolate(grid.permute(2, 0, 1)[None], size=size, **options)[0].permute(1, 2, 0)

    return stretch


def _stretch_cases() -> list[Case]:
    sizes = [((2, 2, 1), (3, 3)), ((3, 2, 4), (5, 7)), ((4, 5, 2), (3, 2)), ((2, 3, 3), (1, 4))]
    return [Case(f"grid {shape} -> {size}", (normal(*shape), size)) for shape, size in sizes]


def _by_hand(places: Callable[[int, int], Tensor], near_first: bool = True) -> Callable[..., Tensor]:
    """Bilinear by hand: ``places`` says where the new cells lie among the old ones."""

    def stretch(grid: Tensor, size: lesson.Grid) -> Tensor:
        for axis in (0, 1):
            old = grid.shape[axis]
            place = places(old, size[axis]).clamp(0, old - 1)
            low = place.floor().long()
            high, share = (low + 1).clamp(max=old - 1), (place - low)
            share = (share if near_first else 1 - share).reshape(-1, *[1] * (2 - axis))
            grid = grid.index_select(axis, low) * (1 - share) + grid.index_select(axis, high) * share
        return grid

    return stretch


def _kept_corners(old: int, new: int) -> Tensor:
    return torch.arange(new) * ((old - 1) / max(new - 1, 1))


def _rounded_up(grid: Tensor, size: lesson.Grid) -> Tensor:
    rows, columns = (_kept_corners(a, b).round().long() for a, b in zip(grid.shape[:2], size, strict=True))
    return grid[rows][:, columns]


STRETCH = Exercise(
    name="stretch",
    lesson="02",
    points=2,
    right=_stretch_by(mode="bilinear", align_corners=True),
    cases=_stretch_cases,
    observe=call,
    mistakes=(
        Mistake(
            "steps of old / new",
            "Your steps are old / new, so the last corner is missed. There are new - 1 steps between the corners, over "
            "old - 1 cells: place i is i * (old - 1) / (new - 1).",
            _LARGER,
            _by_hand(lambda old, new: torch.arange(new) * (old / new)),
        ),
        Mistake(
            "outer edges kept in place of corners",
            "You have align_corners=False. Here the first and the last cell stay where they are.",
            _LARGER,
            _stretch_by(mode="bilinear", align_corners=False),
        ),
        Mistake(
            "weights exchanged",
            "A new cell that lies at 0.25 between two old ones takes 0.75 of the first and 0.25 of the second.",
            _LARGER,
            _by_hand(_kept_corners, near_first=False),
        ),
        Mistake(
            "the nearest cell repeated",
            "You take one old cell for each new one. Take a weighted mean of two along each axis.",
            _LARGER,
            _rounded_up,
        ),
        Mistake(
            "rows and columns exchanged",
            "size is (rows, columns), height first.",
            _EXCHANGED,
            lambda grid, size: _by_hand(_kept_corners)(grid, size[::-1]),
        ),
        Mistake(
            "rows and columns of the result exchanged",
            "Your numbers are right, but the result is transposed: rows stay the first axis.",
            _EXCHANGED,
            lambda grid, size: _by_hand(_kept_corners)(grid, size).transpose(0, 1),
        ),
    ),
)


def check_stretch(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(grid, size)``: (rows, columns, D) -> (new rows, new columns, D), bilinear, corners kept."""
    return check(STRETCH, fn)


EXERCISES = (EMBEDDING_NUMBERS, EMBED_TOKENS, EMBEDDINGS, SINCOS_POSITIONS, RESIZE_POSITIONS, STRETCH)
