"""Checks of lesson 15: RMS norm, the gated MLP, rotary positions and attention pooling, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from vit_tutorial.checks.harness import Case, Exercise, Forbidden, Mistake, Slip, answers, call, check, normal
from vit_tutorial.variants import modern

__all__ = [
    "check_attention_pool",
    "check_gated_mlp",
    "check_modern_numbers",
    "check_rms_norm",
    "check_rotary_angles",
    "check_turn",
]

_SCALE = "1 · Layer scale: a block that begins by doing almost nothing"
_REGISTERS = "2 · Registers: scratch paper"
_GATED = "4 · Gated MLP"
_ROTARY = "5 · Rotary positions: places that fit every size"
_RMS = "7 · What can go: a bias, a mean"
_POOL = "8 · What is read out"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "gated width": 128,  # 3 · 64 · M = 2 · 64 · 192
    "tokens": 145,  # 14 · 10 patches, one class token, four registers
    "rms": [1 / 3, -1 / 3, 1, 5 / 3],  # the root of (1 + 1 + 9 + 25) / 4 is 3
    "turned": [-4, 3],  # (3, 4) by a quarter turn
    "layer scale": 9216,  # 2 branches · 12 blocks · 384
    "folded": [1, 2, 1.5],  # (2, 4) and 3, times 0.5
}


def _numbers(**changes: Any) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in changes.items()}


MODERN_NUMBERS = Exercise(
    name="modern_numbers",
    lesson="15",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    advice={
        "gated width": "A plain MLP has two matrices of D · M numbers. How many such matrices has a gated one?",
        "tokens": "Count the patches: rows times columns. Then add what stands before them.",
        "rms": "Square the four numbers, take the mean of the squares and the root of it. Divide each number by that.",
        "turned": "Turned by α, (a, b) becomes (a cos α - b sin α, b cos α + a sin α). Here cos α = 0 and sin α = 1.",
        "layer scale": "A vector as long as a token for each branch. How many branches has a block?",
        "folded": "γ (w · x + b) = (γ w) · x + γ b.",
    },
    mistakes=(
        Mistake(
            "the second first layer forgotten",
            "With M as wide as before, the gated MLP has half as many weights again: gate, value and output are three "
            "matrices where there were two.",
            _GATED,
            _numbers(gated_width=192),
        ),
        Mistake(
            "half the width",
            "Gate and value together are 2 M wide, but the last matrix counts as well: 3 D M must equal 2 D · 192.",
            _GATED,
            _numbers(gated_width=96),
        ),
        Mistake(
            "a wider hidden layer",
            "The gated MLP has three matrices where there were two, so its M gets smaller.",
            _GATED,
            _numbers(gated_width=288),
        ),
        Mistake(
            "a third of the width",
            "One part of three is taken away: two thirds are left.",
            _GATED,
            _numbers(gated_width=64),
        ),
        Mistake(
            "the registers forgotten",
            "Registers are tokens like the others: each goes through every block.",
            _REGISTERS,
            _numbers(tokens=141),
        ),
        Mistake(
            "the class token forgotten",
            "Registers stand beside the class token. They don't replace it.",
            _REGISTERS,
            _numbers(tokens=144),
        ),
        Mistake(
            "the patches alone",
            "A class token and four registers stand before the patches.",
            _REGISTERS,
            _numbers(tokens=140),
        ),
        Mistake(
            "a square image",
            "The image is 224 × 160 pixels: 14 rows, but 10 columns of patches.",
            _REGISTERS,
            _numbers(tokens=201),
        ),
        Mistake(
            "layer norm in place of RMS norm",
            "You subtracted the mean. RMS norm leaves the mean where it is.",
            _RMS,
            _numbers(rms=[-1 / math.sqrt(5), -3 / math.sqrt(5), 1 / math.sqrt(5), 3 / math.sqrt(5)]),
        ),
        Mistake(
            "a division by the length",
            "You divided by the root of the sum of squares, 6. It is the root of their mean, 3.",
            _RMS,
            _numbers(rms=[1 / 6, -1 / 6, 1 / 2, 5 / 6]),
        ),
        Mistake(
            "a root forgotten",
            "You divided by the mean of the squares, 9. It is the root of it that divides.",
            _RMS,
            _numbers(rms=[1 / 9, -1 / 9, 1 / 3, 5 / 9]),
        ),
        Mistake(
            "a division by the deviation",
            "The deviation is measured from the mean. RMS norm knows no mean: square the numbers as they are.",
            _RMS,
            _numbers(rms=[1 / math.sqrt(5), -1 / math.sqrt(5), 3 / math.sqrt(5), 5 / math.sqrt(5)]),
        ),
        Mistake(
            "a division by the mean of the sizes",
            "You took the mean of the absolute values, 2.5. Take squares, their mean, and the root.",
            _RMS,
            _numbers(rms=[0.4, -0.4, 1.2, 2.0]),
        ),
        Mistake(
            "a turn the other way",
            "You turned clockwise. In the lesson's formula the first number gets a minus: a cos α - b sin α.",
            _ROTARY,
            _numbers(turned=[4, -3]),
        ),
        Mistake(
            "an exchange without a sign",
            "A quarter turn exchanges the two numbers, and one of them changes its sign.",
            _ROTARY,
            _numbers(turned=[4, 3]),
        ),
        Mistake(
            "half a turn",
            "π is half a turn. π / 2 is a quarter of one.",
            _ROTARY,
            _numbers(turned=[-3, -4]),
        ),
        Mistake(
            "one vector a block",
            "A block has two branches, attention and MLP, and each has a vector of its own.",
            _SCALE,
            _numbers(layer_scale=4608),
        ),
        Mistake(
            "one block alone",
            "There are 12 blocks.",
            _SCALE,
            _numbers(layer_scale=768),
        ),
        Mistake(
            "one number a branch",
            "γ has a number for each of the D numbers of a token.",
            _SCALE,
            _numbers(layer_scale=24),
        ),
        Mistake(
            "the bias left as it was",
            "γ multiplies all that the layer gives, its bias included.",
            _SCALE,
            _numbers(folded=[1, 2, 3]),
        ),
        Mistake(
            "a division by γ",
            "Layer scale multiplies what the layer gives: so do the new weights.",
            _SCALE,
            _numbers(folded=[4, 8, 6]),
        ),
        Mistake(
            "γ added",
            "Layer scale multiplies.",
            _SCALE,
            _numbers(folded=[2.5, 4.5, 3.5]),
        ),
    ),
)


def check_modern_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(MODERN_NUMBERS, fn)


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def _rms_cases() -> list[Case]:
    asked = [
        ((4, 6), 1.0, 0.0, 1e-6),
        ((2, 3, 8), 1.0, 0.0, 0.1),
        ((5, 5), 1.0, 2.0, 1e-6),
        ((2, 4, 3, 4), 0.001, 0.0, 1e-6),
        ((7,), 1.0, 0.0, 1e-6),
        ((3, 1), 1.0, 0.0, 0.1),
        ((1, 2, 80), 1.0, 1.0, 1e-6),
        ((2, 1, 3, 2, 5), 3000.0, 0.0, 1e-6),
        ((3, 4), 1e-4, 0.0, 1e-9),
    ]
    made = []
    for shape, spread, mean, eps in asked:
        label = f"x {shape}, spread {spread:g}, mean {mean:g}, eps {eps:g}"
        made.append(Case(label, (mean + spread * normal(*shape), normal(shape[-1], seed=1), eps)))
    zeros = normal(3, 4) * torch.tensor([[1.0], [0.0], [2.0]])
    return [*made, Case("x (3, 4), a token of zeros", (zeros, normal(4, seed=1), 1e-6))]


def _mean_square(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


def _rms(
    size: Callable[[Tensor, float], Tensor] = _mean_square,
    centre: Callable[[Tensor], Tensor] = lambda x: x,
    finish: Callable[[Tensor, Tensor], Tensor] = lambda x, weight: x * weight,
) -> Callable[..., Tensor]:
    """RMS norm with another size to divide by, a centre, or another use of the weight."""

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = centre(x)
        return finish(x / size(x, eps), weight)

    return rms_norm


RMS_NORM = Exercise(
    name="rms_norm",
    lesson="15",
    points=2,
    right=_rms(),
    cases=_rms_cases,
    observe=call,
    forbidden=tuple(Forbidden(name, "write the norm yourself") for name in ("rms_norm", "_fused_rms_norm")),
    mistakes=(
        Mistake(
            "layer norm",
            "You subtract the mean. RMS norm leaves it out: square the numbers as they are.",
            _RMS,
            Slip(_rms, centre=lambda x: x - x.mean(-1, keepdim=True)),
        ),
        Mistake(
            "a division by the deviation",
            "std and var subtract the mean inside. RMS norm takes the mean of the squares of x itself.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.var(-1, correction=0, keepdim=True) + eps).sqrt()),
        ),
        Mistake(
            "the sum of squares in place of their mean",
            "You divide by the length of x, so that your rows have length 1. With the mean of the squares the numbers "
            "are about 1, whatever the width.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.square().sum(-1, keepdim=True) + eps).sqrt()),
        ),
        Mistake(
            "eps outside the root",
            "Where the numbers are small it counts: √(mean of squares + eps), not √(mean of squares) + eps.",
            _RMS,
            Slip(_rms, size=lambda x, eps: x.square().mean(-1, keepdim=True).sqrt() + eps),
        ),
        Mistake(
            "eps left out",
            "Add eps to the mean of the squares, inside the root: a row of zeros would be divided by 0.",
            _RMS,
            Slip(_rms, size=lambda x, eps: x.square().mean(-1, keepdim=True).sqrt()),
        ),
        Mistake(
            "an eps of its own",
            "Use the argument eps: models differ in it.",
            _RMS,
            Slip(_rms, size=lambda x, eps: _mean_square(x, 1e-5)),
        ),
        Mistake(
            "a root forgotten",
            "You divide by the mean of the squares. It is the root of it that divides.",
            _RMS,
            Slip(_rms, size=lambda x, eps: x.square().mean(-1, keepdim=True) + eps),
        ),
        Mistake(
            "one size for all tokens",
            "You average over the whole of x. Each token has its own size: mean over the last axis, keepdim=True.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.square().mean() + eps).sqrt()),
        ),
        Mistake(
            "a mean over the tokens",
            "You average over axis -2, the tokens. Each token is normalised by itself: axis -1.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.square().mean(-2, keepdim=True) + eps).sqrt()),
        ),
        Mistake(
            "one size for all tokens of an image",
            "You average over the last two axes. Each token has its own size: mean over axis -1 alone.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.square().mean((-2, -1), keepdim=True) + eps).sqrt()),
        ),
        Mistake(
            "a mean over the first axis",
            "Axis 0 is the batch as soon as there is one. Each token is normalised by itself: axis -1.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.square().mean(0, keepdim=True) + eps).sqrt()),
        ),
        Mistake(
            "the mean of the sizes",
            "You take the mean of the absolute values. It is the root of the mean of the squares.",
            _RMS,
            Slip(_rms, size=lambda x, eps: x.abs().mean(-1, keepdim=True) + eps),
        ),
        Mistake(
            "the square of the mean",
            "Square first, then take the mean. The other way round, positive and negative numbers cancel.",
            _RMS,
            Slip(_rms, size=lambda x, eps: (x.mean(-1, keepdim=True).square() + eps).sqrt()),
        ),
        Mistake(
            "a division by the largest number",
            "RMS norm divides by the root of the mean of the squares.",
            _RMS,
            Slip(_rms, size=lambda x, eps: x.abs().amax(-1, keepdim=True) + eps),
        ),
        Mistake(
            "a multiplication in place of a division",
            "rsqrt is one over the root: multiply by rsqrt, or divide by sqrt.",
            _RMS,
            Slip(_rms, size=lambda x, eps: 1 / _mean_square(x, eps)),
        ),
        Mistake(
            "the weight left out",
            "Each of the D numbers is multiplied by its own weight at the end.",
            _RMS,
            Slip(_rms, finish=lambda x, weight: x),
        ),
        Mistake(
            "the weight added",
            "The weight multiplies. RMS norm has no bias.",
            _RMS,
            Slip(_rms, finish=lambda x, weight: x + weight),
        ),
        Mistake(
            "a weight that counts from 1",
            "Some language models store weight - 1. Here the weight multiplies as it is.",
            _RMS,
            Slip(_rms, finish=lambda x, weight: x * (1 + weight)),
        ),
        Mistake(
            "a division by the weight",
            "The weight multiplies.",
            _RMS,
            Slip(_rms, finish=lambda x, weight: x / weight),
        ),
        Mistake(
            "a weight before the norm",
            "Normalise x itself, and multiply by the weight afterwards.",
            _RMS,
            lambda x, weight, eps: x * weight / _mean_square(x * weight, eps),
        ),
        Mistake(
            "a weight for each token",
            "weight has D numbers, one for each number of a token: it goes along the last axis, as it is.",
            _RMS,
            Slip(_rms, finish=lambda x, weight: x * weight[:, None]),
        ),
    ),
)


def check_rms_norm(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, weight, eps)``: (..., D), (D,), a number -> (..., D)."""
    return check(RMS_NORM, fn)


