"""Checks of lesson 13: colours as classes, corrupted tokens, tokens put back into their places, and MAE's loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.harness import Case, Exercise, Result, Slip, answers, call, check, normal, section
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.variants import selfsup as lesson

__all__ = ["check_colour_classes", "check_hidden_loss", "check_masking_numbers", "check_restore", "check_spoil"]

_ASKED = "1 · What is asked for"
_SPOIL = "2 · Spoil half of it"
_LIVE = "3 · The paper's way, live"
_QUARTER = "4 · A year later: see a quarter"
_VISIBLE = "A loss on all patches."
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
        "mean colour": "The head returns a number for each class of one colour.",
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
        *section(
            _ASKED,
            ("a level that is rounded to the nearest", "8 · 0.7 = 5.6, and levels are rounded down.", {"level": 6}),
            ("a level between 0 and 255", "3 bits give 8 levels, 0 to 7.", {"level": 178}),
            ("blue counted most", "The first channel counts most: 64 · red + 8 · green + blue.", {"class": 42}),
            (
                "levels read as decimal digits",
                "There are 8 levels, so each place counts 8 times the next.",
                {"class": 250},
            ),
            (
                "the classes of three channels added",
                "Each level of red goes with each of green and blue: 8 · 8 · 8.",
                {"mean colour": 24},
            ),
            (
                "one answer for the small patch",
                "It has 4 × 4 pixels, and each has its own class.",
                {"small patch": 512},
            ),
            ("channels forgotten", "Each of the 64 pixels has three channels.", {"pixels": 64}),
        ),
        *section(
            _LIVE,
            (
                "a logarithm to the base 2",
                "9 bits is right, but the loss uses the natural logarithm: ln 512.",
                {"first loss": 9},
            ),
        ),
        *section(
            _SPOIL,
            (
                "shares of all tokens",
                "80 % are of the chosen tokens, and half of the 1,000 are chosen.",
                {"masked": 800},
            ),
            ("only those that weren't chosen", "10 % of the chosen ones stay as they are, too.", {"unchanged": 500}),
        ),
        *section(
            _QUARTER,
            (
                "the class token forgotten",
                "It is never hidden, and goes through the encoder, too.",
                {"encoder": 4, "scores": 16},
            ),
            (
                "all tokens in the encoder",
                "MAE's encoder gets the visible patches alone, and no mask tokens.",
                {"encoder": 17, "scores": 289},
            ),
        ),
    ),
)


def check_masking_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(MASKING_NUMBERS, fn)


# ---- Colours as classes ------------------------------------------------------------------------------------------


def _down(colours: Tensor) -> Tensor:
    return (colours * 8).long().clamp(0, 7)


def _number(levels: Tensor, places: tuple[int, int, int] = (64, 8, 1)) -> Tensor:
    return (levels * torch.tensor(places)).sum(dim=-1)


def _colour_classes(
    cut: Callable[[Tensor, int], Tensor] = patchify,
    mean: Callable[[Tensor], Tensor] = lambda patches: patches.mean(dim=2),
    level: Callable[[Tensor], Tensor] = _down,
    number: Callable[[Tensor], Tensor] = _number,
) -> Callable[[Tensor, int], Tensor]:
    """The classes with patches cut, averaged, rounded or numbered in another way."""

    def colour_classes(images: Tensor, patch_size: int) -> Tensor:
        patches = cut(images, patch_size).unflatten(2, (images.shape[1], -1)).transpose(2, 3)  # (B, N, P*P, C)
        return number(level(mean(patches)))

    return colour_classes


def _column_by_column(images: Tensor, patch_size: int) -> Tensor:
    return patchify(images.transpose(2, 3), patch_size)


def _channels_last(images: Tensor, patch_size: int) -> Tensor:
    """Patches of which each holds red, green and blue of its first pixel, then of its second, as MAE's code has it."""
    return patchify(images, patch_size).unflatten(2, (images.shape[1], -1)).transpose(2, 3).flatten(2)


def _of_each_pixel(images: Tensor, patch_size: int) -> Tensor:
    patches = patchify(images, patch_size).unflatten(2, (images.shape[1], -1)).transpose(2, 3)
    return _number(_down(patches)).double().mean(dim=2).long()


