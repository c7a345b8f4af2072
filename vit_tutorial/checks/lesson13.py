"""Checks of lesson 13: colours as classes, tokens that are spoilt, holes that are filled, and MAE's loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.checks.harness import Case, Exercise, Mistake, Result, Slip, answers, call, check, normal
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.variants import selfsup as lesson

__all__ = [
    "check_colour_classes",
    "check_hidden_loss",
    "check_masking_numbers",
    "check_put_back",
    "check_spoil",
]

_ASKED = "1 · What is asked for"
_SPOIL = "2 · Spoil half of it"
_LIVE = "3 · The paper's way, live"
_QUARTER = "4 · A year later: see a quarter"
_VISIBLE = "A loss on all patches."
_NORMALISED = "Colours of normalised pictures."
_ORDER = "Tokens in another order."

# ---- With a pencil -----------------------------------------------------------------------------------------------

# Images of 32 x 32 pixels, RGB, patches of 8 x 8: 16 patches of 192 numbers. A class token comes first.
NUMBERS = {
    "level": 5,
    "class": 168,
    "mean colour": 512,
    "small patch": 8192,
    "pixels": 192,
    "first loss": math.log(512),
    "masked": 400,
    "unchanged": 550,
    "encoder": 5,
    "decoder": 17,
    "scores": 25,
}

MASKING_NUMBERS = Exercise(
    name="masking_numbers",
    lesson="13",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.0003,  # 6.24 is near enough, 6.23 and 6.25 are not
    secret=True,
    advice={
        "level": "8 times the value, rounded down.",
        "class": "Three levels first, then 64 times red, 8 times green, once blue.",
        "mean colour": "The head gives a number for each class of one colour.",
        "small patch": "16 pixels, and for each a number for every class.",
        "pixels": "Each pixel of the patch, in each channel.",
        "first loss": "Every class gets the same probability: minus the logarithm of it.",
        "masked": "First how many are chosen, then how many of these become the mask token.",
        "unchanged": "Those that weren't chosen, and those that were chosen and kept.",
        "encoder": "A quarter of the patches, and the class token.",
        "decoder": "All places are filled again.",
        "scores": "Every token in the encoder looks at every token.",
    },
    mistakes=(
        Mistake(
            "a level that is rounded to the nearest",
            "8 · 0.7 = 5.6, and levels are rounded down: level 5 goes from 0.625 to 0.75.",
            _ASKED,
            {"level": 6},
        ),
        Mistake(
            "a level between 0 and 255",
            "3 bits give 8 levels, 0 to 7.",
            _ASKED,
            {"level": 178},
        ),
        Mistake(
            "levels up to 7 in place of 8 of them",
            "Multiply by 8, not by 7: then each level is an eighth of the way from 0 to 1.",
            _ASKED,
            {"level": 4},
        ),
        Mistake(
            "levels that are added",
            "2 + 5 + 0 is 7 for many colours. A class must tell them apart: 64 · red + 8 · green + blue.",
            _ASKED,
            {"class": 7},
        ),
        Mistake(
            "blue counted most",
            "The first channel counts most: 64 · red + 8 · green + blue.",
            _ASKED,
            {"class": 42},
        ),
        Mistake(
            "levels read as decimal digits",
            "Each place counts 8 times the next, as there are 8 levels, not 10.",
            _ASKED,
            {"class": 250},
        ),
        Mistake(
            "a number for each channel",
            "One colour is one class of 8 · 8 · 8: the head gives a number for each class.",
            _ASKED,
            {"mean colour": 3},
        ),
        Mistake(
            "the classes of three channels added",
            "Every level of red goes with every level of green and of blue: 8 · 8 · 8.",
            _ASKED,
            {"mean colour": 24},
        ),
        Mistake(
            "one answer for the small patch",
            "It has 4 x 4 pixels, and each has a class of its own.",
            _ASKED,
            {"small patch": 512},
        ),
        Mistake(
            "a number for each pixel of the small patch",
            "Each of its 16 pixels has 512 classes, so the head gives 16 · 512 numbers.",
            _ASKED,
            {"small patch": 16},
        ),
        Mistake(
            "channels forgotten",
            "Each of the 64 pixels has three channels.",
            _ASKED,
            {"pixels": 64},
        ),
        Mistake(
            "classes for pixels",
            "With the squared error there are no classes: a number for each pixel and channel.",
            _ASKED,
            {"pixels": 64 * 512},
        ),
        Mistake(
            "a logarithm to the base 2",
            "9 bits are right, but the loss is counted with the natural logarithm: ln 512.",
            _LIVE,
            {"first loss": 9},
        ),
        Mistake(
            "a logarithm to the base 10",
            "The loss is counted with the natural logarithm: ln 512.",
            _LIVE,
            {"first loss": math.log10(512)},
        ),
        Mistake(
            "a probability in place of a loss",
            "1 / 512 is the probability. The loss is minus its logarithm.",
            _LIVE,
            {"first loss": 1 / 512},
        ),
        Mistake(
            "shares of all tokens",
            "80 % are of the chosen tokens, and half of the 1,000 are chosen.",
            _SPOIL,
            {"masked": 800},
        ),
        Mistake(
            "all chosen ones masked",
            "Of the 500 chosen ones 80 % become the mask token. The others are swapped or kept.",
            _SPOIL,
            {"masked": 500},
        ),
        Mistake(
            "only those that weren't chosen",
            "10 % of the chosen ones stay as they are, too.",
            _SPOIL,
            {"unchanged": 500},
        ),
        Mistake(
            "swapped ones counted as unchanged",
            "They have another patch's token, so they aren't unchanged.",
            _SPOIL,
            {"unchanged": 600},
        ),
        Mistake(
            "only the chosen ones that stay",
            "These are 50. The 500 that weren't chosen have their own token as well.",
            _SPOIL,
            {"unchanged": 50},
        ),
        Mistake(
            "the class token forgotten",
            "It is never hidden, and it goes through the encoder with the patches that are left.",
            _QUARTER,
            {"encoder": 4, "scores": 16},
        ),
        Mistake(
            "the hidden ones in the encoder",
            "Three quarters are hidden. The encoder gets what is left.",
            _QUARTER,
            {"encoder": 13, "scores": 169},
        ),
        Mistake(
            "all tokens in the encoder",
            "This is the paper's way. MAE's encoder gets the patches that are left, and no mask tokens.",
            _QUARTER,
            {"encoder": 17, "scores": 289},
        ),
        Mistake(
            "a decoder without the class token",
            "It comes out of the encoder, and goes into the decoder with the others.",
            _QUARTER,
            {"decoder": 16},
        ),
        Mistake(
            "a decoder that gets what is left",
            "A mask token is put into each hole first, so all places are there again.",
            _QUARTER,
            {"decoder": 5},
        ),
        Mistake(
            "a score for each token",
            "Each of the tokens looks at each: the number of tokens, squared.",
            _QUARTER,
            {"scores": 5},
        ),
    ),
)


def check_masking_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(MASKING_NUMBERS, fn)


# ---- Colours as classes ------------------------------------------------------------------------------------------


def _mean(patches: Tensor) -> Tensor:
    return patches.mean(dim=2)  # (B, N, P*P, C) -> (B, N, C)


def _floor(colours: Tensor) -> Tensor:
    return (colours * 8).long().clamp(0, 7)


def _places(levels: Tensor, base: tuple[int, ...] = (64, 8, 1)) -> Tensor:
    return (levels * torch.tensor(base)).sum(dim=-1)


def _make_classes(
    cut: Callable[[Tensor, int], Tensor] = patchify,
    mean: Callable[[Tensor], Tensor] = _mean,
    level: Callable[[Tensor], Tensor] = _floor,
    number: Callable[[Tensor], Tensor] = _places,
    shape: Callable[[Tensor], Tensor] = lambda classes: classes,
) -> Callable[[Tensor, int], Tensor]:
    def colour_classes(images: Tensor, patch_size: int) -> Tensor:
        patches = cut(images, patch_size).unflatten(2, (images.shape[1], -1)).transpose(2, 3)  # (B, N, P*P, C)
        return shape(number(level(mean(patches))))

    return colour_classes


def _column_by_column(images: Tensor, patch_size: int) -> Tensor:
    patches = patchify(images.transpose(2, 3), patch_size)  # (B, N, C*P*P)
    return patches


def _channels_last(images: Tensor, patch_size: int) -> Tensor:
    patches = patchify(images, patch_size)
    return patches.unflatten(2, (-1, images.shape[1])).transpose(2, 3).flatten(2)


def _of_each_pixel(images: Tensor, patch_size: int) -> Tensor:
    patches = patchify(images, patch_size).unflatten(2, (images.shape[1], -1)).transpose(2, 3)
    return _places(_floor(patches)).double().mean(dim=2).long()


def _of_normalised(images: Tensor, patch_size: int) -> Tensor:
    return _make_classes()((images - 0.5) / 0.5, patch_size)


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
        Case("means that are just where a level begins, P = 2", (begun, 2)),
    ]


_right_classes = _make_classes()

COLOUR_CLASSES = Exercise(
    name="colour_classes",
    lesson="13",
    points=4,
    right=_right_classes,
    cases=_colour_cases,
    observe=call,
    forbidden=(lesson.colour_classes, lesson.targets),
    mistakes=(
        Mistake(
            "levels that are rounded to the nearest",
            "Level 3 goes from 3/8 to 4/8: round down, after 8 times the value.",
            _ASKED,
            Slip(_make_classes, level=lambda c: (c * 8).round().long().clamp(0, 7)),
        ),
        Mistake(
            "7 times the value",
            "Then level 7 is there for 1.0 alone. It is 8 times the value, rounded down; and 1.0 belongs to level 7.",
            _ASKED,
            Slip(_make_classes, level=lambda c: (c * 7).long()),
        ),
        Mistake(
            "7 times the value, rounded to the nearest",
            "The eight levels are equally wide: 8 times the value, rounded down.",
            _ASKED,
            Slip(_make_classes, level=lambda c: (c * 7).round().long()),
        ),
        Mistake(
            "a value of 1.0 at level 8",
            "There are levels 0 to 7. A value of exactly 1 gets 8 · 1 = 8: put it to level 7.",
            _ASKED,
            Slip(_make_classes, level=lambda c: (c * 8).long()),
        ),
        Mistake(
            "a mean between two levels in the lower one",
            "Level 3 goes from 3/8 on: a mean of just 3/8 belongs to level 3, not to level 2.",
            _ASKED,
            Slip(_make_classes, level=lambda c: (c * 8).ceil().sub(1).clamp(0, 7).long()),
        ),
        Mistake(
            "16 levels",
            "3 bits are 8 levels, so 8 · 8 · 8 = 512 classes.",
            _ASKED,
            Slip(
                _make_classes, level=lambda c: (c * 16).long().clamp(0, 15), number=lambda n: _places(n, (256, 16, 1))
            ),
        ),
        Mistake(
            "blue counted most",
            "The first channel counts most: 64 · red + 8 · green + blue.",
            _ASKED,
            Slip(_make_classes, number=lambda n: _places(n, (1, 8, 64))),
        ),
        Mistake(
            "levels read as decimal digits",
            "Each place counts 8 times the next: 64, 8, 1.",
            _ASKED,
            Slip(_make_classes, number=lambda n: _places(n, (100, 10, 1))),
        ),
        Mistake(
            "levels that are added",
            "Then red and blue get the same class. 64 · red + 8 · green + blue.",
            _ASKED,
            Slip(_make_classes, number=lambda n: n.sum(dim=-1)),
        ),
        Mistake(
            "places of 7",
            "There are 8 levels, 0 to 7, so the places count 64, 8 and 1, not 49, 7 and 1.",
            _ASKED,
            Slip(_make_classes, number=lambda n: _places(n, (49, 7, 1))),
        ),
        Mistake(
            "the first pixel in place of the mean",
            "The target is the mean colour: average over the patch's pixels first.",
            _ASKED,
            Slip(_make_classes, mean=lambda p: p[:, :, 0]),
        ),
        Mistake(
            "the largest value in place of the mean",
            "The target is the mean colour: average over the patch's pixels.",
            _ASKED,
            Slip(_make_classes, mean=lambda p: p.amax(dim=2)),
        ),
        Mistake(
            "the sum in place of the mean",
            "Divide by the number of pixels, else nearly all colours are white.",
            _ASKED,
            Slip(_make_classes, mean=lambda p: p.sum(dim=2)),
        ),
        Mistake(
            "one grey for all channels",
            "You average over the channels, too. Red, green and blue have a mean each.",
            _ASKED,
            Slip(_make_classes, mean=lambda p: p.mean(dim=(2, 3), keepdim=True)[:, :, 0].expand(-1, -1, 3)),
        ),
        Mistake(
            "a mean of class numbers",
            "Class numbers can't be averaged: between 64 and 8 there is no colour. First the mean, then its class.",
            _ASKED,
            _of_each_pixel,
        ),
        Mistake(
            "patches column by column",
            "Patches are numbered row by row.",
            "1 · Four patches, by hand",
            Slip(_make_classes, cut=_column_by_column),
            lesson="01",
        ),
        Mistake(
            "channels and pixels mixed up",
            "A flat patch holds all pixels of red, then of green, then of blue: (C, P, P), not (P, P, C).",
            _ASKED,
            Slip(_make_classes, cut=_channels_last),
        ),
        Mistake(
            "colours of a normalised picture",
            "The images are in [0, 1] already. Levels are made of these values, not of normalised ones.",
            _NORMALISED,
            _of_normalised,
        ),
        Mistake(
            "an axis too many",
            "The numbers are right. Return (B, N), a class for each patch.",
            _ASKED,
            Slip(_make_classes, shape=lambda classes: classes[..., None]),
        ),
    ),
)


def check_colour_classes(fn: Callable[[Tensor, int], Tensor]) -> bool:
    """Check ``fn(images, patch_size)``: (B, 3, H, W) in [0, 1] -> (B, N) whole numbers from 0 to 511."""
    return check(COLOUR_CLASSES, fn)


# ---- Tokens that are spoilt --------------------------------------------------------------------------------------


def _learning_but(fixed: int) -> Callable[[Any, Case], Result]:
    """What is called, with its gradients; the text asks for none in argument ``fixed``, counted from 0."""

    def observe(work: Any, case: Case) -> Result:
        def held(*given: Any) -> Any:
            return work(*(x.detach() if place == fixed else x for place, x in enumerate(given)))

        result = call(held, case, differentiable=True)
        result.pop(f"gradient of argument {fixed + 1}", None)
        return result

    return observe


def _others(tokens: Tensor, other: Tensor) -> Tensor:
    return tokens.gather(1, other[..., None].expand_as(tokens))


def _make_spoil(
    bounds: tuple[float, float] = (0.8, 0.9),
    among: Callable[[Tensor], Tensor] = lambda chosen: chosen,
    swap: Callable[[Tensor, Tensor], Tensor] = _others,
    mask: Callable[[Tensor, Tensor], Tensor] = lambda tokens, mask_token: mask_token.expand_as(tokens),
    turned: bool = False,
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    def spoil(tokens: Tensor, chosen: Tensor, fate: Tensor, other: Tensor, mask_token: Tensor) -> Tensor:
        chosen = among(chosen)
        low, high = fate < bounds[0], (fate >= bounds[0]) & (fate < bounds[1])
        masked, swapped = (high, low) if turned else (low, high)
        spoilt = torch.where((chosen & masked)[..., None], mask(tokens, mask_token), tokens)
        return torch.where((chosen & swapped)[..., None], swap(tokens, other), spoilt)

    return spoil


def _swap_spoilt(tokens: Tensor, chosen: Tensor, fate: Tensor, other: Tensor, mask_token: Tensor) -> Tensor:
    masked, swapped = chosen & (fate < 0.8), chosen & (fate >= 0.8) & (fate < 0.9)
    spoilt = torch.where(masked[..., None], mask_token, tokens)
    return torch.where(swapped[..., None], _others(spoilt, other), spoilt)


def _swap_back(tokens: Tensor, other: Tensor) -> Tensor:
    return torch.zeros_like(tokens).scatter(1, other[..., None].expand_as(tokens), tokens)


def _swap_first_image(tokens: Tensor, other: Tensor) -> Tensor:
    return tokens[:1].expand_as(tokens).gather(1, other[..., None].expand_as(tokens))


def _swap_as_the_first(tokens: Tensor, other: Tensor) -> Tensor:
    return tokens[:, other[0]]


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


_right_spoil = _make_spoil()

SPOIL = Exercise(
    name="spoil",
    lesson="13",
    points=4,
    right=_right_spoil,
    cases=_spoil_cases,
    observe=_learning_but(2),  # fate is drawn
    tolerance=1e-6,  # tokens come from elsewhere, as they are
    mistakes=(
        Mistake(
            "a mask token for all chosen ones",
            "Only those with a fate below 0.8 are masked. From 0.8 to 0.9 they get another token, above they stay.",
            _SPOIL,
            Slip(_make_spoil, bounds=(2.0, 2.0)),
        ),
        Mistake(
            "tokens spoilt that weren't chosen",
            "Fate counts only for the chosen ones. All others stay as they are.",
            _SPOIL,
            Slip(_make_spoil, among=torch.ones_like),
        ),
        Mistake(
            "the others spoilt in place of the chosen ones",
            "True in chosen means: this one may be spoilt.",
            _SPOIL,
            Slip(_make_spoil, among=torch.logical_not),
        ),
        Mistake(
            "no token kept",
            "From 0.9 on a chosen token stays as it is. You swap it.",
            _SPOIL,
            Slip(_make_spoil, bounds=(0.8, 2.0)),
        ),
        Mistake(
            "none swapped",
            "From 0.8 to 0.9 a chosen token becomes that of patch other[b, n].",
            _SPOIL,
            Slip(_make_spoil, bounds=(0.8, 0.8)),
        ),
        Mistake(
            "masked up to 0.9",
            "80 % are masked, 10 % swapped, 10 % kept: the bounds are 0.8 and 0.9. You mask the swapped ones.",
            _SPOIL,
            Slip(_make_spoil, bounds=(0.9, 0.9)),
        ),
        Mistake(
            "a fate of just 0.8 masked",
            "Below 0.8 a token is masked. One of just 0.8 is swapped: < in place of <=.",
            _SPOIL,
            Slip(_make_spoil, bounds=(0.8 + 1e-9, 0.9)),
        ),
        Mistake(
            "a fate of just 0.9 swapped",
            "From 0.9 on a token stays: < in place of <=.",
            _SPOIL,
            Slip(_make_spoil, bounds=(0.8, 0.9 + 1e-9)),
        ),
        Mistake(
            "fates of just 0.8 masked, and of just 0.9 swapped",
            "Masked is below 0.8, swapped from 0.8 up to 0.9: < in place of <= in both.",
            _SPOIL,
            Slip(_make_spoil, bounds=(0.8 + 1e-9, 0.9 + 1e-9)),
        ),
        Mistake(
            "masked and swapped exchanged",
            "80 % become the mask token, and 10 % another patch's token.",
            _SPOIL,
            Slip(_make_spoil, turned=True),
        ),
        Mistake(
            "zeros in place of the mask token",
            "The mask token is learned: put it in, so that it gets a gradient.",
            _SPOIL,
            Slip(_make_spoil, mask=lambda tokens, mask_token: torch.zeros_like(tokens)),
        ),
        Mistake(
            "a mask token that is added",
            "It replaces the token. Added to it, the model could still see what was there.",
            _SPOIL,
            Slip(_make_spoil, mask=lambda tokens, mask_token: tokens + mask_token),
        ),
        Mistake(
            "a mask token that doesn't learn",
            "The values are right, but the mask token gets no gradient: no detach, no clone of its data, no numbers.",
            _SPOIL,
            Slip(_make_spoil, mask=lambda tokens, mask_token: mask_token.detach().expand_as(tokens)),
        ),
        Mistake(
            "swapped with what is spoilt already",
            "other names a patch of the picture as it was. You take its token after the masking, so it may be the mask "
            "token: read from the tokens you were given.",
            _SPOIL,
            _swap_spoilt,
        ),
        Mistake(
            "the swap in the other direction",
            "Place n gets the token of patch other[b, n]. You send the token of n to place other[b, n].",
            _SPOIL,
            Slip(_make_spoil, swap=_swap_back),
        ),
        Mistake(
            "tokens of the first image for all",
            "The other patch is one of the same image.",
            _SPOIL,
            Slip(_make_spoil, swap=_swap_first_image),
        ),
        Mistake(
            "the first image's swaps for all",
            "Each image has its own row of other: gather along axis 1, or go through the images.",
            _SPOIL,
            Slip(_make_spoil, swap=_swap_as_the_first),
        ),
        Mistake(
            "the next token in place of the other",
            "Which patch's token it gets stands in other[b, n].",
            _SPOIL,
            Slip(_make_spoil, swap=lambda tokens, other: tokens.roll(-1, dims=1)),
        ),
    ),
)


def check_spoil(fn: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(tokens, chosen, fate, other, mask_token)``: (B, N, D), three times (B, N), (D,) -> (B, N, D)."""
    return check(SPOIL, fn)


