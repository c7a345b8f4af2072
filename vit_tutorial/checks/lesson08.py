"""Checks of lesson 08: numbers with a pencil, the class token's maps, rollout, relevance, positions, distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.analysis import explain
from vit_tutorial.checks.harness import Case, Exercise, Mistake, answers, call, check, normal

__all__ = [
    "check_attention_distance",
    "check_class_attention",
    "check_position_similarity",
    "check_relevance_matrix",
    "check_rollout",
    "check_seeing_numbers",
]

_LOOKS = "1 · Where the class token looks"
_ROLLOUT = "2 · Rollout: attention through all layers"
_RELEVANCE = "3 · Relevance: what spoke for a class"
_HOLDS = "6 · What the weights hold"
_ORDER = "The order, the identity"
_SIDES = "Height and width exchanged"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "patch": (2, 3),  # token 20 on a grid of 6 x 8
    "rollout": [0.25, 0.5, 0.25],
    "relevance": [1.2, 0.6, 0],
    "distance": 6,
}

SEEING_NUMBERS = Exercise(
    name="seeing_numbers",
    lesson="08",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    secret=True,
    advice={
        "patch": "Token 0 is the class token. Divide the patch's number by the number of patches in a row: the whole "
        "part is its row, the rest its column.",
        "rollout": "Each factor is half attention, half identity. Row 0 of A₁ A₀ mixes the rows of A₀, by the numbers "
        "in row 0 of A₁.",
        "relevance": "The identity's row, plus gradient × weight where that is positive, and 0 where it isn't.",
        "distance": "Leave the class token out, divide the other three weights by their sum, and weigh the distances "
        "to the three patches (the first one's own is 0).",
    },
    mistakes=(
        Mistake(
            "a class token counted as a patch",
            "Token 0 is the class token, so token 20 is patch 19. And the class token has no place in the image: its "
            "weight is left out of a distance, and the others are brought to a sum of 1.",
            _LOOKS,
            {"patch": (2, 4), "distance": 6.4},
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            "The image is 48 high and 64 wide, so there are 6 rows of 8 patches: divide by 8.",
            _SIDES,
            {"patch": (3, 1)},
        ),
        Mistake(
            "the column named before the row, or token 20 on a grid of 6 columns",
            "The 48 × 64 pixels are 6 rows of 8 patches, token 20 is patch 19 (the class token is token 0), and wanted "
            "is (row, column), as in a matrix.",
            _SIDES,
            {"patch": (3, 2)},
        ),
        Mistake(
            "patches counted down the columns",
            "Patches go like words on a page: first across, then down.",
            _SIDES,
            {"patch": (1, 3)},
        ),
        Mistake(
            "a rollout without the identity",
            "z + attention(z) keeps z. In each layer half of the matrix is the identity: A = 0.5 W + 0.5 I.",
            _ROLLOUT,
            {"rollout": [0, 0, 1]},
        ),
        Mistake(
            "factors in the wrong order",
            "The later layer stands on the left: A₁ A₀. Row 0 of A₁ says where the class token looks last.",
            _ROLLOUT,
            {"rollout": [0.25, 0.75, 0]},
        ),
        Mistake(
            "an identity that is not halved",
            "Your rows sum to 4. Each factor is half attention and half identity, so that its rows sum to 1.",
            _ROLLOUT,
            {"rollout": [1, 2, 1]},
        ),
        Mistake(
            "the class token's column in place of its row",
            "Row 0 says where the class token's content comes from. Column 0 says who took something from it.",
            _ROLLOUT,
            {"rollout": [0.25, 0, 0]},
        ),
        Mistake(
            "the look of the class token in one layer",
            "In both layers it looks at a alone. But what it finds at a in layer 1 came from elsewhere in layer 0, and "
            "half of each layer is the identity.",
            _ROLLOUT,
            {"rollout": [0, 1, 0]},
        ),
        Mistake(
            "a relevance without the positive part",
            "What speaks against the class is not kept: negative products become 0.",
            _RELEVANCE,
            {"relevance": [1.2, 0.6, -2]},
        ),
        Mistake(
            "a relevance without the identity",
            "R starts as the identity, so the class token's own entry is 1 more.",
            _RELEVANCE,
            {"relevance": [0.2, 0.6, 0]},
        ),
        Mistake(
            "a relevance that ignores the gradient",
            "Each weight is multiplied by its gradient: would the logit rise if this weight grew?",
            _RELEVANCE,
            {"relevance": [1.2, 0.3, 0.5]},
        ),
        Mistake(
            "an absolute value in place of the positive part",
            "A negative product speaks against the class. It becomes 0, not positive.",
            _RELEVANCE,
            {"relevance": [1.2, 0.6, 2]},
        ),
        Mistake(
            "a distance in patches",
            "A patch is 8 pixels wide, and the distance is wanted in pixels.",
            _HOLDS,
            {"distance": 0.75},
        ),
        Mistake(
            "a distance that is not weighted",
            "(0 + 8 + 16) / 3 is how far away the patches are. How far the patch looks is their mean, weighted by its "
            "attention.",
            _HOLDS,
            {"distance": 8},
        ),
        Mistake(
            "weights that do not sum to 1",
            "Without the class token's share the other weights sum to 0.8. Divide by that.",
            _HOLDS,
            {"distance": 4.8},
        ),
    ),
)


def check_seeing_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(SEEING_NUMBERS, fn)


# ---- The class token's maps --------------------------------------------------------------------------------------

Grid = tuple[int, int]


def _weights(*shape: int, seed: int = 0) -> Tensor:
    """Attention weights of a shape (..., T, T): rows sum to 1."""
    return (2 * normal(*shape, seed=seed)).softmax(dim=-1)


def _pictures(
    row: Callable[[Tensor], Tensor] = lambda weights: weights[..., 0, 1:],
    lay: Callable[[Tensor, Grid], Tensor] = lambda row, grid: row.unflatten(-1, grid),
) -> Callable[[Tensor, Grid], Tensor]:
    """The class token's attention as pictures: with another row of the weights, laid out in another way."""

    def class_attention(weights: Tensor, grid: Grid) -> Tensor:
        return lay(row(weights), grid)

    return class_attention