# ---- The gated MLP -----------------------------------------------------------------------------------------------


def _gated_cases() -> list[Case]:
    made = []
    for shape, M in [
        ((3, 5), 4),
        ((2, 3, 4), 6),
        ((2, 4, 4), 4),
        ((5,), 3),
        ((2, 1, 3), 1),
        ((1, 72), 45),
        ((2, 3, 1, 2, 4), 5),
        ((6, 2), 3),
    ]:
        D = shape[-1]
        weights = [normal(*size, seed=i + 1) for i, size in enumerate([(2 * M, D), (2 * M,), (D, M), (D,)])]
        made.append(Case(f"x {shape}, M={M}", (2 * normal(*shape), *weights)))
    made.append(Case("x (6, 2), M=3, large numbers", (200 * normal(6, 2), *weights)))  # exp(x) is more than float32 has
    return made


def _halves(hidden: Tensor) -> tuple[Tensor, ...]:
    return hidden.chunk(2, dim=-1)


def _gated(
    first: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.nn.functional.linear,
    cut: Callable[[Tensor], tuple[Tensor, ...]] = _halves,
    mix: Callable[[Tensor, Tensor], Tensor] = lambda gate, value: silu(gate) * value,
    last: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.nn.functional.linear,
    end: Callable[[Tensor, Tensor], Tensor] = lambda y, x: y,
) -> Callable[..., Tensor]:
    """A gated MLP with another first layer, cut, mixture, last layer or end."""

    def gated_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        gate, value = cut(first(x, w1, b1))
        return end(last(mix(gate, value), w2, b2), x)

    return gated_mlp


