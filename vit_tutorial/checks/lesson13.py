"""Checks of lesson 13: colours as classes, corrupted tokens, tokens put back into their places, and MAE's loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation
from vit_tutorial.checks.engine.functions import call, normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.variants import selfsup as lesson

_ASKED = "The paper's own way: name the colour"
_ORDER = "Tokens in another order."
_QUARTER = "A picture out of noise"

# ---- With a pencil -----------------------------------------------------------------------------------------------

MASKING_NUMBERS = pencil(
    "masking_numbers",
    lesson="13",
    points=4,
    tolerance=0.0003,  # 6.24 is near enough, 6.23 and 6.25 are not
    questions={
        "level": Question(
            5,
            "8 times the value, rounded down.",
            _ASKED,
            {6: Slip("a level that is rounded up", "8 · 0.7 = 5.6, and levels are rounded down.")},
        ),
        "class": Question(
            168,
            "Three levels first, then 64 times red, 8 times green, 1 times blue.",
            _ASKED,
            {42: Slip("blue counted most", "The first channel counts most: 64 · red + 8 · green + blue.")},
        ),
        "mean colour": Question(512, "The head returns a number for each class of one colour."),
        "small patch": Question(8192, "16 pixels, and for each a number for every class."),
        "pixels": Question(192, "Each pixel of the patch, in each channel."),
        "first loss": Question(
            6.2383,
            "Every class gets the same probability: minus the logarithm of it.",
            _ASKED,
            {9: Slip("a logarithm to the base 2", "9 bits is right, but the loss uses the natural logarithm: ln 512.")},
        ),
        "masked": Question(400, "First how many are chosen, then how many of these become the mask token."),
        "unchanged": Question(550, "Those that weren't chosen, and those that were chosen and kept."),
        "encoder": Question(
            5,
            "A quarter of the patches, and the class token.",
            _QUARTER,
            {4: Slip("the class token forgotten", "It is never hidden, and goes through the encoder as well.")},
        ),
        "decoder": Question(17, "All places are filled again."),
        "scores": Question(
            25,
            "Every token in the encoder looks at every token.",
            _QUARTER,
            {
                16: Slip("the class token forgotten", "It is never hidden, and goes through the encoder as well."),
                289: Slip("all tokens in the encoder", "MAE's encoder gets the class token and the visible patches."),
            },
        ),
    },
)


# ---- Colours as classes ------------------------------------------------------------------------------------------


def _colour_classes(images: Tensor, patch_size: int, places: tuple[int, int, int] = (64, 8, 1)) -> Tensor:
    means = patchify(images, patch_size).unflatten(2, (3, -1)).mean(dim=3)  # (B, N, 3)
    return ((means * 8).long().clamp(max=7) * torch.tensor(places)).sum(dim=2)


def _colour_cases() -> list[Case]:
    cases = []
    for B, H, W, P in [(2, 8, 12, 4), (3, 6, 4, 2)]:
        generator = torch.Generator().manual_seed(B)
        colours = torch.rand(B, 3, H // P, W // P, generator=generator).repeat_interleave(P, 2).repeat_interleave(P, 3)
        images = (colours + 0.2 * torch.rand(B, 3, H, W, generator=generator) - 0.1).clamp(0, 1)
        cases.append(Case(f"images ({B}, 3, {H}, {W}), P = {P}", (images, P)))
    extremes = torch.ones(1, 3, 2, 4)
    extremes[:, :2, :, :2] = 0  # blue, then white
    begun = (torch.arange(24).view(1, 3, 2, 4) * 5 % 9 / 8).repeat_interleave(2, 2).repeat_interleave(2, 3)
    return [
        *cases,
        Case("a blue patch and a white one, P = 2", (extremes, 2)),
        Case("means where a level begins: 0, 1/8, …, 1, P = 2", (begun, 2)),
    ]


COLOUR_CLASSES = Exercise(
    name="colour_classes",
    lesson="13",
    points=4,
    right=_colour_classes,
    cases=_colour_cases,
    forbidden=(lesson.colour_classes,),
    mistakes=(
        Mistake(
            name="blue counted most",
            says="The first channel counts most: 64 · red + 8 · green + blue.",
            reread=_ASKED,
            wrong=functools.partial(_colour_classes, places=(1, 8, 64)),
        ),
    ),
)


# ---- Corrupted tokens --------------------------------------------------------------------------------------------


def _learning_but(fixed: int) -> Callable[[Any, Case], Observation]:
    """What is called, with its gradients; the text asks for none in argument ``fixed``, counted from 0."""

    def observe(submission: Any, case: Case) -> Observation:
        def held(*given: Any) -> Any:
            return submission(*(x.detach() if place == fixed else x for place, x in enumerate(given)))

        observed = call(held, case, differentiable=True)
        observed.gradients.pop(f"argument {fixed + 1}", None)
        return observed

    return observe


def _spoil(tokens: Tensor, chosen: Tensor, fate: Tensor, other: Tensor, mask_token: Tensor) -> Tensor:
    masked, swapped = chosen & (fate < 0.8), chosen & (fate >= 0.8) & (fate < 0.9)
    corrupted = torch.where(masked[..., None], mask_token.expand_as(tokens), tokens)
    others = tokens.gather(1, other[..., None].expand_as(tokens))
    return torch.where(swapped[..., None], others, corrupted)


def _spoil_cases() -> list[Case]:
    cases = []
    for B, N, D in [(2, 20, 4), (3, 15, 1), (1, 48, 2)]:
        generator = torch.Generator().manual_seed(N)
        chosen = torch.rand(B, N, generator=generator) < 0.6
        fate = torch.rand(B, N, generator=generator)
        other = torch.stack([torch.randperm(N, generator=generator) for _ in range(B)])  # (B, N)
        label = f"tokens ({B}, {N}, {D}), chosen, fate and other ({B}, {N})"
        cases.append(Case(label, (normal(B, N, D), chosen, fate, other, normal(D, seed=1))))
    return [*cases, _at_the_bounds()]


def _at_the_bounds() -> Case:
    """Fates of just 0.8 and 0.9, in float64: in float32 0.9 is a little less. In the second image none is chosen."""
    fates = [[0.0, 0.8, 0.9, 1.0, 0.5, 0.8 - 1e-6, 0.9 - 1e-6], [0.0, 0.8, 0.9, 1.0, 0.85, 0.801, 0.901]]
    chosen = torch.tensor([[True] * 7, [False] * 7])
    other = torch.tensor([[3, 4, 0, 5, 6, 2, 1], [1, 2, 3, 4, 5, 6, 0]])
    args = (normal(2, 7, 3, seed=14), chosen, torch.tensor(fates, dtype=torch.float64), other, normal(3, seed=24))
    return Case("fates of just 0, 0.8, 0.9 and 1", args)


SPOIL = Exercise(
    name="spoil",
    lesson="13",
    points=4,
    right=_spoil,
    cases=_spoil_cases,
    observe=_learning_but(2),  # fate is drawn
    tolerance=1e-6,  # tokens come from elsewhere, as they are
)


# ---- Tokens put back ---------------------------------------------------------------------------------------------


def _back_cases() -> list[Case]:
    cases = []
    for B, N, D, n in [(2, 9, 4, 3), (3, 8, 2, 4), (1, 6, 3, 3)]:
        order = torch.rand(B, N, generator=torch.Generator().manual_seed(N)).argsort(dim=1)
        cases.append(
            Case(f"visible ({B}, {n}, {D}), hidden ({B}, {N})", (normal(B, n, D), order >= n, normal(D, seed=1)))
        )
    return cases


def _masks_at_the_end(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    masks = mask_token.expand(len(visible), hidden.shape[1] - visible.shape[1], -1)
    return torch.cat([visible, masks], dim=1)


RESTORE = Exercise(
    name="restore",
    lesson="13",
    points=3,
    right=lesson.restore,
    cases=_back_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-6,  # tokens are put back as they are
    mistakes=(
        Mistake(
            name="mask tokens behind the visible ones",
            says="Only `hidden` says which places the tokens belong to. Put each visible token into its own place, and "
            "the mask token into the others.",
            reread=_ORDER,
            wrong=_masks_at_the_end,
        ),
        Mistake(
            name="visible and hidden places exchanged",
            says="hidden is True where a patch was hidden: the mask token goes there.",
            reread=_ORDER,
            wrong=lambda visible, hidden, mask_token: lesson.restore(visible, ~hidden, mask_token),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _errors(said: Tensor, images: Tensor, patch_size: int, correction: int = 1) -> Tensor:
    """Each patch's mean squared error, (B, N), against its normalised numbers."""
    patches = patchify(images, patch_size)
    std = (patches.var(dim=2, correction=correction, keepdim=True) + 1e-6).sqrt()
    target = (patches - patches.mean(dim=2, keepdim=True)) / std
    return (said - target).square().mean(dim=2)


