"""Checks of lesson 18: codes, scales and zero points, a layer in whole numbers, two codes in a byte."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Mistake,
    Question,
    call,
    normal,
    pencil,
)
from vit_tutorial.export import quantise

_PACKAGE = (quantise.quantise, quantise.dequantise, quantise.fake_quantise, quantise.integer_linear)
_PENCIL = "2 · int8, with a pencil"
_BITS = "3 · What few bits cost"
_LIBRARY = "4 · The byte that saturates"
_TABLE = "5 · In practice"

# ---- With a pencil -----------------------------------------------------------------------------------------------

SHIPPING_NUMBERS = pencil(
    "shipping_numbers",
    lesson="18",
    points=4,
    tolerance=0.001,
    questions={
        "float32": Question(
            100,
            "A float32 number takes four bytes; 32 are its bits.",
            _PENCIL,
            {800: "bits in place of bytes. 32 bits are four bytes."},
        ),
        "int8": Question(
            40,
            "20 of the 25 million take one byte each. What about the other five million?",
            _LIBRARY,
            {25: "everything in int8. Only the numbers in matrices are quantised; the others keep their four bytes."},
        ),
        "levels": Question(
            15,
            "From -7 to 7: count the 0, too.",
            _PENCIL,
            {
                16: "a level that symmetric codes don't use. 4 bits could hold 16 codes. Symmetric ones leave one out, "
                "so that both sides are alike."
            },
        ),
        "scale": Question(
            2,
            "The largest absolute value gets the last code. Which code is that with 8 bits?",
            _PENCIL,
            {
                254 / 128: "a last code of 128. Symmetric codes of 8 bits go from -127 to 127.",
                1.0: "the largest value in place of the largest absolute value. -254 is further from 0 than 127.",
            },
        ),
        "code": Question(15, "Divide by the scale, and round.", _PENCIL, {60: "a product. A code is x / s, rounded."}),
        "error": Question(
            1,
            "Rounding to the nearest whole number is off by at most one half. Of what?",
            _PENCIL,
            {
                2: "a whole step. Rounding goes to the nearest level, so nothing is off by more than half a step.",
                0.5: "an error in codes. Half a code is half a scale, once it is decoded.",
            },
        ),
        "zero": Question(
            3,
            "The codes go from 0 to 15, the values from -3 to 12. What is one step worth, and which code is 0?",
            _PENCIL,
            {0: "a zero at code 0. Code 0 is the smallest value, -3. Which code is the number 0?"},
        ),
        "rows": Question(
            504,
            "A million codes of half a byte, and one float32 scale for each of the 1,000 rows.",
            _PENCIL,
            {500: "codes without their scales. Each row's scale takes four bytes."},
        ),
        "throughput": Question(
            400,
            "How many batches come in a second, and how many images are in each?",
            _TABLE,
            {25: "batches per second. Each of the 25 batches has 16 images."},
        ),
    },
)


# ---- A scale for each row ----------------------------------------------------------------------------------------


def _last(bits: int) -> int:
    return int(2 ** (bits - 1) - 1)


def _rows(
    largest: Callable[[Tensor], Tensor] = lambda w: w.abs().amax(dim=1, keepdim=True),
    last: Callable[[int], int] = _last,
    to_codes: Callable[[Tensor], Tensor] = torch.round,
) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """Symmetric codes with each step to be replaced."""

    def quantise_rows(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
        scale = largest(weight) / last(bits)
        scale = torch.where(scale > 0, scale, 1.0)  # (out, 1)
        return to_codes(weight / scale), scale.expand(len(weight), 1)

    return quantise_rows


def _row_cases() -> list[Case]:
    made = []
    for seed, (out, n, bits) in enumerate([(3, 5, 8), (5, 3, 4), (1, 7, 3), (6, 4, 2), (4, 9, 6), (2, 40, 5)]):
        sizes = torch.tensor([3.0, 0.02, 0.7, 40.0, 1.3, 0.2])[:out, None]  # rows of different sizes
        made.append(Case(f"weight ({out}, {n}), {bits} bits", (sizes * normal(out, n, seed=seed), bits)))
    with_zeros = normal(4, 6, seed=9)
    with_zeros[1] *= 1e-7
    with_zeros[2] = 0
    below = -normal(3, 8, seed=10).abs()  # a row's largest value isn't its largest absolute value
    return [
        *made,
        Case("weight (4, 6), 4 bits, a row of tiny numbers, one of zeros", (with_zeros, 4)),
        Case("weight (3, 8), 7 bits, all below 0", (below, 7)),
    ]


QUANTISE_ROWS = Exercise(
    name="quantise_rows",
    lesson="18",
    points=4,
    takes="fn(weight, bits): (out, in) -> symmetric codes (out, in) and scales (out, 1)",
    right=_rows(),
    cases=_row_cases,
    observe=call,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="one scale for the whole weight",
            says="A row of small numbers then has codes near 0 only. Take the largest absolute value of each row: "
            "dim=1.",
            reread=_PENCIL,
            wrong=_rows(largest=lambda w: w.abs().amax().reshape(1, 1)),
        ),
        Mistake(
            name="the largest value in place of the largest absolute value",
            says="A row may reach further below 0 than above. Take the absolute values first.",
            reread=_PENCIL,
            wrong=_rows(largest=lambda w: w.amax(dim=1, keepdim=True)),
        ),
        Mistake(
            name="a last code that is one too large",
            says="You divide by 2^(bits-1). Symmetric codes end at 2^(bits-1) - 1: 127 for 8 bits.",
            reread=_PENCIL,
            wrong=_rows(last=lambda bits: 2 ** (bits - 1)),
        ),
        Mistake(
            name="digits cut off in place of rounded",
            says="int() and trunc() cut towards 0, so a number may be off by a whole step. round() goes to the "
            "nearest.",
            reread=_PENCIL,
            wrong=_rows(to_codes=torch.trunc),
        ),
    ),
)


# ---- A zero point ------------------------------------------------------------------------------------------------


def _with_zero(
    low: Callable[[Tensor], Tensor] = lambda x: x.min().clamp(max=0),
    high: Callable[[Tensor], Tensor] = lambda x: x.max().clamp(min=0),
    steps: Callable[[int], int] = lambda bits: 2**bits - 1,
    place: Callable[[Tensor, Tensor], Tensor] = lambda codes, zero: codes + zero,
) -> Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor]]:
    """Codes from 0 up, with each step to be replaced."""

    def with_zero_point(x: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
        scale = (high(x) - low(x)) / steps(bits)
        z = (-low(x) / scale).round()
        return place((x / scale).round(), z).clamp(0, 2**bits - 1), scale, z

    return with_zero_point


def _zero_cases() -> list[Case]:
    made = []
    for seed, (shape, bits) in enumerate([((2, 5), 8), ((7,), 4), ((3, 2, 4), 3), ((30,), 6), ((4, 3), 2)]):
        x = torch.nn.functional.gelu(2 * normal(*shape, seed=20 + seed)) - 0.3 * seed
        made.append(Case(f"x {shape}, {bits} bits", (x, bits)))
    return [
        *made,
        Case("x (6,), 5 bits, all above 0", (normal(6, seed=30).abs() + 1, 5)),
        Case("x (6,), 5 bits, all below 0", (-normal(6, seed=31).abs() - 1, 5)),
        Case("x (6,), 8 bits, tiny numbers", (1e-7 * normal(6, seed=32), 8)),
        # A zero point of 7.5 is rounded up, and so is the largest value's code: without a clamp it is 16.
        Case("x (4,), 4 bits, from -7.5 to 7.5", (torch.tensor([-7.5, 0.9, 7.5, -2.2]), 4)),
    ]


WITH_ZERO_POINT = Exercise(
    name="with_zero_point",
    lesson="18",
    points=3,
    takes="fn(x, bits): any shape -> codes from 0 of the same shape, the scale, the zero point",
    right=_with_zero(),
    cases=_zero_cases,
    observe=call,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a range without the 0",
            says="If all numbers are above 0 or all below, the range must still reach to 0, or 0 has no code: low is "
            "at most 0, high at least 0.",
            reread=_PENCIL,
            wrong=_with_zero(low=lambda x: x.min(), high=lambda x: x.max()),
        ),
        Mistake(
            name="one step too many",
            says="You divide by 2^bits. Between the codes from 0 to 2^bits - 1 lie 2^bits - 1 steps.",
            reread=_PENCIL,
            wrong=_with_zero(steps=lambda bits: 2**bits),
        ),
        Mistake(
            name="a zero point that is subtracted",
            says="Decoding subtracts z, so the codes have it added: round(x / s) + z.",
            reread=_PENCIL,
            wrong=_with_zero(place=lambda codes, zero: codes - zero),
        ),
        Mistake(
            name="a zero point that is left out of the codes",
            says="round(x / s) is negative for numbers below 0. Add z, then the codes begin at 0.",
            reread=_PENCIL,
            wrong=_with_zero(place=lambda codes, zero: codes),
        ),
    ),
)


# ---- A layer in whole numbers ------------------------------------------------------------------------------------


def _layer(
    widen: Callable[[Tensor], Tensor] = lambda x: x.int(),
    offset: Callable[[Tensor, Tensor], Tensor] = lambda zero, w: zero * w.sum(dim=1),
) -> Callable[..., Tensor]:
    """A linear layer on codes, with each step to be replaced."""

    def integer_layer(x: Tensor, s_x: Tensor, zero: int, weight: Tensor, s_w: Tensor, bias: Tensor) -> Tensor:
        wide = weight.int()
        sums = widen(x) @ wide.T - offset(torch.tensor(zero), wide)  # (T, out)
        return sums * s_x * s_w + bias

    return integer_layer


def _layer_cases() -> list[Case]:
    made = []
    for seed, (T, n, out, zero) in enumerate(
        [(2, 4, 3, 7), (3, 2, 5, 0), (1, 6, 2, 128), (5, 3, 4, 200), (4, 50, 6, 31)]
    ):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(0, 256, (T, n), generator=generator).to(torch.uint8)
        weight = torch.randint(-127, 128, (out, n), generator=generator).to(torch.int8)
        scales = 0.01 + normal(T, 1, seed=40 + seed).abs() / 50, 0.01 + normal(out, seed=50 + seed).abs() / 50
        args = (x, scales[0], zero, weight, scales[1], normal(out, seed=60 + seed))
        made.append(Case(f"T={T}, in={n}, out={out}, zero={zero}", args))
    return made


INTEGER_LAYER = Exercise(
    name="integer_layer",
    lesson="18",
    points=3,
    takes="fn(x, s_x, zero, weight, s_w, bias): codes (T, in), (out, in) and scales (T, 1), (out,) -> (T, out)",
    right=_layer(),
    cases=_layer_cases,
    observe=call,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a zero point that is forgotten",
            says="Each code of x is too large by the zero point. Subtract zero · (the row's sum of the weight's "
            "codes).",
            reread=_PENCIL,
            wrong=_layer(offset=lambda zero, w: torch.tensor(0)),
        ),
        Mistake(
            name="a zero point that is subtracted once",
            says="Each term of the sum has the zero point in it, times the weight's code. Subtract it from the codes "
            "of x, or zero · weight.sum(dim=1) from the sums.",
            reread=_PENCIL,
            wrong=_layer(offset=lambda zero, w: zero),
        ),
        Mistake(
            name="codes that don't fit",
            says="uint8 goes up to 255, int8 to 127: .to(torch.int8) turns 200 into -56. Widen to int32 first.",
            reread=_PENCIL,
            wrong=_layer(widen=lambda x: x.to(torch.int8).int()),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _pack(
    low: Callable[[Tensor], Tensor] = lambda codes: codes[:, 0::2],
    high: Callable[[Tensor], Tensor] = lambda codes: codes[:, 1::2],
) -> Callable[[Tensor], Tensor]:
    """Two codes in a byte, with other ones in its halves."""

    def packed(codes: Tensor) -> Tensor:
        nibbles = codes.int() + 8
        return (low(nibbles) + 16 * high(nibbles)).to(torch.uint8)

    return packed


def _pack_cases() -> list[Case]:
    made = []
    for seed, (out, n) in enumerate([(2, 6), (3, 4), (1, 10), (5, 2)]):
        generator = torch.Generator().manual_seed(seed)
        codes = torch.randint(-7, 8, (out, n), generator=generator).to(torch.int8)
        made.append(Case(f"codes ({out}, {n})", (codes,)))
    every = torch.stack(torch.meshgrid(torch.arange(-7, 8), torch.arange(-7, 8), indexing="ij"), dim=-1).flatten(1)
    return [*made, Case("codes (15, 30), every pair", (every.to(torch.int8),))]


PACKED = Exercise(
    name="packed",
    lesson="18",
    points=3,
    takes="fn(codes): (out, n) from -7 to 7, n even -> bytes (out, n / 2), two codes in each",
    right=_pack(),
    cases=_pack_cases,
    observe=call,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="the first code in the upper half",
            says="The even places go into the lower four bits, the odd ones into the upper four.",
            reread=_BITS,
            wrong=_pack(low=lambda codes: codes[:, 1::2], high=lambda codes: codes[:, 0::2]),
        ),
        Mistake(
            name="halves of the row in place of neighbours",
            says="Neighbours share a byte: places 0 and 1, then 2 and 3.",
            reread=_BITS,
            wrong=_pack(
                low=lambda codes: codes[:, : codes.shape[1] // 2], high=lambda codes: codes[:, codes.shape[1] // 2 :]
            ),
        ),
    ),
)
