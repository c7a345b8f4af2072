"""Checks of lesson 13: colours as classes, corrupted tokens, tokens put back into their places, and MAE's loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Mistake,
    Observation,
    Question,
    Row,
    call,
    normal,
    pencil,
)
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.variants import selfsup as lesson

_ASKED = "4 · The paper's own way: name the colour"
_SPOIL = _ASKED
_LIVE = _ASKED
_QUARTER = "2 · The encoder sees a quarter"

# ---- With a pencil -----------------------------------------------------------------------------------------------

# Images of 32 x 32 pixels, RGB, patches of 8 x 8: 16 patches of 192 numbers. A class token comes first.
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
            {6: "a level that is rounded up. 8 · 0.7 = 5.6, and levels are rounded down."},
        ),
        "class": Question(
            168,
            "Three levels first, then 64 times red, 8 times green, once blue.",
            _ASKED,
            {42: "blue counted most. The first channel counts most: 64 · red + 8 · green + blue."},
        ),
        "mean colour": Question(512, "The head returns a number for each class of one colour."),
        "small patch": Question(8192, "16 pixels, and for each a number for every class."),
        "pixels": Question(192, "Each pixel of the patch, in each channel."),
        "first loss": Question(
            6.2383,
            "Every class gets the same probability: minus the logarithm of it.",
            _LIVE,
            {9: "a logarithm to the base 2. 9 bits is right, but the loss uses the natural logarithm: ln 512."},
        ),
        "masked": Question(400, "First how many are chosen, then how many of these become the mask token."),
        "unchanged": Question(
            550,
            "Those that weren't chosen, and those that were chosen and kept.",
            _SPOIL,
            {500: "only those that weren't chosen. 10 % of the chosen ones stay as they are, too."},
        ),
        "encoder": Question(
            5,
            "A quarter of the patches, and the class token.",
            _QUARTER,
            {
                4: "the class token forgotten. It is never hidden, and goes through the encoder, too.",
                17: "all tokens in the encoder. MAE's encoder gets the class token and the visible patches.",
            },
        ),
        "decoder": Question(17, "All places are filled again."),
        "scores": Question(
            25,
            "Every token in the encoder looks at every token.",
            _QUARTER,
            {
                16: "the class token forgotten. It is never hidden, and goes through the encoder, too.",
                289: "all tokens in the encoder. MAE's encoder gets the class token and the visible patches.",
            },
        ),
    },
)


# ---- Colours as classes ------------------------------------------------------------------------------------------


def _down(colours: Tensor) -> Tensor:
    return (colours * 8).long().clamp(0, 7)


def _number(levels: Tensor) -> Tensor:
    return (levels * torch.tensor([64, 8, 1])).sum(dim=-1)


def _colour_classes(images: Tensor, patch_size: int) -> Tensor:
    patches = patchify(images, patch_size).unflatten(2, (images.shape[1], -1))  # (B, N, C, P*P)
    return _number(_down(patches.mean(dim=3)))


def _worked_out(wrong: list[Row]) -> str:
    """The class of the first wrong patch, step by step."""
    case, right, yours = wrong[0]
    numbers = torch.as_tensor(yours.result)
    if numbers.shape != right.result.shape:
        return ""
    image, patch = (numbers != right.result).nonzero()[0].tolist()
    colour = patchify(*case.args)[image, patch].unflatten(0, (3, -1)).mean(dim=1)  # (3,)
    red, green, blue = _down(colour).tolist()
    shown = ", ".join(f"{x:.6g}" for x in colour.tolist())
    return (
        f"Patch {patch} of image {image} has the mean colour ({shown}): levels {red}, {green} and {blue}, "
        f"class 64 · {red} + 8 · {green} + {blue} (with {case.label})."
    )


def _colour_cases() -> list[Case]:
    cases = []
    for seed, (B, H, W, P) in enumerate(
        ((1, 4, 4, 2), (2, 8, 12, 4), (3, 6, 4, 2), (4, 4, 4, 2), (1, 3, 3, 3), (2, 2, 3, 1), (1, 2, 90, 2))
    ):
        generator = torch.Generator().manual_seed(seed)
        images = torch.rand(B, 3, H // P, W // P, generator=generator).repeat_interleave(P, 2).repeat_interleave(P, 3)
        images = (images + 0.2 * torch.rand(B, 3, H, W, generator=generator) - 0.1).clamp(0, 1)
        cases.append(Case(f"images ({B}, 3, {H}, {W}), P = {P}", (images, P)))
    extremes = torch.ones(1, 3, 2, 4)
    extremes[:, :2, :, :2] = 0  # blue, then white
    steps = torch.arange(2 * 3 * 2 * 4).view(2, 3, 2, 4) * 5 % 9 / 8  # where a level begins: 0, 1/8, ..., 1
    begun = steps.repeat_interleave(2, 2).repeat_interleave(2, 3)
    begun = torch.cat([begun, (begun[:1].flip(3) - 1e-6).clamp(min=0)])  # and just below
    chequered = torch.rand(1, 3, 6, 8, generator=torch.Generator().manual_seed(5)).round()
    return [
        *cases,
        Case("a blue patch and a white one, P = 2", (extremes, 2)),
        Case("pixels of 0 and of 1, P = 2", (chequered, 2)),
        Case("means where a level begins, or just below, P = 2", (begun, 2)),
    ]


COLOUR_CLASSES = Exercise(
    name="colour_classes",
    lesson="13",
    points=4,
    takes="fn(images, patch_size): (B, 3, H, W) in [0, 1] -> (B, N) whole numbers from 0 to 511",
    right=_colour_classes,
    cases=_colour_cases,
    observe=call,
    forbidden=(lesson.colour_classes, lesson.targets),
    explain=_worked_out,
)


# ---- Corrupted tokens --------------------------------------------------------------------------------------------


def _learning_but(fixed: int) -> Callable[[Any, Case], Observation]:
    """What is called, with its gradients; the text asks for none in argument ``fixed``, counted from 0."""

    def observe(work: Any, case: Case) -> Observation:
        def held(*given: Any) -> Any:
            return work(*(x.detach() if place == fixed else x for place, x in enumerate(given)))

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
    for seed, (B, N, D) in enumerate(((1, 8, 3), (2, 20, 4), (3, 15, 1), (8, 8, 8), (1, 48, 2))):
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.rand(B, N, generator=generator) < 0.6
        chosen[:, :7] = torch.tensor([True, True, True, False, False, False, True])
        fate = torch.rand(B, N, generator=generator)
        fate[:, :7] = torch.tensor([0.3, 0.85, 0.95, 0.3, 0.85, 0.95, 0.85])  # every case is there
        other = torch.stack([torch.randperm(N, generator=generator) for _ in range(B)])  # (B, N)
        other[:, 1] = 0  # the first swapped one gets a token that is masked itself,
        other[:, 6] = (torch.arange(B) + 2) % N  # the last one in each image another
        tokens = normal(B, N, D, seed=seed + 10)
        label = f"tokens ({B}, {N}, {D}), chosen, fate and other ({B}, {N})"
        cases.append(Case(label, (tokens, chosen, fate, other, normal(D, seed=seed + 20))))
    one = torch.tensor([[True]])
    alone = (normal(1, 1, 3, seed=15), one, torch.full((1, 1), 0.3), torch.zeros_like(one).long(), normal(3))
    tokens, chosen, fate, other, mask_token = cases[0].args
    large = 1000 * tokens, chosen, fate, other, 1000 * mask_token
    return [*cases, _at_the_bounds(), Case("one token alone", alone), Case("large numbers", large)]


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
    takes="fn(tokens, chosen, fate, other, mask_token): (B, N, D), three times (B, N), (D,) -> (B, N, D)",
    right=_spoil,
    cases=_spoil_cases,
    observe=_learning_but(2),  # fate is drawn
    tolerance=1e-6,  # tokens come from elsewhere, as they are
)


# ---- Tokens put back ---------------------------------------------------------------------------------------------


def _back_cases() -> list[Case]:
    cases = []
    # In the last one nothing is hidden.
    sizes = [(1, 6, 3, 2), (2, 9, 4, 3), (3, 8, 2, 2), (2, 7, 3, 5), (4, 4, 4, 2), (2, 3, 1, 1), (1, 45, 2, 11),
             (2, 4, 3, 4)]  # fmt: skip
    for seed, (B, N, D, n) in enumerate(sizes):
        generator = torch.Generator().manual_seed(seed + 1)
        order = torch.rand(B, N, generator=generator).argsort(dim=1)
        case = (normal(B, n, D, seed=seed), order >= n, normal(D, seed=seed + 30))
        cases.append(Case(f"visible ({B}, {n}, {D}), hidden ({B}, {N})", case))
    hidden = torch.tensor([[True, False, True, False, False]]).repeat(7, 1)
    return [*cases, Case("large numbers", (1000 * normal(7, 3, 2), hidden, 1000 * normal(2, seed=1)))]


RESTORE = Exercise(
    name="restore",
    lesson="13",
    points=3,
    takes="fn(visible, hidden, mask_token): (B, n, D), (B, N), (D,) -> (B, N, D)",
    right=lesson.restore,
    cases=_back_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-6,  # tokens are put back as they are
    mistakes=(
        Mistake(
            name="mask tokens behind the visible ones",
            says="Only `hidden` says which places the tokens belong to. Put each visible token into its own place, and "
            "the mask token into the others.",
            reread="Tokens in another order.",
            wrong=lambda visible, hidden, mask_token: torch.cat(
                [visible, mask_token.expand(len(visible), hidden.shape[1] - visible.shape[1], -1)], dim=1
            ),
        ),
        Mistake(
            name="visible and hidden places exchanged",
            says="hidden is True where a patch was hidden: there stands the mask token.",
            reread="Tokens in another order.",
            wrong=lambda visible, hidden, mask_token: lesson.restore(visible, ~hidden, mask_token),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _deviation(patches: Tensor) -> Tensor:
    return (patches.var(dim=2, keepdim=True) + 1e-6).sqrt()


def _normalised(divide: Callable[[Tensor], Tensor] = _deviation) -> Callable[[Tensor, int], Tensor]:
    """The patches (B, N, C*P*P) without their mean, divided by something."""

    def wanted(images: Tensor, patch_size: int) -> Tensor:
        patches = patchify(images, patch_size)
        return (patches - patches.mean(dim=2, keepdim=True)) / divide(patches)

    return wanted


_right_target = _normalised()


def _channels_last(images: Tensor, patch_size: int) -> Tensor:
    return _right_target(images, patch_size).unflatten(2, (images.shape[1], -1)).mT.flatten(2)


def _make_loss(
    wanted: Callable[[Tensor, int], Tensor] = _right_target,
    mean: Callable[[Tensor, Tensor], Tensor] = lambda errors, hidden: errors[hidden].mean(),
) -> Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    """MAE's loss with other pixels wanted, or another mean of the patches' errors (B, N)."""

    def hidden_loss(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> tuple[Tensor, Tensor]:
        errors = (said - wanted(images, patch_size)).square().mean(dim=2)  # (B, N)
        return errors * hidden, mean(errors, hidden)

    return hidden_loss


def _of_all_patches(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> tuple[Tensor, Tensor]:
    errors, mean = _make_loss()(said, images, torch.ones_like(hidden), patch_size)
    return errors, mean


def _mean_of_means(errors: Tensor, hidden: Tensor) -> Tensor:
    return torch.stack([of_image[gone].mean() for of_image, gone in zip(errors, hidden, strict=True)]).mean()


def _loss_cases() -> list[Case]:
    cases = []
    sizes = [(1, 1, 4, 4, 2, 3), (2, 3, 8, 12, 4, 4), (3, 2, 6, 4, 2, 4), (4, 1, 4, 4, 2, 2), (1, 2, 2, 2, 2, 1),
             (1, 1, 6, 28, 2, 31)]  # fmt: skip
    for seed, (B, C, H, W, P, n) in enumerate(sizes):
        generator = torch.Generator().manual_seed(seed)
        N, L = H * W // P**2, C * P * P
        order = torch.rand(B, N, generator=generator).argsort(dim=1)
        patches = 0.2 * torch.rand(B, N, L, generator=generator) + 0.8 * torch.rand(B, N, 1, generator=generator)
        args = (normal(B, N, L, seed=seed + 40), unpatchify(patches, P, (H, W)), order < n, P)
        cases.append(Case(f"said ({B}, {N}, {L}), images ({B}, {C}, {H}, {W}), P = {P}", args))
    return [*cases, _nearly_even_patches(), _far_off()]


def _nearly_even_patches() -> Case:
    """Where 1e-6 counts: patches that hardly vary, and one that doesn't; as many are hidden in no two images."""
    spread = torch.tensor([0.003, 0.001, 0.002, 0.0005, 0.0, 0.001]).view(1, 6, 1)
    images = unpatchify(0.5 + spread * normal(3, 6, 4, seed=9), 2, (4, 6))
    hidden = torch.tensor([[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0]]).bool()
    said = normal(3, 6, 4, seed=49)
    said[1, 4] = 0  # an error of 0
    return Case("patches of nearly one colour, 1, 4 and 2 of them hidden", (said, images, hidden, 2))