CLASS_ATTENTION = Exercise(
    name="class_attention",
    lesson="08",
    points=2,
    right=_pictures(),
    cases=lambda: [
        Case(f"weights {shape}, grid {grid}", (_weights(*shape), grid))
        for shape, grid in [
            ((2, 1, 2, 7, 7), (2, 3)),
            ((2, 3, 13, 13), (4, 3)),
            ((3, 10, 10), (3, 3)),
            ((9, 9), (2, 4)),
            ((1, 6, 6), (1, 5)),
            ((2, 1, 3, 2, 5, 5), (4, 1)),
            ((2, 2, 2), (1, 1)),
        ]
    ],
    observe=call,
    forbidden=(explain.class_attention,),
    mistakes=(
        Mistake(
            "the class token's column in place of its row",
            "Row 0 says whom the class token looks at; column 0 says who looks at the class token.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 1:, 0]),
        ),
        Mistake(
            "a class token that is not dropped",
            "Your picture begins with the class token's look at itself, so each patch stands one place late, and the "
            "last one is lost. The class token is the first of T tokens: row[..., 1:] leaves it out.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 0, :-1]),
        ),
        Mistake(
            "the first patch's row",
            "Rows count from 0: row 1 is where the first patch looks. The class token's is row 0. (Of w[..., 1:, 1:] "
            "row 0 is the first patch's, too.)",
            _LOOKS,
            _pictures(row=lambda w: w[..., 1, 1:]),
        ),
        Mistake(
            "the last token's row",
            "The class token stands in front, so its row is the first.",
            _LOOKS,
            _pictures(row=lambda w: w[..., -1, 1:]),
        ),
        Mistake(
            "a mean over all tokens' rows",
            "That is what all tokens look at. Wanted is row 0 alone. (A model without a class token takes the mean.)",
            _LOOKS,
            _pictures(row=lambda w: w.mean(dim=-2)[..., 1:]),
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            "grid is (rows, columns): the last axis of the picture has `columns` numbers.",
            _SIDES,
            _pictures(lay=lambda row, grid: row.unflatten(-1, grid[::-1])),
        ),
        Mistake(
            "a map filled down its columns",
            "Patches go like words on a page, so the numbers fill the picture row by row: a reshape, no transpose.",
            _SIDES,
            _pictures(lay=lambda row, grid: row.unflatten(-1, grid[::-1]).transpose(-2, -1)),
        ),
        Mistake(
            "a map brought to a sum of 1",
            "You divide by the sum. What goes to the class token itself is then hidden; leave the weights as they are.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 0, 1:] / w[..., 0, 1:].sum(dim=-1, keepdim=True)),
        ),
        Mistake(
            "a map stretched to the range from 0 to 1",
            "Stretched from its own minimum to its own maximum, noise looks like an opinion. Leave the weights as "
            "they are.",
            "A scale for each picture",
            _pictures(row=lambda w: _stretched(w[..., 0, 1:])),
        ),
        Mistake(
            "a mean over the heads",
            "Each head has a picture of its own: all axes in front stay.",
            _LOOKS,
            _pictures(row=lambda w: w.mean(dim=-3)[..., 0, 1:]),
        ),
        Mistake(
            "the last token's column",
            "Column N says who looks at the last patch. The class token's row is row 0.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 1:, -1]),
        ),
        Mistake(
            "a mean over the patches' rows",
            "That is what the patches look at. Wanted is where the class token looks: row 0.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 1:, 1:].mean(dim=-2)),
        ),
        Mistake(
            "what all tokens give away",
            "You average columns. Wanted is row 0: where the class token looks.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 1:, :].mean(dim=-1)),
        ),
        Mistake(
            "what each patch gives to itself",
            "You took the diagonal. Wanted is row 0: where the class token looks.",
            _LOOKS,
            _pictures(row=lambda w: w.diagonal(dim1=-2, dim2=-1)[..., 1:]),
        ),
        Mistake(
            "a map divided by its largest weight",
            "Leave the weights as they are: otherwise two pictures can't be compared.",
            "A scale for each picture",
            _pictures(row=lambda w: w[..., 0, 1:] / w[..., 0, 1:].amax(dim=-1, keepdim=True)),
        ),
        Mistake(
            "a second softmax",
            "These are weights already. Leave them as they are.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 0, 1:].softmax(dim=-1)),
        ),
        Mistake(
            "logarithms of the weights",
            "Leave the weights as they are.",
            _LOOKS,
            _pictures(row=lambda w: w[..., 0, 1:].log()),
        ),
        Mistake(
            "a largest weight over the heads",
            "Each head has a picture of its own: all axes in front stay.",
            _LOOKS,
            _pictures(row=lambda w: w.amax(dim=-3)[..., 0, 1:]),
        ),
        Mistake(
            "a picture that is mirrored",
            "Patches go from left to right.",
            _SIDES,
            _pictures(lay=lambda row, grid: row.unflatten(-1, grid).flip(-1)),
        ),
        Mistake(
            "a picture that stands on its head",
            "Patches go from top to bottom.",
            _SIDES,
            _pictures(lay=lambda row, grid: row.unflatten(-1, grid).flip(-2)),
        ),
    ),
)


def _stretched(row: Tensor) -> Tensor:
    low, high = row.amin(dim=-1, keepdim=True), row.amax(dim=-1, keepdim=True)
    return (row - low) / (high - low)


