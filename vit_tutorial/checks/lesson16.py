"""Checks of lesson 16: tokens as a grid, what each patch holds of each class, mIoU, and logits that become a mask."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.analysis import dense as lesson
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import call, normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil

_BY_HAND = "Tokens as a grid, components as colours"
_SCORE = "The score, with a pencil"
_HEAD = "Training the head"
_LEFT = "The class token left in the grid"

# ---- With a pencil -----------------------------------------------------------------------------------------------

DENSE_NUMBERS = pencil(
    "dense_numbers",
    lesson="16",
    points=4,
    questions={
        "tokens": Question(
            29,
            "The patches, and all tokens before them.",
            _BY_HAND,
            {
                25: Slip(
                    "no registers counted", "They are tokens like the class token, and have no place in the picture."
                )
            },
        ),
        "lands": Question(4, "Count the tokens before patch 0 that are still there."),
        "head": Question(
            165,
            "One linear layer, the same for every patch.",
            _BY_HAND,
            {3960: Slip("a head for each patch", "All patches share one.")},
        ),
        "outputs": Question(120, "K for each patch."),
        "enlarged": Question(30720, "K for each pixel."),
        "iou": Question(
            0.5,
            "Pixels in both masks, divided by the pixels in at least one.",
            _SCORE,
            {
                0.75: Slip(
                    "recall", "The true mask alone is 40; false pixels of the prediction must lower the score as well."
                ),
                0.6: Slip("precision", "The predicted mask alone is 50; missed pixels must lower the score as well."),
                0.6667: Slip(
                    "the Dice score", "Twice the overlap divided by the sum of both masks is another measure."
                ),
            },
        ),
        "miou": Question(
            0.45,
            "The mean over the classes.",
            _SCORE,
            {0.675: Slip("the class with an IoU of 0 left out", "It is in the masks, so it counts.")},
        ),
        "all background": Question(
            0.08,
            "One class has some overlap, the others have none.",
            _SCORE,
            {0.8: Slip("pixel accuracy", "Nine classes have an IoU of 0, and the mean is over all ten.")},
        ),
        "fraction": Question(0.125, "Pixels of the class, divided by the patch's pixels."),
        "last block": Question(0, "What reads these tokens after the last block?"),
    },
)


# ---- The grid ----------------------------------------------------------------------------------------------------


def _grid(tokens: Tensor, grid: tuple[int, int], prefix_tokens: int) -> Tensor:
    return tokens[:, prefix_tokens:].mT.reshape(len(tokens), -1, *grid)


def _grid_cases() -> list[Case]:
    cases = []
    for B, rows, columns, D, prefix in [(2, 3, 4, 5, 1), (1, 2, 5, 7, 5), (3, 4, 3, 6, 0)]:
        label = f"tokens ({B}, {prefix + rows * columns}, {D}), grid ({rows}, {columns}), {prefix} before the patches"
        cases.append(Case(label, (normal(B, prefix + rows * columns, D), (rows, columns), prefix)))
    return cases


TOKEN_GRID = Exercise(
    name="token_grid",
    lesson="16",
    points=3,
    right=_grid,
    cases=_grid_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-6,  # tokens are moved, not changed
    forbidden=(lesson.token_grid,),
    mistakes=(
        Mistake(
            name="a class token in the grid",
            says="The patches come last: leave out the first prefix_tokens.",
            reread=_LEFT,
            wrong=lambda tokens, grid, prefix_tokens: _grid(tokens[:, : math.prod(grid)], grid, 0),
        ),
        Mistake(
            name="one token left out, whatever prefix_tokens says",
            says="There may be registers behind the class token, or nothing before the patches.",
            reread=_BY_HAND,
            wrong=lambda tokens, grid, prefix_tokens: _grid(tokens[:, : 1 + math.prod(grid)], grid, 1),
        ),
    ),
)


# ---- Fractions ---------------------------------------------------------------------------------------------------


def _fractions(targets: Tensor, num_classes: int, grid: tuple[int, int]) -> Tensor:
    patch = targets.shape[1] // grid[0], targets.shape[2] // grid[1]
    return torch.stack([F.avg_pool2d((targets == k).float(), patch) for k in range(num_classes)], dim=1)


def _most_frequent(targets: Tensor, num_classes: int, grid: tuple[int, int]) -> Tensor:
    winner = _fractions(targets, num_classes, grid).argmax(dim=1)
    return F.one_hot(winner, num_classes).movedim(-1, 1).float()


def _fraction_cases() -> list[Case]:
    cases = []
    for B, H, W, K, rows, columns in [(2, 8, 6, 4, 4, 2), (3, 6, 10, 2, 3, 5), (1, 4, 6, 5, 2, 3)]:
        targets = torch.randint(0, K, (B, H, W), generator=torch.Generator().manual_seed(B))
        cases.append(Case(f"targets ({B}, {H}, {W}), K = {K}, grid ({rows}, {columns})", (targets, K, (rows, columns))))
    missing = torch.zeros(2, 4, 6, dtype=torch.long)
    missing[1, 1:3, 2:5] = 3  # classes 1, 2 and 4 are nowhere
    return [*cases, Case("some classes in no picture", (missing, 5, (2, 3)))]


CLASS_FRACTIONS = Exercise(
    name="class_fractions",
    lesson="16",
    points=4,
    right=_fractions,
    cases=_fraction_cases,
    forbidden=(lesson.class_fractions,),
    mistakes=(
        Mistake(
            name="the most frequent class of each patch",
            says="A patch on an edge belongs to two classes. Keep both fractions: they sum to 1.",
            reread=_HEAD,
            wrong=_most_frequent,
        ),
    ),
)


# ---- The score ---------------------------------------------------------------------------------------------------


def _iou(
    predicted: Tensor,
    targets: Tensor,
    num_classes: int,
    measure: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda both, guess, true: both / (guess + true - both),
    mean: Callable[[Tensor], Tensor] = torch.nanmean,
) -> Tensor:
    """The score, or one with another measure of a class or another mean."""
    counts = lesson.confusion(predicted, targets, num_classes)
    return mean(measure(counts.diagonal(), counts.sum(dim=0), counts.sum(dim=1)))


def _of_each_picture(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    pairs = zip(predicted.split(1), targets.split(1), strict=True)
    return torch.stack([_iou(guess, true, num_classes) for guess, true in pairs]).mean()


def _iou_cases() -> list[Case]:
    cases = []
    for B, H, W, K in [(2, 4, 6, 3), (3, 5, 4, 4)]:
        generator = torch.Generator().manual_seed(B)
        targets, others = torch.randint(0, K, (2, B, H, W), generator=generator)
        changed = torch.rand(B, H, W, generator=generator) < 0.1 + 0.2 * torch.arange(B)[:, None, None]
        cases.append(Case(f"two masks ({B}, {H}, {W}), K = {K}", (torch.where(changed, others, targets), targets, K)))
    targets = torch.tensor([[[0, 0, 0, 2, 2, 2]], [[0, 0, 4, 4, 0, 0]]])
    predicted = torch.tensor([[[0, 0, 2, 2, 2, 4]], [[0, 1, 1, 4, 0, 0]]])
    return [
        *cases,
        Case("class 3 in neither mask, class 1 in the predicted one alone", (predicted, targets, 5)),
        Case("all background", (torch.zeros_like(targets), targets, 5)),
    ]


MEAN_IOU = Exercise(
    name="mean_iou",
    lesson="16",
    points=4,
    right=_iou,
    cases=_iou_cases,
    forbidden=(lesson.mean_iou, lesson.iou, lesson.confusion),
    mistakes=(
        Mistake(
            name="pixel accuracy",
            says="That is the fraction of right pixels. IoU is computed for each class, and their mean taken.",
            reread=_SCORE,
            wrong=lambda predicted, targets, num_classes: (predicted == targets).float().mean(),
        ),
        Mistake(
            name="a score for each picture, then the mean",
            says="Add up the pixels of all pictures first, and divide once per class.",
            reread=_SCORE,
            wrong=_of_each_picture,
        ),
        Mistake(
            name="classes that are nowhere counted as 0",
            says="A class in neither mask has no IoU: leave it out of the mean.",
            reread=_SCORE,
            wrong=functools.partial(_iou, mean=lambda each: each.nan_to_num(0.0).mean()),
        ),
        Mistake(
            name="the mean of the recalls",
            says="You divide by the true mask alone. Divide by the pixels that are in at least one of both masks.",
            reread=_SCORE,
            wrong=functools.partial(_iou, measure=lambda both, guess, true: both / true),
        ),
        Mistake(
            name="the Dice score",
            says="Twice the overlap divided by the sum of both masks is Dice. IoU is the overlap divided by the union.",
            reread=_SCORE,
            wrong=functools.partial(_iou, measure=lambda both, guess, true: 2 * both / (guess + true)),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _segment(logits: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(logits, size=size, mode="bilinear", align_corners=False).argmax(dim=1)


SEGMENT = Exercise(
    name="segment",
    lesson="16",
    points=2,
    right=_segment,
    cases=lambda: [
        Case(f"logits ({B}, {K}, {rows}, {columns}), size ({H}, {W})", (2 * normal(B, K, rows, columns), (H, W)))
        for B, K, rows, columns, H, W in [(2, 4, 3, 2, 12, 8), (3, 3, 4, 5, 16, 15), (1, 5, 2, 2, 10, 14)]
    ],
    forbidden=(lesson.upsample,),
    mistakes=(
        Mistake(
            name="a mask with steps as large as patches",
            says='Argmax first gives it, and so does enlarging with mode "nearest". Enlarge the logits, bilinear, '
            "and take the largest afterwards.",
            reread=_BY_HAND,
            wrong=lambda logits, size: F.interpolate(logits, size=size, mode="nearest").argmax(dim=1),
        ),
        Mistake(
            name="corners aligned",
            says="align_corners=True puts the outer patches' middles onto the picture's corners. A patch's middle lies "
            "half a patch inside: align_corners=False.",
            reread=_BY_HAND,
            wrong=lambda logits, size: F.interpolate(logits, size=size, mode="bilinear", align_corners=True).argmax(
                dim=1
            ),
        ),
        Mistake(
            name="probabilities in place of logits",
            says="Enlarge the logits themselves: the softmax distorts what lies between two patches.",
            reread=_BY_HAND,
            wrong=lambda logits, size: _segment(logits.softmax(dim=1), size),
        ),
    ),
)