def _far_off() -> Case:
    """Pixels below 0 and above 1, as a model gets them, and an answer that is far from them."""
    hidden = torch.tensor([[1, 0, 0, 1, 1, 0], [0, 1, 0, 1, 0, 0]]).bool()
    images = 2 * normal(2, 5, 4, 6, seed=8)
    images[0, 0, 0, 0] = 40  # far out even for its own patch
    said = normal(2, 6, 20, seed=48)
    said[1, 3] *= 8
    args = (said, images, hidden, 2)
    return Case("images with pixels below 0 and above 1, an answer far off", args)


HIDDEN_LOSS = Exercise(
    name="hidden_loss",
    lesson="13",
    points=2,
    takes="fn(said, images, hidden, patch_size): (B, N, C*P*P), (B, C, H, W), (B, N), P -> (B, N), one number",
    right=_make_loss(),
    cases=_loss_cases,
    observe=_learning_but(1),  # the target may be computed without a graph
    tolerance=1e-4,
    forbidden=(lesson.normalised_patches,),
    mistakes=(
        Mistake(
            name="a loss of the visible patches, too",
            says="The painter is to say what it doesn't see: only the errors of hidden patches count, all others are "
            "0.",
            reread=_QUARTER,
            wrong=_of_all_patches,
        ),
        Mistake(
            name="a variance divided by n",
            says="The text asks for torch's var, which divides by one less than the number of values.",
            reread=_QUARTER,
            wrong=_make_loss(wanted=_normalised(lambda p: (p.var(2, correction=0, keepdim=True) + 1e-6).sqrt())),
        ),
        Mistake(
            name="channels last in a patch",
            says="The values of a patch are in patchify's order: all pixels of a channel, then the next channel.",
            reread=_QUARTER,
            wrong=_make_loss(wanted=_channels_last),
        ),
        Mistake(
            name="a mean of the images' means",
            says="All hidden patches count alike: one mean over all of them. With a mean for each image first, a patch "
            "counts less where more are hidden.",
            reread=_QUARTER,
            wrong=_make_loss(mean=_mean_of_means),
        ),
        Mistake(
            name="a mean over all patches",
            says="The loss is the mean over the hidden patches: divide by their number, not by B · N.",
            reread=_QUARTER,
            wrong=_make_loss(mean=lambda errors, hidden: (errors * hidden).mean()),
        ),
    ),
)