def check_class_attention(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(weights, grid)``: (..., T, T) -> (..., rows, columns), where T = 1 + rows * columns."""
    return check(CLASS_ATTENTION, fn)


# ---- Rollout -----------------------------------------------------------------------------------------------------


def _to_one(a: Tensor) -> Tensor:
    return a / a.sum(dim=-1, keepdim=True)


def _fuse(w: Tensor, fusion: str) -> Tensor:
    return w.amax(dim=1) if fusion == "max" else w.mean(dim=1)


def _rollout(
    fuse: Callable[[Tensor, str], Tensor] = _fuse,
    factor: Callable[[Tensor, Tensor], Tensor] = lambda w, eye: _to_one(0.5 * w + 0.5 * eye),
    join: Callable[[Tensor, Tensor], Tensor] = lambda a, R: a @ R,
    end: Callable[[Tensor, Tensor], Tensor] = lambda R, eye: R,
    which: Callable[[list[Tensor]], list[Tensor]] = lambda layers: layers,
) -> Callable[[Tensor, str], Tensor]:
    """Rollout with another fusion of the heads, factor for a layer, product, last touch, or choice of layers."""

    def rollout(weights: Tensor, fusion: str) -> Tensor:
        eye = torch.eye(weights.shape[-1])
        layers = [factor(fuse(w, fusion), eye) for w in which(list(weights))]
        R = layers[0] if layers else eye.repeat(weights.shape[1], 1, 1)
        for a in layers[1:]:
            R = join(a, R)
        return end(R, eye)

    return rollout


def _rollout_cases() -> list[Case]:
    made: list[Case] = []
    sizes = [(3, 1, 2, 4, 4), (4, 2, 3, 5, 5), (3, 1, 3, 6, 6), (4, 3, 2, 5, 5), (2, 2, 1, 3, 3),
             (12, 1, 2, 3, 3)]  # fmt: skip
    for shape, fusion in zip(sizes, ("mean", "mean", "max", "max", "max", "max"), strict=True):
        made.append(Case(f"weights {shape}, fusion={fusion!r}", (_weights(*shape, seed=len(made)), fusion)))
    return made


ROLLOUT = Exercise(
    name="rollout",
    lesson="08",
    points=4,
    right=_rollout(),
    cases=_rollout_cases,
    observe=call,
    forbidden=(explain.rollout,),
    mistakes=(
        Mistake(
            "a rollout without the identity",
            "The residual connection keeps z beside attention(z), so each factor is half identity: 0.5 W + 0.5 I.",
            _ORDER,
            _rollout(factor=lambda w, eye: _to_one(w)),
        ),
        Mistake(
            "another share of the identity than half",
            "Attention and identity count half each: 0.5 W + 0.5 I. Yours gives attention nine tenths.",
            _ORDER,
            _rollout(factor=lambda w, eye: _to_one(0.9 * w + 0.1 * eye)),
        ),
        Mistake(
            "a small share of attention",
            "Attention and identity count half each: 0.5 W + 0.5 I. Yours gives attention a tenth.",
            _ORDER,
            _rollout(factor=lambda w, eye: _to_one(0.1 * w + 0.9 * eye)),
        ),
        Mistake(
            "factors in the wrong order",
            "A later layer stands on the left: R = A @ R. Yours follows attention from the last layer to the first.",
            _ORDER,
            _rollout(join=lambda a, R: R @ a),
        ),
        Mistake(
            "an identity that is not halved",
            "You multiply W + I, whose rows sum to 2. Take halves, or bring each row to a sum of 1.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: w + eye),
        ),
        Mistake(
            "rows that do not sum to 1",
            "With the mean over heads they do by themselves. With the max they don't: divide each factor's rows by "
            "their sums.",
            "A sum without keepdim",
            _rollout(factor=lambda w, eye: 0.5 * w + 0.5 * eye),
        ),
        Mistake(
            "a sum without keepdim",
            "Without keepdim=True the row sums lie along the columns, and each column is divided by them.",
            "A sum without keepdim",
            _rollout(factor=lambda w, eye: (0.5 * w + 0.5 * eye) / (0.5 * w + 0.5 * eye).sum(dim=-1)),
        ),
        Mistake(
            "columns brought to a sum of 1",
            "A row says where a token's content comes from, so it is the rows that sum to 1: dim=-1.",
            "A sum without keepdim",
            _rollout(factor=lambda w, eye: (0.5 * w + 0.5 * eye) / (0.5 * w + 0.5 * eye).sum(dim=-2, keepdim=True)),
        ),
        Mistake(
            "rows brought to 1 before the identity",
            "First mix in the identity, then divide by the row sums. Otherwise attention gets another share.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: 0.5 * _to_one(w) + 0.5 * eye),
        ),
        Mistake(
            "the identity mixed in once",
            "Every layer has a residual connection, so every factor has its half of identity.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: _to_one(w), end=lambda R, eye: 0.5 * R + 0.5 * eye),
        ),
        Mistake(
            "the mean over heads where the max is asked for",
            "fusion='max' takes the largest weight over the heads, amax(dim=1).",
            _ORDER,
            _rollout(fuse=lambda w, fusion: w.mean(dim=1)),
        ),
        Mistake(
            "the max over heads where the mean is asked for",
            "fusion='mean' averages the heads, as the paper does.",
            _ORDER,
            _rollout(fuse=lambda w, fusion: w.amax(dim=1)),
        ),
        Mistake(
            "mean and max exchanged",
            "You take the max for 'mean', and the mean for 'max'.",
            _ORDER,
            _rollout(fuse=lambda w, fusion: w.mean(dim=1) if fusion == "max" else w.amax(dim=1)),
        ),
        Mistake(
            "a single head",
            "You follow head 0. All heads of a layer are joined first.",
            _ROLLOUT,
            _rollout(fuse=lambda w, fusion: w[:, 0]),
        ),
        Mistake(
            "a product entry by entry",
            "* multiplies entry by entry. The way through a token in between needs the matrix product, @.",
            _ROLLOUT,
            _rollout(join=lambda a, R: a * R),
        ),
        Mistake(
            "the last layer alone",
            "You return the last layer's factor. Multiply those of all layers.",
            _ROLLOUT,
            _rollout(join=lambda a, R: a),
        ),
        Mistake(
            "a mean over the layers",
            "Content moves on from layer to layer, so the factors are multiplied.",
            _ROLLOUT,
            lambda weights, fusion: torch.stack(
                [_to_one(0.5 * _fuse(w, fusion) + 0.5 * torch.eye(w.shape[-1])) for w in weights]
            ).mean(dim=0),
        ),
        Mistake(
            "the first layer left out",
            "Multiply the factors of all layers, from layer 0 on.",
            _ROLLOUT,
            _rollout(which=lambda layers: layers[1:]),
        ),
        Mistake(
            "the last layer left out",
            "Multiply the factors of all layers, the last one included.",
            _ROLLOUT,
            _rollout(which=lambda layers: layers[:-1]),
        ),
        Mistake(
            "the first layer alone",
            "Multiply the factors of all layers: does a return stand inside the loop?",
            _ROLLOUT,
            _rollout(which=lambda layers: layers[:1]),
        ),
        Mistake(
            "the first layer counted twice",
            "You begin with its factor, and multiply it in again. Begin with the identity, or go on with the "
            "second layer.",
            _ROLLOUT,
            _rollout(which=lambda layers: [layers[0], *layers]),
        ),
        Mistake(
            "attention without identity, and rows that do not sum to 1",
            "z + attention(z) keeps z: 0.5 W + 0.5 I, and then each row is divided by its sum.",
            _ORDER,
            _rollout(factor=lambda w, eye: w),
        ),
        Mistake(
            "rows brought to 1 after the product",
            "Each factor's rows are brought to a sum of 1 before it is multiplied. With the max that isn't the same.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: 0.5 * w + 0.5 * eye, end=lambda R, eye: _to_one(R)),
        ),
        Mistake(
            "a softmax in place of a division",
            "Divide each row by its sum. A softmax takes powers of e first.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: (0.5 * w + 0.5 * eye).softmax(dim=-1)),
        ),
        Mistake(
            "rows brought to length 1",
            "It is their sum that must be 1, not their length: divide by sum(dim=-1, keepdim=True).",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: F.normalize(0.5 * w + 0.5 * eye, dim=-1)),
        ),
        Mistake(
            "rows divided by their maximum",
            "Divide each row by its sum.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: (w + eye) / (w + eye).amax(dim=-1, keepdim=True)),
        ),
        Mistake(
            "the whole matrix divided by its sum",
            "Each row is divided by its own sum: dim=-1, keepdim=True.",
            _ROLLOUT,
            _rollout(factor=lambda w, eye: (w + eye) / (w + eye).sum(dim=(-2, -1), keepdim=True)),
        ),
        Mistake(
            "ones in place of the identity",
            "The identity has ones on its diagonal alone: torch.eye(T).",
            _ORDER,
            _rollout(factor=lambda w, eye: _to_one(w + 1)),
        ),
        Mistake(
            "the smallest weight over the heads",
            "fusion is 'mean' or 'max'.",
            _ORDER,
            _rollout(fuse=lambda w, fusion: w.amin(dim=1)),
        ),
        Mistake(
            "a sum over the heads",
            "'mean' averages the heads: a sum of h heads outweighs the identity h times.",
            _ORDER,
            _rollout(fuse=lambda w, fusion: w.amax(dim=1) if fusion == "max" else w.sum(dim=1)),
        ),
        Mistake(
            "a sum of the layers",
            "Content moves on from layer to layer, so the factors are multiplied.",
            _ROLLOUT,
            _rollout(join=lambda a, R: a + R),
        ),
        Mistake(
            "a product that begins with zeros",
            "R starts as the identity: from zeros nothing comes.",
            _ROLLOUT,
            _rollout(end=lambda R, eye: torch.zeros_like(R)),
        ),
        Mistake(
            "a rollout that lies on its side",
            "Row i says where token i's content comes from. Yours has it in the columns.",
            _ORDER,
            _rollout(end=lambda R, eye: R.mT),
        ),
        Mistake(
            "the first image's rollout for all",
            "Each image has a rollout of its own.",
            "Only the first image of a batch",
            _rollout(end=lambda R, eye: R[:1].expand_as(R)),
        ),
        Mistake(
            "halves taken twice",
            "0.5 W + 0.5 I has rows that sum to 1. You mix in the identity a second time, around the product.",
            _ROLLOUT,
            _rollout(join=lambda a, R: 0.5 * (a @ R) + 0.5 * R),
        ),
    ),
)


def check_rollout(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(weights, fusion)``: (L, B, h, T, T) and "mean" or "max" -> (B, T, T)."""
    return check(ROLLOUT, fn)


# ---- Relevance ---------------------------------------------------------------------------------------------------

Layers = Sequence[Tensor]


def _relevance(
    part: Callable[[Tensor, Tensor], Tensor] = lambda g, w: (g * w).clamp(min=0).mean(dim=1),
    step: Callable[[Tensor, Tensor], Tensor] = lambda E, R: R + E @ R,
    start: Callable[[Tensor], Tensor] = lambda eye: eye,
    which: Callable[[list[tuple[Tensor, Tensor]]], list[tuple[Tensor, Tensor]]] = lambda pairs: pairs,
    end: Callable[[Tensor], Tensor] = lambda R: R,
) -> Callable[[Layers, Layers], Tensor]:
    """The relevance matrix with another matrix for a layer, step, start, choice of layers, or last touch."""

    def relevance_matrix(weights: Layers, gradients: Layers) -> Tensor:
        R = start(torch.eye(weights[0].shape[-1]).repeat(len(weights[0]), 1, 1))
        for w, g in which(list(zip(weights, gradients, strict=True))):
            R = step(part(g, w), R)
        return end(R)

    return relevance_matrix


def _eye(R: Tensor) -> Tensor:
    return torch.eye(R.shape[-1])


def _relevance_cases() -> list[Case]:
    made = []
    for L, B, h, T in [(3, 1, 2, 4), (4, 2, 3, 5), (3, 3, 4, 6), (2, 2, 1, 3), (1, 2, 3, 4)]:
        pairs = [(_weights(B, h, T, T, seed=i), 2 * normal(B, h, T, T, seed=10 + i)) for i in range(L)]
        label = f"{L} layer{'s' * (L > 1)} of weights and gradients {(B, h, T, T)}"
        made.append(Case(label, ([w for w, _ in pairs], [g for _, g in pairs])))
    return made


RELEVANCE_MATRIX = Exercise(
    name="relevance_matrix",
    lesson="08",
    points=3,
    right=explain.relevance_matrix,
    cases=_relevance_cases,
    observe=call,
    mistakes=(
        Mistake(
            "a relevance without the positive part",
            "What speaks against the class must not cancel what speaks for it: clamp(min=0) on gradient × weights.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).mean(dim=1)),
        ),
        Mistake(
            "gradients paired with the wrong layers",
            "You use the gradients from the last layer to the first. Both lists begin with the first layer.",
            "Gradients in the order in which they came",
            lambda weights, gradients: explain.relevance_matrix(weights, gradients[::-1]),
        ),
        Mistake(
            "the positive part after the mean over heads",
            "First the positive part in each head, then the mean: otherwise one head's objection silences another.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).mean(dim=1).clamp(min=0)),
        ),
        Mistake(
            "an absolute value in place of the positive part",
            "A negative product speaks against the class. It becomes 0, not positive.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).abs().mean(dim=1)),
        ),
        Mistake(
            "a relevance that ignores the gradient",
            "You join the weights alone, which know nothing of the class. Multiply them by their gradients first.",
            _RELEVANCE,
            _relevance(part=lambda g, w: w.mean(dim=1)),
        ),
        Mistake(
            "a relevance that ignores the weights",
            "You join the gradients alone. It is gradient × weight that counts.",
            _RELEVANCE,
            _relevance(part=lambda g, w: g.clamp(min=0).mean(dim=1)),
        ),
        Mistake(
            "a step that forgets what was there",
            "R ← R + E R: what came through the residual connection stays. You keep E R alone.",
            _RELEVANCE,
            _relevance(step=lambda E, R: E @ R),
        ),
        Mistake(
            "a sum over the layers",
            "You add E. It is multiplied by what was there, R + E R, so that relevance moves on from layer to layer.",
            _RELEVANCE,
            _relevance(step=lambda E, R: R + E),
        ),
        Mistake(
            "factors in the wrong order",
            "The later layer stands on the left: R + E @ R, from the first layer to the last. You have R @ E, or you "
            "begin with the last layer.",
            _RELEVANCE,
            _relevance(step=lambda E, R: R + R @ E),
        ),
        Mistake(
            "a start from zeros",
            "R starts as the identity. From zeros nothing ever comes in.",
            _RELEVANCE,
            _relevance(start=torch.zeros_like),
        ),
        Mistake(
            "a maximum over the heads",
            "The positive parts are averaged over the heads.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).clamp(min=0).amax(dim=1)),
        ),
        Mistake(
            "a sum over the heads",
            "The positive parts are averaged over the heads, not summed.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).clamp(min=0).sum(dim=1)),
        ),
        Mistake(
            "the negative part",
            "clamp(max=0) keeps what speaks against the class. Keep what speaks for it: clamp(min=0).",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).clamp(max=0).mean(dim=1)),
        ),
        Mistake(
            "gradients with the wrong sign",
            "You keep what speaks against the class: the sign of the gradient is turned.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (-g * w).clamp(min=0).mean(dim=1)),
        ),
        Mistake(
            "means of both before the product",
            "Multiply in each head first, cut off there, and then average.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g.mean(dim=1) * w.mean(dim=1)).clamp(min=0)),
        ),
        Mistake(
            "a matrix product of gradient and weights",
            "Gradient and weight are multiplied entry by entry: each weight has a gradient.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g @ w).clamp(min=0).mean(dim=1)),
        ),
        Mistake(
            "a sum of gradient and weights",
            "They are multiplied entry by entry.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g + w).clamp(min=0).mean(dim=1)),
        ),
        Mistake(
            "the size of the gradients",
            "A negative gradient speaks against the class. And the weights are missing: clamp(min=0) of gradient "
            "× weights.",
            _RELEVANCE,
            _relevance(part=lambda g, w: g.abs().mean(dim=1)),
        ),
        Mistake(
            "the first head alone",
            "The positive parts are averaged over all heads.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).clamp(min=0)[:, 0]),
        ),
        Mistake(
            "the last head alone",
            "The positive parts are averaged over all heads.",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).clamp(min=0)[:, -1]),
        ),
        Mistake(
            "rows of E brought to a sum of 1",
            "E is used as it is.",
            _RELEVANCE,
            _relevance(part=lambda g, w: _to_one((g * w).clamp(min=0).mean(dim=1) + 1e-9)),
        ),
        Mistake(
            "a softmax in place of the positive part",
            "Cut off what is negative: clamp(min=0).",
            _RELEVANCE,
            _relevance(part=lambda g, w: (g * w).softmax(dim=-1).mean(dim=1)),
        ),
        Mistake(
            "an identity in place of what was there",
            "R ← R + E R: what had come together so far stays. You add E R to the identity, in each layer anew.",
            _RELEVANCE,
            _relevance(step=lambda E, R: _eye(R) + E @ R),
        ),
        Mistake(
            "a product entry by entry",
            "* multiplies entry by entry. The way through a token in between needs the matrix product, @.",
            _RELEVANCE,
            _relevance(step=lambda E, R: R + E * R),
        ),
        Mistake(
            "a difference",
            "R ← R + E R: add.",
            _RELEVANCE,
            _relevance(step=lambda E, R: R - E @ R),
        ),
        Mistake(
            "halves of both",
            "That is rollout's rule. Here it is R + E R, without halves.",
            _RELEVANCE,
            _relevance(step=lambda E, R: 0.5 * R + 0.5 * E @ R),
        ),
        Mistake(
            "an E that lies on its side",
            "E is multiplied as it is, rows for queries.",
            _RELEVANCE,
            _relevance(step=lambda E, R: R + E.mT @ R),
        ),
        Mistake(
            "rows brought to a sum of 1 in each layer",
            "That is rollout's rule. Relevance isn't brought to a sum.",
            _RELEVANCE,
            _relevance(step=lambda E, R: _to_one(R + E @ R)),
        ),
        Mistake(
            "rows brought to a sum of 1 at the end",
            "Relevance isn't brought to a sum.",
            _RELEVANCE,
            _relevance(end=_to_one),
        ),
        Mistake(
            "a start from ones",
            "R starts as the identity: each token is relevant to itself.",
            _RELEVANCE,
            _relevance(start=torch.ones_like),
        ),
        Mistake(
            "a start from half an identity",
            "R starts as the identity.",
            _RELEVANCE,
            _relevance(start=lambda eye: eye / 2),
        ),
        Mistake(
            "an identity taken off again",
            "The identity belongs to the result.",
            _RELEVANCE,
            _relevance(end=lambda R: R - _eye(R)),
        ),
        Mistake(
            "the first layer left out",
            "All layers count, from the first one on.",
            _RELEVANCE,
            _relevance(which=lambda pairs: pairs[1:]),
        ),
        Mistake(
            "the last layer left out",
            "All layers count, the last one included.",
            _RELEVANCE,
            _relevance(which=lambda pairs: pairs[:-1]),
        ),
        Mistake(
            "the last layer alone",
            "All layers count, one after the other.",
            _RELEVANCE,
            _relevance(which=lambda pairs: pairs[-1:]),
        ),
        Mistake(
            "the first layer alone",
            "All layers count: does a return stand inside the loop?",
            _RELEVANCE,
            _relevance(which=lambda pairs: pairs[:1]),
        ),
        Mistake(
            "a relevance that lies on its side",
            "Row i says what was relevant to token i. Yours has it in the columns.",
            _RELEVANCE,
            _relevance(end=lambda R: R.mT),
        ),
        Mistake(
            "a mean over the images",
            "Each image has a relevance of its own.",
            "Only the first image of a batch",
            _relevance(end=lambda R: R.mean(dim=0, keepdim=True).expand_as(R)),
        ),
    ),
)