# ---- Holes that are filled ---------------------------------------------------------------------------------------


def _make_back(
    where: Callable[[Tensor], Tensor] = torch.logical_not,
    order: Callable[[Tensor], Tensor] = lambda kept: kept,
    fill: Callable[[Tensor, Tensor], Tensor] = lambda kept, mask_token: mask_token,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def put_back(kept: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
        B, N = hidden.shape
        tokens = fill(kept, mask_token).expand(B, N, kept.shape[2]).clone()
        tokens[where(hidden)] = order(kept).flatten(0, 1)
        return tokens

    return put_back


def _kept_first(kept: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    missing = hidden.shape[1] - kept.shape[1]
    return torch.cat([kept, mask_token.expand(len(kept), missing, -1)], dim=1)


def _holes_first(kept: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    missing = hidden.shape[1] - kept.shape[1]
    return torch.cat([mask_token.expand(len(kept), missing, -1), kept], dim=1)


def _no_holes(kept: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    return kept


def _as_the_first(hidden: Tensor) -> Tensor:
    return ~hidden[:1].expand_as(hidden)


def _back_cases() -> list[Case]:
    cases = []
    for seed, (B, N, D, n) in enumerate(
        (
            (1, 6, 3, 2),
            (2, 9, 4, 3),
            (3, 8, 2, 2),
            (2, 7, 3, 5),
            (4, 4, 4, 2),
            (2, 3, 1, 1),
            (1, 45, 2, 11),
            (2, 4, 3, 4),  # nothing is hidden
        )
    ):
        generator = torch.Generator().manual_seed(seed + 1)
        order = torch.rand(B, N, generator=generator).argsort(dim=1)
        case = (normal(B, n, D, seed=seed), order >= n, normal(D, seed=seed + 30))
        cases.append(Case(f"kept ({B}, {n}, {D}), hidden ({B}, {N})", case))
    hidden = torch.tensor([[True, False, True, False, False]]).repeat(7, 1)
    return [*cases, Case("large numbers", (1000 * normal(7, 3, 2), hidden, 1000 * normal(2, seed=1)))]


PUT_BACK = Exercise(
    name="put_back",
    lesson="13",
    points=3,
    right=lesson.restore,
    cases=_back_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-6,  # tokens are put back as they are
    mistakes=(
        Mistake(
            "kept tokens first",
            "You append the mask tokens at the end. Each kept token must go back to its own place, because the decoder "
            "adds a position to each place.",
            _ORDER,
            _kept_first,
        ),
        Mistake(
            "mask tokens first",
            "Each kept token must go back to its own place, the mask tokens between them.",
            _ORDER,
            _holes_first,
        ),
        Mistake(
            "no mask tokens at all",
            "You return what the encoder gave. The decoder needs all N places.",
            _QUARTER,
            _no_holes,
        ),
        Mistake(
            "the places of the first image for all",
            "In each image other patches are hidden: each row of hidden counts for its own image.",
            _QUARTER,
            Slip(_make_back, where=_as_the_first),
        ),
        Mistake(
            "zeros in the holes",
            "The mask token belongs into the holes. It is learned.",
            _QUARTER,
            Slip(_make_back, fill=lambda kept, mask_token: torch.zeros_like(mask_token)),
        ),
        Mistake(
            "the mean token in the holes",
            "The mask token belongs into the holes, the same in all of them.",
            _QUARTER,
            Slip(_make_back, fill=lambda kept, mask_token: kept.mean(dim=1, keepdim=True)),
        ),
        Mistake(
            "a mask token that doesn't learn",
            "The values are right, but the mask token gets no gradient: use it as it is, without detach or numbers.",
            _QUARTER,
            Slip(_make_back, fill=lambda kept, mask_token: mask_token.detach()),
        ),
        Mistake(
            "encoder's tokens that get no gradient",
            "The values are right, but nothing flows back to the encoder: use kept as it is.",
            _QUARTER,
            Slip(_make_back, order=lambda kept: kept.detach()),
        ),
        Mistake(
            "kept tokens in reverse order",
            "The first kept token belongs to the first place that isn't hidden.",
            _ORDER,
            Slip(_make_back, order=lambda kept: kept.flip(1)),
        ),
        Mistake(
            "images exchanged",
            "Each image's tokens go back into the same image.",
            _ORDER,
            Slip(_make_back, order=lambda kept: kept.flip(0)),
        ),
    ),
)


def check_put_back(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(kept, hidden, mask_token)``: (B, n, D), (B, N), (D,) -> (B, N, D)."""
    return check(PUT_BACK, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _own_spread(patches: Tensor) -> Tensor:
    return (patches - patches.mean(dim=2, keepdim=True)) / (patches.var(dim=2, keepdim=True) + 1e-6).sqrt()


def _squared(said: Tensor, wanted: Tensor) -> Tensor:
    return (said - wanted) ** 2


def _make_loss(
    where: Callable[[Tensor], Tensor] = lambda hidden: hidden,
    normal_: Callable[[Tensor], Tensor] = _own_spread,
    error: Callable[[Tensor, Tensor], Tensor] = _squared,
    reduce: Callable[[Tensor], Tensor] = torch.mean,
) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    def hidden_loss(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
        wanted = normal_(patchify(images, patch_size))
        return reduce(error(said, wanted)[where(hidden)])

    return hidden_loss


def _over_all_places(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
    wanted = _own_spread(patchify(images, patch_size))
    return (_squared(said, wanted) * hidden[..., None]).mean()


def _each_channel(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
    channels = patchify(images, patch_size).unflatten(2, (images.shape[1], -1))  # (B, N, C, P*P)
    mean, var = channels.mean(dim=3, keepdim=True), channels.var(dim=3, keepdim=True)
    wanted = ((channels - mean) / (var + 1e-6).sqrt()).flatten(2)
    return F.mse_loss(said[hidden], wanted[hidden])


def _by_images(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
    return _right_loss(said, images, hidden, patch_size) * hidden.sum() / len(images)


def _whole_image(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
    mean, var = images.mean(dim=(2, 3), keepdim=True), images.var(dim=(2, 3), keepdim=True)
    wanted = patchify((images - mean) / (var + 1e-6).sqrt(), patch_size)
    return F.mse_loss(said[hidden], wanted[hidden])


def _loss_cases() -> list[Case]:
    cases = []
    for seed, (B, C, H, W, P, n) in enumerate(
        (
            (1, 1, 4, 4, 2, 3),
            (2, 3, 8, 12, 4, 4),
            (3, 2, 6, 4, 2, 4),
            (4, 1, 4, 4, 2, 2),
            (1, 2, 2, 2, 2, 1),
            (1, 1, 6, 28, 2, 31),
        )
    ):
        generator = torch.Generator().manual_seed(seed)
        N = H * W // P**2
        order = torch.rand(B, N, generator=generator).argsort(dim=1)
        patches = 0.2 * torch.rand(B, N, C * P * P, generator=generator) + 0.8 * torch.rand(
            B, N, 1, generator=generator
        )
        args = (normal(B, N, C * P * P, seed=seed + 40), unpatchify(patches, P, (H, W)), order < n, P)
        cases.append(Case(f"said ({B}, {N}, {C * P * P}), images ({B}, {C}, {H}, {W}), P = {P}", args))
    return [*cases, _nearly_even_patches(), _far_off()]


def _nearly_even_patches() -> Case:
    """Where 1e-6 counts: patches that hardly vary, and one that doesn't; as many are hidden in no two images."""
    spread = torch.tensor([0.003, 0.001, 0.002, 0.0005, 0.0, 0.001]).view(1, 6, 1)
    images = unpatchify(0.5 + spread * normal(3, 6, 4, seed=9), 2, (4, 6))
    hidden = torch.tensor([[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0]]).bool()
    return Case(
        "patches of nearly one colour, 1, 4 and 2 of them hidden", (normal(3, 6, 4, seed=49), images, hidden, 2)
    )


def _far_off() -> Case:
    """Pixels below 0 and above 1, as a model gets them, and an answer that is far from them."""
    hidden = torch.tensor([[1, 0, 0, 1, 1, 0], [0, 1, 0, 1, 0, 0]]).bool()
    images = 2 * normal(2, 5, 4, 6, seed=8)
    images[0, 0, 0, 0] = 40  # far out even for its own patch
    said = normal(2, 6, 20, seed=48)
    said[1, 3] *= 8
    args = (said, images, hidden, 2)
    return Case("images with pixels below 0 and above 1, an answer far off", args)


_right_loss = _make_loss()


def _mean_of_means(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
    rows = zip(said, images, hidden, strict=True)
    return torch.stack([_right_loss(s[None], i[None], h[None], patch_size) for s, i, h in rows]).mean()


HIDDEN_LOSS = Exercise(
    name="hidden_loss",
    lesson="13",
    points=2,
    right=_right_loss,
    cases=_loss_cases,
    observe=_learning_but(1),  # what was wanted may be made without
    tolerance=1e-4,
    forbidden=(lesson.normalised_patches,),
    mistakes=(
        Mistake(
            "a loss on all patches",
            "What is visible can be copied. Take the hidden patches alone.",
            _VISIBLE,
            Slip(_make_loss, where=torch.ones_like),
        ),
        Mistake(
            "a loss on what is visible",
            "hidden is True where a patch was hidden. You take the others.",
            _VISIBLE,
            Slip(_make_loss, where=torch.logical_not),
        ),
        Mistake(
            "a mean over the visible patches as well",
            "The error of visible patches is 0 in your loss, but they count in the mean. Divide by the hidden ones.",
            _VISIBLE,
            _over_all_places,
        ),
        Mistake(
            "a mean of each image's mean",
            "All hidden patches count alike: one mean over the hidden patches of the whole batch.",
            _VISIBLE,
            _mean_of_means,
        ),
        Mistake(
            "patches that aren't normalised",
            "Take from each patch its own mean, and divide by its own spread, before you compare.",
            _QUARTER,
            Slip(_make_loss, normal_=lambda patches: patches),
        ),
        Mistake(
            "the mean taken off, not divided by the spread",
            "Divide by the root of the variance, too.",
            _QUARTER,
            Slip(_make_loss, normal_=lambda patches: patches - patches.mean(dim=2, keepdim=True)),
        ),
        Mistake(
            "divided by the variance",
            "The spread is the root of the variance.",
            _QUARTER,
            Slip(
                _make_loss,
                normal_=lambda p: (p - p.mean(dim=2, keepdim=True)) / (p.var(dim=2, keepdim=True) + 1e-6),
            ),
        ),
        Mistake(
            "a variance divided by n",
            "The text asks for torch's var, which divides by one less than the number of values.",
            _QUARTER,
            Slip(
                _make_loss,
                normal_=lambda p: (
                    (p - p.mean(dim=2, keepdim=True)) / (p.var(dim=2, keepdim=True, correction=0) + 1e-6).sqrt()
                ),
            ),
        ),
        Mistake(
            "a whole image's mean and spread",
            "Each patch is normalised by itself, so that only its inner structure is asked for.",
            _QUARTER,
            _whole_image,
        ),
        Mistake(
            "nothing added to the variance",
            "Add 1e-6 to the variance, inside the root: a patch of one colour has none, and would be divided by 0.",
            _QUARTER,
            Slip(_make_loss, normal_=lambda p: (p - p.mean(dim=2, keepdim=True)) / p.var(dim=2, keepdim=True).sqrt()),
        ),
        Mistake(
            "1e-6 added outside the root",
            "The text adds it to the variance, and takes the root of the sum.",
            _QUARTER,
            Slip(
                _make_loss,
                normal_=lambda p: (p - p.mean(dim=2, keepdim=True)) / (p.var(dim=2, keepdim=True).sqrt() + 1e-6),
            ),
        ),
        Mistake(
            "each channel normalised by itself",
            "A patch has one mean and one variance, over all its C · P · P values.",
            _QUARTER,
            _each_channel,
        ),
        Mistake(
            "what the decoder said, normalised, too",
            "The wanted pixels alone are normalised. What the decoder said is compared as it is.",
            _QUARTER,
            Slip(_make_loss, error=lambda said, wanted: (_own_spread(said) - wanted) ** 2),
        ),
        Mistake(
            "the sum over a patch",
            "The mean is over the values of a patch as well: divide by C · P · P, too.",
            _QUARTER,
            Slip(_make_loss, reduce=lambda errors: errors.sum(dim=1).mean()),
        ),
        Mistake(
            "a mean over the images",
            "Divide by the number of hidden patches, not by that of the images.",
            _VISIBLE,
            _by_images,
        ),
        Mistake(
            "absolute errors",
            "The error is squared.",
            _QUARTER,
            Slip(_make_loss, error=lambda said, wanted: (said - wanted).abs()),
        ),
        Mistake(
            "a sum",
            "Take the mean, else the loss grows with batch and patch.",
            _QUARTER,
            Slip(_make_loss, reduce=torch.sum),
        ),
        Mistake(
            "the root of the error",
            "The mean squared error has no root.",
            _QUARTER,
            Slip(_make_loss, reduce=lambda errors: errors.mean().sqrt()),
        ),
    ),
)


def check_hidden_loss(fn: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> bool:
    """Check ``fn(said, images, hidden, patch_size)``: (B, N, C*P*P), (B, C, H, W), (B, N), P -> one number."""
    return check(HIDDEN_LOSS, fn)