def _loss(
    said: Tensor, images: Tensor, hidden: Tensor, patch_size: int, *, correction: int = 1
) -> tuple[Tensor, Tensor]:
    errors = _errors(said, images, patch_size, correction)
    return errors * hidden, errors[hidden].mean()


def _mean_over_all(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> tuple[Tensor, Tensor]:
    errors, _ = _loss(said, images, hidden, patch_size)
    return errors, errors.mean()


def _mean_of_means(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> tuple[Tensor, Tensor]:
    errors = _errors(said, images, patch_size)
    of_images = [of_image[gone].mean() for of_image, gone in zip(errors, hidden, strict=True)]
    return errors * hidden, torch.stack(of_images).mean()


def _loss_cases() -> list[Case]:
    cases = []
    for B, C, H, W, P, n in [(2, 3, 8, 12, 4, 4), (1, 2, 6, 4, 2, 4)]:
        N, L = H * W // P**2, C * P * P
        hidden = torch.rand(B, N, generator=torch.Generator().manual_seed(B)).argsort(dim=1) < n
        cases.append(Case(f"said ({B}, {N}, {L}), P = {P}", (normal(B, N, L), normal(B, C, H, W, seed=1), hidden, P)))
    return [*cases, _nearly_even_patches()]


def _nearly_even_patches() -> Case:
    """Where 1e-6 counts: patches that hardly vary, and one that doesn't; as many are hidden in no two images."""
    spread = torch.tensor([0.003, 0.001, 0.002, 0.0005, 0.0, 0.001]).view(1, 6, 1)
    images = unpatchify(0.5 + spread * normal(3, 6, 4, seed=9), 2, (4, 6))
    hidden = torch.tensor([[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0]]).bool()
    said = normal(3, 6, 4, seed=49)
    said[1, 4] = 0  # an error of 0
    return Case("patches of nearly one colour, 1, 4 and 2 of them hidden", (said, images, hidden, 2))


HIDDEN_LOSS = Exercise(
    name="hidden_loss",
    lesson="13",
    points=2,
    right=_loss,
    cases=_loss_cases,
    observe=_learning_but(1),  # the target may be computed without a graph
    tolerance=1e-4,
    forbidden=(lesson.normalised_patches,),
    mistakes=(
        Mistake(
            name="a loss of the visible patches, too",
            says="The painter has to say what it doesn't see: only errors of hidden patches count, all others are 0.",
            reread=_QUARTER,
            wrong=lambda said, images, hidden, patch_size: _loss(said, images, torch.ones_like(hidden), patch_size),
        ),
        Mistake(
            name="a variance divided by n",
            says="The text asks for torch's var, which divides by one less than the number of values.",
            reread=_QUARTER,
            wrong=functools.partial(_loss, correction=0),
        ),
        Mistake(
            name="a mean of the images' means",
            says="All hidden patches count alike: one mean over all of them. With a mean for each image first, a patch "
            "counts less where more are hidden.",
            reread=_QUARTER,
            wrong=_mean_of_means,
        ),
        Mistake(
            name="a mean over all patches",
            says="The loss is the mean over the hidden patches: divide by their number, not by B · N.",
            reread=_QUARTER,
            wrong=_mean_over_all,
        ),
    ),
)
