"""Checks of lesson 02: the class token, positions added, positions of sines and cosines, positions on another grid."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from vit_tutorial import embeddings as lesson
from vit_tutorial.checks.chance import spread, staleness
from vit_tutorial.checks.compare import as_tensor, shape
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Hashed,
    Result,
    answers,
    built,
    call,
    layer,
    normal,
    random_weights,
    section,
)

_IN_FRONT = "In front, not at the end"
_BEFORE = "Positions added before the class token is in front."
_SINES = "Positions that nobody learns: sines and cosines"
_GRID = "The class token in the grid, or no grid at all."
_EXCHANGED = "Height and width exchanged."
_LARGER = "6 · The same positions on a larger image"
_NEW = "a new layer, as it starts"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "z0": Hashed("c68dfba78f 13d68c0e22 c8d268b466 8c564b8fb0 7de0ed209b ede6dc3a70", "list"),
    "tokens": Hashed("995f44ceba"),
    "table": Hashed("2590745673"),
    "token": Hashed("197a18b9db"),
    "class gradient": Hashed("3a0351faaf"),
    "stretched": Hashed("0561226637 885529e7a7 c435b171e7 d42fb64faa", "list"),
}

EMBEDDING_NUMBERS = Exercise(
    name="embedding_numbers",
    lesson="02",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    secret=True,
    advice={
        "z0": "Write down the class token, then the patches, a row each; then add its own position to each.",
        "tokens": "Count rows and columns of patches, multiply, and think of what comes before the patches.",
        "table": "One row for each token, and each row as wide as a token.",
        "token": "Which number does the patch have among the patches, row by row from 0? And what comes before them?",
        "class gradient": "Raise one number of the class token by a little. By how much does the loss grow through "
        "image 0, and by how much through image 1?",
        "stretched": "The first number stays, the last number stays, and the others lie between them in equal steps.",
    },
    mistakes=(
        *section(
            _IN_FRONT,
            (
                "a class token at the end",
                "The class token is token 0, and row 0 of the table is its row.",
                {"z0": [[11, 12], [23, 20], [31, 31]]},
            ),
            (
                "patches counted from 0 among the tokens",
                "The class token is token 0, so patch 0 is token 1.",
                {"token": 23},
            ),
            ("the class token forgotten", "The class token is one token more than the 140 patches.", {"tokens": 140}),
        ),
        *section(
            _BEFORE,
            (
                "positions added before the class token is in front",
                "You gave rows 0 and 1 of the table to the patches. Row 0 is the class token's.",
                {"z0": [[1, 1], [11, 12], [23, 20]]},
            ),
        ),
    ),
)


# ---- Equation 1 --------------------------------------------------------------------------------------------------


def _embed(x: Tensor, cls_token: Tensor, position: Tensor) -> Tensor:
    return torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1) + position


def _embed_cases() -> list[Case]:
    shapes = [(1, 4, 6), (2, 3, 5), (3, 6, 8), (4, 1, 5), (5, 4, 5), (4, 4, 6), (4, 3, 4), (2, 200, 3)]
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
    takes="fn(x, cls_token, position): (B, N, D), (1, 1, D), (1, N + 1, D) -> (B, N + 1, D)",
    right=_embed,
    cases=_embed_cases,
    observe=call,
    mistakes=section(
        _BEFORE,
        (
            "positions added before the class token is in front",
            "Your patches get rows 0 to N-1 of the table, one row too early, and the class token gets none. "
            "Concatenate first, then add the whole table.",
            lambda x, cls_token, position: torch.cat(
                [cls_token.expand(len(x), -1, -1), x + position[:, : x.shape[1]]], dim=1
            ),
        ),
    ),
)


# ---- The class ---------------------------------------------------------------------------------------------------


SOUND = {"cls_token": "an nn.Parameter, one vector", "position": "an nn.Parameter, a row a token"}


def _in_words(module: nn.Module, weights: dict[str, Tensor]) -> Result:
    """What the two new parameters are, in words: a wrong size would end the comparison before anything is named."""
    own = {name.rpartition(".")[2]: p for name, p in module.named_parameters() if "patches" not in name}
    found = {name: p.numel() for name, p in own.items()}
    dim, tokens = weights["cls_token"].shape[2], weights["position"].shape[1]
    cls, rows = (found.get(name, 0) // dim for name in SOUND)
    token = {0: "no nn.Parameter", 1: SOUND["cls_token"]}.get(cls, f"{cls} vectors")
    table = {0: "no nn.Parameter", tokens: SOUND["position"], tokens - 1: "a row a patch"}.get(rows, f"{rows} rows")
    said = {"cls_token": token, "position": table}
    for name, p in own.items():
        if name in said and (p.numel() % dim or not p.numel()):
            said[name] = f"of shape {shape(p)}"
    for name, words in said.items():
        if words == SOUND[name] and own[name].shape != weights[name].shape:
            raise Fault(f"{name} has shape {shape(own[name])}, expected {shape(weights[name])}")
    return said


def _start(work: Any, case: Case) -> Result:
    """How the two parameters of a new layer begin, in words."""
    found = {name.rpartition(".")[2]: p.detach() for name, p in work(*case.build).named_parameters()}
    if not {"cls_token", "position"} <= found.keys():
        return {}
    mean, std, peak = spread(found["position"])
    normal_shape = 2.1 < peak < 4  # 1.8 for uniform numbers, 2.4 for normal ones cut off at two standard deviations
    if std:  # the absolute values of normal numbers have a skewness of 1
        normal_shape &= abs(((found["position"].double() - mean) / std).pow(3).mean().item()) < 0.3
    words = "normal, with a standard deviation of 0.02"
    if not (abs(std - 0.02) < 0.001 and abs(mean) < 0.002 and normal_shape):
        words = f"{'' if normal_shape else 'not normal, '}of standard deviation {std:.2g}"
        words += f" and mean {mean:.2g}" if abs(mean) > 0.1 * std else ""
        words = words if std else f"all {mean:.2g}"
    rows = found["position"].reshape(-1, case.build[-1])
    for name, lines in (("tokens", rows), ("channels", rows.T)):
        if std and bool((lines.std(1) < 0.3 * std).any()):
            words = f"another one for some {name} than for others"
        elif std and len({tuple(line) for line in lines.tolist()}) < len(lines):
            words = f"the same for some {name} as for others"
    again = staleness(lambda: dict(work(*case.build).named_parameters())[_own_name(work(*case.build))])
    cls = "zeros" if not found["cls_token"].any() else "numbers that aren't zero"
    return {
        "the start of a new class token": cls,
        "the start of new positions": words,
        "each new layer's table of positions": again or "drawn anew",
    }


def _own_name(module: nn.Module) -> str:
    return next(name for name, _ in module.named_parameters() if name.rpartition(".")[2] == "position")


def _observe_embeddings(work: Any, case: Case) -> Result:
    if case.label == _NEW:
        return _start(work, case)
    module = built(work, case)
    words = _in_words(module, case.weights)
    sound = words == SOUND
    other_names = {name.split(".")[0] for name, _ in module.named_parameters()} - {"patches", *words}
    run = functools.partial(layer, differentiable=False)  # an image needs no gradient
    return words | run(work, case) if sound or other_names else words


def _embeddings_cases() -> list[Case]:
    made = []
    for B, C, image_size, patch_size, dim in [(1, 1, (4, 4), 2, 6), (3, 2, (6, 8), 2, 5), (2, 4, (6, 12), (2, 4), 8)]:
        build: tuple[Any, ...] = (image_size, patch_size, C, dim)
        label = f"images {(B, C, *image_size)}, patch_size={patch_size}, dim={dim}"
        weights = random_weights(lesson.Embeddings(*build))
        made.append(Case(label, (normal(B, C, *image_size),), build, weights))
    return [*made, Case(_NEW, build=((48, 64), 4, 1, 40))]


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
    takes="cls(image_size, patch_size, in_channels, dim) with patches, cls_token and position",
    right=lesson.Embeddings,
    cases=_embeddings_cases,
    observe=_observe_embeddings,
    mistakes=tuple(dataclasses.replace(one, wrong=_with(one.wrong)) for one in EMBED_TOKENS.mistakes),
)


# ---- Sines and cosines -------------------------------------------------------------------------------------------


def _waves(
    frequency: Callable[[int], Tensor] | None = None,
    indexing: str = "ij",
) -> Callable[..., Tensor]:
    """The table with other frequencies, or another order of patches."""

    def table(grid: lesson.Grid, dim: int) -> Tensor:
        f = 10_000.0 ** -torch.linspace(0, 1, dim // 4) if frequency is None else frequency(dim // 4)
        rows, columns = torch.arange(grid[0]), torch.arange(grid[1])
        if indexing == "ij":
            y, x = torch.meshgrid(rows, columns, indexing="ij")
        else:
            x, y = torch.meshgrid(columns, rows, indexing="ij")
        x_angle, y_angle = x.flatten()[:, None] * f, y.flatten()[:, None] * f  # (N, D/4)
        return torch.cat([x_angle.sin(), x_angle.cos(), y_angle.sin(), y_angle.cos()], dim=1)[None]

    return table


_BLOCKS = ("sin x", "cos x", "sin y", "cos y")


def _which_waves(wrong: list[tuple[Case, Result, Result]]) -> str:
    """In which order the four blocks are, or which frequencies they have, if nothing else is wrong."""
    case, right, outcome = wrong[0]
    (grid, dim), b, a = case.args, right["result"], as_tensor(outcome["result"])
    if a is None or a.shape != b.shape:
        return ""
    a = a.detach().float()
    parts = dict(zip(_BLOCKS, b.chunk(4, dim=-1), strict=True))
    found = [next((n for n in _BLOCKS if torch.allclose(x, parts[n], atol=1e-5)), "") for x in a.chunk(4, dim=-1)]
    if all(found) and found != list(_BLOCKS):
        return f"Your four blocks are {', '.join(found)}; they should be {', '.join(_BLOCKS)} (with {case.label})."
    if torch.allclose(a.unflatten(-1, (-1, 4)).mT.flatten(-2), b, atol=1e-5):
        said = "Your channels are right, but they go frequency by frequency: the four blocks come one after the other"
        return f"{said} (with {case.label})."
    sine, cosine = a[0, 1].chunk(4)[:2]  # of the patch at x = 1, y = 0
    f = torch.atan2(sine, cosine)
    if bool((f > 0).all()) and torch.allclose(_waves(lambda many: f)(grid, dim), a, atol=1e-5):
        yours = ", ".join(f"{number:.3g}" for number in f.tolist())
        wanted = ", ".join(f"{10_000.0 ** -(k / (dim // 4 - 1)):.3g}" for k in range(dim // 4))
        if yours != wanted:
            return f"Your numbers are those of the frequencies {yours}; it should be {wanted} (with {case.label})."
    return ""


SINCOS_POSITIONS = Exercise(
    name="sincos_positions",
    lesson="02",
    points=2,
    takes="fn(grid, dim): positions (1, rows*columns, D) of sines and cosines",
    right=lesson.sincos_position_embedding,
    explain=_which_waves,
    cases=lambda: [
        Case(f"grid={grid}, dim={dim}", (grid, dim))
        for grid, dim in [
            ((2, 3), 8),
            ((3, 2), 16),
            ((1, 5), 12),
            ((4, 5), 24),
            ((2, 140), 8),
            ((7, 7), 32),
            ((9, 1), 96),
        ]
    ],
    observe=call,
    mistakes=section(
        _SINES,
        (
            "patches counted down the columns",
            "Patches go row by row, so the column changes fastest: torch.meshgrid(rows, columns, indexing='ij').",
            _waves(indexing="xy"),
        ),
        (
            "the grid read as (columns, rows)",
            "grid is (rows, columns), height first. With square grids the mistake doesn't show.",
            lambda grid, dim: lesson.sincos_position_embedding(grid[::-1], dim),
        ),
    ),
)


# ---- Another grid ------------------------------------------------------------------------------------------------


def _resize(position: Tensor, old_grid: lesson.Grid, new_grid: lesson.Grid) -> Tensor:
    return lesson.resize_position_embedding(position, old_grid, new_grid, recipe="huggingface")


def _resize_cases() -> list[Case]:
    made = []
    sizes = [((2, 3), (4, 6), 5), ((5, 2), (3, 7), 4), ((3, 5), (4, 2), 6), ((4, 3), (2, 6), 5), ((4, 3), (4, 3), 5)]
    sizes += [((3, 4), (3, 6), 5), ((5, 2), (3, 2), 5), ((3, 6), (3, 4), 5)]  # one of the axes stays as long as it was
    sizes += [((3, 4), (1, 1), 5), ((1, 1), (2, 3), 4), ((1, 4), (3, 2), 5), ((3, 3), (5, 5), 4), ((8, 9), (12, 10), 3)]
    for old, new, dim in sizes:
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


RESIZE_POSITIONS = Exercise(
    name="resize_positions",
    lesson="02",
    points=3,
    takes="fn(position, old_grid, new_grid): (1, 1 + old N, D) -> (1, 1 + new N, D)",
    right=_resize,
    cases=_resize_cases,
    observe=call,
    forbidden=(lesson.resize_position_embedding,),
    mistakes=(
        *section(
            _GRID,
            (
                "positions flattened before resizing",
                "You stretch the list of patches in one dimension, so rows and columns are lost. Lay it out as a "
                "grid first: (1, D, rows, columns).",
                _patches_as(lambda rows, old, new: _list(rows, new[0] * new[1])),
            ),
        ),
        *section(
            _EXCHANGED,
            (
                "rows and columns of the old grid exchanged",
                "You lay the patches out as (columns, rows). old_grid is (rows, columns), and so is reshape's order.",
                _patches_as(lambda rows, old, new: _cubic(rows, old[::-1], new)),
            ),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _stretch_by(**options: Any) -> Callable[..., Tensor]:
    def stretch(grid: Tensor, size: lesson.Grid) -> Tensor:
        return interpolate(grid.permute(2, 0, 1)[None], size=size, **options)[0].permute(1, 2, 0)

    return stretch


def _stretch_cases() -> list[Case]:
    sizes = [((2, 4, 1), (4, 6)), ((3, 2, 5), (4, 6)), ((6, 7, 3), (4, 2)), ((2, 3, 5), (1, 4)), ((1, 4, 2), (3, 1))]
    sizes += [((3, 5, 2), (3, 7)), ((4, 3, 2), (2, 6)), ((3, 1, 2), (2, 4)), ((3, 3, 2), (4, 4)), ((3, 4, 2), (3, 4))]
    sizes += [((4, 3, 2), (1, 1)), ((8, 9, 6), (12, 10))]
    return [Case(f"grid {shape} -> {size}", (normal(*shape), size)) for shape, size in sizes]


def _by_hand(
    places: Callable[[int, int], Tensor], weigh: Callable[[Tensor], Tensor] = lambda share: share
) -> Callable[..., Tensor]:
    """Bilinear by hand, with other places of the new cells among the old ones, or other weights."""

    def stretch(grid: Tensor, size: lesson.Grid) -> Tensor:
        for axis in (0, 1):
            old = grid.shape[axis]
            place = places(old, size[axis]).clamp(0, old - 1)
            low = place.floor().long()
            high, share = (low + 1).clamp(max=old - 1), (place - low)
            share = weigh(share).reshape(-1, *[1] * (2 - axis))
            grid = grid.index_select(axis, low) * (1 - share) + grid.index_select(axis, high) * share
        return grid

    return stretch


def _kept_corners(old: int, new: int) -> Tensor:
    return torch.arange(new) * ((old - 1) / max(new - 1, 1))


STRETCH = Exercise(
    name="stretch",
    lesson="02",
    points=2,
    takes="fn(grid, size): (rows, columns, D) -> (new rows, new columns, D), bilinear, corners kept",
    right=_stretch_by(mode="bilinear", align_corners=True),
    cases=_stretch_cases,
    observe=call,
    forbidden=(interpolate, lesson.resize_position_embedding, "upsample"),
    mistakes=section(
        _LARGER,
        (
            "outer edges kept in place of corners",
            "That is align_corners=False. Here the first and the last cell stay where they are.",
            _by_hand(lambda old, new: (torch.arange(new) + 0.5) * (old / new) - 0.5),
        ),
        (
            "steps of old / new",
            "From corner to corner, new - 1 steps share out the way of old - 1: each is (old - 1) / (new - 1).",
            _by_hand(lambda old, new: torch.arange(new) * (old / new)),
        ),
        (
            "the nearest cell repeated",
            "You take one old cell for each new one. Take a weighted mean of two along each axis.",
            _by_hand(_kept_corners, weigh=torch.round),
        ),
    ),
)