def _value_without_bias(x: Tensor, w1: Tensor, b1: Tensor) -> Tensor:
    M = len(b1) // 2
    return torch.nn.functional.linear(x, w1, torch.cat([b1[:M], torch.zeros(M)]))


def _gate_without_bias(x: Tensor, w1: Tensor, b1: Tensor) -> Tensor:
    M = len(b1) // 2
    return torch.nn.functional.linear(x, w1, torch.cat([torch.zeros(M), b1[M:]]))


GATED_MLP = Exercise(
    name="gated_mlp",
    lesson="15",
    points=3,
    right=_gated(),
    cases=_gated_cases,
    observe=call,
    forbidden=(modern.ModernMLP,),
    mistakes=(
        Mistake(
            "gate and value exchanged",
            "The first M rows of w1 are the gate's, and the SiLU is on the gate. No shape tells the two apart.",
            "Gate and value exchanged.",
            Slip(_gated, cut=lambda hidden: _halves(hidden)[::-1]),
        ),
        Mistake(
            "a GELU on the gate",
            "That is GEGLU, another gated MLP. SwiGLU has a SiLU: x · sigmoid(x).",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gelu(gate) * value),
        ),
        Mistake(
            "a sigmoid on the gate",
            "That is the gated linear unit of 2016. The SiLU is gate · sigmoid(gate).",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate.sigmoid() * value),
        ),
        Mistake(
            "a ReLU on the gate",
            "SwiGLU has a SiLU: x · sigmoid(x).",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate.relu() * value),
        ),
        Mistake(
            "a tanh on the gate",
            "SwiGLU has a SiLU: x · sigmoid(x).",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate.tanh() * value),
        ),
        Mistake(
            "QuickGELU on the gate",
            "x · sigmoid(1.702 x) is CLIP's GELU. The SiLU has no factor: x · sigmoid(x).",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate * (1.702 * gate).sigmoid() * value),
        ),
        Mistake(
            "a softmax on the gate",
            "The numbers of the gate don't compete. SwiGLU has a SiLU: x · sigmoid(x), number by number.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate.softmax(dim=-1) * value),
        ),
        Mistake(
            "the sigmoid of the value",
            "The SiLU is of the gate alone: gate · sigmoid(gate), then times the value.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate * value.sigmoid()),
        ),
        Mistake(
            "a gate without a bend",
            "You multiply gate and value as they are. The SiLU is missing on the gate.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: gate * value),
        ),
        Mistake(
            "a bend on both halves",
            "The SiLU is on the gate alone. The value comes as it is.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: silu(gate) * silu(value)),
        ),
        Mistake(
            "a bend behind the product",
            "The SiLU is on the gate, before it is multiplied.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: silu(gate * value)),
        ),
        Mistake(
            "a sum of gate and value",
            "The gate opens and closes the value: the two are multiplied.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: silu(gate) + value),
        ),
        Mistake(
            "the value left out",
            "You use the gate alone. It is multiplied with the value, the last M rows of w1.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: silu(gate)),
        ),
        Mistake(
            "the gate left out",
            "You use the value alone, which leaves two linear layers without a bend between.",
            _GATED,
            Slip(_gated, mix=lambda gate, value: value),
        ),
        Mistake(
            "rows that take turns",
            "You took every other row for the gate. The gate's M rows come first, then the value's.",
            _GATED,
            Slip(_gated, cut=lambda hidden: (hidden[..., ::2], hidden[..., 1::2])),
        ),
        Mistake(
            "the first bias forgotten",
            "w1 has a bias, b1, for gate and value alike.",
            _GATED,
            Slip(_gated, first=lambda x, w1, b1: x @ w1.T),
        ),
        Mistake(
            "a value without its bias",
            "The last M numbers of b1 are the value's.",
            _GATED,
            Slip(_gated, first=_value_without_bias),
        ),
        Mistake(
            "a gate without its bias",
            "The first M numbers of b1 are the gate's.",
            _GATED,
            Slip(_gated, first=_gate_without_bias),
        ),
        Mistake(
            "the last bias forgotten",
            "The second layer has a bias, b2.",
            _GATED,
            Slip(_gated, last=lambda y, w2, b2: y @ w2.T),
        ),
        Mistake(
            "a second layer that isn't transposed",
            "torch's weight is (out, in): y @ w2.T. Where D equals M, nothing complains.",
            _GATED,
            Slip(_gated, last=lambda y, w2, b2: y @ w2 + b2),
        ),
        Mistake(
            "a shortcut",
            "You add x. The shortcut belongs to the block. The MLP gives its branch alone.",
            _GATED,
            Slip(_gated, end=lambda y, x: y + x),
        ),
        Mistake(
            "a bend at the end",
            "Nothing follows the second layer.",
            _GATED,
            Slip(_gated, end=lambda y, x: silu(y)),
        ),
    ),
)


