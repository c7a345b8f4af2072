"""Checks of lesson 18: codes, scales and zero points, a layer in whole numbers, two codes in a byte."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.export import quantise

_PACKAGE = (quantise.quantise, quantise.dequantise, quantise.fake_quantise, quantise.integer_linear)
_PENCIL = "int8, with a pencil"
_BITS = "What few bits cost"
_LIBRARY = "The byte that saturates"

# ---- With a pencil -----------------------------------------------------------------------------------------------

SHIPPING_NUMBERS = pencil(
    "shipping_numbers",
    lesson="18",
    points=4,
    tolerance=0.001,
    questions={
        "float32": Question(100, "A float32 number takes four bytes, which are 32 bits."),
        "int8": Question(
            40,
            "20 of the 25 million take one byte each. What about the other five million?",
            _LIBRARY,
            {
                25: Slip(
                    "everything in int8",
                    "Only the numbers in matrices are quantised; the others keep their four bytes.",
                )
            },
        ),
        "levels": Question(
            15,
            "From -7 to 7: count the 0, too.",
            _PENCIL,
            {
                16: Slip(
                    "a level that symmetric codes don't use",
                    "4 bits could hold 16 codes. Symmetric ones leave one out, so that both sides are alike.",
                )
            },
        ),
        "scale": Question(
            2,
            "The largest absolute value gets the last code. Which code is that with 8 bits?",
            _PENCIL,
            {
                254 / 128: Slip("a last code of 128", "Symmetric codes of 8 bits go from -127 to 127."),
                1.0: Slip(
                    "the largest value in place of the largest absolute value", "-254 is further from 0 than 127."
                ),
            },
        ),
        "code": Question(15, "Divide by the scale, and round."),
        "error": Question(
            1,
            "Rounding to the nearest whole number is off by at most one half. Of what?",
            _PENCIL,
            {0.5: Slip("an error in codes", "Half a code is half a scale, once it is decoded.")},
        ),
        "zero": Question(
            3, "The codes go from 0 to 15, the values from -3 to 12. What is one step worth, and which code is 0?"
        ),
        "rows": Question(504, "A million codes of half a byte, and one float32 scale for each of the 1,000 rows."),
        "throughput": Question(400, "How many batches come in a second, and how many images are in each?"),
    },
)


# ---- A scale for each row ----------------------------------------------------------------------------------------


def _rows(
    weight: Tensor, bits: int, *, by_row: bool = True, absolute: bool = True, last_code: int | None = None
) -> tuple[Tensor, Tensor]:
    """Codes, and the scale of each row (out, 1); a row of zeros has the scale 1."""
    sizes = weight.abs() if absolute else weight
    largest = sizes.amax(dim=1, keepdim=True) if by_row else sizes.amax().expand(len(weight), 1)
    scale = largest / (2 ** (bits - 1) - 1 if last_code is None else last_code)
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight / scale).round(), scale


def _row_cases() -> list[Case]:
    cases = []
    for out, n, bits in [(3, 5, 8), (5, 3, 4), (6, 4, 2)]:
        sizes = torch.tensor([3.0, 0.02, 0.7, 40.0, 1.3, 0.2])[:out, None]  # rows of different sizes
        cases.append(Case(f"weight ({out}, {n}), {bits} bits", (sizes * normal(out, n, seed=n), bits)))
    with_zeros = normal(4, 6, seed=9)
    with_zeros[2] = 0
    return [*cases, Case("weight (4, 6), 4 bits, a row of zeros", (with_zeros, 4))]


QUANTISE_ROWS = Exercise(
    name="quantise_rows",
    lesson="18",
    points=4,
    right=_rows,
    cases=_row_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="one scale for the whole weight",
            says="A row of small numbers then has codes near 0 only. Take the largest absolute value by row: dim=1.",
            reread=_PENCIL,
            wrong=functools.partial(_rows, by_row=False),
        ),
        Mistake(
            name="the largest value in place of the largest absolute value",
            says="A row may reach further below 0 than above. Take the absolute values first.",
            reread=_PENCIL,
            wrong=functools.partial(_rows, absolute=False),
        ),
        Mistake(
            name="a last code that is one too large",
            says="You divide by 2^(bits-1). Symmetric codes end at 2^(bits-1) - 1: 127 for 8 bits.",
            reread=_PENCIL,
            wrong=lambda weight, bits: _rows(weight, bits, last_code=2 ** (bits - 1)),
        ),
    ),
)


# ---- A zero point ------------------------------------------------------------------------------------------------


ZeroPoint = tuple[Tensor, Tensor, Tensor]  # codes, the scale, the zero point


def _with_zero(x: Tensor, bits: int, *, reaches_zero: bool = True, extra_steps: int = 0) -> ZeroPoint:
    """Codes from 0 to 2^bits - 1 for the numbers from the smallest to the largest."""
    low, high = (x.min().clamp(max=0), x.max().clamp(min=0)) if reaches_zero else (x.min(), x.max())
    scale = (high - low) / (2**bits - 1 + extra_steps)
    z = (-low / scale).round()
    codes = (x / scale).round() + z
    return codes.clamp(0, 2**bits - 1), scale, z


def _zero_point_subtracted(x: Tensor, bits: int) -> ZeroPoint:
    _, scale, z = _with_zero(x, bits)
    codes = (x / scale).round() - z
    return codes.clamp(0, 2**bits - 1), scale, z


def _zero_cases() -> list[Case]:
    cases = []
    for seed, (shape, bits) in enumerate([((2, 5), 8), ((3, 2, 4), 3), ((30,), 6)]):
        x = torch.nn.functional.gelu(2 * normal(*shape, seed=seed)) - 0.3 * seed
        cases.append(Case(f"x {shape}, {bits} bits", (x, bits)))
    return [
        *cases,
        Case("x (6,), 5 bits, all above 0", (normal(6).abs() + 1, 5)),
        Case("x (6,), 5 bits, all below 0", (-normal(6).abs() - 1, 5)),
        # A zero point of 7.5 is rounded up, and so is the largest value's code: without a clamp it is 16.
        Case("x (4,), 4 bits, from -7.5 to 7.5", (torch.tensor([-7.5, 0.9, 7.5, -2.2]), 4)),
    ]


WITH_ZERO_POINT = Exercise(
    name="with_zero_point",
    lesson="18",
    points=3,
    right=_with_zero,
    cases=_zero_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a range without the 0",
            says="If all numbers are above 0 or all below, the range must still reach to 0, or 0 has no code: low is "
            "at most 0, high at least 0.",
            reread=_PENCIL,
            wrong=functools.partial(_with_zero, reaches_zero=False),
        ),
        Mistake(
            name="one step too many",
            says="You divide by 2^bits. Between the codes from 0 to 2^bits - 1 lie 2^bits - 1 steps.",
            reread=_PENCIL,
            wrong=functools.partial(_with_zero, extra_steps=1),
        ),
        Mistake(
            name="a zero point that is subtracted",
            says="Decoding subtracts z, so the codes must contain it: round(x / s) + z.",
            reread=_PENCIL,
            wrong=_zero_point_subtracted,
        ),
    ),
)


# ---- A layer in whole numbers ------------------------------------------------------------------------------------


def _layer(x: Tensor, s_x: Tensor, zero: int, weight: Tensor, s_w: Tensor, bias: Tensor) -> Tensor:
    sums = (x.int() - zero) @ weight.int().T  # (T, out)
    return sums * s_x * s_w + bias


def _layer_cases() -> list[Case]:
    cases = []
    for T, n, out, zero in [(2, 4, 3, 7), (5, 3, 4, 200), (4, 50, 6, 31)]:
        generator = torch.Generator().manual_seed(n)
        x = torch.randint(0, 256, (T, n), generator=generator).to(torch.uint8)
        weight = torch.randint(-127, 128, (out, n), generator=generator).to(torch.int8)
        s_x, s_w = 0.01 + normal(T, 1).abs() / 50, 0.01 + normal(out).abs() / 50
        cases.append(Case(f"T={T}, in={n}, out={out}, zero={zero}", (x, s_x, zero, weight, s_w, normal(out, seed=1))))
    return cases


INTEGER_LAYER = Exercise(
    name="integer_layer",
    lesson="18",
    points=3,
    right=_layer,
    cases=_layer_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a zero point that is forgotten",
            says="Each code of x is too large by the zero point. Subtract zero · weight.sum(dim=1) from the sums.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x, s_x, 0, w, s_w, b),
        ),
        Mistake(
            name="a zero point that is subtracted once",
            says="Each term of the sum has the zero point in it, times the weight's code. Subtract it from the codes "
            "of x, or zero · weight.sum(dim=1) from the sums.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x, s_x, 0, w, s_w, b - zero * s_x * s_w),
        ),
        Mistake(
            name="codes that don't fit",
            says="uint8 goes up to 255, int8 to 127: .to(torch.int8) turns 200 into -56. Widen to int32 first.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x.to(torch.int8), s_x, zero, w, s_w, b),
        ),
        Mistake(
            name="the tokens' scales forgotten",
            says="Each sum is in steps of both: multiply it by s_x and by s_w.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x, torch.ones_like(s_x), zero, w, s_w, b),
        ),
        Mistake(
            name="the weight's scales forgotten",
            says="Each sum is in steps of both: multiply it by s_x and by s_w.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x, s_x, zero, w, torch.ones_like(s_w), b),
        ),
        Mistake(
            name="the bias forgotten",
            says="Add it at the end: it is a float already.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x, s_x, zero, w, s_w, torch.zeros_like(b)),
        ),
        Mistake(
            name="a bias that is scaled",
            says="The bias is a float, not a code: apply the scales to the sums, then add it.",
            reread=_PENCIL,
            wrong=lambda x, s_x, zero, w, s_w, b: _layer(x, s_x, zero, w, s_w, b * s_x * s_w),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _pack(codes: Tensor) -> Tensor:
    nibbles = codes.int() + 8
    return (nibbles[:, 0::2] + 16 * nibbles[:, 1::2]).to(torch.uint8)


def _pack_cases() -> list[Case]:
    cases = []
    for out, n in [(3, 4), (1, 10)]:
        codes = torch.randint(-7, 8, (out, n), generator=torch.Generator().manual_seed(n)).to(torch.int8)
        cases.append(Case(f"codes ({out}, {n})", (codes,)))
    every = torch.cartesian_prod(torch.arange(-7, 8), torch.arange(-7, 8)).view(15, 30)
    return [*cases, Case("codes (15, 30), every pair", (every.to(torch.int8),))]


PACKED = Exercise(
    name="packed",
    lesson="18",
    points=3,
    right=_pack,
    cases=_pack_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="the first code in the upper half",
            says="The even places go into the lower four bits, the odd ones into the upper four.",
            reread=_BITS,
            wrong=lambda codes: _pack(codes.unflatten(1, (-1, 2)).flip(2).flatten(1)),
        ),
        Mistake(
            name="halves of the row in place of neighbours",
            says="Neighbours share a byte: places 0 and 1, then 2 and 3.",
            reread=_BITS,
            wrong=lambda codes: _pack(codes.unflatten(1, (2, -1)).mT.flatten(1)),
        ),
    ),
)