def _worked_out(wrong: list[tuple[Case, Result, Result]]) -> str:
    """The class of the first wrong patch, step by step."""
    case, right, yours = wrong[0]
    numbers = torch.as_tensor(yours["result"])
    if numbers.shape != right["result"].shape:
        return ""
    image, patch = (numbers != right["result"]).nonzero()[0].tolist()
    colour = patchify(*case.args)[image, patch].unflatten(0, (3, -1)).mean(dim=1)  # (3,)
    red, green, blue = _down(colour).tolist()
    shown = ", ".join(f"{x:.4g}" for x in colour.tolist())
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
        Case("means that are just where a level begins, P = 2", (begun, 2)),
    ]


COLOUR_CLASSES = Exercise(
    name="colour_classes",
    lesson="13",
    points=4,
    right=_colour_classes(),
    cases=_colour_cases,
    observe=call,
    forbidden=(lesson.colour_classes, lesson.targets),
    explain=_worked_out,
    mistakes=(
        *section(
            _ASKED,
            (
                "levels that are rounded to the nearest",
                "Level 3 goes from 3/8 to 4/8: multiply by 8, and round down.",
                Slip(_colour_classes, level=lambda c: (c * 8).round().long().clamp(0, 7)),
            ),
            (
                "7 times the value",
                "Only 1.0 would get level 7. Multiply by 8 and round down; 1.0 belongs to level 7, too.",
                Slip(_colour_classes, level=lambda c: (c * 7).long()),
            ),
            (
                "a value of 1.0 at level 8",
                "There are levels 0 to 7. A value of exactly 1 gives 8 · 1 = 8: clamp it to 7.",
                Slip(_colour_classes, level=lambda c: (c * 8).long()),
            ),
            (
                "blue counted most",
                "The first channel counts most: 64 · red + 8 · green + blue.",
                Slip(_colour_classes, number=lambda n: _number(n, (1, 8, 64))),
            ),
            (
                "one grey for all channels",
                "You average over the channels, too. Red, green and blue have a mean each.",
                Slip(_colour_classes, mean=lambda p: p.mean(dim=(2, 3))[..., None].expand(-1, -1, 3)),
            ),
            (
                "a mean of class numbers",
                "Class numbers can't be averaged: between 64 and 8 there is no colour. First the mean, then its class.",
                _of_each_pixel,
            ),
            (
                "channels and pixels mixed up",
                "A flat patch holds all pixels of red, then of green, then of blue: (C, P, P), not (P, P, C).",
                Slip(_colour_classes, cut=_channels_last),
            ),
        ),
        *section(
            "1 · Four patches, by hand",
            (
                "patches column by column",
                "Patches are numbered row by row.",
                Slip(_colour_classes, cut=_column_by_column),
            ),
            lesson="01",
        ),
    ),
)


def check_colour_classes(fn: Callable[[Tensor, int], Tensor]) -> bool:
    """Check ``fn(images, patch_size)``: (B, 3, H, W) in [0, 1] -> (B, N) whole numbers from 0 to 511."""
    return check(COLOUR_CLASSES, fn)