def check_gated_mlp(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, w1, b1, w2, b2)``: (..., D), (2M, D), (2M,), (D, M), (D,) -> (..., D)."""
    return check(GATED_MLP, fn)


# ---- Rotary positions --------------------------------------------------------------------------------------------


def _angle_cases() -> list[Case]:
    asked = [
        (2, 3, 8, 100.0),
        (3, 2, 8, 100.0),
        (3, 2, 12, 10_000.0),
        (4, 4, 8, 100.0),
        (1, 9, 16, 50.0),
        (3, 4, 4, 100.0),
        (2, 3, 8, 10.0),
        (1, 1, 8, 100.0),
        (13, 12, 40, 100.0),
        (2, 2, 64, 100_000.0),
        (33, 2, 8, 100.0),
        (2, 5, 8, 2.0),
    ]
    return [Case(f"{R} × {C} patches, d={d}, temperature={t:g}", (R, C, d, t)) for R, C, d, t in asked]


def _row_and_column(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    n = torch.arange(rows * columns, dtype=torch.float32)
    return (n / columns).floor(), n % columns


def _falling(head_dim: int, temperature: float) -> Tensor:
    return temperature ** (-4 * torch.arange(head_dim // 4) / head_dim)


def _angles(
    places: Callable[[int, int], tuple[Tensor, Tensor]] = _row_and_column,
    frequency: Callable[[int, float], Tensor] = _falling,
    give: Callable[[Tensor, Tensor], Tensor] = lambda row, column: torch.cat([row, column], dim=1),
) -> Callable[..., Tensor]:
    """Rotary angles from other places, with other frequencies, or put together in another way."""

    def rotary_angles(rows: int, columns: int, head_dim: int, temperature: float) -> Tensor:
        row, column = places(rows, columns)  # (N,) each
        f = frequency(head_dim, temperature)
        return give(row[:, None] * f, column[:, None] * f)  # (N, d/2)

    return rotary_angles


def _column_by_column(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    n = torch.arange(rows * columns, dtype=torch.float32)
    return n % rows, (n / rows).floor()


def _divided_by_rows(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    n = torch.arange(rows * columns, dtype=torch.float32)
    return (n / rows).floor(), n % rows


def _shares_of_the_side(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    row, column = _row_and_column(rows, columns)
    return row / rows, column / columns


def _centred(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    row, column = _row_and_column(rows, columns)
    return 2 * math.pi * (2 * (row + 0.5) / rows - 1), 2 * math.pi * (2 * (column + 0.5) / columns - 1)


def _numbers_of_patches(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    n = torch.arange(rows * columns, dtype=torch.float32)
    return n, n


ROTARY_ANGLES = Exercise(
    name="rotary_angles",
    lesson="15",
    points=3,
    right=_angles(),
    cases=_angle_cases,
    observe=call,
    tolerance=2e-6,
    forbidden=(modern.Rotary.angles,),
    mistakes=(
        Mistake(
            "patches divided by the number of rows",
            "A row is as long as there are columns: patch n is in row n // columns and column n % columns.",
            _ROTARY,
            Slip(_angles, places=_divided_by_rows),
        ),
        Mistake(
            "columns before rows",
            "The first half of the pairs turns with the row, the second half with the column. You exchanged the two.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.cat([column, row], dim=1)),
        ),
        Mistake(
            "patches counted column by column",
            "Patches are numbered row by row: patch n is in row n // columns and column n % columns. "
            "(torch.meshgrid wants indexing='ij'.)",
            _ROTARY,
            Slip(_angles, places=_column_by_column),
        ),
        Mistake(
            "places along one line",
            "You used the patch's number n for both halves. Row and column are two coordinates.",
            _ROTARY,
            Slip(_angles, places=_numbers_of_patches),
        ),
        Mistake(
            "the row for both halves",
            "The second half of the pairs turns with the column.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.cat([row, row], dim=1)),
        ),
        Mistake(
            "the column for both halves",
            "The first half of the pairs turns with the row.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.cat([column, column], dim=1)),
        ),
        Mistake(
            "rows and columns that take turns",
            "You put row, column, row, column. All d / 4 angles of the row come first, then those of the column.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.stack([row, column], dim=2).flatten(1)),
        ),
        Mistake(
            "frequencies that fall half as fast",
            "You divide k by d / 2, as in one dimension. Here a coordinate has d / 4 pairs: temperature ** (-4 k / d).",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: t ** (-2 * torch.arange(d // 4) / d)),
        ),
        Mistake(
            "frequencies that fall by d",
            "The exponent is -4 k / d: of d numbers, a coordinate has d / 4 pairs.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: t ** (-1 * torch.arange(d // 4) / d)),
        ),
        Mistake(
            "frequencies that grow",
            "You multiply by temperature ** (4 k / d). Divide: the first pair turns fastest, by 1 radian a patch.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: 1 / _falling(d, t)),
        ),
        Mistake(
            "frequencies in the reverse order",
            "Pair 0 turns fastest, by 1 radian a patch.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: _falling(d, t).flip(0)),
        ),
        Mistake(
            "frequencies counted from 1",
            "k counts from 0, so that pair 0 turns by 1 radian a patch.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: t ** (-4 * (torch.arange(d // 4) + 1) / d)),
        ),
        Mistake(
            "frequencies down to 1 / temperature",
            "The last k is d / 4 - 1, so the last frequency is a little above 1 / temperature. linspace reaches it.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: t ** -torch.linspace(0, 1, d // 4)),
        ),
        Mistake(
            "one frequency for all pairs",
            "Pair k turns by temperature ** (-4 k / d) radians a patch. Yours all turn alike.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: torch.ones(d // 4)),
        ),
        Mistake(
            "a temperature of its own",
            "Use the argument temperature: models differ in it.",
            _ROTARY,
            Slip(_angles, frequency=lambda d, t: _falling(d, 10_000.0)),
        ),
        Mistake(
            "coordinates from 1",
            "Rows and columns count from 0.",
            _ROTARY,
            Slip(_angles, places=lambda r, c: tuple(x + 1 for x in _row_and_column(r, c))),
        ),
        Mistake(
            "coordinates in the middle of the patches",
            "Rows and columns are 0, 1, 2, … here, without a half.",
            _ROTARY,
            Slip(_angles, places=lambda r, c: tuple(x + 0.5 for x in _row_and_column(r, c))),
        ),
        Mistake(
            "coordinates from 0 to 1",
            "Rows and columns are 0, 1, 2, … here, and aren't divided by their number.",
            _ROTARY,
            Slip(_angles, places=_shares_of_the_side),
        ),
        Mistake(
            "centred coordinates",
            "These are DINOv3's, from one edge of the image to the other. Asked are EVA-02's, 0, 1, 2 and so on.",
            _ROTARY,
            Slip(_angles, places=_centred),
        ),
        Mistake(
            "angles in degrees",
            "torch's cos and sin take radians, and the formula gives radians already.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.rad2deg(torch.cat([row, column], dim=1))),
        ),
        Mistake(
            "full turns in place of radians",
            "The formula has no 2 π.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: 2 * math.pi * torch.cat([row, column], dim=1)),
        ),
        Mistake(
            "the cosine of the angles",
            "Return the angles themselves.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.cat([row, column], dim=1).cos()),
        ),
        Mistake(
            "row and column added",
            "Each coordinate turns pairs of its own: (N, d / 4) for the row, (N, d / 4) for the column, side by side.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: row + column),
        ),
        Mistake(
            "each angle twice",
            "A pair needs one angle: d / 2 for a head, not d.",
            _ROTARY,
            Slip(_angles, give=lambda row, column: torch.cat([row, column, row, column], dim=1)),
        ),
    ),
)


def check_rotary_angles(fn: Callable[[int, int, int, float], Tensor]) -> bool:
    """Check ``fn(rows, columns, head_dim, temperature)`` -> (N, d / 2), radians."""
    return check(ROTARY_ANGLES, fn)


def _turn_cases() -> list[Case]:
    asked = [
        ((1, 2, 6, 4), 0),
        ((2, 3, 7, 8), 1),
        ((2, 2, 9, 12), 5),
        ((3, 1, 5, 4), 2),
        ((1, 4, 5, 2), 1),  # as many heads as angles, and more tokens
        ((4, 4, 4, 4), 0),
        ((2, 2, 1, 4), 0),
        ((1, 12, 45, 4), 3),
        ((1, 2, 3, 64), 1),
    ]
    made = []
    for (B, h, T, d), before in asked:
        angles = 2 * normal(T - before, d // 2, seed=1)
        label = f"x {(B, h, T, d)}, angles {(T - before, d // 2)}"
        made.append(Case(label, (normal(B, h, T, d), angles)))
    many = 10 * normal(2, 2, 5, 6, seed=2), 30 * normal(4, 3, seed=3)  # as far down and right in a large image
    return [*made, Case("x (2, 2, 5, 6), angles (4, 3), many turns", many)]


def _rotated(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos - b * sin, b * cos + a * sin


def _neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., ::2], x[..., 1::2]


def _zipped(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a, b], dim=-1).flatten(-2)


def _first_ones_still(angles: Tensor, tokens: int) -> Tensor:
    return torch.nn.functional.pad(angles, (0, 0, tokens - len(angles), 0))


def _turn(
    pairs: Callable[[Tensor], tuple[Tensor, ...]] = _halves,
    rotation: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = _rotated,
    join: Callable[[Tensor, Tensor], Tensor] = lambda a, b: torch.cat([a, b], dim=-1),
    spread: Callable[[Tensor, int], Tensor] = _first_ones_still,
    waves: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda angles: (angles.cos(), angles.sin()),
    give: Callable[[Tensor, Tensor, int], Tensor] = lambda turned, x, before: turned,
) -> Callable[[Tensor, Tensor], Tensor]:
    """The rotation with other pairs, another formula, or angles spread over the tokens in another way."""

    def turn(x: Tensor, angles: Tensor) -> Tensor:
        given = spread(angles, x.shape[-2])  # (T, d/2)
        a, b = pairs(x)
        cos, sin = waves(given)
        turned = join(*rotation(a, b, cos, sin))
        return give(turned, x, x.shape[-2] - len(angles))

    return turn


def _overwritten(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    a = a * cos - b * sin
    return a, b * cos + a * sin


def _each_angle_twice(x: Tensor, angles: Tensor) -> Tensor:
    """Cosine and sine with each angle twice in a row, as neighbours need it, and halves exchanged."""
    angles = _first_ones_still(angles, x.shape[-2]).repeat_interleave(2, dim=-1)  # (T, d)
    a, b = _halves(x)
    return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()


def _neighbours_exchanged(x: Tensor, angles: Tensor) -> Tensor:
    """Cosine and sine with the row of angles twice, as halves need it, and neighbours exchanged."""
    angles = _first_ones_still(angles, x.shape[-2]).repeat(1, 2)  # (T, d)
    a, b = _neighbours(x)
    return x * angles.cos() + _zipped(-b, a) * angles.sin()


TURN = Exercise(
    name="turn",
    lesson="15",
    points=3,
    right=_turn(),
    cases=_turn_cases,
    observe=call,
    forbidden=(modern.rotate,),
    mistakes=(
        Mistake(
            "a turn the other way",
            "Your angles run backwards. The first half becomes a cos - b sin, the second b cos + a sin.",
            _ROTARY,
            Slip(_turn, rotation=lambda a, b, cos, sin: _rotated(a, b, cos, -sin)),
        ),
        Mistake(
            "neighbours paired",
            "You pair numbers 2i and 2i + 1, as EVA-02 does. Here number i belongs to number i + d / 2.",
            "Neighbours or halves.",
            Slip(_turn, pairs=_neighbours, join=_zipped),
        ),
        Mistake(
            "neighbours paired, and put back as halves",
            "You take numbers 2i and 2i + 1 for a pair and return all first ones, then all second ones. Here number i "
            "belongs to number i + d / 2, and stays where it is.",
            "Neighbours or halves.",
            Slip(_turn, pairs=_neighbours),
        ),
        Mistake(
            "halves paired, and put back as neighbours",
            "The pairs are right, but each number must return to where it was: torch.cat, not torch.stack.",
            "Neighbours or halves.",
            Slip(_turn, join=_zipped),
        ),
        Mistake(
            "each angle twice in a row",
            "You repeat each angle for two neighbours and exchange halves. Number i belongs to number i + d / 2, so it "
            "is the whole row of angles that comes twice.",
            "Neighbours or halves.",
            _each_angle_twice,
        ),
        Mistake(
            "neighbours exchanged",
            "You repeat the row of angles, as halves need it, and exchange neighbours. Number i belongs to number "
            "i + d / 2: exchange the halves.",
            "Neighbours or halves.",
            _neighbours_exchanged,
        ),
        Mistake(
            "the last tokens left alone",
            "Tokens without a place come first, so the angles belong to the last N tokens. You turned the first N.",
            "The class token turned, too.",
            Slip(_turn, spread=lambda angles, T: torch.nn.functional.pad(angles, (0, 0, 0, T - len(angles)))),
        ),
        Mistake(
            "the class token turned like the first patch",
            "Tokens without a place in the image stay as they are.",
            "The class token turned, too.",
            Slip(_turn, spread=lambda angles, T: torch.cat([angles[:1].expand(T - len(angles), -1), angles])),
        ),
        Mistake(
            "the tokens before the patches left out",
            "Return all T tokens: those without a place come first, as they were.",
            "The class token turned, too.",
            Slip(_turn, give=lambda turned, x, before: turned[..., before:, :]),
        ),
        Mistake(
            "the tokens before the patches set to zero",
            "An angle of 0 leaves a token as it is: its cosine is 1.",
            "The class token turned, too.",
            Slip(_turn, give=lambda turned, x, before: turned * (torch.arange(x.shape[-2]) >= before)[:, None]),
        ),
        Mistake(
            "the tokens before the patches put behind them",
            "Tokens without a place come first, and stay first.",
            "The class token turned, too.",
            Slip(_turn, give=lambda turned, x, before: turned.roll(-before, dims=-2)),
        ),
        Mistake(
            "the cosine alone",
            "You multiply by the cosine. A turn also mixes the two numbers of a pair: a cos - b sin, b cos + a sin.",
            _ROTARY,
            Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos, b * cos)),
        ),
        Mistake(
            "cosine and sine exchanged",
            "An angle of 0 must change nothing: the number itself goes with the cosine.",
            _ROTARY,
            Slip(_turn, waves=lambda angles: (angles.sin(), angles.cos())),
        ),
        Mistake(
            "two plus signs",
            "One of the sines has a minus: a cos - b sin. Otherwise lengths change.",
            _ROTARY,
            Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin)),
        ),
        Mistake(
            "two minus signs",
            "Only one of the sines has a minus: the second half is b cos + a sin.",
            _ROTARY,
            Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin)),
        ),
        Mistake(
            "the second half alone turned",
            "Both numbers of a pair change: the first becomes a cos - b sin.",
            _ROTARY,
            Slip(_turn, rotation=lambda a, b, cos, sin: (a, b * cos + a * sin)),
        ),
        Mistake(
            "the first half alone turned",
            "Both numbers of a pair change: the second becomes b cos + a sin.",
            _ROTARY,
            Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos - b * sin, b)),
        ),
        Mistake(
            "a half that was overwritten",
            "The second half needs the first one as it was, and you had changed it already. Compute both, then store "
            "them.",
            _ROTARY,
            Slip(_turn, rotation=_overwritten),
        ),
        Mistake(
            "halves exchanged",
            "The numbers are turned the right way, but the second half stands first.",
            _ROTARY,
            Slip(_turn, join=lambda a, b: torch.cat([b, a], dim=-1)),
        ),
        Mistake(
            "the angles taken for cosines and sines",
            "Take the cosine and the sine of each angle first.",
            _ROTARY,
            Slip(_turn, waves=lambda angles: (angles, angles)),
        ),
        Mistake(
            "angles in degrees",
            "The angles are radians already, as torch's cos and sin want them.",
            _ROTARY,
            Slip(_turn, spread=lambda angles, T: torch.deg2rad(_first_ones_still(angles, T))),
        ),
        Mistake(
            "half the angle",
            "Turn each pair by the whole angle.",
            _ROTARY,
            Slip(_turn, spread=lambda angles, T: _first_ones_still(angles, T) / 2),
        ),
        Mistake(
            "twice the angle",
            "Turn each pair by the angle itself, once.",
            _ROTARY,
            Slip(_turn, spread=lambda angles, T: _first_ones_still(angles, T) * 2),
        ),
        Mistake(
            "the pairs' angles from last to first",
            "Numbers i and i + d / 2 turn by angles[:, i]. You took the columns of angles from the last to the first.",
            _ROTARY,
            Slip(_turn, spread=lambda angles, T: _first_ones_still(angles.flip(1), T)),
        ),
        Mistake(
            "the tokens' angles from last to first",
            "The first row of angles belongs to the first token that turns. You took the rows from the last one to the "
            "first.",
            _ROTARY,
            Slip(_turn, spread=lambda angles, T: _first_ones_still(angles.flip(0), T)),
        ),
        Mistake(
            "the turned numbers added to x",
            "The turned queries take the place of the old ones.",
            _ROTARY,
            Slip(_turn, give=lambda turned, x, before: turned + x),
        ),
    ),
)


def check_turn(fn: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(x, angles)``: (B, h, T, d), (N, d / 2) with N <= T -> (B, h, T, d)."""
    return check(TURN, fn)