def check_relevance_matrix(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(weights, gradients)``: two lists of L tensors (B, h, T, T), the first layer first -> (B, T, T)."""
    return check(RELEVANCE_MATRIX, fn)


# ---- Positions ---------------------------------------------------------------------------------------------------


def _cosine(position: Tensor) -> Tensor:
    return explain.position_similarity(position)


POSITION_SIMILARITY = Exercise(
    name="position_similarity",
    lesson="08",
    points=2,
    right=_cosine,
    cases=lambda: [
        Case(f"position {shape}, spread {spread:g}", (spread * normal(*shape, seed=shape[1]),))
        for shape, spread in [
            ((1, 5, 4), 3.0),
            ((1, 7, 3), 3.0),
            ((1, 10, 8), 3.0),
            ((1, 6, 5), 0.02),
            ((1, 2, 4), 1.0),
        ]
    ],
    observe=call,
    forbidden=(explain.position_similarity,),
    mistakes=(
        Mistake(
            "a softmax of the similarities",
            "A cosine is a similarity from -1 to 1, and it is shown as it is. A softmax would turn it into shares that "
            "sum to 1.",
            _HOLDS,
            lambda position: _cosine(position).softmax(dim=-1),
        ),
        Mistake(
            "a class token among the patches",
            "The first position is the class token's, which has no place in the image: leave it out, (N, N).",
            _HOLDS,
            lambda position: explain.position_similarity(position, prefix_tokens=0),
        ),
        Mistake(
            "the last patch left out in place of the class token",
            "The class token's position is the first one.",
            _HOLDS,
            lambda position: explain.position_similarity(position[:, :-1], prefix_tokens=0),
        ),
        Mistake(
            "dot products in place of cosines",
            "A long vector would look similar to all others. Divide each position by its length first.",
            _HOLDS,
            lambda position: position[0, 1:] @ position[0, 1:].T,
        ),
        Mistake(
            "a division by one of the two lengths",
            "A cosine divides the dot product by the lengths of both.",
            _HOLDS,
            lambda position: F.normalize(position[0, 1:], dim=-1) @ position[0, 1:].T,
        ),
        Mistake(
            "a scaled dot product",
            "You divide by √D, as attention does. A cosine divides by the two lengths.",
            _HOLDS,
            lambda position: position[0, 1:] @ position[0, 1:].T / position.shape[-1] ** 0.5,
        ),
        Mistake(
            "columns brought to length 1",
            "Each position, a row of D numbers, is divided by its own length: dim=-1.",
            _HOLDS,
            lambda position: F.normalize(position[0, 1:], dim=0) @ F.normalize(position[0, 1:], dim=0).T,
        ),
        Mistake(
            "distances in place of similarities",
            "You return how far the positions are apart. Wanted is the cosine of the angle between them, 1 on the "
            "diagonal.",
            _HOLDS,
            lambda position: (position[0, 1:, None] - position[0, 1:]).norm(dim=-1),
        ),
        Mistake(
            "correlations",
            "You subtract each position's mean first. A cosine leaves it in.",
            _HOLDS,
            lambda position: _cosine(position - position.mean(dim=-1, keepdim=True)),
        ),
        Mistake(
            "absolute values of the cosines",
            "A cosine of -1 means the opposite direction. Leave the sign.",
            _HOLDS,
            lambda position: _cosine(position).abs(),
        ),
        Mistake(
            "squares of the cosines",
            "Leave the cosines as they are.",
            _HOLDS,
            lambda position: _cosine(position).square(),
        ),
        Mistake(
            "cosines moved to the range from 0 to 1",
            "Leave the cosines as they are, from -1 to 1.",
            _HOLDS,
            lambda position: (_cosine(position) + 1) / 2,
        ),
        Mistake(
            "one minus the cosine",
            "That is a distance. Wanted is the cosine itself, 1 on the diagonal.",
            _HOLDS,
            lambda position: 1 - _cosine(position),
        ),
        Mistake(
            "angles in place of cosines",
            "Wanted is the cosine of the angle, 1 on the diagonal.",
            _HOLDS,
            lambda position: _cosine(position).clamp(-1, 1).acos(),
        ),
        Mistake(
            "cosines without their negative part",
            "A cosine below 0 stays.",
            _HOLDS,
            lambda position: _cosine(position).clamp(min=0),
        ),
        Mistake(
            "a mean position taken off",
            "You subtract the mean of all positions first. A cosine leaves it in.",
            _HOLDS,
            lambda position: _cosine(position - position[:, 1:].mean(dim=1, keepdim=True)),
        ),
        Mistake(
            "dot products divided by the width",
            "A cosine divides by the lengths of the two vectors.",
            _HOLDS,
            lambda position: position[0, 1:] @ position[0, 1:].T / position.shape[-1],
        ),
        Mistake(
            "a division by the squares of the lengths",
            "The root is missing: a length is the root of the sum of squares.",
            _HOLDS,
            lambda position: _cosine(position) / position[0, 1:].norm(dim=-1) / position[0, 1:].norm(dim=-1)[:, None],
        ),
        Mistake(
            "a division by sums in place of lengths",
            "A length is the root of the sum of squares.",
            _HOLDS,
            lambda position: F.normalize(position[0, 1:], p=1, dim=-1) @ F.normalize(position[0, 1:], p=1, dim=-1).T,
        ),
        Mistake(
            "one length for all",
            "Each position is divided by its own length: norm(dim=-1, keepdim=True).",
            _HOLDS,
            lambda position: position[0, 1:] @ position[0, 1:].T / position[0, 1:].norm() ** 2,
        ),
        Mistake(
            "a similarity of the channels",
            "You compare the D columns. It is the N positions, the rows, that are compared: A @ A.T, (N, N).",
            _HOLDS,
            lambda position: F.normalize(position[0, 1:], dim=-1).T @ F.normalize(position[0, 1:], dim=-1),
        ),
        Mistake(
            "a division by the roots of the lengths",
            "The dot product is divided by both lengths themselves.",
            _HOLDS,
            lambda position: (
                position[0, 1:]
                @ position[0, 1:].T
                / (position[0, 1:].norm(dim=-1) * position[0, 1:].norm(dim=-1)[:, None]).sqrt()
            ),
        ),
        Mistake(
            "one length squared in place of both",
            "The dot product of i and j is divided by the length of i and by the length of j.",
            _HOLDS,
            lambda position: position[0, 1:] @ position[0, 1:].T / position[0, 1:].norm(dim=-1, keepdim=True) ** 2,
        ),
        Mistake(
            "one minus a distance",
            "Wanted is the cosine of the angle: the dot product divided by both lengths.",
            _HOLDS,
            lambda position: 1 - torch.cdist(position[0, 1:], position[0, 1:]),
        ),
        Mistake(
            "a division by the second length alone",
            "A cosine divides by both lengths. (Without keepdim=True lengths lie along the columns.)",
            _HOLDS,
            lambda position: position[0, 1:] @ position[0, 1:].T / position[0, 1:].norm(dim=-1),
        ),
        Mistake(
            "a layer norm in place of a length",
            "A layer norm subtracts the mean as well. Divide by the length alone.",
            _HOLDS,
            lambda position: (
                F.layer_norm(position[0, 1:], position.shape[-1:])
                @ F.layer_norm(position[0, 1:], position.shape[-1:]).T
            ),
        ),
        Mistake(
            "a diagonal of zeros",
            "A position is as similar to itself as can be: 1.",
            _HOLDS,
            lambda position: _cosine(position) - torch.eye(position.shape[1] - 1),
        ),
        Mistake(
            "half of the matrix",
            "The similarity of i and j is that of j and i: both halves are asked for.",
            _HOLDS,
            lambda position: _cosine(position).triu(),
        ),
    ),
)


def check_position_similarity(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(position)``: (1, 1 + N, D) -> (N, N)."""
    return check(POSITION_SIMILARITY, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _distance(
    weigh: Callable[[Tensor], Tensor] = lambda w: _to_one(w[..., 1:, 1:]),
    between: Callable[[Tensor], Tensor] = lambda steps: steps.square().sum(dim=-1).sqrt(),
    place: Callable[[int, Grid, Grid], tuple[Tensor, Tensor]] | None = None,
    join: Callable[[Tensor], Tensor] = lambda reach: reach.mean(dim=-1),
) -> Callable[[Tensor, Grid, Grid], Tensor]:
    """Attention distance with other weights, another distance, other places, or another join of the queries."""

    def attention_distance(weights: Tensor, grid: Grid, patch_size: Grid) -> Tensor:
        w = weigh(weights)  # (..., N, N)
        y, x = (place or _place)(w.shape[-1], grid, patch_size)
        places = torch.stack([y, x], dim=1).to(w.dtype)  # (N, 2)
        return join((w * between(places[:, None] - places)).sum(dim=-1))

    return attention_distance


def _place(count: int, grid: Grid, patch_size: Grid) -> tuple[Tensor, Tensor]:
    n = torch.arange(count)
    return n // grid[1] * patch_size[0], n % grid[1] * patch_size[1]


def _down_the_columns(count: int, grid: Grid, patch_size: Grid) -> tuple[Tensor, Tensor]:
    n = torch.arange(count)
    return n % grid[0] * patch_size[0], n // grid[0] * patch_size[1]


def _largest(w: Tensor) -> Tensor:
    inner = w[..., 1:, 1:]
    return F.one_hot(inner.argmax(dim=-1), inner.shape[-1]).to(w.dtype)


def _way_of_the_mean(weights: Tensor, grid: Grid, patch_size: Grid) -> Tensor:
    """How far the mean place that a query looks at is away from it."""
    w = _to_one(weights[..., 1:, 1:])
    places = torch.stack(_place(w.shape[-1], grid, patch_size), dim=1).to(w.dtype)  # (N, 2)
    return (w @ places - places).norm(dim=-1).mean(dim=-1)


def _uniform(w: Tensor) -> Tensor:
    return torch.full_like(w[..., 1:, 1:], 1 / (w.shape[-1] - 1))


ATTENTION_DISTANCE = Exercise(
    name="attention_distance",
    lesson="08",
    points=3,
    right=_distance(),
    cases=lambda: [
        Case(f"weights {shape}, grid {grid}, patch_size={size}", (_weights(*shape), grid, size))
        for shape, grid, size in [
            ((2, 1, 2, 7, 7), (2, 3), (8, 8)),
            ((2, 13, 13), (4, 3), (4, 4)),
            ((1, 3, 9, 9), (2, 4), (2, 6)),
            ((3, 4, 4), (1, 3), (16, 16)),
            ((7, 7), (3, 2), (4, 2)),
            ((2, 5, 5), (4, 1), (3, 5)),
            ((2, 1, 2, 3, 7, 7), (3, 2), (5, 3)),
            ((3, 2, 2), (1, 1), (4, 6)),
        ]
    ],
    observe=call,
    forbidden=(explain.attention_distance,),
    mistakes=(
        Mistake(
            "a distance in patches",
            "Your places count patches. Multiply rows by the patch's height and columns by its width, in pixels.",
            _HOLDS,
            _distance(place=lambda count, grid, size: _place(count, grid, (1, 1))),
        ),
        Mistake(
            "a distance that is not weighted",
            "You average all distances alike, so every head gets the same number. Weigh them by the attention.",
            _HOLDS,
            _distance(weigh=_uniform),
        ),
        Mistake(
            "patches counted down the columns",
            "Patches go like words on a page: patch n stands in row n // columns and column n % columns.",
            _HOLDS,
            _distance(place=_down_the_columns),
        ),
        Mistake(
            "weights brought to a sum of 1 over all queries",
            "Each query's weights are brought to a sum of 1 by themselves, sum(dim=-1, keepdim=True). Yours weigh a "
            "query less that looks more at the class token.",
            _HOLDS,
            _distance(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].mean(dim=-2, keepdim=True).sum(-1, keepdim=True)),
        ),
        Mistake(
            "a division by the largest weight",
            "Divide a row by its sum, so that it sums to 1.",
            _HOLDS,
            _distance(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].amax(dim=-1, keepdim=True)),
        ),
        Mistake(
            "the distance to the most attended patch",
            "Every patch counts, weighted by its attention, not the one with the largest weight alone.",
            _HOLDS,
            _distance(weigh=_largest),
        ),
        Mistake(
            "the distance to the mean place",
            "First the distance to each patch, then their weighted mean. You take the mean of the places first: left "
            "and right cancel.",
            _HOLDS,
            _way_of_the_mean,
        ),
        Mistake(
            "the root of a mean of squares",
            "Take the root of each distance first, then the weighted mean.",
            _HOLDS,
            _distance(between=lambda steps: steps.square().sum(dim=-1), join=lambda reach: reach.sqrt().mean(dim=-1)),
        ),
        Mistake(
            "the root of a mean of squares over all queries",
            "Take the root of each distance first, then the weighted means.",
            _HOLDS,
            _distance(between=lambda steps: steps.square().sum(dim=-1), join=lambda reach: reach.mean(dim=-1).sqrt()),
        ),
        Mistake(
            "weights that do not sum to 1",
            "Without the class token's column a row sums to less than 1. Divide it by its sum.",
            _HOLDS,
            _distance(weigh=lambda w: w[..., 1:, 1:]),
        ),
        Mistake(
            "a class token counted as a patch",
            "The class token has no place in the image: leave out its row and its column. You give it the first "
            "patch's place, and so every patch its neighbour's.",
            _HOLDS,
            _distance(weigh=lambda w: w),
        ),
        Mistake(
            "the last patch left out in place of the class token",
            "The class token is the first token: weights[..., 1:, 1:].",
            _HOLDS,
            _distance(weigh=lambda w: _to_one(w[..., :-1, :-1])),
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            "grid is (rows, columns). Patch n stands in row n // columns and column n % columns.",
            _SIDES,
            _distance(place=lambda count, grid, size: _place(count, grid[::-1], size)),
        ),
        Mistake(
            "a patch's height and width exchanged",
            "patch_size is (height, width): a step down is the height, a step across the width. And n // columns is "
            "the row, n % columns the column.",
            _SIDES,
            _distance(place=lambda count, grid, size: _place(count, grid, size[::-1])),
        ),
        Mistake(
            "steps along the grid in place of the distance",
            "You add the way down and the way across. The distance is the straight line, √(y² + x²).",
            _HOLDS,
            _distance(between=lambda steps: steps.abs().sum(dim=-1)),
        ),
        Mistake(
            "squared distances",
            "The root is missing: √(y² + x²).",
            _HOLDS,
            _distance(between=lambda steps: steps.square().sum(dim=-1)),
        ),
        Mistake(
            "weights transposed",
            "A row holds the weights of one query, and rows sum to 1. You weigh by columns.",
            _HOLDS,
            _distance(weigh=lambda w: _to_one(w[..., 1:, 1:].transpose(-2, -1))),
        ),
        Mistake(
            "a sum over the queries",
            "How far a head reaches is the mean over its N queries.",
            _HOLDS,
            _distance(join=lambda reach: reach.sum(dim=-1)),
        ),
        Mistake(
            "the largest distance over the queries",
            "How far a head reaches is the mean over its N queries, not the maximum.",
            _HOLDS,
            _distance(join=lambda reach: reach.amax(dim=-1)),
        ),
        Mistake(
            "a number for each query",
            "Average over the N queries: one number for each head.",
            _HOLDS,
            _distance(join=lambda reach: reach),
        ),
        Mistake(
            "a sum without keepdim",
            "Without keepdim=True the row sums lie along the columns.",
            "A sum without keepdim",
            _distance(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].sum(dim=-1)[..., None, :]),
        ),
        Mistake(
            "a second softmax",
            "These are weights already: divide by their sum.",
            _HOLDS,
            _distance(weigh=lambda w: w[..., 1:, 1:].softmax(dim=-1)),
        ),
        Mistake(
            "the patch itself left out",
            "The patches count all, the query itself included: its distance is 0.",
            _HOLDS,
            _distance(weigh=lambda w: _to_one(w[..., 1:, 1:] * (1 - torch.eye(w.shape[-1] - 1)))),
        ),
        Mistake(
            "the class token's row in place of the last patch's",
            "You left out the class token's column alone. It has a row, too: weights[..., 1:, 1:].",
            _HOLDS,
            _distance(weigh=lambda w: _to_one(w[..., :-1, 1:])),
        ),
        Mistake(
            "the class token's look",
            "Each patch's own row is asked for, not the class token's.",
            _HOLDS,
            _distance(weigh=lambda w: _to_one(w[..., :1, 1:]).expand_as(w[..., 1:, 1:])),
        ),
        Mistake(
            "weights averaged over the queries first",
            "Each query's weights belong to its own distances. Average at the end.",
            _HOLDS,
            _distance(weigh=lambda w: _to_one(w[..., 1:, 1:]).mean(dim=-2, keepdim=True)),
        ),
        Mistake(
            "the larger one of two steps",
            "The distance is the straight line, √(y² + x²).",
            _HOLDS,
            _distance(between=lambda steps: steps.abs().amax(dim=-1)),
        ),
        Mistake(
            "a root of the mean square",
            "The squares are added, not averaged: √(y² + x²).",
            _HOLDS,
            _distance(between=lambda steps: steps.square().mean(dim=-1).sqrt()),
        ),
        Mistake(
            "steps with their sign",
            "A step to the left and one to the right don't cancel: √(y² + x²).",
            _HOLDS,
            _distance(between=lambda steps: steps.sum(dim=-1)),
        ),
        Mistake(
            "the patch's height for both directions",
            "A step across is as long as a patch is wide.",
            _SIDES,
            _distance(place=lambda count, grid, size: _place(count, grid, (size[0], size[0]))),
        ),
        Mistake(
            "the patch's width for both directions",
            "A step down is as long as a patch is high.",
            _SIDES,
            _distance(place=lambda count, grid, size: _place(count, grid, (size[1], size[1]))),
        ),
        Mistake(
            "steps of a patch's area",
            "A step down is as long as a patch is high, one across as long as it is wide.",
            _HOLDS,
            _distance(place=lambda count, grid, size: _place(count, grid, (size[0] * size[1], size[0] * size[1]))),
        ),
        Mistake(
            "a row that is not cut off",
            "The row is n // columns, a whole number. Yours lies between two rows.",
            _HOLDS,
            _distance(
                place=lambda count, grid, size: (
                    torch.arange(count) / grid[1] * size[0],
                    torch.arange(count) % grid[1] * size[1],
                )
            ),
        ),
        Mistake(
            "patches counted from 1",
            "Patch 0 is the first one: row 0, column 0.",
            _HOLDS,
            _distance(
                place=lambda count, grid, size: (
                    torch.arange(1, count + 1) // grid[1] * size[0],
                    torch.arange(1, count + 1) % grid[1] * size[1],
                )
            ),
        ),
        Mistake(
            "patches in a line",
            "Patches lie in rows and columns. Yours stand all in one row.",
            _HOLDS,
            _distance(place=lambda count, grid, size: (torch.zeros(count), torch.arange(count) * size[1])),
        ),
        Mistake(
            "rows alone",
            "The distance goes across, too: √(y² + x²).",
            _HOLDS,
            _distance(place=lambda count, grid, size: (torch.arange(count) // grid[1] * size[0], torch.zeros(count))),
        ),
        Mistake(
            "columns alone",
            "The distance goes down, too: √(y² + x²).",
            _HOLDS,
            _distance(place=lambda count, grid, size: (torch.zeros(count), torch.arange(count) % grid[1] * size[1])),
        ),
        Mistake(
            "a mean over all pairs",
            "The weights of a query sum to 1, so w · distance is summed over the patches, and averaged over the "
            "queries.",
            _HOLDS,
            _distance(join=lambda reach: reach.mean(dim=-1) / reach.shape[-1]),
        ),
        Mistake(
            "the median over the queries",
            "How far a head reaches is the mean over its N queries.",
            _HOLDS,
            _distance(join=lambda reach: reach.median(dim=-1).values),
        ),
        Mistake(
            "the first query alone",
            "How far a head reaches is the mean over its N queries.",
            _HOLDS,
            _distance(join=lambda reach: reach[..., 0]),
        ),
    ),
)


def check_attention_distance(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(weights, grid, patch_size)``: (..., T, T), (rows, columns), (height, width) -> (...), in pixels."""
    return check(ATTENTION_DISTANCE, fn)
