"""Checks of lesson 08: numbers with a pencil, the class token's maps, rollout, relevance, positions, distance."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vit_tutorial.analysis import explain
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.embeddings import Grid

_LOOKS = "Where the class token looks"
_ROLLOUT = "Rollout, with a pencil"
_RELEVANCE = "Relevance, with a pencil"
_HOLDS = "What the weights hold"

# ---- With a pencil -----------------------------------------------------------------------------------------------

SEEING_NUMBERS = pencil(
    "seeing_numbers",
    lesson="08",
    points=3,
    questions={
        "patch": Question(
            (2, 3),
            "Token 0 is the class token. Divide the patch's number by the number of patches in a row: the whole part "
            "is its row, the rest its column.",
        ),
        "rollout": Question(
            [0.25, 0.5, 0.25],
            "Each factor is half attention, half identity. Row 0 of A₁ A₀ mixes the rows of A₀, by the numbers in "
            "row 0 of A₁.",
            _ROLLOUT,
            {
                (0, 0, 1): Slip(
                    "a rollout without the identity",
                    "z + attention(z) keeps z. In each layer half of the matrix is the identity: A = 0.5 W + 0.5 I.",
                ),
                (0.25, 0.75, 0): Slip(
                    "factors in the wrong order",
                    "The later layer stands on the left: A₁ A₀. Row 0 of A₁ says where the class token looks last.",
                ),
            },
        ),
        "relevance": Question(
            [1.2, 0.6, 0], "The identity's row, plus gradient × weight where that is positive, and 0 where it isn't."
        ),
        "distance": Question(
            6,
            "Leave the class token out, divide the other three weights by their sum, and weigh the distances to the "
            "three patches (the first one's own is 0).",
        ),
    },
)


# ---- The class token's maps --------------------------------------------------------------------------------------


def _weights(*shape: int, seed: int = 0) -> Tensor:
    """Attention weights of a shape (..., T, T): rows sum to 1."""
    return (2 * normal(*shape, seed=seed)).softmax(dim=-1)


def _class_maps(weights: Tensor, grid: Grid) -> Tensor:
    return weights[..., 0, 1:].unflatten(-1, grid)


def _stretched(weights: Tensor, grid: Grid) -> Tensor:
    maps = _class_maps(weights, grid)
    least, most = maps.amin(dim=(-2, -1), keepdim=True), maps.amax(dim=(-2, -1), keepdim=True)
    return (maps - least) / (most - least)


CLASS_ATTENTION = Exercise(
    name="class_attention",
    lesson="08",
    points=2,
    right=_class_maps,
    cases=lambda: [
        Case(f"weights {shape}, grid {grid}", (_weights(*shape), grid))
        for shape, grid in [((2, 1, 2, 7, 7), (2, 3)), ((2, 3, 13, 13), (4, 3)), ((6, 6), (1, 5))]
    ],
    forbidden=(explain.class_attention,),
    mistakes=(
        Mistake(
            name="the class token's column in place of its row",
            says="Rows are queries: the class token's row is weights[..., 0, 1:]. You take its column.",
            reread=_LOOKS,
            wrong=lambda weights, grid: weights[..., 1:, 0].unflatten(-1, grid),
        ),
        Mistake(
            name="rows and columns of the grid exchanged",
            says="The grid is (rows, columns), and patches go row by row.",
            reread=_LOOKS,
            wrong=lambda weights, grid: weights[..., 0, 1:].unflatten(-1, grid[::-1]).mT,
        ),
        Mistake(
            name="the class token's own weight kept, and the last patch lost",
            says="Token 0 is the class token: the patches begin at 1.",
            reread=_LOOKS,
            wrong=lambda weights, grid: weights[..., 0, :-1].unflatten(-1, grid),
        ),
        Mistake(
            name="a scale for each picture",
            says="Each map is stretched from its own minimum to its own maximum, so small differences look like a "
            "result. Leave the weights as they are.",
            reread="A scale of its own for each map.",
            wrong=_stretched,
        ),
    ),
)


# ---- Rollout -----------------------------------------------------------------------------------------------------


def _to_one(a: Tensor) -> Tensor:
    return a / a.sum(dim=-1, keepdim=True)


def _rollout(weights: Tensor, fusion: str, identity: float = 0.5) -> Tensor:
    """Rollout with another weight of the identity in each layer."""
    eye = torch.eye(weights.shape[-1])
    R = eye.expand(weights.shape[1], -1, -1)
    for layer in weights:
        joined = layer.amax(dim=1) if fusion == "max" else layer.mean(dim=1)
        R = _to_one((1 - identity) * joined + identity * eye) @ R
    return R


ROLLOUT = Exercise(
    name="rollout",
    lesson="08",
    points=4,
    right=_rollout,
    cases=lambda: [
        Case(f"weights {tuple(shape)}, fusion={fusion!r}", (_weights(*shape), fusion))
        for *shape, fusion in [
            (3, 2, 3, 5, 5, "mean"),
            (4, 3, 2, 5, 5, "max"),
            (2, 1, 1, 3, 3, "max"),
            (12, 1, 2, 3, 3, "mean"),
        ]
    ],
    forbidden=(explain.rollout,),
    mistakes=(
        Mistake(
            name="a rollout without the identity",
            says="The residual connection keeps z beside attention(z), so each factor is half identity: 0.5 W + 0.5 I.",
            reread=_ROLLOUT,
            wrong=functools.partial(_rollout, identity=0.0),
        ),
        Mistake(
            name="factors in the wrong order",
            says="A later layer stands on the left: R = A @ R. Yours goes from the last layer to the first.",
            reread=_ROLLOUT,
            wrong=lambda weights, fusion: _rollout(weights.flip(0), fusion),
        ),
    ),
)


# ---- Relevance ---------------------------------------------------------------------------------------------------

Layers = Sequence[Tensor]


def _relevance(
    step: Callable[[Tensor, Tensor], Tensor], join: Callable[[Tensor, Tensor], Tensor] = lambda E, R: R + E @ R
) -> Callable[[Layers, Layers], Tensor]:
    """The relevance matrix with another ``step`` from weights and gradients to E, or R joined with E in another way."""

    def relevance_matrix(weights: Layers, gradients: Layers) -> Tensor:
        R = torch.eye(weights[0].shape[-1]).repeat(len(weights[0]), 1, 1)  # (B, T, T)
        for w, g in zip(weights, gradients, strict=True):
            R = join(step(w, g), R)
        return R

    return relevance_matrix


def _mean_of_positive_parts(w: Tensor, g: Tensor) -> Tensor:
    return (g * w).clamp(min=0).mean(dim=1)  # (B, T, T)


def _relevance_cases() -> list[Case]:
    cases = []
    for L, B, h, T in [(4, 2, 3, 5), (3, 3, 4, 6), (2, 1, 1, 3), (1, 2, 3, 4)]:
        weights = [_weights(B, h, T, T, seed=i) for i in range(L)]
        gradients = [2 * normal(B, h, T, T, seed=10 + i) for i in range(L)]
        cases.append(Case(f"{L} layer{'s' * (L > 1)} of weights and gradients {(B, h, T, T)}", (weights, gradients)))
    return cases


RELEVANCE_MATRIX = Exercise(
    name="relevance_matrix",
    lesson="08",
    points=3,
    right=explain.relevance_matrix,
    cases=_relevance_cases,
    mistakes=(
        Mistake(
            name="a relevance without the positive part",
            says="What speaks against the class mustn't cancel what speaks for it: clamp(min=0) on gradient × weights.",
            reread=_RELEVANCE,
            wrong=_relevance(lambda w, g: (g * w).mean(dim=1)),
        ),
        Mistake(
            name="the positive part after the mean over heads",
            says="First the positive part in each head, then the mean: one head's objection mustn't silence another.",
            reread=_RELEVANCE,
            wrong=_relevance(lambda w, g: (g * w).mean(dim=1).clamp(min=0)),
        ),
        Mistake(
            name="gradients in backward order",
            says="Each layer's gradients belong to its own weights: hooks on the way back come last layer first.",
            reread=_RELEVANCE,
            wrong=lambda weights, gradients: explain.relevance_matrix(weights, gradients[::-1]),
        ),
        Mistake(
            name="a step that forgets what was there",
            says="R ← R + E R: what came through the residual connection stays. You keep E R alone.",
            reread=_RELEVANCE,
            wrong=_relevance(_mean_of_positive_parts, join=torch.matmul),
        ),
        Mistake(
            name="layers in the wrong order",
            says="A later layer stands on the left: R + E R. With R E attention is followed from the last layer to the "
            "first.",
            reread=_RELEVANCE,
            wrong=_relevance(_mean_of_positive_parts, join=lambda E, R: R + R @ E),
        ),
    ),
)


# ---- Positions ---------------------------------------------------------------------------------------------------


POSITION_SIMILARITY = Exercise(
    name="position_similarity",
    lesson="08",
    points=2,
    right=explain.position_similarity,
    cases=lambda: [
        Case(f"position {shape}, {std:g} times normal numbers", (std * normal(*shape, seed=shape[1]),))
        for shape, std in [((1, 5, 4), 3.0), ((1, 10, 8), 3.0), ((1, 6, 5), 0.02)]
    ],
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _steps(grid: Grid, patch_size: Grid) -> Tensor:
    """From each patch to each other one: the way down and the way across, in pixels, (N, N, 2)."""
    n = torch.arange(grid[0] * grid[1])
    places = torch.stack([n // grid[1] * patch_size[0], n % grid[1] * patch_size[1]], dim=1).float()  # (N, 2)
    return places[:, None] - places


def _distance(weights: Tensor, grid: Grid, patch_size: Grid, *, straight: bool = True, to_one: bool = True) -> Tensor:
    steps = _steps(grid, patch_size)
    lengths = steps.norm(dim=-1) if straight else steps.abs().sum(dim=-1)
    shares = weights[..., 1:, 1:]
    if to_one:
        shares = _to_one(shares)
    return (shares * lengths).sum(dim=-1).mean(dim=-1)


ATTENTION_DISTANCE = Exercise(
    name="attention_distance",
    lesson="08",
    points=3,
    right=_distance,
    cases=lambda: [
        Case(f"weights {shape}, grid {grid}, patch_size={size}", (_weights(*shape), grid, size))
        for shape, grid, size in [
            ((2, 1, 2, 7, 7), (2, 3), (8, 8)),
            ((2, 13, 13), (4, 3), (2, 6)),
            ((4, 4), (1, 3), (16, 16)),
        ]
    ],
    forbidden=(explain.attention_distance,),
    mistakes=(
        Mistake(
            name="weights that do not sum to 1",
            says="Without the class token's column a row sums to less than 1. Divide it by its sum.",
            reread=_HOLDS,
            wrong=functools.partial(_distance, to_one=False),
        ),
        Mistake(
            name="steps along the grid in place of the distance",
            says="You add the way down and the way across. The distance is the straight line, √(y² + x²).",
            reread=_HOLDS,
            wrong=functools.partial(_distance, straight=False),
        ),
    ),
)