# ---- Attention pooling -------------------------------------------------------------------------------------------


def _pool_cases() -> list[Case]:
    made = []
    for (B, S, D), heads in [
        ((2, 5, 6), 1),
        ((3, 4, 8), 2),
        ((1, 7, 12), 3),
        ((4, 3, 4), 4),
        ((4, 4, 4), 2),
        ((2, 1, 6), 3),
        ((1, 45, 24), 12),
        ((9, 70, 16), 4),
        ((5, 5, 8), 2),
    ]:
        given = [normal(*size, seed=i + 1) for i, size in enumerate([(D,), (D, D), (D, D), (D, D)])]
        given[1] = given[1] / math.sqrt(D)  # soft weights, so that each token counts in each image
        made.append(Case(f"z {(B, S, D)}, num_heads={heads}", (normal(B, S, D), *given, heads)))
    hard = [300 * given[0], *given[1:]]  # exp of these scores is more than float32 has
    made.append(Case("z (5, 5, 8), num_heads=2, large scores", (normal(5, 5, 8), *hard, 2)))
    return made


def _by_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)  # (..., S, D) -> (..., h, S, d)


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


def _pooled(
    layers: Callable[..., tuple[Tensor, Tensor, Tensor]] = lambda z, p, q, k, v: (p @ q.T, z @ k.T, z @ v.T),
    split: Callable[[Tensor, int], Tensor] = _by_heads,
    scale: Callable[[int, int], float] = lambda D, h: math.sqrt(D / h),
    squash: Callable[[Tensor], Tensor] = _softmax,
    merge: Callable[[Tensor], Tensor] = lambda y: y.transpose(-2, -3).flatten(-2),
    give: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda y, z, probe: y,
) -> Callable[..., Tensor]:
    """Attention pooling with other projections, heads, scale, softmax, or something done at the end."""

    def attention_pool(z: Tensor, probe: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, num_heads: int) -> Tensor:
        q, k, v = (split(x, num_heads) for x in layers(z, probe[None], wq, wk, wv))  # (h, 1, d), (B, h, S, d) twice
        weights = squash(q @ k.mT / scale(z.shape[-1], num_heads))  # (B, h, 1, S)
        return give(merge(weights @ v)[:, 0], z, probe)  # (B, D)

    return attention_pool