# ---- Corrupted tokens --------------------------------------------------------------------------------------------


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
    chosen_of: Callable[[Tensor], Tensor] = lambda chosen: chosen,
    swap: Callable[[Tensor, Tensor], Tensor] = _others,
    mask: Callable[[Tensor, Tensor], Tensor] = lambda tokens, mask_token: mask_token.expand_as(tokens),
    exchanged: bool = False,
    late: bool = False,
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Tokens corrupted with other bounds, masks or swaps; ``late`` swaps after the masking."""

    def spoil(tokens: Tensor, chosen: Tensor, fate: Tensor, other: Tensor, mask_token: Tensor) -> Tensor:
        chosen = chosen_of(chosen)
        low, high = fate < bounds[0], (fate >= bounds[0]) & (fate < bounds[1])
        masked, swapped = (high, low) if exchanged else (low, high)
        corrupted = torch.where((chosen & masked)[..., None], mask(tokens, mask_token), tokens)
        return torch.where((chosen & swapped)[..., None], swap(corrupted if late else tokens, other), corrupted)

    return spoil


def _swap_back(tokens: Tensor, other: Tensor) -> Tensor:
    return torch.zeros_like(tokens).scatter(1, other[..., None].expand_as(tokens), tokens)


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
    right=_make_spoil(),
    cases=_spoil_cases,
    observe=_learning_but(2),  # fate is drawn
    tolerance=1e-6,  # tokens come from elsewhere, as they are
    mistakes=section(
        _SPOIL,
        (
            "a mask token for all chosen ones",
            "Only those with a fate below 0.8 are masked. From 0.8 to 0.9 they get another token; above they stay.",
            Slip(_make_spoil, bounds=(2.0, 2.0)),
        ),
        (
            "tokens corrupted that weren't chosen",
            "Fate counts only for the chosen ones. All others stay as they are.",
            Slip(_make_spoil, chosen_of=torch.ones_like),
        ),
        (
            "no token kept",
            "From 0.9 on a chosen token stays as it is. You swap it.",
            Slip(_make_spoil, bounds=(0.8, 2.0)),
        ),
        (
            "masked up to 0.9",
            "80 % are masked, 10 % swapped, 10 % kept: the bounds are 0.8 and 0.9. You mask the swapped ones.",
            Slip(_make_spoil, bounds=(0.9, 0.9)),
        ),
        (
            "masked and swapped exchanged",
            "80 % become the mask token, and 10 % another patch's token.",
            Slip(_make_spoil, exchanged=True),
        ),
        (
            "zeros in place of the mask token",
            "The mask token is learned: use it, so that it gets a gradient.",
            Slip(_make_spoil, mask=lambda tokens, mask_token: torch.zeros_like(tokens)),
        ),
        (
            "a mask token that is added",
            "It replaces the token. Added to it, the model could still see what was there.",
            Slip(_make_spoil, mask=lambda tokens, mask_token: tokens + mask_token),
        ),
        (
            "tokens swapped after the masking",
            "A swapped token gets another patch's original token. Yours may be the mask token: read from the tokens "
            "that you were given.",
            Slip(_make_spoil, late=True),
        ),
        (
            "the swap in the other direction",
            "Place n gets the token of patch other[b, n]. You send the token of n to place other[b, n].",
            Slip(_make_spoil, swap=_swap_back),
        ),
        (
            "the first image's swaps for all",
            "Each image has its own row of other: gather along axis 1, or loop over the images.",
            Slip(_make_spoil, swap=lambda tokens, other: tokens[:, other[0]]),
        ),
    ),
)


def check_spoil(fn: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(tokens, chosen, fate, other, mask_token)``: (B, N, D), three times (B, N), (D,) -> (B, N, D)."""
    return check(SPOIL, fn)


# ---- Tokens put back ---------------------------------------------------------------------------------------------