def _probe_among_the_tokens(z: Tensor, p: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z = torch.cat([p.expand(len(z), 1, -1), z], dim=1)  # (B, 1 + S, D)
    return p @ q.T, z @ k.T, z @ v.T


def _tokens_that_ask(z: Tensor, p: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (z @ q.T).mean(1, keepdim=True), z @ k.T, z @ v.T


ATTENTION_POOL = Exercise(
    name="attention_pool",
    lesson="15",
    points=3,
    right=_pooled(),
    cases=_pool_cases,
    observe=call,
    forbidden=(modern.AttentionPool,),
    mistakes=(
        Mistake(
            "the mean of the values",
            "You weigh all tokens alike, so the probe has nothing to say. Its scores decide the weights.",
            _POOL,
            Slip(_pooled, squash=lambda scores: torch.ones_like(scores) / scores.shape[-1]),
        ),
        Mistake(
            "no scale",
            "Divide the scores by √d before the softmax, as everywhere in attention.",
            _POOL,
            Slip(_pooled, scale=lambda D, h: 1.0),
        ),
        Mistake(
            "one head of width D",
            "You leave num_heads out. Cut queries, keys and values into h heads of d = D / h numbers: each has weights "
            "of its own, and its scores are divided by √d.",
            _POOL,
            lambda z, probe, wq, wk, wv, num_heads: _pooled()(z, probe, wq, wk, wv, 1),
        ),
        Mistake(
            "√D for √d",
            "Each head has d = D / h numbers: divide by √d.",
            _POOL,
            Slip(_pooled, scale=lambda D, h: math.sqrt(D)),
        ),
        Mistake(
            "a division by d",
            "Divide by the root of d.",
            _POOL,
            Slip(_pooled, scale=lambda D, h: D / h),
        ),
        Mistake(
            "a single head",
            "You compare all D numbers at once. Cut queries, keys and values into heads first: each has weights of its "
            "own.",
            _POOL,
            Slip(_pooled, split=lambda x, h: x.unsqueeze(-3), merge=lambda y: y.squeeze(-3)),
        ),
        Mistake(
            "interleaved heads",
            "Head 0 has the first d numbers, not every h-th one.",
            _POOL,
            Slip(_pooled, split=lambda x, h: x.unflatten(-1, (-1, h)).movedim(-1, -3)),
        ),
        Mistake(
            "heads put together crosswise",
            "The heads stand end to end: all d numbers of head 0 first.",
            _POOL,
            Slip(_pooled, merge=lambda y: y.movedim(-3, -1).flatten(-2)),
        ),
        Mistake(
            "a softmax over the heads",
            "The weights of one head must sum to 1 over the tokens: the last axis.",
            _POOL,
            Slip(_pooled, squash=lambda scores: scores.softmax(dim=1)),
        ),
        Mistake(
            "a softmax over the images",
            "The weights of one image must sum to 1 over its tokens. You let the images of a batch compete.",
            _POOL,
            Slip(_pooled, squash=lambda scores: scores.softmax(dim=0)),
        ),
        Mistake(
            "no softmax",
            "You weigh with the scores themselves. A softmax makes weights of them that sum to 1.",
            _POOL,
            Slip(_pooled, squash=lambda scores: scores),
        ),
        Mistake(
            "a sigmoid in place of a softmax",
            "A sigmoid looks at each token alone. The weights must sum to 1 over the tokens.",
            _POOL,
            Slip(_pooled, squash=torch.sigmoid),
        ),
        Mistake(
            "the best token alone",
            "You take the token with the highest score. The softmax mixes all of them.",
            _POOL,
            Slip(_pooled, squash=lambda s: (s == s.amax(-1, keepdim=True)).to(s.dtype)),
        ),
        Mistake(
            "one set of weights for all heads",
            "You average the heads' weights. Each head has weights of its own.",
            _POOL,
            Slip(_pooled, squash=lambda scores: scores.softmax(-1).mean(1, keepdim=True).expand_as(scores)),
        ),
        Mistake(
            "the probe among the tokens",
            "You put the probe before the tokens, so it also looks at itself. It asks, and the tokens of the image "
            "answer.",
            _POOL,
            Slip(_pooled, layers=_probe_among_the_tokens),
        ),
        Mistake(
            "queries from the tokens",
            "You make the query from the image's tokens. It comes from the probe, the same for every image.",
            _POOL,
            Slip(_pooled, layers=_tokens_that_ask),
        ),
        Mistake(
            "the probe as it is",
            "The probe goes through wq first.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p, z @ k.T, z @ v.T)),
        ),
        Mistake(
            "keys that are the tokens themselves",
            "The keys are z @ wk.T.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q.T, z, z @ v.T)),
        ),
        Mistake(
            "values that are the tokens themselves",
            "What is mixed are the values, z @ wv.T.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q.T, z @ k.T, z)),
        ),
        Mistake(
            "keys and values exchanged",
            "The probe is compared with the keys, wk, and what is mixed are the values, wv.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q.T, z @ v.T, z @ k.T)),
        ),
        Mistake(
            "keys mixed in place of values",
            "What is mixed are the values, z @ wv.T.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q.T, z @ k.T, z @ k.T)),
        ),
        Mistake(
            "the keys' weights for the query",
            "The probe has a matrix of its own, wq.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ k.T, z @ k.T, z @ v.T)),
        ),
        Mistake(
            "matrices that aren't transposed",
            "The matrices are torch's, (out, in): z @ wk.T. They are square, so nothing complains.",
            _POOL,
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q, z @ k, z @ v)),
        ),
        Mistake(
            "the probe added at the end",
            "Here nothing is added: return what the probe has read.",
            _POOL,
            Slip(_pooled, give=lambda y, z, probe: y + probe),
        ),
        Mistake(
            "an axis too many",
            "The numbers are right. There is one probe, so the answer is (B, D), without an axis of length 1.",
            _POOL,
            Slip(_pooled, give=lambda y, z, probe: y[:, None]),
        ),
    ),
)


def check_attention_pool(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(z, probe, wq, wk, wv, num_heads)``: (B, S, D), (D,), three (D, D) -> (B, D)."""
    return check(ATTENTION_POOL, fn)