def _visible_first(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    missing = hidden.shape[1] - visible.shape[1]
    return torch.cat([visible, mask_token.expand(len(visible), missing, -1)], dim=1)


def _masks_first(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    return _visible_first(visible, hidden, mask_token).roll(hidden.shape[1] - visible.shape[1], dims=1)


def _one_argsort(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    order = hidden.long().argsort(dim=1, stable=True)[..., None]  # (B, N, 1), the visible patches first
    return _visible_first(visible, hidden, mask_token).gather(1, order.expand(-1, -1, visible.shape[2]))


def _places_of_the_first(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    return lesson.restore(visible, hidden[:1].expand_as(hidden), mask_token)


def _zeros(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    return lesson.restore(visible, hidden, torch.zeros_like(mask_token))


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
    right=lesson.restore,
    cases=_back_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-6,  # tokens are put back as they are
    mistakes=(
        *section(
            _ORDER,
            (
                "visible tokens first",
                "You append the mask tokens. Each visible token must go back to its own place, because the decoder "
                "adds a position to each place.",
                _visible_first,
            ),
            (
                "mask tokens first",
                "Each visible token must go back to its own place, with the mask tokens between them.",
                _masks_first,
            ),
            (
                "one argsort in place of two",
                "argsort says which patch comes at each place of the sorted list. To put them back you need the "
                "opposite, the place of each patch in that list: order.argsort().",
                _one_argsort,
            ),
        ),
        *section(
            _QUARTER,
            (
                "the places of the first image for all",
                "In each image other patches are hidden: each row of hidden counts for its own image.",
                _places_of_the_first,
            ),
            ("zeros in place of the mask token", "The mask token goes to every hidden place. It is learned.", _zeros),
        ),
    ),
)


def check_restore(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(visible, hidden, mask_token)``: (B, n, D), (B, N), (D,) -> (B, N, D)."""
    return check(RESTORE, fn)


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


def _make_loss(
    wanted: Callable[[Tensor, int], Tensor] = _right_target,
    mean: Callable[[Tensor, Tensor], Tensor] = lambda errors, hidden: errors[hidden].mean(),
) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """MAE's loss with other pixels wanted, or another mean of the squared errors (B, N, C*P*P)."""

    def hidden_loss(said: Tensor, images: Tensor, hidden: Tensor, patch_size: int) -> Tensor:
        return mean((said - wanted(images, patch_size)) ** 2, hidden)

    return hidden_loss


def _whole_image(images: Tensor, patch_size: int) -> Tensor:
    mean, var = images.mean(dim=(2, 3), keepdim=True), images.var(dim=(2, 3), keepdim=True)
    return patchify((images - mean) / (var + 1e-6).sqrt(), patch_size)


def _each_channel(images: Tensor, patch_size: int) -> Tensor:
    channels = patchify(images, patch_size).unflatten(2, (images.shape[1], -1))  # (B, N, C, P*P)
    mean, var = channels.mean(dim=3, keepdim=True), channels.var(dim=3, keepdim=True)
    return ((channels - mean) / (var + 1e-6).sqrt()).flatten(2)


def _channels_last_normalised(images: Tensor, patch_size: int) -> Tensor:
    patches = _right_target(images, patch_size)
    return patches.unflatten(2, (images.shape[1], -1)).transpose(2, 3).flatten(2)


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


HIDDEN_LOSS = Exercise(
    name="hidden_loss",
    lesson="13",
    points=2,
    right=_make_loss(),
    cases=_loss_cases,
    observe=_learning_but(1),  # the target may be computed without a graph
    tolerance=1e-4,
    forbidden=(lesson.normalised_patches,),
    mistakes=(
        *section(
            _VISIBLE,
            (
                "a loss on all patches",
                "What is visible can be copied. Take the hidden patches alone.",
                Slip(_make_loss, mean=lambda errors, hidden: errors.mean()),
            ),
            (
                "a loss on the visible patches",
                "hidden is True where a patch was hidden. You take the others.",
                Slip(_make_loss, mean=lambda errors, hidden: errors[~hidden].mean()),
            ),
            (
                "a mean over the visible patches as well",
                "The visible patches have an error of 0 in your loss, but the mean counts them. Divide by the hidden "
                "ones.",
                Slip(_make_loss, mean=lambda errors, hidden: (errors * hidden[..., None]).mean()),
            ),
            (
                "a mean of each image's mean",
                "All hidden patches count alike: take one mean over the hidden patches of the whole batch.",
                Slip(_make_loss, mean=_mean_of_means),
            ),
        ),
        *section(
            _QUARTER,
            (
                "patches that aren't normalised",
                "Subtract each patch's own mean, and divide by its own standard deviation.",
                Slip(_make_loss, wanted=patchify),
            ),
            (
                "the mean subtracted, without a division",
                "Divide by the root of the variance, too.",
                Slip(_make_loss, wanted=_normalised(torch.ones_like)),
            ),
            (
                "a division by the variance",
                "Divide by the root of the variance.",
                Slip(_make_loss, wanted=_normalised(lambda p: p.var(dim=2, keepdim=True) + 1e-6)),
            ),
            (
                "a variance divided by n",
                "The text asks for torch's var, which divides by one less than the number of values.",
                Slip(_make_loss, wanted=_normalised(lambda p: (p.var(2, correction=0, keepdim=True) + 1e-6).sqrt())),
            ),
            (
                "1e-6 added outside the root",
                "Add it to the variance, and take the root of the sum.",
                Slip(_make_loss, wanted=_normalised(lambda p: p.std(dim=2, keepdim=True) + 1e-6)),
            ),
            (
                "a whole image's mean and variance",
                "Each patch is normalised by itself, so that only its inner structure counts.",
                Slip(_make_loss, wanted=_whole_image),
            ),
            (
                "each channel normalised by itself",
                "A patch has one mean and one variance, over all its C · P · P values.",
                Slip(_make_loss, wanted=_each_channel),
            ),
            (
                "the channels last in a patch",
                "A flat patch holds all pixels of the first channel, then of the second: (C, P, P), not (P, P, C).",
                Slip(_make_loss, wanted=_channels_last_normalised),
            ),
        ),
    ),
)


def check_hidden_loss(fn: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> bool:
    """Check ``fn(said, images, hidden, patch_size)``: (B, N, C*P*P), (B, C, H, W), (B, N), P -> one number."""
    return check(HIDDEN_LOSS, fn)
